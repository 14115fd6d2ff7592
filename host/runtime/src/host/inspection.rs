//! What a security reviewer reads before trusting a connector: identity, signer, grants, limits, operations.

use std::collections::BTreeMap;
use std::fmt;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError};
use cofferdam_core::failure::{AuditId, Context, RepeatRule};
use cofferdam_core::limits::{LimitRequest, Limits};
use cofferdam_model::manifest::{CredentialGrant, Effect, Idempotency};
use cofferdam_model::package::{Operation, Package};
use cofferdam_model::registry::Stored;
use serde::Serialize;

use super::Host;
use crate::call::{ConnectorRef, check_limits, check_manifest_limits, check_signature, hash_mismatch};

/// A package, taken apart without running any of it.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// `<scheme>://<owner>/<repo>`.
    pub name: String,
    /// The exact version.
    pub version: String,
    /// The manifest's description.
    pub description: Option<String>,
    /// The manifest's publisher: a claim, unlike the signer.
    pub publisher: Option<String>,
    /// `sha256:` and 64 digits.
    pub hash: String,
    /// Bytes of the package.
    pub size: u64,
    /// Who signed it, and whether that is trusted here.
    pub signature: SignatureView,
    /// Whether the hash of the installed file is still its name; none for a file that is not installed.
    pub hash_matches: Option<bool>,
    /// Every import of the component, with what the manifest and this host say of it.
    pub imports: Vec<ImportView>,
    /// What the manifest names under `imports` and the component does not import: more than it needs.
    pub unused_imports: Vec<String>,
    /// The `host:port`s it may reach.
    pub network: Vec<String>,
    /// The methods that it may send there beyond those of every connector.
    pub methods: Vec<String>,
    /// The credentials it may have sent for it, and where to.
    pub credentials: Vec<CredentialView>,
    /// The limits of a call, what the manifest asks for, and the ceilings.
    pub limits: BTreeMap<&'static str, LimitView>,
    /// Its operations.
    pub operations: Vec<OperationView>,
}

/// What the signature says.
#[derive(Debug, Clone, Serialize)]
pub struct SignatureView {
    /// `trusted`, or the code of the failure that a call would end with.
    pub status: String,
    /// The id of the accepted key.
    pub signer: Option<String>,
    /// Why it is not accepted, and what to do.
    pub reason: Option<String>,
}

/// One credential that the connector asks to have sent.
#[derive(Debug, Clone, Serialize)]
pub struct CredentialView {
    /// Its kind, as in a binding's name.
    pub kind: &'static str,
    /// Its service, as in a binding's name.
    pub service: String,
    /// Where it stands in a request.
    pub place: String,
    /// The `host:port`s that it may be sent to.
    pub hosts: Vec<String>,
    /// Whether a call goes without it where none is bound.
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
    /// What a call gets.
    pub effective: u64,
    /// What the manifest asks for.
    pub manifest: Option<u64>,
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
    /// `list_issues(repo: string) -> list<..>`.
    pub signature: String,
    /// The parameters with their types.
    pub params: Vec<(String, String)>,
    /// The result's type.
    pub result: Option<String>,
    /// Its documentation, from the package.
    pub docs: Option<String>,
    /// What the manifest says of repeating it.
    pub idempotency: Idempotency,
    /// Whether the host may repeat it: always, never, or until it sends an unkeyed request.
    pub repeat: RepeatRule,
    /// What the manifest says that it does to its service, if it says it.
    pub effect: Option<Effect>,
    /// Whether its value may be partial: a record with a list `errors`, one for each item that failed.
    pub partial: bool,
}

impl Host {
    /// Takes an installed connector apart.
    ///
    /// # Errors
    /// It is not installed, or its package cannot be read; `hash_mismatch` if it was changed so that it
    /// cannot be taken apart any more. One that can is shown, with `hash_matches` false.
    pub fn inspect(&self, connector: &ConnectorRef) -> Result<Inspection, Error> {
        let loader = &self.pipeline.loader;
        let digest = loader.find(connector)?;
        let Stored { bytes, signature, .. } = loader.registry.read(&digest).map_err(HostError::from)?;
        let got = Digest::of(&bytes);
        let matches = got == digest;
        let mut inspection = match self.inspect_package(bytes, signature.as_deref()) {
            Ok(inspection) => inspection,
            Err(error) if matches => return Err(error.into()),
            Err(_) => {
                let key = connector.to_string();
                let context = Context::new(AuditId::mint()).with_connector(key.as_str(), None);
                return Err(hash_mismatch(&context, &key, &digest, &got));
            }
        };
        inspection.hash_matches = Some(matches);
        Ok(inspection)
    }

