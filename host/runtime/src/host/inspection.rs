//! Inspection of a connector for a security reviewer: identity, signer, grants, limits, operations.

use std::collections::BTreeMap;
use std::fmt;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError};
use cofferdam_core::failure::{AuditId, Failure, FailureContext, RepeatRule};
use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::limits::{LimitRequest, Limits};
use cofferdam_model::manifest::{CredentialGrant, CredentialPlacement, DeclaredIdempotency, OperationEffect};
use cofferdam_model::package::{OperationSignature, Package};
use cofferdam_model::registry::{Acceptance, StoredPackage};
use cofferdam_model::trust::{Envelope, KeyId, Keyring, KeyringFingerprint, Provenance, Verified};
use serde::Serialize;

use super::Host;
use crate::call::{
    CheckedPackage, ConnectorRef, check_imports, check_limits, check_manifest_limits, check_signature,
    hash_mismatch,
};

/// The contents of a package, read without running any of it.
#[derive(Debug, Clone, Serialize)]
pub struct PackageInspection {
    /// `<scheme>://<owner>/<repo>`.
    pub name: String,
    /// The exact version.
    pub version: String,
    /// The manifest's description.
    pub description: Option<String>,
    /// The manifest's publisher. It is a claim, unlike the signer.
    pub publisher: Option<String>,
    /// `sha256:` and 64 digits.
    pub hash: String,
    /// The size of the package, in bytes.
    pub size: u64,
    /// Its signer, and the trust in that signer here.
    pub signature: SignatureView,
    /// The sources and tools that it was made from, as the signature claims. None without one for these bytes. The
    /// signature need not be trusted; see `signature`.
    pub provenance: Option<Provenance>,
    /// True if the installed file still has the hash in its name. None for a file that is not installed.
    pub hash_matches: Option<bool>,
    /// Every import of the component, with its status in the manifest and on this host.
    pub imports: Vec<ImportView>,
    /// The manifest's `imports` that the component does not import: more than it needs.
    pub unused_imports: Vec<String>,
    /// The `host:port`s it may reach.
    pub network: Vec<String>,
    /// The methods that it may send there in addition to those of every connector.
    pub methods: Vec<String>,
    /// The credentials that it may have sent for it, with their hosts.
    pub credentials: Vec<CredentialView>,
    /// The limits of a call, those of the manifest, and the ceilings.
    pub limits: BTreeMap<&'static str, LimitView>,
    /// Its operations.
    pub operations: Vec<OperationView>,
    /// The properties that deserve a second look, as sentences.
    pub risks: Vec<String>,
}

/// The result of the signature check.
#[derive(Debug, Clone, Serialize)]
pub struct SignatureView {
    /// `trusted`, or the code of the failure that a call would end with.
    pub status: String,
    /// The id of the first accepted key.
    pub signer: Option<String>,
    /// The ids of all accepted keys.
    pub signers: Vec<String>,
    /// The first keys of their successions, in order: the same for all keys of one owner.
    #[serde(skip)]
    pub owners: Vec<String>,
    /// The number of different keys that must sign, if the keyring has a threshold for the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<usize>,
    /// The reason that it is not accepted, and the fix.
    pub reason: Option<String>,
}

/// One credential that the connector requests.
#[derive(Debug, Clone, Serialize)]
pub struct CredentialView {
    /// Its kind, as in a binding's name.
    pub kind: &'static str,
    /// Its service, as in a binding's name.
    pub service: String,
    /// Its place in a request.
    pub place: String,
    /// The name of the service in AWS signatures, if it signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signs_for: Option<String>,
    /// The `host:port`s that it may be sent to.
    pub hosts: Vec<String>,
    /// True if a call runs without it if none is bound.
    pub optional: bool,
}

/// One import.
#[derive(Debug, Clone, Serialize)]
pub struct ImportView {
    /// Its name.
    pub name: String,
    /// `plumbing` (linked by the standard library, grants nothing), `declared`, `undeclared` or `unavailable`.
    pub standing: &'static str,
}

/// One limit: amounts in the limit's unit.
#[derive(Debug, Clone, Serialize)]
pub struct LimitView {
    /// The limit of a call.
    pub effective: u64,
    /// The limit in the manifest.
    pub manifest: Option<u64>,
    /// The limit of a connector whose manifest asks for none.
    pub default: u64,
    /// The most that any call gets here.
    pub ceiling: u64,
    /// The unit.
    pub unit: &'static str,
}

