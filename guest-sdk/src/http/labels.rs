//! Labels of idempotency keys: each belongs to one request of a call, however often that is sent.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Error;
use super::request::PreparedRequest;

/// The labels that were used in this attempt, each with a hash of its request.
#[derive(Debug, Default)]
pub(crate) struct Labels(BTreeMap<String, u64>);

impl Labels {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Takes the labels of a request that is about to be sent.
    ///
    /// # Errors
    ///
    /// One of them belongs to another request of this attempt.
    pub(crate) fn take_all(&mut self, request: &PreparedRequest) -> Result<(), Error> {
        let PreparedRequest { method, url, body, labels, .. } = request;
        let parts = (method, &url.authority, &url.path_and_query, body);
        labels.iter().try_for_each(|label| self.take(label, parts))
    }

    /// Takes `label` for the request with these parts. The same request may be sent again under it.
    ///
    /// # Errors
    ///
    /// It belongs to another request: the service would take the two for one, and never process the second.
    fn take(&mut self, label: &str, parts: impl Hash) -> Result<(), Error> {
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        let request = hasher.finish();
        match self.0.entry(label.to_owned()) {
            Entry::Vacant(free) => {
                free.insert(request);
                Ok(())
            }
            Entry::Occupied(taken) if *taken.get() == request => Ok(()),
            Entry::Occupied(_) => Err(Error::Invalid(format!(
                "the idempotency key's label `{label}` is another request's; give each request of a call its own"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn a_label_identifies_one_request() {
        let mut labels = Labels::new();
        labels.take("create", ("POST", "https://a/x", b"1")).unwrap();
        labels.take("create", ("POST", "https://a/x", b"1")).unwrap();
        labels.take("pay", ("POST", "https://a/x", b"2")).unwrap();
        for other in
            [("PUT", "https://a/x", b"1"), ("POST", "https://a/y", b"1"), ("POST", "https://a/x", b"2")]
        {
            let error = labels.take("create", other).unwrap_err();
            assert!(error.to_string().contains("`create`"), "{error}");
        }
    }
}
