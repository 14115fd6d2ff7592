//! The parts of a credential: options, which are public, and secrets.

use std::sync::Arc;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use cofferdam_egress::vault::{
    BindingName, OauthGrant, SHORT_SECRET_CHARS, SecretForm, SecretMaterial, secret_text,
};
use cofferdam_model::manifest::CredentialKind;
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use crate::report::CommandError;
use crate::secrets::{SecretInput, SecretSourceArgs, ask};
use crate::session::Session;

/// The parts that are no secrets.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Parts that are no secrets")]
pub(super) struct PublicPartArgs {
    /// basic: the user name.
    #[arg(long, value_name = "NAME")]
    username: Option<String>,

    /// oauth2: the endpoint that gives tokens.
    #[arg(long, value_name = "URL")]
    token_url: Option<String>,

    /// oauth2: the client's id.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,

    /// oauth2: a scope to ask for; may be given several times.
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,

    /// oauth2: how tokens are obtained [default: refresh_token].
    #[arg(long, value_enum, value_name = "GRANT")]
    grant: Option<OauthGrantArg>,

    /// aws_sigv4: the id of the access key.
    #[arg(long, value_name = "ID")]
    access_key_id: Option<String>,

    /// aws_sigv4: the region, where the host's name does not say it.
    #[arg(long, value_name = "REGION")]
    region: Option<String>,

    /// aws_sigv4: the keys are temporary: a session token is asked for, too.
    #[arg(long)]
    temporary: bool,
}

/// The grant by which an OAuth 2.0 client obtains tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum OauthGrantArg {
    /// With a refresh token.
    RefreshToken,
    /// With the client's id and secret alone.
    ClientCredentials,
}

impl PublicPartArgs {
    /// The user name of a basic credential, if there is one, and nothing else.
    pub(super) fn with_username(username: Option<String>) -> Self {
        Self { username, ..Self::default() }
    }

    /// Nothing is given that another kind has.
    pub(super) fn check(&self, name: &BindingName) -> Result<(), HostError> {
        use CredentialKind::{AwsSigv4, Basic, Oauth2};
        for (kind, option, given) in [
            (Basic, "--username", self.username.is_some()),
            (Oauth2, "--token-url", self.token_url.is_some()),
            (Oauth2, "--client-id", self.client_id.is_some()),
            (Oauth2, "--scope", !self.scope.is_empty()),
            (Oauth2, "--grant", self.grant.is_some()),
            (AwsSigv4, "--access-key-id", self.access_key_id.is_some()),
            (AwsSigv4, "--region", self.region.is_some()),
            (AwsSigv4, "--temporary", self.temporary),
        ] {
            if given && name.kind() != kind {
                let message =
                    format!("{option} is a part of {} credentials, and {name} is not one.", kind.name());
                let hint =
                    format!("Leave it out, or name {}/{}/{}.", kind.name(), name.service(), name.identity());
                return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint));
            }
        }
        Ok(())
    }
}

