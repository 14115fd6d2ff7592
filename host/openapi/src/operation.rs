//! The operations of a document: parameters, bodies and answers with their types.

use serde_json::Value;

use crate::document::{Document, Node};
use crate::error::OpenApiError;
use crate::names::{self, Namespace};
use crate::schema::SchemaReader;
use crate::security::{self, Security};
use crate::server;
use crate::types::{Case, CaseMark, Definition, Direction, Field, Presence, Ty};

/// The parameters above which all are fields of one record.
const MAX_PARAMETERS: usize = 40;

/// The most parameters of an operation.
const MAX_FIELDS: usize = 1_000;

/// The methods of path items that the SDK sends.
const METHODS: [&str; 6] = ["get", "head", "post", "put", "patch", "delete"];

/// The name of an operation before anything else of it is read.
#[derive(Debug, Clone)]
pub(crate) struct OperationEntry<'d> {
    /// Its id in the document, or method and path.
    pub(crate) id: String,
    /// Its kebab-case name.
    pub(crate) name: String,
    pub(crate) method: String,
    pub(crate) path: &'d str,
    pub(crate) node: Node<'d>,
    pub(crate) item: Node<'d>,
    /// True if an operation before it has the same id.
    pub(crate) is_duplicate: bool,
}

/// A part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathPart {
    /// Encoded text.
    Literal(String),
    /// The parameter of that name.
    Parameter(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
    Cookie,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    DeepObject,
}

/// A parameter of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Parameter<'d> {
    pub(crate) name: String,
    pub(crate) wire: String,
    pub(crate) place: Place,
    pub(crate) style: Style,
    pub(crate) explode: bool,
    pub(crate) is_reserved_allowed: bool,
    /// Its value is one JSON text (`content`).
    pub(crate) is_json: bool,
    pub(crate) ty: Ty,
    pub(crate) required: bool,
    pub(crate) docs: String,
    pub(crate) schema: Option<Node<'d>>,
    pub(crate) node: Node<'d>,
}

/// The encoding of a request's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BodyEncoding {
    Json(String),
    Form,
    Multipart,
    Text(String),
    Bytes(String),
}

/// The style of a field of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FormStyle {
    pub(crate) wire: String,
    pub(crate) style: Style,
    pub(crate) explode: bool,
}

/// The body of a request.
#[derive(Debug, Clone)]
pub(crate) struct Body<'d> {
    pub(crate) name: String,
    pub(crate) encoding: BodyEncoding,
    pub(crate) ty: Ty,
    pub(crate) required: bool,
    pub(crate) docs: String,
    pub(crate) styles: Vec<FormStyle>,
    pub(crate) schema: Option<Node<'d>>,
    pub(crate) media: Option<Node<'d>>,
}

/// The content of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Empty,
    Json,
    Text,
    Bytes,
    /// The header `Location` of a redirect.
    Location,
}

/// The statuses of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statuses {
    One(u16),
    /// All with one first digit.
    Hundred(u16),
    /// All that are no error.
    Any,
}

/// An answer of an operation that is no error.
#[derive(Debug, Clone)]
pub(crate) struct Answer<'d> {
    pub(crate) statuses: Statuses,
    pub(crate) content: Content,
    pub(crate) ty: Option<Ty>,
    /// Its case, if the result is a variant.
    pub(crate) case: Option<String>,
    pub(crate) media: Option<Node<'d>>,
    pub(crate) schema: Option<Node<'d>>,
    pub(crate) has_link: bool,
}

/// A way to read a list page by page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Paging {
    /// The header `Link` names the next page.
    Link,
    /// A field of the answer is the value of a parameter for the next page: its path, and the parameter's name.
    Cursor { path: Vec<String>, parameter: String, items: String },
    /// The id of the last item is the value of a parameter: `starting_after`, with the field that says if there is more.
    LastId { parameter: String, items: String, more: String },
    /// A number of the page, until a page is empty.
    Page { parameter: String, items: Option<String> },
}