/// One operation.
#[derive(Debug, Clone, Serialize)]
pub struct OperationView {
    /// The name that callers use.
    pub name: String,
    /// Its signature, for example `list_issues(repo: string) -> list<..>`.
    pub signature: String,
    /// The parameters with their types.
    pub params: Vec<(String, String)>,
    /// The result's type.
    pub result: Option<String>,
    /// Its documentation, from the package.
    pub docs: Option<String>,
    /// The documentation of its parameters, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub param_docs: BTreeMap<String, String>,
    /// The manifest's declaration about repeating it.
    pub idempotency: DeclaredIdempotency,
    /// The repeat rule of the host: always, never, or until it sends an unkeyed request.
    pub repeat: RepeatRule,
    /// The manifest's declaration about its effect on its service, if there is one.
    pub effect: Option<OperationEffect>,
    /// True if its value may be partial: a record with a list `errors`, one for each failed item.
    pub partial: bool,
}

/// An installed package, with its types and its acceptance.
#[derive(Debug)]
pub struct InstalledPackage {
    /// Its contents and its signers.
    pub inspection: PackageInspection,
    /// The package as it is on disk, without its bytes. The verdict about its signature is in `inspection`.
    pub package: Package,
    /// The acceptance of its grants; none if it was not accepted as it is.
    pub acceptance: Option<Acceptance>,
}

impl OperationView {
    /// Returns true if it is declared to change nothing, which the host enforces.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.effect == Some(OperationEffect::ReadOnly)
    }
}

impl Host {
    /// Inspects an installed connector.
    ///
    /// # Errors
    /// It is not installed, or its package cannot be read; `hash_mismatch` if it was changed and cannot be parsed
    /// any more. A changed package that can be parsed is shown with `hash_matches` false.
    pub fn inspect(&self, connector: &ConnectorRef) -> Result<PackageInspection, Error> {
        self.inspect_installed(connector, true)
    }

    /// Inspects an installed connector whose bytes are those that were installed, as a basis of a comparison.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect), and `hash_mismatch` if the package was changed.
    pub fn inspect_unchanged(&self, connector: &ConnectorRef) -> Result<PackageInspection, Error> {
        self.inspect_installed(connector, false)
    }

