//! `GET /v1/connectors`: the installed connectors, what each may do, and the types of its operations.
//!
//! A connector's name is three segments of a path, `github/acme/slack`, so that no client has to encode it; the last one may
//! have a version, `slack@1.2.0`.

use std::collections::BTreeMap;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use cofferdam_audit::{AuditReader, CallStatus, Filter, StatsQuery};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_model::package::Package;
use cofferdam_model::registry::{Acceptance, AcceptanceBasis, RegistryEntry};
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::host::{CredentialView, Host, InstalledPackage, LimitView, OperationView, unreadable};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::calls::read_queued;
use super::{HttpApi, query, response};
use crate::author_text::sanitize_text;
use crate::json_schema;

/// The longest description of an operation, in bytes.
const DOCS_BYTES: usize = 4 * 1024;

/// The installed connectors, by name and version.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ConnectorList {
    /// The connectors.
    pub connectors: Vec<ConnectorSummary>,
}

/// An installed connector.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "ConnectorSummary")]
pub struct ConnectorSummary {
    /// Its name, without the version.
    pub name: String,
    /// Its version.
    pub version: String,
    /// True for the version that the name without a version selects.
    pub active: bool,
    /// `sha256:` and 64 digits.
    pub hash: String,
    /// The acceptance of its grants; none if it was not accepted.
    pub accepted: Option<AcceptanceView>,
    /// The number of its calls that ended; none if the audit log cannot be read.
    pub calls: Option<u64>,
    /// Those of them without a value.
    pub failed: Option<u64>,
    /// The time of its last call, as RFC 3339; none if it has none.
    pub last_call: Option<String>,
    /// Its circuits that are not closed, or that count failures. They are those of all versions.
    pub circuits: Vec<CircuitState>,
}

/// The acceptance of a connector's grants, which is made when it is installed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "Acceptance")]
pub struct AcceptanceView {
    /// The time, as RFC 3339.
    pub at: String,
    /// The user who accepted it, or who installed it if it asks for no more than an accepted version.
    pub by: String,
    /// The accepted version that it asks for no more than; none if the user accepted exactly this package.
    pub no_wider_than: Option<String>,
    /// The ids of the keys that had signed it.
    pub signers: Vec<String>,
}

/// The state of the circuit to one host.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "Circuit")]
pub struct CircuitState {
    /// The host and port.
    pub host: String,
    /// `closed`, `open` or `half_open`.
    pub state: String,
    /// The failures that count towards opening it.
    pub failures: usize,
}

/// Everything about one installed connector.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "Connector")]
pub struct ConnectorView {
    /// Its identity, its calls and its circuits.
    #[serde(flatten)]
    pub summary: ConnectorSummary,
    /// The other installed versions, the newest first.
    pub versions: Vec<String>,
    /// The description in its manifest.
    pub description: Option<String>,
    /// The publisher in its manifest. It is a claim, unlike the signers.
    pub publisher: Option<String>,
    /// The size of the package in bytes.
    pub size: u64,
    /// True if the installed bytes are those of the hash.
    pub intact: bool,
    /// The verdict about its signatures.
    pub signature: SignatureVerdict,
    /// The access that it has.
    pub grants: ConnectorGrants,
    /// The limits of a call, by name.
    pub limits: BTreeMap<String, LimitDescription>,
    /// Its operations.
    pub operations: Vec<OperationDescription>,
    /// The properties that deserve a second look, as sentences.
    pub notes: Vec<String>,
}

/// The verdict about the signatures of a package.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SignatureVerdict {
    /// `trusted`, `unsigned`, or the code of the failure that a call would end with.
    pub status: String,
    /// The ids of all accepted keys.
    pub signers: Vec<String>,
    /// The number of different keys that must sign, if the keyring has a threshold for the name.
    pub threshold: Option<usize>,
}