/// An operation with all its types.
#[derive(Debug, Clone)]
pub(crate) struct Operation<'d> {
    pub(crate) name: String,
    /// In upper case.
    pub(crate) method: String,
    pub(crate) template: String,
    pub(crate) base: String,
    pub(crate) path: Vec<PathPart>,
    pub(crate) docs: String,
    pub(crate) parameters: Vec<Parameter<'d>>,
    /// The record with all parameters, if there are many.
    pub(crate) record: Option<Ty>,
    pub(crate) body: Option<Body<'d>>,
    pub(crate) answers: Vec<Answer<'d>>,
    pub(crate) result: Option<Ty>,
    pub(crate) accept: Option<String>,
    pub(crate) security: Security,
    pub(crate) idempotency_header: Option<String>,
    /// The answer says with a field `ok` if it is an error.
    pub(crate) has_ok_field: bool,
    pub(crate) paging: Option<Paging>,
    pub(crate) notes: Vec<String>,
    pub(crate) is_deprecated: bool,
}

impl Operation<'_> {
    pub(crate) fn changes_something(&self) -> bool {
        !matches!(self.method.as_str(), "GET" | "HEAD")
    }

    pub(crate) fn is_idempotent(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD" | "PUT" | "DELETE") || self.idempotency_header.is_some()
    }

    /// Returns the parameter of that name on the wire.
    pub(crate) fn path_parameter(&self, wire: &str) -> Option<&Parameter<'_>> {
        self.parameters.iter().find(|it| it.place == Place::Path && it.wire == wire)
    }
}

/// Settings of the reading.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadSettings {
    pub(crate) idempotency_header: Option<String>,
    pub(crate) server: Option<String>,
}

/// Returns the operations in the document's order, each with its name.
pub(crate) fn entries<'d>(document: &'d Document, names: &mut Namespace) -> Vec<OperationEntry<'d>> {
    let mut found: Vec<OperationEntry<'d>> = Vec::new();
    let root = document.root();
    for (path, item) in root.get("paths").iter().flat_map(Node::fields) {
        // A path item may be in another file.
        let item = document.follow(&item).unwrap_or(item);
        for (method, node) in item.fields() {
            if !METHODS.contains(&method) && !matches!(method, "options" | "trace") {
                continue;
            }
            let given = node.text("operationId").filter(|id| !names::kebab(id).is_empty());
            let is_duplicate = given.is_some_and(|id| found.iter().any(|known| known.id == id));
            let id = match given {
                Some(id) => id.to_owned(),
                None => format!("{} {path}", method.to_ascii_uppercase()),
            };
            let wanted = if given.is_none() || is_duplicate {
                let words = path.split('/').map(|part| match part.strip_prefix('{') {
                    Some(name) => names::join("by", &names::kebab(name)),
                    None => names::kebab(part),
                });
                words.fold(method.to_owned(), |name, word| names::join(&name, &word))
            } else {
                names::kebab(&id)
            };
            let name = names.claim(&wanted, "call");
            found.push(OperationEntry {
                id,
                name,
                method: method.to_ascii_uppercase(),
                path,
                node,
                item: item.clone(),
                is_duplicate,
            });
        }
    }
    found
}

/// Returns true if a pattern, with `*` for any text, is for an operation.
pub(crate) fn matches(pattern: &str, entry: &OperationEntry<'_>) -> bool {
    let line = format!("{} {}", entry.method, entry.path);
    [&*entry.id, &*entry.name, &*names::json(&entry.name), entry.path, &*line]
        .iter()
        .any(|text| glob(pattern, text))
}

fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut rest = rest;
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

/// Reads an operation.
///
/// # Errors
/// It cannot be an operation of a connector.
pub(crate) fn read<'d>(
    document: &'d Document,
    reader: &mut SchemaReader<'d>,
    entry: &OperationEntry<'d>,
    settings: &ReadSettings,
) -> Result<Operation<'d>, OpenApiError> {
    let node = &entry.node;
    if !METHODS.contains(&entry.method.to_ascii_lowercase().as_str()) {
        let message = format!("the method {} is not one that a connector sends", entry.method);
        return Err(document.error(node, message, "Leave the operation out."));
    }
    let mut notes = Vec::new();
    if entry.is_duplicate {
        notes.push(format!(
            "another operation has the id {:?}, too: this one is named after its path",
            entry.id
        ));
    }
    let base = server::base(document, entry, settings.server.as_deref(), &mut notes)?;
    let security = security::of_operation(document, node)?;
    let path = path(document, &entry.item, entry.path)?;
    let mut operation = Operation {
        name: entry.name.clone(),
        method: entry.method.clone(),
        template: entry.path.to_owned(),
        base,
        path,
        docs: docs(node),
        parameters: Vec::new(),
        record: None,
        body: None,
        answers: Vec::new(),
        result: None,
        accept: None,
        security,
        idempotency_header: settings
            .idempotency_header
            .clone()
            .filter(|_| !matches!(entry.method.as_str(), "GET" | "HEAD")),
        has_ok_field: false,
        paging: None,
        notes,
        is_deprecated: node.flag("deprecated"),
    };
    let mut taken = Namespace::default();
    parameters(document, reader, entry, &mut operation, &mut taken)?;
    body(document, reader, entry, &mut operation, &mut taken)?;
    answers(document, reader, entry, &mut operation)?;
    operation.paging = crate::paging::recognize(reader, &operation);
    let mut found = Vec::new();
    for (what, ty) in types_of(&operation) {
        reader.table.json_texts(ty, &what, &mut found);
    }
    operation.notes.extend(found.iter().map(|(path, reason)| format!("`{path}` is JSON text: {reason}")));
    Ok(operation)
}

