//! References to packages: a file, a web address, or a registry.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use cofferdam_core::digest::Digest;
use cofferdam_core::failure::ascii_line;
use cofferdam_egress::egress::HostPort;
use url::Url;

/// The scheme of references to registries.
const REGISTRY: &str = "oci://";

/// The scheme of web addresses.
const WEB: &str = "https://";

/// The longest reference, in bytes.
const MAX_BYTES: usize = 1024;

/// The longest repository name, in bytes, with the registry's host (OCI distribution specification).
const REPOSITORY_BYTES: usize = 255;

/// The longest tag, in bytes.
const TAG_BYTES: usize = 128;

/// A package as a command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageRef {
    /// A file on this machine.
    File(PathBuf),
    /// A package on another machine.
    Remote(RemoteRef),
}

/// A package on another machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RemoteRef {
    /// A package at a web address.
    Web(WebRef),
    /// A package on an OCI registry.
    Registry(RegistryRef),
}

/// The address of a package on a web server: `https://HOST[:PORT]/PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WebRef(Url);

/// A repository of an OCI registry, and a package in it: `oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]`.
///
/// The digest is that of the artifact's manifest. If there is one, it decides and the tag is only a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RegistryRef {
    host: String,
    port: Option<u16>,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// The error for a text that is not a reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a package reference: {reason}")]
pub struct ReferenceError {
    text: String,
    reason: String,
}

impl ReferenceError {
    fn new(text: &str, reason: impl Into<String>) -> Self {
        Self { text: ascii_line(text, 200), reason: reason.into() }
    }
}

impl PackageRef {
    /// Returns whether `text` is written as a reference to another machine.
    #[must_use]
    pub fn is_remote(text: &str) -> bool {
        [REGISTRY, WEB, "http://"].iter().any(|scheme| text.starts_with(scheme))
    }
}

impl FromStr for PackageRef {
    type Err = ReferenceError;

    /// Parses a reference. A text without a scheme is a path.
    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        match text.split_once("://") {
            _ if PackageRef::is_remote(text) => text.parse().map(Self::Remote),
            Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_lowercase()) => {
                let reason =
                    "it is a connector's name, or of an unknown scheme; write a path, oci:// or https://";
                Err(ReferenceError::new(text, reason))
            }
            _ => Ok(Self::File(text.into())),
        }
    }
}

impl FromStr for RemoteRef {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        if text.starts_with(REGISTRY) {
            return text.parse().map(Self::Registry);
        }
        text.parse().map(Self::Web)
    }
}

impl fmt::Display for RemoteRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Web(web) => web.fmt(f),
            Self::Registry(registry) => registry.fmt(f),
        }
    }
}

impl WebRef {
    /// Returns the address of the package.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.0
    }

    /// Returns the address of the signature: that of the package with `.dsse.json` at its end.
    #[must_use]
    pub fn signature_url(&self) -> Url {
        let mut url = self.0.clone();
        url.set_path(&format!("{}.dsse.json", self.0.path()));
        url
    }

    /// Returns host and port.
    #[must_use]
    pub fn host_port(&self) -> String {
        format!("{}:{}", self.0.host_str().unwrap_or_default(), self.0.port_or_known_default().unwrap_or(443))
    }
}

impl FromStr for WebRef {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let wrong = |reason: &str| ReferenceError::new(text, reason);
        if text.len() > MAX_BYTES {
            return Err(wrong("it is longer than 1024 bytes"));
        }
        let Some(rest) = text.strip_prefix(WEB) else {
            return Err(wrong("a package is fetched over TLS; write https://"));
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // One canonical spelling: what is checked here is what is connected to.
        host_port(authority, text)?;
        let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("it has a query or a fragment, so that its signature has no address"));
        }
        if url.path().ends_with('/') {
            return Err(wrong("it names no file"));
        }
        Ok(Self(url))
    }
}

