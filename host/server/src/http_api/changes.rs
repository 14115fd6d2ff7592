//! `GET /v1/changes`: the changes that operators made, with what they changed.
//!
//! Notes of operators, sources of key sets and the details of bindings are not returned: they may name accounts, or paths of
//! the machine.

use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use axum::response::Response;
use cofferdam_audit::{ActionSet, OperatorChange, OperatorEventFilter};
use cofferdam_core::error::HostError;
use cofferdam_core::event::operator::{OperatorAction, OperatorEvent, OperatorState};
use cofferdam_core::failure::sanitize_line;
use cofferdam_runtime::host::unreadable;
use jiff::Timestamp;
use schemars::JsonSchema;
use semver::Version;
use serde::Serialize;
use serde_json::Value;

use super::audit::{Parameters, parameters};
use super::calls::read_queued;
use super::query::{self, QueryParameters};
use super::{HttpApi, response};

/// The most acceptances of grants that are read to compare those of a page with. They are made by people.
const ACCEPTANCES: usize = 10_000;

/// The longest text of a change, in bytes.
const LONGEST: usize = 600;

/// The facts that are returned.
const FACTS: [&str; 22] = [
    "calls",
    "changed",
    "connectors",
    "entries",
    "findings",
    "grants",
    "hash",
    "hosts",
    "kept",
    "not_after",
    "omitted",
    "scopes",
    "signatures",
    "signer",
    "signers",
    "since",
    "status",
    "successor_of",
    "time",
    "unsigned",
    "until",
    "version",
];

/// The lists in which more items mean more access.
const ACCESS: [&str; 5] = ["connectors", "grants", "hosts", "kept", "scopes"];

/// The part of a host that a change is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeArea {
    /// Trusted keys, and the versions and signatures that are required.
    Keys,
    /// Installed packages.
    Packages,
    /// The accepted access of packages.
    Grants,
    /// Bindings of secrets.
    Bindings,
    /// Answers to calls that wait for a person. There can be far more of them than of all other changes.
    Approvals,
    /// Everything else: the audit log, the clock.
    Other,
}

impl ChangeArea {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Keys, Self::Packages, Self::Grants, Self::Bindings, Self::Approvals, Self::Other];

    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Packages => "packages",
            Self::Grants => "grants",
            Self::Bindings => "bindings",
            Self::Approvals => "approvals",
            Self::Other => "other",
        }
    }

    fn of(action: OperatorAction) -> Self {
        use OperatorAction as Action;
        match action {
            Action::Trust
            | Action::Distrust
            | Action::Revoke
            | Action::Rotate
            | Action::Floor
            | Action::Threshold
            | Action::Import => Self::Keys,
            Action::Install | Action::Remove | Action::Activate => Self::Packages,
            Action::Consent => Self::Grants,
            Action::Bind | Action::Rebind | Action::Unbind | Action::Allow | Action::Disallow => {
                Self::Bindings
            }
            Action::Approve | Action::Deny => Self::Approvals,
            _ => Self::Other,
        }
    }

    /// Returns the actions of an area; of all areas but the approvals if none is asked for.
    pub(super) fn actions(area: Option<Self>) -> ActionSet {
        let of = |is_in: &dyn Fn(Self) -> bool| -> Vec<OperatorAction> {
            OperatorAction::ALL.iter().copied().filter(|action| is_in(Self::of(*action))).collect()
        };
        match area {
            None => ActionSet::Except(of(&|own| own == Self::Approvals)),
            // With the actions that only a newer version knows.
            Some(Self::Other) => ActionSet::Except(of(&|own| own != Self::Other)),
            Some(area) => ActionSet::Only(of(&|own| own == area)),
        }
    }
}

/// A page of changes, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangePage {
    /// The changes.
    pub changes: Vec<ChangeView>,
    /// The value of `before` for the next page; none if this is the last one.
    pub next: Option<String>,
}

/// A change that an operator made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename = "Change")]
pub struct ChangeView {
    /// The time, as RFC 3339.
    pub at: String,
    /// The user who made it.
    pub user: String,
    /// The action, as in the audit log.
    pub action: String,
    /// `keys`, `packages`, `grants`, `bindings`, `approvals` or `other`.
    pub area: String,
    /// `upgrade`, `downgrade` or `signature` for an install that is none of a new name; `first_grants`, `wider_grants` or
    /// `same_grants` for the acceptance of a package; otherwise the action.
    pub kind: String,
    /// The connector, the key, the binding or the approval that it is about.
    pub subject: String,
    /// True if the change, which an earlier entry has, failed.
    pub failed: bool,
    /// True if what is allowed was extended: a list got items, or a minimum fell.
    pub is_wider: bool,
    /// The facts that are different afterwards.
    pub facts: Vec<ChangedFact>,
}

