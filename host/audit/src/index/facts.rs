//! The facts of a journal's line that the index stores, borrowed from the line as far as possible.

use std::borrow::Cow;

use cofferdam_core::event::recorded::{
    Received, RecordedClaim, RecordedKeyEnd, RecordedRequest, RecordedUsage, Replayed, may_be_repeated,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::usage::AttemptUsage;
use crate::command::CallStatus;
use crate::request_stats::RequestKind;

/// The events of a line.
pub(super) type LineEvents<'l> = Vec<EventText<'l>>;

/// An event of a call.
#[derive(Deserialize)]
pub(super) struct EventText<'l> {
    #[serde(borrow)]
    at: Cow<'l, str>,
    #[serde(borrow)]
    payload: &'l RawValue,
    #[serde(borrow, rename = "type")]
    name: Cow<'l, str>,
}

/// The payload of `admitted`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AdmittedFacts<'l> {
    claim: Option<RecordedClaim>,
    idempotency_key: Option<IgnoredAny>,
    #[serde(borrow)]
    repeat: Option<Cow<'l, str>>,
}

/// The payload of `approval_used`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ApprovalFacts<'l> {
    #[serde(borrow)]
    approval: Cow<'l, str>,
    same_arguments: bool,
}

/// The payload of `attempt_ended`. The connector is empty if it is the one in `received`, which another line may have.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AttemptFacts<'l> {
    attempt: u32,
    #[serde(borrow)]
    connector: Cow<'l, str>,
    #[serde(borrow)]
    requests: Option<&'l RawValue>,
    usage: RecordedUsage,
}

/// A request of an attempt.
pub struct LineRequest<'l> {
    /// The connector that sent it, as `name@version`; empty for that of the call.
    pub connector: Cow<'l, str>,
    /// Its host.
    pub host: Cow<'l, str>,
    /// Its kind.
    pub kind: RequestKind,
}

/// Returns the usage of an attempt that had these requests.
fn attempt_usage(usage: &RecordedUsage, requests: &[RecordedRequest<'_>]) -> AttemptUsage {
    let bytes = usage.bytes_in.saturating_add(usage.bytes_out);
    let largest = requests.iter().map(|request| request.bytes_received).max().unwrap_or(0);
    AttemptUsage {
        used: [usage.fuel, usage.memory_bytes, usage.wall_us, usage.requests, bytes, largest],
        limits: [usage.fuel_limit, usage.memory_limit_bytes, usage.wall_limit_ms],
    }
}

/// The payload of `final`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EndedFacts<'l> {
    attempts: Option<u32>,
    #[serde(borrow)]
    class: Option<Cow<'l, str>>,
    #[serde(borrow)]
    code: Option<Cow<'l, str>>,
    duration_us: Option<u64>,
    #[serde(borrow)]
    failure: Option<&'l RawValue>,
    #[serde(borrow)]
    key_end: Option<RecordedKeyEnd<'l>>,
    #[serde(borrow)]
    status: Cow<'l, str>,
}

/// A failure, or an error of the host, which has no boundary.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FailureFacts<'l> {
    #[serde(borrow)]
    boundary: Cow<'l, str>,
}

/// The end of a call.
#[derive(Default)]
pub struct EndFacts<'l> {
    /// The status.
    pub status: CallStatus,
    /// The failure's class; empty for none.
    pub class: Cow<'l, str>,
    /// The failure's or the error's code; empty for none.
    pub code: Cow<'l, str>,
    /// The layer that the failure came from; empty for none.
    pub boundary: Cow<'l, str>,
    /// The duration in microseconds.
    pub duration_us: Option<u64>,
    /// The number of attempts.
    pub attempts: Option<u32>,
    /// True if it is unknown what was done under the call's key.
    pub is_undetermined: bool,
}

impl EndFacts<'_> {
    /// Returns the end of a call that was resolved by a decision.
    pub fn of_resolution(status: CallStatus) -> Self {
        Self { status, ..Self::default() }
    }

    /// Returns the duration in microseconds and the number of attempts of the call, which was received and had its last
    /// event at these times. A resolved call has neither.
    pub fn measures(&self, received_at: i64, ended_at: i64) -> (Option<i64>, Option<u32>) {
        if matches!(self.status, CallStatus::Resumed | CallStatus::Skipped) {
            return (None, self.attempts);
        }
        let duration = match self.duration_us {
            Some(duration) => i64::try_from(duration).unwrap_or(i64::MAX),
            None => ended_at.saturating_sub(received_at).max(0),
        };
        (Some(duration), self.attempts.or(Some(0)))
    }
}

