//! An author's documentation of each operation and its parameters: the text of tool descriptions.
//!
//! Component toolchains drop documentation comments, so the package carries them in addition to the code.
//! They are untrusted text for people and agents: sanitized and truncated when they are read.

use std::collections::BTreeMap;

use cofferdam_core::failure::{sanitize_line, sanitize_lines};
use serde::{Deserialize, Serialize};
use wit_parser::{Function, SourceMap, UnresolvedPackage, WorldItem, WorldKey};

use super::error::PackageError;
use super::sections::DOCS_SECTION;
use super::shape::{OperationSignature, WitName};

const MAX_ENTRIES: usize = 1_000;
const MAX_OPERATION_CHARS: usize = 4_096;
const MAX_PARAM_CHARS: usize = 1_024;
const MAX_NAME_CHARS: usize = 256;
const MAX_INDENT: usize = 12;

/// The documentation of a connector's operations, by the names that callers use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ConnectorDocs {
    operations: BTreeMap<String, OperationDocs>,
}

/// The documentation of one operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OperationDocs {
    docs: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    params: BTreeMap<String, String>,
}

/// The raw content of the section: unknown members are ignored, missing ones are empty.
#[derive(Deserialize)]
struct RawDocs {
    #[serde(default)]
    operations: BTreeMap<String, RawOperation>,
}

#[derive(Deserialize)]
struct RawOperation {
    #[serde(default)]
    docs: String,
    #[serde(default)]
    params: BTreeMap<String, String>,
}

impl ConnectorDocs {
    /// Reads the content of the section.
    ///
    /// # Errors
    /// The content is not JSON of the documented form. Texts that are too long are truncated, not rejected.
    pub fn parse(json: &[u8]) -> Result<Self, PackageError> {
        let raw: RawDocs = serde_json::from_slice(json).map_err(|error| PackageError::SectionUnreadable {
            section: DOCS_SECTION,
            detail: sanitize_line(&error.to_string(), 200),
        })?;
        let mut docs = Self::default();
        for (name, operation) in raw.operations {
            docs.insert(&name, &operation.docs, operation.params);
        }
        Ok(docs)
    }

    /// Adds one operation, its texts sanitized and truncated; without any text, nothing.
    pub(super) fn insert(
        &mut self,
        name: &str,
        docs: &str,
        params: impl IntoIterator<Item = (String, String)>,
    ) {
        let params: BTreeMap<String, String> = params
            .into_iter()
            .take(MAX_ENTRIES)
            .map(|(name, text)| (sanitize_line(&name, MAX_NAME_CHARS), safe_text(&text, MAX_PARAM_CHARS)))
            .filter(|(_, text)| !text.is_empty())
            .collect();
        let docs = safe_text(docs, MAX_OPERATION_CHARS);
        if self.operations.len() < MAX_ENTRIES && !(docs.is_empty() && params.is_empty()) {
            self.operations.insert(sanitize_line(name, MAX_NAME_CHARS), OperationDocs { docs, params });
        }
    }

    /// Forgets what is not about one of `operations`.
    pub(super) fn keep_only(&mut self, operations: &[OperationSignature]) {
        self.operations.retain(|name, docs| {
            let operation = operations.iter().find(|operation| operation.name().json() == name);
            if let Some(operation) = operation {
                docs.params
                    .retain(|name, _| operation.params().iter().any(|param| param.name.json() == name));
            }
            operation.is_some()
        });
    }

    /// The content of the section: JSON, the same for the same documentation.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Maps of strings cannot fail to serialise.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the documentation of the operation that callers name `name`.
    #[must_use]
    pub fn operation(&self, name: &str) -> Option<&OperationDocs> {
        self.operations.get(name)
    }

    /// The names of the documented operations.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.operations.keys().map(String::as_str)
    }
}

impl OperationDocs {
    /// The text about the operation; may have several lines, may be empty.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.docs
    }

    /// Its first paragraph, as one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let paragraph = self.docs.lines().take_while(|line| !line.trim().is_empty());
        paragraph.map(str::trim).collect::<Vec<_>>().join(" ")
    }

    /// The text about the parameter that callers name `name`.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }
}

/// [`safe_line`] for text of several lines: each printable, indentation kept, runs of blank lines one.
fn safe_text(text: &str, max: usize) -> String {
    let mut safe = String::new();
    let mut blank = false;
    let mut left = max;
    for line in text.lines() {
        let content = sanitize_line(line, left);
        if content.is_empty() {
            blank = !safe.is_empty();
            continue;
        }
        let indent = line.bytes().take_while(|byte| *byte == b' ').count().min(MAX_INDENT);
        if !safe.is_empty() {
            safe.push_str(if blank { "\n\n" } else { "\n" });
        }
        blank = false;
        safe.extend(std::iter::repeat_n(' ', indent));
        left = left.saturating_sub(content.chars().count());
        safe.push_str(&content);
        if left == 0 {
            break;
        }
    }
    safe
}

