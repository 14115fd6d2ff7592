//! A credential that the host sends for a connector: its kind, its hosts, and its placement.

use cofferdam_core::document::{DocumentTable, InvalidValue, quoted};
use http::HeaderName;
use http::header::AUTHORIZATION;

use super::grant::HostGrant;
use super::parse::exact_host;

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

/// The place of the key in a header's format.
const KEY: &str = "{key}";

/// The headers of an AWS signature, in addition to `Authorization`.
static SIGNATURE_HEADERS: [HeaderName; 4] = [
    AUTHORIZATION,
    HeaderName::from_static("x-amz-date"),
    HeaderName::from_static("x-amz-content-sha256"),
    HeaderName::from_static("x-amz-security-token"),
];

/// The placement of a credential in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialPlacement {
    /// In a header.
    Header {
        /// Which one.
        name: HeaderName,
        /// Its value, with `{key}` where the credential goes.
        format: String,
    },
    /// In a parameter of the query.
    Query {
        /// Its name.
        name: String,
    },
    /// As a signature of the request, in the headers that AWS has for it.
    Signature,
    /// At the guest's handle.
    Handle,
}

impl CredentialPlacement {
    /// The headers that the host writes for it: no guest of this connector may set them.
    #[must_use]
    pub fn headers(&self) -> &[HeaderName] {
        match self {
            Self::Header { name, .. } => std::slice::from_ref(name),
            Self::Signature => &SIGNATURE_HEADERS,
            Self::Query { .. } | Self::Handle => &[],
        }
    }

    /// The parameter of the query that the host writes for it.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        match self {
            Self::Query { name } => Some(name),
            Self::Header { .. } | Self::Signature | Self::Handle => None,
        }
    }

    /// The place that both would write, in words.
    pub(super) fn shared_with(&self, other: &Self) -> Option<String> {
        let header =
            self.headers().iter().find(|name| other.headers().iter().any(|its| one_field(name, its)));
        let query = self.query().filter(|name| other.query().is_some_and(|it| it.eq_ignore_ascii_case(name)));
        header
            .map(|name| format!("the header {name}"))
            .or(query.map(|name| format!("the query parameter {name}")))
    }

    /// A header's value with `key` in it.
    pub fn filled(format: &str, key: &str) -> String {
        format.replacen(KEY, key, 1)
    }
}

impl std::fmt::Display for CredentialPlacement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header { name, .. } => write!(f, "header {name}"),
            Self::Query { name } => write!(f, "query parameter {name}"),
            Self::Signature => f.write_str("signature (AWS SigV4)"),
            Self::Handle => f.write_str("where the connector puts its handle"),
        }
    }
}

/// Returns whether some servers take both names for one field: they read `_` as `-`.
fn one_field(one: &HeaderName, other: &HeaderName) -> bool {
    one.as_str().replace('_', "-") == other.as_str().replace('_', "-")
}

/// Reads where a credential of `kind` goes; none where that is refused.
pub(super) fn placement(table: &DocumentTable<'_>, kind: CredentialKind) -> Option<CredentialPlacement> {
    let chosen = kind == CredentialKind::ApiKey;
    for key in ["header", "format", "query"] {
        if let (false, Some(text)) = (chosen, table.text(key)) {
            let message = format!("a {} credential has its own place", kind.name());
            text.refuse(InvalidValue::new(message, format!("remove {key}")));
        }
    }
    let bearer = || CredentialPlacement::Header { name: AUTHORIZATION, format: "Bearer {key}".into() };
    match kind {
        CredentialKind::ApiKey => {}
        CredentialKind::Bearer | CredentialKind::Oauth2 => return Some(bearer()),
        CredentialKind::Basic => {
            return Some(CredentialPlacement::Header { name: AUTHORIZATION, format: "Basic {key}".into() });
        }
        CredentialKind::AwsSigv4 => return Some(CredentialPlacement::Signature),
        CredentialKind::SessionToken => return Some(CredentialPlacement::Handle),
    }
    let (header, format) = (table.text("header"), table.text("format"));
    if let Some(query) = table.text("query") {
        for (key, text) in [("header", &header), ("format", &format)] {
            if let Some(text) = text {
                let message = "a key that goes into the query stands in no header";
                text.refuse(InvalidValue::new(message, format!("remove {key}, or query")));
            }
        }
        return Some(CredentialPlacement::Query { name: query.parse(|text| parameter_name(text))? });
    }
    let name = header.map_or(Some(AUTHORIZATION), |text| text.parse(|text| header_name(text)));
    let format =
        format.map_or_else(|| Some("Bearer {key}".into()), |text| text.parse(|text| header_format(text)));
    Some(CredentialPlacement::Header { name: name?, format: format? })
}

