//! The HTTP methods that a connector may send: a fixed list, and those that its manifest names. An operation
//! that is declared `read_only` sends fewer.

use std::sync::Arc;

use cofferdam_core::failure::{Denial, DenialBoundary, DenialCode, GrantLine};
use cofferdam_model::manifest::{
    EVERYONES_METHODS, Manifest, OperationEffect, is_forbidden_method, is_method_name,
};
use http::{HeaderMap, Method, Request};

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

/// The methods of an operation that is declared `read_only`.
const SAFE: [Method; 3] = [Method::GET, Method::HEAD, Method::OPTIONS];

/// An operation that its manifest declares `read_only`: its requests are GET, HEAD and OPTIONS, and no header
/// names another method.
///
/// The host can judge only by HTTP's definition of safe methods. It cannot help if a service changes
/// something in response to one of them.
#[derive(Debug)]
pub struct ReadOnly {
    operation: String,
    manifest: Arc<Manifest>,
}

impl ReadOnly {
    /// Returns the operation if `manifest` declares it `read_only`.
    pub fn for_operation(manifest: &Arc<Manifest>, operation: &str) -> Option<Self> {
        let declared = manifest.effect(operation) == Some(OperationEffect::ReadOnly);
        declared.then(|| Self { operation: operation.to_owned(), manifest: Arc::clone(manifest) })
    }

    /// Checks whether the operation may send this request.
    ///
    /// Methods are compared case-sensitively, as HTTP requires: `get` is not GET. A field that names a method
    /// is rejected, whichever method it names.
    ///
    /// # Errors
    /// `method_not_granted`, with the line that declares it and the one that would allow it.
    pub fn admit<B>(&self, request: &Request<B>) -> Result<(), Denial> {
        if !SAFE.contains(request.method()) {
            return Err(self.denial(&format!("method:{}", request.method())));
        }
        self.admit_fields(request.headers())
    }

    /// Checks whether the operation may send these fields, before its body or after it.
    ///
    /// # Errors
    /// `method_not_granted`: one of them names a method.
    pub fn admit_fields(&self, fields: &HeaderMap) -> Result<(), Denial> {
        match fields.keys().find(|name| is_method_override(name)) {
            Some(name) => Err(self.denial(&format!("header:{name}"))),
            None => Ok(()),
        }
    }

    fn denial(&self, requested: &str) -> Denial {
        let granted = SAFE.map(|method| format!("method:{method}")).to_vec();
        let (boundary, code) = (DenialBoundary::ConnectorManifest, DenialCode::MethodNotGranted);
        let place = self.place();
        Denial::new(boundary, code, requested, granted)
            .with_remark(format!("Its operation {} is declared read_only ({place}).", self.operation))
            .declared_at(place)
            .allowed_by(GrantLine::manifest_effect(&self.operation))
            .with_alternative(
                "Or \"additive\", where it only adds. Agents and callers are told what stands there.",
            )
    }

    /// Returns the line that declares it. It is searched for only now, since a denial ends the call.
    fn place(&self) -> String {
        let own = self.manifest.line_of(&["connector", "effects", "operations", &self.operation]);
        let line = own.or_else(|| self.manifest.line_of(&["connector", "effects", "default"]));
        format!("connector.toml:{}", line.unwrap_or(1))
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
    fn manifests_add_to_the_allowed_methods() {
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
    fn override_headers_are_checked_like_methods() {
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

    fn read_only() -> ReadOnly {
        let text = "[connector]\nname = \"local://acme/notes\"\nversion = \"1.0.0\"\n\
                    [connector.effects]\ndefault = \"read_only\"\n\
                    [connector.effects.operations]\nfind = \"read_only\"\nadd = \"additive\"\n";
        let manifest = Arc::new(Manifest::parse("connector.toml", text).unwrap());
        assert!(ReadOnly::for_operation(&manifest, "add").is_none());
        assert_eq!(ReadOnly::for_operation(&manifest, "other").unwrap().place(), "connector.toml:5");
        ReadOnly::for_operation(&manifest, "find").unwrap()
    }

    fn request(method: &str, field: Option<&str>) -> Request<()> {
        let request = Request::builder().method(method).uri("https://api.example/").header("x-http", "POST");
        field.into_iter().fold(request, |request, name| request.header(name, "GET")).body(()).unwrap()
    }

    #[test]
    fn only_three_methods_are_read_only() {
        let read_only = read_only();
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert!(read_only.admit(&request(method, None)).is_ok(), "{method}");
        }
        for method in [
            "POST", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE", "QUERY", "PROPFIND", "get", "GeT", "Head",
            "options", "GET1", "GETS", "G", "BREW",
        ] {
            let denial = read_only.admit(&request(method, None)).unwrap_err();
            assert_eq!(denial.code(), DenialCode::MethodNotGranted, "{method}");
            assert_eq!(denial.requested(), format!("method:{method}"));
            let details = denial.details();
            assert_eq!(details.get("declared_at").unwrap(), "connector.toml:7");
            let allow = serde_json::json!({"file": "connector.toml", "table": "[connector.effects.operations]",
                "line": "find = \"destructive\""});
            assert_eq!(details.get("allow").unwrap(), &allow);
        }
    }

    #[test]
    fn method_override_fields_are_refused() {
        let read_only = read_only();
        for name in [
            "X-HTTP-Method-Override",
            "x-http-method",
            "X-METHOD-OVERRIDE",
            "x_http_method_override",
            "X-HTTP_Method-Override",
        ] {
            let denial = read_only.admit(&request("GET", Some(name))).unwrap_err();
            assert_eq!(denial.requested(), format!("header:{}", name.to_ascii_lowercase()));
        }
        for name in ["x-http-methods", "x-method", "method", "x-http-method-overrid", "xhttpmethod--"] {
            assert!(read_only.admit(&request("GET", Some(name))).is_ok(), "{name}");
        }
    }
}
