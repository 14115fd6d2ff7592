//! Resolves the operator's selectors (`--operations`, `--only`) to installed connectors: each to one thing,
//! for as long as a server runs.
//!
//! `slack.post_message` is an operation of any connector `slack`, or all of a connector `slack.post_message`.
//! A later installation must not be offered because of such a name. So an ambiguous selector is refused, and
//! a selector keeps its first meaning until the server ends.

use std::collections::BTreeMap;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_model::manifest::ConnectorName;
use cofferdam_runtime::call::ConnectorRef;

/// An installed connector and its operations; none if it cannot be read.
pub(super) type InstalledOperations = (ConnectorRef, Option<Vec<String>>);

/// The meaning of a name: a connector, or one operation of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SelectorMeaning {
    connector: String,
    op: Option<String>,
}

impl SelectorMeaning {
    /// Returns the full name, with the version where the name alone is ambiguous.
    fn full(&self, version: Option<&ConnectorRef>) -> String {
        let connector = version.map_or_else(|| self.connector.clone(), ToString::to_string);
        match &self.op {
            Some(op) => format!("{connector}.{op}"),
            None => connector,
        }
    }
}

/// The meanings of the names of an offer.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolSelection {
    operations: BTreeMap<String, SelectorMeaning>,
    only: BTreeMap<String, ConnectorName>,
}

/// A selector with several meanings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AmbiguousSelector {
    option: &'static str,
    pub(super) text: String,
    full: Vec<String>,
}

impl AmbiguousSelector {
    /// Returns the reason why nothing is offered for it.
    pub(super) fn why(&self) -> String {
        format!("it names more than one: {}; write which one is meant", self.full.join(", "))
    }

    pub(super) fn into_error(self) -> HostError {
        let text = sanitize_line(&self.text, 200);
        let message = format!("{} {text} names more than one: {}.", self.option, self.full.join(", "));
        HostError::new(HostErrorKind::Validation, message)
            .with_hint("Write the full name of the one that is meant.")
    }
}

impl ToolSelection {
    /// Resolves the selectors of `offer` that had no meaning yet. Returns the ambiguous ones.
    pub(super) fn resolve(
        &mut self,
        offer: &ToolFilter,
        installed: &[InstalledOperations],
    ) -> Vec<AmbiguousSelector> {
        let mut ambiguous = Vec::new();
        for text in offer.selectors() {
            if self.operations.contains_key(text) {
                continue;
            }
            let mut meanings: Vec<(SelectorMeaning, &ConnectorRef)> = installed
                .iter()
                .flat_map(|(connector, ops)| {
                    let meant = readings(text, connector).filter(move |op| match (op, ops) {
                        (Some(op), Some(ops)) => ops.iter().any(|own| own == op),
                        _ => true,
                    });
                    meant.map(move |op| {
                        let (name, op) = (connector.name().to_string(), op.map(str::to_owned));
                        (SelectorMeaning { connector: name, op }, connector)
                    })
                })
                .collect();
            meanings.sort_by(|one, other| one.0.cmp(&other.0));
            meanings.dedup_by(|one, other| one.0 == other.0);
            match &meanings[..] {
                [] => {}
                [(meaning, _)] => drop(self.operations.insert(text.to_owned(), meaning.clone())),
                several => {
                    let plain: Vec<_> = several.iter().map(|(meaning, _)| meaning.full(None)).collect();
                    let full = several.iter().zip(&plain).map(|((meaning, connector), own)| {
                        let is_alone = plain.iter().filter(|other| *other == own).count() == 1;
                        if is_alone { own.clone() } else { meaning.full(Some(connector)) }
                    });
                    ambiguous.push(AmbiguousSelector {
                        option: "--operations",
                        text: text.to_owned(),
                        full: full.collect(),
                    });
                }
            }
        }
        for text in offer.only_texts() {
            if self.only.contains_key(text) {
                continue;
            }
            let mut meant: Vec<_> = installed
                .iter()
                .map(|(connector, _)| connector)
                .filter(|one| names(text, one))
                .map(ConnectorRef::name)
                .collect();
            meant.sort_by_key(ToString::to_string);
            meant.dedup();
            match &meant[..] {
                [] => {}
                [name] => drop(self.only.insert(text.to_owned(), (*name).clone())),
                several => {
                    let full = several.iter().map(ToString::to_string).collect();
                    ambiguous.push(AmbiguousSelector { option: "--only", text: text.to_owned(), full });
                }
            }
        }
        ambiguous
    }

    /// Returns true if the filters admit anything of this connector.
    pub(super) fn admits(&self, offer: &ToolFilter, connector: &ConnectorRef) -> bool {
        let mut only = offer.only_texts().peekable();
        let is_meant = |text: &str| names(text, connector) && self.only.get(text) == Some(connector.name());
        only.peek().is_none() || only.any(is_meant)
    }