/// Reads what is missing, and puts it together; `before` is what the binding had.
pub(super) fn read(
    name: &BindingName,
    parts: PublicPartArgs,
    before: Option<&SecretMaterial>,
    from: &SecretSourceArgs,
    session: &Session<'_>,
) -> Result<SecretMaterial, CommandError> {
    let required = |part: &str, given: Option<String>, before: Option<&String>| {
        given.or_else(|| before.cloned()).ok_or_else(|| missing_part(part, name))
    };
    let single = |what: &str, form: SecretForm| -> Result<Arc<Secret>, CommandError> {
        let text = match from.read_secret()? {
            SecretInput::Text(text) => text,
            SecretInput::Ask => ask(&format!("{what} for {name}: "), name)?,
        };
        Ok(checked(what, text, form, session)?)
    };
    Ok(match name.kind() {
        CredentialKind::ApiKey => SecretMaterial::ApiKey { key: single("API key", SecretForm::Visible)? },
        CredentialKind::Bearer => {
            let token = single("Token", SecretForm::Visible)?;
            // RFC 6750 has neither in a token; both come along when more than the token is copied.
            if token.expose().contains([' ', '"', '\'']) {
                let message = "A bearer token has neither blanks nor quotes in it; nothing was bound.";
                let hint = "Give the token alone, without `Bearer ` and without quotes.";
                return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint).into());
            }
            SecretMaterial::Bearer { token }
        }
        CredentialKind::SessionToken => {
            SecretMaterial::SessionToken { token: single("Token", SecretForm::Visible)? }
        }
        CredentialKind::Basic => {
            let before = match before {
                Some(SecretMaterial::Basic { username, .. }) => Some(username),
                _ => None,
            };
            let username = required("username", parts.username, before)?;
            if username.contains(':') {
                let message =
                    "A user name has no `:`; the password is given apart from it, never as an argument.";
                return Err(HostError::new(HostErrorKind::Validation, message).into());
            }
            SecretMaterial::Basic { username, password: single("Password", SecretForm::Encoded)? }
        }
        CredentialKind::Oauth2 => oauth2(name, parts, before, from, session, &required)?,
        CredentialKind::AwsSigv4 => aws_sigv4(name, parts, before, from, session)?,
    })
}

/// Parses `text`, if it is a document and not a single secret. Its public parts go to those `parts` that no option gives.
fn document(
    text: &str,
    known: &[&str],
    parts: &mut PublicPartArgs,
) -> Result<Option<MaterialDocument>, HostError> {
    if !text.trim_start().starts_with('{') {
        return Ok(None);
    }
    let mut document = MaterialDocument::parse(text)?;
    document.only(known)?;
    document.complete(parts);
    Ok(Some(document))
}

fn aws_sigv4(
    name: &BindingName,
    mut parts: PublicPartArgs,
    before: Option<&SecretMaterial>,
    from: &SecretSourceArgs,
    session: &Session<'_>,
) -> Result<SecretMaterial, CommandError> {
    let before = match before {
        Some(SecretMaterial::AwsSigv4 { access_key_id, region, .. }) => Some((access_key_id, region)),
        _ => None,
    };
    let given = match from.read_secret()? {
        SecretInput::Text(text) => match document(&text, &AWS_SIGV4_FIELDS, &mut parts)? {
            Some(fields) => {
                let key = fields.secret_access_key.ok_or_else(|| missing("secret_access_key"))?;
                Some((key, fields.session_token))
            }
            None => Some((SecretField(text), None)),
        },
        SecretInput::Ask => None,
    };
    let access_key_id = parts.access_key_id.or_else(|| before.map(|it| it.0.clone()));
    let access_key_id = access_key_id.ok_or_else(|| missing_part("access_key_id", name))?;
    let region = parts.region.or_else(|| before.and_then(|it| it.1.clone()));
    let (key, token) = match given {
        Some(given) => given,
        None => {
            let key = ask(&format!("Secret access key of {access_key_id} for {name}: "), name)?;
            let token = match parts.temporary {
                true => Some(SecretField(ask("Session token: ", name)?)),
                false => None,
            };
            (SecretField(key), token)
        }
    };
    if parts.temporary && token.is_none() {
        return Err(missing("session_token").into());
    }
    let token =
        token.map(|token| checked("session token", token.0, SecretForm::Visible, session)).transpose()?;
    Ok(SecretMaterial::AwsSigv4 {
        access_key_id,
        secret_access_key: checked("secret access key", key.0, SecretForm::Visible, session)?,
        session_token: token,
        region,
    })
}