    /// Inspects an installed connector as [`inspect`](Self::inspect) does, and returns its types and its acceptance with it.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn installed_package(&self, connector: &ConnectorRef) -> Result<InstalledPackage, Error> {
        self.read_installed(connector, true)
    }

    fn inspect_installed(
        &self,
        connector: &ConnectorRef,
        accepts_changed: bool,
    ) -> Result<PackageInspection, Error> {
        Ok(self.read_installed(connector, accepts_changed)?.inspection)
    }

    fn read_installed(
        &self,
        connector: &ConnectorRef,
        accepts_changed: bool,
    ) -> Result<InstalledPackage, Error> {
        let digest = self.pipeline.loader.find(connector)?;
        let StoredPackage { bytes, signature, acceptance, .. } = self.stored_package(connector)?;
        let got = Digest::sha256(&bytes);
        let matches = got == digest;
        let opened = self.pipeline.loader.sandbox.open_blocking(bytes).and_then(|package| {
            let inspection = self.inspect_parsed(&package, signature.as_deref())?;
            Ok((package, inspection))
        });
        match opened {
            Ok((package, inspection)) if matches || accepts_changed => Ok(InstalledPackage {
                inspection: PackageInspection { hash_matches: Some(matches), ..inspection },
                acceptance: acceptance.filter(|acceptance| acceptance.covers(&package)),
                package: package.without_bytes(),
            }),
            Err(error) if matches => Err(error.into()),
            _ => {
                let key = connector.to_string();
                let context = FailureContext::new(AuditId::mint()).with_connector(key.as_str(), None);
                Err(hash_mismatch(&context, &key, &digest, &got))
            }
        }
    }

    /// Reads an installed package as it is on disk, unverified.
    ///
    /// # Errors
    /// It is not installed, or it cannot be read.
    pub fn stored_package(&self, connector: &ConnectorRef) -> Result<StoredPackage, HostError> {
        let loader = &self.pipeline.loader;
        Ok(loader.registry.read(&loader.find(connector)?)?)
    }

    /// Inspects a package file, with its detached signature if there is one. Nothing is compiled or run.
    ///
    /// # Errors
    /// It is not a package.
    pub fn inspect_package(
        &self,
        bytes: Vec<u8>,
        signature: Option<&[u8]>,
    ) -> Result<PackageInspection, HostError> {
        self.inspect_parsed(&self.pipeline.loader.sandbox.open_blocking(bytes)?, signature)
    }

    pub(super) fn inspect_parsed(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
    ) -> Result<PackageInspection, HostError> {
        self.inspection(package, signature, self.signature_view(package, signature)?)
    }

    /// Verifies hash, signature and manifest of a package file as an install would, and inspects it. Nothing is compiled,
    /// run or installed.
    ///
    /// # Errors
    /// As [`Host::install`].
    pub async fn verify_package(
        &self,
        bytes: Vec<u8>,
        signature: Option<&[u8]>,
        expected: Option<Digest>,
        allow_unsigned: bool,
    ) -> Result<PackageInspection, Error> {
        let context = FailureContext::new(AuditId::mint());
        let (_, keyring, CheckedPackage { package, proof }) =
            self.check_file(&context, bytes, signature, expected, allow_unsigned).await?;
        Ok(self.inspection(&package, signature, SignatureView::new(&keyring, &package, Ok(&proof)))?)
    }

    fn inspection(
        &self,
        package: &Package,
        envelope: Option<&[u8]>,
        signature: SignatureView,
    ) -> Result<PackageInspection, HostError> {
        let manifest = package.manifest();
        check_manifest_limits(&self.pipeline.loader.ceilings, manifest)?;
        let mut inspection = PackageInspection {
            name: manifest.name().to_string(),
            version: manifest.version().to_string(),
            description: manifest.description().map(ToOwned::to_owned),
            publisher: manifest.publisher().map(ToOwned::to_owned),
            hash: format!("sha256:{}", package.digest()),
            size: package.bytes().len() as u64,
            signature,
            provenance: provenance(package, envelope),
            hash_matches: None,
            imports: package
                .import_verdicts()
                .iter()
                .map(|import| ImportView { name: import.name().to_owned(), standing: import.status().name() })
                .collect(),
            unused_imports: package.unused_imports().into_iter().map(ToOwned::to_owned).collect(),
            network: manifest.hosts().iter().map(ToString::to_string).collect(),
            methods: manifest.methods().iter().map(ToString::to_string).collect(),
            credentials: manifest.credentials().iter().map(credential).collect(),
            limits: self.limit_views(manifest.limits())?,
            operations: package.operations().iter().map(|operation| view(package, operation)).collect(),
            risks: Vec::new(),
        };
        inspection.risks = risks(&inspection);
        Ok(inspection)
    }

    /// Checks a package as an install would, except for the signature: imports, limits, and that it compiles and
    /// links. For connector authors, before they sign.
    ///
    /// # Errors
    /// As [`Host::install`].
    pub async fn check_package(&self, bytes: Vec<u8>) -> Result<(), Error> {
        self.checked_package(bytes).await.map(drop)
    }

    /// Checks as [`check_package`](Self::check_package) does, and returns the package.
    pub async fn checked_package(&self, bytes: Vec<u8>) -> Result<Package, Error> {
        let package = self.pipeline.loader.sandbox.parser().open(bytes).await?;
        check_manifest_limits(&self.pipeline.loader.ceilings, package.manifest())?;
        let connector = format!("{}@{}", package.manifest().name(), package.manifest().version());
        let context = FailureContext::new(AuditId::mint()).with_connector(connector, None);
        check_imports(&context, &package)?;
        self.limit_views(package.manifest().limits())?;
        let proof = cofferdam_model::trust::allow_unsigned(
            package.manifest().name().clone(),
            package.manifest().version().clone(),
            *package.digest(),
        );
        self.pipeline.loader.compile(&context, &package, &proof).await?;
        Ok(package)
    }

    /// Checks the signature of a package, and describes the result.
    pub(super) fn signature_view(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
    ) -> Result<SignatureView, HostError> {
        let loader = &self.pipeline.loader;
        let keyring = loader.keyring.load()?;
        let context = FailureContext::new(AuditId::mint());
        let verdict = check_signature(&context, package, signature, &keyring, false, &*loader.clock);
        Ok(SignatureView::new(&keyring, package, verdict.as_ref()))
    }

    fn limit_views(&self, manifest: &LimitRequest) -> Result<BTreeMap<&'static str, LimitView>, HostError> {
        let ceilings = &self.pipeline.loader.ceilings;
        let none = LimitRequest::default();
        let resolve = |manifest: &LimitRequest| -> Result<Limits, HostError> {
            check_limits(ceilings, manifest, &none, &none, &Default::default())
        };
        let (limits, defaults) = (resolve(manifest)?, resolve(&none)?);
        let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(BTreeMap::from([
            (
                "fuel",
                LimitView {
                    effective: limits.fuel(),
                    manifest: manifest.fuel(),
                    default: defaults.fuel(),
                    ceiling: ceilings.fuel(),
                    unit: "fuel",
                },
            ),
            (
                "wall_time",
                LimitView {
                    effective: ms(limits.wall_time()),
                    manifest: manifest.wall_time().map(ms),
                    default: ms(defaults.wall_time()),
                    ceiling: ms(ceilings.wall_time()),
                    unit: "ms",
                },
            ),
            (
                "memory",
                LimitView {
                    effective: limits.memory(),
                    manifest: manifest.memory(),
                    default: defaults.memory(),
                    ceiling: ceilings.memory(),
                    unit: "bytes",
                },
            ),
        ]))
    }
}

