//! A generated audit log: many connectors, few failures, some calls without an end; the same each time.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use cofferdam_audit::{
    AuditLog as _, CallOutcome, CallStatus, CallTarget, CloseCall, Entry, JournalLog, KeyDisposition,
    LogSettings, OpenCall,
};
use cofferdam_core::clock::SystemClock;
use cofferdam_core::event::recorded::{
    Admitted, AttemptEnded, AttemptStarted, Ended, EventLine, EventText, Received, RecordedEvent,
    RecordedUsage, UnknownEvent,
};
use cofferdam_core::failure::AuditId;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The ends without a value, the most frequent first; the last is so rare that few calls have it.
const ENDS: [(CallStatus, Option<&str>, &str); 21] = [
    (CallStatus::Failure, Some("network_error"), "connection_refused"),
    (CallStatus::Failure, Some("external_api_error"), "status_503"),
    (CallStatus::Failure, Some("external_api_error"), "status_404"),
    (CallStatus::Failure, Some("network_error"), "timeout"),
    (CallStatus::Failure, Some("external_api_error"), "status_429"),
    (CallStatus::Failure, Some("external_api_error"), "status_401"),
    (CallStatus::Failure, Some("external_api_error"), "status_500"),
    (CallStatus::Refused, None, "validation"),
    (CallStatus::Failure, Some("connector_runtime_error"), "trap"),
    (CallStatus::Failure, Some("connector_runtime_error"), "fuel"),
    (CallStatus::Failure, Some("network_error"), "dns"),
    (CallStatus::Failure, Some("network_error"), "tls"),
    (CallStatus::Cancelled, None, "cancelled"),
    (CallStatus::Failure, Some("capability_denied"), "host_not_granted"),
    (CallStatus::Refused, None, "op_not_found"),
    (CallStatus::Failure, Some("binding_required"), "not_bound"),
    (CallStatus::Failure, Some("binding_failed"), "refused"),
    (CallStatus::Failure, Some("connector_runtime_error"), "memory"),
    (CallStatus::Failure, Some("external_api_error"), "circuit_open"),
    (CallStatus::Refused, None, "busy"),
    (CallStatus::Failure, Some("hash_mismatch"), "hash"),
];

/// Connectors, and operations of each.
const CONNECTORS: u64 = 20;
const OPS: u64 = 5;

/// The callers, the most frequent first.
const ACTORS: [&str; 3] = ["host", "ci", "ada"];

/// The hosts of requests: every call has one to the first, and few have one to the second.
const HOSTS: [&str; 2] = ["api.example:443", "files.example:443"];

/// Calls that never end.
pub const INCOMPLETE: usize = 20;

/// Numbers that look drawn, and are the same each time.
struct Lots(u64);

