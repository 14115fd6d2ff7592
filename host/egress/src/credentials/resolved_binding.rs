//! A credential of a manifest, with the binding that one choice of identities resolves it to.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{BindingProblem, sanitize_line};
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::{ConnectorName, CredentialGrant, CredentialPlacement, HostGrant};
use http::HeaderValue;
use zeroize::Zeroizing;

use super::problem;
use crate::egress::{Injection, RequestTarget};
use crate::vault::{Binding, BindingName, Bindings, DEFAULT_IDENTITY, OauthTokens, SecretMaterial};

/// One credential of the manifest. Only an optional one may have no binding.
pub(super) struct GrantedCredential {
    pub(super) grant: CredentialGrant,
    pub(super) bound: Option<ResolvedBinding>,
}

/// A resolved binding, prepared as far as possible before there is a request.
pub(super) struct ResolvedBinding {
    pub(super) name: BindingName,
    /// The name as text, formatted once.
    pub(super) text: Arc<str>,
    /// The hosts that the operator allows it for.
    pub(super) hosts: Vec<HostGrant>,
    /// The version of the binding. Connections are not shared between two versions.
    pub(super) state: Arc<str>,
    pub(super) value: CredentialValue,
}

/// The credential value that a request carries.
pub(super) enum CredentialValue {
    /// The same value for every request.
    Ready(Injection),
    /// An OAuth 2.0 token, with the one that was in use when the call began.
    Token(Option<OauthTokens>),
    /// A request signature.
    Signature {
        access_key_id: String,
        secret_access_key: Arc<Secret>,
        session_token: Option<Arc<Secret>>,
        region: Option<String>,
    },
    /// The secret that a handle stands for.
    Handle(Arc<Secret>),
}

impl GrantedCredential {
    /// Returns whether the manifest wants the credential sent to `target`.
    pub(super) fn is_for(&self, target: &RequestTarget) -> bool {
        self.grant.hosts().iter().any(|host| problem::is_at(host, target))
    }

    /// Returns the binding that a request to `target` carries, if any.
    pub(super) fn for_target(&self, target: &RequestTarget) -> Option<&ResolvedBinding> {
        let bound = self.bound.as_ref().filter(|_| self.is_for(target))?;
        bound.hosts.iter().any(|host| problem::is_at(host, target)).then_some(bound)
    }
}

/// Resolves the binding for `grant` and checks that it exists, allows this connector and at least one of the
/// hosts, and can be sent as the manifest requires.
pub(super) fn entry(
    grant: &CredentialGrant,
    bindings: &Bindings,
    connector: &ConnectorName,
    choice: &IdentitySelection,
) -> Result<GrantedCredential, BindingProblem> {
    let SelectedIdentity { identity, asked_for } = choice.identity(grant.service());
    let name = BindingName::new(grant.kind(), grant.service(), identity)
        .map_err(|_| problem::unsendable_name(&grant.label(), identity))?;
    let without = || GrantedCredential { grant: grant.clone(), bound: None };
    let Some(binding) = bindings.get(&name) else {
        if grant.optional() && !asked_for {
            return Ok(without());
        }
        let alike =
            |other: &&Binding| (other.name.kind(), other.name.service()) == (name.kind(), name.service());
        let others: Vec<_> = bindings.iter().filter(alike).map(|other| other.name.identity()).collect();
        return Err(problem::unbound(&name, &others));
    };
    if !binding.connectors.contains(connector) {
        return Err(problem::connector_not_allowed(binding, grant, connector));
    }
    if !problem::goes_somewhere(binding, grant) {
        return Err(problem::no_host_allowed(binding, grant));
    }
    let carries = credential_value(grant.placement(), &binding.material)
        .ok_or_else(|| problem::unsendable(&name, "it is not of the kind that its name says"))?
        .map_err(|why| problem::unsendable(&name, why))?;
    let text: Arc<str> = name.to_string().into();
    let state = format!("{text} {}", binding.changed).into();
    let bound = ResolvedBinding { name, text, hosts: binding.hosts.clone(), state, value: carries };
    Ok(GrantedCredential { grant: grant.clone(), bound: Some(bound) })
}

