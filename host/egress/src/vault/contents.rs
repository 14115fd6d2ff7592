//! The serial form of the bindings: JSON that exists only inside the seal and in memory that is cleared.
//!
//! Secrets are base64 in it, so that no reader or writer has to unescape them into memory of its own.

use std::io::{self, Write};
use std::sync::Arc;

use base64::Engine as _;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::{Scanner, Secret};
use cofferdam_model::manifest::{ConnectorName, HostGrant};
use jiff::Timestamp;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

use super::binding::{Binding, Bindings, OauthGrant, OauthTokens, SecretMaterial};
use super::name::BindingName;

/// The length of the contents is padded to a multiple of this, in bytes, so that the file's size does not
/// reveal that of a secret.
const PAD: usize = 1024;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VaultContents {
    bindings: Vec<StoredBinding>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredBinding {
    name: String,
    material: StoredMaterial,
    hosts: Vec<HostGrant>,
    connectors: Vec<ConnectorName>,
    created: VaultTimestamp,
    changed: VaultTimestamp,
    refused: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum StoredMaterial {
    ApiKey {
        key: HeldSecret,
    },
    Basic {
        username: String,
        password: HeldSecret,
    },
    Bearer {
        token: HeldSecret,
    },
    Oauth2 {
        token_url: String,
        client_id: String,
        client_secret: Option<HeldSecret>,
        scopes: Vec<String>,
        /// `None` if the client's own credentials are used.
        refresh_token: Option<HeldSecret>,
        access_token: Option<HeldSecret>,
        expires: Option<VaultTimestamp>,
    },
    AwsSigv4 {
        access_key_id: String,
        secret_access_key: HeldSecret,
        session_token: Option<HeldSecret>,
        region: Option<String>,
    },
    SessionToken {
        token: HeldSecret,
    },
}

/// A secret as it is serialized in the contents, and nowhere else.
struct HeldSecret(Arc<Secret>);

impl Serialize for HeldSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0.expose().as_bytes(), &STANDARD))
    }
}

impl<'de> Deserialize<'de> for HeldSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Base64Visitor;
        impl Visitor<'_> for Base64Visitor {
            type Value = HeldSecret;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("base64")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<HeldSecret, E> {
                let mut bytes = Zeroizing::new(vec![0; base64::decoded_len_estimate(text.len())]);
                let wrong = || E::custom("not base64 of a text");
                let length = STANDARD.decode_slice(text, &mut bytes).map_err(|_| wrong())?;
                bytes.truncate(length);
                match String::from_utf8(std::mem::take(&mut *bytes)) {
                    Ok(text) => Ok(HeldSecret(Arc::new(Secret::new(text)))),
                    Err(error) => {
                        drop(Zeroizing::new(error.into_bytes()));
                        Err(wrong())
                    }
                }
            }
        }
        deserializer.deserialize_str(Base64Visitor)
    }
}

/// A time, in RFC 3339.
#[derive(Clone, Copy)]
struct VaultTimestamp(Timestamp);

impl Serialize for VaultTimestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for VaultTimestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// Serializes the bindings to be sealed.
pub(super) fn write(bindings: &Bindings) -> Result<Zeroizing<Vec<u8>>, serde_json::Error> {
    let contents = VaultContents { bindings: bindings.iter().map(stored).collect() };
    // Measured first: a buffer that grows leaves copies of secrets behind.
    let mut length = LengthCounter(0);
    serde_json::to_writer(&mut length, &contents)?;
    let padded = length.0.next_multiple_of(PAD);
    let mut bytes = Zeroizing::new(Vec::with_capacity(padded));
    serde_json::to_writer(&mut *bytes, &contents)?;
    bytes.resize(padded, b' ');
    Ok(bytes)
}

/// Returns whether both would be serialized to the same bytes.
pub(super) fn is_same(one: &Bindings, other: &Bindings) -> bool {
    match (write(one), write(other)) {
        (Ok(one), Ok(other)) => *one == *other,
        _ => false,
    }
}

/// Parses the unsealed bindings.
pub(super) fn read(bytes: &[u8]) -> Result<Bindings, serde_json::Error> {
    let contents: VaultContents = serde_json::from_slice(bytes)?;
    let mut bindings = Bindings::default();
    for stored in contents.bindings {
        let name = BindingName::parse(&stored.name).map_err(serde_json::Error::custom)?;
        let binding = Binding {
            material: material(stored.material),
            hosts: stored.hosts,
            connectors: stored.connectors,
            created: stored.created.0,
            changed: stored.changed.0,
            refused: stored.refused,
            name,
        };
        let whole = binding.material.kind() == binding.name.kind()
            && !(binding.hosts.is_empty() || binding.connectors.is_empty());
        if !whole || bindings.insert(binding).is_some() {
            return Err(serde_json::Error::custom("a binding is not whole or stands twice"));
        }
    }
    Ok(bindings)
}