    /// Returns whether this operation of the connector is offered, and its chosen name if there is one. A version that is
    /// not active is offered only if a selector names it.
    pub(super) fn selects<'o>(
        &self,
        offer: &'o ToolFilter,
        (connector, is_active): (&ConnectorRef, bool),
        op: &str,
    ) -> Option<Option<&'o str>> {
        let mut selected = (is_active && offer.is_every_operation()).then_some(None);
        for (text, name) in offer.named_selectors() {
            if !is_active && !names_version(text, connector) {
                continue;
            }
            let Some(meaning) = self.operations.get(text) else { continue };
            let is_connector = meaning.connector == connector.name().to_string();
            let is_meant =
                is_connector && readings(text, connector).any(|read| read == meaning.op.as_deref());
            match (&meaning.op, name) {
                _ if !is_meant => {}
                // One name cannot be given to several tools.
                (None, Some(_)) | (_, Some("")) => {}
                (only, name) if only.as_ref().is_none_or(|only| only == op) => {
                    selected = Some(selected.flatten().or(name));
                }
                _ => {}
            }
        }
        selected
    }

    /// Returns the selectors that select nothing, with the reasons.
    pub(super) fn unmatched_selectors<'o>(&self, offer: &'o ToolFilter) -> Vec<(&'o str, &'static str)> {
        let why = |(text, name): (&'o str, Option<&str>)| {
            let why = match (self.operations.get(text), name) {
                (None, _) => "nothing that is installed has this name",
                (_, Some("")) => "it has no name for its tool: write TOOL=CONNECTOR.OP",
                (Some(SelectorMeaning { op: None, .. }), Some(_)) => {
                    "a name is for the tool of one operation: write TOOL=CONNECTOR.OP"
                }
                _ => return None,
            };
            Some((text, why))
        };
        offer.named_selectors().filter_map(why).collect()
    }
}

/// Returns the readings of `text` for this connector: as all of it, or as one of its operations.
fn readings<'t>(text: &'t str, connector: &ConnectorRef) -> impl Iterator<Item = Option<&'t str>> {
    let whole = names(text, connector).then_some(None);
    let op = text.rsplit_once('.').filter(|(name, _)| names(name, connector)).map(|(_, op)| Some(op));
    whole.into_iter().chain(op)
}

/// Returns true if `text` could mean the connector or something in it.
pub(super) fn may_mean(text: &str, connector: &ConnectorRef) -> bool {
    readings(text, connector).next().is_some()
}