/// The access of a connector.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ConnectorGrants {
    /// The hosts and ports that it may reach.
    pub hosts: Vec<String>,
    /// The methods that it may send there in addition to those of every connector.
    pub methods: Vec<String>,
    /// The credentials that its requests may carry.
    pub credentials: Vec<CredentialGrantView>,
    /// The imports of the component.
    pub imports: Vec<ImportGrant>,
}

/// A credential that a connector asks for.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CredentialGrantView {
    /// Its kind and its service, as in the name of a binding.
    pub name: String,
    /// Its place in a request.
    pub place: String,
    /// The hosts that it may be sent to.
    pub hosts: Vec<String>,
    /// True if a call runs without it if none is bound.
    pub optional: bool,
    /// True if a binding exists that it gets for all these hosts; none if the vault cannot be read.
    pub bound: Option<bool>,
    /// The names of these bindings.
    pub bindings: Vec<String>,
}

/// An import.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ImportGrant {
    /// Its name.
    pub name: String,
    /// `plumbing` grants nothing, `declared` is granted, `shut` is denied at every use; others are refused.
    pub standing: String,
}

/// A limit of a call, in its unit.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LimitDescription {
    /// The limit of a call that asks for none.
    pub effective: u64,
    /// The limit in the manifest.
    pub manifest: Option<u64>,
    /// The limit of a connector whose manifest has none.
    pub default: u64,
    /// The most that any call gets on this host.
    pub ceiling: u64,
    /// `fuel`, `ms` or `bytes`.
    pub unit: String,
}

/// An operation and its types.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "Operation")]
pub struct OperationDescription {
    /// Its name.
    pub name: String,
    /// Its signature in the types of the component.
    pub signature: String,
    /// The description in the package.
    pub docs: Option<String>,
    /// `read_only`, `additive`, `convergent` or `destructive`; none if the manifest does not declare it.
    pub effect: Option<String>,
    /// `declared`, `undeclared` or `not_idempotent`.
    pub idempotency: String,
    /// The rule of the host for repeating it: `always`, `unless_unkeyed` or `never`.
    pub repeat: String,
    /// True if its value may be partial, with a list of the failed items.
    pub partial: bool,
    /// The path that runs it.
    pub path: String,
    /// The JSON Schema of its arguments.
    pub input: Map<String, Value>,
    /// The JSON Schema of its value.
    pub output: Map<String, Value>,
}

impl From<&Acceptance> for AcceptanceView {
    fn from(acceptance: &Acceptance) -> Self {
        let no_wider_than = match acceptance.basis() {
            AcceptanceBasis::Operator => None,
            AcceptanceBasis::NoWiderThan(version) => Some(version.to_string()),
        };
        Self {
            at: acceptance.at().to_string(),
            by: acceptance.by().to_owned(),
            no_wider_than,
            signers: acceptance.signers().to_vec(),
        }
    }
}

impl From<&LimitView> for LimitDescription {
    fn from(limit: &LimitView) -> Self {
        let LimitView { effective, manifest, default, ceiling, unit } = *limit;
        Self { effective, manifest, default, ceiling, unit: unit.to_owned() }
    }
}

impl HttpApi {
    /// Returns the installed connectors. Nothing is verified: that is done before each call.
    ///
    /// # Errors
    /// The index of packages cannot be read.
    pub async fn connectors(&self) -> Result<ConnectorList, HostError> {
        let host = self.host.clone();
        read_queued(self, move || Ok(ConnectorList { connectors: summaries(&host, None)? })).await
    }

    /// Returns everything about a connector, `name@version` or the name of an active version.
    ///
    /// # Errors
    /// It is not installed, or its package cannot be read.
    pub async fn connector(&self, text: &str) -> Result<ConnectorView, Error> {
        let (host, text) = (self.host.clone(), text.to_owned());
        read_queued(self, move || {
            let connector = host.resolve(&text)?;
            let installed = host.installed_package(&connector)?;
            Ok(connector_view(&host, &connector, installed)?)
        })
        .await
    }
}

