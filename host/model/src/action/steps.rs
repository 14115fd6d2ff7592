//! The `[[execute]]` of an action: its calls, in order, each with its inputs and its handling of failures.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::document::{DocumentTable, InvalidValue, SpannedItem, SpannedValue, quoted};
use cofferdam_core::suggest;

use super::file::{ActionStep, StepRetry, StepTarget};
use super::lexical::{check_unique, time, word};
use super::scope::ActionScope;
use super::template::ReferenceScope;
use super::template::Template;

/// Most steps.
pub(super) const MAX_STEPS: usize = 64;

/// The most fallbacks of one step: as many as a call may have.
const MAX_FALLBACKS: usize = 16;

/// The most retries that a step may set.
const MAX_RETRIES: u64 = 99;

/// Longest wait between two attempts, and longest time of a step; the host's ceilings may be lower.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

const KEYS: [&str; 8] = ["id", "connector", "op", "inputs", "idempotent", "timeout", "retry", "fallback"];

/// Features of other systems that actions do not have, with the reasons.
const NEVER: [(&str, &str, &str); 4] = [
    (
        "when",
        "steps are not conditional: an action that was reviewed does what it says, or fails",
        "let the agent decide between two actions",
    ),
    ("if", "steps are not conditional", "let the agent decide between two actions"),
    (
        "compensate",
        "nothing is rolled back: a step that undoes another can fail like any other, and then nobody knows what stands",
        "make an action of its own that undoes it",
    ),
    (
        "secrets",
        "an action sees no secrets",
        "bind the credential with `cofferdam binding set`; the host adds it where the connector's manifest asks for it",
    ),
];

/// The names that steps may use.
pub(super) struct StepNames<'n> {
    pub(super) inputs: &'n [&'n str],
    pub(super) steps: &'n [&'n str],
    pub(super) connectors: &'n [&'n str],
    /// The declarations for each connector; none if they could not be read.
    pub(super) scopes: Vec<Option<Arc<ActionScope>>>,
}

