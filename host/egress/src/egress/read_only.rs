//! The requests that an operation declared `read_only` may send: GET, HEAD and OPTIONS, and no other method
//! in a header.
//!
//! The host can judge only by HTTP's definition of safe methods. It cannot help if a service changes
//! something in response to one of them.

use std::sync::Arc;

use cofferdam_core::failure::{Denial, DenialBoundary, DenialCode, GrantLine};
use cofferdam_model::manifest::{Manifest, OperationEffect};
use http::{HeaderMap, Method, Request};

use super::headers::is_method_override;

/// The methods that are allowed.
const SAFE: [Method; 3] = [Method::GET, Method::HEAD, Method::OPTIONS];

/// An operation that its manifest declares `read_only`.
#[derive(Debug)]
pub struct ReadOnly {
    operation: String,
    manifest: Arc<Manifest>,
}

impl ReadOnly {
    /// Returns the operation if `manifest` declares it `read_only`.
    pub fn of(manifest: &Arc<Manifest>, operation: &str) -> Option<Self> {
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

    fn read_only() -> ReadOnly {
        let text = "[connector]\nname = \"local://acme/notes\"\nversion = \"1.0.0\"\n\
                    [connector.effects]\ndefault = \"read_only\"\n\
                    [connector.effects.operations]\nfind = \"read_only\"\nadd = \"additive\"\n";
        let manifest = Arc::new(Manifest::parse("connector.toml", text).unwrap());
        assert!(ReadOnly::of(&manifest, "add").is_none());
        assert_eq!(ReadOnly::of(&manifest, "other").unwrap().place(), "connector.toml:5");
        ReadOnly::of(&manifest, "find").unwrap()
    }

    fn request(method: &str, field: Option<&str>) -> Request<()> {
        let request = Request::builder().method(method).uri("https://api.example/").header("x-http", "POST");
        field.into_iter().fold(request, |request, name| request.header(name, "GET")).body(()).unwrap()
    }

    #[test]
    fn three_methods_pass_and_nothing_else_that_is_called_like_them() {
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
    fn a_field_that_names_a_method_is_refused_whatever_it_names_and_however_it_is_spelled() {
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