impl fmt::Display for WebRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl RegistryRef {
    /// Returns the host, and the port if it is written.
    #[must_use]
    pub fn registry(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }

    /// Returns the host in lower case (an IPv6 address in brackets).
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, if it is written.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the name of the repository.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the tag, if there is one.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the digest of the manifest, if there is one.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Returns the same reference, to exactly this manifest.
    #[must_use]
    pub fn with_digest(mut self, digest: Digest) -> Self {
        self.digest = Some(digest);
        self
    }

    /// Returns a reference to the tag `tag` of the same repository.
    ///
    /// # Errors
    /// It is no tag.
    pub fn with_tag(&self, tag: &str) -> Result<Self, ReferenceError> {
        check_tag(tag).map_err(|reason| ReferenceError::new(tag, reason))?;
        Ok(Self { tag: Some(tag.to_owned()), digest: None, ..self.clone() })
    }
}

impl FromStr for RegistryRef {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let wrong = |reason: &str| ReferenceError::new(text, reason);
        if text.len() > MAX_BYTES {
            return Err(wrong("it is longer than 1024 bytes"));
        }
        let Some(rest) = text.strip_prefix(REGISTRY) else {
            return Err(wrong("write it like oci://registry.example/acme/slack:1.2.0"));
        };
        let Some((authority, path)) = rest.split_once('/') else {
            return Err(wrong(
                "it names no repository; write it like oci://registry.example/acme/slack:1.2.0",
            ));
        };
        let (host, port) = host_port(authority, text)?;
        let (path, digest) = match path.split_once('@') {
            Some((path, digest)) => {
                let parsed = Digest::parse(digest).filter(|_| digest.starts_with("sha256:"));
                let form = "its digest is not sha256: and 64 lower-case hexadecimal digits";
                (path, Some(parsed.ok_or_else(|| wrong(form))?))
            }
            None => (path, None),
        };
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        check_repository(repository).map_err(wrong)?;
        tag.map_or(Ok(()), check_tag).map_err(wrong)?;
        Ok(Self { host, port, repository: repository.to_owned(), tag: tag.map(ToOwned::to_owned), digest })
    }
}

impl fmt::Display for RegistryRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{REGISTRY}{}/{}", self.registry(), self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@sha256:{digest}"),
            None => Ok(()),
        }
    }
}

/// Parses a host with an optional port, as the egress guard does.
fn host_port(authority: &str, text: &str) -> Result<(String, Option<u16>), ReferenceError> {
    let end_of_host = authority.rfind(']').map_or(0, |end| end + 1);
    let has_port = authority.get(end_of_host..).unwrap_or_default().contains(':');
    let complete = if has_port { authority.to_owned() } else { format!("{authority}:443") };
    match HostPort::parse(&complete) {
        Ok(parsed) => Ok((parsed.host().to_owned(), has_port.then(|| parsed.port()))),
        Err(_) => {
            let reason = format!("`{}` is not a host with an optional port", ascii_line(authority, 80));
            Err(ReferenceError::new(text, reason))
        }
    }
}

/// Checks the name of a repository: components of lower-case letters and digits, with separators between them.
fn check_repository(name: &str) -> Result<(), &'static str> {
    if name.len() > REPOSITORY_BYTES {
        return Err("its repository's name is longer than 255 bytes");
    }
    let is_component = |component: &str| {
        let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let separator =
            |part: &&str| !matches!(*part, "" | "." | "_" | "__") && !part.trim_matches('-').is_empty();
        let ends = [component.bytes().next(), component.bytes().last()];
        ends.into_iter().all(|end| end.is_some_and(alphanumeric))
            && !component
                .split(|c: char| alphanumeric(u8::try_from(c).unwrap_or(0)))
                .any(|part| separator(&part))
    };
    match name.split('/').all(is_component) {
        true => Ok(()),
        false => Err(
            "its repository's name is not of lower-case letters, digits, `.`, `_` and `-` between slashes",
        ),
    }
}