/// The facts of a line of a call.
#[derive(Default)]
pub struct LineFacts<'l> {
    /// The request, and when it was received, in microseconds.
    pub received: Option<(Received<'l>, i64)>,
    /// True if the call may be repeated, where the line says so.
    pub idempotent: Option<bool>,
    /// The SHA-256 of the idempotency key, in hexadecimal.
    pub key: Option<String>,
    /// The approvals that the call used up.
    pub used_approvals: Vec<Cow<'l, str>>,
    /// The usage of the attempts that ended.
    pub attempts: Vec<AttemptUsage>,
    /// Their requests, without those whose URL had a secret in it.
    pub requests: Vec<LineRequest<'l>>,
    /// The end of the call.
    pub end: Option<EndFacts<'l>>,
    /// The time of the last event, in microseconds.
    pub last_at: i64,
}

impl<'l> LineFacts<'l> {
    /// Reads the events of a line. None if they cannot be understood.
    pub fn read(events: &'l str) -> Option<Self> {
        serde_json::from_str(events).ok().map(Self::of)
    }

    /// Returns the facts in the events of a line.
    pub(super) fn of(events: LineEvents<'l>) -> Self {
        let mut facts = Self::default();
        let count = events.len();
        for (position, event) in events.into_iter().enumerate() {
            let is_last = position.saturating_add(1) == count;
            match &*event.name {
                "received" => facts.received = Some((payload(event.payload), micros(&event.at))),
                "admitted" => {
                    let admitted: AdmittedFacts<'l> = payload(event.payload);
                    let has_key = admitted.idempotency_key.is_some();
                    facts.idempotent = Some(may_be_repeated(admitted.repeat.as_deref(), has_key));
                    facts.key = admitted.claim.map(|claim| claim.key_sha256).or(facts.key);
                }
                "approval_used" => {
                    let used: ApprovalFacts<'l> = payload(event.payload);
                    facts.used_approvals.extend((!used.same_arguments).then_some(used.approval));
                }
                "replayed" => {
                    let replayed: Replayed<'l> = payload(event.payload);
                    facts.idempotent = replayed.idempotent.or(facts.idempotent);
                }
                "attempt_ended" => {
                    let attempt: AttemptFacts<'l> = payload(event.payload);
                    let requests: Option<Vec<RecordedRequest<'l>>> =
                        attempt.requests.and_then(|requests| serde_json::from_str(requests.get()).ok());
                    let requests = requests.unwrap_or_default();
                    let usage = attempt_usage(&attempt.usage, &requests);
                    // An attempt that did not run used nothing.
                    if usage.used != AttemptUsage::default().used {
                        facts.attempts.push(usage);
                    }
                    let is_repeated = attempt.attempt > 1;
                    let requests = requests.into_iter().map(|request| LineRequest {
                        connector: attempt.connector.clone(),
                        kind: RequestKind::new(&request, is_repeated),
                        host: request.host,
                    });
                    facts.requests.extend(requests.filter(|request| !request.host.is_empty()));
                }
                "final" if is_last => facts.end = Some(end(payload(event.payload))),
                "resumed" if is_last => facts.end = Some(EndFacts::of_resolution(CallStatus::Resumed)),
                "skipped" if is_last => facts.end = Some(EndFacts::of_resolution(CallStatus::Skipped)),
                _ => {}
            }
            if is_last {
                facts.last_at = micros(&event.at);
            }
        }
        facts
    }
}

