//! One entry of the audit log: some events of one call, in canonical JSON, and the chain that holds entries together.

use std::sync::Arc;

use cofferdam_core::event::operator::{OPERATOR_EVENT, OperatorEvent};
use cofferdam_core::event::recorded::{EventLine, EventText, RecordedEvent};
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The previous hash of the first entry.
pub const GENESIS: [u8; 32] = [0; 32];

/// The version of the form of entries.
pub(super) const FORM: u8 = 1;

/// An event as it is read from an entry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedEvent {
    /// When it happened, as RFC 3339.
    pub at: String,
    /// The number of the event within its call, from 1.
    pub seq: u32,
    /// The event's name.
    #[serde(rename = "type")]
    pub name: String,
    /// Its facts.
    pub payload: Box<RawValue>,
}

impl LoggedEvent {
    /// Returns the event with its facts.
    #[must_use]
    pub fn event(&self) -> RecordedEvent<'static> {
        RecordedEvent::read(&self.name, &self.payload)
    }

    /// Returns all facts, also those that this version does not know.
    #[must_use]
    pub fn facts(&self) -> Map<String, Value> {
        serde_json::from_str(self.payload.get()).unwrap_or_default()
    }
}

/// The contents of an entry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body {
    /// The call; none for what is of no call.
    pub(super) audit_id: Option<String>,
    #[serde(default)]
    pub(super) events: Vec<LoggedEvent>,
    /// The event about the audit log itself.
    pub(super) log: Option<LogEvent>,
    pub(super) v: u8,
}

/// An event about the audit log itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogEvent {
    #[serde(rename = "at")]
    _at: IgnoredAny,
    #[serde(rename = "type")]
    pub(super) name: String,
    pub(super) payload: Box<RawValue>,
}

/// One entry: events of one call that are written together.
#[derive(Debug, Clone)]
pub struct Entry {
    // Shared: an entry is handed over anew each time that writing it is tried.
    body: Arc<String>,
    digest: [u8; 32],
    is_empty: bool,
}

impl Entry {
    /// The entry of these events, in canonical JSON (RFC 8785): `{"audit_id", "events": [{"at", "payload", "seq",
    /// "type"}], "v"}`.
    #[must_use]
    pub fn new(audit_id: &AuditId, events: &[EventText]) -> Self {
        let texts = events.iter().map(EventText::as_str).collect::<Vec<_>>().join(",");
        let body = format!("{{\"audit_id\":\"{audit_id}\",\"events\":[{texts}],\"v\":{FORM}}}");
        Self::of(body, events.is_empty())
    }

    /// An entry that is of no call, but of the audit log itself: `{"log": {"at", "payload", "type"}, "v"}`.
    #[must_use]
    pub fn of_the_log(name: &'static str, at: Timestamp, payload: &impl Serialize) -> Self {
        #[derive(Serialize)]
        struct Said<'a, P> {
            #[serde(serialize_with = "shown")]
            at: Timestamp,
            payload: &'a P,
            #[serde(rename = "type")]
            name: &'static str,
        }
        #[derive(Serialize)]
        struct Body<'a, P> {
            log: Said<'a, P>,
            v: u8,
        }
        // Maps with text for keys and finite numbers always have a canonical form.
        let body = serde_json_canonicalizer::to_string(&Body { log: Said { at, payload, name }, v: FORM });
        Self::of(body.unwrap_or_default(), false)
    }

    fn of(body: String, is_empty: bool) -> Self {
        let digest = Sha256::digest(body.as_bytes()).into();
        Self { body: Arc::new(body), digest, is_empty }
    }

    /// The same of a call that is not to end with it: what would be its end says that it was cut short.
    pub(super) fn without_its_end(&self, audit_id: &AuditId) -> Self {
        // No entry of this process is unreadable; if one is, it is written as it is.
        let Ok(events) = events(&self.body) else { return self.clone() };
        let cut_short = |logged: LoggedEvent| {
            let event = match logged.event() {
                RecordedEvent::Final(end) => RecordedEvent::CutShort(end),
                event => event,
            };
            EventLine { at: logged.at.parse().unwrap_or_default(), seq: logged.seq, event }.to_text()
        };
        Self::new(audit_id, &events.into_iter().map(cut_short).collect::<Vec<_>>())
    }

    /// Returns true if the entry has no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The canonical JSON.
    #[must_use]
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Returns the body up to its version, as the text of a journal's line begins.
    pub(crate) fn fields(&self) -> &str {
        self.body.rsplit_once(",\"v\":").map_or("", |(fields, _)| fields)
    }

    /// The SHA-256 of the body.
    #[must_use]
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

/// Reads the events of an entry's text.
///
/// # Errors
/// The text is not that of an entry.
pub(super) fn events(body: &str) -> Result<Vec<LoggedEvent>, serde_json::Error> {
    serde_json::from_str::<Body>(body).map(|body| body.events)
}

/// Reads the change of an operator in an entry's text, and its time. None if the entry has none.
pub(super) fn operator_event(body: &str) -> Option<(Timestamp, OperatorEvent<'static>)> {
    #[derive(Deserialize)]
    struct Recorded {
        at: Timestamp,
        payload: OperatorEvent<'static>,
        #[serde(rename = "type")]
        name: String,
    }
    #[derive(Deserialize)]
    struct Body {
        log: Recorded,
    }
    let Body { log: Recorded { at, payload, name } } = serde_json::from_str(body).ok()?;
    (name == OPERATOR_EVENT).then_some((at, payload))
}

/// The hash of the `n`-th entry (from 1), whose body has this SHA-256, after one with the hash `before`:
/// `SHA-256("cofferdam-audit-v1\n" || before || n as 8 bytes, big-endian || digest)`.
#[must_use]
pub fn chained(before: &[u8; 32], n: u64, digest: &[u8; 32]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"cofferdam-audit-v1\n");
    hash.update(before);
    hash.update(n.to_be_bytes());
    hash.update(digest);
    hash.finalize().into()
}

fn shown<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{at:.6}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use cofferdam_core::event::recorded::Received;

    use super::*;

    #[test]
    fn an_entrys_hash_covers_all_its_fields() {
        let id = AuditId::parse("audit-01890000-0000-7000-8000-000000000001").unwrap();
        let at = Timestamp::from_microsecond(1_700_000_000_000_000).unwrap();
        let received = Received { connector: "a".into(), op: "b".into(), ..Received::default() };
        let line = EventLine { at, seq: 1, event: RecordedEvent::Received(received) };
        let entry = Entry::new(&id, &[line.to_text()]);
        assert_eq!(
            entry.body(),
            "{\"audit_id\":\"audit-01890000-0000-7000-8000-000000000001\",\"events\":[{\"at\":\
             \"2023-11-14T22:13:20.000000Z\",\"payload\":{\"actor\":\"\",\"connector\":\"a\",\"op\":\"b\"},\
             \"seq\":1,\"type\":\"received\"}],\"v\":1}"
        );
        let hash = chained(&GENESIS, 1, entry.digest());
        assert_ne!(hash, chained(&GENESIS, 2, entry.digest()));
        assert_ne!(hash, chained(&hash, 1, entry.digest()));
        let other = Entry::new(&id, &[EventLine { seq: 2, ..line }.to_text()]);
        assert_ne!(hash, chained(&GENESIS, 1, other.digest()));
    }
}
