//! A generated audit log: many connectors, few failures, some calls without an end; the same each time.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use cofferdam::AuditId;
use cofferdam_audit::{
    AuditLog as _, CallOutcome, CallStatus, CallTarget, CloseCall, Entry, KeyDisposition, LogSettings,
    OpenCall, SqliteLog,
};
use cofferdam_core::event::recorded::{EventLine, EventText, RecordedEvent};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

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

fn line(at: Timestamp, seq: u32, name: &str, payload: serde_json::Value) -> EventText {
    let payload = serde_json::value::to_raw_value(&payload).unwrap();
    EventLine { at, seq, event: RecordedEvent::read(name, &payload) }.to_text()
}

fn open(at: Timestamp, route: CallTarget, lots: &mut Lots) -> OpenCall {
    let audit_id = id(at, lots);
    let (connector, op) = (Arc::clone(&route.connector), Arc::clone(&route.op));
    let hash = "0123456789abcdef".repeat(4);
    let lines = [
        line(at, 1, "received", json!({"connector": &*connector, "op": &*op})),
        line(
            at,
            2,
            "admitted",
            json!({"connector": &*connector, "hash": hash, "signer": "ed25519:4f3a", "profile": "standard"}),
        ),
        line(at, 3, "attempt_started", json!({"connector": &*connector, "op": &*op, "attempt": 1})),
    ];
    OpenCall {
        entry: Entry::new(&audit_id, &lines),
        audit_id,
        at,
        route,
        actor: "host".into(),
        idempotent: true,
        key: None,
        resumes: None,
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
    let code = Some(code).filter(|code| !code.is_empty()).map(Arc::from);
    let duration_us = (500 + lots.below(4_000)) << lots.below(8).min(lots.below(8));
    let at = open.at + SignedDuration::from_micros(i64::try_from(duration_us).unwrap());
    let usage = json!({"fuel": 123_456, "memory": 1_114_112, "wall_us": duration_us, "requests": 1});
    let lines = [
        line(at, 4, "attempt_ended", json!({"attempt": 1, "status": status.name(), "usage": usage})),
        line(at, 5, "final", json!({"status": status.name(), "class": class, "code": code.as_deref()})),
    ];
    CloseCall {
        audit_id: open.audit_id.clone(),
        at,
        duration_us,
        attempts: 1,
        verdict: CallOutcome { status, class, code },
        key: KeyDisposition::Release,
        entry: Entry::new(&open.audit_id, &lines),
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
    let log = SqliteLog::new(home, LogSettings::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let flush = || {
        runtime.block_on(log.flush()).unwrap();
    };
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
        if number % 500 == 499 {
            flush();
        }
    }
    for call in running {
        drop(log.close(None, close(&call, &mut lots)));
    }
    flush();
}