fn end(ended: EndedFacts<'_>) -> EndFacts<'_> {
    let status = CallStatus::from_name(&ended.status);
    EndFacts {
        status: status.filter(|status| status.has_end()).unwrap_or(CallStatus::Failure),
        class: ended.class.unwrap_or_default(),
        code: ended.code.unwrap_or_default(),
        boundary: ended.failure.map(payload::<FailureFacts<'_>>).unwrap_or_default().boundary,
        duration_us: ended.duration_us,
        attempts: ended.attempts,
        is_undetermined: ended.key_end.is_some_and(|key| key.state == "unknown"),
    }
}

/// Reads a payload; an empty one if this version does not understand it.
fn payload<'l, T: Default + Deserialize<'l>>(payload: &'l RawValue) -> T {
    serde_json::from_str(payload.get()).unwrap_or_default()
}

fn micros(at: &str) -> i64 {
    at.parse::<Timestamp>().map_or(0, Timestamp::as_microsecond)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use cofferdam_core::event::recorded::{
        Admitted, AttemptEnded, Ended, EventLine, EventText as RecordedText, RecordedEvent,
    };

    use super::*;
    use crate::request_stats::RequestResult;

    fn boundary(failure: &str) -> String {
        let payload = format!(
            r#"{{"class":"network_error","code":"dns",{failure}"duration_us":7,"status":"failure"}}"#
        );
        let events = format!(r#"[{{"at":"2026-11-22T12:00:00Z","payload":{payload},"type":"final"}}]"#);
        let end = LineFacts::read(&events).unwrap().end.unwrap();
        assert_eq!(
            (end.status, &*end.class, end.duration_us),
            (CallStatus::Failure, "network_error", Some(7))
        );
        end.boundary.into_owned()
    }

    /// A fact that is renamed where it is written would be missing here.
    #[test]
    fn recorded_facts_are_read() {
        let text = |event| EventLine { at: Timestamp::UNIX_EPOCH, seq: 1, event }.to_text();
        let requests = vec![
            RecordedRequest { bytes_received: 9, method: "POST".into(), ..request("a.example:443") },
            RecordedRequest { keyed: true, status: Some(503), ..request("b.example:443") },
            RecordedRequest {
                code: Some("dns".into()),
                phase: Some("dns".into()),
                ..request("c.example:443")
            },
        ];
        let usage = RecordedUsage {
            bytes_in: 1,
            bytes_out: 2,
            fuel: 3,
            fuel_limit: 4,
            memory_bytes: 5,
            memory_limit_bytes: 6,
            requests: 7,
            wall_limit_ms: 8,
            wall_us: 9,
            ..RecordedUsage::default()
        };
        let claim = RecordedClaim {
            fingerprint: "f".to_owned(),
            key_sha256: "k".to_owned(),
            ..RecordedClaim::default()
        };
        let key_end = RecordedKeyEnd { state: "unknown".into(), ..RecordedKeyEnd::default() };
        let events = [
            RecordedEvent::Received(Received {
                action: Some("an action".into()),
                actor: "an actor".into(),
                connector: "c@1".into(),
                op: "o".into(),
                step: Some("a step".into()),
                ..Received::default()
            }),
            RecordedEvent::Admitted(Admitted {
                claim: Some(claim),
                repeat: Some("always".into()),
                ..Admitted::default()
            }),
            RecordedEvent::AttemptEnded(AttemptEnded {
                attempt: 2,
                connector: Some("d@1".into()),
                requests,
                usage,
                ..AttemptEnded::default()
            }),
            RecordedEvent::Final(Ended {
                attempts: Some(2),
                class: Some("network_error".into()),
                code: Some("dns".into()),
                duration_us: Some(7),
                failure: serde_json::from_str(r#"{"boundary":"external"}"#).unwrap(),
                key_end: Some(key_end),
                status: "failure".into(),
                ..Ended::default()
            }),
        ];
        let texts: Vec<_> = events.into_iter().map(text).collect();
        let line = format!("[{}]", texts.iter().map(RecordedText::as_str).collect::<Vec<_>>().join(","));
        let facts = LineFacts::read(&line).unwrap();
        let (received, at) = facts.received.unwrap();
        assert_eq!(
            (received.target(), &*received.actor, at),
            (["c@1", "o", "an action", "a step"], "an actor", 0)
        );
        assert_eq!((facts.idempotent, facts.key.as_deref()), (Some(true), Some("k")));
        assert_eq!(facts.attempts, [AttemptUsage { used: [3, 5, 9, 7, 3, 9], limits: [4, 6, 8] }]);
        let kind = |result, is_write, is_keyed| RequestKind { result, is_write, is_repeated: true, is_keyed };
        let requests: Vec<_> = facts.requests.iter().map(|it| (&*it.connector, &*it.host, it.kind)).collect();
        let expected = [
            ("d@1", "a.example:443", kind(RequestResult::Answered, true, false)),
            ("d@1", "b.example:443", kind(RequestResult::ServerError, false, true)),
            ("d@1", "c.example:443", kind(RequestResult::Unanswered, false, false)),
        ];
        assert_eq!(requests, expected);
        let end = facts.end.unwrap();
        let texts = [&*end.class, &*end.code, &*end.boundary];
        assert_eq!((end.status, texts), (CallStatus::Failure, ["network_error", "dns", "external"]));
        assert_eq!((end.duration_us, end.attempts, end.is_undetermined), (Some(7), Some(2), true));
    }

    fn request(host: &str) -> RecordedRequest<'_> {
        RecordedRequest {
            host: host.into(),
            method: "GET".into(),
            status: Some(200),
            ..RecordedRequest::default()
        }
    }

    #[test]
    fn requests_are_counted_by_what_became_of_them() {
        use RequestResult::{Answered, ClientError, Refused, ServerError, Unanswered};
        let kind = |request: &str| RequestKind::new(&serde_json::from_str(request).unwrap(), false);
        for (request, result) in [
            (r#"{"method":"GET","status":200}"#, Answered),
            (r#"{"method":"GET","status":302}"#, Answered),
            (r#"{"method":"GET","status":404}"#, ClientError),
            (r#"{"method":"GET","status":503}"#, ServerError),
            (r#"{"method":"GET","code":"dns","phase":"dns"}"#, Unanswered),
            (r#"{"method":"GET","status":200,"code":"closed","phase":"response"}"#, Unanswered),
            (r#"{"method":"GET","aborted":true}"#, Unanswered),
            (r#"{"method":"GET","code":"host_not_granted"}"#, Refused),
        ] {
            let counted = kind(request);
            assert_eq!((counted.result, counted.is_write), (result, false), "{request}");
        }
        let write = kind(r#"{"method":"POST","status":200,"keyed":true}"#);
        assert!(write.is_write && write.is_keyed && !write.is_repeated);
    }

    #[test]
    fn an_attempt_has_its_largest_response() {
        let counted = |requests: &str| {
            let usage = r#"{"bytes_in":12,"bytes_out":1,"fuel":5}"#;
            let payload = format!(r#"{{"attempt":1,"requests":{requests},"usage":{usage}}}"#);
            let events =
                format!(r#"[{{"at":"2026-11-22T12:00:00Z","payload":{payload},"type":"attempt_ended"}}]"#);
            let facts = LineFacts::read(&events).unwrap();
            let [fuel, .., bytes, largest] = facts.attempts.first().unwrap().used;
            assert_eq!((facts.attempts.len(), fuel, bytes), (1, 5, 13));
            (largest, facts.requests.len())
        };
        // One with a secret in its URL has no host.
        let first = r#"{"bytes_received":4,"host":"a.example:443"}"#;
        let last = r#"{"bytes_received":1,"host":"b.example:443"}"#;
        assert_eq!(counted(&format!(r#"[{first},{{"bytes_received":7}},{last}]"#)), (7, 2));
        assert_eq!(counted(r#"[{"host":"a.example:443"}]"#), (0, 1));
        assert_eq!(counted("[]"), (0, 0));
    }

    #[test]
    fn an_attempt_that_used_nothing_did_not_run() {
        let payload = r#"{"attempt":1,"usage":{"fuel_limit":7}}"#;
        let events =
            format!(r#"[{{"at":"2026-11-22T12:00:00Z","payload":{payload},"type":"attempt_ended"}}]"#);
        assert_eq!(LineFacts::read(&events).unwrap().attempts, []);
    }

    /// A newer host may have names that are not written as they are.
    #[test]
    fn a_line_with_an_escaped_name_is_read() {
        let at = r#""at":"2026-11-22T12:00:00\u005a","payload""#;
        let events = format!(
            r#"[{{{at}:{{}},"type":"a \"new\" event"}},{{{at}:{{"status":"value"}},"type":"final"}}]"#
        );
        let facts = LineFacts::read(&events).unwrap();
        assert_eq!(facts.end.unwrap().status, CallStatus::Value);
        assert_eq!(facts.last_at, micros("2026-11-22T12:00:00Z"));
    }

    #[test]
    fn the_boundary_is_that_of_the_failure() {
        assert_eq!(boundary(r#""failure":{"boundary":"external","class":"network_error"},"#), "external");
        for other in ["", r#""failure":{"code":"busy"},"#, r#""failure":"none","#, r#""failure":null,"#] {
            assert_eq!(boundary(other), "", "{other}");
        }
    }
}
