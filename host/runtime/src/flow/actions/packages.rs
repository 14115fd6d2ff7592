//! The packages that actions require: verified as for a call, and checked against the action's declarations.

use std::collections::HashMap;
use std::sync::Arc;

use cofferdam_core::document::{Diagnostics, InvalidValue, PathSegment};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, FailureContext};
use cofferdam_core::suggest;
use cofferdam_egress::vault::BindingName;
use cofferdam_model::action::{Action, ConnectorRequirement};
use cofferdam_model::manifest::{HostGrant, Manifest};
use cofferdam_model::package::OperationSignature;
use serde::Serialize;

use super::check::fitting;
use super::store::{ActionStore, StoredAction};
use crate::call::{CallPipeline, ConnectorRef};

/// A connector that is installed and verified.
pub(super) struct StepPackage {
    pub(super) connector: ConnectorRef,
    pub(super) manifest: Manifest,
    pub(super) operations: Vec<OperationSignature>,
    /// The services that it requests credentials for.
    pub(super) services: Arc<[String]>,
}

/// The lookup result of a connector that an action requires.
#[derive(Clone)]
pub(super) enum PackageLookup {
    /// The connector is installed and may run.
    Package(Arc<StepPackage>),
    /// The connector is not installed, or may not run.
    Unusable {
        /// The reason, as one word.
        word: Readiness,
        message: Arc<str>,
        fix: Arc<str>,
    },
}

/// Looks up the installed connector, verifies it, and compiles it if its code is not cached.
///
/// # Errors
/// The host's own error.
pub(super) async fn loaded(
    pipeline: &CallPipeline,
    required: &ConnectorRequirement,
) -> Result<PackageLookup, HostError> {
    let (connector, context) = named(required);
    match pipeline.loader.load(&context, &connector, connector.text(), false).await {
        Ok(loaded) => Ok(found(connector, &loaded.checked.package)),
        Err(error) => absent(&connector, error),
    }
}

/// Looks up the installed connector and verifies it. It reads files: not for an executor's threads.
///
/// # Errors
/// As [`loaded`].
pub(super) fn verified(
    pipeline: &CallPipeline,
    required: &ConnectorRequirement,
) -> Result<PackageLookup, HostError> {
    let (connector, context) = named(required);
    match pipeline.loader.read_verified(&context, &connector) {
        Ok(package) => Ok(found(connector, &package)),
        Err(error) => absent(&connector, error),
    }
}

/// Returns the reference to the required connector, and the context of its lookup.
fn named(required: &ConnectorRequirement) -> (ConnectorRef, FailureContext) {
    let connector = ConnectorRef::new(required.connector().clone(), required.version().clone());
    let context = FailureContext::new(AuditId::mint()).with_connector(Arc::clone(connector.text()), None);
    (connector, context)
}

fn found(connector: ConnectorRef, package: &cofferdam_model::package::Package) -> PackageLookup {
    let services = package.manifest().credentials().iter().map(|grant| grant.service().to_owned());
    PackageLookup::Package(Arc::new(StepPackage {
        services: services.collect(),
        connector: connector.pinned(*package.digest()),
        manifest: package.manifest().clone(),
        operations: package.operations().to_vec(),
    }))
}

/// Returns the reason that keeps the connector from being used.
fn absent(connector: &ConnectorRef, error: Error) -> Result<PackageLookup, HostError> {
    let (word, message, fix) = match error {
        Error::Host(error) if error.kind() == HostErrorKind::ConnectorNotFound => {
            let hint = error.hint().unwrap_or("Install it.");
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
    Ok(PackageLookup::Unusable { word, message: message.into(), fix: fix.into() })
}

/// True if it is the required package.
pub(super) fn matches_pin(required: &ConnectorRequirement, package: &StepPackage) -> bool {
    package.connector.hash() == Some(required.hash())
}

/// Returns the package, and reports everything that is wrong about it. None if it cannot be used.
pub(super) fn usable_package<'f>(
    required: &ConnectorRequirement,
    found: &'f PackageLookup,
    at: usize,
    findings: &mut Diagnostics<'_>,
) -> Option<&'f StepPackage> {
    let here = [PathSegment::Name("requires"), PathSegment::Name("connectors"), PathSegment::At(at)];
    let under = |key| [here.as_slice(), &[PathSegment::Name(key)]].concat();
    let package = match found {
        PackageLookup::Package(package) => package,
        PackageLookup::Unusable { message, fix, .. } => {
            findings.refuse(&under("name"), &InvalidValue::new(&**message, &**fix));
            return None;
        }
    };
    if !matches_pin(required, package) {
        let connector = package.connector.text();
        let hash = package.connector.hash().map(|hash| format!("sha256:{hash}")).unwrap_or_default();
        let message = format!("the installed package of {connector} is another: {hash}");
        let fix = format!(
            "look at it with `cofferdam inspect {connector}` and write its hash, or install the one that was meant"
        );
        findings.refuse(&under("hash"), &InvalidValue::new(message, fix));
        return None;
    }
    scope(required, package, &here, findings);
    Some(&**package)
}

