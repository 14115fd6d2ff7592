//! One entry of the audit log: some events of one call, in canonical JSON, and the chain that holds entries together.

use std::sync::Arc;

use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The previous hash of the first entry.
pub const GENESIS: [u8; 32] = [0; 32];

/// The version of the form of entries.
pub(super) const FORM: u8 = 1;

/// One event as it stands on record.
#[derive(Debug, Clone, Serialize)]
pub struct EventLine {
    /// When.
    #[serde(serialize_with = "shown")]
    pub at: Timestamp,
    /// The number of the event within its call, from 1, without gaps.
    pub seq: u32,
    /// The event's name.
    #[serde(rename = "type")]
    pub name: &'static str,
    /// Its facts.
    pub payload: Map<String, Value>,
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
    pub fn new(audit_id: &AuditId, events: &[EventLine]) -> Self {
        #[derive(Serialize)]
        struct Body<'a> {
            audit_id: &'a AuditId,
            events: &'a [EventLine],
            v: u8,
        }
        Self::of(&Body { audit_id, events, v: FORM }, events.is_empty())
    }

    /// An entry that is of no call, but of the audit log itself: `{"log": {"at", "payload", "type"}, "v"}`.
    #[must_use]
    pub fn of_the_log(name: &'static str, at: Timestamp, payload: &Map<String, Value>) -> Self {
        #[derive(Serialize)]
        struct Said<'a> {
            #[serde(serialize_with = "shown")]
            at: Timestamp,
            payload: &'a Map<String, Value>,
            #[serde(rename = "type")]
            name: &'static str,
        }
        #[derive(Serialize)]
        struct Body<'a> {
            log: Said<'a>,
            v: u8,
        }
        Self::of(&Body { log: Said { at, payload, name }, v: FORM }, false)
    }

    fn of(body: &impl Serialize, is_empty: bool) -> Self {
        // Maps with text for keys and finite numbers always have a canonical form.
        let body = serde_json_canonicalizer::to_string(body).unwrap_or_default();
        let digest = Sha256::digest(body.as_bytes()).into();
        Self { body: Arc::new(body), digest, is_empty }
    }

    /// The same of a call that is not to end with it: what would be its end says that it was cut short.
    pub(super) fn without_its_end(&self) -> Self {
        let Ok(mut body) = serde_json::from_str::<Value>(&self.body) else { return self.clone() };
        let events = body.get_mut("events").and_then(Value::as_array_mut);
        for name in events.into_iter().flatten().filter_map(|event| event.get_mut("type")) {
            if name == "final" {
                *name = "cut_short".into();
            }
        }
        Self::of(&body, self.is_empty)
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

    /// The SHA-256 of the body.
    #[must_use]
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
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
    use super::*;

    #[test]
    fn an_entrys_hash_covers_all_its_fields() {
        let id = AuditId::parse("audit-01890000-0000-7000-8000-000000000001").unwrap();
        let payload = serde_json::json!({"op": "b", "connector": "a", "n": 1.0}).as_object().unwrap().clone();
        let at = Timestamp::from_microsecond(1_700_000_000_000_000).unwrap();
        let line = EventLine { at, seq: 1, name: "received", payload };
        let entry = Entry::new(&id, std::slice::from_ref(&line));
        assert_eq!(
            entry.body(),
            "{\"audit_id\":\"audit-01890000-0000-7000-8000-000000000001\",\"events\":[{\"at\":\
             \"2023-11-14T22:13:20.000000Z\",\"payload\":{\"connector\":\"a\",\"n\":1,\"op\":\"b\"},\"seq\":1,\
             \"type\":\"received\"}],\"v\":1}"
        );
        let hash = chained(&GENESIS, 1, entry.digest());
        assert_ne!(hash, chained(&GENESIS, 2, entry.digest()));
        assert_ne!(hash, chained(&hash, 1, entry.digest()));
        let other = Entry::new(&id, &[EventLine { seq: 2, ..line }]);
        assert_ne!(hash, chained(&GENESIS, 1, other.digest()));
    }
}
