//! An audit log without entries, for benchmarks and for homes whose log a test begins itself.

use std::future::ready;
use std::sync::Arc;

use cofferdam_audit::{
    AcknowledgedFinding, AuditError, AuditErrorKind, AuditLog, AuditReader, CloseCall, Entry, KeyClaim,
    KeyState, LogFuture, LogTime, OpenCall, OpenOutcome, Pruned, ResolveCall,
};
use cofferdam_core::event::operator::OperatorEvent;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

/// An audit log that reports every write as durable, and writes nothing.
pub struct DiscardLog;

fn done<T: Send + 'static>(result: T) -> LogFuture<T> {
    Box::pin(ready(Ok(result)))
}

fn nothing_is_kept() -> AuditError {
    AuditError::new(AuditErrorKind::Other, "nothing is kept")
}

impl AuditLog for DiscardLog {
    fn open(&self, _: OpenCall) -> LogFuture<OpenOutcome> {
        done(OpenOutcome::Started)
    }

    fn append(&self, _: &AuditId, _: Entry) -> LogFuture<()> {
        done(())
    }

    fn close(&self, _: Option<Box<OpenCall>>, _: CloseCall) -> LogFuture<()> {
        done(())
    }

    fn key_state(&self, _: KeyClaim) -> LogFuture<KeyState> {
        done(KeyState::Free)
    }

    fn resolve(&self, _: &AuditId, _: ResolveCall) -> LogFuture<bool> {
        done(true)
    }

    fn record(&self, _: Timestamp, _: OperatorEvent<'static>) -> LogFuture<()> {
        done(())
    }

    fn time(&self) -> LogFuture<LogTime> {
        Box::pin(ready(Err(nothing_is_kept())))
    }

    fn sign(&self) -> LogFuture<String> {
        Box::pin(ready(Err(nothing_is_kept())))
    }

    fn accept(&self, _: Vec<AcknowledgedFinding>, _: Arc<str>) -> LogFuture<String> {
        Box::pin(ready(Err(nothing_is_kept())))
    }

    fn prune(&self, _: Timestamp, _: bool, _: Arc<str>) -> LogFuture<Pruned> {
        Box::pin(ready(Err(nothing_is_kept())))
    }

    fn flush(&self) -> LogFuture<()> {
        done(())
    }

    fn reader(&self) -> Result<Box<dyn AuditReader>, AuditError> {
        Err(nothing_is_kept())
    }
}