/// Returns the installed versions of a connector except its own, the newest first.
pub(super) fn other_versions(host: &Host, connector: &ConnectorRef) -> Result<Vec<String>, HostError> {
    let is_other =
        |entry: &RegistryEntry| &entry.name == connector.name() && &entry.version != connector.version();
    // They are listed from the oldest on.
    Ok(host.list()?.into_iter().rev().filter(is_other).map(|entry| entry.version.to_string()).collect())
}

/// Returns the summaries of all connectors, or of the one that is asked for.
fn summaries(host: &Host, only: Option<&ConnectorRef>) -> Result<Vec<ConnectorSummary>, HostError> {
    let entries = host.list()?;
    let circuits = host.circuits().unwrap_or_default();
    let mut calls = CallCounts::read(host);
    let is_asked = |entry: &&RegistryEntry| {
        only.is_none_or(|only| (only.name(), only.version()) == (&entry.name, &entry.version))
    };
    let summary = |entry: &RegistryEntry| {
        let name = entry.name.to_string();
        let (counts, last_call) = calls.of(&format!("{name}@{}", entry.version));
        ConnectorSummary {
            version: entry.version.to_string(),
            active: entry.is_active,
            hash: format!("sha256:{}", entry.digest),
            accepted: host.recorded_acceptance(&entry.digest).as_ref().map(AcceptanceView::from),
            calls: counts.map(|(calls, _)| calls),
            failed: counts.map(|(_, failed)| failed),
            last_call,
            circuits: circuits
                .iter()
                .filter(|circuit| circuit.connector == name)
                .map(|circuit| CircuitState {
                    host: circuit.host.clone(),
                    state: circuit.state.to_owned(),
                    failures: circuit.failures,
                })
                .collect(),
            name,
        }
    };
    Ok(entries.iter().filter(is_asked).map(summary).collect())
}

/// The recorded calls of connectors: an audit log that cannot be read hides the numbers, and nothing else.
struct CallCounts {
    log: Option<Box<dyn AuditReader>>,
    /// The calls and the failures by connector; none if they are unknown.
    counts: Option<BTreeMap<String, (u64, u64)>>,
}

impl CallCounts {
    fn read(host: &Host) -> Self {
        let Ok(mut log) = host.audit().existing() else { return Self { log: None, counts: None } };
        let Some(reader) = &mut log else { return Self { log: None, counts: Some(BTreeMap::new()) } };
        let counts = reader.stats(&Filter::default(), StatsQuery::default()).map(|stats| {
            let mut counts = BTreeMap::<String, (u64, u64)>::new();
            for group in stats.groups {
                let (calls, failed) = counts.entry(group.name).or_default();
                *calls += group.calls;
                *failed += if group.status == CallStatus::Value { 0 } else { group.calls };
            }
            counts
        });
        Self { log, counts: counts.ok() }
    }

    /// Returns the number of calls of `connector` and of failures among them, and the time of the last one.
    fn of(&mut self, connector: &str) -> (Option<(u64, u64)>, Option<String>) {
        let counts = self.counts.as_ref().map(|all| all.get(connector).copied().unwrap_or_default());
        let filter = Filter { connector: Some(connector.to_owned()), limit: 1, ..Filter::default() };
        let last = self.log.as_mut().and_then(|log| log.list(&filter).map_err(unreadable).ok());
        (counts, last.and_then(|rows| rows.first().map(|newest| format!("{:.6}", newest.at))))
    }
}

