//! Builds requests.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::url::{self, Url};
use super::{Error, Response, form, transport};
use crate::call;

/// A request method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Reads, and changes nothing.
    Get,
    /// Reads the headers alone.
    Head,
    /// Creates, or has another effect that the service defines.
    Post,
    /// Replaces.
    Put,
    /// Changes a part.
    Patch,
    /// Removes.
    Delete,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        })
    }
}

/// A request being built; [`send`](Self::send) is the last step. Invalid parts are reported there, so that building
/// needs no `?`.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until it is sent"]
pub struct Request {
    method: Method,
    url: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    timeouts: Timeouts,
    /// The labels of its idempotency keys: usually one.
    labels: Vec<String>,
    /// The first error in its parts.
    broken: Option<Error>,
}

/// A request as it is sent: in the parts that `wasi:http` requires, with all headers.
#[derive(Debug, Clone)]
pub(crate) struct PreparedRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    #[cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "only the sandbox waits"))]
    pub(crate) timeouts: Timeouts,
    /// The labels of its idempotency keys.
    pub(crate) labels: Vec<String>,
}

/// The connector's own timeouts, within those of the host.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timeouts {
    pub(crate) connect: Option<Duration>,
    pub(crate) first_byte: Option<Duration>,
    pub(crate) between_bytes: Option<Duration>,
}

/// Starts a GET request.
pub fn get(url: impl Into<String>) -> Request {
    Request::new(Method::Get, url)
}

/// Starts a POST request.
pub fn post(url: impl Into<String>) -> Request {
    Request::new(Method::Post, url)
}

/// Starts a PUT request.
pub fn put(url: impl Into<String>) -> Request {
    Request::new(Method::Put, url)
}

/// Starts a PATCH request.
pub fn patch(url: impl Into<String>) -> Request {
    Request::new(Method::Patch, url)
}

/// Starts a DELETE request.
pub fn delete(url: impl Into<String>) -> Request {
    Request::new(Method::Delete, url)
}