impl SignatureView {
    fn new(keyring: &Keyring, package: &Package, verdict: Result<&Verified, &Failure>) -> Self {
        let signers = verdict.map(Verified::signers).unwrap_or_default();
        let status = match verdict {
            Err(failure) => failure.code(),
            Ok(_) if signers.is_empty() => "unsigned",
            Ok(_) => "trusted",
        };
        Self {
            status: status.to_owned(),
            signer: signers.first().map(ToString::to_string),
            signers: signers.iter().map(ToString::to_string).collect(),
            owners: owners(keyring, signers),
            threshold: keyring.threshold(package.manifest().name()).map(|(_, number)| number.get()),
            reason: verdict.err().map(|failure| failure.message().to_owned()),
        }
    }
}

/// Returns the first keys of the signers' successions, which stay the same when keys are rotated.
pub(super) fn owners(keyring: &Keyring, signers: &[KeyId]) -> Vec<String> {
    let mut owners: Vec<_> = signers.iter().map(|id| keyring.first_of_succession(id).to_string()).collect();
    owners.sort();
    owners
}

/// Returns the provenance in a signature of the package.
fn provenance(package: &Package, signature: Option<&[u8]>) -> Option<Provenance> {
    let statement = Envelope::parse(signature?).ok()?.unverified_statement().ok()?;
    (statement.digest() == package.digest()).then(|| statement.provenance().cloned())?
}

/// Returns the properties that deserve a second look.
fn risks(of: &PackageInspection) -> Vec<String> {
    let mut risks = Vec::new();
    for host in of.network.iter().filter(|host| host.starts_with("http://")) {
        let sent = of.credentials.iter().filter(|credential| credential.hosts.contains(host));
        let names: Vec<_> = sent.map(|it| format!("{}/{}", it.kind, it.service)).collect();
        let with = if names.is_empty() { String::new() } else { format!(", with {}", names.join(" and ")) };
        risks.push(format!("requests to {host} are not encrypted{with}"));
    }
    // The host repeats it after a failure, whatever it sent: without the call's key, a write may happen twice.
    let repeats =
        |it: &&OperationView| it.repeat == RepeatRule::Always && it.effect != Some(OperationEffect::ReadOnly);
    let repeated = of.operations.iter().filter(repeats).filter(|_| !of.network.is_empty());
    let repeated: Vec<_> = repeated.map(|it| it.name.as_str()).collect();
    match repeated.as_slice() {
        [] => {}
        [one] => risks.push(format!("{one} may write, and is repeated after a failure whatever it sent")),
        many => {
            // The package chose the names: the warning comes first, and a long list does not hide it.
            let (shown, more) = many.split_at_checked(super::access_query::NAMED).unwrap_or((many, &[]));
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            let (count, shown) = (many.len(), shown.join(", "));
            risks.push(format!(
                "{count} operations may write, and are repeated after a failure whatever they sent: {shown}{more}"
            ));
        }
    }
    let asks = !of.network.is_empty() || !of.credentials.is_empty();
    if asks && !of.imports.iter().any(|import| import.name.starts_with("wasi:http/")) {
        risks.push("it asks for hosts or credentials, and imports nothing that sends requests".to_owned());
    }
    let unused = of.unused_imports.iter();
    risks.extend(
        unused.map(|import| format!("it asks for {import}, and does not import it: more than it needs")),
    );
    risks
}

