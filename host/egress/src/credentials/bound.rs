//! A credential of a manifest, and the binding that stands behind it for one choice of identities.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::failure::BindingProblem;
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use cofferdam_model::manifest::{ConnectorName, CredentialGrant, HostGrant, Placement};
use http::HeaderValue;
use zeroize::Zeroizing;

use super::choice::{Choice, Chosen};
use super::problem;
use crate::egress::{Injection, Target};
use crate::vault::{Binding, BindingName, Bindings, Material, Tokens};

/// One credential of the manifest; bound to nothing only where it is optional.
pub(super) struct Entry {
    pub(super) grant: CredentialGrant,
    pub(super) bound: Option<Bound>,
}

/// What is bound, as far as it can be made ready before a request is there.
pub(super) struct Bound {
    pub(super) name: BindingName,
    /// The name as text, written once.
    pub(super) text: Arc<str>,
    /// Where the operator lets it go.
    pub(super) hosts: Vec<HostGrant>,
    /// Which state of it: connections are not shared between two.
    pub(super) state: Arc<str>,
    pub(super) carries: Carries,
}

/// What a request carries of it.
pub(super) enum Carries {
    /// The same each time.
    Ready(Injection),
    /// A token of OAuth 2.0, with the one that was in use when the call began.
    Token(Option<Tokens>),
    /// A signature.
    Signature {
        access_key_id: String,
        secret_access_key: Arc<Secret>,
        session_token: Option<Arc<Secret>>,
        region: Option<String>,
    },
    /// What stands for a handle.
    Handle(Arc<Secret>),
}

impl Entry {
    /// Whether the manifest wants it sent to `target`.
    pub(super) fn is_for(&self, target: &Target) -> bool {
        self.grant.hosts().iter().any(|host| problem::is_at(host, target))
    }

    /// What a request to `target` carries of it, if anything.
    pub(super) fn for_target(&self, target: &Target) -> Option<&Bound> {
        let bound = self.bound.as_ref().filter(|_| self.is_for(target))?;
        bound.hosts.iter().any(|host| problem::is_at(host, target)).then_some(bound)
    }
}

/// The binding for `grant`, checked: it is there, for this connector, for one of the hosts at least, and can be
/// sent as the manifest wants it.
pub(super) fn entry(
    grant: &CredentialGrant,
    bindings: &Bindings,
    connector: &ConnectorName,
    choice: &Choice,
) -> Result<Entry, BindingProblem> {
    let Chosen { identity, asked_for } = choice.identity(grant.service());
    let name = BindingName::new(grant.kind(), grant.service(), identity)
        .map_err(|_| problem::unsendable_name(&grant.label(), identity))?;
    let without = || Entry { grant: grant.clone(), bound: None };
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
    let carries = carries(grant.placement(), &binding.material)
        .ok_or_else(|| problem::unsendable(&name, "it is not of the kind that its name says"))?
        .map_err(|why| problem::unsendable(&name, why))?;
    let text: Arc<str> = name.to_string().into();
    let state = format!("{text} {}", binding.changed).into();
    let bound = Bound { name, text, hosts: binding.hosts.clone(), state, carries };
    Ok(Entry { grant: grant.clone(), bound: Some(bound) })
}

/// What `material` puts into `place`; none where the two do not go together.
fn carries(place: &Placement, material: &Material) -> Option<Result<Carries, &'static str>> {
    Some(match (place, material) {
        (Placement::Header { .. }, Material::ApiKey { key: text } | Material::Bearer { token: text }) => {
            in_place(place, text)
        }
        (Placement::Query { name }, Material::ApiKey { key }) => check_text(key.expose())
            .map(|()| Carries::Ready(Injection::Query { name: name.clone(), value: Arc::clone(key) })),
        (Placement::Header { .. }, Material::Basic { username, password }) => {
            if username.contains(':') {
                return Some(Err("a user name with `:` would end there"));
            }
            let pair = Zeroizing::new(format!("{username}:{}", password.expose()));
            in_place(place, &Secret::new(STANDARD.encode(pair.as_bytes())))
        }
        (Placement::Header { .. }, Material::Oauth2 { tokens, .. }) => Ok(Carries::Token(tokens.clone())),
        (
            Placement::Signature,
            Material::AwsSigv4 { access_key_id, secret_access_key, session_token, region },
        ) => {
            let texts = [Some(access_key_id.as_str()), session_token.as_ref().map(|token| token.expose())];
            texts.into_iter().flatten().try_for_each(check_header_text).map(|()| Carries::Signature {
                access_key_id: access_key_id.clone(),
                secret_access_key: Arc::clone(secret_access_key),
                session_token: session_token.clone(),
                region: region.clone(),
            })
        }
        (Placement::Handle, Material::SessionToken { token }) => {
            check_header_text(token.expose()).map(|()| Carries::Handle(Arc::clone(token)))
        }
        _ => return None,
    })
}

fn in_place(place: &Placement, key: &Secret) -> Result<Carries, &'static str> {
    header(place, key).map(Carries::Ready)
}

/// The header that carries `key`, as the manifest formats it.
pub(super) fn header(place: &Placement, key: &Secret) -> Result<Injection, &'static str> {
    let Placement::Header { name, format } = place else { return Err("it goes into no header") };
    check_header_text(key.expose())?;
    let text = Zeroizing::new(Placement::filled(format, key.expose()));
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
