//! A credential that a connector asks to have sent for it: which kind, to which hosts, in which header.

use super::grant::HostGrant;
use super::parse::exact_host;
use crate::document::{Refused, Table, quoted};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// The kinds of credentials that the host can send.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum CredentialKind {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl CredentialKind {
            /// Every kind.
            pub const ALL: &'static [CredentialKind] = &[$(CredentialKind::$variant),+];

            /// The word in manifests and binding names.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(CredentialKind::$variant => $name,)+ }
            }
        }
    };
}

kinds! {
    /// A fixed key in a header of the manifest's choice.
    ApiKey = "api_key";
    /// User name and password.
    Basic = "basic";
    /// A fixed bearer token.
    Bearer = "bearer";
    /// A token that the host obtains and refreshes.
    Oauth2 = "oauth2";
    /// A signature of the request.
    AwsSigv4 = "aws_sigv4";
    /// A token that the guest places by an opaque handle, which the host replaces.
    SessionToken = "session_token";
}

/// A `[[capabilities.credential]]` of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialGrant {
    kind: CredentialKind,
    service: String,
    hosts: Vec<HostGrant>,
    header: String,
    format: String,
}

impl CredentialGrant {
    /// The kind.
    #[must_use]
    pub fn kind(&self) -> CredentialKind {
        self.kind
    }

    /// The service: the middle of the binding's name, `<kind>/<service>/<identity>`.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Where the credential may be sent; a non-empty subset of the manifest's hosts.
    #[must_use]
    pub fn hosts(&self) -> &[HostGrant] {
        &self.hosts
    }

    /// The header that carries it; `Authorization` unless an API key names another.
    #[must_use]
    pub fn header(&self) -> &str {
        &self.header
    }

    /// The header's value with `{key}` where the key goes; only an API key may choose it.
    #[must_use]
    pub fn format(&self) -> &str {
        &self.format
    }
}

/// Reads one credential; `hosts` are those of the manifest.
pub(super) fn credential(table: &Table<'_>, hosts: &[HostGrant]) -> Option<CredentialGrant> {
    table.only(&["kind", "service", "hosts", "header", "format"]);
    let kind_text = table.required_text("kind", "kind = \"api_key\"");
    let kind = kind_text.and_then(|text| text.parse(|text| kind(text)));
    let service = table.required_text("service", "service = \"slack\"");
    let service = service.and_then(|text| text.parse(|text| service_name(text)));
    let granted = destinations(table, hosts);
    for key in ["header", "format"] {
        if let (Some(kind), Some(text)) =
            (kind.filter(|kind| *kind != CredentialKind::ApiKey), table.text(key))
        {
            let message = format!("a {} credential has its own header", kind.name());
            text.refuse(Refused::new(message, format!("remove {key}")));
        }
    }
    let header = table.text("header").map(|text| text.parse(|text| header_name(text)));
    let format = table.text("format").map(|text| text.parse(|text| header_format(text)));
    Some(CredentialGrant {
        kind: kind?,
        service: service?,
        hosts: granted,
        header: header.unwrap_or_else(|| Some("Authorization".into()))?,
        format: format.unwrap_or_else(|| Some("Bearer {key}".into()))?,
    })
}

fn destinations(table: &Table<'_>, hosts: &[HostGrant]) -> Vec<HostGrant> {
    let texts = table.texts("hosts");
    if !table.has("hosts") {
        table.missing("hosts", "hosts = [\"slack.com:443\"], the hosts it may be sent to");
    } else if texts.is_empty() {
        let refused =
            Refused::new("hosts names no host", "name the hosts that the credential may be sent to");
        table.here().refuse(refused);
    }
    let mut granted = Vec::new();
    for text in &texts {
        let Some(host) = exact_host(text, &granted) else { continue };
        if hosts.contains(&host) {
            granted.push(host);
        } else {
            let message = format!("\"{host}\" is not among the hosts of [capabilities.network]");
            text.refuse(Refused::new(message, format!("add \"{host}\" there, or remove it here")));
        }
    }
    granted
}

fn kind(text: &str) -> Result<CredentialKind, Refused> {
    CredentialKind::ALL.iter().copied().find(|kind| kind.name() == text).ok_or_else(|| {
        let names: Vec<_> = CredentialKind::ALL.iter().map(|kind| kind.name()).collect();
        let message = format!("{} is not a kind of credential", quoted(text));
        Refused::new(message, format!("write one of {}", names.join(", ")))
    })
}

fn service_name(text: &str) -> Result<String, Refused> {
    let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let inner = text.bytes().all(|b| ok(b) || b == b'-' || b == b'_');
    if inner && text.bytes().next().is_some_and(ok) && text.len() <= 64 {
        return Ok(text.to_owned());
    }
    let message = format!("{} is not a service name", quoted(text));
    Err(Refused::new(message, "write up to 64 lower-case letters, digits, `-` and `_`, like \"slack\""))
}

/// Header fields that belong to the connection or to the host, not to a credential.
const RESERVED: [&str; 10] = [
    "host",
    "connection",
    "content-length",
    "content-type",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

fn header_name(text: &str) -> Result<String, Refused> {
    let name = http::HeaderName::from_bytes(text.as_bytes());
    let Some(name) = name.ok().filter(|_| text.len() <= 64) else {
        let message = format!("{} is not a header name", quoted(text));
        return Err(Refused::new(message, "write a name like \"Authorization\" or \"X-Api-Key\""));
    };
    if RESERVED.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
        let message = format!("{} is a header that no credential may use", quoted(text));
        return Err(Refused::new(message, "write a name like \"Authorization\" or \"X-Api-Key\""));
    }
    Ok(text.to_owned())
}

fn header_format(text: &str) -> Result<String, Refused> {
    let visible = text.bytes().all(|b| (b' '..=b'~').contains(&b));
    let without = text.replacen("{key}", "", 1);
    if visible && text.len() <= 200 && without.len() < text.len() && !without.contains(['{', '}']) {
        return Ok(text.to_owned());
    }
    let message = format!("{} is not a header format", quoted(text));
    Err(Refused::new(message, "write one line of ASCII with {key} in it once, like \"Bearer {key}\""))
}
