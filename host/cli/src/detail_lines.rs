//! The details of a failure as lines for people: what is a list or a structure in the envelope is words here.

use cofferdam_core::failure::sanitize_line;
use serde_json::{Map, Value};

/// Longest line, in characters.
const LINE_CHARS: usize = 2_000;

/// A line of the simple facts, one of the circuit, and one for each candidate of a chain, which are indented, and safe
/// to print; without what is said elsewhere.
pub(super) fn lines(details: &Map<String, Value>) -> Vec<String> {
    let simple: Vec<_> = details.iter().filter_map(|(key, value)| fact(key, value)).collect();
    let simple = (!simple.is_empty()).then(|| simple.join("   "));
    let circuit = details.get("circuit").and_then(Value::as_object).map(circuit);
    let chain = details.get("chain").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let chain = chain.iter().filter_map(Value::as_object).zip(1..).map(|(entry, number)| {
        let word = |key| text(entry, key).unwrap_or_default();
        let attempts = match entry.get("attempts").and_then(Value::as_u64) {
            Some(0) | None => "not attempted".to_owned(),
            Some(1) => "1 attempt".to_owned(),
            Some(some) => format!("{some} attempts"),
        };
        let who = format!("`{}` of {}", word("op"), word("connector"));
        format!("{number}. {who}: {} ({attempts}): {}", word("code"), word("message"))
    });
    let indented = |depth: &str, line: &str| format!("{depth}{}", sanitize_line(line, LINE_CHARS));
    let facts = simple.into_iter().chain(circuit).map(|line| indented("  ", &line));
    facts.chain(chain.map(|line| indented("    ", &line))).collect()
}

/// A fact of the class.
fn fact(key: &str, value: &Value) -> Option<String> {
    let said = ["code", "connector", "connector_hash", "op", "suggestion", "circuit", "chain"];
    match value {
        _ if said.contains(&key) => None,
        Value::Null => None,
        Value::String(text) => Some(format!("{key}: {text}")),
        other => Some(format!("{key}: {other}")),
    }
}

/// Its state, why, since when, and until when.
fn circuit(circuit: &Map<String, Value>) -> String {
    let word = |key| text(circuit, key).unwrap_or_default();
    let state = match word("state") {
        "half_open" => "half-open: another call is trying the host",
        state => state,
    };
    let until = match circuit.get("retry_after_ms").and_then(Value::as_u64) {
        Some(ms) => format!("tried again in {} s", ms.div_ceil(1000)),
        None => "for good".to_owned(),
    };
    let (cause, seen_by, since) = (word("cause_code"), word("cause_audit_id"), word("opened_at"));
    format!("circuit: {state}, because of {cause} (seen by {seen_by}), since {since}, {until}")
}

fn text<'v>(of: &'v Map<String, Value>, key: &str) -> Option<&'v str> {
    of.get(key).and_then(Value::as_str)
}
