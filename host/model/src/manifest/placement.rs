//! The placement of a credential in a request: the manifest's options, and the conflicts between credentials
//! in the same place.

use cofferdam_core::document::{DocumentTable, InvalidValue, quoted};
use http::HeaderName;
use http::header::AUTHORIZATION;

use super::credential::CredentialKind;

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
    fn each_kind_has_its_place_and_its_own_keys() {
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
    fn two_credentials_that_would_write_one_place_are_refused_with_the_line() {
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
