//! An action as its file says it, in types that cannot be wrong by themselves; whether connectors fit is checked later.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::digest::Digest;
use cofferdam_core::document::DocumentError;
use cofferdam_core::error::HostError;
use semver::Version;
use serde_json::{Map, Value};

use super::output::Output;
use super::scope::ActionScope;
use super::source::Source;
use super::template::Template;
use super::{arguments, inputs, parse};
use crate::manifest::ConnectorName;

/// How long an action may take where its file does not say.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// An action: what its file declares, and where in the file each part stands.
#[derive(Debug, Clone)]
pub struct Action {
    /// Its name, as callers write it.
    pub name: String,
    pub(crate) version: Version,
    /// `name@version`, written once.
    pub reference: Arc<str>,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    /// Where it came from: a note of the author's, that nothing depends on.
    pub(crate) source: Option<String>,
    /// What it is meant for, in an agent's words: kept, and given to nobody yet.
    pub(crate) intents: Vec<String>,
    pub(crate) timeout: Option<Duration>,
    /// The connectors that it requires.
    pub requires: Vec<Requirement>,
    pub(crate) inputs: Vec<Input>,
    /// Its calls, in order.
    pub steps: Vec<Step>,
    /// The declaration of its output.
    pub output: Option<Output>,
    /// The SHA-256 of the file.
    pub hash: Digest,
    /// The file, to show what is found to be wrong with it later.
    pub text: Arc<Source>,
}

/// A connector that an action requires: this package and no other, and of it no more than the scope.
#[derive(Debug, Clone)]
pub struct Requirement {
    pub(crate) connector: ConnectorName,
    pub(crate) version: Version,
    pub(crate) hash: Digest,
    /// The part of the connector that the action may use.
    pub scope: Arc<ActionScope>,
    pub(crate) line: usize,
}

/// One argument that a caller gives.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its name.
    pub name: String,
    pub(crate) kind: InputKind,
    pub(crate) description: String,
    pub(crate) required: bool,
    pub(crate) default: Option<Value>,
    /// The texts that it is one of; none: any.
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
    /// A list, of one type where that is said.
    Array(Option<Box<InputKind>>),
    /// An object of any fields.
    Object,
}

/// One call of an action.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its name within the action.
    pub id: Arc<str>,
    /// The operation that it calls.
    pub target: Target,
    /// Whether the action says that it must not be repeated; it cannot say the contrary.
    pub once: bool,
    /// Whether it says that it may be, which its connector has to agree to.
    pub repeatable: bool,
    /// The longest that the step may take, attempts and waits together.
    pub timeout: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    /// Who is asked where the one before could not help.
    pub fallback: Vec<Target>,
    pub(crate) line: usize,
}

/// What is called with what.
#[derive(Debug, Clone)]
pub struct Target {
    /// Which of the action's requirements.
    pub requirement: usize,
    /// The operation.
    pub op: String,
    /// By parameter; of a fallback, those that differ.
    pub inputs: Vec<(String, Template)>,
    pub(crate) line: usize,
}

/// How a step is tried again.
#[derive(Debug, Clone, PartialEq)]
pub enum Retry {
    /// As the profile of this name says.
    Profile(String),
    /// As four fields say, for the causes that the profile `standard` names.
    Own {
        /// The most retries.
        max: u32,
        /// The first wait.
        initial: Duration,
        /// The longest wait.
        max_delay: Duration,
        /// The share of a wait that it may be longer by, from 0 to 1.
        jitter: f64,
    },
}

impl Action {
    /// Reads the file `bytes`, called `label` in problems. References are resolved; whether the connectors that it
    /// needs are there and take what it gives them is for the host to check.
    ///
    /// # Errors
    /// Every problem of the file at once, each with its place and its fix.
    pub fn parse(label: &str, bytes: &[u8]) -> Result<Self, DocumentError> {
        parse::action(Source::divide(label, bytes)?, Digest::of(bytes))
    }

    /// Its name, which is its file's without `.md`.
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

    /// What it does: the first paragraph of the file's text, as one line. Characters that hide what is written may be
    /// in it: whoever shows it to an agent strips them.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Where its author says that it came from; nothing depends on it.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// What it is meant for, in its author's words.
    #[must_use]
    pub fn intents(&self) -> &[String] {
        &self.intents
    }

    /// How long it may take as a whole where its file says so; else [`DEFAULT_TIMEOUT`].
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The connectors that it needs.
    #[must_use]
    pub fn requires(&self) -> &[Requirement] {
        &self.requires
    }

    /// What callers give.
    #[must_use]
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Its calls, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What its output is held against.
    #[must_use]
    pub fn output(&self) -> Option<&Output> {
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

    /// What callers may give, as a JSON Schema of type `object`.
    #[must_use]
    pub fn input_schema(&self) -> Value {
        inputs::schema(&self.inputs)
    }

    /// The arguments that a caller gives, checked, with the defaults of those that were not given; `null` counts as
    /// not given.
    ///
    /// # Errors
    /// `validation`: everything that is missing, unknown or of the wrong type.
    pub fn arguments(&self, given: &Value) -> Result<Map<String, Value>, HostError> {
        arguments::fitting(&self.inputs, given)
    }
}

impl Requirement {
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

    /// What the action may use of it.
    #[must_use]
    pub fn scope(&self) -> &Arc<ActionScope> {
        &self.scope
    }

    /// The line of the file that it stands in.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }
}

impl Input {
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

    /// What it is, for callers.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Whether it must be given.
    #[must_use]
    pub fn required(&self) -> bool {
        self.required
    }

    /// What it is where it is not given.
    #[must_use]
    pub fn default(&self) -> Option<&Value> {
        self.default.as_ref()
    }

    /// The texts that it is one of; none: any.
    #[must_use]
    pub fn choices(&self) -> &[String] {
        &self.choices
    }

    /// What a form calls it.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Whether a form should give it several lines.
    #[must_use]
    pub fn multiline(&self) -> bool {
        self.multiline
    }

    /// The line of the file that it stands in.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// Whether a caller may leave it out and it then has no value.
    pub fn may_be_absent(&self) -> bool {
        !self.required && self.default.is_none()
    }
}

impl Step {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// What it calls.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Who is asked instead, in order.
    #[must_use]
    pub fn fallback(&self) -> &[Target] {
        &self.fallback
    }

    /// The longest that it may take, attempts and waits together.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// How it is tried again, where the file says so.
    #[must_use]
    pub fn retry(&self) -> Option<&Retry> {
        self.retry.as_ref()
    }

    /// The line of the file that it stands in.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }
}

impl Target {
    /// The operation.
    #[must_use]
    pub fn op(&self) -> &str {
        &self.op
    }

    /// Which of the action's [`requires`](Action::requires) has it.
    #[must_use]
    pub fn requirement(&self) -> usize {
        self.requirement
    }

    /// What it is given, by parameter.
    #[must_use]
    pub fn inputs(&self) -> &[(String, Template)] {
        &self.inputs
    }

    /// The line of the file that it stands in.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }
}
