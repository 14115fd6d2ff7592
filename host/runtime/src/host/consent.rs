//! Consent: no package gets access that no operator accepted.

use std::collections::BTreeMap;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::operator::{OperatorAction, OperatorState};
use cofferdam_core::failure::sanitize_line;
use cofferdam_model::package::{Package, PackageGrants};
use cofferdam_model::registry::{Acceptance, AcceptanceBasis, StoredPackage};
use cofferdam_model::trust::{Keyring, Verified};
use serde::Serialize;

use super::Host;
use super::difference::{ChangeSeverity, PackageChange, PackageDifference};
use super::inspection::{PackageInspection, owners};
use super::operator::{OperatorChange, package_state};

/// The need for consent to the access of a package, before it can be installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Consent {
    /// Exactly this package is installed, and was accepted.
    Accepted {
        /// The user who accepted it.
        by: String,
        /// The time of the acceptance, as RFC 3339.
        at: String,
    },
    /// It asks for no more than the active version, which was accepted and has the same signer.
    NoWider {
        /// The active version.
        than: String,
    },
    /// It has to be accepted.
    Required {
        /// The reasons, as sentences.
        reasons: Vec<String>,
    },
}

/// A package as an operator reviews it: its contents, the differences to the active version, and the need for consent.
#[derive(Debug, Clone, Serialize)]
pub struct PackageReview {
    /// The contents.
    pub package: PackageInspection,
    /// The access that it asks for, which an acceptance is bound to: sorted lines such as `host api.slack.com:443`.
    pub grants: Vec<String>,
    /// The differences to the active version. None if there is none, or it cannot be read.
    pub difference: Option<PackageDifference>,
    /// The need for consent.
    pub consent: Consent,
}

/// The active version of a connector, whose access was accepted.
struct AcceptedVersion {
    inspection: PackageInspection,
    grants: PackageGrants,
    acceptance: Option<Acceptance>,
}

impl Host {
    /// Reviews a package: inspects it, compares it with the active version of its name, and decides whether an operator
    /// has to accept it. Nothing of it is run or compiled.
    ///
    /// # Errors
    /// It is not a package, or the host's own files cannot be read.
    pub async fn review(&self, bytes: Vec<u8>, signature: Option<&[u8]>) -> Result<PackageReview, Error> {
        let package = self.pipeline.loader.sandbox.parser().open(bytes).await?;
        let inspection = self.inspect_parsed(&package, signature)?;
        let (difference, consent) = self.consent(&package, &inspection).await?;
        let grants = package.grants().lines().to_vec();
        Ok(PackageReview { package: inspection, grants, difference, consent })
    }

    /// Compares a package with the active version of its name, and returns the differences and the need for consent.
    pub(super) async fn consent(
        &self,
        package: &Package,
        inspection: &PackageInspection,
    ) -> Result<(Option<PackageDifference>, Consent), HostError> {
        let registry = &self.pipeline.loader.registry;
        let (name, version) = (package.manifest().name(), package.manifest().version());
        let required = |reason: String| Consent::Required { reasons: vec![reason] };
        let accepted = match registry.find(name, version)? {
            Some(installed) if installed == *package.digest() => {
                registry.acceptance(&installed).ok().flatten()
            }
            _ => None,
        };
        let accepted = accepted.filter(|acceptance| acceptance.covers(package)).map(|acceptance| {
            Consent::Accepted { by: acceptance.by().to_owned(), at: acceptance.at().to_string() }
        });
        let Some(active) = registry.active(name)? else {
            return Ok((None, required("no version of it is installed".to_owned())));
        };
        let baseline = match registry.find(name, &active)? {
            // There is nothing to compare it with.
            Some(digest) if digest == *package.digest() => {
                return Ok((
                    None,
                    accepted.unwrap_or_else(|| required("it was not accepted yet".to_owned())),
                ));
            }
            Some(digest) => self.active_version(&digest).await,
            None => Err("it is not installed any more".to_owned()),
        };
        let baseline = match baseline {
            Ok(baseline) => baseline,
            Err(reason) => {
                let reason = format!("the active version {active} cannot be compared: {reason}");
                return Ok((None, accepted.unwrap_or_else(|| required(reason))));
            }
        };
        let difference = PackageDifference::between(&baseline.inspection, inspection);
        let consent = accepted.unwrap_or_else(|| {
            match reasons(&baseline, inspection, &package.grants(), &difference) {
                reasons if reasons.is_empty() => Consent::NoWider { than: active.to_string() },
                reasons => Consent::Required { reasons },
            }
        });
        Ok((Some(difference), consent))
    }

    /// Reads the installed package `digest`, with its acceptance if that still covers it.
    async fn active_version(&self, digest: &Digest) -> Result<AcceptedVersion, String> {
        let loader = &self.pipeline.loader;
        let StoredPackage { bytes, signature, acceptance, .. } =
            loader.registry.read(digest).map_err(|error| HostError::from(error).to_string())?;
        if Digest::sha256(&bytes) != *digest {
            return Err("its bytes were changed".to_owned());
        }
        let package = loader.sandbox.parser().open(bytes).await.map_err(|error| error.to_string())?;
        let inspection = self.inspect_parsed(&package, signature.as_deref());
        Ok(AcceptedVersion {
            inspection: inspection.map_err(|error| error.to_string())?,
            grants: package.grants(),
            acceptance: acceptance.filter(|acceptance| acceptance.covers(&package)),
        })
    }