/// Returns the types of an operation, each with its place.
pub(crate) fn types_of<'o>(operation: &'o Operation<'_>) -> Vec<(String, &'o Ty)> {
    let parameters = operation.parameters.iter().map(|parameter| (parameter.name.clone(), &parameter.ty));
    let body = operation.body.iter().map(|body| (body.name.clone(), &body.ty));
    let result = operation.result.iter().map(|ty| ("result".to_owned(), ty));
    parameters.chain(body).chain(result).collect()
}

fn docs(node: &Node<'_>) -> String {
    let summary = node.text("summary").unwrap_or_default().trim();
    let description = node.text("description").unwrap_or_default().trim();
    match (summary, description) {
        ("", text) | (text, "") => text.to_owned(),
        (summary, description) if description.starts_with(summary) => description.to_owned(),
        (summary, description) => {
            let dot = if summary.ends_with(['.', '!', '?', ':']) { "" } else { "." };
            format!("{summary}{dot}\n\n{description}")
        }
    }
}

/// Splits a path into its text and its parameters.
fn path(document: &Document, item: &Node<'_>, template: &str) -> Result<Vec<PathPart>, OpenApiError> {
    let wrong = |message: &str| {
        let fix = "Write it like \"/items/{id}\".";
        Err(document.error(item, format!("the path {template:?} {message}"), fix))
    };
    if !template.starts_with('/') {
        return wrong("does not begin with a slash");
    }
    if template.contains('#') {
        return wrong("has a fragment, which is never sent");
    }
    let mut parts = Vec::new();
    let mut rest = template;
    while !rest.is_empty() {
        match rest.split_once('{') {
            None => {
                if rest.contains('}') {
                    return wrong("has a brace that opens nothing");
                }
                parts.push(PathPart::Literal(literal(rest)));
                break;
            }
            Some((text, after)) => {
                let Some((name, after)) = after.split_once('}') else {
                    return wrong("has a brace that is not closed");
                };
                if name.is_empty() || name.contains('{') || text.contains('}') {
                    return wrong("has braces without a name inside");
                }
                if !text.is_empty() {
                    parts.push(PathPart::Literal(literal(text)));
                }
                // The form of RFC 6570 for the rest of a path: `{+path}`, `{path*}`.
                let name = name.trim_start_matches('+').trim_end_matches('*');
                parts.push(PathPart::Parameter(name.to_owned()));
                rest = after;
            }
        }
    }
    let dots = |part: &str| part == "." || part == "..";
    if template.split(['/', '?']).any(dots) {
        return wrong("has a segment of dots");
    }
    Ok(parts)
}

