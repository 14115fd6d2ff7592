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
    let kind = match error.kind() {
        AuditErrorKind::Tampered => HostErrorKind::AuditTampered,
        _ => HostErrorKind::AuditUnavailable,
    };
    log_error(kind, &format!("The audit log cannot be {what}"), error)
}

/// Returns an error of this kind, with the reason that the audit log gives and its suggested fix.
pub(crate) fn log_error(kind: HostErrorKind, what: &str, error: AuditError) -> HostError {
    let message = format!("{what}: {}.", error.says());
    HostError::new(kind, message).with_hint(error.fix().to_owned()).with_source(error)
}
