//! Requests for grants: the bindings that calls missed, until they are set.

use cofferdam_egress::vault::SecretMaterial;
use cofferdam_test_support::vault::{binding, secret};

use super::{PROBE, Service, credential, service};
use crate::shared_host::failed;

/// The open requests: the subject, the number of calls, the code and the command of each.
fn requests(service: &Service) -> Vec<(String, usize, &'static str, Option<String>)> {
    let mut requests = service.host.grant_requests().unwrap();
    requests.sort_by_key(|request| request.suggestion.clone());
    let seen = |request: cofferdam_runtime::host::GrantRequest| {
        assert_eq!(request.kind, "credential", "{request:?}");
        (request.subject, request.calls, request.code, request.suggestion)
    };
    requests.into_iter().map(seen).collect()
}

fn unbound(calls: usize, identity: &str) -> (String, usize, &'static str, Option<String>) {
    let command = format!("cofferdam binding set api_key/slack/{identity}");
    ("api_key/slack".to_owned(), calls, "unbound", Some(command))
}

fn bind(service: &Service, identity: &str) {
    let (name, hosts) = (format!("api_key/slack/{identity}"), [service.upstream.grant()]);
    service.vault.bind(binding(&name, SecretMaterial::ApiKey { key: secret("k-1") }, &[PROBE], &hosts));
}

#[test]
fn a_missing_binding_is_requested_until_set() {
    let service = service(&credential("api_key", "slack", "\"HOST\"", ""), |_| Vec::new());
    assert!(requests(&service).is_empty());
    for _ in 0..2 {
        assert_eq!(service.fails("/text/a").code(), "unbound");
    }
    assert_eq!(requests(&service), [unbound(2, "default")]);
    let reason = service.host.grant_requests().unwrap().remove(0).reason;
    assert!(reason.contains("No credential is bound as api_key/slack/default"), "{reason}");
    // Each identity is a binding of its own.
    assert_eq!(failed(service.get_as("/text/a", &[("slack", "work")])).code(), "unbound");
    assert_eq!(requests(&service), [unbound(2, "default"), unbound(1, "work")]);
    bind(&service, "default");
    assert_eq!(requests(&service), [unbound(1, "work")]);
    bind(&service, "work");
    assert!(requests(&service).is_empty());
}

#[test]
fn a_locked_vault_leaves_the_request_open() {
    let service = service(&credential("api_key", "slack", "\"HOST\"", ""), |_| Vec::new());
    assert_eq!(service.fails("/text/a").code(), "unbound");
    service.vault.set_locked(true);
    assert_eq!(requests(&service), [("api_key/slack".to_owned(), 1, "vault_locked", None)]);
    let reason = service.host.grant_requests().unwrap().remove(0).reason;
    assert!(!reason.contains("The vault is locked."), "the message is the operator's: {reason}");
}
