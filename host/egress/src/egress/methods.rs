//! The HTTP methods that a connector may send: a fixed list, and those that its manifest names.

use cofferdam_core::failure::{Denial, DenialBoundary, DenialCode, GrantLine};
use cofferdam_model::manifest::{EVERYONES_METHODS, is_forbidden_method, is_method_name};
use http::{HeaderMap, Method};

use super::headers::is_method_override;

/// The methods that one connector may send.
///
/// Methods are compared case-sensitively, as HTTP requires: `get` is not GET.
#[derive(Debug, Clone, Default)]
pub(super) struct AllowedMethods {
    extra: Vec<Method>,
}

impl AllowedMethods {
    /// Creates the fixed list plus `extra`.
    pub(super) fn new(extra: &[Method]) -> Self {
        Self { extra: extra.to_vec() }
    }

    /// Checks a request's method.
    ///
    /// # Errors
    /// `method_not_granted`, with the line that would allow it. No line allows CONNECT or TRACE.
    pub(super) fn admit(&self, method: &Method) -> Result<(), Denial> {
        if self.has(method.as_str()) { Ok(()) } else { Err(self.denial("method", method.as_str())) }
    }

    /// Checks the fields in which some servers read another method than the request's own.
    ///
    /// # Errors
    /// `method_not_granted`: one of them names a method that is not granted.
    pub(super) fn admit_fields(&self, fields: &HeaderMap) -> Result<(), Denial> {
        for (name, value) in fields.iter().filter(|(name, _)| is_method_override(name)) {
            // Servers compare these case-insensitively.
            let method = value.to_str().unwrap_or_default().trim().to_ascii_uppercase();
            if !self.has(&method) {
                return Err(self.denial(&format!("header:{name}"), &method));
            }
        }
        Ok(())
    }

    /// Returns whether the manifest added `method`.
    pub(super) fn is_extra(&self, method: &Method) -> bool {
        self.extra.contains(method)
    }

    /// Returns the line of the manifest that adds methods, if it has one.
    pub(super) fn line(&self) -> Option<GrantLine> {
        (!self.extra.is_empty()).then(|| GrantLine::manifest_methods(&self.extra))
    }

    /// Returns all methods, as a denial lists them.
    fn granted(&self) -> Vec<String> {
        let all = EVERYONES_METHODS.iter().copied().chain(self.extra.iter().map(Method::as_str));
        all.map(|method| format!("method:{method}")).collect()
    }

    fn has(&self, method: &str) -> bool {
        EVERYONES_METHODS.contains(&method) || self.extra.iter().any(|own| own.as_str() == method)
    }

    fn denial(&self, what: &str, method: &str) -> Denial {
        let (boundary, code) = (DenialBoundary::ConnectorManifest, DenialCode::MethodNotGranted);
        let denial = Denial::new(boundary, code, &format!("{what}:{method}"), self.granted());
        if is_forbidden_method(method) {
            return denial.with_remark("No connector sends CONNECT, TRACE or TRACK.");
        }
        let upper = method.to_ascii_uppercase();
        if self.has(&upper) {
            return denial.with_remark(format!("Methods are compared letter for letter: write {upper}."));
        }
        if !is_method_name(method) {
            return denial.with_remark("It is not the name of a method.");
        }
        let named = self.extra.iter().map(Method::as_str).chain([method]);
        denial.allowed_by(GrantLine::manifest_methods(named))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn method(text: &str) -> Method {
        Method::from_bytes(text.as_bytes()).unwrap()
    }

    #[test]
    fn methods_are_a_list_and_the_manifest_adds_to_it() {
        let (plain, dav) = (AllowedMethods::default(), AllowedMethods::new(&[method("PROPFIND")]));
        for text in ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] {
            assert!(plain.admit(&method(text)).is_ok() && dav.admit(&method(text)).is_ok(), "{text}");
        }
        assert!(dav.admit(&method("PROPFIND")).is_ok());
        for text in ["PROPFIND", "CONNECT", "TRACE", "TRACK", "get", "Post", "QUERY", "G3T!", "X"] {
            let denial = plain.admit(&method(text)).unwrap_err();
            assert_eq!(denial.code(), DenialCode::MethodNotGranted, "{text}");
            assert_eq!(denial.requested(), format!("method:{text}"));
            assert_eq!(denial.granted().len(), 7);
        }
    }

    #[test]
    fn a_denied_method_names_the_line_that_allows_it() {
        let dav = AllowedMethods::new(&[method("PROPFIND")]);
        let denial = dav.admit(&method("REPORT")).unwrap_err();
        assert!(
            denial
                .suggestion()
                .contains("`methods = [\"PROPFIND\", \"REPORT\"]` under [capabilities.network]"),
            "{denial}"
        );
        for (text, says) in
            [("TRACE", "No connector sends"), ("CONNECT", "No connector sends"), ("get", "write GET")]
        {
            let denial = dav.admit(&method(text)).unwrap_err();
            assert!(denial.line().is_none() && denial.suggestion().contains(says), "{denial}");
        }
    }

    #[test]
    fn a_field_that_names_a_method_is_held_to_the_list() {
        let methods = AllowedMethods::default();
        let admit = |name: &'static str, value: &'static str| {
            let mut fields = HeaderMap::new();
            fields.insert(name, value.parse().unwrap());
            methods.admit_fields(&fields)
        };
        for (name, value) in
            [("x-http-method-override", "PATCH"), ("x-http-method", "delete"), ("x-other", "TRACE")]
        {
            assert!(admit(name, value).is_ok(), "{name}: {value}");
        }
        for (name, value) in [
            ("x-http-method-override", "TRACE"),
            ("x_http_method", "PROPFIND"),
            ("x-method-override", "connect"),
            ("x-method-override", ""),
        ] {
            let denial = admit(name, value).unwrap_err();
            assert!(denial.requested().starts_with(&format!("header:{name}:")), "{denial}");
        }
    }
}
