//! `bindings.toml`: the bindings of a host whose secrets are kept elsewhere. It has everything of a binding but the
//! secret, so that it can be kept under version control.

use std::path::{Path, PathBuf};

use cofferdam_core::document::{DocumentTable, InvalidValue, SpannedItem, read};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::private_file::{self, FileError, FilePolicy};
use cofferdam_model::manifest::{ConnectorName, CredentialKind, HostGrant};

use crate::vault::error::VaultError;
use crate::vault::file::{name, unusable};
use crate::vault::name::BindingName;

/// The longest file, in bytes: thousands of bindings.
const MAX_BYTES: u64 = 1024 * 1024;

/// It decides where secrets go: others may read it, and not write it. Orchestrators mount it through links.
const POLICY: FilePolicy = FilePolicy::trusted(MAX_BYTES).named();

/// The number of bytes of the longest name of a secret.
const SECRET_NAME_BYTES: usize = 256;

/// A binding without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BindingEntry {
    pub(super) name: BindingName,
    /// The name of its secret at the operator's store.
    pub(super) secret: String,
    pub(super) hosts: Vec<HostGrant>,
    pub(super) connectors: Vec<ConnectorName>,
    pub(super) parts: PublicParts,
}

/// The parts of a binding that are not secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PublicParts {
    pub(super) username: Option<String>,
    pub(super) token_url: Option<String>,
    pub(super) client_id: Option<String>,
    pub(super) scopes: Vec<String>,
    pub(super) grant: Option<OauthGrantKind>,
    /// True if the issuer never replaces the refresh token, as the operator says.
    pub(super) keeps_refresh_token: bool,
    pub(super) access_key_id: Option<String>,
    pub(super) region: Option<String>,
}

/// The kind of an OAuth 2.0 grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OauthGrantKind {
    RefreshToken,
    ClientCredentials,
}

/// The file at a path.
#[derive(Debug)]
pub(super) struct BindingsFile {
    path: PathBuf,
}

impl BindingsFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the name for messages.
    pub(super) fn shown(&self) -> String {
        name(&self.path)
    }

    /// Returns the state of the file, and of a file that a link leads to.
    pub(super) fn fingerprint(&self) -> Option<FileFingerprint> {
        fingerprint_of_target(&self.path)
    }

    /// Reads the bindings. `is_name` decides whether the store can have a secret of that name.
    pub(super) fn load(
        &self,
        is_name: &dyn Fn(&str) -> Result<(), InvalidValue>,
    ) -> Result<Vec<BindingEntry>, VaultError> {
        let what = format!("The file of the bindings ({})", self.shown());
        let bytes = private_file::read(&self.path, &POLICY).map_err(|error| match error {
            FileError::Refused(fault) => unusable(&what, &fault.to_string(), fault.fix()),
            FileError::Io(source) | FileError::Unsynced(source) => {
                VaultError::Io { message: format!("{what} cannot be read: {}.", source.kind()), source }
            }
        })?;
        let bytes = bytes.ok_or_else(|| VaultError::Unusable {
            message: format!("{what} does not exist."),
            hint: "Write it: a [[binding]] with name, secret, hosts and connectors for each secret; docs/guides/secrets.md \
                   has examples. Or name it with `[vault] bindings` in config.toml."
                .into(),
        })?;
        let text = String::from_utf8(bytes)
            .map_err(|_| unusable(&what, "is not UTF-8 text", "Save it as UTF-8."))?;
        let parsed = read(&self.shown(), &text, |root| {
            root.reject_unknown_keys(&["binding"]);
            let mut entries: Vec<BindingEntry> = Vec::new();
            for table in root.tables("binding") {
                let Some(entry) = entry(&table, is_name) else { continue };
                if entries.iter().any(|other| other.name == entry.name) {
                    let refused = InvalidValue::new("this binding stands twice", "keep one of the two");
                    table.location().refuse(refused);
                }
                entries.push(entry);
            }
            Some(entries)
        });
        parsed.map_err(|error| {
            let error = error.into_host_error();
            let hint = error.hint().unwrap_or_default().to_owned();
            VaultError::Unusable { message: error.message().to_owned(), hint }
        })
    }
}

/// Returns the state of a file, following links: a swapped link leads to another file.
pub(super) fn fingerprint_of_target(path: &Path) -> Option<FileFingerprint> {
    path.metadata().ok().as_ref().map(FileFingerprint::from)
}

