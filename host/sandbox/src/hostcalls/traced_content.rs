//! The contents of a request and its response, for traces: kept as they pass, and cleared of secrets at the end.

use cofferdam_core::secret::{Scanner, is_personal_field, is_personal_parameter};
use cofferdam_core::trace::TracedContent;
use http::{HeaderMap, Uri};

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
            query: clean_prefix(&without_personal_values(&self.query), FIELD_CHARS, Some(scanner)),
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
        let text = without_personal_values(text);
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
            true => "[redacted]".to_owned(),
            false => {
                // A location may have a token in its query.
                let value = without_personal_values(&String::from_utf8_lossy(value.as_bytes()));
                clean_prefix(&value, FIELD_CHARS, Some(scanner))
            }
        };
        (name.to_string(), value)
    };
    headers.iter().map(clean).collect()
}

/// Returns the text without the values of personal parameters and JSON members. The text may be cut off anywhere, and it
/// need not be JSON or a form: a name is a word before `=`, or a word in quotation marks before `:`.
fn without_personal_values(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['=', ':']) {
        let (before, after) = rest.split_at(at.saturating_add(1));
        clean.push_str(before);
        rest = after;
        let name = before.get(..at).unwrap_or_default().trim_end();
        let is_member = before.ends_with(':');
        let name = match (name.strip_suffix('"'), is_member) {
            (Some(name), true) => name.strip_suffix('\\').unwrap_or(name),
            (None, true) => continue,
            (_, false) => name,
        };
        let begin = name.rfind(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c));
        let name = name.get(begin.map_or(0, |at| at.saturating_add(1))..).unwrap_or_default();
        if is_personal_parameter(name) {
            let value = if is_member { member_end(rest) } else { parameter_end(rest) };
            clean.push_str(if is_member { "\"[redacted]\"" } else { "[redacted]" });
            rest = rest.get(value..).unwrap_or_default();
        }
    }
    clean.push_str(rest);
    clean
}

/// Returns the length of a query parameter's value.
fn parameter_end(text: &str) -> usize {
    text.find(|c: char| c.is_whitespace() || "&;\"'<>,".contains(c)).unwrap_or(text.len())
}

/// Returns the length of a JSON member's value. Lists and objects extend to the end of the text.
fn member_end(text: &str) -> usize {
    let begin = text.len().saturating_sub(text.trim_start().len());
    let value = text.get(begin..).unwrap_or_default();
    let quote = ["\\\"", "\""].into_iter().find(|quote| value.starts_with(*quote));
    let Some(quote) = quote else {
        let end = match value.starts_with(['{', '[']) {
            true => value.len(),
            false => value.find(|c: char| c.is_whitespace() || ",}]".contains(c)).unwrap_or(value.len()),
        };
        return begin.saturating_add(end);
    };
    let mut at = quote.len();
    let mut escaped = false;
    for (offset, c) in value.char_indices().skip_while(|(offset, _)| *offset < quote.len()) {
        at = offset.saturating_add(c.len_utf8());
        // In JSON within a JSON string, an escaped quotation mark ends the inner string.
        if c == '"' && (!escaped || quote.len() > 1) {
            break;
        }
        escaped = c == '\\' && !escaped;
    }
    begin.saturating_add(at)
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
        assert_eq!(clean.query, "access_token=[redacted]&page=2");
        assert_eq!(clean.request_body, r#"{"title": "x", "deep": [{"api_key":"[redacted]"}]}"#);
        assert_eq!(clean.response_body, "password=[redacted]&name=ada");
        let shown = format!("{clean:?}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("a=b") && shown.contains("text/plain"),
            "{shown}"
        );
    }

    #[test]
    fn personal_values_are_replaced_wherever_the_text_is_cut() {
        for (text, clean) in [
            (r#"{"password":"p\"w","n":1}"#, r#"{"password":"[redacted]","n":1}"#),
            (r#"{"password" : 17, "n": 1}"#, r#"{"password" :"[redacted]", "n": 1}"#),
            (r#"{"n": {"client_secret": "cut he"#, r#"{"n": {"client_secret":"[redacted]""#),
            (r#"{"tokens": ["a", "b"]}"#, r#"{"tokens":"[redacted]""#),
            ("{\"pwd\":\"a\"}\n{\"pwd\":\"b\"}", "{\"pwd\":\"[redacted]\"}\n{\"pwd\":\"[redacted]\"}"),
            (r#"{"text": "{\"password\":\"a\"}"}"#, r#"{"text": "{\"password\":"[redacted]"}"}"#),
            ("https://a/b?page=2&token=abc#x", "https://a/b?page=2&token=[redacted]"),
            ("<https://a/b?sig=abc>; rel=\"next\"", "<https://a/b?sig=[redacted]>; rel=\"next\""),
            ("time: 12:30, a == b, \"state\": \"open\"", "time: 12:30, a == b, \"state\": \"open\""),
        ] {
            assert_eq!(without_personal_values(text), clean, "{text}");
        }
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
