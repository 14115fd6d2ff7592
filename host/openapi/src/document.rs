//! The document and the files that it refers to: reading, and following `$ref`.

use std::collections::VecDeque;

use serde_json::Value;
use url::Url;

use crate::error::OpenApiError;
use crate::yaml;

/// The most bytes of one file.
pub const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;

/// The most files of one document.
const MAX_FILES: usize = 200;

/// The longest chain of references that refer to references.
const MAX_CHAIN: usize = 50;

/// The most arrays and objects inside each other.
const MAX_DEPTH: usize = 200;

/// The place of a file: a path in the file system, or a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// A path. References of such a document may name files in its directory.
    File(String),
    /// A URL.
    Web(Url),
}

impl Location {
    /// Returns the text that errors show.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::File(path) => path.clone(),
            Self::Web(url) => url.to_string(),
        }
    }

    /// Resolves the part of a reference before its `#`.
    fn join(&self, reference: &str) -> Result<Self, String> {
        if let Ok(url) = Url::parse(reference) {
            return match url.scheme() {
                "https" | "http" => Ok(Self::Web(url)),
                scheme => Err(format!("the scheme `{scheme}` is not read")),
            };
        }
        match self {
            Self::Web(base) => base.join(reference).map(Self::Web).map_err(|error| error.to_string()),
            Self::File(base) => {
                let directory = base.rfind('/').map_or("", |end| base.get(..=end).unwrap_or_default());
                let mut parts: Vec<&str> = Vec::new();
                for part in reference.split('/') {
                    match part {
                        "" if parts.is_empty() => return Err("it is an absolute path".to_owned()),
                        "" | "." => {}
                        ".." if parts.pop().is_none() => {
                            return Err("it leaves the document's directory".to_owned());
                        }
                        ".." => {}
                        part if part.contains('\\') => return Err("it has a backslash".to_owned()),
                        part => parts.push(part),
                    }
                }
                Ok(Self::File(format!("{directory}{}", parts.join("/"))))
            }
        }
    }
}

/// Reads the files of a document.
pub trait DocumentLoader {
    /// Returns the bytes of a file, or the reason why it cannot be read, as a sentence.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&mut self, location: &Location) -> Result<Vec<u8>, String>;
}

/// A file of a document.
#[derive(Debug)]
struct DocumentFile {
    location: Location,
    root: Value,
}

/// A document with all files that it refers to.
#[derive(Debug)]
pub struct Document {
    files: Vec<DocumentFile>,
    bytes: usize,
}

/// A value of a document with its place.
#[derive(Debug, Clone)]
pub(crate) struct Node<'d> {
    pub(crate) value: &'d Value,
    pub(crate) file: usize,
    pub(crate) pointer: String,
}

impl<'d> Node<'d> {
    pub(crate) fn get(&self, key: &str) -> Option<Node<'d>> {
        let value = self.value.get(key)?;
        Some(Node { value, file: self.file, pointer: format!("{}/{}", self.pointer, escape_pointer(key)) })
    }

    pub(crate) fn text(&self, key: &str) -> Option<&'d str> {
        self.value.get(key)?.as_str()
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.value.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = Node<'d>> + use<'d> {
        let (file, pointer) = (self.file, self.pointer.clone());
        let items = self.value.as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().enumerate().map(move |(at, value)| Node {
            value,
            file,
            pointer: format!("{pointer}/{at}"),
        })
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'d str, Node<'d>)> + use<'d> {
        let (file, pointer) = (self.file, self.pointer.clone());
        self.value.as_object().into_iter().flatten().map(move |(name, value)| {
            (name.as_str(), Node { value, file, pointer: format!("{pointer}/{}", escape_pointer(name)) })
        })
    }

    pub(crate) fn key(&self) -> (usize, String) {
        (self.file, self.pointer.clone())
    }
}

