//! A panic of the writer is an error of what it was doing, and not the end of the record.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{AuditError, AuditTrouble};

/// Does it. Whoever calls this drops what may be half done where it fails: an open transaction rolls itself back.
///
/// # Errors
/// It panicked. What it said is on standard error, or wherever the process has its panics.
pub(super) fn caught<T>(what: impl FnOnce() -> T) -> Result<T, AuditError> {
    catch_unwind(AssertUnwindSafe(what)).map_err(|_| {
        tracing::error!(target: "cofferdam::audit", "the record's writer panicked: this is a fault of cofferdam's; it goes on");
        AuditError::new(AuditTrouble::Other, "its writer panicked")
    })
}
