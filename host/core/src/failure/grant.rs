//! The line of a document that grants a capability, and the value of a decision that allows one.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::binding::BindingProblem;
use super::class::FailureClass;
use super::denial::REQUESTED_CHARS;
use super::text::sanitize_line;

/// A line of a document that grants a capability: its text and its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrantLine {
    file: String,
    table: &'static str,
    line: String,
    #[serde(skip)]
    then: &'static str,
}

impl GrantLine {
    /// Returns the line for the hosts of a connector, in its manifest.
    pub fn manifest_hosts(hosts: impl IntoIterator<Item = impl fmt::Display>) -> Self {
        Self::manifest("[capabilities.network]", format!("hosts = {}", toml_array(hosts)))
    }

    /// Returns the line for the methods that a connector may send in addition to the common ones, in its
    /// manifest.
    pub fn manifest_methods(methods: impl IntoIterator<Item = impl fmt::Display>) -> Self {
        Self::manifest("[capabilities.network]", format!("methods = {}", toml_array(methods)))
    }

    /// Returns the line for the imports of a connector, in its manifest.
    pub fn manifest_imports(imports: impl IntoIterator<Item = impl fmt::Display>) -> Self {
        Self::manifest("[capabilities.runtime]", format!("imports = {}", toml_array(imports)))
    }

    /// Returns the line for the hosts of a credential, in a connector's manifest.
    pub fn manifest_credential(hosts: impl IntoIterator<Item = impl fmt::Display>) -> Self {
        Self::manifest("[[capabilities.credential]]", format!("hosts = {}", toml_array(hosts)))
    }

    /// Returns the line for an operation of a connector that may change data, in its manifest.
    pub fn manifest_effect(operation: &str) -> Self {
        Self::manifest("[connector.effects.operations]", format!("{operation} = \"destructive\""))
    }

    /// Returns the line for an operation of a connector that may be repeated, in its manifest.
    pub(crate) fn manifest_idempotent(operation: &str) -> Self {
        Self::manifest("[connector.idempotency.operations]", format!("{operation} = \"idempotent\""))
    }

    fn manifest(table: &'static str, line: String) -> Self {
        let then = ", then build, sign and install the connector again";
        Self { file: "connector.toml".into(), table, line, then }
    }

    /// Returns the line for the part of one connector that an action may use, in the action's file; the entry
    /// is the connector's own.
    pub fn action(
        file: String,
        operations: impl IntoIterator<Item = impl fmt::Display>,
        hosts: impl IntoIterator<Item = impl fmt::Display>,
    ) -> Self {
        let (operations, hosts) = (toml_array(operations), toml_array(hosts));
        let line = format!("capabilities = {{ operations = {operations}, hosts = {hosts} }}");
        Self { file, table: "[[requires.connectors]]", line, then: "" }
    }

    /// Returns the entries for one private `host:port`, in the operator's configuration. The other entries
    /// are not visible to callers, and stay out of the line.
    pub fn allow_private(entries: impl IntoIterator<Item = impl fmt::Display>) -> Self {
        let line = format!("allow_private = {}", toml_array(entries));
        Self { file: "config.toml".into(), table: "[network]", line, then: "" }
    }

    /// Returns the document's name.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the table's header as written: `[capabilities.network]`.
    #[must_use]
    pub fn table(&self) -> &str {
        self.table
    }

    /// Returns the line, which is TOML.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Returns the line with its place, for programs.
    pub(super) fn as_json(&self) -> Value {
        serde_json::json!({"file": self.file, "table": self.table, "line": self.line})
    }

    /// Returns the instruction as the part of a sentence after "To allow it,".
    pub(crate) fn instruction(&self) -> String {
        format!("write {self}{}", self.then)
    }
}

impl fmt::Display for GrantLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` under {} in {}", self.line, self.table, self.file)
    }
}

/// Formats texts without quotes and backslashes, like names of hosts, operations and interfaces, as TOML.
fn toml_array(items: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let quoted: Vec<_> = items.into_iter().map(|item| format!("\"{item}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

/// An allowed access, and the lines that allow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allowed {
    requested: String,
    granted_by: Vec<GrantLine>,
    notes: Vec<String>,
    #[serde(flatten)]
    missing: Option<MissingBinding>,
}

/// A missing binding that a call would fail for, although the access itself is granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingBinding {
    class: FailureClass,
    code: &'static str,
    binding: String,
    suggestion: String,
}

impl From<&BindingProblem> for MissingBinding {
    fn from(problem: &BindingProblem) -> Self {
        Self {
            class: problem.code().class(),
            code: problem.code().name(),
            binding: problem.binding().to_owned(),
            suggestion: problem.command().to_owned(),
        }
    }
}

impl MissingBinding {
    /// Returns the class of the failure that the call would end with.
    #[must_use]
    pub const fn class(&self) -> FailureClass {
        self.class
    }

    /// Returns the command that fixes it.
    #[must_use]
    pub fn suggestion(&self) -> &str {
        &self.suggestion
    }
}

impl Allowed {
    /// Creates the value for the requested access, without a line that grants it yet.
    pub fn new(requested: &str) -> Self {
        Self {
            requested: sanitize_line(requested, REQUESTED_CHARS),
            granted_by: Vec::new(),
            notes: Vec::new(),
            missing: None,
        }
    }

    /// Adds a line that grants it.
    #[must_use]
    pub fn with_grant(mut self, line: GrantLine) -> Self {
        self.granted_by.push(line);
        self
    }

    /// Adds a note.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds a binding that a call would fail for; only the first one is kept, as in the call's failure.
    #[must_use]
    pub fn without_binding(mut self, problem: Option<&BindingProblem>) -> Self {
        self.missing = self.missing.or_else(|| problem.map(MissingBinding::from));
        self
    }

    /// Returns the binding that a call would fail for, if there is one.
    #[must_use]
    pub fn missing_binding(&self) -> Option<&MissingBinding> {
        self.missing.as_ref()
    }

    /// Returns the requested access.
    #[must_use]
    pub fn requested(&self) -> &str {
        &self.requested
    }

    /// Returns the lines that grant it, all of which are needed; empty if every connector has the access.
    #[must_use]
    pub fn granted_by(&self) -> &[GrantLine] {
        &self.granted_by
    }

    /// Returns the notes.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}