fn oauth2(
    name: &BindingName,
    mut parts: PublicPartArgs,
    before: Option<&SecretMaterial>,
    from: &SecretSourceArgs,
    session: &Session<'_>,
    required: &impl Fn(&str, Option<String>, Option<&String>) -> Result<String, HostError>,
) -> Result<SecretMaterial, CommandError> {
    let before = match before {
        Some(SecretMaterial::Oauth2 { token_url, client_id, scopes, grant, .. }) => {
            Some((token_url, client_id, scopes, grant))
        }
        _ => None,
    };
    let input = from.read_secret()?;
    let fields = match &input {
        SecretInput::Text(text) => document(text, &OAUTH2_FIELDS, &mut parts)?,
        SecretInput::Ask => None,
    };
    let token_url = required("token_url", parts.token_url, before.map(|it| it.0))?;
    let client_id = required("client_id", parts.client_id, before.map(|it| it.1))?;
    let scopes = match before {
        Some((_, _, scopes, _)) if parts.scope.is_empty() => scopes.clone(),
        _ => parts.scope,
    };
    let refreshes = match (parts.grant, before) {
        (Some(grant), _) => grant == OauthGrantArg::RefreshToken,
        (None, Some((_, _, _, OauthGrant::ClientCredentials))) => false,
        (None, _) => true,
    };
    let (client_secret, refresh_token) = match (fields, input) {
        (Some(fields), _) => (fields.client_secret, fields.refresh_token),
        (None, SecretInput::Text(text)) if refreshes => (None, Some(SecretField(text))),
        (None, SecretInput::Text(text)) => (Some(SecretField(text)), None),
        (None, SecretInput::Ask) => {
            let optional = if refreshes { " (empty if it has none)" } else { "" };
            let secret = ask(&format!("Client secret of {client_id}{optional}: "), name)?;
            let secret = Some(secret).filter(|secret| !(refreshes && secret.is_empty()));
            let token = match refreshes {
                true => Some(SecretField(ask(&format!("Refresh token for {name}: "), name)?)),
                false => None,
            };
            (secret.map(SecretField), token)
        }
    };
    if !refreshes && refresh_token.is_some() {
        let message = "A refresh token was given, and client credentials need none.";
        let hint = "Leave it out, or use `--grant refresh_token`.";
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint).into());
    }
    let secret = |what: &str, part: Option<SecretField>, form| {
        part.map(|part| checked(what, part.0, form, session)).transpose()
    };
    let client_secret = secret("client secret", client_secret, SecretForm::Encoded)?;
    let grant = match secret("refresh token", refresh_token, SecretForm::Visible)? {
        Some(token) => OauthGrant::RefreshToken(token),
        None if refreshes => return Err(missing("refresh_token").into()),
        None if client_secret.is_none() => return Err(missing("client_secret").into()),
        None => OauthGrant::ClientCredentials,
    };
    Ok(SecretMaterial::Oauth2 { token_url, client_id, client_secret, scopes, grant, tokens: None })
}

/// The secret in what was read; says so where it is too short to be looked for in what connectors send.
fn checked(
    what: &str,
    text: Zeroizing<String>,
    form: SecretForm,
    session: &Session<'_>,
) -> Result<Arc<Secret>, HostError> {
    let secret = secret_text(text, form).map_err(|flaw| {
        let message = format!("The {} cannot be used: {flaw}; nothing was bound.", what.to_lowercase());
        HostError::new(HostErrorKind::Validation, message)
            .with_hint("Give it as its issuer shows it, on one line.")
    })?;
    if secret.expose().chars().count() < SHORT_SECRET_CHARS {
        session.ui.warn(&format!(
            "The {} has fewer than {SHORT_SECRET_CHARS} characters: it is too short to be looked for in what a connector sends and receives.",
            what.to_lowercase()
        ));
    }
    Ok(secret)
}

/// The fields of a document for a kind that has several parts.
const OAUTH2_FIELDS: [&str; 6] =
    ["token_url", "client_id", "scopes", "grant", "client_secret", "refresh_token"];
const AWS_SIGV4_FIELDS: [&str; 4] = ["access_key_id", "region", "secret_access_key", "session_token"];

