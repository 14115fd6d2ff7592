//! Installs packages, with the same checks as a call, before anything is written.

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::operator::{OperatorAction, OperatorState};
use cofferdam_core::failure::{AuditId, FailureContext};
use cofferdam_model::package::Package;
use cofferdam_model::registry::{Acceptance, InstallOutcome, Registry, RegistryError};
use cofferdam_model::trust::Keyring;
use semver::Version;
use serde::Serialize;

use super::Host;
use super::consent::Consent;
use super::operator::{ChangeRecorder, OperatorChange, activation, package_state};
use crate::call::{
    CheckedPackage, check_bytes, check_imports, check_manifest_limits, check_signature, pin_mismatch,
};

/// The options of an install.
#[derive(Debug, Clone, Default)]
pub struct InstallOptions {
    expected: Option<Digest>,
    allow_unsigned: bool,
    allow_downgrade: bool,
    is_accepted: bool,
}

impl InstallOptions {
    /// Refuses any other package than this one.
    #[must_use]
    pub fn expect_hash(mut self, hash: Digest) -> Self {
        self.expected = Some(hash);
        self
    }

    /// Accepts the access that exactly this package asks for, and refuses any other package. The embedding program says so
    /// for an operator who reviewed it ([`Host::review`]). A package needs it unless it asks for no more than the active
    /// version, which was accepted and has the same signer.
    #[must_use]
    pub fn accept(mut self, hash: Digest) -> Self {
        self.is_accepted = true;
        self.expect_hash(hash)
    }

    /// Accepts a package that has no signature, for local development. It still has to be allowed for every call,
    /// and an invalid signature is refused nevertheless.
    #[must_use]
    pub fn allow_unsigned(mut self) -> Self {
        self.allow_unsigned = true;
        self
    }

    /// Accepts a version that is older than one that is or was installed. A signature stays valid after a
    /// vulnerability is found, so offering an old release again is an attack. Never accepts a version below the
    /// minimum that the keyring holds for the connector.
    #[must_use]
    pub fn allow_downgrade(mut self) -> Self {
        self.allow_downgrade = true;
        self
    }
}

/// The result of an install.
#[derive(Debug, Clone, Serialize)]
pub struct Installed {
    /// `<scheme>://<owner>/<repo>`.
    pub name: String,
    /// The exact version.
    pub version: String,
    /// The package's hash, `sha256:` and 64 digits, as `sha256sum` prints it for the file.
    pub hash: String,
    /// The id of the key whose signature was accepted. None if an unsigned package was allowed.
    pub signer: Option<String>,
    /// The ids of all keys whose signatures were accepted.
    pub signers: Vec<String>,
    /// True if the same bytes were installed before.
    pub already_installed: bool,
    /// The highest version that was here before, installed or removed since. None if this is the first.
    pub previous: Option<String>,
    /// True if this is a lower version than that, which the options allowed.
    pub downgrade: bool,
    /// True if this version is the active one of its name. An install of a version that is installed already does not make
    /// it active.
    pub active: bool,
    /// The version that was active before this install made this one active.
    pub replaces: Option<String>,
    /// The consent that the install needed: `accepted` before, `no_wider` than the active version, or `required`, and given.
    pub consent: Consent,
    /// The audit id of this install.
    pub audit_id: AuditId,
}

/// A package that passed the checks of an install.
struct CheckedInstall {
    package: Package,
    signers: Vec<String>,
    previous: Option<Version>,
    downgrade: bool,
    consent: Consent,
    /// None if it was accepted before.
    acceptance: Option<(Acceptance, OperatorChange)>,
}

