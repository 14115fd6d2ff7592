//! The checks between bytes and a package that may run: signature, name, imports, limits. An install and every load
//! use these same checks in the same order.

use cofferdam_core::clock::Clock;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{Failure, FailureContext, SignatureCode};
use cofferdam_core::limits::{LimitCeilings, LimitError, LimitRequest, Limits, ProfileTimes};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::{ConnectorName, Manifest};
use cofferdam_model::package::{MANIFEST_LABEL, Package};
use cofferdam_model::registry::Acceptance;
use cofferdam_model::trust::{self, Keyring, TrustError, Verified};

use super::request::ConnectorRef;

/// A package with the proof that it may run.
#[derive(Debug)]
pub(crate) struct CheckedPackage {
    pub(crate) package: Package,
    pub(crate) proof: Verified,
}

/// Checks that the signatures are valid and made by as many keys that are trusted for this name as the keyring asks
/// for. A package without a signature passes only with `allow_unsigned`. An existing signature is always checked.
pub(crate) fn check_signature(
    context: &FailureContext,
    package: &Package,
    signature: Option<&[u8]>,
    keyring: &Keyring,
    allow_unsigned: bool,
    clock: &dyn Clock,
) -> Result<Verified, Failure> {
    let (name, version, digest) = (package.manifest().name(), package.manifest().version(), package.digest());
    let connector = format!("{name}@{version}");
    match signature {
        Some(envelope) => trust::verify(envelope, keyring, name, version, digest, clock.timestamp())
            .map_err(|error| refused(context, &connector, &error)),
        None if allow_unsigned => {
            trust::check_unsigned(keyring, name, version)
                .map_err(|error| refused(context, &connector, &error))?;
            tracing::warn!(target: "cofferdam::record", audit_id = context.audit_id().as_str(), connector, "unsigned package allowed for this command");
            Ok(trust::allow_unsigned(name.clone(), version.clone(), *digest))
        }
        None => Err(refused(context, &connector, &TrustError::unsigned(name))),
    }
}

/// Checks the signature against the raw bytes, before any of them is parsed. If a key of the keyring made it, it
/// must be for these bytes, and that key must be allowed to sign for the name. If no such key made it, nothing is
/// decided here.
pub(crate) fn check_bytes(
    context: &FailureContext,
    digest: &Digest,
    signature: Option<&[u8]>,
    keyring: &Keyring,
    clock: &dyn Clock,
) -> Result<(), Failure> {
    let Some(envelope) = signature else { return Ok(()) };
    let verdict = trust::verify_bytes(envelope, keyring, digest, clock.timestamp());
    verdict.map_err(|(connector, error)| refused(context, &connector, &error))
}

fn refused(context: &FailureContext, connector: &str, error: &TrustError) -> Failure {
    Failure::signature_failure(context, connector, error.code(), error.reason(), error.fix())
}

/// Checks that the package has the requested name and version.
pub(crate) fn check_identity(
    context: &FailureContext,
    package: &Package,
    name: &ConnectorName,
    version: &semver::Version,
) -> Result<(), Failure> {
    let manifest = package.manifest();
    if manifest.name() == name && manifest.version() == version {
        return Ok(());
    }
    let reason = format!("the package says that it is {}@{}", manifest.name(), manifest.version());
    let fix = "Rebuild the index with `cofferdam verify --rebuild-index`, or remove and install the connector again.";
    let connector = format!("{name}@{version}");
    Err(Failure::signature_failure(context, &connector, SignatureCode::IdentityMismatch, &reason, fix))
}

/// Checks that an operator accepted the access of the package.
pub(super) fn check_acceptance(
    wanted: &ConnectorRef,
    package: &Package,
    acceptance: Option<&Acceptance>,
) -> Result<(), HostError> {
    if acceptance.is_some_and(|acceptance| acceptance.covers(package)) {
        return Ok(());
    }
    let message = format!("The access that {wanted} asks for is not accepted on this host.");
    Err(HostError::new(HostErrorKind::ConsentRequired, message)
        .with_hint("Install its package again: `cofferdam install` shows what it may do, and asks."))
}

/// Checks that every import is declared in the manifest and exists on this host.
pub(crate) fn check_imports(context: &FailureContext, package: &Package) -> Result<(), Failure> {
    package.check_imports().map_err(|denial| Failure::capability_denied(context, &denial))
}

/// Checks that the action requests no more than the connector has, and that it includes the operation.
pub(super) fn check_scope(
    context: &FailureContext,
    package: &Package,
    scope: Option<&ActionScope>,
    operation: &str,
) -> Result<(), Failure> {
    let Some(scope) = scope else { return Ok(()) };
    let operations = package.operations().iter().map(|operation| operation.name().json());
    let admitted = scope
        .fits(operations.clone(), package.manifest().hosts())
        .and_then(|()| scope.admit_operation(operation, operations));
    admitted.map_err(|denial| Failure::capability_denied(context, &denial))
}

/// Checks that the manifest's limits are within the host's ceilings. The error names a limit that is not, with its
/// line.
pub(crate) fn check_manifest_limits(ceilings: &LimitCeilings, manifest: &Manifest) -> Result<(), HostError> {
    let Err(error) = manifest.limits().within(ceilings) else { return Ok(()) };
    let (LimitError::Malformed { limit, .. } | LimitError::AboveCeiling { limit, .. }) = &error;
    let line = manifest.line_of(&["limits", limit]).unwrap_or_default();
    let message = format!("{MANIFEST_LABEL}:{line}: limits.{error}.");
    let hint = "Lower it there, then build, sign and install the connector again.";
    Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint))
}

/// Checks that the limits of the manifest, the action and the caller are within the host's ceilings.
pub(crate) fn check_limits(
    ceilings: &LimitCeilings,
    manifest: &LimitRequest,
    action: &LimitRequest,
    caller: &LimitRequest,
    profile: &ProfileTimes,
) -> Result<Limits, HostError> {
    Limits::resolve(ceilings, manifest, action, caller, profile).map_err(|refused| {
        HostError::new(HostErrorKind::Validation, format!("A limit is not acceptable: {refused}."))
            .with_hint(refused.asked_by.fix())
    })
}

/// Returns the error for a package that is not the pinned one.
pub(crate) fn pin_mismatch(context: &FailureContext, what: &str, expected: &Digest, got: &Digest) -> Error {
    Failure::pin_mismatch(context, what, &format!("sha256:{expected}"), &format!("sha256:{got}")).into()
}

/// Returns the failure for bytes whose hash is not the one in the index.
pub(crate) fn hash_mismatch(
    context: &FailureContext,
    connector: &str,
    expected: &Digest,
    got: &Digest,
) -> Error {
    Failure::hash_mismatch(context, connector, &format!("sha256:{expected}"), &format!("sha256:{got}")).into()
}

pub(super) use check_identity as identity;