/// The parts of one binding in a JSON object: the secrets, and the public parts that no option gives.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MaterialDocument {
    token_url: Option<String>,
    client_id: Option<String>,
    scopes: Option<Vec<String>>,
    grant: Option<OauthGrantArg>,
    access_key_id: Option<String>,
    region: Option<String>,
    client_secret: Option<SecretField>,
    refresh_token: Option<SecretField>,
    secret_access_key: Option<SecretField>,
    session_token: Option<SecretField>,
}

impl MaterialDocument {
    /// Parses the document. The parser's message could quote the secret: the error has only the position and the fields.
    fn parse(text: &str) -> Result<Self, HostError> {
        serde_json::from_str(text).map_err(|error| {
            let message = format!(
                "The document with the secrets is not as it must be, at line {} column {}.",
                error.line(),
                error.column()
            );
            let fields = |fields: &[&str]| format!("`{}`", fields.join("`, `"));
            HostError::new(HostErrorKind::Validation, message).with_hint(format!(
                "It is one JSON object with these fields. oauth2: {} (`scopes` is an array, `grant` is `refresh_token` or \
                 `client_credentials`). aws_sigv4: {}.",
                fields(&OAUTH2_FIELDS),
                fields(&AWS_SIGV4_FIELDS)
            ))
        })
    }

    /// Refuses the fields of another kind.
    fn only(&self, known: &[&str]) -> Result<(), HostError> {
        let all = [
            ("token_url", self.token_url.is_some()),
            ("client_id", self.client_id.is_some()),
            ("scopes", self.scopes.is_some()),
            ("grant", self.grant.is_some()),
            ("access_key_id", self.access_key_id.is_some()),
            ("region", self.region.is_some()),
            ("client_secret", self.client_secret.is_some()),
            ("refresh_token", self.refresh_token.is_some()),
            ("secret_access_key", self.secret_access_key.is_some()),
            ("session_token", self.session_token.is_some()),
        ];
        match all.iter().find(|(name, is_given)| *is_given && !known.contains(name)) {
            Some((name, _)) => {
                let message = format!("The document has the field `{name}`, which this kind has not.");
                Err(HostError::new(HostErrorKind::Validation, message)
                    .with_hint(format!("The fields are `{}`.", known.join("`, `"))))
            }
            None => Ok(()),
        }
    }

    /// Moves the public parts to those of `parts` that are missing.
    fn complete(&mut self, parts: &mut PublicPartArgs) {
        let complete = |part: &mut Option<String>, field: &mut Option<String>| {
            *part = part.take().or_else(|| field.take());
        };
        complete(&mut parts.token_url, &mut self.token_url);
        complete(&mut parts.client_id, &mut self.client_id);
        complete(&mut parts.access_key_id, &mut self.access_key_id);
        complete(&mut parts.region, &mut self.region);
        parts.grant = parts.grant.or(self.grant);
        if parts.scope.is_empty() {
            parts.scope = self.scopes.take().unwrap_or_default();
        }
    }
}

/// A secret of a document, in memory that is cleared.
struct SecretField(Zeroizing<String>);

impl<'de> Deserialize<'de> for SecretField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

fn missing_part(part: &str, name: &BindingName) -> HostError {
    let message = format!("The {part} is missing: a {} credential has it.", name.kind().name());
    let option = part.replace('_', "-");
    let hint = match name.kind() {
        CredentialKind::Oauth2 | CredentialKind::AwsSigv4 => format!(
            "Give it with `cofferdam binding set --{option}`, or as the field `{part}` of the JSON object with the secrets."
        ),
        _ => format!("Add --{option} to the command; `cofferdam binding set --help` has examples."),
    };
    HostError::new(HostErrorKind::Validation, message).with_hint(hint)
}

fn missing(field: &str) -> HostError {
    let message = format!("The {} is missing; nothing was bound.", field.replace('_', " "));
    let hint = format!(
        "Give a JSON object with the field `{field}` on --stdin or in a file, or let `cofferdam binding set` ask for it."
    );
    HostError::new(HostErrorKind::Validation, message).with_hint(hint)
}