/// Header fields that belong to the connection or to the host, not to a credential.
///
/// Fields that request an encoded or partial answer are excluded too: an encoded answer cannot be searched
/// for the secret.
const RESERVED: [&str; 27] = [
    "a-im",
    "cf-connecting-ip",
    "client-ip",
    "early-data",
    "if-range",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-http-method-override",
    "accept-charset",
    "accept-encoding",
    "content-encoding",
    "forwarded",
    "host",
    "http2-settings",
    "range",
    "via",
    "x-real-ip",
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

fn header_name(text: &str) -> Result<HeaderName, InvalidValue> {
    let name = HeaderName::from_bytes(text.as_bytes());
    let Some(name) = name.ok().filter(|_| text.len() <= 64) else {
        let message = format!("{} is not a header name", quoted(text));
        return Err(InvalidValue::new(message, "write a name like \"Authorization\" or \"X-Api-Key\""));
    };
    // Some servers read `_` as `-`.
    let read = name.as_str().replace('_', "-");
    let prefixed = ["proxy-", "x-forwarded-"].iter().any(|prefix| read.starts_with(prefix));
    if prefixed || RESERVED.contains(&read.as_str()) {
        let message = format!("{} is a header that no credential may use", quoted(text));
        return Err(InvalidValue::new(message, "write a name like \"Authorization\" or \"X-Api-Key\""));
    }
    Ok(name)
}

fn header_format(text: &str) -> Result<String, InvalidValue> {
    let visible = text.bytes().all(|b| (b' '..=b'~').contains(&b));
    let without = text.replacen(KEY, "", 1);
    if visible && text.len() <= 200 && without.len() < text.len() && !without.contains(['{', '}']) {
        return Ok(text.to_owned());
    }
    let message = format!("{} is not a header format", quoted(text));
    Err(InvalidValue::new(message, "write one line of ASCII with {key} in it once, like \"Bearer {key}\""))
}

fn parameter_name(text: &str) -> Result<String, InvalidValue> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    let message = format!("{} is not the name of a query parameter", quoted(text));
    Err(InvalidValue::new(message, "write up to 64 letters, digits, `-`, `.`, `_` and `~`, like \"api_key\""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

    use super::CredentialPlacement;
    use crate::manifest::Manifest;

    const HEAD: &str = "[connector]\nname = \"github://acme/x\"\nversion = \"1.0.0\"\n\
        [capabilities.network]\nhosts = [\"a.example:443\", \"b.example:443\"]\n";

    fn with(credentials: &str) -> Result<Manifest, String> {
        Manifest::parse("connector.toml", &format!("{HEAD}{credentials}")).map_err(|error| error.to_string())
    }

    fn one(kind: &str, service: &str, host: &str, more: &str) -> String {
        format!(
            "[[capabilities.credential]]\nkind = \"{kind}\"\nservice = \"{service}\"\nhosts = [\"{host}\"]\n{more}\n"
        )
    }

    #[test]
    fn each_kind_has_its_placement_and_keys() {
        let manifest = with(&one("api_key", "x", "a.example:443", "query = \"api_key\"\noptional = true"));
        let grant = manifest.unwrap().credentials()[0].clone();
        assert_eq!(grant.placement(), &CredentialPlacement::Query { name: "api_key".into() });
        assert!(grant.optional());
        let manifest = with(&one("aws_sigv4", "bucket", "a.example:443", "aws_service = \"s3\"")).unwrap();
        let grant = &manifest.credentials()[0];
        assert_eq!((grant.placement(), grant.signing_name()), (&CredentialPlacement::Signature, "s3"));
        for (kind, line, says) in [
            ("bearer", "query = \"k\"", "line 10: remove query"),
            ("api_key", "query = \"k\"\nheader = \"X-Key\"", "11: remove header, or query"),
            ("api_key", "query = \"a b\"", "10: write up to 64 letters"),
            ("api_key", "query = \"\"", "10: write up to 64 letters"),
            ("api_key", "aws_service = \"s3\"", "10: remove aws_service"),
            ("api_key", "optional = \"yes\"", "10: write true or false"),
        ] {
            let error = with(&one(kind, "x", "a.example:443", line)).unwrap_err();
            let (number, fix) = says.split_once(": ").unwrap();
            let number = number.trim_start_matches("line ");
            assert!(error.contains(&format!("connector.toml:{number}:")) && error.contains(fix), "{error}");
        }
    }

    #[test]
    fn credentials_in_the_same_place_are_refused() {
        let bearer = one("bearer", "x", "a.example:443", "");
        for other in [
            one("basic", "y", "a.example:443", ""),
            one("api_key", "y", "a.example:443", "header = \"authorization\""),
            one("aws_sigv4", "y", "a.example:443", ""),
        ] {
            let error = with(&format!("{bearer}{other}")).unwrap_err();
            assert!(error.contains("connector.toml:11:"), "{error}");
            assert!(error.contains("bearer/x above writes the header authorization"), "{error}");
            assert!(error.contains("different places"), "{error}");
        }
        let query = |service: &str, name: &str| {
            one("api_key", service, "a.example:443", &format!("query = \"{name}\""))
        };
        let error = with(&(query("x", "key") + &query("y", "KEY"))).unwrap_err();
        assert!(error.contains("api_key/x above writes the query parameter KEY"), "{error}");
        with(&(query("x", "key") + &query("y", "other"))).unwrap();
        for other in [
            one("basic", "y", "b.example:443", ""),
            one("api_key", "y", "a.example:443", "header = \"X-Key\""),
            one("api_key", "y", "a.example:443", "query = \"key\""),
            one("session_token", "y", "a.example:443", ""),
        ] {
            with(&format!("{bearer}{other}")).unwrap();
        }
    }
}
