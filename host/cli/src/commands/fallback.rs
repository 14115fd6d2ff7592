//! `call --fallback`: the file of candidates, and what is said where one of them answered.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam_core::document::{DocumentError, DocumentTable, InvalidValue, read};
use cofferdam_core::error::HostError;
use cofferdam_runtime::call::{AttemptReport, Call, ConnectorRef, Fallback};
use cofferdam_runtime::host::Host;
use serde_json::{Map, Value, json};

use crate::files;
use crate::session::resolve;

/// The fallbacks of a call, and the condition for them.
#[derive(Debug)]
pub(super) struct FallbackPlan {
    rotate_on_permanent: bool,
    fallbacks: Vec<Fallback>,
}

/// The file as it is written.
#[derive(Debug, Default, PartialEq)]
struct FallbackFile {
    rotate_on_permanent: bool,
    candidates: Vec<FallbackEntry>,
}

/// A candidate as it is written; what is left out is the call's.
#[derive(Debug, Default, PartialEq)]
struct FallbackEntry {
    connector: Option<ConnectorRef>,
    op: Option<String>,
    args: Map<String, Value>,
    identities: BTreeMap<String, String>,
}

impl FallbackPlan {
    /// Reads the file, for a call of `op` of `connector`.
    pub(super) fn read(
        path: &Path,
        host: &Host,
        connector: &ConnectorRef,
        op: &str,
    ) -> Result<Self, HostError> {
        let text = files::read_text("The file of candidates", path)?;
        let written = parse(&files::shown(path), &text, |name| installed(host, name));
        let written = written.map_err(files::document_error)?;
        let fallback = |candidate: FallbackEntry| {
            let connector = candidate.connector.unwrap_or_else(|| connector.clone());
            let fallback = Fallback::new(connector, candidate.op.as_deref().unwrap_or(op));
            let choose = |fallback: Fallback, (service, identity)| fallback.identity(service, identity);
            candidate.identities.into_iter().fold(fallback.with_args(candidate.args), choose)
        };
        let fallbacks = written.candidates.into_iter().map(fallback).collect();
        Ok(Self { rotate_on_permanent: written.rotate_on_permanent, fallbacks })
    }

    /// The call, with these candidates.
    pub(super) fn apply_to(self, call: Call) -> Call {
        let call = self.fallbacks.into_iter().fold(call, Call::or_else);
        if self.rotate_on_permanent { call.rotate_on_permanent() } else { call }
    }
}

/// The connector that a candidate names: refused here, where its line is known, and not by the call.
fn installed(host: &Host, name: &str) -> Result<ConnectorRef, HostError> {
    let connector = resolve(host, name)?;
    host.require_installed(&connector)?;
    Ok(connector)
}

fn parse(
    label: &str,
    text: &str,
    named: impl Fn(&str) -> Result<ConnectorRef, HostError>,
) -> Result<FallbackFile, DocumentError> {
    read(label, text, |root| {
        root.reject_unknown_keys(&["rotate_on_permanent", "candidate"]);
        let candidates: Vec<_> =
            root.tables("candidate").iter().map(|table| candidate(table, &named)).collect();
        if candidates.is_empty() {
            root.missing("candidate", "who is asked instead: [[candidate]] with connector, op or args");
        }
        Some(FallbackFile {
            rotate_on_permanent: root.flag("rotate_on_permanent").unwrap_or_default(),
            candidates,
        })
    })
}

fn candidate(
    table: &DocumentTable<'_>,
    named: impl Fn(&str) -> Result<ConnectorRef, HostError>,
) -> FallbackEntry {
    table.reject_unknown_keys(&["connector", "op", "args", "identities"]);
    if !["connector", "op", "args", "identities"].iter().any(|key| table.has(key)) {
        let fix = "give it a connector, an op, args or identities that differ from the call's";
        table.location().refuse(InvalidValue::new("this candidate asks the same as the call", fix));
    }
    let refused = |error: HostError| {
        let fix = error.hint().unwrap_or("name one that is installed").trim_end_matches('.').to_owned();
        InvalidValue::new(error.message().trim_end_matches('.'), fix)
    };
    let connector = table.text("connector").and_then(|text| text.parse(|name| named(name).map_err(refused)));
    let chosen = table.table("identities").map(|identities| identities.each_text()).unwrap_or_default();
    FallbackEntry {
        connector,
        op: table.text("op").map(|text| text.value.to_owned()),
        args: table.inline_json("args", "args = { key = \"value\" }").unwrap_or_default(),
        identities: chosen.into_iter().map(|(name, text)| (name.value.into(), text.value.into())).collect(),
    }
}