impl Request {
    /// Starts a request of any method. The URL is absolute, `https://` or `http://`, and already encoded;
    /// [`encode_segment`](super::encode_segment) and [`query`](Self::query) encode values that are put into it.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self {
            method,
            url: url.into(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Vec::new(),
            timeouts: Timeouts::default(),
            labels: Vec::new(),
            broken: None,
        }
    }

    /// Adds a pair to the URL's query, encoded.
    pub fn query(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.query.push((name.into(), value.to_string()));
        self
    }

    /// Adds a pair to the URL's query if there is a value.
    pub fn query_opt(self, name: impl Into<String>, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Adds a header. The host refuses its own headers (`Host`, framing, proxies, and every header that carries a
    /// credential).
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(token) {
            self.broken.get_or_insert(Error::Invalid("a header's name is no token".to_owned()));
        } else if value.bytes().any(|byte| (byte < b' ' && byte != b'\t') || byte == 0x7f) {
            self.broken.get_or_insert(Error::Invalid(format!("a control character in header {name}")));
        } else {
            self.headers.push((name, value.into_bytes()));
        }
        self
    }

    /// Sends `Idempotency-Key: <key of the call>:<label>`. A service that supports the header then has one effect,
    /// however often the call is attempted.
    ///
    /// The label distinguishes the requests of one call. It must be the same in every attempt, and different for
    /// every other request that changes something. If one label is used for two requests that differ in method, URL
    /// or body, sending the second is an error: the service would take it for the first. The same request may be
    /// sent again under its label. A label may be any text that a header may carry: the key of a call has no `:` in
    /// it, so no label can produce another call's key.
    ///
    /// An operation that makes several requests is idempotent only if each of them sends such a key or changes
    /// nothing.
    pub fn idempotency_key(mut self, label: &str) -> Self {
        self.labels.push(label.to_owned());
        self.header("idempotency-key", format!("{}:{label}", call::idempotency_key()))
    }

    /// Sends a value as JSON, with the content type for it.
    pub fn json(mut self, value: &(impl Serialize + ?Sized)) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => self.bytes("application/json", body),
            Err(error) => {
                self.broken.get_or_insert(Error::Invalid(format!("the body is no JSON: {error}")));
                self
            }
        }
    }

    /// Sends a form, with the content type for it.
    pub fn form<K: Into<String>, V: ToString>(self, pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| (name.into(), value.to_string())).collect();
        self.bytes("application/x-www-form-urlencoded", url::form(&pairs).into_bytes())
    }

    /// Sends a structure as a form, for services that write nested fields with brackets: `None` is left out,
    /// `{"metadata": {"order": "17"}}` becomes `metadata[order]=17`, a list `types[]=a&types[]=b`, and a list of
    /// structures `items[0][id]=1`.
    pub fn form_nested(mut self, value: &(impl Serialize + ?Sized)) -> Self {
        match form::pairs(value) {
            Ok(pairs) => self.form(pairs),
            Err(error) => {
                self.broken.get_or_insert(error);
                self
            }
        }
    }

    /// Sends bytes of a content type.
    pub fn bytes(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("content-type", content_type)
    }

    /// Fails if there is no connection after `limit`. Default: the host's.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.connect = Some(limit);
        self
    }

    /// Fails if no response has begun after `limit`. Default: the host's.
    pub fn first_byte_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.first_byte = Some(limit);
        self
    }

    /// Fails if the body pauses for longer than `limit`. Default: the host's.
    pub fn between_bytes_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.between_bytes = Some(limit);
        self
    }

    /// Sends the request, waits, and reads the whole response. A response with an error status is not an error
    /// here: see [`Response::error_for_status`].
    ///
    /// # Errors
    ///
    /// The request could not be built, was refused, or was interrupted.
    #[cfg_attr(not(target_arch = "wasm32"), track_caller)]
    pub fn send(self) -> Result<Response, Error> {
        transport::send(self.prepare()?)
    }

    /// Completes the request: everything that needs no host happens here, in the sandbox as in a native test.
    pub(crate) fn prepare(self) -> Result<PreparedRequest, Error> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let mut url = Url::parse(&self.url)?;
        url.push_query(&self.query);
        let Self { method, mut headers, body, timeouts, labels, .. } = self;
        if !body.is_empty() {
            headers.push(("content-length".to_owned(), body.len().to_string().into_bytes()));
        }
        Ok(PreparedRequest { method, url, headers, body, timeouts, labels })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test")]

    use super::*;

    #[test]
    fn request_parts_are_combined() {
        let request = post("https://a.example/x?a=1").query("b", 2).json(&[1, 2]).idempotency_key("create");
        let request = request.prepare().expect("a good request");
        assert_eq!(request.url.path_and_query, "/x?a=1&b=2");
        assert_eq!(request.body, b"[1,2]");
        let header =
            |name: &str| request.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        assert_eq!(header("content-type").as_deref(), Some(b"application/json".as_slice()));
        assert_eq!(header("content-length").as_deref(), Some(b"5".as_slice()));
        assert_eq!(header("idempotency-key").as_deref(), Some(b"outside-a-call:create".as_slice()));
    }

    #[test]
    fn forms_are_encoded() {
        let request = post("https://a.example/").form([("a b", "c&d"), ("e", "f")]);
        assert_eq!(request.body, b"a+b=c%26d&e=f");
    }

    #[test]
    fn structures_become_forms_and_others_are_refused() {
        let request = post("https://a.example/")
            .query_opt("limit", Some(2))
            .query_opt("after", None::<String>)
            .form_nested(&serde_json::json!({"a": {"b c": "d&e"}, "f": null}));
        let request = request.prepare().expect("a good request");
        assert_eq!(request.url.path_and_query, "/?limit=2");
        assert_eq!(request.body, b"a%5Bb+c%5D=d%26e");
        assert!(matches!(post("https://a").form_nested("text").send(), Err(Error::Invalid(_))));
    }

    #[test]
    fn invalid_headers_are_refused() {
        for request in [
            get("https://a").header("x", "1\r\nhost: b"),
            get("https://a").header("x y", "1"),
            get("https://a").header("", ""),
        ] {
            assert!(matches!(request.send(), Err(Error::Invalid(_))));
        }
    }

    #[test]
    fn sending_outside_the_sandbox_is_an_error() {
        assert_eq!(get("https://a.example/").send(), Err(Error::OutsideSandbox));
    }
}