impl Lots {
    fn below(&mut self, bound: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// An id of that moment.
fn id(at: Timestamp, lots: &mut Lots) -> AuditId {
    let time = u128::from(u64::try_from(at.as_millisecond()).unwrap()) << 80;
    let random = (u128::from(lots.below(1 << 12)) << 64) | u128::from(lots.below(1 << 62));
    let digits = format!("{:032x}", time | (0x7 << 76) | (0x8 << 60) | random);
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    AuditId::parse(&format!("audit-{}", parts.join("-"))).unwrap()
}

fn route(lots: &mut Lots) -> CallTarget {
    // Most calls are of few connectors; the last operation of the last one is hardly ever called.
    let drawn = lots.below(CONNECTORS).min(lots.below(CONNECTORS)).min(lots.below(CONNECTORS));
    let connector = format!("github://acme/c{drawn:02}@1.{}.0", lots.below(2));
    let op = format!("op_{}", lots.below(OPS).min(lots.below(OPS)));
    let action = drawn.is_multiple_of(4).then(|| (format!("action-{drawn}").into(), "send".into()));
    let (action, step) = action.unzip();
    CallTarget { connector: connector.into(), op: op.into(), action, step }
}

fn line(at: Timestamp, seq: u32, event: RecordedEvent<'_>) -> EventText {
    EventLine { at, seq, event }.to_text()
}

fn open(at: Timestamp, route: CallTarget, lots: &mut Lots) -> OpenCall {
    let audit_id = id(at, lots);
    let actor = ACTORS[usize::try_from(lots.below(3).min(lots.below(3))).unwrap()];
    let (connector, op) = (&*route.connector, &*route.op);
    let hash = "0123456789abcdef".repeat(4);
    let received = Received {
        action: route.action.as_deref().map(Into::into),
        actor: actor.into(),
        connector: connector.into(),
        op: op.into(),
        parent: None,
        step: route.step.as_deref().map(Into::into),
    };
    let admitted = Admitted {
        hash: hash.into(),
        profile: Some("standard".into()),
        repeat: Some("always".into()),
        signer: Some("ed25519:4f3a".into()),
        ..Admitted::default()
    };
    let started = AttemptStarted { attempt: 1, candidate: 0 };
    let lines = vec![
        line(at, 1, RecordedEvent::Received(received)),
        line(at, 2, RecordedEvent::Admitted(admitted)),
        line(at, 3, RecordedEvent::AttemptStarted(started)),
    ];
    OpenCall {
        audit_id,
        at,
        route,
        actor: actor.into(),
        idempotent: true,
        key: None,
        resumes: None,
        entry: Entry::new(lines),
        request: None,
    }
}

fn close(open: &OpenCall, lots: &mut Lots) -> CloseCall {
    let failed = lots.below(100) < 3;
    // The later in the list the rarer.
    let drawn = (0..3).map(|_| lots.below(ENDS.len() as u64)).min().unwrap();
    let (status, class, code) = match failed {
        true => ENDS[usize::try_from(drawn).unwrap()],
        false => (CallStatus::Value, None, ""),
    };
    let code = Some(code).filter(|code| !code.is_empty());
    let duration_us = (500 + lots.below(4_000)) << lots.below(8).min(lots.below(8));
    let at = open.at + SignedDuration::from_micros(i64::try_from(duration_us).unwrap());
    let usage = RecordedUsage {
        bytes_in: lots.below(20_000),
        bytes_out: 300 + lots.below(2_000),
        fuel: 100_000 + lots.below(1_000_000),
        fuel_limit: 1_000_000_000,
        memory_bytes: 1_114_112 + 65_536 * lots.below(16),
        memory_limit_bytes: 67_108_864,
        requests: 1 + lots.below(2),
        wall_limit_ms: 30_000,
        wall_us: duration_us,
        ..RecordedUsage::default()
    };
    let bytes_received = usage.bytes_in / 2;
    let attempt = AttemptEnded {
        attempt: 1,
        class: class.map(Into::into),
        code: code.map(Into::into),
        status: status.name().into(),
        usage,
        ..AttemptEnded::default()
    };
    let hosts = if lots.below(6) == 0 { 2 } else { 1 };
    let request =
        |host: &&str| json!({"bytes_received": bytes_received, "host": host, "ms": 12, "status": 200});
    let requests = HOSTS.iter().take(hosts).map(request);
    let mut payload = serde_json::to_value(&attempt).unwrap();
    payload["requests"] = requests.collect();
    let payload = serde_json::value::to_raw_value(&payload).unwrap();
    let attempt = RecordedEvent::Unknown(UnknownEvent { name: "attempt_ended".into(), payload });
    let ended = Ended {
        attempts: Some(1),
        class: class.map(Into::into),
        code: code.map(Into::into),
        duration_us: Some(duration_us),
        status: status.name().into(),
        ..Ended::default()
    };
    CloseCall {
        audit_id: open.audit_id.clone(),
        attempts: 1,
        verdict: CallOutcome { status, class, code: code.map(Arc::from) },
        key: KeyDisposition::Release,
        entry: Entry::new(vec![line(at, 4, attempt), line(at, 5, RecordedEvent::Final(ended))]),
        outcome: None,
    }
}

/// Calls like those of [`fill`], one by one.
pub struct Calls(Lots);

impl Calls {
    /// The same for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Lots(seed))
    }

    /// The next call, received at `at`: its beginning and its end.
    ///
    /// # Panics
    /// `at` is before 1970.
    pub fn next(&mut self, at: Timestamp) -> (OpenCall, CloseCall) {
        let of = route(&mut self.0);
        let open = open(at, of, &mut self.0);
        let close = close(&open, &mut self.0);
        (open, close)
    }
}

/// Records `calls` calls in `home`, spread over the `days` before `until`, of which [`INCOMPLETE`] never end.
///
/// # Panics
/// They cannot be recorded.
pub fn fill(home: &Path, calls: usize, days: u32, until: Timestamp) {
    let log = JournalLog::new(home, LogSettings::default(), Arc::new(SystemClock));
    let mut lots = Lots(calls as u64);
    let span = SignedDuration::from_hours(i64::from(days) * 24);
    let mut running = VecDeque::new();
    for number in 0..calls {
        let at = until - span * i32::try_from(calls - number).unwrap() / i32::try_from(calls).unwrap();
        let mut of = route(&mut lots);
        // One that is called three times.
        if number % (calls / 3) == calls / 6 {
            of.op = "rare".into();
        }
        let call = open(at, of, &mut lots);
        // Without a runtime, each entry is written before the method returns.
        drop(log.open(call.clone()));
        if number % (calls / INCOMPLETE) != 0 {
            running.push_back(call);
        }
        // Some run while hundreds are made after them.
        let most = if number % 10_000 < 300 { 300 } else { 16 };
        while running.len() > most {
            let drawn = usize::try_from(lots.below(8)).unwrap();
            let ended = running.swap_remove_back(drawn).unwrap();
            drop(log.close(None, close(&ended, &mut lots)));
        }
    }
    for call in running {
        drop(log.close(None, close(&call, &mut lots)));
    }
}

/// Records a failed call in `home`, received at `at`, in which every text that a connector, a caller or a service may choose
/// is `text`.
///
/// # Panics
/// It cannot be recorded.
#[allow(dead_code, reason = "the crate `audit` has this file in its tests, too")]
pub fn fill_with_text(home: &Path, text: &str, at: Timestamp) {
    let log = JournalLog::new(home, LogSettings::default(), Arc::new(SystemClock));
    let mut lots = Lots(0);
    let (connector, op): (Arc<str>, Arc<str>) = (text.into(), text.into());
    let target = CallTarget { connector, op, action: Some(text.into()), step: Some(text.into()) };
    let mut call = open(at, target, &mut lots);
    call.actor = text.into();
    call.entry = with_text(&call.entry, text);
    let mut end = close(&call, &mut lots);
    end.verdict = CallOutcome {
        status: CallStatus::Failure,
        class: Some("external_api_error"),
        code: Some(text.into()),
    };
    end.entry = with_text(&end.entry, text);
    drop(log.open(call));
    drop(log.close(None, end));
}

/// The entry with this text instead of others, but for those of a closed set.
fn with_text(entry: &Entry, text: &str) -> Entry {
    fn replace(value: &mut Value, text: &str) {
        match value {
            Value::String(chosen) => text.clone_into(chosen),
            Value::Array(items) => items.iter_mut().for_each(|item| replace(item, text)),
            Value::Object(fields) => {
                let fields =
                    fields.iter_mut().filter(|(name, _)| !["class", "status"].contains(&name.as_str()));
                fields.for_each(|(_, value)| replace(value, text));
            }
            _ => {}
        }
    }
    let replaced = |event: &EventText| {
        let mut event: Value = serde_json::from_str(event.as_str()).unwrap();
        replace(&mut event["payload"], text);
        let name = event["type"].as_str().unwrap().to_owned();
        let payload = serde_json::value::to_raw_value(&event["payload"]).unwrap();
        let seq = u32::try_from(event["seq"].as_u64().unwrap()).unwrap();
        let at = event["at"].as_str().unwrap().parse().unwrap();
        line(at, seq, RecordedEvent::Unknown(UnknownEvent { name, payload }))
    };
    Entry::new(entry.events().iter().map(replaced).collect())
}
