//! The operator's offer to agents: only named items, and of those only the ones that the filters admit.

/// The offer. By default it has actions and no operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    every_operation: bool,
    operations: Vec<OperationSelector>,
    only: Vec<String>,
    read_only: bool,
    text_values: bool,
}

/// A selector of operations, with the chosen name if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OperationSelector {
    name: Option<String>,
    text: String,
}

impl ToolFilter {
    /// Creates an offer of actions, and no operations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Offers the operations that `selector` names: `CONNECTOR` or `CONNECTOR.OP`, the connector as
    /// `github://acme/slack`, `github://acme/slack@1.2.0` or `slack`. `TOOL=CONNECTOR.OP` gives the operation's tool
    /// that name.
    #[must_use]
    pub fn operations(mut self, selector: impl Into<String>) -> Self {
        let selector = selector.into();
        self.operations.push(match selector.split_once('=') {
            Some((name, selector)) => {
                OperationSelector { name: Some(name.to_owned()), text: selector.to_owned() }
            }
            None => OperationSelector { name: None, text: selector },
        });
        self
    }

    /// Offers every operation of every installed connector.
    #[must_use]
    pub fn every_operation(mut self) -> Self {
        self.every_operation = true;
        self
    }

    /// Leaves out everything that uses other connectors than those named here; may be given several times.
    #[must_use]
    pub fn only(mut self, connector: impl Into<String>) -> Self {
        self.only.push(connector.into());
        self
    }

    /// Leaves out everything that is not known to change nothing.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Sends values as text alone, for clients that show their model nothing else; tools then have no schema
    /// of their output.
    #[must_use]
    pub fn text_values(mut self) -> Self {
        self.text_values = true;
        self
    }

    pub(super) fn sends_text(&self) -> bool {
        self.text_values
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(super) fn is_every_operation(&self) -> bool {
        self.every_operation
    }

    /// Returns the selectors of operations.
    pub(super) fn selectors(&self) -> impl Iterator<Item = &str> {
        self.operations.iter().map(|one| one.text.as_str())
    }

    /// Returns the selectors of operations, each with the name that was chosen for its tool.
    pub(super) fn named_selectors(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.operations.iter().map(|one| (one.text.as_str(), one.name.as_deref()))
    }

    /// Returns the selectors of the connectors that the offer is limited to.
    pub(super) fn only_texts(&self) -> impl Iterator<Item = &str> {
        self.only.iter().map(String::as_str)
    }
}
