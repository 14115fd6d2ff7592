//! An audit log in memory: what the host needs of one while a test runs, and nothing that is left behind.
//!
//! It keeps no events. It knows the idempotency keys, so that a key that is given twice is the same call twice, as in a
//! log on disk.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_audit::{
    AcknowledgedFinding, AuditError, AuditErrorKind, AuditLog, AuditReader, CloseCall, Entry, KeyClaim,
    KeyDisposition, KeyState, LogFuture, LogTime, OpenCall, OpenOutcome, Pruned, ResolveCall,
};
use cofferdam_core::clock::Clock;
use cofferdam_core::event::operator::OperatorEvent;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

/// The keys of one host's calls.
pub(crate) struct MemoryLog {
    clock: Arc<dyn Clock>,
    keys: Mutex<HashMap<Arc<str>, KeyRecord>>,
}

/// A key that was given.
struct KeyRecord {
    fingerprint: [u8; 32],
    state: KeyState,
    audit_id: AuditId,
    idempotent: bool,
    /// The time until which its outcome is kept.
    until: Option<Timestamp>,
}

impl MemoryLog {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, keys: Mutex::default() }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Arc<str>, KeyRecord>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, call: &OpenCall) -> OpenOutcome {
        let Some(claim) = &call.key else { return OpenOutcome::Started };
        let mut keys = self.keys();
        match state_of(&keys, claim) {
            KeyState::Free => {}
            KeyState::Running { audit_id } if audit_id == call.audit_id => return OpenOutcome::Started,
            taken => return OpenOutcome::KeyInUse(taken),
        }
        let audit_id = call.audit_id.clone();
        let state = KeyState::Running { audit_id: audit_id.clone() };
        let (fingerprint, idempotent) = (claim.fingerprint, call.idempotent);
        keys.insert(
            Arc::clone(&claim.key),
            KeyRecord { fingerprint, state, audit_id, idempotent, until: None },
        );
        OpenOutcome::Started
    }

    fn end(&self, end: CloseCall) {
        let mut keys = self.keys();
        let Some(record) = keys.values_mut().find(|record| record.audit_id == end.audit_id) else { return };
        let audit_id = end.audit_id;
        record.state = match end.key {
            KeyDisposition::Retain(until) => {
                record.until = Some(until);
                KeyState::Done { audit_id, idempotent: record.idempotent, outcome: end.outcome }
            }
            KeyDisposition::Undetermined => KeyState::Unknown { audit_id },
            KeyDisposition::Release => KeyState::Free,
        };
    }
}

/// Returns the state of a key for this claim.
fn state_of(keys: &HashMap<Arc<str>, KeyRecord>, claim: &KeyClaim) -> KeyState {
    match keys.get(&claim.key) {
        None => KeyState::Free,
        Some(record) if matches!(record.state, KeyState::Free) => KeyState::Free,
        Some(record) if record.until.is_some_and(|until| until <= claim.at) => KeyState::Free,
        Some(record) if record.fingerprint != claim.fingerprint => {
            KeyState::Different { audit_id: record.audit_id.clone() }
        }
        Some(record) => record.state.clone(),
    }
}

fn done<T: Send + 'static>(result: T) -> LogFuture<T> {
    Box::pin(ready(Ok(result)))
}

fn nothing_is_kept<T: Send + 'static>() -> LogFuture<T> {
    Box::pin(ready(Err(unreadable())))
}

fn unreadable() -> AuditError {
    AuditError::new(AuditErrorKind::Other, "a test keeps no entries")
}

impl AuditLog for MemoryLog {
    fn open(&self, call: OpenCall) -> LogFuture<OpenOutcome> {
        done(self.begin(&call))
    }

    fn append(&self, _: &AuditId, _: Entry) -> LogFuture<()> {
        done(())
    }

    fn close(&self, begin: Option<Box<OpenCall>>, end: CloseCall) -> LogFuture<()> {
        if let Some(begin) = begin {
            self.begin(&begin);
        }
        self.end(end);
        done(())
    }

    fn key_state(&self, claim: KeyClaim) -> LogFuture<KeyState> {
        done(state_of(&self.keys(), &claim))
    }

    fn resolve(&self, _: &AuditId, _: ResolveCall) -> LogFuture<bool> {
        done(false)
    }

    fn record(&self, _: Timestamp, _: OperatorEvent<'static>) -> LogFuture<()> {
        done(())
    }

    fn time(&self) -> LogFuture<LogTime> {
        let now = self.clock.timestamp();
        done(LogTime { time: now, clock: now, is_believed: true })
    }

    fn sign(&self) -> LogFuture<String> {
        nothing_is_kept()
    }

    fn accept(&self, _: Vec<AcknowledgedFinding>, _: Arc<str>) -> LogFuture<String> {
        nothing_is_kept()
    }

    fn prune(&self, _: Timestamp, _: bool, _: Arc<str>) -> LogFuture<Pruned> {
        nothing_is_kept()
    }

    fn flush(&self) -> LogFuture<()> {
        done(())
    }

    fn reader(&self) -> Result<Box<dyn AuditReader>, AuditError> {
        Err(unreadable())
    }
}
