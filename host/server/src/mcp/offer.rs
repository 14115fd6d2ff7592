//! What the operator offers to agents: nothing that nobody named, and of that what the filters leave.

/// What is offered. By default actions and no operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    every_operation: bool,
    operations: Vec<Selector>,
    only: Vec<String>,
    read_only: bool,
    text_values: bool,
}

/// Which operations, and under which name where one was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Selector {
    name: Option<String>,
    text: String,
}

impl Offer {
    /// Actions, and no operations.
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
            Some((name, selector)) => Selector { name: Some(name.to_owned()), text: selector.to_owned() },
            None => Selector { name: None, text: selector },
        });
        self
    }

    /// Offers every operation of every installed connector.
    #[must_use]
    pub fn every_operation(mut self) -> Self {
        self.every_operation = true;
        self
    }

    /// Leaves out what uses another connector than those that are named here; may be given several times.
    #[must_use]
    pub fn only(mut self, connector: impl Into<String>) -> Self {
        self.only.push(connector.into());
        self
    }

    /// Leaves out all that is not known to change nothing.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Sends values as text alone, for clients that show their model nothing else; tools have no schema of their
    /// output then.
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

    /// The words for operations.
    pub(super) fn selectors(&self) -> impl Iterator<Item = &str> {
        self.operations.iter().map(|one| one.text.as_str())
    }

    /// The words for operations, each with the name that was chosen for its tool.
    pub(super) fn named_selectors(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.operations.iter().map(|one| (one.text.as_str(), one.name.as_deref()))
    }

    /// The words for connectors that nothing else than them is offered of.
    pub(super) fn only_texts(&self) -> impl Iterator<Item = &str> {
        self.only.iter().map(String::as_str)
    }
}
