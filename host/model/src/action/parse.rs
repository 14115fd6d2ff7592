//! The parser of an action's file: its keys, their values, and the defaults.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::digest::Digest;
use cofferdam_core::document::{Diagnostics, DocumentError, DocumentTable, InvalidValue, quoted, read_part};
use serde_json::Value;

use super::file::{Action, ConnectorRequirement};
use super::inputs::{MAX_INPUTS, inputs};
use super::lexical::{action_name, bounded, line, prose, time};
use super::output::OutputSchema;
use super::scope::{ActionScope, check_operation};
use super::steps::{MAX_STEPS, StepNames, steps};
use crate::manifest::{ConnectorName, HostGrant, exact_version};

/// Most connectors that an action requires.
const MAX_CONNECTORS: usize = 16;

/// Most operations, or hosts, of one of them.
const MAX_ENTRIES: usize = 256;

/// Longest time that an action may be given as a whole; the host's ceilings may be lower.
const LONGEST: Duration = Duration::from_secs(60 * 60);

const KEYS: [&str; 10] =
    ["name", "version", "title", "source", "timeout", "match", "requires", "inputs", "execute", "output"];

/// Reads the file.
pub(super) fn action(source: ActionSource, hash: Digest) -> Result<Action, DocumentError> {
    let toml = source.toml();
    let mut schema = None;
    let mut action = read_part(source.label(), source.text(), &toml, |root| {
        let (action, output) = build_action(root, &source, hash)?;
        schema = output;
        Some(action)
    })?;
    if let Some(schema) = schema {
        let mut findings = Diagnostics::new(source.label(), source.text(), &toml);
        action.output = OutputSchema::compile(schema, &mut findings);
        findings.finish()?;
    }
    action.text = Arc::new(source);
    Ok(action)
}

/// The action, and the schema of its output before that is compiled.
fn build_action(
    root: &DocumentTable<'_>,
    source: &ActionSource,
    hash: Digest,
) -> Option<(Action, Option<Value>)> {
    root.reject_unknown_keys(&KEYS);
    let name = root.required_text("name", "name = \"ship-update\"");
    let name = name.and_then(|text| text.parse(|text| action_name(text).map(|()| (*text).to_owned())));
    let version = root.required_text("version", "version = \"1.0.0\"");
    let version = version.and_then(|text| text.parse(|text| exact_version(text)));
    let title = line(root, "title", 100);
    let origin = line(root, "source", 300);
    let timeout = root.text("timeout").map(|text| text.parse(|text| time(text, LONGEST, "1 hour")));
    let intents = intents(root);
    let description = source.first_paragraph();
    let description = match description {
        Some(text) => root.location_at(at_body(source)).with_value(text).parse(|text| prose(text, 4_000)),
        None => {
            let fix = "write a paragraph after the second `+++`: agents and people know the action by it";
            let place = root.location_at(at_body(source));
            place.refuse(InvalidValue::new("the text does not say what the action does", fix));
            None
        }
    };

    // An invalid name gets a placeholder here, so that its mistake is reported only once.
    let reference = format!(
        "{}@{}",
        name.as_deref().unwrap_or("unnamed"),
        version.as_ref().map_or_else(|| "0.0.0".to_owned(), ToString::to_string)
    );
    let required = required(root);
    let declared = root.tables("inputs");
    let executed = root.tables("execute");
    let requires = requirements(bounded(&required, MAX_CONNECTORS), &reference);
    let inputs = inputs(bounded(&declared, MAX_INPUTS));
    let (input_names, ids) = (named(&declared, "name"), named(&executed, "id"));
    let connectors = named(&required, "name");
    let names = StepNames {
        inputs: &input_names,
        steps: &ids,
        connectors: &connectors,
        scopes: requires.iter().map(|it| it.as_ref().map(|it| Arc::clone(&it.scope))).collect(),
    };
    if executed.is_empty() && !root.has("execute") {
        root.missing("execute", "[[execute]] with id, connector, op and inputs");
    }
    let steps = steps(bounded(&executed, MAX_STEPS), &names);
    let output = match root.table("output") {
        Some(_) => Some(Value::Object(root.inline_json("output", "a JSON Schema: [output]")?)),
        None => None,
    };
    let action = Action {
        name: name?,
        version: version?,
        reference: reference.into(),
        title,
        description: description?,
        source: origin,
        intents,
        timeout: match timeout {
            Some(timeout) => Some(timeout?),
            None => None,
        },
        requires: requires.into_iter().collect::<Option<_>>()?,
        inputs: inputs?,
        steps: steps?,
        output: None,
        hash,
        text: Arc::new(source.clone()),
    };
    Some((action, output))
}