fn connector_view(
    host: &Host,
    connector: &ConnectorRef,
    installed: InstalledPackage,
) -> Result<ConnectorView, HostError> {
    let InstalledPackage { inspection, package, acceptance } = installed;
    let summary = summaries(host, Some(connector))?.into_iter().next().ok_or_else(|| {
        HostError::new(
            HostErrorKind::ConnectorNotFound,
            format!("{connector} was removed while it was read."),
        )
    })?;
    let bound = host.bound_credentials(&package).ok();
    let credential = |(at, credential): (usize, &CredentialView)| {
        let bindings = bound.as_ref().map(|bound| bound.get(at).cloned().unwrap_or_default());
        CredentialGrantView {
            name: format!("{}/{}", credential.kind, credential.service),
            place: credential.place.clone(),
            hosts: credential.hosts.clone(),
            optional: credential.optional,
            bound: bindings.as_ref().map(|bindings| !bindings.is_empty()),
            bindings: bindings.unwrap_or_default(),
        }
    };
    let path = operations_path(&inspection.name, Some(&inspection.version));
    Ok(ConnectorView {
        summary: ConnectorSummary { accepted: acceptance.as_ref().map(AcceptanceView::from), ..summary },
        versions: other_versions(host, connector)?,
        description: inspection.description,
        publisher: inspection.publisher,
        size: inspection.size,
        intact: inspection.hash_matches != Some(false),
        signature: SignatureVerdict {
            status: inspection.signature.status,
            signers: inspection.signature.signers,
            threshold: inspection.signature.threshold,
        },
        grants: ConnectorGrants {
            hosts: inspection.network,
            methods: inspection.methods,
            credentials: inspection.credentials.iter().enumerate().map(credential).collect(),
            imports: inspection
                .imports
                .into_iter()
                .map(|import| ImportGrant { name: import.name, standing: import.standing.to_owned() })
                .collect(),
        },
        limits: inspection.limits.iter().map(|(name, limit)| ((*name).to_owned(), limit.into())).collect(),
        operations: inspection
            .operations
            .iter()
            .map(|operation| operation_description(&package, operation, &path))
            .collect(),
        notes: inspection.risks,
    })
}

fn operation_description(package: &Package, view: &OperationView, path: &str) -> OperationDescription {
    let types = package.operation(&view.name);
    let docs = package.docs().operation(&view.name);
    OperationDescription {
        name: view.name.clone(),
        signature: view.signature.clone(),
        docs: view.docs.as_ref().map(|docs| sanitize_text(docs, DOCS_BYTES)),
        effect: view.effect.map(|effect| effect.name().to_owned()),
        idempotency: view.idempotency.name().to_owned(),
        repeat: view.repeat.name().to_owned(),
        partial: view.partial,
        path: format!("{path}/{}", view.name),
        input: types.map(|types| json_schema::input(types, docs)).unwrap_or_default(),
        output: types.map(json_schema::result).unwrap_or_default(),
    }
}

/// Returns the path of a connector's operations; an operation's name follows.
pub(super) fn operations_path(name: &str, version: Option<&str>) -> String {
    let version = version.map(|version| format!("@{version}")).unwrap_or_default();
    format!("{}/{}{version}/operations", super::CONNECTORS, name.replacen("://", "/", 1))
}

/// Returns the connector that the segments of a path name; none if they name none.
pub(super) fn named(scheme: &str, owner: &str, repository: &str) -> Option<String> {
    let text = format!("{scheme}://{owner}/{repository}");
    query::is_connector(&text).then_some(text)
}

/// Lists the connectors.
pub(super) async fn list(State(api): State<HttpApi>) -> Response {
    match api.connectors().await {
        Ok(list) => response::view(&list),
        Err(error) => response::host_error(error),
    }
}

/// Shows a connector.
pub(super) async fn show(
    State(api): State<HttpApi>,
    name: Result<Path<(String, String, String)>, PathRejection>,
) -> Response {
    let named = name.ok().and_then(|Path((scheme, owner, name))| named(&scheme, &owner, &name));
    let Some(connector) = named else { return response::no_such_path() };
    match api.connector(&connector).await {
        Ok(view) => response::view(&view),
        Err(error) => response::error(&error),
    }
}