    /// Returns the acceptance beside the installed package `hash`; none if there is none that can be read. It reads one
    /// small file and not the package, so it does not show whether it covers the package.
    #[must_use]
    pub fn recorded_acceptance(&self, hash: &Digest) -> Option<Acceptance> {
        self.pipeline.loader.registry.acceptance(hash).ok().flatten()
    }

    /// Returns true if the installed package `hash` was accepted with exactly these grants, and signed by one of these keys.
    /// It reads one small file, and not the package.
    pub fn is_accepted_as(&self, hash: &Digest, signers: &[String], grants: &[String]) -> bool {
        self.recorded_acceptance(hash)
            .is_some_and(|it| it.is_of(hash, signers, &PackageGrants::digest_of(grants)))
    }

    /// Returns the acceptance of a package that is about to be installed, with the change to record. None if it was
    /// accepted before.
    ///
    /// # Errors
    /// `consent_required`: an operator has to accept it, and `is_accepted` is false.
    pub(super) fn acceptance(
        &self,
        keyring: &Keyring,
        package: &Package,
        proof: &Verified,
        consent: &Consent,
        is_accepted: bool,
    ) -> Result<Option<(Acceptance, OperatorChange)>, HostError> {
        let manifest = package.manifest();
        let connector = format!("{}@{}", manifest.name(), manifest.version());
        let basis = match consent {
            Consent::Accepted { .. } => return Ok(None),
            _ if is_accepted => AcceptanceBasis::Operator,
            Consent::NoWider { than } => AcceptanceBasis::NoWiderThan(than.parse().map_err(|error| {
                HostError::new(HostErrorKind::Internal, "The active version is none.").with_source(error)
            })?),
            Consent::Required { reasons } => {
                return Err(consent_required(&connector, reasons).with_hint(format!(
                    "`cofferdam review` shows what it may do. Add --accept sha256:{} to accept exactly this package.",
                    package.digest()
                )));
            }
        };
        let reason = match &basis {
            AcceptanceBasis::Operator => "accepted by the operator".to_owned(),
            AcceptanceBasis::NoWiderThan(version) => format!("no wider than {version}, by the same signer"),
        };
        let grants = package.grants().lines().iter().map(|line| line.clone().into()).collect();
        let signers: Vec<_> = proof.signers().iter().map(ToString::to_string).collect();
        let change = OperatorChange {
            action: OperatorAction::Consent,
            subject: connector,
            before: None,
            after: Some(OperatorState {
                // The list may be cut; the hash is that of all lines.
                details: BTreeMap::from([(
                    "grants".into(),
                    format!("sha256:{}", package.grants().digest()).into(),
                )]),
                grants,
                reason: Some(reason.into()),
                ..package_state(manifest.version(), package.digest(), &signers)
            }),
            is_restriction: false,
        };
        let now = self.pipeline.loader.clock.timestamp();
        let owners = owners(keyring, proof.signers());
        Ok(Some((Acceptance::new(package, owners, basis, &*self.audit.user, now), change)))
    }
}

/// Returns the error for a package that an operator has to accept first.
fn consent_required(connector: &str, reasons: &[String]) -> HostError {
    let reasons = sanitize_line(&reasons.join("; "), 400);
    let message = format!("The access that {connector} asks for is not accepted: {reasons}.");
    HostError::new(HostErrorKind::ConsentRequired, message)
}

/// Returns the reasons why a package needs an operator's consent although an earlier version is active.
fn reasons(
    active: &AcceptedVersion,
    package: &PackageInspection,
    grants: &PackageGrants,
    difference: &PackageDifference,
) -> Vec<String> {
    let version = &active.inspection.version;
    let Some(acceptance) = &active.acceptance else {
        return vec![format!("the access of the active version {version} was never accepted either")];
    };
    let mut reasons = Vec::new();
    let signature = &package.signature;
    if signature.owners.is_empty() {
        let reason = signature.reason.as_deref().unwrap_or("no trusted key signed it");
        reasons.push(reason.trim_end_matches('.').to_owned());
    } else if !acceptance.has_signer_of(&signature.owners) {
        reasons.push(format!("another key signed it than {version}"));
    }
    // The signers are compared above, with those that were accepted.
    let is_of_the_signer = |change: &&PackageChange| change.part == "identity" && change.subject == "signer";
    let wider = difference.changes.iter().filter(|change| change.severity == ChangeSeverity::Wider);
    reasons.extend(wider.filter(|change| !is_of_the_signer(change)).map(PackageChange::to_string));
    if reasons.is_empty() {
        let added = grants.added_to(&active.grants);
        reasons.extend(added.into_iter().map(|line| format!("{version} did not ask for this: {line}")));
    }
    reasons
}
