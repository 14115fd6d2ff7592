//! The HTTP status of an outcome. Programs branch on the envelope; the status is for intermediaries.

use cofferdam_core::error::{Error, HostErrorKind};
use cofferdam_core::failure::FailureClass;
use http::StatusCode;

/// Returns the status of an error.
pub(super) fn for_error(error: &Error) -> StatusCode {
    match error {
        Error::Failure(failure) => of_class(failure.class()),
        Error::Host(error) => of_kind(error.kind()),
    }
}

/// Returns the status of a failure of this class.
pub(super) const fn of_class(class: FailureClass) -> StatusCode {
    match class {
        FailureClass::CapabilityDenied => StatusCode::FORBIDDEN,
        FailureClass::BindingRequired | FailureClass::BindingFailed => StatusCode::PRECONDITION_FAILED,
        FailureClass::ResourceLimitExceeded => StatusCode::INSUFFICIENT_STORAGE,
        FailureClass::ConnectorRuntimeError => StatusCode::INTERNAL_SERVER_ERROR,
        FailureClass::NetworkError | FailureClass::ExternalApiError => StatusCode::BAD_GATEWAY,
        FailureClass::HashMismatch | FailureClass::SignatureFailure => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// Returns the status of the host's own error of this kind.
pub(super) const fn of_kind(kind: HostErrorKind) -> StatusCode {
    use HostErrorKind as Kind;
    match kind {
        Kind::Validation => StatusCode::BAD_REQUEST,
        Kind::ConnectorNotFound
        | Kind::ActionNotFound
        | Kind::OpNotFound
        | Kind::InputUnreadable
        | Kind::BindingNotFound
        | Kind::AuditNotFound => StatusCode::NOT_FOUND,
        Kind::Conflict
        | Kind::Downgrade
        | Kind::IdempotencyConflict
        | Kind::InProgress
        | Kind::NotReplayable => StatusCode::CONFLICT,
        // The package exists, but is not usable.
        Kind::ContractVersion | Kind::CompileRefused => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Busy => StatusCode::TOO_MANY_REQUESTS,
        // Nothing ran, and the operator has to fix it; or the server ends.
        Kind::AuditUnavailable
        | Kind::KeyringInvalid
        | Kind::VaultLocked
        | Kind::VaultUnusable
        | Kind::RegistryUnavailable
        | Kind::CircuitsUnavailable
        | Kind::AuditTampered
        | Kind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        // Something may have run: the status must not invite a retry.
        Kind::OutcomeUnknown | Kind::OutputUnwritable | Kind::Tool | Kind::Configuration | Kind::Internal => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

/// Returns the status that replaces this one if steps of an action were completed, or may have been: a status
/// that says that nothing was done (a fault of the request, or 503) becomes 500. The envelope has the actual
/// error.
pub(super) fn of_begun(status: StatusCode) -> StatusCode {
    match status.is_client_error() || status == StatusCode::SERVICE_UNAVAILABLE {
        true => StatusCode::INTERNAL_SERVER_ERROR,
        false => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w42_each_class_has_its_status() {
        let statuses = FailureClass::ALL.iter().map(|class| (class.name(), of_class(*class).as_u16()));
        let statuses: Vec<_> = statuses.collect();
        let expected = [
            ("capability_denied", 403),
            ("binding_required", 412),
            ("binding_failed", 412),
            ("resource_limit_exceeded", 507),
            ("connector_runtime_error", 500),
            ("network_error", 502),
            ("external_api_error", 502),
            ("hash_mismatch", 422),
            ("signature_failure", 422),
        ];
        for one in expected {
            assert!(statuses.contains(&one), "{one:?}: {statuses:?}");
        }
        assert_eq!(statuses.len(), expected.len());
    }

    #[test]
    fn what_may_have_run_is_not_said_to_be_worth_another_try() {
        for kind in HostErrorKind::ALL {
            let status = of_kind(*kind).as_u16();
            assert!(status >= 400, "{kind:?}");
            assert!(*kind != HostErrorKind::OutcomeUnknown || status == 500);
        }
    }
}
