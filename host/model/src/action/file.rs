//! An action as its file declares it, in types that are valid on their own; the connectors are checked later.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::digest::Digest;
use cofferdam_core::document::DocumentError;
use cofferdam_core::error::HostError;
use semver::Version;
use serde_json::{Map, Value};

use super::output::OutputSchema;
use super::parse::ActionSource;
use super::scope::ActionScope;
use super::template::Template;
use super::{inputs, parse};
use crate::manifest::ConnectorName;

/// The time limit of an action whose file has none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// An action: the declarations of its file, with the position of each part.
#[derive(Debug, Clone)]
pub struct Action {
    /// Its name, as callers write it.
    pub name: String,
    pub(crate) version: Version,
    /// `name@version`, created once.
    pub reference: Arc<str>,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    /// Its origin: a note of the author's without effect.
    pub(crate) source: Option<String>,
    /// Its purposes, in an agent's words: stored, and not used yet.
    pub(crate) intents: Vec<String>,
    pub(crate) timeout: Option<Duration>,
    /// The connectors that it requires.
    pub requires: Vec<ConnectorRequirement>,
    pub(crate) inputs: Vec<ActionInput>,
    /// Its calls, in order.
    pub steps: Vec<ActionStep>,
    /// The declaration of its output.
    pub output: Option<OutputSchema>,
    /// The SHA-256 of the file.
    pub hash: Digest,
    /// The file, to show problems that are found later.
    pub text: Arc<ActionSource>,
}

/// A connector that an action requires: exactly this package, within the scope.
#[derive(Debug, Clone)]
pub struct ConnectorRequirement {
    pub(crate) connector: ConnectorName,
    pub(crate) version: Version,
    pub(crate) hash: Digest,
    /// The part of the connector that the action may use.
    pub scope: Arc<ActionScope>,
    pub(crate) line: usize,
}

/// One argument of a caller.
#[derive(Debug, Clone)]
pub struct ActionInput {
    /// Its name.
    pub name: String,
    pub(crate) kind: InputKind,
    pub(crate) description: String,
    pub(crate) required: bool,
    pub(crate) default: Option<Value>,
    /// The allowed texts; if empty, any text.
    pub(crate) choices: Vec<String>,
    pub(crate) label: Option<String>,
    pub(crate) multiline: bool,
    pub(crate) line: usize,
}

/// The type of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputKind {
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
    /// A list, of one type if it is declared.
    Array(Option<Box<InputKind>>),
    /// An object of any fields.
    Object,
}

/// One call of an action.
#[derive(Debug, Clone)]
pub struct ActionStep {
    /// Its name within the action.
    pub id: Arc<str>,
    /// The operation that it calls.
    pub target: StepTarget,
    /// True if the action says that it must not be repeated; it cannot say the contrary.
    pub non_idempotent: bool,
    /// True if it says that it may be repeated, which its connector has to confirm.
    pub repeatable: bool,
    /// The longest that the step may take, attempts and waits together.
    pub timeout: Option<Duration>,
    pub(crate) retry: Option<StepRetry>,
    /// The fallbacks, in order.
    pub fallback: Vec<StepTarget>,
    pub(crate) line: usize,
}

/// An operation and its inputs.
#[derive(Debug, Clone)]
pub struct StepTarget {
    /// The index of the action's requirement.
    pub requirement: usize,
    /// The operation.
    pub op: String,
    /// By parameter; of a fallback, those that differ.
    pub inputs: Vec<(String, Template)>,
    pub(crate) line: usize,
}

/// The retry settings of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepRetry {
    /// The profile of this name.
    Profile(String),
    /// Four own values, for the causes that the profile `standard` names.
    Own {
        /// The most retries.
        max: u32,
        /// The first wait.
        initial: Duration,
        /// The longest wait.
        max_delay: Duration,
        /// The share by which a wait may be longer, from 0 to 1.
        jitter: f64,
    },
}

impl Action {
    /// Reads the file `bytes`, called `label` in problems. References are resolved; the host checks that the
    /// required connectors exist and accept their inputs.
    ///
    /// # Errors
    /// Every problem of the file at once, each with its place and its fix.
    pub fn parse(label: &str, bytes: &[u8]) -> Result<Self, DocumentError> {
        parse::action(ActionSource::divide(label, bytes)?, Digest::sha256(bytes))
    }