/// The versions of OpenAPI that are read.
fn check_version(root: &Value, place: &str) -> Result<(), OpenApiError> {
    if let Some(version) = root.get("swagger") {
        let message = format!("this is Swagger {}, not OpenAPI 3", version.as_str().unwrap_or("2.0"));
        let fix = "Convert it first, for example with `npx swagger2openapi --outfile openapi.json FILE`.";
        return Err(OpenApiError::new(format!("{place}#/swagger"), message, fix));
    }
    match root.get("openapi").and_then(Value::as_str) {
        Some(version) if version.starts_with("3.0") || version.starts_with("3.1") => Ok(()),
        Some(version) => {
            let message = format!("OpenAPI {version:?} is not read");
            Err(OpenApiError::new(
                format!("{place}#/openapi"),
                message,
                "Take a document of version 3.0 or 3.1.",
            ))
        }
        None => {
            let message = "this is no OpenAPI document: it has no text `openapi` at its root";
            Err(OpenApiError::new(
                place,
                message,
                "Name the file that begins with `openapi: 3.1.0` or `3.0.x`.",
            ))
        }
    }
}

impl Document {
    /// Reads a document and the files that it refers to.
    ///
    /// # Errors
    /// A file cannot be read or parsed, is no OpenAPI 3.0 or 3.1, or refers to the network without `allow_references`.
    pub fn read(
        location: Location,
        loader: &mut dyn DocumentLoader,
        allow_references: bool,
    ) -> Result<Self, OpenApiError> {
        let place = location.shown();
        let mut document = Self { files: Vec::new(), bytes: 0 };
        document.add(location, loader, None)?;
        if let Some(first) = document.files.first() {
            check_version(&first.root, &place)?;
        }
        let mut pending = VecDeque::from([0]);
        while let Some(file) = pending.pop_front() {
            for (pointer, location) in document.outside_references(file)? {
                if document.files.iter().any(|known| known.location == location) {
                    continue;
                }
                let place = document.place(file, &pointer);
                if let Location::Web(url) = &location
                    && !allow_references
                {
                    let message =
                        format!("it refers to {url}, and references to the network are not followed");
                    let fix = "Put that file beside the document, or allow it with --allow-references.";
                    return Err(OpenApiError::new(place, message, fix));
                }
                if document.files.len() >= MAX_FILES {
                    let message = format!("the document has more than {MAX_FILES} files");
                    return Err(OpenApiError::new(place, message, "Bundle it into one file."));
                }
                document.add(location, loader, Some(place))?;
                pending.push_back(document.files.len() - 1);
            }
        }
        Ok(document)
    }

    fn add(
        &mut self,
        location: Location,
        loader: &mut dyn DocumentLoader,
        from: Option<String>,
    ) -> Result<(), OpenApiError> {
        let place = location.shown();
        let bytes = loader.load(&location).map_err(|why| {
            let fix = "Check the name, and that the file can be read.";
            match from {
                Some(from) => OpenApiError::new(from, format!("the file {place} cannot be read: {why}"), fix),
                None => OpenApiError::new(place.clone(), format!("it cannot be read: {why}"), fix),
            }
        })?;
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > MAX_FILE_BYTES {
            let message = format!("the document has more than {} MiB", MAX_FILE_BYTES / 1024 / 1024);
            return Err(OpenApiError::new(place, message, "Remove what the connector does not need."));
        }
        let root = parse(&bytes, &place)?;
        check_depth(&root, &place)?;
        self.files.push(DocumentFile { location, root });
        Ok(())
    }