/// Returns the value that `material` puts into `place`; `None` if the two do not fit together.
fn credential_value(
    place: &CredentialPlacement,
    material: &SecretMaterial,
) -> Option<Result<CredentialValue, &'static str>> {
    Some(match (place, material) {
        (
            CredentialPlacement::Header { .. },
            SecretMaterial::ApiKey { key: text } | SecretMaterial::Bearer { token: text },
        ) => in_place(place, text),
        (CredentialPlacement::Query { name }, SecretMaterial::ApiKey { key }) => check_text(key.expose())
            .map(|()| {
                CredentialValue::Ready(Injection::Query { name: name.clone(), value: Arc::clone(key) })
            }),
        (CredentialPlacement::Header { .. }, SecretMaterial::Basic { username, password }) => {
            if username.contains(':') {
                return Some(Err("a user name with `:` would end there"));
            }
            let pair = Zeroizing::new(format!("{username}:{}", password.expose()));
            in_place(place, &Secret::new(STANDARD.encode(pair.as_bytes())))
        }
        (CredentialPlacement::Header { .. }, SecretMaterial::Oauth2 { tokens, .. }) => {
            Ok(CredentialValue::Token(tokens.clone()))
        }
        (
            CredentialPlacement::Signature,
            SecretMaterial::AwsSigv4 { access_key_id, secret_access_key, session_token, region },
        ) => {
            let texts = [Some(access_key_id.as_str()), session_token.as_ref().map(|token| token.expose())];
            texts.into_iter().flatten().try_for_each(check_header_text).map(|()| CredentialValue::Signature {
                access_key_id: access_key_id.clone(),
                secret_access_key: Arc::clone(secret_access_key),
                session_token: session_token.clone(),
                region: region.clone(),
            })
        }
        (CredentialPlacement::Handle, SecretMaterial::SessionToken { token }) => {
            check_header_text(token.expose()).map(|()| CredentialValue::Handle(Arc::clone(token)))
        }
        _ => return None,
    })
}

fn in_place(place: &CredentialPlacement, key: &Secret) -> Result<CredentialValue, &'static str> {
    header(place, key).map(CredentialValue::Ready)
}

/// Returns the header that carries `key`, formatted as the manifest requires.
pub(super) fn header(place: &CredentialPlacement, key: &Secret) -> Result<Injection, &'static str> {
    let CredentialPlacement::Header { name, format } = place else { return Err("it goes into no header") };
    check_header_text(key.expose())?;
    let text = Zeroizing::new(CredentialPlacement::filled(format, key.expose()));
    let mut value = HeaderValue::from_str(&text).map_err(|_| NOT_IN_A_HEADER)?;
    value.set_sensitive(true);
    Ok(Injection::Header(name.clone(), value))
}

const NOT_IN_A_HEADER: &str = "it has characters that no header can carry (line ends, or other than ASCII)";

fn check_header_text(text: &str) -> Result<(), &'static str> {
    check_text(text)?;
    let visible = text.bytes().all(|b| (b' '..=b'~').contains(&b));
    if visible { Ok(()) } else { Err(NOT_IN_A_HEADER) }
}

fn check_text(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("it is empty"),
        text if text.trim() != text => Err("it begins or ends with a space or a line end"),
        text if text.chars().any(char::is_control) => Err("it has control characters in it"),
        _ => Ok(()),
    }
}

/// The chosen identities by service. They are never guessed: without a choice the identity is `default`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct IdentitySelection {
    by_service: BTreeMap<String, String>,
}

/// An identity, and whether it was chosen explicitly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SelectedIdentity<'c> {
    pub(super) identity: &'c str,
    pub(super) asked_for: bool,
}

impl IdentitySelection {
    /// Returns the choices of the call and, for other services, those of its action.
    pub fn new(call: &BTreeMap<String, String>, scope: Option<&ActionScope>) -> Self {
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
    pub(super) fn identity(&self, service: &str) -> SelectedIdentity<'_> {
        match self.by_service.get(service) {
            Some(identity) => SelectedIdentity { identity, asked_for: true },
            None => SelectedIdentity { identity: DEFAULT_IDENTITY, asked_for: false },
        }
    }
}
