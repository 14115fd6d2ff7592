//! Secret material from the text of a secret and the public parts of its binding.

use std::sync::Arc;

use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use cofferdam_model::manifest::CredentialKind;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use super::bindings_file::{BindingEntry, OauthGrantKind};
use crate::vault::binding::{OauthGrant, SecretMaterial};
use crate::vault::error::VaultError;
use crate::vault::text::{SecretForm, secret_text};

/// The reason why a secret cannot be used, as the end of a sentence, and the fix. It has nothing of the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretProblem {
    pub(super) reason: String,
    pub(super) fix: String,
}

impl SecretProblem {
    pub(super) fn new(reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { reason: reason.into(), fix: fix.into() }
    }
}

/// The parts of a secret with several of them, as one JSON object.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SecretDocument {
    /// Refused: the store of secrets does not decide where they are sent. The field is named for the error.
    token_url: Option<IgnoredAny>,
    /// Refused, as `token_url` is.
    client_id: Option<IgnoredAny>,
    client_secret: Option<SecretField>,
    refresh_token: Option<SecretField>,
    access_key_id: Option<String>,
    region: Option<String>,
    secret_access_key: Option<SecretField>,
    session_token: Option<SecretField>,
}

/// A secret in memory that is cleared.
pub(super) struct SecretField(pub(super) Zeroizing<String>);

impl<'de> Deserialize<'de> for SecretField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

/// Combines the text of a secret with the binding's other parts.
pub(super) fn material(
    entry: &BindingEntry,
    text: Zeroizing<String>,
) -> Result<SecretMaterial, SecretProblem> {
    let material = match entry.name.kind() {
        CredentialKind::ApiKey => SecretMaterial::ApiKey { key: single(text, SecretForm::Visible)? },
        CredentialKind::Bearer => SecretMaterial::Bearer { token: single(text, SecretForm::Visible)? },
        CredentialKind::SessionToken => {
            SecretMaterial::SessionToken { token: single(text, SecretForm::Visible)? }
        }
        CredentialKind::Basic => SecretMaterial::Basic {
            username: part("username", entry.parts.username.clone())?,
            password: single(text, SecretForm::Encoded)?,
        },
        CredentialKind::Oauth2 => oauth2(entry, text)?,
        CredentialKind::AwsSigv4 => aws_sigv4(entry, text)?,
    };
    match material.check() {
        Ok(()) => Ok(material),
        Err(VaultError::Refused { message, hint }) => {
            Err(SecretProblem::new(format!("cannot be used: {}", message.trim_end_matches('.')), hint))
        }
        Err(_) => Err(SecretProblem::new("cannot be used", "Give it as its issuer shows it.")),
    }
}

fn oauth2(entry: &BindingEntry, text: Zeroizing<String>) -> Result<SecretMaterial, SecretProblem> {
    let parts = &entry.parts;
    let refreshes = parts.grant != Some(OauthGrantKind::ClientCredentials);
    let document = match document(&text)? {
        Some(document) => document,
        None if refreshes => SecretDocument { refresh_token: Some(SecretField(text)), ..Default::default() },
        None => SecretDocument { client_secret: Some(SecretField(text)), ..Default::default() },
    };
    reject_field(
        document.secret_access_key.is_some()
            || document.session_token.is_some()
            || document.access_key_id.is_some()
            || document.region.is_some(),
        "client_secret and refresh_token",
    )?;
    if document.token_url.is_some() || document.client_id.is_some() {
        return Err(SecretProblem::new(
            "has token_url or client_id, which a secret cannot decide",
            "Remove them from the secret, and write them in the binding in bindings.toml.",
        ));
    }
    let optional = |field: Option<SecretField>, form| field.map(|field| single(field.0, form)).transpose();
    let client_secret = optional(document.client_secret, SecretForm::Encoded)?;
    let refresh_token = optional(document.refresh_token, SecretForm::Visible)?;
    let grant = match (refreshes, refresh_token) {
        (true, Some(token)) => OauthGrant::RefreshToken(token),
        (true, None) => return Err(missing_secret("refresh_token")),
        (false, Some(_)) => {
            return Err(SecretProblem::new(
                "has a refresh token, which client credentials do not need",
                "Leave it out, or write grant = \"refresh_token\" in the binding.",
            ));
        }
        (false, None) if client_secret.is_none() => return Err(missing_secret("client_secret")),
        (false, None) => OauthGrant::ClientCredentials,
    };
    Ok(SecretMaterial::Oauth2 {
        token_url: part("token_url", parts.token_url.clone())?,
        client_id: part("client_id", parts.client_id.clone())?,
        client_secret,
        scopes: parts.scopes.clone(),
        grant,
        tokens: None,
    })
}

