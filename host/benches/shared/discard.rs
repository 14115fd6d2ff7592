//! A host's calls without what recording them costs.

use std::future::ready;

use cofferdam_audit::{
    Accepted, AuditError, AuditLog, AuditReader, AuditTrouble, CloseCall, Decision, Entry, KeyClaim,
    LogFuture, OpenCall, Opened, Pruned, Standing,
};
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

/// An audit log that reports every write as durable, and writes nothing.
pub(crate) struct Discard;

fn done<T: Send + 'static>(result: T) -> LogFuture<T> {
    Box::pin(ready(Ok(result)))
}

fn nothing_is_kept() -> AuditError {
    AuditError::new(AuditTrouble::Other, "nothing is kept")
}

impl AuditLog for Discard {
    fn open(&self, _: OpenCall) -> LogFuture<Opened> {
        done(Opened::Begun)
    }

    fn append(&self, _: &AuditId, _: Entry) -> LogFuture<()> {
        done(())
    }

    fn close(&self, _: Option<Box<OpenCall>>, _: CloseCall) -> LogFuture<()> {
        done(())
    }

    fn key_state(&self, _: KeyClaim) -> LogFuture<Standing> {
        done(Standing::Free)
    }

    fn resolve(&self, _: &AuditId, _: Decision) -> LogFuture<bool> {
        done(true)
    }

    fn sign(&self) -> LogFuture<String> {
        Box::pin(ready(Err(nothing_is_kept())))
    }

    fn accept(&self, _: Vec<Accepted>) -> LogFuture<String> {
        Box::pin(ready(Err(nothing_is_kept())))
    }

    fn prune(&self, _: Timestamp, _: bool) -> LogFuture<Pruned> {
        Box::pin(ready(Err(nothing_is_kept())))
    }

    fn flush(&self) -> LogFuture<()> {
        done(())
    }

    fn reader(&self) -> Result<Box<dyn AuditReader>, AuditError> {
        Err(nothing_is_kept())
    }
}
