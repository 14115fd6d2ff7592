//! The contents of a request and its response, for traces: kept as they pass, and cleared of secrets at the end.

use std::borrow::Cow;

use cofferdam_core::secret::{REDACTED, Scanner, is_personal_field, is_personal_parameter};
use cofferdam_core::trace::TracedContent;
use http::{HeaderMap, Uri};
use serde_json::Value;

use super::log::clean_prefix;

/// The most bytes of a body that are kept.
const BODY_BYTES: usize = 16 * 1024;

/// The longest value of a header field or a query, in characters.
const FIELD_CHARS: usize = 2_000;

/// The contents as they passed.
#[derive(Debug, Default)]
pub(super) struct ContentBuffer {
    query: String,
    request_headers: HeaderMap,
    request_body: BodyStart,
    response_headers: HeaderMap,
    response_body: BodyStart,
}

/// The beginning of a body, and its length so far.
#[derive(Debug, Default)]
struct BodyStart {
    bytes: Vec<u8>,
    length: usize,
}

impl ContentBuffer {
    /// Begins with a request of these header fields.
    pub(super) fn new(uri: &Uri, headers: &HeaderMap) -> Self {
        let query = uri.query().unwrap_or_default().to_owned();
        Self { query, request_headers: headers.clone(), ..Self::default() }
    }

    /// Adds a part of the request's body.
    pub(super) fn sent(&mut self, data: &[u8]) {
        self.request_body.add(data);
    }

    /// Sets the response's header fields.
    pub(super) fn answered(&mut self, headers: &HeaderMap) {
        self.response_headers = headers.clone();
    }

    /// Adds a part of the response's body.
    pub(super) fn received(&mut self, data: &[u8]) {
        self.response_body.add(data);
    }

    /// Returns the contents without secrets.
    pub(super) fn clean(&self, scanner: &Scanner) -> TracedContent {
        TracedContent {
            query: clean_prefix(&form(&self.query), FIELD_CHARS, Some(scanner)),
            request_headers: fields(&self.request_headers, scanner),
            request_body: self.request_body.clean(scanner),
            response_headers: fields(&self.response_headers, scanner),
            response_body: self.response_body.clean(scanner),
        }
    }
}

impl BodyStart {
    fn add(&mut self, data: &[u8]) {
        let room = BODY_BYTES.saturating_sub(self.bytes.len()).min(data.len());
        self.bytes.extend_from_slice(data.get(..room).unwrap_or_default());
        self.length = self.length.saturating_add(data.len());
    }

    fn clean(&self, scanner: &Scanner) -> String {
        let is_cut = self.length > self.bytes.len();
        let text = match std::str::from_utf8(&self.bytes) {
            Ok(text) => text,
            // A character is cut in two.
            Err(error) if is_cut && error.error_len().is_none() => self
                .bytes
                .get(..error.valid_up_to())
                .and_then(|valid| std::str::from_utf8(valid).ok())
                .unwrap_or_default(),
            Err(_) => return format!("({} bytes that are not text)", self.length),
        };
        let text = match serde_json::from_str::<Value>(text) {
            Ok(mut json) if json.is_object() || json.is_array() => {
                redact_members(&mut json);
                Cow::Owned(json.to_string())
            }
            _ if is_form(text) => Cow::Owned(form(text)),
            _ => Cow::Borrowed(text),
        };
        let mut text = clean_prefix(&text, BODY_BYTES, Some(scanner));
        if is_cut {
            text.push_str(&format!(" (the first {} of {} bytes)", self.bytes.len(), self.length));
        }
        text
    }
}

fn fields(headers: &HeaderMap, scanner: &Scanner) -> Vec<(String, String)> {
    let clean = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let value = match is_personal_field(name.as_str()) {
            true => REDACTED.to_owned(),
            false => clean_prefix(&String::from_utf8_lossy(value.as_bytes()), FIELD_CHARS, Some(scanner)),
        };
        (name.to_string(), value)
    };
    headers.iter().map(clean).collect()
}

/// Returns whether a text is probably a form: names and values, and no white space.
fn is_form(text: &str) -> bool {
    text.contains('=')
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && !text.starts_with(['<', '{', '['])
}

/// Returns a query or a form without the values of personal parameters.
fn form(text: &str) -> String {
    let clean = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if is_personal_parameter(name) => format!("{name}={REDACTED}"),
        _ => pair.to_owned(),
    };
    text.split('&').map(clean).collect::<Vec<_>>().join("&")
}

/// Replaces the texts and numbers of personal members, at any depth.
fn redact_members(json: &mut Value) {
    match json {
        Value::Array(items) => items.iter_mut().for_each(redact_members),
        Value::Object(members) => {
            for (name, value) in members {
                match is_personal_parameter(name) && !value.is_null() {
                    true => *value = Value::from(REDACTED),
                    false => redact_members(value),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use cofferdam_core::secret::Secret;

    use super::*;

    fn body(pieces: &[&[u8]], scanner: &Scanner) -> String {
        let mut body = BodyStart::default();
        pieces.iter().for_each(|piece| body.add(piece));
        body.clean(scanner)
    }

    #[test]
    fn contents_have_no_secrets() {
        let secret = Secret::new("hunter2-hunter2".to_owned());
        let scanner = Scanner::new([&secret]);
        let uri: Uri = "https://a.example/x?access_token=abc&page=2".parse().unwrap();
        let headers = [("cookie", "a=b"), ("accept", "text/plain"), ("x-note", "hunter2-hunter2")];
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let mut content = ContentBuffer::new(&uri, &headers);
        content.sent(br#"{"title": "x", "deep": [{"api_key": "k-1"}]}"#);
        content.received(b"password=open&name=ada");
        let clean = content.clean(&scanner);
        assert_eq!(clean.query, format!("access_token={REDACTED}&page=2"));
        assert_eq!(clean.request_body, format!(r#"{{"title":"x","deep":[{{"api_key":"{REDACTED}"}}]}}"#));
        assert_eq!(clean.response_body, format!("password={REDACTED}&name=ada"));
        let shown = format!("{clean:?}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("a=b") && shown.contains("text/plain"),
            "{shown}"
        );
    }

    #[test]
    fn long_and_binary_bodies_say_so() {
        let scanner = Scanner::new([]);
        assert_eq!(body(&[b"\xff\x00\x01"], &scanner), "(3 bytes that are not text)");
        let long = "ä".repeat(BODY_BYTES);
        let clean = body(&[b"x", long.as_bytes()], &scanner);
        assert!(clean.starts_with("xä") && clean.ends_with("(the first 16384 of 32769 bytes)"), "{clean}");
    }
}
