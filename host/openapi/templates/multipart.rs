//! Writes forms with files.

use cofferdam_guest::http::Request;
use serde_json::Value;

use super::style;

/// A form with files, being written.
#[derive(Default)]
pub(crate) struct Multipart {
    parts: Vec<(String, Vec<u8>)>,
}

impl Multipart {
    /// Adds a file.
    pub(crate) fn file(&mut self, name: &'static str, bytes: &[u8]) {
        let head = format!(
            "content-disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\ncontent-type: application/octet-stream\r\n\r\n"
        );
        self.parts.push((head, bytes.to_vec()));
    }

    /// Adds a field: an object as JSON, a list as one field for each item.
    pub(crate) fn field(&mut self, name: &'static str, value: &Value) {
        if let Value::Array(items) = value {
            items.iter().for_each(|item| self.field(name, item));
            return;
        }
        let kind = if value.is_object() { "content-type: application/json\r\n" } else { "" };
        let head = format!("content-disposition: form-data; name=\"{name}\"\r\n{kind}\r\n");
        self.parts.push((head, style::plain(value).into_bytes()));
    }

    /// Makes the form the body of a request. The boundary is the same in every attempt of a call.
    pub(crate) fn send_with(self, request: Request) -> Request {
        let mut boundary = "cofferdam-form-boundary".to_owned();
        let is_inside = |boundary: &str, part: &[u8]| {
            part.windows(boundary.len()).any(|window| window == boundary.as_bytes())
        };
        while self.parts.iter().any(|(_, part)| is_inside(&boundary, part)) {
            boundary.push_str("-x");
        }
        let mut body = Vec::new();
        for (head, part) in &self.parts {
            body.extend_from_slice(format!("--{boundary}\r\n{head}").as_bytes());
            body.extend_from_slice(part);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        request.bytes(&format!("multipart/form-data; boundary={boundary}"), body)
    }
}
