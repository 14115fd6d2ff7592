//! Identity selection: the call's choice for a service, otherwise its action's, otherwise `default`.

use std::collections::BTreeMap;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::CredentialGrant;

use crate::vault::DEFAULT_IDENTITY;

/// The chosen identities by service. They are never guessed: without a choice the identity is `default`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct IdentityChoice {
    by_service: BTreeMap<String, String>,
}

/// An identity, and whether it was chosen explicitly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChosenIdentity<'c> {
    pub(super) identity: &'c str,
    pub(super) asked_for: bool,
}

impl IdentityChoice {
    /// Returns the choices of the call and, for other services, those of its action.
    pub fn of(call: &BTreeMap<String, String>, scope: Option<&ActionScope>) -> Self {
        let mut by_service = scope.map(|scope| scope.identities().clone()).unwrap_or_default();
        by_service.extend(call.iter().map(|(service, identity)| (service.clone(), identity.clone())));
        Self { by_service }
    }

    /// Checks that the manifest asks for every service that an identity was chosen for.
    pub(super) fn fits(&self, grants: &[CredentialGrant]) -> Result<(), HostError> {
        let known = |service: &str| grants.iter().any(|grant| grant.service() == service);
        let Some(service) = self.by_service.keys().find(|service| !known(service)) else { return Ok(()) };
        let message = format!(
            "An identity is chosen for the service `{}`, of which the connector asks for no credential.",
            sanitize_line(service, 64)
        );
        let asked: Vec<_> = grants.iter().map(CredentialGrant::label).collect();
        let hint = match asked.is_empty() {
            true => "It asks for no credentials at all: leave the choice out.".to_owned(),
            false => format!("It asks for {}.", asked.join(", ")),
        };
        Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint))
    }

    /// Returns the identity that is used for each service that the manifest asks for.
    pub fn used(&self, grants: &[CredentialGrant]) -> BTreeMap<String, String> {
        let services = grants.iter().map(CredentialGrant::service);
        services.map(|service| (service.to_owned(), self.identity(service).identity.to_owned())).collect()
    }

    /// Returns the identity for `service`.
    pub(super) fn identity(&self, service: &str) -> ChosenIdentity<'_> {
        match self.by_service.get(service) {
            Some(identity) => ChosenIdentity { identity, asked_for: true },
            None => ChosenIdentity { identity: DEFAULT_IDENTITY, asked_for: false },
        }
    }
}