/// Encodes the text of a path: characters that a URL cannot have.
pub(crate) fn literal(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Header fields that OpenAPI says are no parameters, and those that the host owns.
const OTHERS_HEADERS: [&str; 8] = [
    "accept",
    "content-type",
    "authorization",
    "host",
    "content-length",
    "connection",
    "transfer-encoding",
    "user-agent",
];

/// Names of parameters that carry a credential, which the host adds.
const CREDENTIALS: [&str; 6] = ["token", "access_token", "api_key", "apikey", "authorization", "x-api-key"];

fn parameters<'d>(
    document: &'d Document,
    reader: &mut SchemaReader<'d>,
    entry: &OperationEntry<'d>,
    operation: &mut Operation<'d>,
    taken: &mut Namespace,
) -> Result<(), OpenApiError> {
    let mut nodes: Vec<Node<'d>> = Vec::new();
    for holder in [&entry.item, &entry.node] {
        for node in holder.get("parameters").iter().flat_map(Node::items) {
            let node = document.follow(&node)?;
            let same = |known: &Node<'_>| {
                known.text("name") == node.text("name") && known.text("in") == node.text("in")
            };
            match nodes.iter_mut().find(|known| same(known)) {
                // Those of the operation replace those of its path.
                Some(known) => *known = node,
                None => nodes.push(node),
            }
        }
    }
    for node in &nodes {
        let (Some(wire), Some(place)) = (node.text("name"), node.text("in")) else {
            return Err(document.error(
                node,
                "this parameter has no name or no place (`in`)",
                "Give it both.",
            ));
        };
        let place = match place {
            "path" => Place::Path,
            "query" => Place::Query,
            "header" => Place::Header,
            "cookie" => Place::Cookie,
            other => {
                let message = format!("a parameter cannot be in {other:?}");
                return Err(document.error(node, message, "Write path, query, header or cookie."));
            }
        };
        if left_out(operation, wire, place, node) {
            continue;
        }
        let parameter = parameter(document, reader, operation, node, (wire, place), taken)?;
        operation.parameters.push(parameter);
    }
    undeclared(document, entry, operation, taken);
    if operation.parameters.len() > MAX_FIELDS {
        let message = format!("it has {} parameters, more than {MAX_FIELDS}", operation.parameters.len());
        return Err(document.error(&entry.node, message, "Leave the operation out, or remove parameters."));
    }
    if operation.parameters.len() > MAX_PARAMETERS {
        let field = |parameter: &Parameter<'_>| Field {
            name: parameter.name.clone(),
            wire: parameter.wire.clone(),
            ty: parameter.ty.clone(),
            presence: if parameter.required { Presence::Required } else { Presence::Optional },
            docs: parameter.docs.clone(),
        };
        let fields = operation.parameters.iter().map(field).collect();
        let name = names::join(&operation.name, "parameters");
        let docs = "The parameters.".to_owned();
        operation.record = Some(reader.define(&name, docs, Definition::Record(fields)));
    }
    Ok(())
}

/// Returns true for a parameter that the host or the SDK sends itself.
fn left_out(operation: &mut Operation<'_>, wire: &str, place: Place, node: &Node<'_>) -> bool {
    let lower = wire.to_ascii_lowercase();
    if place == Place::Header && OTHERS_HEADERS.contains(&lower.as_str()) {
        return true;
    }
    let is_key = lower == "idempotency-key"
        || operation.idempotency_header.as_ref().is_some_and(|it| it.eq_ignore_ascii_case(wire));
    if place == Place::Header && is_key {
        if operation.changes_something() {
            operation.idempotency_header = Some(wire.to_owned());
        }
        return true;
    }
    let is_credential = CREDENTIALS.contains(&lower.as_str()) && !operation.security.is_empty();
    if matches!(place, Place::Header | Place::Query) && is_credential {
        operation
            .notes
            .push(format!("the parameter `{wire}` is a credential: the host adds it, no caller gives it"));
        return true;
    }
    // What a document calls a parameter of no type and no text is sent by nobody.
    node.value.as_object().is_some_and(serde_json::Map::is_empty)
}

