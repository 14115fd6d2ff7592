//! One denied capability as a value: the requested capability, the granted ones, and the line that would
//! allow it.
//!
//! The gate, the installation and `cofferdam why` all return it, so that the answer reads the same
//! everywhere.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;
use serde_json::{Map, Value};

use super::class::{FailureBoundary, FailureClass};
use super::fault::BindingProblem;
use super::text::sanitize_line;

/// The longest text of a request in a decision, in characters.
pub(super) const REQUESTED_CHARS: usize = 300;

/// The number of grants that a message lists; `details` has all of them.
const LISTED: usize = 12;

/// The check that denied the capability (`boundary`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialBoundary {
    /// The gate, while the guest ran.
    Sandbox,
    /// The manifest does not declare it.
    ConnectorManifest,
    /// The caller's declared subset does not include it.
    Action,
}

impl From<DenialBoundary> for FailureBoundary {
    fn from(boundary: DenialBoundary) -> Self {
        match boundary {
            DenialBoundary::Sandbox => Self::Sandbox,
            DenialBoundary::ConnectorManifest => Self::ConnectorManifest,
            DenialBoundary::Action => Self::Action,
        }
    }
}

/// The reason of the denial (`details.code`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialCode {
    /// The `host:port` is not among the granted ones.
    HostNotGranted,
    /// The operation is not in the action's subset, or the connector has no such operation to declare.
    OperationNotGranted,
    /// The request has a method, or names one in a header, that the manifest does not grant, or that the operation
    /// is declared not to use.
    MethodNotGranted,
    /// The request would be sent without TLS, and the grant requires it.
    InsecureUrl,
    /// The request's target is not written in a form that can be checked.
    InvalidAuthority,
    /// The name resolves to an address inside the operator's own network.
    PrivateAddress,
    /// The request has a query parameter that the host sets for a credential.
    CredentialParameter,
    /// A handle for a credential that the manifest does not ask for.
    CredentialNotGranted,
    /// A handle that is unknown or spent, or is in a place where no credential may be.
    CredentialHandle,
    /// The component asks for an interface that its manifest does not name, or that no host has.
    CapabilityUnavailable,
    /// Data that the connector wanted to send contains the secret of a binding.
    SecretInRequest,
    /// The response of a service, or the result of the connector, contains the secret of a binding.
    SecretReflected,
    /// A service sent a partial response to a request that carries a credential.
    PartialResponse,
}

impl DenialCode {
    /// Returns the stable name in `details.code`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostNotGranted => "host_not_granted",
            Self::OperationNotGranted => "operation_not_granted",
            Self::MethodNotGranted => "method_not_granted",
            Self::InsecureUrl => "insecure_url",
            Self::InvalidAuthority => "invalid_authority",
            Self::PrivateAddress => "private_address",
            Self::CredentialParameter => "credential_parameter",
            Self::CredentialNotGranted => "credential_not_granted",
            Self::CredentialHandle => "credential_handle",
            Self::CapabilityUnavailable => "capability_unavailable",
            Self::SecretInRequest => "secret_in_request",
            Self::SecretReflected => "secret_reflected",
            Self::PartialResponse => "partial_response",
        }
    }
}

/// One denied capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    // Boxed, so that a Result with it stays small on the success path.
    inner: Box<DenialInner>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct DenialInner {
    boundary: DenialBoundary,
    code: DenialCode,
    requested: String,
    granted: Vec<String>,
    action: Option<DeclaredSubset>,
    /// The first sentence, if it is not the default one.
    statement: Option<String>,
    remark: String,
    line: Option<GrantLine>,
    otherwise: String,
    address: Option<IpAddr>,
    declared_at: Option<String>,
    bindings: Vec<String>,
}

/// The subset of the connector that an action declares.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeclaredSubset {
    action: String,
    subset: Vec<String>,
}

