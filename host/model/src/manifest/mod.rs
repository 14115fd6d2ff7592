//! The manifest: a connector's name, its requested access, and its operations.
//!
//! It converts text to checked values without side effects: a [`Manifest`] that exists is complete and valid
//! by the grammar; the host's decision on its requests is made elsewhere.

mod credential;
mod effect;
mod grant;
mod name;
mod parse;

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_core::failure::RepeatRule;
use cofferdam_core::limits::LimitRequest;

pub use cofferdam_core::document::{Diagnostic, DocumentError, InvalidValue};
pub use credential::{CredentialGrant, CredentialKind, CredentialPlacement};
pub use effect::{DeclaredIdempotency, OperationEffect};
pub use grant::{EVERYONES_METHODS, HostGrant, UrlScheme, is_forbidden_method, is_method_name};
pub use name::ConnectorName;
pub(crate) use name::check_owner;
pub use parse::exact_version;

/// A connector's manifest (`connector.toml`), checked.
#[derive(Debug, Clone)]
pub struct Manifest {
    name: ConnectorName,
    version: semver::Version,
    description: Option<String>,
    publisher: Option<String>,
    idempotent_by_default: bool,
    idempotent: BTreeMap<String, bool>,
    effects: effect::DeclaredEffects,
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
    pub fn parse(file_label: &str, text: &str) -> Result<Self, DocumentError> {
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

    /// Returns the connector's description, in one line.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Returns the claimed publisher. It is only a claim: the signature identifies the actual one.
    #[must_use]
    pub fn publisher(&self) -> Option<&str> {
        self.publisher.as_deref()
    }

    /// Returns the manifest's declaration whether `operation` may be run again after a failure that leaves
    /// its effect open. A default of `idempotent` declares nothing about a single operation.
    #[must_use]
    pub fn idempotency(&self, operation: &str) -> DeclaredIdempotency {
        match (self.idempotent.get(operation), self.idempotent_by_default) {
            (Some(true), _) => DeclaredIdempotency::Declared,
            (None, true) => DeclaredIdempotency::Undeclared,
            (Some(false), _) | (None, false) => DeclaredIdempotency::NotIdempotent,
        }
    }

    /// Returns the rule for repeating `operation`.
    #[must_use]
    pub fn repeat_rule(&self, operation: &str) -> RepeatRule {
        match self.idempotency(operation) {
            DeclaredIdempotency::NotIdempotent => RepeatRule::Never,
            DeclaredIdempotency::Declared => RepeatRule::Always,
            // It can send nothing that changes anything.
            DeclaredIdempotency::Undeclared
                if self.known_effect(operation) == Some(OperationEffect::ReadOnly) =>
            {
                RepeatRule::Always
            }
            DeclaredIdempotency::Undeclared => RepeatRule::UnlessUnkeyed,
        }
    }

    /// Returns the declared effect of `operation` on its service, if there is one.
    #[must_use]
    pub fn effect(&self, operation: &str) -> Option<OperationEffect> {
        self.effects.get(operation)
    }

    /// Returns the known effect of `operation`: the declared one or, without a declaration, read-only if it
    /// reaches no host, for it can only compute.
    #[must_use]
    pub fn known_effect(&self, operation: &str) -> Option<OperationEffect> {
        self.effect(operation).or_else(|| self.hosts.is_empty().then_some(OperationEffect::ReadOnly))
    }

    /// The operations that the manifest names, each once; each must exist in the component.
    pub fn operations_named(&self) -> impl Iterator<Item = &str> {
        let named: BTreeSet<_> = self.idempotent.keys().chain(self.effects.named()).collect();
        named.into_iter().map(String::as_str)
    }

    /// Returns the hosts that the connector requests; none unless named.
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

    /// Returns the interfaces that the connector requests to import, with or without a version.
    #[must_use]
    pub fn imports(&self) -> &[String] {
        &self.imports
    }

    /// Returns the limits that the connector requests. The host checks them against its ceilings.
    #[must_use]
    pub fn limits(&self) -> &LimitRequest {
        &self.limits
    }

    /// Returns the line, from 1, of a key, by its path: `["limits", "memory"]`.
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