/// Returns the name of each table; empty if it has none.
fn named<'a>(tables: &[DocumentTable<'a>], key: &str) -> Vec<&'a str> {
    tables.iter().map(|table| table.text(key).map(|text| text.value).unwrap_or_default()).collect()
}

fn at_body(source: &ActionSource) -> std::ops::Range<usize> {
    let at = source.body_at().min(source.text().len());
    at..at
}

/// `match = { intent = [...] }`.
fn intents(root: &DocumentTable<'_>) -> Vec<String> {
    let Some(table) = root.table("match") else { return Vec::new() };
    table.reject_unknown_keys(&["intent"]);
    let texts = table.texts("intent");
    if let Some(beyond) = texts.get(32) {
        beyond.refuse(InvalidValue::new("there are more than 32 of these", "leave some out"));
    }
    texts.iter().take(32).filter_map(|text| text.parse(|text| prose(text, 200))).collect()
}

/// The `[[requires.connectors]]`.
fn required<'a>(root: &DocumentTable<'a>) -> Vec<DocumentTable<'a>> {
    let example = "[[requires.connectors]] with name, version, hash and capabilities";
    let Some(requires) = root.table("requires") else {
        if !root.has("requires") {
            root.missing("requires", example);
        }
        return Vec::new();
    };
    requires.reject_unknown_keys(&["connectors"]);
    if !requires.has("connectors") {
        requires.missing("connectors", example);
    }
    requires.tables("connectors")
}

/// Returns each requirement; none in place of one that could not be read.
fn requirements(tables: &[DocumentTable<'_>], action: &str) -> Vec<Option<ConnectorRequirement>> {
    let mut seen = Vec::new();
    let each = tables.iter().map(|table| {
        if let Some(name) = table.text("name") {
            // With two versions of one connector, a step's `connector` would be ambiguous.
            super::lexical::check_unique(table, "name", name.value, &mut seen);
        }
        requirement(table, action)
    });
    each.collect()
}

fn requirement(table: &DocumentTable<'_>, action: &str) -> Option<ConnectorRequirement> {
    table.reject_unknown_keys(&["name", "version", "hash", "capabilities", "identity"]);
    let name = table.required_text("name", "name = \"github://acme/slack\"");
    let name = name.and_then(|text| text.parse(|text| ConnectorName::unversioned(text)));
    let version = table.required_text("version", "version = \"1.2.0\"");
    let version = version.and_then(|text| text.parse(|text| exact_version(text)));
    let hash = table.required_text("hash", "hash = \"sha256:...\", as `cofferdam list` shows it");
    let hash = hash.and_then(|text| {
        text.parse(|text| {
            Digest::parse(text).filter(|_| text.starts_with("sha256:")).ok_or_else(|| {
                let message = format!("{} is not the SHA-256 of a package", quoted(text));
                InvalidValue::new(message, "write `sha256:` and 64 digits, as `cofferdam list` shows them")
            })
        })
    });
    let example = "capabilities = { operations = [\"get\"], hosts = [\"api.example.com:443\"] }";
    if !table.has("capabilities") {
        table.missing("capabilities", example);
    }
    let (operations, hosts) = capabilities(&table.table("capabilities")?)?;
    let scope = ActionScope::new(action, &operations, &hosts);
    let mut scope = scope.map_err(|refused| table.location().refuse(refused)).ok()?;
    for (service, identity) in table.table("identity").iter().flat_map(DocumentTable::each_text) {
        scope = scope.with_identity(service.value, identity.value);
    }
    Some(ConnectorRequirement {
        connector: name?,
        version: version?,
        hash: hash?,
        scope: Arc::new(scope),
        line: table.location().line(),
    })
}

/// Operations and hosts, each as it is written.
fn capabilities(table: &DocumentTable<'_>) -> Option<(Vec<String>, Vec<String>)> {
    table.reject_unknown_keys(&["operations", "hosts"]);
    if !table.has("operations") {
        table.missing("operations", "operations = [\"get\"]");
        return None;
    }
    let operations = entries(table, "operations", check_operation);
    let hosts = entries(table, "hosts", |text| HostGrant::parse(text).map(drop));
    if let (Some(operations), Some(place)) = (&operations, table.location_of("operations"))
        && operations.is_empty()
    {
        place.refuse(InvalidValue::new("no operation is named", "name those that the steps call"));
        return None;
    }
    Some((operations?, hosts?))
}

fn entries(
    table: &DocumentTable<'_>,
    key: &str,
    check: impl Fn(&str) -> Result<(), InvalidValue>,
) -> Option<Vec<String>> {
    let texts = table.texts(key);
    if let Some(beyond) = texts.get(MAX_ENTRIES) {
        beyond
            .refuse(InvalidValue::new(format!("the list has more than {MAX_ENTRIES} entries"), "shorten it"));
    }
    let mut entries: Vec<String> = Vec::new();
    let mut good = true;
    for text in texts.into_iter().take(MAX_ENTRIES) {
        good &= text.parse(|text| check(text)).is_some();
        if entries.iter().any(|known| known == text.value) {
            let message = format!("{} stands in the list twice", quoted(text.value));
            text.refuse(InvalidValue::new(message, "remove one of the two"));
        }
        entries.push(text.value.to_owned());
    }
    good.then_some(entries)
}

/// Longest file, in bytes.
pub(super) const MAX_BYTES: usize = 256 * 1024;

/// The delimiter of the front matter.
const FENCE: &str = "+++";

const FENCES: &str =
    "begin the file with a line `+++`, write the TOML, and another line `+++`; the text comes after it";

/// A file's text, kept to show problems that are found later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionSource {
    label: String,
    text: String,
    /// The end of the front matter, and the start of the body.
    front: usize,
    body: usize,
}