fn stored(binding: &Binding) -> StoredBinding {
    let held = |secret: &Arc<Secret>| HeldSecret(Arc::clone(secret));
    let material = match &binding.material {
        SecretMaterial::ApiKey { key } => StoredMaterial::ApiKey { key: held(key) },
        SecretMaterial::Basic { username, password } => {
            StoredMaterial::Basic { username: username.clone(), password: held(password) }
        }
        SecretMaterial::Bearer { token } => StoredMaterial::Bearer { token: held(token) },
        SecretMaterial::SessionToken { token } => StoredMaterial::SessionToken { token: held(token) },
        SecretMaterial::Oauth2 { token_url, client_id, client_secret, scopes, grant, tokens } => {
            StoredMaterial::Oauth2 {
                token_url: token_url.clone(),
                client_id: client_id.clone(),
                client_secret: client_secret.as_ref().map(held),
                scopes: scopes.clone(),
                refresh_token: match grant {
                    OauthGrant::RefreshToken(token) => Some(held(token)),
                    OauthGrant::ClientCredentials => None,
                },
                access_token: tokens.as_ref().map(|tokens| held(&tokens.access_token)),
                expires: tokens.as_ref().and_then(|tokens| tokens.expires.map(VaultTimestamp)),
            }
        }
        SecretMaterial::AwsSigv4 { access_key_id, secret_access_key, session_token, region } => {
            StoredMaterial::AwsSigv4 {
                access_key_id: access_key_id.clone(),
                secret_access_key: held(secret_access_key),
                session_token: session_token.as_ref().map(held),
                region: region.clone(),
            }
        }
    };
    StoredBinding {
        name: binding.name.to_string(),
        material,
        hosts: binding.hosts.clone(),
        connectors: binding.connectors.clone(),
        created: VaultTimestamp(binding.created),
        changed: VaultTimestamp(binding.changed),
        refused: binding.refused.clone(),
    }
}

fn material(stored: StoredMaterial) -> SecretMaterial {
    let taken = |held: Option<HeldSecret>| held.map(|held| held.0);
    match stored {
        StoredMaterial::ApiKey { key } => SecretMaterial::ApiKey { key: key.0 },
        StoredMaterial::Basic { username, password } => {
            SecretMaterial::Basic { username, password: password.0 }
        }
        StoredMaterial::Bearer { token } => SecretMaterial::Bearer { token: token.0 },
        StoredMaterial::SessionToken { token } => SecretMaterial::SessionToken { token: token.0 },
        StoredMaterial::Oauth2 {
            token_url,
            client_id,
            client_secret,
            scopes,
            refresh_token,
            access_token,
            expires,
        } => SecretMaterial::Oauth2 {
            token_url,
            client_id,
            client_secret: taken(client_secret),
            scopes,
            grant: taken(refresh_token).map_or(OauthGrant::ClientCredentials, OauthGrant::RefreshToken),
            tokens: taken(access_token)
                .map(|access_token| OauthTokens { access_token, expires: expires.map(|it| it.0) }),
        },
        StoredMaterial::AwsSigv4 { access_key_id, secret_access_key, session_token, region } => {
            SecretMaterial::AwsSigv4 {
                access_key_id,
                secret_access_key: secret_access_key.0,
                session_token: taken(session_token),
                region,
            }
        }
    }
}

/// Counts the written bytes without storing them.
struct LengthCounter(usize);

impl Write for LengthCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Creates a scanner for every secret of `bindings`: each one separately, and the pair of user name and
/// password in the form in which they are sent.
pub fn scanner_for<'b>(bindings: impl IntoIterator<Item = &'b Binding>) -> Scanner {
    let mut sought = Vec::new();
    for binding in bindings {
        let name = binding.name.to_string();
        let secrets = binding.material.secrets().into_iter().map(Arc::clone);
        sought.extend(secrets.chain(pair(&binding.material)).map(|secret| (name.clone(), secret)));
    }
    Scanner::for_bindings(sought.iter().map(|(name, secret)| (name, &**secret)))
}

/// Returns the pair that a basic credential's header encodes in base64: long enough to be found even if the
/// password alone is not. It is a secret only if there is a password.
fn pair(material: &SecretMaterial) -> Option<Arc<Secret>> {
    match material {
        SecretMaterial::Basic { username, password } if !password.expose().is_empty() => {
            Some(Arc::new(Secret::new(format!("{username}:{}", password.expose()))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use cofferdam_model::manifest::{ConnectorName, HostGrant};
    use jiff::Timestamp;

    use super::*;
    use crate::vault::BindingName;

    fn basic(password: &str) -> Binding {
        Binding {
            name: BindingName::parse("basic/wiki").unwrap(),
            material: SecretMaterial::Basic {
                username: "somebody".into(),
                password: Arc::new(Secret::new(password.into())),
            },
            hosts: vec![HostGrant::parse("wiki.test:443").unwrap()],
            connectors: vec![ConnectorName::parse("github://acme/wiki").unwrap()],
            created: Timestamp::UNIX_EPOCH,
            changed: Timestamp::UNIX_EPOCH,
            refused: None,
        }
    }

    #[test]
    fn basic_headers_are_found_with_short_passwords() {
        for password in ["pw", "a-longer-password"] {
            let scanner = scanner_for([&basic(password)]);
            let header = format!("Basic {}", STANDARD.encode(format!("somebody:{password}")));
            let found = scanner.find(format!("you sent {header}.").as_bytes()).unwrap();
            assert_eq!(&*found.binding, "basic/wiki/default");
        }
        assert!(!scanner_for([&basic("pw")]).finds(b"pw and somebody"));
        assert!(scanner_for([]).is_empty());
    }
}
