//! The URL of a request, and the header fields that parameters give it.

use cofferdam_guest::Failure;
use cofferdam_guest::http::{Method, Request};
use serde_json::Value;

use super::style::{self, Keep, Style};

/// A request before its URL is complete.
pub(crate) struct Target {
    url: String,
    headers: Vec<(&'static str, String)>,
}

impl Target {
    pub(crate) fn new(base: &str) -> Self {
        Self {
            url: base.to_owned(),
            headers: Vec::new(),
        }
    }

    /// Adds a text to the path.
    pub(crate) fn literal(&mut self, text: &str) {
        self.url.push_str(text);
    }

    /// Adds a parameter to the path. An empty one would make it the path of something else.
    pub(crate) fn path(
        &mut self,
        name: &'static str,
        style: Style,
        explode: bool,
        value: &Value,
    ) -> Result<(), Failure> {
        if style::plain(value).is_empty() || matches!(value, Value::Array(items) if items.is_empty()) {
            return Err(Failure::invalid_input(name, "must not be empty"));
        }
        self.url.push_str(&style::path(name, style, explode, value));
        Ok(())
    }

    /// Adds a parameter to the query.
    pub(crate) fn query(&mut self, name: &str, style: Style, explode: bool, keep: Keep, value: &Value) {
        for pair in style::query(name, style, explode, keep, value) {
            self.url.push(if self.url.contains('?') { '&' } else { '?' });
            self.url.push_str(&pair);
        }
    }

    /// Adds a header field.
    pub(crate) fn header(&mut self, name: &'static str, explode: bool, value: &Value) {
        self.headers.push((name, style::header(explode, value)));
    }

    /// Adds a cookie.
    pub(crate) fn cookie(&mut self, name: &str, explode: bool, value: &Value) {
        let pairs = style::query(name, Style::Form, explode, Keep::Unreserved, value).join("; ");
        match self.headers.iter_mut().find(|(name, _)| *name == "cookie") {
            Some((_, cookies)) => {
                cookies.push_str("; ");
                cookies.push_str(&pairs);
            }
            None => self.headers.push(("cookie", pairs)),
        }
    }

    /// Begins the request.
    pub(crate) fn request(self, method: Method) -> Request {
        let request = Request::new(method, self.url);
        self.headers.into_iter().fold(request, |request, (name, value)| request.header(name, value))
    }
}