fn parameter<'d>(
    document: &'d Document,
    reader: &mut SchemaReader<'d>,
    operation: &mut Operation<'d>,
    node: &Node<'d>,
    (wire, place): (&'d str, Place),
    taken: &mut Namespace,
) -> Result<Parameter<'d>, OpenApiError> {
    let short = names::kebab(wire);
    let media = node.get("content").and_then(|content| content.fields().next());
    let schema = match &media {
        Some((_, media)) => media.get("schema"),
        None => node.get("schema"),
    };
    let wanted = names::join(&operation.name, &short);
    let ty = match &schema {
        Some(schema) => reader.read(schema, Direction::Input, &wanted)?,
        None => Ty::Text,
    };
    // A parameter that is null is one that is not sent.
    let ty = match ty {
        Ty::Nullable(inner) => *inner,
        ty => ty,
    };
    let default = match place {
        Place::Path | Place::Header => Style::Simple,
        Place::Query | Place::Cookie => Style::Form,
    };
    let style = style(node.text("style"), default).ok_or_else(|| {
        let message = format!("{:?} is not a style", node.text("style").unwrap_or_default());
        document.error(
            node,
            message,
            "Write simple, label, matrix, form, spaceDelimited, pipeDelimited or deepObject.",
        )
    })?;
    let explode = node
        .value
        .get("explode")
        .and_then(Value::as_bool)
        .unwrap_or(matches!(style, Style::Form | Style::DeepObject));
    let known = operation.parameters.iter().any(|it| it.name == short);
    let name = match (known, place) {
        (false, _) => short.clone(),
        (true, Place::Path) => names::join("path", &short),
        (true, Place::Query) => names::join("query", &short),
        (true, Place::Header) => names::join("header", &short),
        (true, Place::Cookie) => names::join("cookie", &short),
    };
    Ok(Parameter {
        name: taken.claim(&name, "value"),
        wire: wire.to_owned(),
        place,
        style,
        explode,
        is_reserved_allowed: node.flag("allowReserved"),
        is_json: media.is_some(),
        ty,
        required: node.flag("required") || place == Place::Path,
        docs: node.text("description").unwrap_or_default().to_owned(),
        schema,
        node: node.clone(),
    })
}

/// Adds the parameters that a path has and the document does not describe.
fn undeclared<'d>(
    document: &'d Document,
    entry: &OperationEntry<'d>,
    operation: &mut Operation<'d>,
    taken: &mut Namespace,
) {
    let mut names_in_path = Vec::new();
    for part in &operation.path {
        if let PathPart::Parameter(name) = part
            && !names_in_path.contains(name)
        {
            names_in_path.push(name.clone());
        }
    }
    let _ = document;
    for name in &names_in_path {
        if operation.path_parameter(name).is_none() {
            operation
                .notes
                .push(format!("the parameter `{name}` of the path is not described: it is taken for a text"));
            operation.parameters.push(Parameter {
                name: taken.claim(&names::kebab(name), "value"),
                wire: name.clone(),
                place: Place::Path,
                style: Style::Simple,
                explode: false,
                is_reserved_allowed: false,
                is_json: false,
                ty: Ty::Text,
                required: true,
                docs: String::new(),
                schema: None,
                node: entry.node.clone(),
            });
        }
    }
    operation.parameters.retain(|parameter| {
        let used = parameter.place != Place::Path || names_in_path.contains(&parameter.wire);
        if !used {
            operation
                .notes
                .push(format!("the parameter `{}` is not in the path and is left out", parameter.wire));
        }
        used
    });
}

fn style(text: Option<&str>, default: Style) -> Option<Style> {
    Some(match text {
        None => default,
        Some("simple") => Style::Simple,
        Some("label") => Style::Label,
        Some("matrix") => Style::Matrix,
        Some("form") => Style::Form,
        Some("spaceDelimited") => Style::SpaceDelimited,
        Some("pipeDelimited") => Style::PipeDelimited,
        Some("deepObject") => Style::DeepObject,
        Some(_) => return None,
    })
}

fn is_json(media: &str) -> bool {
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media == "application/json" || media.ends_with("+json") || media == "text/json" || media == "*/*"
}

