//! An action as its file says it, in types that cannot be wrong by themselves; whether connectors fit is checked later.

use std::sync::Arc;
use std::time::Duration;

use semver::Version;

use super::scope::ActionScope;
use super::template::Template;
use crate::digest::Digest;
use crate::manifest::ConnectorName;

/// An action: what its file declares, and where in the file each part stands.
#[derive(Debug, Clone)]
pub struct Action {
    pub(crate) name: String,
    pub(crate) version: Version,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) requires: Vec<Requirement>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) steps: Vec<Step>,
    /// The SHA-256 of the file.
    pub(crate) hash: Digest,
}

/// A connector that an action requires: this package and no other, and of it no more than the scope.
#[derive(Debug, Clone)]
pub struct Requirement {
    pub(crate) connector: ConnectorName,
    pub(crate) version: Version,
    pub(crate) hash: Digest,
    pub(crate) scope: Arc<ActionScope>,
    pub(crate) line: usize,
}

/// One argument that a caller gives.
#[derive(Debug, Clone)]
pub struct Input {
    pub(crate) name: String,
    pub(crate) kind: InputKind,
    pub(crate) description: String,
    pub(crate) required: bool,
    pub(crate) default: Option<serde_json::Value>,
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
    pub(crate) id: Arc<str>,
    pub(crate) target: Target,
    /// Whether the action says that it must not be repeated; it cannot say the contrary.
    pub(crate) once: bool,
    /// The longest that the step may take, attempts and waits together.
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    /// Who is asked where the one before could not help.
    pub(crate) fallback: Vec<Target>,
    pub(crate) line: usize,
}

/// What is called with what.
#[derive(Debug, Clone)]
pub struct Target {
    /// Which of the action's requirements.
    pub(crate) requirement: usize,
    pub(crate) op: String,
    /// By parameter; of a fallback, those that differ.
    pub(crate) inputs: Vec<(String, Template)>,
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