impl Host {
    /// Verifies a package (hash, signature, manifest, imports, limits), compiles it, records the install, and installs
    /// it as the active version of its name. On any error no installed connector has changed.
    ///
    /// # Errors
    /// [`Error::Failure`] if hash, signature or capabilities refuse it; [`Error::Host`] if the package, its manifest or the
    /// host's own files are at fault, if an operator has to accept its access first (`consent_required`), and if the audit
    /// log cannot be written.
    pub async fn install(
        &self,
        package: Vec<u8>,
        signature: Option<Vec<u8>>,
        options: InstallOptions,
    ) -> Result<Installed, Error> {
        let context = FailureContext::new(AuditId::mint());
        let installed = self.check_and_write(&context, package, signature, &options).await;
        match &installed {
            Ok(done) => tracing::info!(
                target: "cofferdam::record", audit_id = context.audit_id().as_str(),
                connector = format!("{}@{}", done.name, done.version), hash = done.hash, signer = done.signer,
                previous = done.previous, downgrade = done.downgrade, "installed"
            ),
            Err(error) => tracing::info!(
                target: "cofferdam::record", audit_id = context.audit_id().as_str(), %error, "install refused"
            ),
        }
        installed.map_err(|error| match error {
            Error::Host(error) => Error::Host(error.with_request_id(context.audit_id())),
            failure @ Error::Failure(_) => failure,
        })
    }

    /// Makes every check of an install, and compiles the package, without installing it.
    ///
    /// # Errors
    /// As [`install`](Self::install).
    pub async fn check_install(
        &self,
        package: Vec<u8>,
        signature: Option<&[u8]>,
        options: &InstallOptions,
    ) -> Result<(), Error> {
        self.check(&FailureContext::new(AuditId::mint()), package, signature, options).await.map(drop)
    }

    async fn check(
        &self,
        context: &FailureContext,
        bytes: Vec<u8>,
        signature: Option<&[u8]>,
        options: &InstallOptions,
    ) -> Result<CheckedInstall, Error> {
        let (context, keyring, CheckedPackage { package, proof }) =
            self.check_file(context, bytes, signature, options.expected, options.allow_unsigned).await?;
        let (previous, downgrade) = self.check_version(&package, options.allow_downgrade)?;
        let (_, consent) = self.consent(&package, &self.inspect_parsed(&package, signature)?).await?;
        let acceptance = self.acceptance(&keyring, &package, &proof, &consent, options.is_accepted)?;
        self.pipeline.loader.compile(&context, &package, &proof).await?;
        let signers = proof.signers().iter().map(ToString::to_string).collect();
        Ok(CheckedInstall { package, signers, previous, downgrade, consent, acceptance })
    }

