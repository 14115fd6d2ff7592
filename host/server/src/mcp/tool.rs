//! One tool: its texts for agents, its target, and the hash by which it is pinned.

use std::sync::Arc;

use cofferdam_core::digest::Digest;
use cofferdam_model::manifest::OperationEffect;
use cofferdam_model::package::{OperationSignature, Package};
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::flow::CheckedAction;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};

use super::error_response;
use super::tool_names::{NameRequest, plain};
use crate::author_text::sanitize_text;
use crate::json_schema;

/// The target of a tool.
#[derive(Debug, Clone)]
pub(super) enum ToolTarget {
    /// One operation of exactly the package that was described.
    Operation { connector: ConnectorRef, op: String },
    /// Exactly the action that was described, checked against the installed connectors.
    Action(Arc<CheckedAction>),
}

impl ToolTarget {
    /// Returns a description for the operator.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Operation { connector, op } => format!("{op} of {connector}"),
            Self::Action(runnable) => format!("action {}", runnable.action().reference()),
        }
    }

    /// Returns true if it runs the same target, to the byte.
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
pub(super) struct ToolDraft {
    pub(super) wanted: NameRequest,
    pub(super) runs: ToolTarget,
    title: Option<String>,
    description: String,
    input: Arc<JsonObject>,
    /// None if values are sent as text.
    output: Option<Arc<JsonObject>>,
    annotations: ToolAnnotations,
}

/// A tool.
#[derive(Debug, Clone)]
pub(super) struct CatalogTool {
    pub(super) tool: Tool,
    /// The draft that it was built from.
    pub(super) draft: Arc<ToolDraft>,
    /// The SHA-256 of everything that agents read of it.
    pub(super) pin: Digest,
    /// The size of that text, in bytes of JSON.
    pub(super) bytes: usize,
}

impl ToolDraft {
    /// Creates the tool of an operation.
    pub(super) fn operation(
        package: &Package,
        connector: &ConnectorRef,
        operation: &OperationSignature,
    ) -> Self {
        let op = operation.name().json();
        let manifest = package.manifest();
        let docs = package.docs().operation(op);
        let reaches = !manifest.hosts().is_empty();
        let runs = format!("Operation {op} of the connector {connector}.");
        Self {
            wanted: NameRequest::operation(&connector.name().to_string(), connector.version(), op),
            runs: ToolTarget::Operation {
                connector: connector.clone().pinned(*package.digest()),
                op: op.to_owned(),
            },
            title: None,
            description: error_response::description(docs.map(|docs| docs.text()).unwrap_or_default(), &runs),
            input: Arc::new(json_schema::input(operation, docs)),
            output: Some(Arc::new(json_schema::output(operation))),
            annotations: hints(manifest.known_effect(op), reaches),
        }
    }

    /// Creates the tool of an action.
    pub(super) fn action(runnable: CheckedAction) -> Self {
        let action = Arc::clone(runnable.action());
        let reaches = action.requires().iter().any(|required| !required.scope().hosts().is_empty());
        let steps: Vec<_> = action.steps().iter().map(|step| step.target().op()).collect();
        let runs = format!("Action {}: {}.", action.reference(), steps.join(", then "));
        Self {
            wanted: NameRequest::action(action.name(), action.version()),
            title: action.title().map(|title| sanitize_text(title, error_response::TITLE_BYTES)),
            description: error_response::description(action.description(), &runs),
            input: Arc::new(json_schema::action_input(&action.input_schema())),
            output: Some(Arc::new(json_schema::action_output(action.output().map(|output| output.schema())))),
            annotations: hints(runnable.effect(), reaches),
            runs: ToolTarget::Action(Arc::new(runnable)),
        }
    }

    /// Sets the name that the operator chose, if one was chosen.
    pub(super) fn with_chosen_name(mut self, name: Option<&str>) -> Self {
        if let Some(name) = name {
            (self.wanted.base, self.wanted.is_chosen) = (plain(name), true);
        }
        self
    }

    /// Removes the schema of its output, if values are sent as text.
    pub(super) fn with_text_values(mut self, text: bool) -> Self {
        self.output = self.output.filter(|_| !text);
        self
    }

    /// Returns true if it is known to change nothing.
    pub(super) fn is_read_only(&self) -> bool {
        self.annotations.read_only_hint == Some(true)
    }
}

impl CatalogTool {
    /// Creates the tool under this name.
    pub(super) fn new(of: &Arc<ToolDraft>, name: String) -> Self {
        let mut tool = Tool::new(name, of.description.clone(), Arc::clone(&of.input))
            .with_annotations(of.annotations.clone());
        tool.output_schema.clone_from(&of.output);
        tool.title.clone_from(&of.title);
        // Canonical JSON (RFC 8785): a tool is strings, numbers and maps of them.
        let json = serde_json_canonicalizer::to_vec(&tool).unwrap_or_default();
        Self { tool, draft: Arc::clone(of), pin: Digest::sha256(&json), bytes: json.len() }
    }

    /// Returns its target.
    pub(super) fn runs(&self) -> &ToolTarget {
        &self.draft.runs
    }

    /// Returns true if its texts for agents and its target are the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.pin == other.pin && self.runs().is_same(other.runs())
    }
}

/// Returns the hints for clients. An unknown effect has no hint: by the protocol, clients then assume that it
/// is destructive.
///
/// `idempotentHint` means that the same arguments once more change nothing more. An operation that may be
/// repeated under one idempotency key does not satisfy that: an agent's next call has another key.
fn hints(effect: Option<OperationEffect>, reaches: bool) -> ToolAnnotations {
    let again_changes_nothing =
        matches!(effect, Some(OperationEffect::ReadOnly | OperationEffect::Convergent));
    let hints = ToolAnnotations::new().idempotent(again_changes_nothing).open_world(reaches);
    match effect {
        Some(OperationEffect::ReadOnly) => hints.read_only(true).destructive(false),
        Some(OperationEffect::Additive) => hints.read_only(false).destructive(false),
        Some(OperationEffect::Convergent | OperationEffect::Destructive) => {
            hints.read_only(false).destructive(true)
        }
        None => hints,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{Arc, ConnectorRef, NameRequest, ToolAnnotations, ToolDraft, ToolTarget, plain};

    impl ToolDraft {
        /// Creates a tool of this name without an existing target.
        pub(in crate::mcp) fn for_test(name: &str, description: &str) -> Self {
            let connector = ConnectorRef::parse("github://acme/many@1.0.0").unwrap();
            Self {
                wanted: NameRequest {
                    base: plain(name),
                    is_chosen: false,
                    family: name.to_owned(),
                    version: connector.version().clone(),
                },
                runs: ToolTarget::Operation { connector, op: name.to_owned() },
                title: None,
                description: description.to_owned(),
                input: Arc::default(),
                output: None,
                annotations: ToolAnnotations::new(),
            }
        }
    }
}