fn aws_sigv4(entry: &BindingEntry, text: Zeroizing<String>) -> Result<SecretMaterial, SecretProblem> {
    let parts = &entry.parts;
    let document = match document(&text)? {
        Some(document) => document,
        None => SecretDocument { secret_access_key: Some(SecretField(text)), ..Default::default() },
    };
    reject_field(
        document.client_secret.is_some()
            || document.refresh_token.is_some()
            || document.token_url.is_some()
            || document.client_id.is_some(),
        "access_key_id, secret_access_key, session_token and region",
    )?;
    let key = document.secret_access_key.ok_or_else(|| missing_secret("secret_access_key"))?;
    // Temporary keys are rotated together with their id, so the document's wins.
    let access_key_id = document.access_key_id.or_else(|| parts.access_key_id.clone());
    Ok(SecretMaterial::AwsSigv4 {
        access_key_id: part("access_key_id", access_key_id)?,
        secret_access_key: single(key.0, SecretForm::Visible)?,
        session_token: document
            .session_token
            .map(|token| single(token.0, SecretForm::Visible))
            .transpose()?,
        region: parts.region.clone().or(document.region),
    })
}

/// Parses the text if it is a document and not a single secret. The parser's message could quote the secret.
fn document(text: &str) -> Result<Option<SecretDocument>, SecretProblem> {
    if !text.trim_start().starts_with('{') {
        return Ok(None);
    }
    serde_json::from_str(text).map(Some).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        SecretProblem::new(
            format!("is not the JSON object that its kind has, at {place}"),
            "oauth2 has client_secret and refresh_token; aws_sigv4 has access_key_id, secret_access_key and \
             session_token.",
        )
    })
}

fn reject_field(is_given: bool, allowed: &str) -> Result<(), SecretProblem> {
    match is_given {
        false => Ok(()),
        true => Err(SecretProblem::new(
            "has a field of another kind of credential",
            format!("Its fields are {allowed}."),
        )),
    }
}

fn single(text: Zeroizing<String>, form: SecretForm) -> Result<Arc<Secret>, SecretProblem> {
    secret_text(text, form).map_err(|flaw| {
        SecretProblem::new(format!("cannot be used: {flaw}"), "Give it as its issuer shows it, on one line.")
    })
}

fn part(name: &str, value: Option<String>) -> Result<String, SecretProblem> {
    value.ok_or_else(|| SecretProblem::new(format!("has no {name}"), format!("Add {name} to the binding.")))
}

fn missing_secret(name: &str) -> SecretProblem {
    let fix = format!("Give a JSON object with the field `{name}`.");
    SecretProblem::new(format!("has no {name}"), fix)
}

/// Writes the secret of an OAuth 2.0 binding with a replaced refresh token, as the store is to keep it: in the form
/// in which it was read.
pub(super) fn renewed_secret(material: &SecretMaterial, was_document: bool) -> Option<Zeroizing<String>> {
    let SecretMaterial::Oauth2 { client_secret, grant: OauthGrant::RefreshToken(token), .. } = material
    else {
        return None;
    };
    if !was_document {
        return Some(Zeroizing::new(token.expose().to_owned()));
    }
    // Both were read from JSON strings of at most 16 KiB each; escaping at most multiplies that by six.
    let mut text = Zeroizing::new(String::with_capacity(256 * 1024));
    let quoted = |secret: &Secret| Zeroizing::new(serde_json::to_string(secret.expose()).unwrap_or_default());
    text.push('{');
    if let Some(client_secret) = client_secret {
        text.push_str("\"client_secret\":");
        text.push_str(&quoted(client_secret));
        text.push(',');
    }
    text.push_str("\"refresh_token\":");
    text.push_str(&quoted(token));
    text.push('}');
    Some(text)
}