/// A fact that a change made different.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangedFact {
    /// The name, as in the audit log.
    pub name: String,
    /// The values before; of the grants of a package, those of the version that was accepted before it.
    pub before: Vec<String>,
    /// The values afterwards.
    pub after: Vec<String>,
}

impl ChangedFact {
    /// Returns the values that were added.
    pub fn added(&self) -> impl Iterator<Item = &str> {
        self.after.iter().filter(|value| !self.before.contains(value)).map(String::as_str)
    }

    /// Returns the values that were removed.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        self.before.iter().filter(|value| !self.after.contains(value)).map(String::as_str)
    }
}

impl HttpApi {
    /// Returns the changes that the parameters of `GET /v1/changes` select, the newest first.
    ///
    /// # Errors
    /// `validation`: a parameter is not acceptable. `audit_unavailable`: the audit log cannot be read.
    pub async fn changes(&self, parameters: Vec<(String, String)>) -> Result<ChangePage, HostError> {
        let (filter, limit) = query::changes(QueryParameters::new(parameters)?)?;
        let host = self.host.clone();
        read_queued(self, move || {
            let Some(mut reader) = host.audit().existing()? else {
                return Ok(ChangePage { changes: Vec::new(), next: None });
            };
            let events = reader.operator_events(&filter).map_err(unreadable)?;
            let earlier = match earlier_acceptances(&events) {
                Some(filter) => reader.operator_events(&filter).map_err(unreadable)?,
                None => Vec::new(),
            };
            Ok(page(&events, &earlier, limit))
        })
        .await
    }
}

/// Returns the changes.
pub(super) async fn list(State(api): State<HttpApi>, query: Parameters) -> Response {
    let page = async { api.changes(parameters(query)?).await };
    page.await.map_or_else(response::host_error, |page| response::view(&page))
}

/// Returns the filter of the acceptances before these changes, which are in order from the newest on; none if none
/// of them is compared with an earlier one.
fn earlier_acceptances(events: &[OperatorChange]) -> Option<OperatorEventFilter> {
    let oldest = events.last()?;
    let has_acceptance = events.iter().any(|change| change.event.action == OperatorAction::Consent);
    has_acceptance.then(|| OperatorEventFilter {
        actions: ActionSet::Only(vec![OperatorAction::Consent]),
        before: Some(oldest.place),
        limit: ACCEPTANCES,
        ..OperatorEventFilter::default()
    })
}

/// Returns the page of these changes. They, and the acceptances before them, are in order from the newest on.
fn page(events: &[OperatorChange], earlier: &[OperatorChange], limit: usize) -> ChangePage {
    // By connector, the access that was accepted last.
    let mut accepted = HashMap::<String, Vec<String>>::new();
    let mut changes = Vec::new();
    let earlier = earlier.iter().map(|change| (change, false));
    let newest_first = events.iter().map(|change| (change, true)).chain(earlier);
    for (OperatorChange { at, event, .. }, is_asked) in newest_first.rev() {
        let mut facts = changed_facts(event.before.as_ref(), event.after.as_ref());
        let mut has_earlier = event.before.is_some();
        if event.action == OperatorAction::Consent && !event.failed {
            let name = event.subject.split('@').next().unwrap_or_default().to_owned();
            let grants = event.after.as_ref().map(|state| texts(&state.grants)).unwrap_or_default();
            let earlier = accepted.insert(name, grants.clone());
            has_earlier = earlier.is_some();
            let fact =
                ChangedFact { name: "grants".to_owned(), before: earlier.unwrap_or_default(), after: grants };
            facts.retain(|fact| fact.name != "grants");
            facts.extend(Some(fact).filter(|fact| fact.before != fact.after));
            facts.sort_by(|a, b| a.name.cmp(&b.name));
        }
        if is_asked {
            changes.push(change_view(*at, event, facts, has_earlier));
        }
    }
    changes.reverse();
    changes.truncate(limit);
    let last = limit.checked_sub(1).filter(|_| events.len() > limit).and_then(|last| events.get(last));
    ChangePage { changes, next: last.map(|change| format!("{:.6}", change.place)) }
}

fn change_view(
    at: Timestamp,
    event: &OperatorEvent<'_>,
    facts: Vec<ChangedFact>,
    has_earlier: bool,
) -> ChangeView {
    let is_wider = has_earlier && (facts.iter().any(is_extended) || is_lowered(event));
    let kind = match event.action {
        OperatorAction::Install => install_kind(event),
        OperatorAction::Consent if !has_earlier => "first_grants",
        OperatorAction::Consent if is_wider => "wider_grants",
        OperatorAction::Consent => "same_grants",
        action => action.name(),
    };
    ChangeView {
        at: format!("{at:.6}"),
        user: sanitize_line(&event.user, LONGEST),
        action: event.action.name().to_owned(),
        area: ChangeArea::of(event.action).name().to_owned(),
        kind: kind.to_owned(),
        subject: sanitize_line(&event.subject, LONGEST),
        failed: event.failed,
        is_wider,
        facts,
    }
}

