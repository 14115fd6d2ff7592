//! The manifest: what a connector is called, what it asks for, and what its operations do.
//!
//! Pure text in, checked values out: a [`Manifest`] that exists is complete and allowed by the grammar;
//! whether this host grants what it asks for is decided elsewhere.

mod credential;
mod effect;
mod grant;
mod idempotency;
mod method;
mod name;
mod parse;
mod placement;

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_core::failure::RepeatRule;
use cofferdam_core::limits::LimitRequest;

pub use cofferdam_core::document::{
    DocumentError as ManifestError, Problem, Refused as GrantError, Refused as NameError,
};
pub use credential::{CredentialGrant, CredentialKind};
pub use effect::Effect;
pub use grant::{HostGrant, Scheme};
pub use idempotency::Idempotency;
pub use method::EVERYONES_METHODS;
pub use method::{is_forbidden_method, is_method_name};
pub use name::ConnectorName;
pub(crate) use name::check_owner;
pub use parse::exact_version;
pub use placement::Placement;

/// A connector's manifest (`connector.toml`), checked.
#[derive(Debug, Clone)]
pub struct Manifest {
    name: ConnectorName,
    version: semver::Version,
    description: Option<String>,
    publisher: Option<String>,
    idempotent_by_default: bool,
    idempotent: BTreeMap<String, bool>,
    effects: effect::Effects,
    hosts: Vec<HostGrant>,
    methods: Vec<http::Method>,
    credentials: Vec<CredentialGrant>,
    imports: Vec<String>,
    limits: LimitRequest,
    text: String,
}

impl Manifest {
    /// Reads the manifest `text`; `file_label` is what problems call the file.
    ///
    /// # Errors
    /// Every problem of the text at once, each with its place and fix.
    pub fn parse(file_label: &str, text: &str) -> Result<Self, ManifestError> {
        cofferdam_core::document::read(file_label, text, |root| parse::manifest(root, text))
    }

    /// The connector's name.
    #[must_use]
    pub fn name(&self) -> &ConnectorName {
        &self.name
    }

    /// The exact version; without build metadata, which would make two releases of equal rank.
    #[must_use]
    pub fn version(&self) -> &semver::Version {
        &self.version
    }

    /// What the connector does, in one line.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Who says to have made it. A claim: the signature says who really did.
    #[must_use]
    pub fn publisher(&self) -> Option<&str> {
        self.publisher.as_deref()
    }

    /// Whether the manifest declares that `operation` may be run again after a failure that leaves open whether it took
    /// effect. A default of `idempotent` declares nothing of a single operation.
    #[must_use]
    pub fn idempotency(&self, operation: &str) -> Idempotency {
        match (self.idempotent.get(operation), self.idempotent_by_default) {
            (Some(true), _) => Idempotency::Declared,
            (None, true) => Idempotency::Undeclared,
            (Some(false), _) | (None, false) => Idempotency::NotIdempotent,
        }
    }

    /// Whether the host may repeat `operation`.
    #[must_use]
    pub fn repeat_rule(&self, operation: &str) -> RepeatRule {
        match self.idempotency(operation) {
            Idempotency::NotIdempotent => RepeatRule::Never,
            Idempotency::Declared => RepeatRule::Always,
            // It can send nothing that changes anything.
            Idempotency::Undeclared if self.known_effect(operation) == Some(Effect::ReadOnly) => {
                RepeatRule::Always
            }
            Idempotency::Undeclared => RepeatRule::UnlessUnkeyed,
        }
    }

    /// What `operation` does to its service, where the manifest says it.
    #[must_use]
    pub fn effect(&self, operation: &str) -> Option<Effect> {
        self.effects.of(operation)
    }

    /// What is known of what `operation` does: what the manifest says and, where it says nothing of an operation that
    /// reaches no host, that it changes nothing, for it can only compute.
    #[must_use]
    pub fn known_effect(&self, operation: &str) -> Option<Effect> {
        self.effect(operation).or_else(|| self.hosts.is_empty().then_some(Effect::ReadOnly))
    }

    /// The operations that the manifest names, each once; each must exist in the component.
    pub fn operations_named(&self) -> impl Iterator<Item = &str> {
        let named: BTreeSet<_> = self.idempotent.keys().chain(self.effects.named()).collect();
        named.into_iter().map(String::as_str)
    }

    /// The hosts that the connector asks to reach; none unless named.
    #[must_use]
    pub fn hosts(&self) -> &[HostGrant] {
        &self.hosts
    }

    /// The methods that the connector may send beyond those of every connector ([`EVERYONES_METHODS`]).
    #[must_use]
    pub fn methods(&self) -> &[http::Method] {
        &self.methods
    }

    /// The credentials that the connector asks to have sent.
    #[must_use]
    pub fn credentials(&self) -> &[CredentialGrant] {
        &self.credentials
    }

    /// The interfaces that the connector asks to import, with or without a version.
    #[must_use]
    pub fn imports(&self) -> &[String] {
        &self.imports
    }

    /// The limits that the connector asks for. Ceilings are the host's to hold against them.
    #[must_use]
    pub fn limits(&self) -> &LimitRequest {
        &self.limits
    }

    /// The line, from 1, on which a key stands, by its path: `["limits", "memory"]`.
    #[must_use]
    pub fn line_of(&self, path: &[&str]) -> Option<usize> {
        cofferdam_core::document::line_of(&self.text, path)
    }

    /// The text, verbatim.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod capability_tests;
#[cfg(test)]
mod tests;