/// The keys of a binding, and of each kind.
const KEYS: [&str; 4] = ["name", "secret", "hosts", "connectors"];
const BASIC_KEYS: [&str; 1] = ["username"];
const OAUTH2_KEYS: [&str; 5] = ["token_url", "client_id", "scopes", "grant", "refresh_token_rotates"];
const AWS_KEYS: [&str; 2] = ["access_key_id", "region"];

fn entry(
    table: &DocumentTable<'_>,
    is_name: &dyn Fn(&str) -> Result<(), InvalidValue>,
) -> Option<BindingEntry> {
    let name = table.required_text("name", "name = \"bearer/slack/work\"");
    let name = name.and_then(|text| text.parse(|text| binding_name(text)));
    let of_kind: &[&str] = match name.as_ref().map(BindingName::kind) {
        Some(CredentialKind::Basic) => &BASIC_KEYS,
        Some(CredentialKind::Oauth2) => &OAUTH2_KEYS,
        Some(CredentialKind::AwsSigv4) => &AWS_KEYS,
        _ => &[],
    };
    table.reject_unknown_keys(&[&KEYS[..], of_kind].concat());
    let secret = table.required_text("secret", "secret = \"slack-token\"");
    let secret = secret.and_then(|text| text.parse(|text| secret_name(text, is_name)));
    let hosts = each(table, "hosts", "hosts = [\"slack.com:443\"]", |text| {
        HostGrant::parse(text)
            .map_err(|error| InvalidValue::new(error.to_string(), "write it like \"slack.com:443\""))
    });
    let connectors = each(table, "connectors", "connectors = [\"github://acme/slack\"]", |text| {
        ConnectorName::parse(text)
    });
    let text = |key: &str| table.text(key).map(|text| text.value.to_owned());
    let grant = table.text("grant").and_then(|text| text.parse(|text| grant(text)));
    let parts = PublicParts {
        username: text("username"),
        token_url: text("token_url"),
        client_id: text("client_id"),
        scopes: table.texts("scopes").iter().map(|text| text.value.to_owned()).collect(),
        grant,
        keeps_refresh_token: table.flag("refresh_token_rotates") == Some(false),
        access_key_id: text("access_key_id"),
        region: text("region"),
    };
    Some(BindingEntry { name: name?, secret: secret?, hosts: hosts?, connectors: connectors?, parts })
}

/// Parses each text of a list, which must have one.
fn each<T: Ord>(
    table: &DocumentTable<'_>,
    key: &str,
    example: &str,
    parse: impl Fn(&str) -> Result<T, InvalidValue>,
) -> Option<Vec<T>> {
    if !table.has(key) {
        table.missing(key, example);
        return None;
    }
    let texts: Vec<SpannedItem<'_, &str>> = table.texts(key);
    if let (true, Some(place)) = (texts.is_empty(), table.location_of(key)) {
        place.refuse(InvalidValue::new("a binding is for at least one", format!("write {example}")));
    }
    let parsed: Vec<Option<T>> = texts.iter().map(|text| text.parse(|text| parse(text))).collect();
    let mut parsed = parsed.into_iter().collect::<Option<Vec<T>>>()?;
    parsed.sort();
    parsed.dedup();
    Some(parsed).filter(|parsed| !parsed.is_empty())
}

fn binding_name(text: &str) -> Result<BindingName, InvalidValue> {
    BindingName::parse(text)
        .map_err(|error| InvalidValue::new(error.to_string(), "write it like \"bearer/slack/work\""))
}

fn secret_name(
    text: &str,
    is_name: &dyn Fn(&str) -> Result<(), InvalidValue>,
) -> Result<String, InvalidValue> {
    let is_word = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.is_empty() || text.len() > SECRET_NAME_BYTES || !is_word {
        let message = format!("not the name of a secret: {}", sanitize_line(text, 64));
        return Err(InvalidValue::new(message, "write 1 to 256 visible ASCII characters"));
    }
    is_name(text).map(|()| text.to_owned())
}

fn grant(text: &str) -> Result<OauthGrantKind, InvalidValue> {
    match text {
        "refresh_token" => Ok(OauthGrantKind::RefreshToken),
        "client_credentials" => Ok(OauthGrantKind::ClientCredentials),
        _ => Err(InvalidValue::new("not a grant", "write \"refresh_token\" or \"client_credentials\"")),
    }
}
