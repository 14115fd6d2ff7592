//! Facts that several events of a call have: they are recorded once, and readers restore them in the other events.

use serde_json::{Map, Value};

use crate::entry::LoggedEvent;

/// Adds the facts that events leave out because another event of their call has them. `events` are all events of one call,
/// in order.
pub fn restore_facts(events: &mut [LoggedEvent]) {
    let mut connector: Option<Value> = None;
    for event in events {
        let Ok(mut facts) = serde_json::from_str::<Map<String, Value>>(event.payload.get()) else { continue };
        match event.name.as_str() {
            "received" => connector = facts.remove("connector"),
            "admitted" | "attempt_ended" => {
                if let Some(connector) = &connector {
                    facts.entry("connector").or_insert_with(|| connector.clone());
                }
                event.set_facts(facts);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
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
                r#"{"candidate":0,"connector":"a","hash":"h"}"#,
                r#"{"attempt":1,"connector":"a","status":"failure"}"#,
                r#"{"candidate":1,"connector":"b","hash":"h"}"#,
                r#"{"attempt":2,"connector":"b","status":"value"}"#,
                "7",
                r#"{"status":"value"}"#,
            ]
        );
        let without_beginning = json!([["attempt_ended", {"attempt": 1}]]);
        assert_eq!(restored(without_beginning), [r#"{"attempt":1}"#]);
    }
}