    /// Returns its name, which is its file's name without `.md`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// `name@version`.
    #[must_use]
    pub fn reference(&self) -> &Arc<str> {
        &self.reference
    }

    /// A title for people and agents.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// Returns its description: the first paragraph of the file's text, as one line. It may contain
    /// characters that hide text: code that shows it to an agent must strip them.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns its origin in its author's words; it has no effect.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Returns its purposes, in its author's words.
    #[must_use]
    pub fn intents(&self) -> &[String] {
        &self.intents
    }

    /// Returns the time limit of the whole action if its file has one; else [`DEFAULT_TIMEOUT`] applies.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns the connectors that it requires.
    #[must_use]
    pub fn requires(&self) -> &[ConnectorRequirement] {
        &self.requires
    }

    /// Returns its inputs.
    #[must_use]
    pub fn inputs(&self) -> &[ActionInput] {
        &self.inputs
    }

    /// Its calls, in order.
    #[must_use]
    pub fn steps(&self) -> &[ActionStep] {
        &self.steps
    }

    /// Returns the schema that its output is checked against.
    #[must_use]
    pub fn output(&self) -> Option<&OutputSchema> {
        self.output.as_ref()
    }

    /// The SHA-256 of the file.
    #[must_use]
    pub fn hash(&self) -> &Digest {
        &self.hash
    }

    /// The file as it was read.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.text()
    }

    /// Returns the schema of the arguments, as a JSON Schema of type `object`.
    #[must_use]
    pub fn input_schema(&self) -> Value {
        inputs::schema(&self.inputs)
    }

    /// Checks the caller's arguments, and adds the defaults of missing ones; `null` counts as missing.
    ///
    /// # Errors
    /// `validation`: everything that is missing, unknown or of the wrong type.
    pub fn arguments(&self, given: &Value) -> Result<Map<String, Value>, HostError> {
        inputs::check_arguments(&self.inputs, given)
    }
}

impl ConnectorRequirement {
    /// The connector's name.
    #[must_use]
    pub fn connector(&self) -> &ConnectorName {
        &self.connector
    }

    /// Its exact version.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The SHA-256 of its package.
    #[must_use]
    pub fn hash(&self) -> &Digest {
        &self.hash
    }

    /// Returns the part of the connector that the action may use.
    #[must_use]
    pub fn scope(&self) -> &Arc<ActionScope> {
        &self.scope
    }

    /// Returns its line in the file.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }
}

impl ActionInput {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> &InputKind {
        &self.kind
    }

    /// Returns its description for callers.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns true if it must be given.
    #[must_use]
    pub fn required(&self) -> bool {
        self.required
    }

    /// Returns its value if it is not given.
    #[must_use]
    pub fn default(&self) -> Option<&Value> {
        self.default.as_ref()
    }

    /// Returns the allowed texts; if empty, any text.
    #[must_use]
    pub fn choices(&self) -> &[String] {
        &self.choices
    }

    /// Returns its label in a form.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Returns true if a form should give it several lines.
    #[must_use]
    pub fn multiline(&self) -> bool {
        self.multiline
    }

    /// Returns its line in the file.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns true if a caller may omit it and it then has no value.
    pub fn may_be_absent(&self) -> bool {
        !self.required && self.default.is_none()
    }
}

impl ActionStep {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Returns the operation that it calls.
    #[must_use]
    pub fn target(&self) -> &StepTarget {
        &self.target
    }

    /// Returns its fallbacks, in order.
    #[must_use]
    pub fn fallback(&self) -> &[StepTarget] {
        &self.fallback
    }

    /// The longest that it may take, attempts and waits together.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns its retry settings, if the file has some.
    #[must_use]
    pub fn retry(&self) -> Option<&StepRetry> {
        self.retry.as_ref()
    }

    /// Returns its line in the file.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }
}

impl StepTarget {
    /// The operation.
    #[must_use]
    pub fn op(&self) -> &str {
        &self.op
    }

    /// Returns the index of the connector in the action's [`requires`](Action::requires).
    #[must_use]
    pub fn requirement(&self) -> usize {
        self.requirement
    }

    /// Returns its arguments, by parameter.
    #[must_use]
    pub fn inputs(&self) -> &[(String, Template)] {
        &self.inputs
    }

    /// Returns its line in the file.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }
}