fn body<'d>(
    document: &'d Document,
    reader: &mut SchemaReader<'d>,
    entry: &OperationEntry<'d>,
    operation: &mut Operation<'d>,
    taken: &mut Namespace,
) -> Result<(), OpenApiError> {
    let Some(node) = entry.node.get("requestBody") else { return Ok(()) };
    let node = document.follow(&node)?;
    let medias: Vec<_> = node.get("content").iter().flat_map(Node::fields).collect();
    let find = |wanted: &dyn Fn(&str) -> bool| medias.iter().find(|(name, _)| wanted(name)).cloned();
    let starts = |prefix: &'static str| move |name: &str| name.to_ascii_lowercase().starts_with(prefix);
    let chosen = find(&is_json)
        .or_else(|| find(&starts("application/x-www-form-urlencoded")))
        .or_else(|| find(&starts("multipart/form-data")))
        .or_else(|| find(&starts("text/")))
        .or_else(|| medias.first().cloned());
    let Some((media, content)) = chosen else { return Ok(()) };
    if matches!(operation.method.as_str(), "GET" | "HEAD") {
        operation
            .notes
            .push("the body of a request that reads is left out: such a body has no meaning".to_owned());
        return Ok(());
    }
    let name = names::join(&operation.name, "body");
    let schema =
        content.get("schema").filter(|schema| schema.value.as_object().is_some_and(|it| !it.is_empty()));
    let mut encoding = if is_json(media) {
        BodyEncoding::Json(if media == "*/*" { "application/json".to_owned() } else { media.to_owned() })
    } else if starts("application/x-www-form-urlencoded")(media) {
        BodyEncoding::Form
    } else if starts("multipart/form-data")(media) {
        BodyEncoding::Multipart
    } else if starts("text/")(media) {
        BodyEncoding::Text(media.to_owned())
    } else {
        BodyEncoding::Bytes(if media.contains('*') {
            "application/octet-stream".to_owned()
        } else {
            media.to_owned()
        })
    };
    if !is_media(media) {
        return Err(document.error(
            &content,
            format!("{media:?} is not a media type"),
            "Write it like application/json.",
        ));
    }
    let mut styles = Vec::new();
    let mut ty = match (&encoding, &schema) {
        (BodyEncoding::Text(_), _) => Ty::Text,
        (BodyEncoding::Bytes(_), _) => Ty::Bytes,
        (BodyEncoding::Multipart, Some(schema)) => multipart(document, reader, schema, &name)?,
        (_, Some(schema)) => reader.read(schema, Direction::Input, &name)?,
        (BodyEncoding::Json(_), None) => Ty::Json(crate::types::JsonReason::FreeForm),
        (_, None) => Ty::Text,
    };
    let mut required = node.flag("required");
    if let Ty::Nullable(inner) = &ty {
        let is_json = matches!(encoding, BodyEncoding::Json(_));
        // A body that is null is none, but JSON has both.
        if !is_json || !required {
            ty = (**inner).clone();
            required &= is_json;
        }
    }
    if matches!(encoding, BodyEncoding::Form) {
        match is_record(reader, &ty) {
            // A form without fields is nothing to send.
            false
                if matches!(ty, Ty::Json(_))
                    && schema.as_ref().is_some_and(|it| has_no_properties(document, it)) =>
            {
                return Ok(());
            }
            false if !matches!(ty, Ty::Map(_) | Ty::Json(_)) => {
                encoding = BodyEncoding::Text(media.to_owned())
            }
            _ => styles = form_styles(&content),
        }
    }
    if matches!(encoding, BodyEncoding::Multipart) && !is_record(reader, &ty) {
        let message = "the parts of this multipart body are not described";
        return Err(document.error(&content, message, "Describe them as properties of an object."));
    }
    let wanted =
        if operation.parameters.iter().any(|it| it.name == "body") { "request-body" } else { "body" };
    operation.body = Some(Body {
        name: taken.claim(wanted, "body"),
        encoding,
        ty,
        required,
        docs: node.text("description").unwrap_or_default().to_owned(),
        styles,
        schema,
        media: Some(content),
    });
    Ok(())
}

fn is_record(reader: &SchemaReader<'_>, ty: &Ty) -> bool {
    matches!(ty, Ty::Named(id) if matches!(reader.table.definition(*id), Some(Definition::Record(_))))
}

fn has_no_properties(document: &Document, schema: &Node<'_>) -> bool {
    let Ok(schema) = document.follow(schema) else { return false };
    let says = ["oneOf", "anyOf", "allOf"].iter().any(|key| schema.value.get(*key).is_some());
    !says && schema.get("properties").is_none_or(|it| it.fields().next().is_none())
}

/// Returns true for a media type that a header may have.
fn is_media(media: &str) -> bool {
    media.len() < 256 && media.contains('/') && media.bytes().all(|byte| (b' '..0x7f).contains(&byte))
}

fn form_styles(content: &Node<'_>) -> Vec<FormStyle> {
    let encodings = content.get("encoding");
    let read = |(wire, node): (&str, Node<'_>)| {
        let style = style(node.text("style"), Style::Form).unwrap_or(Style::Form);
        let explode = node
            .value
            .get("explode")
            .and_then(Value::as_bool)
            .unwrap_or(matches!(style, Style::Form | Style::DeepObject));
        FormStyle { wire: wire.to_owned(), style, explode }
    };
    encodings.iter().flat_map(Node::fields).map(read).collect()
}