fn is_extended(fact: &ChangedFact) -> bool {
    ACCESS.contains(&fact.name.as_str()) && fact.added().next().is_some()
}

/// Returns true if the change lowers or removes a minimum: of versions, or of signatures.
fn is_lowered(event: &OperatorEvent<'_>) -> bool {
    let (before, after) = (event.before.as_ref(), event.after.as_ref());
    let signatures = |state: Option<&OperatorState<'_>>| state.and_then(|state| state.signatures);
    match event.action {
        OperatorAction::Floor => version(after) < version(before),
        OperatorAction::Threshold => signatures(after) < signatures(before),
        _ => false,
    }
}

fn version(state: Option<&OperatorState<'_>>) -> Option<Version> {
    state.and_then(|state| state.version.as_deref()).and_then(|version| version.parse().ok())
}

fn install_kind(event: &OperatorEvent<'_>) -> &'static str {
    let (before, after) = (event.before.as_ref(), event.after.as_ref());
    match (before, version(before), version(after)) {
        (Some(state), ..) if state.hash.is_some() => "signature",
        (_, Some(before), Some(after)) if after > before => "upgrade",
        (_, Some(_), Some(_)) => "downgrade",
        _ => "install",
    }
}

fn texts(items: &[impl AsRef<str>]) -> Vec<String> {
    items.iter().map(|item| sanitize_line(item.as_ref(), LONGEST)).collect()
}

/// Returns the facts that are different, by name.
fn changed_facts(before: Option<&OperatorState<'_>>, after: Option<&OperatorState<'_>>) -> Vec<ChangedFact> {
    let mut facts = BTreeMap::<String, [Vec<String>; 2]>::new();
    for (position, state) in [before, after].into_iter().enumerate() {
        for (name, value) in state.map(OperatorState::facts).unwrap_or_default() {
            let sides = facts.entry(name).or_default();
            if let Some(side) = sides.get_mut(position) {
                *side = values(&value);
            }
        }
    }
    let facts =
        facts.into_iter().filter(|(name, [before, after])| FACTS.contains(&name.as_str()) && before != after);
    facts.map(|(name, [before, after])| ChangedFact { name, before, after }).collect()
}

fn values(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(values).collect(),
        Value::String(text) => vec![sanitize_line(text, LONGEST)],
        Value::Null | Value::Object(_) => Vec::new(),
        other => vec![other.to_string()],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]
    use serde_json::json;

    use super::*;

    fn event(action: &str, subject: &str, before: Value, after: Value) -> OperatorEvent<'static> {
        let text = json!({
            "action": action, "subject": subject, "user": "uid 0 (root)", "before": before, "after": after
        });
        serde_json::from_value(text).unwrap()
    }

    /// Returns these changes, which are a minute apart, the oldest first, as a reader returns them.
    fn recorded(events: Vec<OperatorEvent<'static>>) -> Vec<OperatorChange> {
        let mut events: Vec<_> = events
            .into_iter()
            .zip(0..)
            .map(|(event, minute)| {
                let at = Timestamp::from_second(60 * minute).unwrap();
                OperatorChange { at, place: at, event }
            })
            .collect();
        events.reverse();
        events
    }

    /// The page of these changes, the oldest first.
    fn read(events: Vec<OperatorEvent<'static>>) -> ChangePage {
        page(&recorded(events), &[], 100)
    }

    fn consent(version: &str, grants: &[&str]) -> OperatorEvent<'static> {
        let after = json!({"grants": grants, "details": {"grants": "sha256:00"}, "version": version});
        event("consent", &format!("github://acme/slack@{version}"), Value::Null, after)
    }

    #[test]
    fn grants_are_compared_with_those_accepted_before() {
        let mut failed = consent("1.2.0", &["network a:1", "network c:1"]);
        failed.failed = true;
        let events = vec![
            consent("1.0.0", &["network a:1"]),
            event("consent", "github://acme/other@1.0.0", Value::Null, json!({"grants": ["network b:1"]})),
            failed,
            consent("1.1.0", &["network a:1", "network b:1"]),
            consent("1.2.0", &["network b:1"]),
        ];
        let page = read(events);
        let kinds: Vec<_> =
            page.changes.iter().map(|change| (change.kind.as_str(), change.is_wider)).collect();
        let first = ("first_grants", false);
        let expected = [("same_grants", false), ("wider_grants", true), first, first, first];
        assert_eq!(kinds, expected);
        let added: Vec<_> = page.changes[1].facts.iter().flat_map(|fact| fact.added()).collect();
        assert_eq!(added, ["network b:1", "1.1.0"]);
        let removed: Vec<_> = page.changes[0].facts.iter().flat_map(|fact| fact.removed()).collect();
        assert_eq!(removed, ["network a:1"]);
    }

    #[test]
    fn grants_are_compared_with_those_before_the_page() {
        let changes = recorded(vec![consent("1.0.0", &["network a:1"]), consent("1.1.0", &["network a:1"])]);
        let filter = earlier_acceptances(&changes[..1]).unwrap();
        assert_eq!(filter.before, Some(changes[0].place));
        let last = page(&changes[..1], &changes[1..], 100);
        assert_eq!((last.changes.len(), last.changes[0].kind.as_str()), (1, "same_grants"));
        let trust = recorded(vec![event("trust", "a", Value::Null, json!({}))]);
        assert_eq!(earlier_acceptances(&trust), None);
    }

    #[test]
    fn installs_and_minimums_say_their_direction() {
        let version = |version: &str| json!({"version": version});
        let install = |before: Value| event("install", "github://acme/slack@1.1.0", before, version("1.1.0"));
        let floor = |before: Value, after: Value| event("floor", "github://acme/slack", before, after);
        let bindings = |hosts: &[&str]| json!({"hosts": hosts, "connectors": ["github://acme/slack"]});
        let events = vec![
            (install(Value::Null), "install", false),
            (install(version("1.0.0")), "upgrade", false),
            (install(version("2.0.0")), "downgrade", false),
            (install(json!({"hash": "sha256:00", "version": "1.1.0"})), "signature", false),
            (floor(Value::Null, version("1.0.0")), "floor", false),
            (floor(version("1.10.0"), version("1.9.0")), "floor", true),
            (floor(version("1.0.0"), Value::Null), "floor", true),
            (event("threshold", "a", json!({"signatures": 2}), json!({"signatures": 1})), "threshold", true),
            (event("bind", "bearer/a/b", Value::Null, bindings(&["a:1"])), "bind", false),
            (event("allow", "bearer/a/b", bindings(&["a:1"]), bindings(&["a:1", "b:1"])), "allow", true),
            (
                event("disallow", "bearer/a/b", bindings(&["a:1", "b:1"]), bindings(&["a:1"])),
                "disallow",
                false,
            ),
        ];
        let expected: Vec<_> = events.iter().rev().map(|(_, kind, is_wider)| (*kind, *is_wider)).collect();
        let page = read(events.into_iter().map(|(event, ..)| event).collect());
        let got: Vec<_> = page.changes.iter().map(|it| (it.kind.as_str(), it.is_wider)).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn notes_and_sources_are_not_returned() {
        let state = json!({
            "comment": "hidden", "reason": "hidden", "source": "/home/hidden", "public_key": "hidden",
            "details": {"account": "hidden"}, "scopes": ["github://acme/*"]
        });
        let page = read(vec![event("trust", "ed25519:00", Value::Null, state)]);
        assert_eq!(page.changes[0].facts.len(), 1, "{page:?}");
        assert!(!format!("{page:?}").contains("hidden"), "{page:?}");
    }

    #[test]
    fn every_action_is_in_one_area() {
        use OperatorAction::{Accept, Approve, Clock, Consent, Deny, Prune};
        assert_eq!(ChangeArea::actions(None), ActionSet::Except(vec![Approve, Deny]));
        assert_eq!(ChangeArea::actions(Some(ChangeArea::Approvals)), ActionSet::Only(vec![Approve, Deny]));
        assert_eq!(ChangeArea::actions(Some(ChangeArea::Grants)), ActionSet::Only(vec![Consent]));
        let ActionSet::Except(known) = ChangeArea::actions(Some(ChangeArea::Other)) else {
            panic!("it has the actions of newer versions")
        };
        let other: Vec<_> = OperatorAction::ALL.iter().filter(|action| !known.contains(action)).collect();
        assert_eq!(other, [&Accept, &Prune, &Clock]);
    }

    #[test]
    fn a_page_has_the_newest_changes() {
        let trust = |id: &str| event("trust", id, Value::Null, json!({"status": "trusted"}));
        let changes = recorded(vec![trust("a"), trust("b"), trust("c")]);
        let subjects = |limit: usize| {
            let page = page(&changes, &[], limit);
            let subjects: Vec<_> = page.changes.into_iter().map(|change| change.subject).collect();
            (subjects.concat(), page.next.is_some())
        };
        assert_eq!(subjects(3), ("cba".to_owned(), false));
        assert_eq!(subjects(2), ("cb".to_owned(), true));
        let query = QueryParameters::new(vec![("limit".to_owned(), "2".to_owned())]).unwrap();
        let (filter, limit) = query::changes(query).unwrap();
        assert_eq!((filter.limit, limit), (3, 2));
    }
}
