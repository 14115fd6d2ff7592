//! A panic of the writer is an error of what it was doing, and not the end of the audit log.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{AuditError, AuditErrorKind};

/// Runs `what`. On failure the caller drops everything that may be half done: an open transaction rolls back
/// when it is dropped.
///
/// # Errors
/// The closure panicked. The panic message is on standard error, or wherever the process writes panics.
pub(super) fn caught<T>(what: impl FnOnce() -> T) -> Result<T, AuditError> {
    catch_unwind(AssertUnwindSafe(what)).map_err(|_| {
        tracing::error!(target: "cofferdam::audit", "the record's writer panicked: this is a fault of cofferdam's; it goes on");
        AuditError::new(AuditErrorKind::Other, "its writer panicked")
    })
}