impl Denial {
    /// Creates a denial: `requested` (as `network:host:port`, `import:interface` or `operation:name`) is not
    /// among `granted`.
    pub fn new(boundary: DenialBoundary, code: DenialCode, requested: &str, granted: Vec<String>) -> Self {
        let requested = sanitize_line(requested, REQUESTED_CHARS);
        let (remark, otherwise) = (String::new(), String::new());
        let inner = DenialInner {
            boundary,
            code,
            requested,
            granted,
            action: None,
            statement: None,
            remark,
            line: None,
            otherwise,
            address: None,
            declared_at: None,
            bindings: Vec::new(),
        };
        Self { inner: Box::new(inner) }
    }

    /// Creates the denial for the secret of one of `bindings` that was found at the gate. `passing` names the
    /// place, as `request:host:port`, `response:host:port`, `result` or `failure`. The denial contains
    /// nothing of the secret, nor its position.
    pub fn for_secret(code: DenialCode, passing: &str, bindings: Vec<String>) -> Self {
        let advice = match code {
            DenialCode::SecretInRequest => {
                "The host adds credentials by itself: leave the secret out of the arguments and of the connector."
            }
            _ => {
                "The service gives back what it is sent; use an operation of it that does not, and rebind the \
                 credential if anybody else may have seen the answer."
            }
        };
        let mut denial =
            Self::new(DenialBoundary::Sandbox, code, passing, Vec::new()).with_alternative(advice);
        denial.inner.bindings = bindings;
        denial
    }

    /// Sets the grants, if they were not known before.
    #[must_use]
    pub fn with_granted(mut self, granted: Vec<String>) -> Self {
        self.inner.granted = granted;
        self
    }

    /// Sets the action within which it was requested, and the subset that it declares of the connector.
    #[must_use]
    pub fn with_action(mut self, action: &str, subset: Vec<String>) -> Self {
        self.inner.action = Some(DeclaredSubset { action: action.to_owned(), subset });
        self
    }

    /// Replaces the sentence about request and grants by a description of the event.
    #[must_use]
    pub fn with_statement(mut self, sentence: impl Into<String>) -> Self {
        self.inner.statement = Some(sentence.into());
        self
    }

    /// Adds a sentence about the cause.
    #[must_use]
    pub fn with_remark(mut self, remark: impl Into<String>) -> Self {
        self.inner.remark = remark.into();
        self
    }

    /// Sets the line that would allow it.
    #[must_use]
    pub fn allowed_by(mut self, line: GrantLine) -> Self {
        self.inner.line = Some(line);
        self
    }

    /// Adds a sentence about another solution.
    #[must_use]
    pub fn with_alternative(mut self, sentence: impl Into<String>) -> Self {
        self.inner.otherwise = sentence.into();
        self
    }

    /// Adds the denied address. It is only in `details`, so that the same denial can be predicted without a
    /// lookup and reads the same.
    #[must_use]
    pub fn with_address(mut self, address: IpAddr) -> Self {
        self.inner.address = Some(address);
        self
    }

    /// Adds the place of the declaration that caused the denial, as `file:line`.
    #[must_use]
    pub fn declared_at(mut self, place: String) -> Self {
        self.inner.declared_at = Some(place);
        self
    }

    /// Returns the check that denied it.
    #[must_use]
    pub fn boundary(&self) -> DenialBoundary {
        self.inner.boundary
    }

    /// Returns the reason.
    #[must_use]
    pub fn code(&self) -> DenialCode {
        self.inner.code
    }

    /// Returns the requested capability.
    #[must_use]
    pub fn requested(&self) -> &str {
        &self.inner.requested
    }

    /// Returns the granted capabilities in the same form.
    #[must_use]
    pub fn granted(&self) -> &[String] {
        &self.inner.granted
    }

    /// Returns the line that would allow it, if there is one.
    #[must_use]
    pub fn line(&self) -> Option<&GrantLine> {
        self.inner.line.as_ref()
    }

