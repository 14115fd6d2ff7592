//! One tool: what agents read of it, what it runs, and the hash by which it is pinned.

use std::sync::Arc;

use cofferdam_core::digest::Digest;
use cofferdam_model::manifest::Effect;
use cofferdam_model::package::{Operation, Package};
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::flow::Runnable;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};

use super::names::{Wanted, plain};
use super::{schema, words};

/// What a tool runs.
#[derive(Debug, Clone)]
pub(super) enum Runs {
    /// One operation of the very package that was described.
    Operation { connector: ConnectorRef, op: String },
    /// The very action that was described, checked against what is installed.
    Action(Arc<Runnable>),
}

impl Runs {
    /// What it is, for the operator.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Operation { connector, op } => format!("{op} of {connector}"),
            Self::Action(runnable) => format!("action {}", runnable.action().reference()),
        }
    }

    /// Whether it runs the same, to the byte.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Operation { connector, op }, Self::Operation { connector: other, op: its }) => {
                (connector, op) == (other, its)
            }
            (Self::Action(own), Self::Action(other)) => own.action().hash() == other.action().hash(),
            _ => false,
        }
    }
}

/// A tool without its name, which depends on the other tools.
#[derive(Debug, Clone)]
pub(super) struct Unnamed {
    pub(super) wanted: Wanted,
    pub(super) runs: Runs,
    title: Option<String>,
    description: String,
    input: Arc<JsonObject>,
    /// None where values are sent as text.
    output: Option<Arc<JsonObject>>,
    annotations: ToolAnnotations,
}

/// A tool.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) tool: Tool,
    /// What it was made of.
    pub(super) of: Arc<Unnamed>,
    /// The SHA-256 of all that agents read of it.
    pub(super) pin: Digest,
    /// How much that is, in bytes of JSON.
    pub(super) bytes: usize,
}

impl Unnamed {
    /// The tool of an operation.
    pub(super) fn operation(package: &Package, connector: &ConnectorRef, operation: &Operation) -> Self {
        let op = operation.name().json();
        let manifest = package.manifest();
        let docs = package.docs().operation(op);
        let reaches = !manifest.hosts().is_empty();
        let runs = format!("Operation {op} of the connector {connector}.");
        Self {
            wanted: Wanted::operation(&connector.name().to_string(), connector.version(), op),
            runs: Runs::Operation {
                connector: connector.clone().pinned(*package.digest()),
                op: op.to_owned(),
            },
            title: None,
            description: words::description(docs.map(|docs| docs.text()).unwrap_or_default(), &runs),
            input: Arc::new(schema::input(operation, docs)),
            output: Some(Arc::new(schema::output(operation))),
            annotations: hints(manifest.known_effect(op), reaches),
        }
    }

    /// The tool of an action.
    pub(super) fn action(runnable: Runnable) -> Self {
        let action = Arc::clone(runnable.action());
        let reaches = action.requires().iter().any(|required| !required.scope().hosts().is_empty());
        let steps: Vec<_> = action.steps().iter().map(|step| step.target().op()).collect();
        let runs = format!("Action {}: {}.", action.reference(), steps.join(", then "));
        Self {
            wanted: Wanted::action(action.name(), action.version()),
            title: action.title().map(|title| words::told(title, words::TITLE_BYTES)),
            description: words::description(action.description(), &runs),
            input: Arc::new(schema::of_action(&action.input_schema())),
            output: Some(Arc::new(schema::outcome_of_action(action.output().map(|output| output.schema())))),
            annotations: hints(runnable.effect(), reaches),
            runs: Runs::Action(Arc::new(runnable)),
        }
    }

    /// The same under the name that the operator chose, if one was chosen.
    pub(super) fn under(mut self, name: Option<&str>) -> Self {
        if let Some(name) = name {
            (self.wanted.base, self.wanted.is_chosen) = (plain(name), true);
        }
        self
    }

    /// The same without a schema of its output, where values are sent as text.
    pub(super) fn sending(mut self, text: bool) -> Self {
        self.output = self.output.filter(|_| !text);
        self
    }

    /// Whether it is known to change nothing.
    pub(super) fn is_read_only(&self) -> bool {
        self.annotations.read_only_hint == Some(true)
    }
}

impl Named {
    /// The tool under this name.
    pub(super) fn new(of: &Arc<Unnamed>, name: String) -> Self {
        let mut tool = Tool::new(name, of.description.clone(), Arc::clone(&of.input))
            .with_annotations(of.annotations.clone());
        tool.output_schema.clone_from(&of.output);
        tool.title.clone_from(&of.title);
        // Canonical JSON (RFC 8785): a tool is strings, numbers and maps of them.
        let json = serde_json_canonicalizer::to_vec(&tool).unwrap_or_default();
        Self { tool, of: Arc::clone(of), pin: Digest::of(&json), bytes: json.len() }
    }

    /// What it runs.
    pub(super) fn runs(&self) -> &Runs {
        &self.of.runs
    }

    /// Whether agents read the same of it, and it runs the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.pin == other.pin && self.runs().is_same(other.runs())
    }
}

/// The hints for clients. Of an effect that is not known nothing is said: the protocol has them take it for destructive.
///
/// `idempotentHint` means that the same arguments once more change nothing more. That an operation may be repeated under
/// one idempotency key says nothing of that: an agent's next call has another key.
fn hints(effect: Option<Effect>, reaches: bool) -> ToolAnnotations {
    let again_changes_nothing = matches!(effect, Some(Effect::ReadOnly | Effect::Convergent));
    let hints = ToolAnnotations::new().idempotent(again_changes_nothing).open_world(reaches);
    match effect {
        Some(Effect::ReadOnly) => hints.read_only(true).destructive(false),
        Some(Effect::Additive) => hints.read_only(false).destructive(false),
        Some(Effect::Convergent | Effect::Destructive) => hints.read_only(false).destructive(true),
        None => hints,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{Arc, ConnectorRef, Runs, ToolAnnotations, Unnamed, Wanted, plain};

    impl Unnamed {
        /// A tool of this name that runs nothing that there is.
        pub(in crate::mcp) fn for_test(name: &str, description: &str) -> Self {
            let connector = ConnectorRef::parse("github://acme/many@1.0.0").unwrap();
            Self {
                wanted: Wanted {
                    base: plain(name),
                    is_chosen: false,
                    family: name.to_owned(),
                    version: connector.version().clone(),
                },
                runs: Runs::Operation { connector, op: name.to_owned() },
                title: None,
                description: description.to_owned(),
                input: Arc::default(),
                output: None,
                annotations: ToolAnnotations::new(),
            }
        }
    }
}
