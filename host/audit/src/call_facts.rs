//! Facts that several events of a call, or several fields of an event, have: they are recorded once, and readers
//! restore them in the other places.

use cofferdam_core::event::recorded::may_be_repeated;
use serde_json::{Map, Value};

use crate::entry::LoggedEvent;

/// The fields of a failure's view that are among its details, too.
const OF_DETAILS: [&str; 3] = ["status", "trap", "upstream_code"];

/// Removes the facts that a view of a failure, or of an error of the host, has twice;
/// [`events_of`](crate::AuditReader::events_of) adds them. A fact that is among a failure's `details`, too, stays
/// there; its code does not, which is a fact of the event.
pub fn remove_repeated(view: &mut Map<String, Value>) {
    let first = view.get("chain").and_then(|chain| chain.get(0));
    if first.is_some() && first == view.get("message") {
        view.remove("message");
    }
    // Only failures have a class, and only their details are described here.
    if !view.contains_key("class") {
        return;
    }
    for name in OF_DETAILS {
        let detail = view.get("details").and_then(|details| details.get(name));
        if detail.is_some() && detail == view.get(name) {
            view.remove(name);
        }
    }
    let code = view.get("code").cloned();
    if let Some(Value::Object(details)) = view.get_mut("details")
        && details.get("code") == code.as_ref()
    {
        details.remove("code");
    }
}

/// Adds the facts that [`remove_repeated`] removed from the view of a failure with this code, or of an error.
fn add_repeated(view: &mut Map<String, Value>, is_failure: bool, code: Option<Value>) {
    if let Some(message) = view.get("chain").and_then(|chain| chain.get(0)).cloned() {
        view.entry("message").or_insert(message);
    }
    let mut repeated = Vec::new();
    if let Some(Value::Object(details)) = view.get_mut("details").filter(|_| is_failure) {
        if let Some(code) = code {
            details.entry("code").or_insert(code);
            details.sort_keys();
        }
        repeated.extend(OF_DETAILS.into_iter().filter_map(|name| Some((name, details.get(name)?.clone()))));
    }
    for (name, value) in repeated {
        view.entry(name).or_insert(value);
    }
    view.sort_keys();
}

/// Returns the fields of a call's failure that differ from those of its last attempt's, also within `details`, and the
/// boundary, which the index reads from the end of a call alone. Both failures are as they are recorded. None if the
/// attempt's has fields that the call's has not.
#[must_use]
pub fn difference_from_attempt(
    failure: &Map<String, Value>,
    of_attempt: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    let differing = |own: &Map<String, Value>, other: &Map<String, Value>| {
        let fields = own.iter().filter(|(name, value)| other.get(*name) != Some(*value));
        fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>()
    };
    let mut difference = differing(failure, of_attempt);
    if let (Some(Value::Object(own)), Some(Value::Object(other))) =
        (failure.get("details"), of_attempt.get("details"))
        && own != other
    {
        difference.insert("details".to_owned(), differing(own, other).into());
    }
    if let Some(boundary) = failure.get("boundary") {
        difference.insert("boundary".to_owned(), boundary.clone());
    }
    (with_difference(of_attempt.clone(), difference.clone()) == *failure).then_some(difference)
}

/// Returns a failure that differs from this one in these fields.
fn with_difference(mut failure: Map<String, Value>, difference: Map<String, Value>) -> Map<String, Value> {
    for (name, value) in difference {
        match (failure.entry(name).or_insert(Value::Null), value) {
            (Value::Object(own), Value::Object(other)) => {
                own.extend(other);
                own.sort_keys();
            }
            (own, value) => *own = value,
        }
    }
    failure
}

/// Adds to the admission of a candidate, or of an action, the facts that follow from others of it.
fn add_implied(facts: &mut Map<String, Value>) {
    let repeat = facts.get("repeat").and_then(Value::as_str);
    let is_idempotent = may_be_repeated(repeat, facts.contains_key("idempotency_key"));
    // An action has no package.
    let is_unsigned = repeat.is_some() && !facts.contains_key("signer");
    facts.insert("idempotent".to_owned(), is_idempotent.into());
    if is_unsigned {
        facts.insert("unsigned".to_owned(), true.into());
    }
}

