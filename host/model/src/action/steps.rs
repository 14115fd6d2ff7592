//! The `[[execute]]` of an action: its calls, in order, each with what it is given and what is done where it fails.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::document::{Located, Node, Refused, Table, quoted};
use cofferdam_core::spelling;

use super::file::{Retry, Step, Target};
use super::reference::Scope;
use super::scope::ActionScope;
use super::template::Template;
use super::words::{once, time, word};

/// Most steps.
pub(super) const MAX_STEPS: usize = 64;

/// Most alternates of one step: as many as a call may have.
const MAX_FALLBACKS: usize = 16;

/// Most retries that a step may say of itself.
const MAX_RETRIES: u64 = 99;

/// Longest wait between two attempts, and longest time of a step; the host's ceilings may be lower.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

const KEYS: [&str; 8] = ["id", "connector", "op", "inputs", "idempotent", "timeout", "retry", "fallback"];

/// What other systems have and actions do not, with why.
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
pub(super) struct Names<'n> {
    pub(super) inputs: &'n [&'n str],
    pub(super) steps: &'n [&'n str],
    pub(super) connectors: &'n [&'n str],
    /// What is declared of each connector; none where that could not be read.
    pub(super) scopes: Vec<Option<Arc<ActionScope>>>,
}

/// Reads the steps; what is wrong with one is reported.
pub(super) fn steps(tables: &[Table<'_>], names: &Names<'_>) -> Option<Vec<Step>> {
    let mut seen = Vec::new();
    let read: Vec<_> = tables
        .iter()
        .enumerate()
        .map(|(at, table)| {
            if let Some(id) = table.text("id") {
                once(table, "id", id.value, &mut seen);
            }
            step(table, names, at)
        })
        .collect();
    read.into_iter().collect()
}

fn step(table: &Table<'_>, names: &Names<'_>, at: usize) -> Option<Step> {
    let mut known = KEYS.to_vec();
    for (key, why, fix) in NEVER {
        if let Some(place) = table.place(key) {
            place.refuse(Refused::new(why, fix));
            known.push(key);
        }
    }
    table.only(&known);
    let id = table.required_text("id", "id = \"find_pr\"");
    let id = id.and_then(|text| text.parse(|text| word("a step's id", text)));
    let target = target(table, names, at);
    let idempotent = table.flag("idempotent");
    let timeout = table.text("timeout").map(|text| text.parse(|text| time(text, LONGEST_WAIT, "1 hour")));
    let retry = retry(table);
    let fallback = table.tables("fallback");
    if let Some(beyond) = fallback.get(MAX_FALLBACKS) {
        beyond.here().refuse(Refused::new("a step has at most 16 alternates", "leave some out"));
    }
    let fallback: Vec<_> = fallback
        .iter()
        .take(MAX_FALLBACKS)
        .map(|table| {
            table.only(&["connector", "op", "inputs"]);
            self::target(table, names, at)
        })
        .collect();
    Some(Step {
        id: id?.into(),
        target: target?,
        once: idempotent == Some(false),
        repeatable: idempotent == Some(true),
        timeout: match timeout {
            Some(timeout) => Some(timeout?),
            None => None,
        },
        retry: retry?,
        fallback: fallback.into_iter().collect::<Option<_>>()?,
        line: table.here().line(),
    })
}

/// Connector, operation and inputs, as a step and an alternate have them.
fn target(table: &Table<'_>, names: &Names<'_>, at: usize) -> Option<Target> {
    let connector = table.required_text("connector", "connector = \"github://acme/slack\"");
    let requirement = connector.and_then(|text| text.parse(|text| connector_of(text, names)));
    let op = table.required_text("op", "op = \"post_message\"");
    let op = op.and_then(|text| text.parse(|text| operation(text, requirement, names)));
    let inputs = match table.node("inputs") {
        Some(node) => inputs(&node, Scope { inputs: names.inputs, steps: names.steps, at }),
        None if table.has("inputs") => None,
        None => Some(Vec::new()),
    };
    Some(Target { requirement: requirement?, op: op?, inputs: inputs?, line: table.here().line() })
}

fn connector_of(name: &str, names: &Names<'_>) -> Result<usize, Refused> {
    names.connectors.iter().position(|known| *known == name).ok_or_else(|| {
        let fix = match spelling::nearest(name, names.connectors.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None if name.contains('@') => "write the name without a version: that stands above".to_owned(),
            None => "add it under [[requires.connectors]]".to_owned(),
        };
        Refused::new(format!("{} is not among the required connectors", quoted(name)), fix)
    })
}

fn operation(op: &str, requirement: Option<usize>, names: &Names<'_>) -> Result<String, Refused> {
    let scope = requirement.and_then(|at| names.scopes.get(at)).and_then(Option::as_ref);
    match scope {
        Some(scope) if !scope.operations().iter().any(|known| known == op) => {
            let known: Vec<_> = scope.operations().iter().map(String::as_str).collect();
            let fix = match spelling::nearest(op, known.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "add it to the operations under [[requires.connectors]]".to_owned(),
            };
            let message = format!("{} is not in the action's capabilities for this connector", quoted(op));
            Err(Refused::new(message, fix))
        }
        _ => Ok(op.to_owned()),
    }
}

fn inputs(node: &Node<'_>, scope: Scope<'_>) -> Option<Vec<(String, Template)>> {
    match Template::read(node, scope)? {
        Template::Table(fields) => Some(fields),
        Template::Literal(serde_json::Value::Object(fields)) => {
            Some(fields.into_iter().map(|(name, value)| (name, Template::Literal(value))).collect())
        }
        _ => {
            let message = "the inputs are no table";
            node.place().refuse(Refused::new(message, "write inputs = { name = \"value\" }"));
            None
        }
    }
}

/// A profile's name, or four fields; none at all where it was reported why it cannot be.
fn retry(table: &Table<'_>) -> Option<Option<Retry>> {
    match table.node("retry") {
        None if table.has("retry") => None,
        None => Some(None),
        Some(Node::Text(name)) => Some(Some(Retry::Profile(name.value.to_owned()))),
        Some(Node::Table(..)) => Some(Some(own_retry(&table.table("retry")?)?)),
        Some(other) => {
            let message = "this is neither a profile's name nor a table";
            let fix =
                "write \"standard\", or { max = 2, initial = \"1s\", max_delay = \"8s\", jitter = 0.2 }";
            other.place().refuse(Refused::new(message, fix));
            None
        }
    }
}

fn own_retry(table: &Table<'_>) -> Option<Retry> {
    table.only(&["max", "initial", "max_delay", "jitter"]);
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
    let max = table.whole("max").and_then(|max| max.parse(|max| retries(*max)));
    let wait = |key: &str| table.text(key)?.parse(|text| time(text, LONGEST_WAIT, "1 hour"));
    let (initial, max_delay) = (wait("initial"), wait("max_delay"));
    let jitter = table.number("jitter").and_then(|it: Located<'_, f64>| {
        it.parse(|jitter| match (0.0..=1.0).contains(jitter) {
            true => Ok(*jitter),
            false => Err(Refused::new(
                format!("{jitter} is not a part of a wait"),
                "write a part from 0 to 1: 0.2 is a fifth",
            )),
        })
    });
    let (max, initial, max_delay, jitter) = (max?, initial?, max_delay?, jitter?);
    if initial > max_delay {
        let message = "the longest wait is below the first";
        table.here().refuse(Refused::new(message, "write a max_delay that is no less than initial"));
        return None;
    }
    Some(Retry::Own { max, initial, max_delay, jitter })
}

fn retries(max: u64) -> Result<u32, Refused> {
    u32::try_from(max).ok().filter(|_| (1..=MAX_RETRIES).contains(&max)).ok_or_else(|| {
        let fix = "write 1 to 99, or retry = \"none\" for a step that is not tried again";
        Refused::new(format!("{max} is no number of retries"), fix)
    })
}