fn check_tag(tag: &str) -> Result<(), &'static str> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_tag = tag.len() <= TAG_BYTES
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-');
    if is_tag { Ok(()) } else { Err("its tag is not 1 to 128 letters, digits, `_`, `.` and `-`") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    const DIGEST: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn references_round_trip() {
        for (text, shown) in [
            ("oci://ghcr.io/acme/slack:1.2.0", None),
            ("oci://GHCR.io/acme/slack", Some("oci://ghcr.io/acme/slack")),
            ("oci://localhost:5000/a/b/c-d__e.f_g--h:V1_x-y.z", None),
            ("oci://127.0.0.1:5000/x:latest", None),
            ("oci://[::1]:5000/x:latest", None),
            ("oci://[::1]/x:latest", None),
            (&format!("oci://r.example/x@{DIGEST}"), None),
            (&format!("oci://r.example:443/x:1@{DIGEST}"), None),
            ("https://example.com/slack-1.2.0.wasm", None),
            ("https://example.com:8443/a/b.wasm", None),
        ] {
            let reference: RemoteRef = text.parse().unwrap();
            assert_eq!(reference.to_string(), shown.unwrap_or(text));
            assert_eq!(reference.to_string().parse::<RemoteRef>().unwrap(), reference);
            assert_eq!(text.parse::<PackageRef>().unwrap(), PackageRef::Remote(reference));
        }
    }

    #[test]
    fn a_text_without_a_scheme_is_a_path() {
        for text in ["slack.wasm", "./a b.wasm", "/x", "a:b", "oci:/x"] {
            assert_eq!(text.parse::<PackageRef>().unwrap(), PackageRef::File(text.into()));
        }
    }

    #[test]
    fn other_references_are_refused_with_a_reason() {
        let long = format!("oci://r.example/{}", "a".repeat(300));
        for (text, reason) in [
            ("github://acme/slack", "a connector's name"),
            ("ftp://example.com/x", "an unknown scheme"),
            ("http://example.com/x.wasm", "over TLS"),
            ("oci://ghcr.io", "no repository"),
            ("oci://ghcr.io/", "repository's name"),
            ("oci://ghcr.io/Acme/slack", "repository's name"),
            ("oci://ghcr.io/acme//slack", "repository's name"),
            ("oci://ghcr.io/acme/../slack", "repository's name"),
            ("oci://ghcr.io/acme/sl...ack", "repository's name"),
            ("oci://ghcr.io/acme/-slack", "repository's name"),
            ("oci://ghcr.io/acme/slack?x", "repository's name"),
            ("oci://ghcr.io/acme/sl\u{e4}ck", "repository's name"),
            (&long, "255 bytes"),
            ("oci://ghcr.io/acme/slack:", "its tag"),
            ("oci://ghcr.io/acme/slack:-1", "its tag"),
            ("oci://ghcr.io/acme/slack:a/b", "its tag"),
            ("oci://ghcr.io/acme/slack:1@sha512:00", "its digest"),
            (
                "oci://ghcr.io/acme/slack@ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                "its digest",
            ),
            ("oci://user@ghcr.io/acme/slack", "not a host"),
            ("oci://ghcr.io:0/acme/slack", "not a host"),
            ("oci://127.1/acme/slack", "not a host"),
            ("oci:///acme/slack", "not a host"),
            ("https://u:p@example.com/x.wasm", "not a host"),
            ("https://127.1/x.wasm", "not a host"),
            ("https://example.com/x.wasm?v=1", "a query"),
            ("https://example.com/x.wasm#v", "a query"),
            ("https://example.com/", "no file"),
            ("https://example.com", "no file"),
        ] {
            let error = text.parse::<PackageRef>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn the_signature_is_beside_the_package() {
        let web: WebRef = "https://example.com/a/slack.wasm".parse().unwrap();
        assert_eq!(web.signature_url().as_str(), "https://example.com/a/slack.wasm.dsse.json");
    }
}
