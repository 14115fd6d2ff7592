//! The exit codes of the command, for usage errors and signals, failure classes and errors of the host.

use cofferdam_core::error::{Error, HostErrorKind};
use cofferdam_core::failure::FailureClass;

/// The arguments are wrong.
pub(super) const USAGE: u8 = 2;

/// `test`: a scenario failed.
pub(super) const SCENARIO_FAILED: u8 = 88;

/// `test --contract`: every scenario passed, and the contract is broken.
pub(super) const CONTRACT_BROKEN: u8 = 89;

/// `rebuild`: the bytes are not the same.
pub(super) const REBUILD_DIFFERS: u8 = 92;

/// Ended by SIGINT: 128 and the signal's number, as shells report it.
pub(super) const INTERRUPTED: u8 = 130;

/// Ended by SIGTERM.
pub(super) const TERMINATED: u8 = 143;

/// Returns the exit code of an error. A call that SIGTERM cancelled has the code of that signal.
pub(super) fn exit_code(error: &Error) -> u8 {
    match error {
        Error::Failure(failure) => class_exit_code(failure.class()),
        Error::Host(host) if host.details().get("signal").is_some_and(|signal| signal == "SIGTERM") => {
            TERMINATED
        }
        Error::Host(host) => kind_exit_code(host.kind()),
    }
}

/// Returns the exit code of a failure class, from sysexits if one fits.
pub(super) const fn class_exit_code(class: FailureClass) -> u8 {
    match class {
        FailureClass::CapabilityDenied => 77,
        FailureClass::BindingRequired => 78,
        FailureClass::BindingFailed => 79,
        FailureClass::ResourceLimitExceeded => 73,
        FailureClass::ConnectorRuntimeError => 70,
        FailureClass::NetworkError => 69,
        FailureClass::ExternalApiError => 76,
        FailureClass::HashMismatch => 80,
        FailureClass::SignatureFailure => 81,
    }
}

/// Returns the exit code of an error of the host.
pub(super) const fn kind_exit_code(kind: HostErrorKind) -> u8 {
    match kind {
        HostErrorKind::Validation | HostErrorKind::ContractVersion => 65,
        HostErrorKind::ConnectorNotFound
        | HostErrorKind::ActionNotFound
        | HostErrorKind::OpNotFound
        | HostErrorKind::InputUnreadable
        | HostErrorKind::BindingNotFound
        | HostErrorKind::JobNotFound
        | HostErrorKind::AuditNotFound => 66,
        HostErrorKind::Conflict | HostErrorKind::Downgrade | HostErrorKind::IdempotencyConflict => 67,
        HostErrorKind::CompileRefused => 68,
        HostErrorKind::KeyringInvalid => 72,
        HostErrorKind::ConsentRequired => 93,
        HostErrorKind::VaultLocked => 82,
        HostErrorKind::VaultUnusable => 83,
        HostErrorKind::RegistryUnavailable
        | HostErrorKind::CircuitsUnavailable
        | HostErrorKind::OutputUnwritable => 74,
        HostErrorKind::SourceUnavailable => 90,
        HostErrorKind::SourceRefused => 91,
        HostErrorKind::QueueUnavailable => 94,
        HostErrorKind::AuditUnavailable => 84,
        HostErrorKind::OutcomeUnknown => 85,
        HostErrorKind::NotReplayable => 87,
        HostErrorKind::InProgress | HostErrorKind::Busy => 75,
        HostErrorKind::ApprovalRequired => 95,
        HostErrorKind::ApprovalDenied => 96,
        HostErrorKind::AuditTampered => 86,
        HostErrorKind::Cancelled => INTERRUPTED,
        HostErrorKind::Tool => 71,
        HostErrorKind::Configuration => 64,
        HostErrorKind::Internal => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_tell_classes_apart() {
        let mut codes: Vec<_> = FailureClass::ALL.iter().map(|class| class_exit_code(*class)).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), FailureClass::ALL.len());
    }

    #[test]
    fn host_errors_have_distinct_exit_codes() {
        for kind in HostErrorKind::ALL {
            let code = kind_exit_code(*kind);
            let cancelled = kind == &HostErrorKind::Cancelled;
            assert_eq!(code == INTERRUPTED, cancelled, "{}", kind.code());
            assert!(
                ![0, USAGE, TERMINATED, SCENARIO_FAILED, CONTRACT_BROKEN, REBUILD_DIFFERS].contains(&code),
                "{}",
                kind.code()
            );
            assert!(FailureClass::ALL.iter().all(|class| class_exit_code(*class) != code), "{}", kind.code());
        }
    }
}