/// Checks that the connector has everything that the action declares of it.
fn scope(
    required: &ConnectorRequirement,
    found: &StepPackage,
    here: &[PathSegment<'_>],
    findings: &mut Diagnostics<'_>,
) {
    let (connector, scope) = (&found.connector, required.scope());
    let known = || found.operations.iter().map(|operation| operation.name().json());
    let capabilities = |key, at| {
        [here, &[PathSegment::Name("capabilities"), PathSegment::Name(key), PathSegment::At(at)]].concat()
    };
    let mut fine = true;
    for (at, operation) in scope.operations().iter().enumerate() {
        if !known().any(|name| name == operation) {
            let fix = match suggest::nearest(operation, known()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("it has: {}", known().collect::<Vec<_>>().join(", ")),
            };
            let message = format!("{connector} has no operation `{operation}`");
            findings.refuse(&capabilities("operations", at), &InvalidValue::new(message, fix));
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
            findings.refuse(&capabilities("hosts", at), &InvalidValue::new(message, fix));
            fine = false;
        }
    }
    if fine && let Err(denial) = scope.fits(known(), found.manifest.hosts()) {
        let path = [here, &[PathSegment::Name("capabilities")]].concat();
        findings.refuse(&path, &InvalidValue::new(denial.message(), "narrow what the action declares"));
    }
    for (service, identity) in scope.identities() {
        let path = [here, &[PathSegment::Name("identity"), PathSegment::Name(service)]].concat();
        let Some(grant) = found.manifest.credentials().iter().find(|grant| grant.service() == service) else {
            let services: Vec<_> = found.manifest.credentials().iter().map(|grant| grant.service()).collect();
            let message = format!("{connector} asks for no credential of this service");
            let fix = match services.is_empty() {
                true => "remove it: the connector asks for no credentials".to_owned(),
                false => format!("it asks for: {}", services.join(", ")),
            };
            findings.refuse(&path, &InvalidValue::new(message, fix));
            continue;
        };
        if let Err(error) = BindingName::parse(&format!("{}/{service}/{identity}", grant.kind().name())) {
            let fix = "write the last part of a binding's name, as `cofferdam binding list` shows it";
            findings.refuse(&path, &InvalidValue::new(error.to_string(), fix));
        }
    }
}

fn lower(sentence: &str) -> String {
    let mut chars = sentence.trim_end_matches('.').chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// A stored action with its readiness.
#[derive(Debug)]
#[non_exhaustive]
pub struct ListedAction {
    /// The name of its file, without `.md`.
    pub name: String,
    /// The action. None if its file cannot be parsed.
    pub action: Option<Arc<Action>>,
    /// Its readiness.
    pub readiness: Readiness,
    /// The problems if it cannot run: all of them, each with its line.
    pub problem: Option<HostError>,
}

/// The readiness of an action to run here, as far as its files show. Bindings and circuits are checked by each
/// call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Readiness {
    /// It can run.
    Ready,
    /// Its file cannot be parsed as an action.
    Unreadable,
    /// A required connector is not installed in that version.
    NotInstalled,
    /// The installed package of a required connector does not have the hash that the action names.
    OtherPackage,
    /// A required connector may not run here: its signature, its bytes, its imports or its limits.
    Refused,
    /// Its declarations or inputs do not fit its connectors.
    DoesNotFit,
    /// An installed package cannot be read.
    Unknown,
}

impl Readiness {
    /// Returns the stable word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Unreadable => "unreadable",
            Self::NotInstalled => "not_installed",
            Self::OtherPackage => "other_package",
            Self::Refused => "refused",
            Self::DoesNotFit => "does_not_fit",
            Self::Unknown => "unknown",
        }
    }
}

/// Lists all stored actions. Connectors are read and verified, and neither compiled nor run. It reads files: not
/// for an executor's threads.
///
/// # Errors
/// The directory of actions cannot be read, or others could have written it.
pub(crate) fn list(pipeline: &CallPipeline, store: &ActionStore) -> Result<Vec<ListedAction>, HostError> {
    let mut seen = HashMap::new();
    let each = |StoredAction { name, action }: StoredAction| match action {
        Err(error) => {
            ListedAction { name, action: None, readiness: Readiness::Unreadable, problem: Some(error) }
        }
        Ok(action) => {
            let (readiness, problem) = match ready(pipeline, &action, &mut seen) {
                Ok(()) => (Readiness::Ready, None),
                Err((word, error)) => (word, Some(error)),
            };
            ListedAction { name, action: Some(action), readiness, problem }
        }
    };
    Ok(store.list()?.into_iter().map(each).collect())
}

/// The lookup results of connectors, by `name@version`.
type LookupCache = HashMap<String, PackageLookup>;

fn ready(
    pipeline: &CallPipeline,
    action: &Arc<Action>,
    seen: &mut LookupCache,
) -> Result<(), (Readiness, HostError)> {
    let mut found = Vec::with_capacity(action.requires().len());
    for required in action.requires() {
        let key = format!("{}@{}", required.connector(), required.version());
        let one = match seen.get(&key) {
            Some(one) => one.clone(),
            None => {
                let one = verified(pipeline, required);
                let one = one.map_err(|error| (Readiness::Unknown, error))?;
                seen.insert(key, one.clone());
                one
            }
        };
        found.push(one);
    }
    let words = action.requires().iter().zip(&found).filter_map(|(required, found)| match found {
        PackageLookup::Unusable { word, .. } => Some(*word),
        PackageLookup::Package(package) => {
            (!matches_pin(required, package)).then_some(Readiness::OtherPackage)
        }
    });
    // A problem of a package explains the other problems.
    let word = words.into_iter().next().unwrap_or(Readiness::DoesNotFit);
    fitting(pipeline, Arc::clone(action), &found).map(drop).map_err(|error| (word, error))
}
