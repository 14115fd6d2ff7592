//! Which identity a call uses of each service: what the call says, else its action, else `default`.

use std::collections::BTreeMap;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::safe_line;
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::CredentialGrant;

use crate::vault::DEFAULT_IDENTITY;

/// The identities that were chosen, by service. Never guessed: who chose none has `default`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Choice {
    by_service: BTreeMap<String, String>,
}

/// An identity, and whether somebody asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chosen<'c> {
    pub(super) identity: &'c str,
    pub(super) asked_for: bool,
}

impl Choice {
    /// What the call chose, and for other services what its action chose.
    pub fn of(call: &BTreeMap<String, String>, scope: Option<&ActionScope>) -> Self {
        let mut by_service = scope.map(|scope| scope.identities().clone()).unwrap_or_default();
        by_service.extend(call.iter().map(|(service, identity)| (service.clone(), identity.clone())));
        Self { by_service }
    }

    /// Every service that was chosen for is one that the manifest asks for.
    pub(super) fn fits(&self, grants: &[CredentialGrant]) -> Result<(), HostError> {
        let known = |service: &str| grants.iter().any(|grant| grant.service() == service);
        let Some(service) = self.by_service.keys().find(|service| !known(service)) else { return Ok(()) };
        let message = format!(
            "An identity is chosen for the service `{}`, of which the connector asks for no credential.",
            safe_line(service, 64)
        );
        let asked: Vec<_> = grants.iter().map(CredentialGrant::label).collect();
        let hint = match asked.is_empty() {
            true => "It asks for no credentials at all: leave the choice out.".to_owned(),
            false => format!("It asks for {}.", asked.join(", ")),
        };
        Err(HostError::new(HostErrorKind::Validation, message).hint(hint))
    }

    /// The identity that is used of each service that the manifest asks for.
    pub fn used(&self, grants: &[CredentialGrant]) -> BTreeMap<String, String> {
        let services = grants.iter().map(CredentialGrant::service);
        services.map(|service| (service.to_owned(), self.identity(service).identity.to_owned())).collect()
    }

    /// The identity for `service`.
    pub(super) fn identity(&self, service: &str) -> Chosen<'_> {
        match self.by_service.get(service) {
            Some(identity) => Chosen { identity, asked_for: true },
            None => Chosen { identity: DEFAULT_IDENTITY, asked_for: false },
        }
    }
}