fn credential(grant: &CredentialGrant) -> CredentialView {
    CredentialView {
        kind: grant.kind().name(),
        service: grant.service().to_owned(),
        place: grant.placement().to_string(),
        signs_for: matches!(grant.placement(), CredentialPlacement::Signature)
            .then(|| grant.signing_name().to_owned()),
        hosts: grant.hosts().iter().map(ToString::to_string).collect(),
        optional: grant.optional(),
    }
}

impl fmt::Display for CredentialView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optional = if self.optional { ", optional" } else { "" };
        let signs = self.signs_for.as_ref().filter(|name| **name != self.service);
        let signs = signs.map_or_else(String::new, |name| format!(" for {name}"));
        let hosts = self.hosts.join(", ");
        write!(f, "{}/{}, {}{signs}, to {hosts}{optional}", self.kind, self.service, self.place)
    }
}

fn view(package: &Package, operation: &OperationSignature) -> OperationView {
    let name = operation.name().json();
    let docs = package.docs().operation(name);
    OperationView {
        name: name.to_owned(),
        signature: operation.to_string(),
        params: operation
            .params()
            .iter()
            .map(|param| (param.name.json().to_owned(), param.shape.to_string()))
            .collect(),
        result: operation.result().map(ToString::to_string),
        docs: docs.map(|docs| docs.text().to_owned()),
        param_docs: operation
            .params()
            .iter()
            .map(|param| param.name.json())
            .filter_map(|param| Some((param.to_owned(), docs?.param(param)?.to_owned())))
            .collect(),
        idempotency: package.manifest().idempotency(name),
        repeat: package.manifest().repeat_rule(name),
        effect: package.manifest().effect(name),
        partial: operation.lists_errors(),
    }
}

impl Host {
    /// Returns the package of an installed connector, without its bytes, verified as by a call and not compiled. It
    /// reads and hashes the file: not for a thread that runs guests.
    ///
    /// # Errors
    /// It is not installed; or the failure of a call to it.
    pub fn package(&self, connector: &ConnectorRef) -> Result<Package, Error> {
        let context = FailureContext::new(AuditId::mint()).with_connector(connector.to_string(), None);
        self.pipeline.loader.read_verified(&context, connector)
    }
}

/// The installed packages, the keyring and the actions, as fingerprints of their files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledRevision {
    pub(crate) ground: RevisionGround,
    /// The fingerprints of the action files, ordered by file name.
    pub actions: Vec<(String, FileFingerprint)>,
}

/// The state that every action depends on: the installed packages and the keyring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionGround {
    index: Option<FileFingerprint>,
    keyring: KeyringFingerprint,
}

impl RevisionGround {
    /// True if any later change is sure to be detected.
    pub fn is_stable(&self) -> bool {
        self.index.is_none_or(|index| index.is_stable()) && self.keyring.is_stable()
    }
}

impl Host {
    /// Returns the current state, for a later comparison. It reads the metadata of every file: not for an
    /// executor's threads.
    pub fn installed_revision(&self) -> InstalledRevision {
        InstalledRevision { ground: self.revision_ground(), actions: self.action_store.stamps() }
    }

    /// Returns the current state of the installed packages and the keyring, for a later comparison.
    pub fn revision_ground(&self) -> RevisionGround {
        let loader = &self.pipeline.loader;
        RevisionGround { index: loader.registry.index_fingerprint(), keyring: loader.keyring.fingerprint() }
    }

    /// Returns the names of the actions, in order.
    ///
    /// # Errors
    /// As [`actions`](Self::actions).
    pub fn action_names(&self) -> Result<Vec<String>, HostError> {
        self.action_store.names()
    }
}
