//! What the operator offers to agents: nothing that nobody named, and of that what the filters leave.

use crate::call::ConnectorRef;

/// What is offered. By default actions and no operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    every_operation: bool,
    operations: Vec<Selector>,
    only: Vec<String>,
    read_only: bool,
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

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether anything of this connector may be asked for at all.
    pub(super) fn admits(&self, connector: &ConnectorRef) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| names(name, connector))
    }

    /// Whether any of the connector's operations is offered.
    pub(super) fn selects_of(&self, connector: &ConnectorRef) -> bool {
        self.every_operation || self.operations.iter().any(|one| self.of(&one.text, connector).is_some())
    }

    /// Whether this operation of the connector is offered, and under which name where one was chosen.
    pub(super) fn selects(&self, connector: &ConnectorRef, op: &str) -> Option<Option<&str>> {
        let mut selected = self.every_operation.then_some(None);
        for one in &self.operations {
            match (self.of(&one.text, connector), one.name.as_deref()) {
                // One name is not that of many tools.
                (Some(None), Some(_)) | (_, Some("")) => {}
                (Some(only), name) if only.is_none_or(|only| only == op) => {
                    selected = Some(selected.flatten().or(name));
                }
                _ => {}
            }
        }
        selected
    }

    /// Which operation of the connector the selector names, `Some(None)` being all; none where it is another's.
    fn of<'s>(&self, selector: &'s str, connector: &ConnectorRef) -> Option<Option<&'s str>> {
        if names(selector, connector) {
            return Some(None);
        }
        let (name, op) = selector.rsplit_once('.')?;
        names(name, connector).then_some(Some(op))
    }

    /// Whether the selector is of this connector, or of an operation of it.
    pub(super) fn is_of(&self, selector: &str, connector: &ConnectorRef) -> bool {
        self.of(selector, connector).is_some()
    }

    /// What was named and selects nothing of `all`, and why.
    pub(super) fn selecting_nothing<'a>(
        &'a self,
        all: &[(ConnectorRef, Vec<String>)],
    ) -> Vec<(&'a str, &'static str)> {
        let finds = |selector: &str| {
            all.iter().any(|(connector, ops)| match self.of(selector, connector) {
                None => false,
                Some(None) => true,
                Some(Some(op)) => ops.iter().any(|own| own == op),
            })
        };
        let of_all = |selector: &str| all.iter().any(|(connector, _)| names(selector, connector));
        let why = |one: &'a Selector| match &one.name {
            _ if !finds(&one.text) => Some("nothing that is installed has this name"),
            Some(name) if name.is_empty() => Some("it has no name for its tool: write TOOL=CONNECTOR.OP"),
            Some(_) if of_all(&one.text) => {
                Some("a name is for the tool of one operation: write TOOL=CONNECTOR.OP")
            }
            _ => None,
        };
        self.operations.iter().filter_map(|one| Some((one.text.as_str(), why(one)?))).collect()
    }
}

/// Whether `text` is the connector's name, its name and version, or the last part of its name.
fn names(text: &str, connector: &ConnectorRef) -> bool {
    let name = connector.name().to_string();
    text == name || text == connector.to_string() || name.rsplit('/').next() == Some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]
    use super::{ConnectorRef, Offer};

    #[test]
    fn nothing_is_offered_that_nobody_named() {
        let slack = ConnectorRef::parse("github://acme/slack.js@1.2.0").unwrap();
        assert!(Offer::new().selects(&slack, "post").is_none());
        for all in ["github://acme/slack.js", "github://acme/slack.js@1.2.0", "slack.js"] {
            let offer = Offer::new().operations(all);
            assert!(offer.selects_of(&slack) && offer.selects(&slack, "post") == Some(None), "{all}");
            let named = Offer::new().operations(format!("say={all}.post"));
            assert_eq!(named.selects(&slack, "post"), Some(Some("say")), "{all}");
            let one = Offer::new().operations(format!("{all}.post"));
            assert!(
                one.selects_of(&slack)
                    && one.selects(&slack, "post") == Some(None)
                    && one.selects(&slack, "get").is_none(),
                "{all}"
            );
        }
        for other in
            ["github://acme/slack", "slack", "github://acme/slack.js@1.2.1", "github://evil/slack.js", ""]
        {
            assert!(!Offer::new().operations(other).selects_of(&slack), "{other}");
        }
        assert!(Offer::new().every_operation().selects(&slack, "post").is_some());
        let only = Offer::new().every_operation().only("hello");
        assert!(
            !only.admits(&slack)
                && Offer::new().admits(&slack)
                && Offer::new().only("slack.js").admits(&slack)
        );
        let all = [(slack, vec!["post".to_owned()])];
        let offer = Offer::new().operations("slack.js.post").operations("slack.js.pots").operations("teams");
        let nothing: Vec<_> = offer.selecting_nothing(&all).into_iter().map(|(name, _)| name).collect();
        assert_eq!(nothing, ["slack.js.pots", "teams"]);
        // A name that cannot be given is not passed over: nothing is offered by such a selector, and it is said.
        let (slack, _) = &all[0];
        for wrong in ["say=slack.js", "=slack.js.post", "=slack.js"] {
            let offer = Offer::new().operations(wrong);
            assert!(offer.selects_of(slack) && offer.selects(slack, "post").is_none(), "{wrong}");
            let [(_, why)] = offer.selecting_nothing(&all)[..] else { panic!("{wrong}") };
            assert!(why.contains("TOOL=CONNECTOR.OP"), "{wrong}: {why}");
        }
    }
}
