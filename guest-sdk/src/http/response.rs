//! Reads responses.

use serde::de::DeserializeOwned;

use super::url::Url;
use super::{Error, StatusError, link};

/// A response, read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an error status is only an error once it is asked for: error_for_status"]
pub struct Response {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    url: Option<Url>,
}

impl Response {
    /// Builds a response from its parts, for a connector's own tests (see [`testing`](crate::testing)).
    pub fn new<'a>(
        status: u16,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        body: impl Into<Vec<u8>>,
    ) -> Self {
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        Self { status, headers: headers.collect(), body: body.into(), url: None }
    }

    #[cfg(target_arch = "wasm32")]
    pub(crate) fn received(url: Url, status: u16, headers: Vec<(String, Vec<u8>)>, body: Vec<u8>) -> Self {
        Self { status, headers, body, url: Some(url) }
    }

    /// Returns the response as if it had been received from `url`.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn received_from(self, url: Url) -> Self {
        Self { url: Some(url), ..self }
    }

    /// Returns the HTTP status, 100 to 599.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the first header of that name, in any case. None if its value is not UTF-8.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value).ok()
    }

    /// Returns all headers, in the order received.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Returns the body as received.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.body
    }

    /// Converts the response to its body, as received.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.body
    }

    /// Converts the response to its body as text.
    ///
    /// # Errors
    ///
    /// It is not UTF-8.
    pub fn text(self) -> Result<String, Error> {
        String::from_utf8(self.body).map_err(|_| Error::NotText)
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    ///
    /// It is not JSON, or not of the form that `T` requires.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// Returns the response, unless its status is an error (400 to 599).
    ///
    /// # Errors
    ///
    /// A [`StatusError`] with status, the service's own code and `Retry-After`.
    pub fn error_for_status(self) -> Result<Self, StatusError> {
        if (400..=599).contains(&self.status) { Err(StatusError::from_response(&self)) } else { Ok(self) }
    }

    /// Returns the URL of the next page, if the response names one (`Link`, relation `next`).
    #[must_use]
    pub fn next_page(&self) -> Option<String> {
        let values = self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("link"));
        let mut links =
            values.filter_map(|(_, value)| link::target(std::str::from_utf8(value).ok()?, "next"));
        let link = links.next()?;
        match &self.url {
            Some(url) => url.join(link),
            None => Some(link.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_error_statuses_are_errors() {
        for (status, fails) in [(200, false), (304, false), (399, false), (400, true), (599, true)] {
            assert_eq!(Response::new(status, [], "").error_for_status().is_err(), fails, "{status}");
        }
    }

    #[test]
    fn the_next_page_is_among_several_link_headers() {
        let headers = [("Link", "</a>; rel=\"prev\""), ("link", "<https://h/b>; rel=\"next\"")];
        assert_eq!(Response::new(200, headers, "").next_page().as_deref(), Some("https://h/b"));
        assert_eq!(Response::new(200, [], "").next_page(), None);
    }

    #[test]
    fn invalid_utf8_text_is_an_error() {
        assert_eq!(Response::new(200, [], vec![0xff]).text(), Err(Error::NotText));
    }
}