    /// Makes the checks of a package file that depend on nothing that is installed, with the keyring that it returns.
    pub(super) async fn check_file(
        &self,
        context: &FailureContext,
        bytes: Vec<u8>,
        signature: Option<&[u8]>,
        expected: Option<Digest>,
        allow_unsigned: bool,
    ) -> Result<(FailureContext, Keyring, CheckedPackage), Error> {
        let loader = &self.pipeline.loader;
        let digest = Digest::sha256(&bytes);
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            return Err(pin_mismatch(context, "The package", &expected, &digest));
        }
        let keyring = loader.keyring.load()?;
        check_bytes(context, &digest, signature, &keyring, &*loader.clock)?;
        let package = loader.sandbox.parser().open(bytes).await?;
        let connector = format!("{}@{}", package.manifest().name(), package.manifest().version());
        let context = context.clone().with_connector(connector, Some(format!("sha256:{digest}").into()));
        let proof = check_signature(&context, &package, signature, &keyring, allow_unsigned, &*loader.clock)?;
        check_manifest_limits(&loader.ceilings, package.manifest())?;
        check_imports(&context, &package)?;
        Ok((context, keyring, CheckedPackage { package, proof }))
    }

    async fn check_and_write(
        &self,
        context: &FailureContext,
        bytes: Vec<u8>,
        signature: Option<Vec<u8>>,
        options: &InstallOptions,
    ) -> Result<Installed, Error> {
        let CheckedInstall { package, signers, previous, downgrade, consent, acceptance } =
            self.check(context, bytes, signature.as_deref(), options).await?;
        let digest = *package.digest();
        let registry = self.pipeline.loader.registry.clone();
        // Another process may hold the lock, and syncing takes time, so this must not run on a thread that runs
        // guests.
        let any_version = options.allow_downgrade;
        let (audit, before, by) = (self.audit.clone(), previous.clone(), signers.clone());
        let write = tokio::task::spawn_blocking(move || {
            let signature = signature.as_deref();
            // In one task with the change: a caller that gives up does not separate the two.
            let mut recorder = ChangeRecorder::new(&audit);
            let (acceptance, consent) = acceptance.unzip();
            if let Some(consent) = consent {
                recorder.intend(consent)?;
            }
            if let Some(change) = install_change(&registry, &package, signature, before.as_ref(), &by)? {
                recorder.intend(change)?;
            }
            let (name, version) = (package.manifest().name(), package.manifest().version());
            let mut replaces = None;
            let outcome =
                registry.install(&package, signature, acceptance.as_ref(), any_version, |before, after| {
                    replaces = Some(before.to_string());
                    recorder.intend(activation(name, before, after))
                });
            let outcome = recorder.conclude(outcome)?;
            let is_active =
                outcome == InstallOutcome::Installed || registry.active(name)?.as_ref() == Some(version);
            Ok::<_, HostError>((package, outcome, replaces, is_active))
        });
        let (package, outcome, replaces, is_active) = write.await.map_err(|error| {
            HostError::new(HostErrorKind::Internal, "The install was lost.").with_source(error)
        })??;
        Ok(Installed {
            name: package.manifest().name().to_string(),
            version: package.manifest().version().to_string(),
            hash: format!("sha256:{digest}"),
            signer: signers.first().cloned(),
            signers,
            already_installed: matches!(
                outcome,
                InstallOutcome::AlreadyInstalled | InstallOutcome::SignatureUpdated
            ),
            previous: previous.map(|version| version.to_string()),
            downgrade,
            active: is_active,
            replaces,
            consent,
            audit_id: context.audit_id().clone(),
        })
    }

    /// Refuses another package of the same name and version, and a downgrade, before anything is compiled. The
    /// registry would refuse them too, but only after that. Returns the highest version so far, and whether this
    /// one is below it.
    fn check_version(
        &self,
        package: &Package,
        allow_downgrade: bool,
    ) -> Result<(Option<Version>, bool), HostError> {
        let registry = &self.pipeline.loader.registry;
        let (name, version) = (package.manifest().name(), package.manifest().version());
        let highest = registry.highest(name)?;
        let lower = highest.as_ref().is_some_and(|highest| version.cmp_precedence(highest).is_lt());
        match registry.find(name, version)? {
            Some(installed) if installed != *package.digest() => {
                Err(RegistryError::conflict(name, version, installed, *package.digest()).into())
            }
            None if !allow_downgrade => {
                registry.check_downgrade(name, version)?;
                Ok((highest, false))
            }
            None => Ok((highest, lower)),
            Some(_) => Ok((highest, false)),
        }
    }
}

/// Returns the change that an install makes. None if exactly this package is installed already, with this signature.
fn install_change(
    registry: &Registry,
    package: &Package,
    signature: Option<&[u8]>,
    highest: Option<&Version>,
    signers: &[String],
) -> Result<Option<OperatorChange>, HostError> {
    let (name, version) = (package.manifest().name(), package.manifest().version());
    let before = match registry.find(name, version)? {
        Some(installed) => {
            let stored = registry.read(&installed).ok().and_then(|stored| stored.signature);
            if signature.is_none() || stored.as_deref() == signature {
                return Ok(None);
            }
            Some(package_state(version, &installed, &[]))
        }
        None => highest.map(|highest| OperatorState {
            version: Some(highest.to_string().into()),
            ..OperatorState::default()
        }),
    };
    let unsigned = signers.is_empty();
    Ok(Some(OperatorChange {
        action: OperatorAction::Install,
        subject: format!("{name}@{version}"),
        before,
        after: Some(OperatorState { unsigned, ..package_state(version, package.digest(), signers) }),
        is_restriction: false,
    }))
}