    /// Returns the references of a file to other files, each with the pointer of its object.
    fn outside_references(&self, file: usize) -> Result<Vec<(String, Location)>, OpenApiError> {
        let Some(DocumentFile { location, root }) = self.files.get(file) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let mut stack = vec![(String::new(), root)];
        while let Some((pointer, value)) = stack.pop() {
            match value {
                Value::Object(fields) => {
                    if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                        let path = reference.split('#').next().unwrap_or_default();
                        // Examples may have any content, also such a field.
                        if !path.is_empty() && !pointer.contains("/example") {
                            let location = location.join(path).map_err(|why| {
                                let message = format!("the reference {reference:?} is not followed: {why}");
                                let fix = "Refer to a file in the document's directory or below.";
                                OpenApiError::new(self.place(file, &pointer), message, fix)
                            })?;
                            found.push((pointer.clone(), location));
                        }
                    }
                    for (name, value) in fields.iter().rev() {
                        if value.is_object() || value.is_array() {
                            stack.push((format!("{pointer}/{}", escape_pointer(name)), value));
                        }
                    }
                }
                Value::Array(items) => {
                    for (at, value) in items.iter().enumerate().rev() {
                        if value.is_object() || value.is_array() {
                            stack.push((format!("{pointer}/{at}"), value));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Returns the number of bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the place of the document itself.
    pub(crate) fn location(&self) -> Option<&Location> {
        self.files.first().map(|file| &file.location)
    }

    pub(crate) fn root(&self) -> Node<'_> {
        let value = self.files.first().map_or(&Value::Null, |file| &file.root);
        Node { value, file: 0, pointer: String::new() }
    }

    /// Returns the text that errors show for a place.
    pub(crate) fn place(&self, file: usize, pointer: &str) -> String {
        let location = self.files.get(file).map(|file| file.location.shown()).unwrap_or_default();
        format!("{location}#{pointer}")
    }

    pub(crate) fn error(
        &self,
        node: &Node<'_>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> OpenApiError {
        OpenApiError::new(self.place(node.file, &node.pointer), message, fix)
    }

    /// Follows the reference of `node` by one step; none if it has none.
    pub(crate) fn step<'d>(&'d self, node: &Node<'d>) -> Result<Option<Node<'d>>, OpenApiError> {
        let Some(reference) = node.text("$ref") else { return Ok(None) };
        let (path, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let dead = |why: &str| {
            let fix = "Correct the reference, like \"#/components/schemas/Name\".";
            self.error(node, format!("the reference {reference:?} leads nowhere: {why}"), fix)
        };
        let file = match path {
            "" => node.file,
            path => {
                let base = self.files.get(node.file).ok_or_else(|| dead("there is no such file"))?;
                let location = base.location.join(path).map_err(|why| dead(&why))?;
                let found = self.files.iter().position(|file| file.location == location);
                found.ok_or_else(|| dead("the file was not read"))?
            }
        };
        let root = self.files.get(file).map_or(&Value::Null, |file| &file.root);
        if fragment.is_empty() {
            return Ok(Some(Node { value: root, file, pointer: String::new() }));
        }
        let Some(_) = fragment.strip_prefix('/') else {
            return Err(dead("anchors are not read, JSON pointers are"));
        };
        let fragment = percent_decode(fragment);
        let value = root.pointer(&fragment).ok_or_else(|| dead("there is nothing at that pointer"))?;
        Ok(Some(Node { value, file, pointer: fragment }))
    }

    /// Follows references until there is none.
    pub(crate) fn follow<'d>(&'d self, node: &Node<'d>) -> Result<Node<'d>, OpenApiError> {
        let mut at = node.clone();
        for _ in 0..MAX_CHAIN {
            match self.step(&at)? {
                None => return Ok(at),
                Some(next) => at = next,
            }
        }
        let message =
            format!("the reference is the start of a circle, or of a chain of more than {MAX_CHAIN}");
        Err(self.error(node, message, "Let it refer to a definition."))
    }
}

fn parse(bytes: &[u8], place: &str) -> Result<Value, OpenApiError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let message = format!("it is not UTF-8 text at byte {}", error.valid_up_to());
        OpenApiError::new(place, message, "Save it as UTF-8.")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with(['{', '[']) {
        return serde_json::from_str(text).map_err(|error| {
            let place = format!("{place}:{}:{}", error.line(), error.column());
            OpenApiError::new(place, format!("this is not JSON: {error}"), "Correct the JSON here.")
        });
    }
    yaml::parse(text).map_err(|problem| {
        let place = format!("{place}:{}:{}", problem.line, problem.column);
        OpenApiError::new(place, problem.message, "Correct the YAML here.")
    })
}

/// Bounds the recursion of everything that walks the document.
fn check_depth(root: &Value, place: &str) -> Result<(), OpenApiError> {
    let mut stack = vec![(root, 0)];
    while let Some((value, depth)) = stack.pop() {
        if depth > MAX_DEPTH {
            let message = format!("values are nested more than {MAX_DEPTH} deep");
            return Err(OpenApiError::new(place, message, "Move inner schemas to components."));
        }
        match value {
            Value::Array(items) => stack.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => stack.extend(fields.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn escape_pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

pub(crate) fn percent_decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, hex) {
            (b'%', Some(value)) => {
                decoded.push(value);
                at += 3;
            }
            (byte, _) => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).unwrap_or_else(|_| text.to_owned())
}