/// Returns the note that a fallback answered.
pub(super) fn note(by: &AttemptReport) -> String {
    format!("answered by fallback {}: `{}` of {}", by.candidate, by.op, by.connector)
}

/// The same as JSON.
pub(super) fn answered_by(by: &AttemptReport) -> Value {
    json!({"candidate": by.candidate, "connector": &*by.connector, "op": &*by.op})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    #[test]
    fn a_file_lists_candidates_in_order() {
        let text = "\
            rotate_on_permanent = true\n\
            [[candidate]]\n\
            args = { model = \"small\", n = 3, big = 18446744073709551615, hex = 0xff, x = -0.5, on = true,\n\
            list = [1, { a = \"b\" }] }\n\
            [[candidate]]\n\
            connector = \"github://acme/other@1.0.0\"\n\
            op = \"ask\"\n\
            identities = { acme = \"second\" }\n";
        let written = parse("chain.toml", text, ConnectorRef::parse).unwrap();
        let first = json!({
            "model": "small", "n": 3, "big": u64::MAX, "hex": 255, "x": -0.5, "on": true, "list": [1, {"a": "b"}],
        });
        assert!(written.rotate_on_permanent);
        assert_eq!(Value::Object(written.candidates[0].args.clone()), first);
        assert_eq!(
            written.candidates[1],
            FallbackEntry {
                connector: Some(ConnectorRef::parse("github://acme/other@1.0.0").unwrap()),
                op: Some("ask".into()),
                args: Map::new(),
                identities: BTreeMap::from([("acme".into(), "second".into())]),
            }
        );
        assert!(
            !parse("chain.toml", "[[candidate]]\nop = \"x\"", ConnectorRef::parse)
                .unwrap()
                .rotate_on_permanent
        );
    }

    #[test]
    fn unknown_or_malformed_entries_are_refused() {
        for (text, place) in [
            ("", "chain.toml:1:1: candidate: "),
            (
                "candidates = []",
                "chain.toml:1:1: candidates: this key is not known here; did you mean `candidate`",
            ),
            ("candidate = {}", "chain.toml:1:13: candidate: "),
            ("[[candidate]]", "chain.toml:1:1: candidate[0]: "),
            ("[[candidate]]\nmodel = \"x\"", "chain.toml:2:1: candidate[0].model: "),
            ("[[candidate]]\nop = 7", "chain.toml:2:6: candidate[0].op: "),
            ("[[candidate]]\nargs = \"x\"", "chain.toml:2:8: candidate[0].args: this is a string"),
            ("[[candidate]]\nargs = \"x\"", "args = { key = \"value\" }"),
            (
                "[[candidate]]\nop = \"x\"\n[[candidate]]\nconnector = \"x\"",
                "chain.toml:4:13: candidate[1].connector: ",
            ),
            (
                "[[candidate]]\nargs = { at = 2027-01-31 }",
                "chain.toml:2:8: candidate[0].args: JSON has no dates",
            ),
            (
                "[[candidate]]\nargs = { x = nan }",
                "chain.toml:2:8: candidate[0].args: JSON has no such number",
            ),
            ("[[candidate]]\nargs = { x = 99999999999999999999 }", "chain.toml:2:8: candidate[0].args: "),
            ("rotate_on_permanent = 1\n[[candidate]]\nop = \"x\"", "chain.toml:1:23: rotate_on_permanent: "),
        ] {
            let error = parse("chain.toml", text, ConnectorRef::parse).unwrap_err().to_string();
            assert!(error.contains(place), "{text}: {error}");
        }
    }
}
