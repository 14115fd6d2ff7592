//! Parses and builds URLs, as far as a request needs it.

use std::fmt::{self, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use super::Error;

/// A URL in the parts that `wasi:http` requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    /// True for `https`.
    pub(crate) https: bool,
    /// The host, and the port if there is one.
    pub(crate) authority: String,
    /// The part from the first slash on, without a fragment; never empty.
    pub(crate) path_and_query: String,
}

impl Url {
    /// Parses `url`. The host checks it again thoroughly. This only has to separate the parts correctly.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let invalid = |why: &str| Error::Invalid(format!("{why} in the URL"));
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f || byte == b'\\') {
            return Err(invalid("a space, a backslash or a control character"));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("no scheme (https://)"))?;
        let https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(invalid("a scheme other than https and http")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.is_empty() {
            return Err(invalid("no host"));
        }
        if authority.contains('@') {
            return Err(invalid("a user name or password"));
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self { https, authority: authority.to_owned(), path_and_query: format!("{slash}{}", ascii(path)) })
    }

    /// Adds pairs to the query. Every character with a special meaning anywhere is encoded. A space becomes `%20`,
    /// which every server reads. The plus of forms is not understood by servers that verify signatures.
    pub(crate) fn push_query(&mut self, pairs: &[(String, String)]) {
        if pairs.is_empty() {
            return;
        }
        let joint = match self.path_and_query.split_once('?') {
            None => "?",
            Some((_, "")) => "",
            Some((_, query)) if query.ends_with('&') => "",
            Some(_) => "&",
        };
        self.path_and_query.push_str(joint);
        for (at, (name, value)) in pairs.iter().enumerate() {
            let and = if at == 0 { "" } else { "&" };
            // Writing to a string cannot fail.
            let _ = write!(self.path_and_query, "{and}{}={}", encoded(name), encoded(value));
        }
    }

    /// Returns `https` or `http`.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// Resolves a link from a response, which may leave out the host.
    pub(crate) fn join(&self, link: &str) -> Option<String> {
        let scheme = self.scheme();
        if link.contains("://") {
            Some(link.to_owned())
        } else if link.starts_with("//") {
            Some(format!("{scheme}:{link}"))
        } else if link.starts_with('/') {
            Some(format!("{scheme}://{}{link}", self.authority))
        } else if link.starts_with('?') {
            let path = self.path_and_query.split('?').next().unwrap_or("/");
            Some(format!("{scheme}://{}{path}{link}", self.authority))
        } else {
            None
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority, self.path_and_query)
    }
}

/// Encodes pairs as `application/x-www-form-urlencoded`.
pub(crate) fn form(pairs: &[(String, String)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// Encodes a value as one segment of a path, so that a slash in it remains part of the value:
/// `format!("{base}/repos/{}", http::encode_segment(name))`.
///
/// A value of one or two dots would move up in the path. Its dots are encoded too, and a strict server refuses it.
#[must_use]
pub fn encode_segment(value: &str) -> String {
    match value {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        value => encoded(value).to_string(),
    }
}

/// Encodes all characters of a value except those that RFC 3986 calls unreserved.
fn encoded(value: &str) -> PercentEncode<'_> {
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(value, KEPT)
}

/// Percent-encodes non-ASCII characters, and nothing else.
fn ascii(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for character in path.chars() {
        if character.is_ascii() {
            encoded.push(character);
        } else {
            let mut buffer = [0; 4];
            for byte in character.encode_utf8(&mut buffer).bytes() {
                // Writing to a string cannot fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test")]

    use super::*;

    fn parse(url: &str) -> Option<(bool, String, String)> {
        Url::parse(url).ok().map(|url| (url.https, url.authority, url.path_and_query))
    }

    #[test]
    fn urls_are_parsed() {
        let cases = [
            ("https://a.example", Some((true, "a.example", "/"))),
            ("HTTP://a.example:8080/x/y?z=1#f", Some((false, "a.example:8080", "/x/y?z=1"))),
            ("https://a.example?q", Some((true, "a.example", "/?q"))),
            ("https://[::1]:80/é", Some((true, "[::1]:80", "/%C3%A9"))),
            ("https://a.example#f/x", Some((true, "a.example", "/"))),
            ("https://", None),
            ("a.example/x", None),
            ("ftp://a.example", None),
            ("https://user:pass@a.example", None),
            ("https://a.example/a b", None),
            ("https://a.example\\@b.example/", None),
            ("https://a.example/\r\nx: y", None),
        ];
        for (url, expected) in cases {
            let expected = expected.map(|(https, host, path)| (https, host.to_owned(), path.to_owned()));
            assert_eq!(parse(url), expected, "{url}");
        }
    }

    #[test]
    fn a_query_is_appended_to_the_url() {
        let pairs = [("q".to_owned(), "a b&c=ü".to_owned()), ("n".to_owned(), "1".to_owned())];
        for (url, expected) in [
            ("https://h/p", "/p?q=a%20b%26c%3D%C3%BC&n=1"),
            ("https://h/p?", "/p?q=a%20b%26c%3D%C3%BC&n=1"),
            ("https://h/p?x=1", "/p?x=1&q=a%20b%26c%3D%C3%BC&n=1"),
            ("https://h/p?x=1&", "/p?x=1&q=a%20b%26c%3D%C3%BC&n=1"),
        ] {
            let mut url = Url::parse(url).expect("a good URL");
            url.push_query(&pairs);
            assert_eq!(url.path_and_query, expected);
        }
    }

    #[test]
    fn a_segment_stays_one_segment() {
        assert_eq!(encode_segment("a/b?c#d%e f"), "a%2Fb%3Fc%23d%25e%20f");
        assert_eq!(encode_segment("cofferdam-guest_1.0~x"), "cofferdam-guest_1.0~x");
        assert_eq!(encode_segment(".."), "%2E%2E");
    }

    #[test]
    fn relative_links_are_joined() {
        let url = Url::parse("https://h:1/p?page=1").expect("a good URL");
        assert_eq!(url.join("/q?page=2").as_deref(), Some("https://h:1/q?page=2"));
        assert_eq!(url.join("?page=2").as_deref(), Some("https://h:1/p?page=2"));
        assert_eq!(url.join("//g/q").as_deref(), Some("https://g/q"));
        assert_eq!(url.join("http://g/q").as_deref(), Some("http://g/q"));
        assert_eq!(url.join("q"), None);
    }
}
