//! A credential that the host sends for a connector: its kind, its hosts, and its placement.

use cofferdam_core::document::{DocumentTable, InvalidValue, quoted};

use super::grant::HostGrant;
use super::parse::exact_host;
use super::placement::{CredentialPlacement, placement};

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
    /// A fixed key in a header or a query parameter of the manifest's choice.
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
    placement: CredentialPlacement,
    optional: bool,
    signing_name: String,
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

    /// Returns the hosts that the credential may be sent to; a non-empty subset of the manifest's hosts.
    #[must_use]
    pub fn hosts(&self) -> &[HostGrant] {
        &self.hosts
    }

    /// Returns its placement in a request: `Authorization` unless an API key names another place.
    #[must_use]
    pub fn placement(&self) -> &CredentialPlacement {
        &self.placement
    }

    /// Returns true if a call is sent without it when nothing is bound. False unless the manifest says so.
    #[must_use]
    pub fn optional(&self) -> bool {
        self.optional
    }

    /// Returns the name of the service in AWS signatures: `aws_service`, or the service itself.
    #[must_use]
    pub fn signing_name(&self) -> &str {
        &self.signing_name
    }

    /// The first part of its bindings' names, `<kind>/<service>`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}/{}", self.kind.name(), self.service)
    }

    /// Returns the reason why both cannot be sent in one request, as the beginning of a sentence.
    pub(super) fn clash(&self, other: &Self) -> Option<String> {
        let host = self.hosts.iter().find(|host| other.hosts.contains(host))?;
        let place = self.placement.shared_with(&other.placement)?;
        Some(format!("{} above writes {place} of requests to {host}, too", other.label()))
    }
}

/// Reads one credential; `hosts` are those of the manifest.
pub(super) fn credential(table: &DocumentTable<'_>, hosts: &[HostGrant]) -> Option<CredentialGrant> {
    table.reject_unknown_keys(&[
        "kind",
        "service",
        "hosts",
        "optional",
        "header",
        "format",
        "query",
        "aws_service",
    ]);
    let kind_text = table.required_text("kind", "kind = \"api_key\"");
    let kind = kind_text.and_then(|text| text.parse(|text| kind(text)));
    let service = table.required_text("service", "service = \"slack\"");
    let service = service.and_then(|text| text.parse(|text| service_name(text)));
    let granted = destinations(table, hosts);
    let placement = kind.and_then(|kind| placement(table, kind));
    let signing_name = table.text("aws_service").map(|text| {
        if kind.is_some_and(|kind| kind != CredentialKind::AwsSigv4) {
            text.refuse(InvalidValue::new("only an aws_sigv4 credential signs", "remove aws_service"));
        }
        text.parse(|text| service_name(text))
    });
    let optional = table.flag("optional").unwrap_or(false);
    let service = service?;
    Some(CredentialGrant {
        kind: kind?,
        signing_name: signing_name.unwrap_or_else(|| Some(service.clone()))?,
        service,
        hosts: granted,
        placement: placement?,
        optional,
    })
}

fn destinations(table: &DocumentTable<'_>, hosts: &[HostGrant]) -> Vec<HostGrant> {
    let texts = table.texts("hosts");
    if !table.has("hosts") {
        table.missing("hosts", "hosts = [\"slack.com:443\"], the hosts it may be sent to");
    } else if texts.is_empty() {
        let refused =
            InvalidValue::new("hosts names no host", "name the hosts that the credential may be sent to");
        table.location().refuse(refused);
    }
    let mut granted = Vec::new();
    for text in &texts {
        let Some(host) = exact_host(text, &granted) else { continue };
        if hosts.contains(&host) {
            granted.push(host);
        } else {
            let message = format!("\"{host}\" is not among the hosts of [capabilities.network]");
            text.refuse(InvalidValue::new(message, format!("add \"{host}\" there, or remove it here")));
        }
    }
    granted
}

fn kind(text: &str) -> Result<CredentialKind, InvalidValue> {
    CredentialKind::ALL.iter().copied().find(|kind| kind.name() == text).ok_or_else(|| {
        let names: Vec<_> = CredentialKind::ALL.iter().map(|kind| kind.name()).collect();
        let message = format!("{} is not a kind of credential", quoted(text));
        InvalidValue::new(message, format!("write one of {}", names.join(", ")))
    })
}

fn service_name(text: &str) -> Result<String, InvalidValue> {
    let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let inner = text.bytes().all(|b| ok(b) || b == b'-' || b == b'_');
    if inner && text.bytes().next().is_some_and(ok) && text.len() <= 64 {
        return Ok(text.to_owned());
    }
    let message = format!("{} is not a service name", quoted(text));
    Err(InvalidValue::new(message, "write up to 64 lower-case letters, digits, `-` and `_`, like \"slack\""))
}
