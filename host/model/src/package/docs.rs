//! An author's documentation of each operation and its parameters: the text of tool descriptions.
//!
//! Component toolchains drop documentation comments, so the package carries them in addition to the code.
//! They are untrusted text for people and agents: sanitized and truncated when they are read.

use std::collections::BTreeMap;

use cofferdam_core::failure::sanitize_line;
use serde::{Deserialize, Serialize};

use super::error::PackageError;
use super::operation::OperationSignature;
use super::sections::DOCS_SECTION;

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn a_strangers_text_is_printable_bounded_and_keeps_its_lines() {
        let hostile = "\u{1b}[31mPosts\u{202e} a\u{200b} message.\r\n\n\n\n   - to a channel\u{e0041}\u{7}";
        assert_eq!(safe_text(hostile, 100), "[31mPosts a message.\n\n   - to a channel");
        let long = safe_text(&"x".repeat(5_000), 10);
        assert_eq!(long, format!("{}…", "x".repeat(10)));
        assert!(safe_text(&"x\n".repeat(5_000), 10).chars().count() < 25);
    }

    #[test]
    fn reading_is_lenient_about_members_and_strict_about_form() {
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
