//! The checks between bytes and a package that may run: signature, name, imports, limits. Install and
//! every load make the same ones, in the same order, from this one place.

use crate::clock::Clock;
use crate::digest::Digest;
use crate::error::{Error, HostError, HostErrorKind};
use crate::failure::{Context, Denial, DenialBoundary, DenialCode, Failure, SignatureCode};
use crate::limits::{Ceilings, LimitRequest, Limits};
use crate::manifest::ConnectorName;
use crate::package::{ImportVerdict, Package, Standing};
use crate::trust::{self, Keyring, TrustError, Verified};

/// A package with the proof that it may run.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) package: Package,
    pub(crate) proof: Verified,
}

/// The signature holds, by a key that is trusted for this name. Without any signature only
/// `allow_unsigned` lets a package pass; a signature that is there is always checked.
pub(crate) fn check_signature(
    context: &Context,
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
            trust::check_floor(keyring, name, version)
                .map_err(|error| refused(context, &connector, &error))?;
            tracing::warn!(target: "cofferdam::record", audit_id = context.audit_id().as_str(), connector, "unsigned package allowed for this command");
            Ok(trust::allow_unsigned(name.clone(), version.clone(), *digest))
        }
        None => Err(refused(context, &connector, &TrustError::unsigned(name))),
    }
}

fn refused(context: &Context, connector: &str, error: &TrustError) -> Failure {
    Failure::signature_failure(context, connector, error.code(), error.reason(), error.fix())
}

/// The package says that it is what was asked for.
pub(crate) fn check_identity(
    context: &Context,
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

/// Every import is declared in the manifest and exists on this host.
pub(crate) fn check_imports(context: &Context, package: &Package) -> Result<(), Failure> {
    let Err(error) = package.check_imports() else {
        return Ok(());
    };
    let refused =
        |verdict: &&ImportVerdict| matches!(verdict.standing(), Standing::Undeclared | Standing::Unavailable);
    let verdicts = package.import_verdicts();
    let requested = verdicts.iter().filter(refused).map(|verdict| format!("import:{}", verdict.interface()));
    let granted = package.manifest().imports().iter().map(|import| format!("import:{import}"));
    let denial = Denial {
        boundary: DenialBoundary::ConnectorManifest,
        code: DenialCode::CapabilityUnavailable,
        requested: requested.collect::<Vec<_>>().join(", "),
        granted: granted.collect(),
        allow: error.fix(),
    };
    Err(Failure::capability_denied(context, denial))
}

/// What the manifest asks for lies within the host's ceilings.
pub(crate) fn check_limits(
    ceilings: &Ceilings,
    manifest: &LimitRequest,
    caller: &LimitRequest,
) -> Result<Limits, HostError> {
    Limits::resolve(ceilings, manifest, caller).map_err(|error| {
        HostError::new(HostErrorKind::Validation, format!("A limit is not acceptable: {error}."))
            .hint("Lower the limit in the [limits] table of connector.toml, or in the call.")
    })
}

/// The package is not the one that was pinned.
pub(crate) fn pin_mismatch(context: &Context, what: &str, expected: &Digest, got: &Digest) -> Error {
    Failure::pin_mismatch(context, what, &format!("sha256:{expected}"), &format!("sha256:{got}")).into()
}

/// The bytes that were read are not those that the directory names.
pub(crate) fn hash_mismatch(context: &Context, connector: &str, expected: &Digest, got: &Digest) -> Error {
    Failure::hash_mismatch(context, connector, &format!("sha256:{expected}"), &format!("sha256:{got}")).into()
}

pub(super) use check_identity as identity;
