//! The errors for an audit log that cannot be read or written.

use cofferdam_audit::{AuditError, AuditErrorKind};
use cofferdam_core::error::{HostError, HostErrorKind};

/// Returns the error for an audit log that cannot be read.
pub fn unreadable(error: AuditError) -> HostError {
    trouble("read", error)
}

/// Returns the error for an audit log that cannot be written.
pub(crate) fn unwritable(error: AuditError) -> HostError {
    trouble("written", error)
}

fn trouble(what: &str, error: AuditError) -> HostError {
    let message = format!("The audit log cannot be {what}: {}.", error.says());
    let kind = match error.kind() {
        AuditErrorKind::Tampered => HostErrorKind::AuditTampered,
        _ => HostErrorKind::AuditUnavailable,
    };
    HostError::new(kind, message).with_hint(error.fix().to_owned()).with_source(error)
}
