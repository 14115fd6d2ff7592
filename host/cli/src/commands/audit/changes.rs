//! `audit changes`: the changes that operators made.

use cofferdam_audit::{OperatorChange, OperatorEventFilter};
use cofferdam_core::event::operator::OperatorState;
use jiff::Timestamp;
use serde_json::Value;

use crate::commands::time_format::{format_timestamp, parse_timestamp};
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Installs and removals, trusted and revoked keys, floors, bindings, answers to approvals, and what was accepted or \
pruned: each with its user and the state before and after, in the order of the journals. A secret is never part of it.

Examples:
  cofferdam audit changes
  cofferdam audit changes --since 7d
  cofferdam audit changes --since 2026-11-01 --limit 0 --format json";

/// Lists the changes that operators made, the newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Those made at or after: so long ago (90s, 30m, 2h, 7d), a date, or RFC 3339. In UTC.
    #[arg(long, value_name = "TIME", value_parser = parse_timestamp)]
    since: Option<Timestamp>,

    /// At most so many; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

/// Lists.
pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let filter =
        OperatorEventFilter { since: args.since, limit: args.limit, ..OperatorEventFilter::default() };
    let changes = match host.audit().existing()? {
        Some(mut reader) => reader.operator_events(&filter)?,
        None => Vec::new(),
    };
    session.ui.result(&changes, |page| {
        if !changes.is_empty() {
            let header = ["TIME", "USER", "ACTION", "SUBJECT", "CHANGE"];
            page.table(header, changes.iter().map(cells).collect());
        }
    })?;
    if changes.is_empty() {
        session.ui.note("No change in the audit log fits.");
    } else if changes.len() == args.limit {
        session.ui.note(&format!("There may be more: --limit {}.", args.limit.saturating_mul(10)));
    }
    Ok(())
}

fn cells(change: &OperatorChange) -> [String; 5] {
    let event = &change.event;
    let action = match event.failed {
        true => format!("{} (failed)", event.action.name()),
        false => event.action.name().to_owned(),
    };
    let different = difference(event.before.as_ref(), event.after.as_ref());
    [format_timestamp(change.at), event.user.to_string(), action, event.subject.to_string(), different]
}

/// Returns the facts that are different: `version 1.0.0 -> 1.2.0, signer none -> 3f9a1c`.
fn difference(before: Option<&OperatorState<'_>>, after: Option<&OperatorState<'_>>) -> String {
    let facts = |state: Option<&OperatorState<'_>>| state.map(OperatorState::facts).unwrap_or_default();
    let (old, new) = (facts(before), facts(after));
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    let changed = names.filter(|name| old.get(*name) != new.get(*name)).map(|name| {
        let text = |value: Option<&Value>| value.map_or_else(|| "none".to_owned(), plain);
        let label = name.replace('_', " ");
        match (before, after) {
            (Some(_), Some(_)) => format!("{label} {} -> {}", text(old.get(name)), text(new.get(name))),
            (None, _) => format!("{label} {}", text(new.get(name))),
            (Some(_), None) => format!("{label} {}", text(old.get(name))),
        }
    });
    let changed = changed.collect::<Vec<_>>().join(", ");
    match (before, after) {
        (None, Some(_)) => format!("none -> {changed}"),
        (Some(_), None) => format!("{changed} -> none"),
        _ => changed,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{name}={}", plain(value)))
            .collect::<Vec<_>>()
            .join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_facts_that_differ_are_shown() {
        let state = |version: &str, hosts: &[&str]| OperatorState {
            version: Some(version.to_owned().into()),
            hosts: hosts.iter().map(|host| (*host).to_owned().into()).collect(),
            status: Some("active".into()),
            ..OperatorState::default()
        };
        let (old, new) = (state("1.0.0", &["a:1"]), state("1.2.0", &["a:1", "b:2"]));
        assert_eq!(difference(Some(&old), Some(&new)), "hosts a:1 -> a:1 b:2, version 1.0.0 -> 1.2.0");
        assert_eq!(difference(None, Some(&old)), "none -> hosts a:1, status active, version 1.0.0");
        assert_eq!(difference(Some(&old), None), "hosts a:1, status active, version 1.0.0 -> none");
        assert_eq!(difference(None, None), "");
    }
}
