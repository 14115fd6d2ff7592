//! Session tokens by handle: replaced once, at its own host, in headers and URL; everything else ends the call.

use cofferdam::{Error, FailureClass};
use cofferdam_egress::vault::SecretMaterial;
use cofferdam_test_support::vault::{binding, secret};
use serde_json::{Value, json};

use super::{PROBE, Service, credential, service};
use crate::shared_host::failed;

const TOKEN: &str = "s3ss/ion t0ken";

fn tracker() -> Service {
    service(&credential("session_token", "tracker", "\"HOST\"", ""), |hosts| {
        let material = SecretMaterial::SessionToken { token: secret(TOKEN) };
        vec![binding("session_token/tracker", material, &[PROBE], hosts)]
    })
}

impl Service {
    fn place(&self, url: &str, header: &str, body: &str, times: u32) -> Result<Value, Error> {
        let args = json!({"service": "tracker", "url": url, "header": header, "body": body, "times": times});
        self.call("place_handle", args)
    }
}

#[test]
fn a_handle_is_replaced_in_headers_and_urls() {
    let service = tracker();
    service.place(&service.upstream.url("/text/h"), "Session {handle};v=1", "x", 1).unwrap();
    let sent = service.header("/text/h", "x-session");
    assert_eq!(sent.as_deref(), Some("Session s3ss/ion t0ken;v=1"));
    service.place(&service.upstream.url("/bytes/{handle}?t={handle}"), "-", "x", 1).unwrap();
    let path = "/bytes/s3ss%2Fion%20t0ken?t=s3ss%2Fion%20t0ken";
    assert_eq!(service.upstream.seen("/bytes/s3ss").remove(0).path, path);
}

#[test]
fn a_handle_works_once_at_its_host_outside_bodies() {
    let service = tracker();
    let denied = |outcome: Result<Value, Error>, says: &str| {
        let failure = failed(outcome);
        assert_eq!(failure.class(), FailureClass::CapabilityDenied, "{failure}");
        assert!(failure.message().contains(says), "{failure}");
        assert!(!failure.to_string().contains("t0ken"), "{failure}");
        failure
    };
    let url = |path: &str| service.upstream.url(path);
    let failure = denied(service.place(&url("/text/twice"), "{handle}", "x", 2), "good for one request");
    assert_eq!(failure.code(), "credential_handle");
    assert_eq!(service.upstream.seen("/text/twice").len(), 1);
    denied(service.place(&service.other.url("/text/o"), "{handle}", "x", 1), "does not go to localhost");
    denied(service.place(&service.other.url("/text/o/{handle}"), "-", "x", 1), "does not go to localhost");
    assert_eq!(service.other.connections(), 0);
    // A handle that was never issued, and a fragment of one.
    let forged = format!("cofferdam-handle-{}", "0".repeat(32));
    denied(service.place(&url("/text/forged"), &forged, "x", 1), "none of this attempt's");
    denied(service.place(&url("/text/forged"), "cofferdam-handle-12", "x", 1), "none of this attempt's");
    assert!(service.upstream.seen("/text/forged").is_empty());
    let body = format!("{}{{handle}}", "x".repeat(100_000));
    denied(service.place(&url("/text/body"), "-", &body, 1), "stands in the request's body");
    let args = json!({"service": "other", "url": url("/text/other"), "header": "-", "body": "x", "times": 1});
    let failure = denied(service.call("place_handle", args), "session_token");
    assert_eq!(failure.code(), "credential_not_granted");
    assert!(service.upstream.seen("/text/other").is_empty());
}

#[test]
fn a_handle_expires_with_its_attempt() {
    let service = tracker();
    // The guest leaks its unused handle, which a hostile caller passes to the next call.
    let told = service.place("http://localhost", "-", "x", 0).unwrap();
    let stolen = told["body"].as_str().unwrap();
    assert!(stolen.starts_with("cofferdam-handle-"), "{told}");
    let args = json!({"url": service.upstream.url("/text/next"), "name": "x-session", "value": stolen});
    let failure = failed(service.call("fetch_with_header", args));
    assert_eq!(failure.code(), "credential_handle");
    assert!(service.upstream.seen("/text/next").is_empty());
}

#[test]
fn there_is_no_handle_without_a_binding() {
    let optional =
        service(&credential("session_token", "tracker", "\"HOST\"", "optional = true"), |_| Vec::new());
    let failure = failed(optional.place(&optional.upstream.url("/text/a"), "{handle}", "x", 1));
    assert_eq!(failure.details()["connector_code"], "no_handle", "the guest's own word");
    let none = service("", |_| Vec::new());
    let failure = failed(none.place(&none.upstream.url("/text/a"), "{handle}", "x", 1));
    assert_eq!((failure.class(), failure.code()), (FailureClass::CapabilityDenied, "credential_not_granted"));
}