/// Reads the steps and reports their problems.
pub(super) fn steps(tables: &[DocumentTable<'_>], names: &StepNames<'_>) -> Option<Vec<ActionStep>> {
    let mut seen = Vec::new();
    let read: Vec<_> = tables
        .iter()
        .enumerate()
        .map(|(at, table)| {
            if let Some(id) = table.text("id") {
                check_unique(table, "id", id.value, &mut seen);
            }
            step(table, names, at)
        })
        .collect();
    read.into_iter().collect()
}

fn step(table: &DocumentTable<'_>, names: &StepNames<'_>, at: usize) -> Option<ActionStep> {
    let mut known = KEYS.to_vec();
    for (key, why, fix) in NEVER {
        if let Some(place) = table.location_of(key) {
            place.refuse(InvalidValue::new(why, fix));
            known.push(key);
        }
    }
    table.reject_unknown_keys(&known);
    let id = table.required_text("id", "id = \"find_pr\"");
    let id = id.and_then(|text| text.parse(|text| word("a step's id", text)));
    let target = target(table, names, at);
    let idempotent = table.flag("idempotent");
    let timeout = table.text("timeout").map(|text| text.parse(|text| time(text, LONGEST_WAIT, "1 hour")));
    let retry = retry(table);
    let fallback = table.tables("fallback");
    if let Some(beyond) = fallback.get(MAX_FALLBACKS) {
        beyond.location().refuse(InvalidValue::new("a step has at most 16 fallbacks", "leave some out"));
    }
    let fallback: Vec<_> = fallback
        .iter()
        .take(MAX_FALLBACKS)
        .map(|table| {
            table.reject_unknown_keys(&["connector", "op", "inputs"]);
            self::target(table, names, at)
        })
        .collect();
    Some(ActionStep {
        id: id?.into(),
        target: target?,
        non_idempotent: idempotent == Some(false),
        repeatable: idempotent == Some(true),
        timeout: match timeout {
            Some(timeout) => Some(timeout?),
            None => None,
        },
        retry: retry?,
        fallback: fallback.into_iter().collect::<Option<_>>()?,
        line: table.location().line(),
    })
}

/// Reads connector, operation and inputs, as a step and a fallback have them.
fn target(table: &DocumentTable<'_>, names: &StepNames<'_>, at: usize) -> Option<StepTarget> {
    let connector = table.required_text("connector", "connector = \"github://acme/slack\"");
    let requirement = connector.and_then(|text| text.parse(|text| connector_of(text, names)));
    let op = table.required_text("op", "op = \"post_message\"");
    let op = op.and_then(|text| text.parse(|text| operation(text, requirement, names)));
    let inputs = match table.node("inputs") {
        Some(node) => inputs(&node, ReferenceScope { inputs: names.inputs, steps: names.steps, at }),
        None if table.has("inputs") => None,
        None => Some(Vec::new()),
    };
    Some(StepTarget { requirement: requirement?, op: op?, inputs: inputs?, line: table.location().line() })
}

fn connector_of(name: &str, names: &StepNames<'_>) -> Result<usize, InvalidValue> {
    names.connectors.iter().position(|known| *known == name).ok_or_else(|| {
        let fix = match suggest::nearest(name, names.connectors.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None if name.contains('@') => "write the name without a version: that stands above".to_owned(),
            None => "add it under [[requires.connectors]]".to_owned(),
        };
        InvalidValue::new(format!("{} is not among the required connectors", quoted(name)), fix)
    })
}

fn operation(op: &str, requirement: Option<usize>, names: &StepNames<'_>) -> Result<String, InvalidValue> {
    let scope = requirement.and_then(|at| names.scopes.get(at)).and_then(Option::as_ref);
    match scope {
        Some(scope) if !scope.operations().iter().any(|known| known == op) => {
            let known: Vec<_> = scope.operations().iter().map(String::as_str).collect();
            let fix = match suggest::nearest(op, known.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "add it to the operations under [[requires.connectors]]".to_owned(),
            };
            let message = format!("{} is not in the action's capabilities for this connector", quoted(op));
            Err(InvalidValue::new(message, fix))
        }
        _ => Ok(op.to_owned()),
    }
}

fn inputs(node: &SpannedValue<'_>, scope: ReferenceScope<'_>) -> Option<Vec<(String, Template)>> {
    match Template::read(node, scope)? {
        Template::Table(fields) => Some(fields),
        Template::Literal(serde_json::Value::Object(fields)) => {
            Some(fields.into_iter().map(|(name, value)| (name, Template::Literal(value))).collect())
        }
        _ => {
            let message = "the inputs are no table";
            node.location().refuse(InvalidValue::new(message, "write inputs = { name = \"value\" }"));
            None
        }
    }
}

/// Returns a profile's name, or four fields; none at all if they are invalid and were reported.
fn retry(table: &DocumentTable<'_>) -> Option<Option<StepRetry>> {
    match table.node("retry") {
        None if table.has("retry") => None,
        None => Some(None),
        Some(SpannedValue::Text(name)) => Some(Some(StepRetry::Profile(name.value.to_owned()))),
        Some(SpannedValue::Table(..)) => Some(Some(own_retry(&table.table("retry")?)?)),
        Some(other) => {
            let message = "this is neither a profile's name nor a table";
            let fix =
                "write \"standard\", or { max = 2, initial = \"1s\", max_delay = \"8s\", jitter = 0.2 }";
            other.location().refuse(InvalidValue::new(message, fix));
            None
        }
    }
}

fn own_retry(table: &DocumentTable<'_>) -> Option<StepRetry> {
    table.reject_unknown_keys(&["max", "initial", "max_delay", "jitter"]);
    for (key, example) in [
        ("max", "max = 2"),
        ("initial", "initial = \"1s\""),
        ("max_delay", "max_delay = \"8s\""),
        ("jitter", "jitter = 0.2"),
    ] {
        if !table.has(key) {
            table.missing(key, example);
        }
    }
    let max = table.integer("max").and_then(|max| max.parse(|max| retries(*max)));
    let wait = |key: &str| table.text(key)?.parse(|text| time(text, LONGEST_WAIT, "1 hour"));
    let (initial, max_delay) = (wait("initial"), wait("max_delay"));
    let jitter = table.number("jitter").and_then(|it: SpannedItem<'_, f64>| {
        it.parse(|jitter| match (0.0..=1.0).contains(jitter) {
            true => Ok(*jitter),
            false => Err(InvalidValue::new(
                format!("{jitter} is not a part of a wait"),
                "write a part from 0 to 1: 0.2 is a fifth",
            )),
        })
    });
    let (max, initial, max_delay, jitter) = (max?, initial?, max_delay?, jitter?);
    if initial > max_delay {
        let message = "the longest wait is below the first";
        table.location().refuse(InvalidValue::new(message, "write a max_delay that is no less than initial"));
        return None;
    }
    Some(StepRetry::Own { max, initial, max_delay, jitter })
}

fn retries(max: u64) -> Result<u32, InvalidValue> {
    u32::try_from(max).ok().filter(|_| (1..=MAX_RETRIES).contains(&max)).ok_or_else(|| {
        let fix = "write 1 to 99, or retry = \"none\" for a step that is not tried again";
        InvalidValue::new(format!("{max} is no number of retries"), fix)
    })
}