impl ConnectorDocs {
    /// Returns the documentation of `operations` in `sources`, the author's own WIT files as (label, text);
    /// the packages that they use need not be present. Documentation of other items is left out.
    ///
    /// Comments before a parameter count for the parameter.
    ///
    /// # Errors
    /// Sources that do not parse as one WIT package, with the place.
    pub fn from_wit(
        sources: &[(String, String)],
        operations: &[OperationSignature],
    ) -> Result<Self, PackageError> {
        let mut files = SourceFiles { texts: Vec::new(), next: 0 };
        let mut map = SourceMap::new();
        for (label, text) in sources {
            files.push(text)?;
            map.push_str(label, text.as_str());
        }
        let group = map.parse().map_err(|(map, error)| PackageError::WitSource {
            detail: sanitize_lines(&error.render(&map), 400),
        })?;
        let mut docs = Self::default();
        for package in std::iter::once(&group.main).chain(&group.nested) {
            for operation in operations {
                if let Some(function) = find(package, operation) {
                    let params = function.params.iter().filter_map(|param| {
                        let comment = files.comment_before(param.span)?;
                        Some((WitName::from_wit(&param.name).json().to_owned(), comment))
                    });
                    let text = function.docs.contents.as_deref().unwrap_or_default();
                    docs.insert(operation.name().json(), text, params);
                }
            }
        }
        Ok(docs)
    }
}

/// The function in the WIT that became `operation`.
fn find<'p>(package: &'p UnresolvedPackage, operation: &OperationSignature) -> Option<&'p Function> {
    let name = operation.name().wit();
    let exports = || package.worlds.iter().flat_map(|(_, world)| &world.exports);
    let Some(interface) = operation.interface() else {
        return exports().find_map(|(_, item)| match item {
            WorldItem::Function(function) if function.name == name => Some(function),
            _ => None,
        });
    };
    // `acme:slack/slack@1.0.0` is the package's interface `slack`; a plain name is one of the world's.
    let (_, short) = interface.split_once('/').unwrap_or(("", interface));
    let short = short.split('@').next().unwrap_or(short);
    let named = package
        .interfaces
        .iter()
        .map(|(_, interface)| interface)
        .filter(|i| i.name.as_deref() == Some(short));
    let inline = exports().filter_map(|(key, item)| match (key, item) {
        (WorldKey::Name(name), WorldItem::Interface { id, .. }) if name == short => {
            package.interfaces.get(*id)
        }
        _ => None,
    });
    named.chain(inline).find_map(|interface| interface.functions.get(name))
}

/// The sources as the parser counts through them: one after the other, with one byte between.
struct SourceFiles<'s> {
    texts: Vec<(u32, &'s str)>,
    next: u32,
}

impl<'s> SourceFiles<'s> {
    fn push(&mut self, text: &'s str) -> Result<(), PackageError> {
        let end =
            u32::try_from(text.len()).ok().and_then(|length| self.next.checked_add(length)?.checked_add(1));
        let Some(end) = end else {
            return Err(PackageError::WitSource { detail: "it has more than 4 GiB".into() });
        };
        self.texts.push((self.next, text));
        self.next = end;
        Ok(())
    }

    /// The lines of `///` right before what is at `span`, which the parser reads and throws away.
    fn comment_before(&self, span: wit_parser::Span) -> Option<String> {
        if !span.is_known() {
            return None;
        }
        let (start, text) = self.texts.iter().rev().find(|(start, _)| *start <= span.start())?;
        let before = text.get(..(span.start() - start) as usize)?;
        let (before, indent) = before.rsplit_once('\n')?;
        if !indent.trim().is_empty() {
            return None;
        }
        let lines = before.lines().rev().map_while(|line| line.trim().strip_prefix("///"));
        let mut lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        lines.reverse();
        Some(lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn documentation_text_is_sanitized_and_bounded() {
        let hostile = "\u{1b}[31mPosts\u{202e} a\u{200b} message.\r\n\n\n\n   - to a channel\u{e0041}\u{7}";
        assert_eq!(safe_text(hostile, 100), "[31mPosts a message.\n\n   - to a channel");
        let long = safe_text(&"x".repeat(5_000), 10);
        assert_eq!(long, format!("{}…", "x".repeat(10)));
        assert!(safe_text(&"x\n".repeat(5_000), 10).chars().count() < 25);
    }

    #[test]
    fn unknown_members_are_ignored_and_bad_forms_refused() {
        let docs = ConnectorDocs::parse(
            br#"{"version": 7, "operations": {"greet": {"docs": "Greets.\nSecond line.\n\nMore.", "params": {"name": "Whom."}, "x": 1}, "empty": {}}}"#,
        )
        .unwrap();
        let greet = docs.operation("greet").unwrap();
        assert_eq!(greet.summary(), "Greets. Second line.");
        assert_eq!(greet.param("name"), Some("Whom."));
        assert!(docs.operation("empty").is_none());
        assert_eq!(ConnectorDocs::parse(docs.to_json().as_bytes()).unwrap(), docs);
        for bad in ["", "[1]", "{\"operations\": []}", "{\"operations\": {\"a\": {\"docs\": 1}}}", "{} {}"] {
            assert!(ConnectorDocs::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        // Ignored members may be nested to any depth: skipping them does not recurse.
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(ConnectorDocs::parse(format!("{{\"x\": {deep}}}").as_bytes()).is_ok());
        assert!(ConnectorDocs::parse(format!("{{\"operations\": {deep}}}").as_bytes()).is_err());
    }
}