/// Returns true if `text` names this version of the connector, or an operation of it.
pub(super) fn names_version(text: &str, connector: &ConnectorRef) -> bool {
    let rest = text.strip_prefix(&connector.to_string());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns true if `text` is the connector's name, its name and version, or the last part of its name.
fn names(text: &str, connector: &ConnectorRef) -> bool {
    let name = connector.name().to_string();
    text == name || text == connector.to_string() || name.rsplit('/').next() == Some(text)
}

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
    /// `github://acme/slack` or `slack` for its active version, or `github://acme/slack@1.2.0`. `TOOL=CONNECTOR.OP`
    /// gives the operation's tool that name.
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

    /// Offers every operation of the active version of every installed connector.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

    use super::{ConnectorRef, InstalledOperations, ToolFilter, ToolSelection};

    fn installed(all: &[(&str, &[&str])]) -> Vec<InstalledOperations> {
        let one = |(name, ops): &(&str, &[&str])| {
            (ConnectorRef::parse(name).unwrap(), Some(ops.iter().map(|op| (*op).to_owned()).collect()))
        };
        all.iter().map(one).collect()
    }

    fn resolved(offer: &ToolFilter, installed: &[InstalledOperations]) -> ToolSelection {
        let mut selection = ToolSelection::default();
        assert_eq!(selection.resolve(offer, installed), []);
        selection
    }

    #[test]
    fn only_named_tools_are_offered() {
        let all = installed(&[("github://acme/slack.js@1.2.0", &["post", "get"])]);
        let slack = &all[0].0;
        let none = ToolFilter::new();
        assert!(resolved(&none, &all).selects(&none, (slack, true), "post").is_none());
        for text in ["github://acme/slack.js", "github://acme/slack.js@1.2.0", "slack.js"] {
            let offer = ToolFilter::new().operations(text);
            assert_eq!(resolved(&offer, &all).selects(&offer, (slack, true), "post"), Some(None), "{text}");
            let named = ToolFilter::new().operations(format!("say={text}.post"));
            assert_eq!(
                resolved(&named, &all).selects(&named, (slack, true), "post"),
                Some(Some("say")),
                "{text}"
            );
            let one = ToolFilter::new().operations(format!("{text}.post"));
            let selection = resolved(&one, &all);
            assert_eq!(
                (
                    selection.selects(&one, (slack, true), "post"),
                    selection.selects(&one, (slack, true), "get")
                ),
                (Some(None), None)
            );
        }
        for other in
            ["github://acme/slack", "slack", "github://acme/slack.js@1.2.1", "github://evil/slack.js", ""]
        {
            let offer = ToolFilter::new().operations(other);
            assert!(resolved(&offer, &all).selects(&offer, (slack, true), "post").is_none(), "{other}");
        }
        let every = ToolFilter::new().every_operation();
        assert_eq!(resolved(&every, &all).selects(&every, (slack, true), "post"), Some(None));
        let admits = |offer: &ToolFilter| resolved(offer, &all).admits(offer, slack);
        assert!(
            admits(&none)
                && admits(&ToolFilter::new().only("slack.js"))
                && !admits(&ToolFilter::new().only("hello"))
        );
        let offer =
            ToolFilter::new().operations("slack.js.post").operations("slack.js.pots").operations("teams");
        let nothing: Vec<_> =
            resolved(&offer, &all).unmatched_selectors(&offer).into_iter().map(|(name, _)| name).collect();
        assert_eq!(nothing, ["slack.js.pots", "teams"]);
        // A name that cannot be given is reported: such a selector offers nothing.
        for wrong in ["say=slack.js", "=slack.js.post", "=slack.js"] {
            let offer = ToolFilter::new().operations(wrong);
            let selection = resolved(&offer, &all);
            assert!(selection.selects(&offer, (slack, true), "post").is_none(), "{wrong}");
            let [(_, why)] = selection.unmatched_selectors(&offer)[..] else { panic!("{wrong}") };
            assert!(why.contains("TOOL=CONNECTOR.OP"), "{wrong}: {why}");
        }
    }

    #[test]
    fn an_inactive_version_is_offered_only_by_its_version() {
        let all = installed(&[("github://acme/slack@1.2.0", &["post"])]);
        let offered =
            |offer: ToolFilter| resolved(&offer, &all).selects(&offer, (&all[0].0, false), "post").is_some();
        for text in ["github://acme/slack@1.2.0", "github://acme/slack@1.2.0.post"] {
            assert!(offered(ToolFilter::new().operations(text)), "{text}");
        }
        for text in ["github://acme/slack", "slack", "slack.post", "github://acme/slack@1.2"] {
            assert!(!offered(ToolFilter::new().operations(text).every_operation()), "{text}");
        }
    }

    #[test]
    fn ambiguous_names_are_refused() {
        let ambiguous = |offer: &ToolFilter, all: &[(&str, &[&str])]| {
            let mut selection = ToolSelection::default();
            let full: Vec<_> =
                selection.resolve(offer, &installed(all)).into_iter().map(|one| one.full).collect();
            assert!(selection.operations.is_empty() || full.is_empty());
            full.concat()
        };
        let ours: (&str, &[&str]) = ("github://acme/slack@1.0.0", &["post"]);
        let same: (&str, &[&str]) = ("github://evil/slack@1.0.0", &["post"]);
        let dotted: (&str, &[&str]) = ("github://evil/slack.post@1.0.0", &["a", "b"]);
        let short = ToolFilter::new().operations("slack.post");
        assert_eq!(
            ambiguous(&short, &[ours, same]),
            ["github://acme/slack.post", "github://evil/slack.post"]
        );
        assert_eq!(
            ambiguous(&short, &[ours, dotted]),
            ["github://acme/slack.post", "github://evil/slack.post"]
        );
        let both = [same, dotted];
        assert_eq!(
            ambiguous(&short, &both),
            ["github://evil/slack@1.0.0.post", "github://evil/slack.post@1.0.0"]
        );
        // A connector without the operation is not a candidate, and versions of one connector count as one.
        let other: (&str, &[&str]) = ("github://evil/slack@1.0.0", &["get"]);
        let newer: (&str, &[&str]) = ("github://acme/slack@2.0.0", &["post"]);
        assert_eq!(ambiguous(&short, &[ours, other, newer]), [""; 0]);
        assert_eq!(
            ambiguous(&ToolFilter::new().operations("github://acme/slack.post"), &[ours, same, dotted]),
            [""; 0]
        );
        assert_eq!(ambiguous(&ToolFilter::new().operations("slack"), &[ours, other]).len(), 2);
        assert_eq!(
            ambiguous(&ToolFilter::new().only("slack"), &[ours, other]),
            ["github://acme/slack", "github://evil/slack"]
        );
    }

    #[test]
    fn later_installs_do_not_change_a_selection() {
        let offer = ToolFilter::new().operations("slack.post").every_operation().only("slack");
        let mut all = installed(&[("github://acme/slack@1.0.0", &["post"])]);
        let mut selection = resolved(&offer, &all);
        all.extend(installed(&[
            ("github://evil/slack@1.0.0", &["post"]),
            ("github://evil/slack.post@1.0.0", &["a"]),
        ]));
        assert_eq!(selection.resolve(&offer, &all), []);
        let admitted: Vec<_> = all
            .iter()
            .filter(|(one, _)| selection.admits(&offer, one))
            .map(|(one, _)| one.to_string())
            .collect();
        assert_eq!(admitted, ["github://acme/slack@1.0.0"]);
        let offer = ToolFilter::new().operations("slack.post");
        assert!(selection.selects(&offer, (&all[0].0, true), "post").is_some());
        assert!(
            selection.selects(&offer, (&all[1].0, true), "post").is_none()
                && selection.selects(&offer, (&all[2].0, true), "a").is_none()
        );
    }
}
