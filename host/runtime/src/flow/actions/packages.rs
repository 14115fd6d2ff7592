//! The packages that actions require: looked at as a call would, and what an action declares of one held against it.

use std::sync::Arc;

use cofferdam_core::document::{Findings, Key, Refused};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, Context};
use cofferdam_core::spelling;
use cofferdam_egress::vault::BindingName;
use cofferdam_model::action::Requirement;
use cofferdam_model::manifest::{HostGrant, Manifest};
use cofferdam_model::package::Operation;

use super::readiness::Readiness;
use crate::call::{ConnectorRef, Pipeline};

/// A connector that is installed and verified.
pub(super) struct Package {
    pub(super) connector: ConnectorRef,
    pub(super) manifest: Manifest,
    pub(super) operations: Vec<Operation>,
    /// Those that it asks for credentials of.
    pub(super) services: Arc<[String]>,
}

/// What was found of a connector that an action requires.
#[derive(Clone)]
pub(super) enum Found {
    /// It is there, and may run.
    Package(Arc<Package>),
    /// It is not, or may not.
    Not {
        /// Which of the two, in a word.
        word: Readiness,
        message: Arc<str>,
        fix: Arc<str>,
    },
}

/// The connector as it is installed, verified, and compiled if no code is kept of it.
///
/// # Errors
/// The host's own trouble.
pub(super) async fn loaded(pipeline: &Pipeline, required: &Requirement) -> Result<Found, HostError> {
    let (connector, context) = named(required);
    match pipeline.loader.load(&context, &connector, connector.text(), false).await {
        Ok(loaded) => Ok(found(connector, &loaded.checked.package)),
        Err(error) => absent(&connector, error),
    }
}

/// The connector as it is installed, verified. It reads files: not for an executor's threads.
///
/// # Errors
/// As [`loaded`].
pub(super) fn verified(pipeline: &Pipeline, required: &Requirement) -> Result<Found, HostError> {
    let (connector, context) = named(required);
    match pipeline.loader.read_verified(&context, &connector) {
        Ok(package) => Ok(found(connector, &package)),
        Err(error) => absent(&connector, error),
    }
}

/// The connector that is required, and who asks for it.
fn named(required: &Requirement) -> (ConnectorRef, Context) {
    let connector = ConnectorRef::new(required.connector().clone(), required.version().clone());
    let context = Context::new(AuditId::mint()).with_connector(Arc::clone(connector.text()), None);
    (connector, context)
}

fn found(connector: ConnectorRef, package: &cofferdam_model::package::Package) -> Found {
    let services = package.manifest().credentials().iter().map(|grant| grant.service().to_owned());
    Found::Package(Arc::new(Package {
        services: services.collect(),
        connector: connector.pinned(*package.digest()),
        manifest: package.manifest().clone(),
        operations: package.operations().to_vec(),
    }))
}

/// Why the connector cannot be used.
fn absent(connector: &ConnectorRef, error: Error) -> Result<Found, HostError> {
    let (word, message, fix) = match error {
        Error::Host(error) if error.kind() == HostErrorKind::ConnectorNotFound => {
            let hint = error.hint_text().unwrap_or("Install it.");
            let fix = format!("install it with `cofferdam install`, or name another; {}", lower(hint));
            (Readiness::NotInstalled, format!("{connector} is not installed"), fix)
        }
        Error::Host(error) => return Err(error),
        Error::Failure(failure) => {
            let message = format!("{connector} may not run here: {}", failure.message());
            let fix = format!("`cofferdam verify {connector}` says the same, and what to do");
            (Readiness::Refused, message, fix)
        }
    };
    Ok(Found::Not { word, message: message.into(), fix: fix.into() })
}

/// Whether it is the package that is required.
pub(super) fn is_the_one(required: &Requirement, package: &Package) -> bool {
    package.connector.hash() == Some(required.hash())
}

/// The package, with all that is wrong about it told; none where it cannot be used.
pub(super) fn held<'f>(
    required: &Requirement,
    found: &'f Found,
    at: usize,
    findings: &mut Findings<'_>,
) -> Option<&'f Package> {
    let here = [Key::Name("requires"), Key::Name("connectors"), Key::At(at)];
    let under = |key| [here.as_slice(), &[Key::Name(key)]].concat();
    let package = match found {
        Found::Package(package) => package,
        Found::Not { message, fix, .. } => {
            findings.refuse(&under("name"), &Refused::new(&**message, &**fix));
            return None;
        }
    };
    if !is_the_one(required, package) {
        let connector = package.connector.text();
        let hash = package.connector.hash().map(|hash| format!("sha256:{hash}")).unwrap_or_default();
        let message = format!("the installed package of {connector} is another: {hash}");
        let fix = format!(
            "look at it with `cofferdam inspect {connector}` and write its hash, or install the one that was meant"
        );
        findings.refuse(&under("hash"), &Refused::new(message, fix));
        return None;
    }
    scope(required, package, &here, findings);
    Some(&**package)
}

/// What the action declares of a connector is the connector's to give.
fn scope(required: &Requirement, found: &Package, here: &[Key<'_>], findings: &mut Findings<'_>) {
    let (connector, scope) = (&found.connector, required.scope());
    let known = || found.operations.iter().map(|operation| operation.name().json());
    let capabilities = |key, at| [here, &[Key::Name("capabilities"), Key::Name(key), Key::At(at)]].concat();
    let mut fine = true;
    for (at, operation) in scope.operations().iter().enumerate() {
        if !known().any(|name| name == operation) {
            let fix = match spelling::nearest(operation, known()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("it has: {}", known().collect::<Vec<_>>().join(", ")),
            };
            let message = format!("{connector} has no operation `{operation}`");
            findings.refuse(&capabilities("operations", at), &Refused::new(message, fix));
            fine = false;
        }
    }
    for (at, host) in scope.hosts().iter().enumerate() {
        if !found.manifest.hosts().contains(host) {
            let granted: Vec<_> = found.manifest.hosts().iter().map(HostGrant::to_string).collect();
            let message =
                format!("the manifest of {connector} does not grant {host}: an action can only narrow");
            let fix = match granted.is_empty() {
                true => "remove it: the connector is granted no hosts".to_owned(),
                false => format!("remove it, or write one of {}", granted.join(", ")),
            };
            findings.refuse(&capabilities("hosts", at), &Refused::new(message, fix));
            fine = false;
        }
    }
    if fine && let Err(denial) = scope.fits(known(), found.manifest.hosts()) {
        let path = [here, &[Key::Name("capabilities")]].concat();
        findings.refuse(&path, &Refused::new(denial.message(), "narrow what the action declares"));
    }
    for (service, identity) in scope.identities() {
        let path = [here, &[Key::Name("identity"), Key::Name(service)]].concat();
        let Some(grant) = found.manifest.credentials().iter().find(|grant| grant.service() == service) else {
            let services: Vec<_> = found.manifest.credentials().iter().map(|grant| grant.service()).collect();
            let message = format!("{connector} asks for no credential of this service");
            let fix = match services.is_empty() {
                true => "remove it: the connector asks for no credentials".to_owned(),
                false => format!("it asks for: {}", services.join(", ")),
            };
            findings.refuse(&path, &Refused::new(message, fix));
            continue;
        };
        if let Err(error) = BindingName::parse(&format!("{}/{service}/{identity}", grant.kind().name())) {
            let fix = "write the last part of a binding's name, as `cofferdam binding list` shows it";
            findings.refuse(&path, &Refused::new(error.to_string(), fix));
        }
    }
}

fn lower(sentence: &str) -> String {
    let mut chars = sentence.trim_end_matches('.').chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}