    /// Returns the denied address, if the name was granted.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.inner.address
    }

    /// Returns the suggested fix in a sentence or two.
    #[must_use]
    pub fn suggestion(&self) -> String {
        let line = self.inner.line.as_ref().map(|line| format!("To allow it, {}.", line.instruction()));
        sentences([&self.inner.remark, &line.unwrap_or_default(), &self.inner.otherwise])
    }

    /// Returns the complete message for people: the request, the grants, and the line that would allow it.
    #[must_use]
    pub fn message(&self) -> String {
        let DenialInner { boundary, code, requested, granted, action, bindings, .. } = &*self.inner;
        if matches!(code, DenialCode::SecretInRequest | DenialCode::SecretReflected) {
            let (what, of) = requested.split_once(':').unwrap_or((requested, ""));
            let whose = match bindings.as_slice() {
                [] => "a binding".to_owned(),
                names => names.join(" or "),
            };
            let what = match (what, of) {
                ("request", "") => "A request of the connector".to_owned(),
                ("request", host) => format!("The connector's request to {host}"),
                ("response", host) => format!("The answer of {host}"),
                (what, _) => format!("The {what} of the connector"),
            };
            return sentences([
                &format!("{what} holds the secret of {whose}, and was stopped."),
                &self.suggestion(),
            ]);
        }
        if let Some(statement) = &self.inner.statement {
            return sentences([statement, &self.suggestion()]);
        }
        let what = match (action, boundary) {
            (Some(DeclaredSubset { action, subset }), DenialBoundary::Action) => {
                format!("The action {action} does not include {requested}; it includes {}.", listed(subset))
            }
            (Some(DeclaredSubset { action, .. }), _) => format!(
                "The action {action} declares {requested}, and the connector has only {}.",
                listed(granted)
            ),
            (None, _) => format!("The connector asked for {requested}; granted is {}.", listed(granted)),
        };
        sentences([&what, &self.suggestion()])
    }

    /// Returns the data for programs: `details` of the resulting failure without the names of the call.
    #[must_use]
    pub fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("code".into(), self.code().name().into());
        self.describe(&mut details);
        details
    }

    /// Adds the data for programs to `details`.
    pub(crate) fn describe(&self, details: &mut Map<String, Value>) {
        let DenialInner { requested, granted, action, line, address, declared_at, bindings, .. } =
            &*self.inner;
        if let Some(DeclaredSubset { action, .. }) = action {
            details.insert("action".into(), action.as_str().into());
        }
        details.insert("requested".into(), requested.as_str().into());
        details.insert("granted".into(), granted.as_slice().into());
        if let Some(DeclaredSubset { subset, .. }) = action {
            details.insert("declared_subset".into(), subset.as_slice().into());
        }
        details.insert("suggestion".into(), self.suggestion().into());
        if let Some(line) = line {
            details.insert("allow".into(), line.as_json());
        }
        if let Some(place) = declared_at {
            details.insert("declared_at".into(), place.as_str().into());
        }
        if !bindings.is_empty() {
            details.insert("bindings".into(), bindings.as_slice().into());
        }
        if let Some(address) = address {
            details.insert("ip".into(), address.to_string().into());
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for Denial {}

fn sentences<const N: usize>(parts: [&str; N]) -> String {
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

fn listed(granted: &[String]) -> String {
    let shown = granted.get(..LISTED).unwrap_or(granted).join(", ");
    match granted.len() {
        0 => "nothing".to_owned(),
        all if all > LISTED => format!("{shown} and {} more", all - LISTED),
        _ => shown,
    }
}

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

    /// Returns the entry of a line that has only one, as the command line takes it.
    #[must_use]
    pub fn entry(&self) -> Option<&str> {
        // The line is TOML, and its entries have no quotes in them.
        match &*self.line.split('"').collect::<Vec<_>>() {
            [_, entry, _] => Some(entry),
            _ => None,
        }
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

    /// Returns the code of that failure.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.code
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