    /// Takes a package file apart, with the signature that lies beside it if there is one. Nothing is
    /// compiled or run.
    ///
    /// # Errors
    /// It is not a package.
    pub fn inspect_package(&self, bytes: Vec<u8>, signature: Option<&[u8]>) -> Result<Inspection, HostError> {
        let size = bytes.len() as u64;
        let package = self.pipeline.loader.sandbox.open_blocking(bytes)?;
        let manifest = package.manifest();
        check_manifest_limits(&self.pipeline.loader.ceilings, manifest)?;
        Ok(Inspection {
            name: manifest.name().to_string(),
            version: manifest.version().to_string(),
            description: manifest.description().map(ToOwned::to_owned),
            publisher: manifest.publisher().map(ToOwned::to_owned),
            hash: format!("sha256:{}", package.digest()),
            size,
            signature: self.signature_view(&package, signature)?,
            hash_matches: None,
            imports: package
                .import_verdicts()
                .iter()
                .map(|import| ImportView {
                    name: import.name().to_owned(),
                    standing: import.standing().name(),
                })
                .collect(),
            unused_imports: package.unused_imports().into_iter().map(ToOwned::to_owned).collect(),
            network: manifest.hosts().iter().map(ToString::to_string).collect(),
            methods: manifest.methods().iter().map(ToString::to_string).collect(),
            credentials: manifest.credentials().iter().map(credential).collect(),
            limits: self.limit_views(manifest.limits())?,
            operations: package.operations().iter().map(|operation| view(&package, operation)).collect(),
        })
    }

    /// Checks a package as an install would, the signature apart: imports, limits, and that it compiles
    /// and links. For authors, before they sign.
    ///
    /// # Errors
    /// As [`Host::install`].
    pub async fn check_package(&self, bytes: Vec<u8>) -> Result<(), Error> {
        self.checked_package(bytes).await.map(drop)
    }

    /// As [`check_package`](Self::check_package), and the package.
    pub async fn checked_package(&self, bytes: Vec<u8>) -> Result<Package, Error> {
        let package = self.pipeline.loader.sandbox.parser().open(bytes).await?;
        check_manifest_limits(&self.pipeline.loader.ceilings, package.manifest())?;
        let connector = format!("{}@{}", package.manifest().name(), package.manifest().version());
        let context = Context::new(AuditId::mint()).with_connector(connector, None);
        crate::call::check_imports(&context, &package)?;
        self.limit_views(package.manifest().limits())?;
        let proof = cofferdam_model::trust::allow_unsigned(
            package.manifest().name().clone(),
            package.manifest().version().clone(),
            *package.digest(),
        );
        self.pipeline.loader.compile(&context, &package, &proof).await?;
        Ok(package)
    }

    fn signature_view(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
    ) -> Result<SignatureView, HostError> {
        let loader = &self.pipeline.loader;
        let keyring = loader.keyring.load()?;
        let context = Context::new(AuditId::mint());
        Ok(match check_signature(&context, package, signature, &keyring, false, &*loader.clock) {
            Ok(proof) => SignatureView {
                status: "trusted".into(),
                signer: proof.signer().map(ToString::to_string),
                reason: None,
            },
            Err(failure) => SignatureView {
                status: failure.code().to_owned(),
                signer: None,
                reason: Some(failure.message().to_owned()),
            },
        })
    }

    fn limit_views(&self, manifest: &LimitRequest) -> Result<BTreeMap<&'static str, LimitView>, HostError> {
        let ceilings = &self.pipeline.loader.ceilings;
        let limits: Limits = check_limits(
            ceilings,
            manifest,
            &LimitRequest::default(),
            &LimitRequest::default(),
            &Default::default(),
        )?;
        let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(BTreeMap::from([
            (
                "fuel",
                LimitView {
                    effective: limits.fuel(),
                    manifest: manifest.fuel(),
                    ceiling: ceilings.fuel(),
                    unit: "fuel",
                },
            ),
            (
                "wall_time",
                LimitView {
                    effective: ms(limits.wall_time()),
                    manifest: manifest.wall_time().map(ms),
                    ceiling: ms(ceilings.wall_time()),
                    unit: "ms",
                },
            ),
            (
                "memory",
                LimitView {
                    effective: limits.memory(),
                    manifest: manifest.memory(),
                    ceiling: ceilings.memory(),
                    unit: "bytes",
                },
            ),
        ]))
    }
}

fn credential(grant: &CredentialGrant) -> CredentialView {
    CredentialView {
        kind: grant.kind().name(),
        service: grant.service().to_owned(),
        place: grant.placement().to_string(),
        hosts: grant.hosts().iter().map(ToString::to_string).collect(),
        optional: grant.optional(),
    }
}

impl fmt::Display for CredentialView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optional = if self.optional { ", optional" } else { "" };
        write!(f, "{}/{}, {}, to {}{optional}", self.kind, self.service, self.place, self.hosts.join(", "))
    }
}

fn view(package: &Package, operation: &Operation) -> OperationView {
    let name = operation.name().json();
    OperationView {
        name: name.to_owned(),
        signature: operation.to_string(),
        params: operation
            .params()
            .iter()
            .map(|param| (param.name.json().to_owned(), param.shape.to_string()))
            .collect(),
        result: operation.result().map(ToString::to_string),
        docs: package.docs().operation(name).map(|docs| docs.text().to_owned()),
        idempotency: package.manifest().idempotency(name),
        repeat: package.manifest().repeat_rule(name),
        effect: package.manifest().effect(name),
        partial: operation.lists_errors(),
    }
}
