//! The write side of the audit log in journals, behind the trait of a log.

use std::future::ready;
use std::sync::Arc;

use cofferdam_audit::{
    Accepted, AuditError, AuditErrorKind, AuditLog, AuditReader, CloseCall, Durability, Entry, JournalLog,
    KeyClaim, KeyState, LogFuture, LogSettings, OpenCall, OpenOutcome, Pruned, ResolveCall,
};
use cofferdam_core::clock::SystemClock;
use cofferdam_core::event::operator::OperatorEvent;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use tempfile::TempDir;

/// An audit log in journals that cannot be read, in a directory on the disk that builds are on.
pub(crate) struct InJournals {
    log: JournalLog,
    _home: TempDir,
}

impl InJournals {
    pub(crate) fn new(durability: Durability) -> Arc<Self> {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let settings = LogSettings { durability, ..LogSettings::default() };
        Arc::new(Self { log: JournalLog::new(home.path(), settings, Arc::new(SystemClock)), _home: home })
    }
}

fn is_not_measured<T: Send + 'static>() -> LogFuture<T> {
    Box::pin(ready(Err(AuditError::new(AuditErrorKind::Other, "this is not measured"))))
}

impl AuditLog for InJournals {
    fn open(&self, call: OpenCall) -> LogFuture<OpenOutcome> {
        self.log.open(call)
    }

    fn append(&self, audit_id: &AuditId, entry: Entry) -> LogFuture<()> {
        self.log.append(audit_id, &entry)
    }

    fn close(&self, begin: Option<Box<OpenCall>>, end: CloseCall) -> LogFuture<()> {
        self.log.close(begin.map(|begin| *begin), end)
    }

    fn key_state(&self, claim: KeyClaim) -> LogFuture<KeyState> {
        self.log.key_state(claim)
    }

    fn resolve(&self, audit_id: &AuditId, decision: ResolveCall) -> LogFuture<bool> {
        self.log.resolve(audit_id, decision)
    }

    fn record(&self, at: Timestamp, event: OperatorEvent<'static>) -> LogFuture<()> {
        self.log.record(at, event)
    }

    fn sign(&self) -> LogFuture<String> {
        self.log.sign()
    }

    fn accept(&self, _: Vec<Accepted>) -> LogFuture<String> {
        is_not_measured()
    }

    fn prune(&self, _: Timestamp, _: bool) -> LogFuture<Pruned> {
        is_not_measured()
    }

    fn flush(&self) -> LogFuture<()> {
        Box::pin(ready(Ok(())))
    }

    fn reader(&self) -> Result<Box<dyn AuditReader>, AuditError> {
        Err(AuditError::new(AuditErrorKind::Other, "this is not measured"))
    }
}
