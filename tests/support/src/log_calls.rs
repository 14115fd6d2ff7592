//! Calls as tests of audit logs begin and end them, and a clock for such logs.

use std::time::Instant;

use cofferdam_audit::{
    CallOutcome, CallStatus, CallTarget, CloseCall, Entry, KeyClaim, KeyDisposition, KeyScope, OpenCall,
    ResolveCall, Sealed,
};
use cofferdam_core::clock::{Clock, SleepFuture, SystemClock};
use cofferdam_core::event::recorded::{Admitted, AttemptStarted, Ended, EventLine, Received, RecordedEvent};
use cofferdam_core::failure::{AuditId, RepeatRule};
use jiff::Timestamp;

/// The SHA-256 of what each key stands for.
const FINGERPRINT: [u8; 32] = [7; 32];

/// Returns the claim of a key, now.
pub fn claim(key: &str) -> KeyClaim {
    KeyClaim { key: key.into(), fingerprint: FINGERPRINT, at: Timestamp::now(), of: KeyScope::Call }
}

/// Returns a call that was received then, with its first entry: this event, its admission, and an attempt.
pub fn opening(received: Received<'_>, key: Option<&str>, idempotent: bool, at: Timestamp) -> OpenCall {
    let claimed = key.map(|key| claim(key).recorded(received.step.as_deref()));
    let repeat = RepeatRule::from(idempotent).name();
    let admitted = Admitted { claim: claimed, repeat: Some(repeat.into()), ..Admitted::default() };
    let events = [
        RecordedEvent::Received(received),
        RecordedEvent::Admitted(admitted),
        RecordedEvent::AttemptStarted(AttemptStarted::default()),
    ];
    let lines = (1..).zip(events).map(|(seq, event)| EventLine { at, seq, event }.to_text());
    let (connector, op) = ("github://acme/a@1.0.0".into(), "b".into());
    OpenCall {
        audit_id: AuditId::mint(),
        at,
        route: CallTarget { connector, op, action: None, step: None },
        actor: "ada".into(),
        idempotent,
        key: key.map(claim),
        resumes: None,
        entry: Entry::new(lines.collect()),
        request: Some(Sealed::from_bytes(b"the request".to_vec())),
    }
}

/// Returns the end of such a call, which was recorded then.
pub fn ending(call: &OpenCall, status: CallStatus, key: KeyDisposition, at: Timestamp) -> CloseCall {
    let key_end = call.key.as_ref().map(|claim| key.recorded(claim));
    let ended = Ended { status: status.name().into(), key_end, ..Ended::default() };
    let seq = u32::try_from(call.entry.events().len()).unwrap() + 1;
    let line = EventLine { at, seq, event: RecordedEvent::Final(ended) }.to_text();
    CloseCall {
        audit_id: call.audit_id.clone(),
        attempts: u32::from(status != CallStatus::Cancelled),
        verdict: CallOutcome { status, class: None, code: None },
        key,
        entry: Entry::new(vec![line]),
        outcome: Some(Sealed::from_bytes(b"the outcome".to_vec())),
    }
}

/// Returns the decision of an operator that nothing is to be done about a call.
pub fn skipped(frees_key: bool) -> ResolveCall {
    ResolveCall { at: Timestamp::now(), actor: "ada".into(), reason: "it is there".into(), frees_key }
}

/// The machine's clock, but with the date that this function returns.
pub struct DateClock<F>(pub F);

impl<F: Fn() -> Timestamp + Send + Sync + 'static> Clock for DateClock<F> {
    fn now(&self) -> Instant {
        SystemClock.now()
    }

    fn timestamp(&self) -> Timestamp {
        (self.0)()
    }

    fn sleep_until(&self, deadline: Instant) -> SleepFuture {
        SystemClock.sleep_until(deadline)
    }
}