/// Returns the record of a multipart body: its files are bytes.
fn multipart<'d>(
    document: &'d Document,
    reader: &mut SchemaReader<'d>,
    schema: &Node<'d>,
    name: &str,
) -> Result<Ty, OpenApiError> {
    let node = document.follow(schema)?;
    let Some(properties) = node.get("properties") else { return reader.read(schema, Direction::Input, name) };
    let required = |wire: &str| {
        let all = node.value.get("required").and_then(Value::as_array);
        all.is_some_and(|all| all.iter().any(|name| name == wire))
    };
    let mut fields = Vec::new();
    let mut taken = Namespace::default();
    for (wire, property) in properties.fields() {
        let part = names::kebab(wire);
        let ty = match is_file(document, &property) {
            FileKind::One => Ty::Bytes,
            FileKind::Several => Ty::List(Box::new(Ty::Bytes)),
            FileKind::None => match reader.read(&property, Direction::Input, &names::join(name, &part))? {
                Ty::Nullable(inner) => *inner,
                ty => ty,
            },
        };
        let presence = if required(wire) { Presence::Required } else { Presence::Optional };
        let docs = property.text("description").unwrap_or_default().to_owned();
        fields.push(Field { name: taken.claim(&part, "value"), wire: wire.to_owned(), ty, presence, docs });
    }
    if fields.is_empty() {
        return Ok(Ty::Json(crate::types::JsonReason::FreeForm));
    }
    let docs = node.text("description").unwrap_or_default().to_owned();
    Ok(reader.define(name, docs, Definition::Record(fields)))
}

enum FileKind {
    None,
    One,
    Several,
}

fn is_file(document: &Document, property: &Node<'_>) -> FileKind {
    let Ok(node) = document.follow(property) else { return FileKind::None };
    let one = |node: &Node<'_>| {
        let is_text = node.text("type") == Some("string");
        (is_text
            && matches!(node.text("format"), Some("binary" | "byte"))
            && node.text("format") == Some("binary"))
            || (is_text
                && node.text("contentMediaType").is_some()
                && node.value.get("contentEncoding").is_none())
            || node.text("contentMediaType") == Some("application/octet-stream")
            || node.text("type") == Some("file")
    };
    if one(&node) {
        return FileKind::One;
    }
    match node.get("items").map(|items| document.follow(&items)) {
        Some(Ok(items)) if one(&items) => FileKind::Several,
        _ => FileKind::None,
    }
}