/// Adds the facts that events leave out because another event of their call, or another field of theirs, has them.
/// `events` are all events of one call, in order.
pub(crate) fn restore_facts(events: &mut [LoggedEvent]) {
    let mut connector: Option<Value> = None;
    // The number of the attempt that ended last, and its failure as it is recorded.
    let mut last: Option<(Value, Map<String, Value>)> = None;
    for event in events {
        let Ok(mut facts) = serde_json::from_str::<Map<String, Value>>(event.payload.get()) else { continue };
        match event.name.as_str() {
            "received" => {
                connector = facts.remove("connector");
                continue;
            }
            name @ ("admitted" | "attempt_ended") => {
                if let Some(connector) = &connector {
                    facts.entry("connector").or_insert_with(|| connector.clone());
                }
                if name == "admitted" {
                    add_implied(&mut facts);
                }
            }
            "final" | "cut_short" => {}
            _ => continue,
        }
        let (is_failure, code) = (facts.contains_key("class"), facts.get("code").cloned());
        let (attempt, failed_attempt) = (facts.get("attempt").cloned(), facts.remove("failed_attempt"));
        if let Some(Value::Object(failure)) = facts.get_mut("failure") {
            let of_attempt = last.as_ref().filter(|(attempt, _)| Some(attempt) == failed_attempt.as_ref());
            if let Some((_, of_attempt)) = of_attempt {
                *failure = with_difference(of_attempt.clone(), std::mem::take(failure));
            }
            last = attempt.map(|attempt| (attempt, failure.clone()));
            add_repeated(failure, is_failure, code);
        }
        event.set_facts(facts);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use serde_json::json;

    use super::*;

    /// Returns the facts of these events as a reader gets them.
    fn restored(events: Value) -> Vec<String> {
        let mut events: Vec<_> = events.as_array().unwrap().iter().map(event).collect();
        restore_facts(&mut events);
        events.iter().map(|event| event.payload.get().to_owned()).collect()
    }

    fn event(event: &Value) -> LoggedEvent {
        let (name, payload) = (event[0].as_str().unwrap(), &event[1]);
        let payload = serde_json::value::to_raw_value(payload).unwrap();
        LoggedEvent { at: "2026-11-22T12:00:00.000000Z".into(), seq: 1, name: name.into(), payload }
    }

    #[test]
    fn the_connector_of_the_call_is_restored() {
        let events = json!([
            ["received", {"connector": "a"}],
            ["admitted", {"candidate": 0, "hash": "h"}],
            ["attempt_ended", {"attempt": 1, "status": "failure"}],
            ["admitted", {"candidate": 1, "connector": "b", "hash": "h"}],
            ["attempt_ended", {"attempt": 2, "connector": "b", "status": "value"}],
            ["attempt_ended", 7],
            ["final", {"status": "value"}],
        ]);
        assert_eq!(
            restored(events),
            [
                r#"{"connector":"a"}"#,
                r#"{"candidate":0,"connector":"a","hash":"h","idempotent":false}"#,
                r#"{"attempt":1,"connector":"a","status":"failure"}"#,
                r#"{"candidate":1,"connector":"b","hash":"h","idempotent":false}"#,
                r#"{"attempt":2,"connector":"b","status":"value"}"#,
                "7",
                r#"{"status":"value"}"#,
            ]
        );
        let without_beginning = json!([["attempt_ended", {"attempt": 1}]]);
        assert_eq!(restored(without_beginning), [r#"{"attempt":1}"#]);
    }

    #[test]
    fn facts_that_follow_from_others_are_restored() {
        for (recorded, read) in [
            (json!({"repeat": "always", "signer": "s"}), json!({"idempotent": true})),
            (json!({"repeat": "unless_unkeyed"}), json!({"idempotent": false, "unsigned": true})),
            (
                json!({"idempotency_key": "k", "repeat": "never"}),
                json!({"idempotent": false, "unsigned": true}),
            ),
            // Actions.
            (json!({"steps": 2}), json!({"idempotent": false})),
            (json!({"idempotency_key": "k", "steps": 2}), json!({"idempotent": true})),
        ] {
            let mut expected = recorded.as_object().unwrap().clone();
            expected.extend(read.as_object().unwrap().clone());
            let restored: Value =
                serde_json::from_str(&restored(json!([["admitted", recorded]]))[0]).unwrap();
            assert_eq!(restored, Value::from(expected));
        }
    }

    /// Returns the view of a failure as an event has it, once it is clear that readers get all of it.
    fn recorded(view: &Value) -> Value {
        let view = view.as_object().unwrap();
        let mut recorded = view.clone();
        remove_repeated(&mut recorded);
        let mut facts = Map::new();
        for name in ["class", "code"] {
            facts.extend(recorded.remove(name).map(|fact| (name.to_owned(), fact)));
        }
        facts.insert("failure".to_owned(), recorded.clone().into());
        let mut read: Map<String, Value> =
            serde_json::from_str(&restored(json!([["attempt_ended", facts]]))[0]).unwrap();
        let mut failure = read.remove("failure").unwrap().as_object().unwrap().clone();
        failure.extend(read);
        assert_eq!(failure, *view);
        recorded.into()
    }

    #[test]
    fn a_view_has_each_fact_once() {
        let failure = json!({
            "class": "external_api_error", "code": "unavailable", "message": "m", "chain": ["m", "a cause"],
            "details": {"code": "unavailable", "host": "h", "status": 503, "upstream_code": "down"},
            "status": 503, "upstream_code": "down",
        });
        let details = json!({"host": "h", "status": 503, "upstream_code": "down"});
        assert_eq!(recorded(&failure), json!({"chain": ["m", "a cause"], "details": details}));
        let trap =
            json!({"class": "c", "code": "trap", "details": {"code": "trap", "trap": "t"}, "trap": "t"});
        assert_eq!(recorded(&trap), json!({"details": {"trap": "t"}}));
        // The details of an error of the host are its own.
        let error =
            json!({"code": "tool", "message": "m", "chain": ["m"], "details": {"code": "tool", "status": 1}});
        assert_eq!(recorded(&error), json!({"chain": ["m"], "details": {"code": "tool", "status": 1}}));
    }

    #[test]
    fn facts_of_a_view_that_differ_stay() {
        let mut failure = json!({
            "class": "c", "code": "a", "message": "m", "chain": ["other"], "details": {"code": "b", "status": 503},
            "status": 504,
        });
        let recorded = recorded(&failure);
        let failure = failure.as_object_mut().unwrap();
        failure.retain(|name, _| name != "class" && name != "code");
        assert_eq!(recorded, Value::from(failure.clone()));
    }

    /// Returns the difference of two failures.
    fn difference(failure: &Value, of_attempt: &Value) -> Option<Value> {
        let [failure, of_attempt] = [failure, of_attempt].map(|failure| failure.as_object().unwrap());
        difference_from_attempt(failure, of_attempt).map(Value::from)
    }

    #[test]
    fn the_failure_of_an_attempt_is_recorded_once() {
        let details = json!({"host": "h", "status": 503});
        let of_attempt = json!({"boundary": "external", "chain": ["m"], "details": details, "stderr": "s"});
        let mut failure = of_attempt.clone();
        failure["details"] = json!({"attempts": 2, "host": "other", "status": 503});
        let rest = difference(&failure, &of_attempt).unwrap();
        let details = json!({"attempts": 2, "host": "other"});
        assert_eq!(rest, json!({"boundary": "external", "details": details}));
        for class in [json!({"class": "c", "code": "d"}), json!({"code": "d"})] {
            let event = |name: &str, facts: Value| {
                let mut all = class.as_object().unwrap().clone();
                all.extend(facts.as_object().unwrap().clone());
                json!([name, all])
            };
            let first = event("attempt_ended", json!({"attempt": 1, "failure": {"chain": ["first"]}}));
            let attempt = event("attempt_ended", json!({"attempt": 2, "failure": of_attempt}));
            for name in ["final", "cut_short"] {
                let end = event(name, json!({"failed_attempt": 2, "failure": rest}));
                let read = restored(json!([first, attempt, end]));
                let in_full = restored(json!([event(name, json!({"failure": failure}))]));
                assert_eq!(read[2], in_full[0], "{name} {class}");
            }
        }
    }

    #[test]
    fn another_failure_than_the_attempts_is_in_full() {
        let failure = json!({"chain": ["m"], "details": {"host": "h"}});
        for other in [
            json!({"chain": ["m"], "details": {"host": "h"}, "stderr": "s"}),
            json!({"chain": ["m"], "details": {"host": "h", "status": 503}}),
        ] {
            assert_eq!(difference(&failure, &other), None, "{other}");
        }
        assert_eq!(difference(&failure, &failure), Some(json!({})));
    }
}