impl ActionSource {
    /// Divides the file `bytes`, called `label` in problems.
    ///
    /// # Errors
    /// It is too long, is not UTF-8, contains characters that hide text, or has no front matter.
    pub(super) fn divide(label: &str, bytes: &[u8]) -> Result<Self, DocumentError> {
        if bytes.len() > MAX_BYTES {
            let message = format!("the file has {} bytes, more than 256 KiB", bytes.len());
            return Err(DocumentError::one(label, "", 0..0, &InvalidValue::new(message, "shorten it")));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let good = String::from_utf8_lossy(bytes.get(..error.valid_up_to()).unwrap_or_default());
            let refused = InvalidValue::new("from here on the file is not UTF-8", "save it as UTF-8");
            DocumentError::one(label, &good, good.len()..good.len(), &refused)
        })?;
        let wrong = |span, refused: InvalidValue| Err(DocumentError::one(label, text, span, &refused));
        if text.starts_with('\u{feff}') {
            let message = "the file starts with a byte order mark";
            return wrong(0..0, InvalidValue::new(message, "save it as UTF-8 without BOM"));
        }
        if let Some((at, c)) = hiding(text) {
            let message = format!("the file holds the character U+{:04X}, which nobody sees", u32::from(c));
            let fix = "remove it; in a string of the front matter it can be written as \\u and its number";
            return wrong(at..at + c.len_utf8(), InvalidValue::new(message, fix));
        }
        let mut lines = lines(text);
        match lines.next() {
            Some((_, line)) if is_fence(line) => {}
            _ => return wrong(0..0, InvalidValue::new("the file does not begin with front matter", FENCES)),
        }
        let Some((front, fence)) = lines.find(|(_, line)| is_fence(line)) else {
            let message = "the front matter has no end";
            return wrong(0..FENCE.len(), InvalidValue::new(message, "write a line `+++` after the TOML"));
        };
        Ok(Self { label: label.to_owned(), text: text.to_owned(), front, body: front + fence.len() })
    }

    /// Returns the file's name in problems.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the TOML with every byte at its position in the file: the line before it is replaced by a
    /// comment.
    pub fn toml(&self) -> String {
        let front = self.text.get(..self.front).unwrap_or_default();
        format!("#{}", front.get(1..).unwrap_or_default())
    }

    /// Returns the start of the body.
    pub(super) fn body_at(&self) -> usize {
        self.body
    }

    /// Returns the body's first paragraph as one line; none if there are only headings.
    pub(super) fn first_paragraph(&self) -> Option<String> {
        let body = self.text.get(self.body..).unwrap_or_default();
        let blank = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let paragraph: Vec<&str> = body.lines().skip_while(blank).take_while(|line| !blank(line)).collect();
        let line = paragraph.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        (!line.is_empty()).then_some(line)
    }
}

/// The lines with their ends, and where each begins.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line))
    })
}

fn is_fence(line: &str) -> bool {
    line.trim_end() == FENCE
}

/// Returns the first character that controls a terminal, or makes a reviewer read other text than the file
/// contains. A file is reviewed by eye, so invisible characters are not allowed.
fn hiding(text: &str) -> Option<(usize, char)> {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let hides = match c {
            '\n' | '\t' => false,
            '\r' => chars.peek().is_none_or(|(_, next)| *next != '\n'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' => true,
            c => c.is_control(),
        };
        if hides {
            return Some((at, c));
        }
    }
    None
}