fn answers<'d>(
    document: &'d Document,
    reader: &mut SchemaReader<'d>,
    entry: &OperationEntry<'d>,
    operation: &mut Operation<'d>,
) -> Result<(), OpenApiError> {
    let Some(responses) = entry.node.get("responses") else {
        return Err(document.error(&entry.node, "the operation has no responses", "Describe at least one."));
    };
    let mut chosen: Vec<(Statuses, Node<'d>)> = Vec::new();
    let mut redirects = Vec::new();
    for (status, node) in responses.fields() {
        match status.parse::<u16>() {
            Ok(number @ 200..=299) => chosen.push((Statuses::One(number), node)),
            Ok(number @ (301..=303 | 307 | 308)) => redirects.push((Statuses::One(number), node)),
            _ if status.eq_ignore_ascii_case("2XX") => chosen.push((Statuses::Hundred(2), node)),
            _ => {}
        }
    }
    let is_redirect = chosen.is_empty() && !redirects.is_empty();
    if is_redirect {
        chosen = redirects;
    }
    if chosen.is_empty()
        && let Some(default) = responses.get("default")
    {
        chosen.push((Statuses::Any, default));
    }
    if chosen.is_empty() {
        chosen.push((Statuses::Any, responses.clone()));
    }
    let several = chosen.len() > 1;
    let mut medias_accepted: Vec<String> = Vec::new();
    for (statuses, node) in chosen {
        let node = document.follow(&node)?;
        let suffix = match statuses {
            Statuses::One(number) if several => format!("response-{number}"),
            _ => "response".to_owned(),
        };
        let name = names::join(&operation.name, &suffix);
        let answer = answer(reader, operation, statuses, &node, is_redirect, &name, &mut medias_accepted)?;
        operation.answers.push(answer);
    }
    operation.accept = medias_accepted.first().cloned();
    operation.result = result(reader, operation);
    Ok(())
}

fn answer<'d>(
    reader: &mut SchemaReader<'d>,
    operation: &Operation<'d>,
    statuses: Statuses,
    node: &Node<'d>,
    is_redirect: bool,
    name: &str,
    accepted: &mut Vec<String>,
) -> Result<Answer<'d>, OpenApiError> {
    let has_link =
        node.get("headers").iter().flat_map(Node::fields).any(|(name, _)| name.eq_ignore_ascii_case("link"));
    let mut answer = Answer {
        statuses,
        content: Content::Empty,
        ty: None,
        case: None,
        media: None,
        schema: None,
        has_link,
    };
    if is_redirect {
        answer.content = Content::Location;
        answer.ty = Some(Ty::Text);
        return Ok(answer);
    }
    let medias: Vec<_> = node.get("content").iter().flat_map(Node::fields).collect();
    let never_has_content = operation.method == "HEAD" || matches!(statuses, Statuses::One(204 | 205));
    let chosen = medias.iter().find(|(name, _)| is_json(name)).or_else(|| medias.first());
    let Some((media, content)) = chosen.filter(|_| !never_has_content) else { return Ok(answer) };
    answer.media = Some(content.clone());
    answer.schema = content.get("schema");
    if is_media(media) && !media.contains('*') {
        accepted.push((*media).to_owned());
    }
    let (kind, ty) = match (is_json(media), &answer.schema) {
        (true, Some(schema)) => (Content::Json, reader.read(schema, Direction::Output, name)?),
        (true, None) => (Content::Json, Ty::Json(crate::types::JsonReason::FreeForm)),
        (false, _) if media.to_ascii_lowercase().starts_with("text/") || media.contains("xml") => {
            (Content::Text, Ty::Text)
        }
        (false, _) => (Content::Bytes, Ty::Bytes),
    };
    answer.content = kind;
    answer.ty = Some(ty);
    Ok(answer)
}

/// Returns the type of an operation's result, and gives the answers their cases in it.
fn result(reader: &mut SchemaReader<'_>, operation: &mut Operation<'_>) -> Option<Ty> {
    let mut kinds: Vec<(Content, Ty)> = Vec::new();
    for answer in &operation.answers {
        if let Some(ty) = &answer.ty
            && !kinds.contains(&(answer.content.clone(), ty.clone()))
        {
            kinds.push((answer.content.clone(), ty.clone()));
        }
    }
    let has_empty = operation.answers.iter().any(|answer| answer.ty.is_none());
    if let [(Content::Json, Ty::Named(id))] = kinds.as_slice()
        && let Some(Definition::Record(fields)) = reader.table.definition(*id)
    {
        let is_ok = fields.iter().any(|field| field.wire == "ok" && field.presence == Presence::Required);
        operation.has_ok_field = is_ok;
    }
    let ty = match kinds.as_slice() {
        [] => return None,
        [(_, ty)] => ty.clone(),
        several => {
            let mut cases = Vec::new();
            for (content, ty) in several {
                let mut statuses = Vec::new();
                for answer in operation.answers.iter_mut() {
                    if answer.content == *content && answer.ty.as_ref() == Some(ty) {
                        statuses.push(match answer.statuses {
                            Statuses::One(number) => number.to_string(),
                            Statuses::Hundred(_) | Statuses::Any => "other".to_owned(),
                        });
                        let name = case_name(statuses.first().map(String::as_str).unwrap_or_default());
                        answer.case = Some(name);
                    }
                }
                let name = case_name(statuses.first().map(String::as_str).unwrap_or_default());
                cases.push(Case { name, ty: ty.clone(), mark: CaseMark::Tags(statuses) });
            }
            let name = names::join(&operation.name, "result");
            let docs = "The answer, by its status.".to_owned();
            reader.define(&name, docs, Definition::Variant { tag: None, cases })
        }
    };
    Some(if has_empty { ty.nullable() } else { ty })
}

fn case_name(status: &str) -> String {
    match status {
        "200" => "ok",
        "201" => "created",
        "202" => "accepted",
        "203" => "non-authoritative",
        "206" => "partial",
        "207" => "multi-status",
        "other" => "other",
        number => return format!("status-{number}"),
    }
    .to_owned()
}
