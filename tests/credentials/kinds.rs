//! Fixed keys: their placement, their users, and the refusal of a call without one.

use cofferdam::{ActionScope, Call, FailureBoundary, FailureClass, HostErrorKind};
use cofferdam_egress::vault::{OauthGrant, SecretMaterial};
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::vault::{binding, secret};
use serde_json::json;

use super::{PROBE, Service, credential, service};
use crate::shared_host::{example, failed, refused, run};

fn key(text: &str) -> SecretMaterial {
    SecretMaterial::ApiKey { key: secret(text) }
}

fn with_key(more: &str, text: &'static str) -> Service {
    service(&credential("api_key", "slack", "\"HOST\"", more), move |hosts| {
        vec![binding("api_key/slack", key(text), &[PROBE], hosts)]
    })
}

#[test]
fn an_api_key_goes_where_the_manifest_says() {
    let service = with_key("", "k-1");
    service.got("/text/a");
    assert_eq!(service.header("/text/a", "authorization").as_deref(), Some("Bearer k-1"));
    let service = with_key("header = \"X-Api-Key\"\nformat = \"v1 {key}!\"", "k-2");
    service.got("/text/a");
    assert_eq!(service.header("/text/a", "x-api-key").as_deref(), Some("v1 k-2!"));
    assert_eq!(service.header("/text/a", "authorization"), None);
    let service = with_key("query = \"api_key\"", "k/+ &=é");
    service.got("/text/a");
    service.got("/text/b?x=1");
    assert_eq!(service.upstream.seen("/text/a")[0].path, "/text/a?api_key=k%2F%2B%20%26%3D%C3%A9");
    assert_eq!(service.upstream.seen("/text/b")[0].path, "/text/b?x=1&api_key=k%2F%2B%20%26%3D%C3%A9");
}

#[test]
fn bearer_and_basic_use_the_authorization_header() {
    let bearer = service(&credential("bearer", "x", "\"HOST\"", ""), |hosts| {
        vec![binding("bearer/x", SecretMaterial::Bearer { token: secret("t0ken") }, &[PROBE], hosts)]
    });
    bearer.got("/text/a");
    assert_eq!(bearer.header("/text/a", "authorization").as_deref(), Some("Bearer t0ken"));
    let basic = service(&credential("basic", "x", "\"HOST\"", ""), |hosts| {
        let material = SecretMaterial::Basic { username: "Aladdin".into(), password: secret("open sesame") };
        vec![binding("basic/x", material, &[PROBE], hosts)]
    });
    basic.got("/text/a");
    let sent = basic.header("/text/a", "authorization");
    assert_eq!(sent.as_deref(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), "RFC 7617's own example");
}

#[test]
fn a_credential_goes_only_to_its_own_host() {
    let service = with_key("", "k-1");
    service.call("fetch", json!({"url": service.other.url("/text/a")})).unwrap();
    assert_eq!(service.other.seen("/text/a")[0].header("authorization"), None);
}

#[test]
fn an_unbound_credential_is_reported_before_running() {
    let service = service(&credential("api_key", "slack", "\"HOST\"", ""), |_| Vec::new());
    let failure = service.fails("/text/a");
    assert_eq!(
        (failure.class(), failure.boundary()),
        (FailureClass::BindingRequired, FailureBoundary::Runtime)
    );
    assert_eq!((failure.code(), failure.retriable()), ("unbound", false));
    assert_eq!(failure.details()["binding"], "api_key/slack/default");
    assert_eq!(failure.details()["suggestion"], "cofferdam binding set api_key/slack/default");
    assert!(failure.message().contains("`cofferdam binding set api_key/slack/default`"), "{failure}");
    // Also for an operation that would never have sent it: the guest does not start.
    let call = Call::new(example("probe"), "call_info", json!({}));
    let CallResult { outcome, report } = run(service.host.run(call));
    let usage = report.last_usage();
    assert_eq!((failed(outcome).code(), usage.is_none()), ("unbound", true));
    assert_eq!(service.upstream.connections(), 0);
    let hosts = [service.upstream.grant()];
    service.vault.bind(binding("api_key/slack", key("k-1"), &[PROBE], &hosts));
    service.got("/text/a");
}

#[test]
fn the_operator_limits_a_bindings_users_and_hosts() {
    let service = with_key("", "k-1");
    let bind = |connector: &str, host: String| {
        service.vault.bind(binding("api_key/slack", key("k-1"), &[connector], &[host]));
        service.fails("/text/a")
    };
    let failure = bind("github://cofferdam/hello", service.upstream.grant());
    assert_eq!((failure.class(), failure.code()), (FailureClass::BindingRequired, "not_allowed"));
    let command = format!("cofferdam binding allow api_key/slack/default --connector {PROBE}");
    assert_eq!(failure.details()["suggestion"], command);
    let failure = bind(PROBE, service.other.grant());
    let command =
        format!("cofferdam binding allow api_key/slack/default --host {}", service.upstream.grant());
    assert_eq!((failure.code(), &failure.details()["suggestion"]), ("not_allowed", &json!(command)));
    // If neither is listed, the command names both: a connector alone would add no host.
    let failure = bind("github://cofferdam/hello", service.other.grant());
    let command = format!(
        "cofferdam binding allow api_key/slack/default --connector {PROBE} --host {}",
        service.upstream.grant()
    );
    assert_eq!((failure.code(), &failure.details()["suggestion"]), ("not_allowed", &json!(command)));
    // The same name and port over TLS is another place.
    assert_eq!(bind(PROBE, service.upstream.host_port()).code(), "not_allowed");
    assert_eq!(service.upstream.connections(), 0);
}

#[test]
fn an_allowed_host_works_and_the_other_is_reported() {
    let service = service(&credential("api_key", "slack", "\"HOST\", \"OTHER\"", ""), |hosts| {
        vec![binding("api_key/slack", key("k-1"), &[PROBE], hosts)]
    });
    service.got("/text/a");
    let failure = failed(service.call("fetch", json!({"url": service.other.url("/text/a")})));
    assert_eq!((failure.class(), failure.code()), (FailureClass::BindingRequired, "not_allowed"));
    let host = format!("--host {}", service.other.grant());
    assert!(failure.details()["suggestion"].as_str().unwrap().ends_with(&host), "{failure}");
    assert_eq!(service.other.connections(), 0);
}

#[test]
fn an_unsendable_secret_is_a_failed_binding() {
    let service = with_key("", "placeholder");
    let hosts = [service.upstream.grant()];
    for text in ["a\r\nX-Evil: 1", "a\nb", "a\0b", "é", "", " a", "a\n", "\u{7f}"] {
        service.vault.bind(binding("api_key/slack", key(text), &[PROBE], &hosts));
        let failure = service.fails("/text/a");
        assert_eq!(
            (failure.class(), failure.code()),
            (FailureClass::BindingFailed, "unsendable"),
            "{text:?}"
        );
        assert_eq!(failure.details()["suggestion"], "cofferdam binding rebind api_key/slack/default");
        assert!(!failure.to_string().contains("X-Evil"), "{failure}");
    }
    assert_eq!(service.upstream.connections(), 0);
}

#[test]
fn a_guest_can_neither_set_nor_read_the_credential() {
    let service = with_key("header = \"X-Api-Key\"", "k-1");
    let forged = |name: &str| {
        let args = json!({"url": service.upstream.url("/text/a"), "name": name, "value": "forged"});
        failed(service.call("fetch_with_header", args))
    };
    for name in ["X-Api-Key", "x-api-key", "X_Api_Key", "x-api_key"] {
        assert_eq!(forged(name).details()["connector_code"], "invalid_request", "{name}");
    }
    assert_eq!(service.upstream.connections(), 0);
    let service = with_key("query = \"api_key\"", "k-1");
    for query in
        ["api_key=x", "a=b&api_key=x", "a=b;api_key=x", "API_KEY=x", "api%5fkey=x", "api_key", "+api_key=1"]
    {
        let failure = service.fails(&format!("/text/a?{query}"));
        assert_eq!(failure.class(), FailureClass::CapabilityDenied, "{query}");
        assert_eq!(
            (failure.code(), failure.boundary()),
            ("credential_parameter", FailureBoundary::Sandbox),
            "{query}"
        );
        assert!(failure.message().contains("leave it out"), "{failure}");
    }
    assert_eq!(service.upstream.connections(), 0);
    service.got("/text/a?api_keys=1&b=api_key");
}

#[test]
fn a_credentialed_request_loses_its_range_headers() {
    let service = with_key("", "k-1");
    for name in ["Range", "If-Range", "A-IM", "Accept-Charset"] {
        let path = format!("/text/{name}");
        let args = json!({"url": service.upstream.url(&path), "name": name, "value": "bytes=0-5"});
        service.call("fetch_with_header", args).unwrap();
        assert_eq!(service.header(&path, name), None, "{name} does not go out with the key");
        let args = json!({"url": service.other.url(&path), "name": name, "value": "bytes=0-5"});
        service.call("fetch_with_header", args).unwrap();
        assert_eq!(service.other.seen(&path)[0].header(name), Some("bytes=0-5"), "without it does");
    }
    let failure = service.fails("/status/206");
    assert_eq!(
        (failure.class(), failure.code(), failure.boundary(), failure.retriable()),
        (FailureClass::CapabilityDenied, "partial_response", FailureBoundary::Sandbox, false)
    );
    assert_eq!(failure.details()["request_sent"], true);
    assert_eq!(service.upstream.seen("/status/206").len(), 1);
    service.call("fetch", json!({"url": service.other.url("/status/206")})).unwrap();
}

#[test]
fn an_unbound_optional_credential_is_omitted() {
    let service = service(&credential("api_key", "slack", "\"HOST\"", "optional = true"), |_| Vec::new());
    service.got("/text/a");
    assert_eq!(service.header("/text/a", "authorization"), None);
    // A credential that was requested by name is not omitted silently, and the guest does not fill the gap.
    assert_eq!(failed(service.get_as("/text/b", &[("slack", "work")])).code(), "unbound");
    let args = json!({"url": service.upstream.url("/text/b"), "name": "authorization", "value": "mine"});
    let failure = failed(service.call("fetch_with_header", args));
    assert_eq!(failure.details()["connector_code"], "invalid_request");
    service.vault.bind(binding("api_key/slack", key("k-1"), &[PROBE], &[service.upstream.grant()]));
    service.got("/text/c");
    assert_eq!(service.header("/text/c", "authorization").as_deref(), Some("Bearer k-1"));
}

#[test]
fn an_identity_is_never_guessed() {
    let service = service(&credential("api_key", "slack", "\"HOST\"", ""), |hosts| {
        let bind = |name, text| binding(name, key(text), &[PROBE], hosts);
        vec![bind("api_key/slack/work", "k-work"), bind("api_key/slack/home", "k-home")]
    });
    let failure = service.fails("/text/a");
    assert_eq!(failure.code(), "unbound");
    assert!(failure.message().contains("There is one as home, work"), "{failure}");
    assert!(failure.message().contains("`--identity slack=<identity>`"), "{failure}");
    service.get_as("/text/work", &[("slack", "work")]).unwrap();
    assert_eq!(service.header("/text/work", "authorization").as_deref(), Some("Bearer k-work"));
    // The action's choice, and the call's that outranks it.
    let scope = || {
        let scope = ActionScope::new("a@1.0.0", ["fetch"], [service.upstream.grant()]).unwrap();
        scope.with_identity("slack", "home")
    };
    let call = |path: &str| Call::new(example("probe"), "fetch", json!({"url": service.upstream.url(path)}));
    run(service.host.run(call("/text/home").within(scope()))).outcome.unwrap();
    run(service.host.run(call("/text/own").within(scope()).identity("slack", "work"))).outcome.unwrap();
    assert_eq!(service.header("/text/home", "authorization").as_deref(), Some("Bearer k-home"));
    assert_eq!(service.header("/text/own", "authorization").as_deref(), Some("Bearer k-work"));
    assert_eq!(failed(service.get_as("/text/b", &[("slack", "play")])).code(), "unbound");
    assert_eq!(failed(service.get_as("/text/b", &[("slack", "../x")])).code(), "unbound");
    let error = refused(service.get_as("/text/b", &[("github", "work")]));
    assert_eq!(error.kind(), HostErrorKind::Validation);
    assert!(error.hint().unwrap().contains("api_key/slack"), "{error}");
    assert!(service.upstream.seen("/text/b").is_empty());
}

#[test]
fn a_locked_vault_is_a_host_error() {
    let service = with_key("", "k-1");
    service.vault.set_locked(true);
    let error = refused(service.get("/text/a"));
    assert_eq!(error.kind(), HostErrorKind::VaultLocked);
    assert_eq!(error.hint(), Some("Give its passphrase."));
    service.vault.set_locked(false);
    service.got("/text/a");
}

#[test]
fn an_unauthorized_response_names_the_binding() {
    let service = with_key("", "k-1");
    for status in [401, 403] {
        let failure = service.fails(&format!("/status/{status}"));
        assert_eq!((failure.class(), failure.code()), (FailureClass::ExternalApiError, "auth"));
        assert_eq!((failure.boundary(), failure.retriable()), (FailureBoundary::External, false));
        let details = failure.details();
        assert_eq!(details["status"], status);
        assert_eq!(details["binding"], "api_key/slack/default");
        assert_eq!(details["suggestion"], "cofferdam binding rebind api_key/slack/default");
        assert!(failure.message().contains("api_key/slack/default"), "{failure}");
        assert_eq!(service.upstream.seen(&format!("/status/{status}")).len(), 1, "not retried");
    }
    // Another error, and a host without the credential, say nothing of it.
    assert!(service.fails("/status/404").details().get("binding").is_none());
    let failure = failed(service.call("fetch", json!({"url": service.other.url("/status/401")})));
    assert!(failure.details().get("binding").is_none());
}

#[test]
fn material_of_the_wrong_kind_is_never_sent() {
    let service = with_key("", "k-1");
    let material = SecretMaterial::Oauth2 {
        token_url: "https://issuer.example/token".into(),
        client_id: "me".into(),
        client_secret: None,
        scopes: Vec::new(),
        grant: OauthGrant::ClientCredentials,
        tokens: None,
    };
    service.vault.edit(|bindings| {
        let name = "api_key/slack/default".parse().unwrap();
        bindings.get_mut(&name).unwrap().material = material;
    });
    let failure = service.fails("/text/a");
    assert_eq!(failure.class(), FailureClass::BindingFailed, "{failure}");
}

#[test]
fn a_signed_request_has_scope_hash_and_length() {
    let service = service(&credential("aws_sigv4", "bucket", "\"HOST\"", "aws_service = \"s3\""), |hosts| {
        let material = SecretMaterial::AwsSigv4 {
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: Some(secret("session+token")),
            region: Some("eu-west-1".into()),
        };
        vec![binding("aws_sigv4/bucket", material, &[PROBE], hosts)]
    });
    // The probe posts and ignores the response: the request was sent in any case.
    let args = json!({"url": service.upstream.url("/text/a//b/../c"), "body": "hello"});
    drop(service.call("post", args));
    let seen = service.upstream.seen("/text").remove(0);
    let authorization = seen.header("authorization").unwrap();
    assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{authorization}");
    assert!(authorization.contains("/eu-west-1/s3/aws4_request, SignedHeaders="), "{authorization}");
    for signed in ["host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "idempotency-key"] {
        assert!(authorization.contains(signed), "{signed}: {authorization}");
    }
    assert_eq!(seen.header("x-amz-security-token"), Some("session+token"));
    let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(seen.header("x-amz-content-sha256"), Some(hash));
    assert_eq!(seen.header("content-length"), Some("5"));
    service.vault.edit(|bindings| {
        let bound = bindings.get_mut(&"aws_sigv4/bucket/default".parse().unwrap()).unwrap();
        if let SecretMaterial::AwsSigv4 { region, .. } = &mut bound.material {
            *region = None;
        }
    });
    let failure = service.fails("/text/b");
    assert_eq!((failure.class(), failure.code()), (FailureClass::BindingFailed, "unsendable"));
    assert!(failure.message().contains("--region"), "{failure}");
}

#[test]
fn inspect_and_why_show_credentials() {
    let service = with_key("query = \"api_key\"\noptional = false", "k-1");
    let why = |access: &str| {
        let access = cofferdam_runtime::host::AccessQuery::parse(access).unwrap();
        service.host.why(&example("probe"), &access, None).unwrap().into_result()
    };
    let permit = why(&service.upstream.url("/")).unwrap();
    let notes = permit.notes().join("\n");
    assert!(notes.contains("The credential api_key/slack goes there, query parameter api_key."), "{notes}");
    assert!(notes.contains("It is bound as api_key/slack/default, for http://localhost"), "{notes}");
    assert!(!why(&service.other.url("/")).unwrap().notes().join(" ").contains("api_key"));
    let permit = why("api_key/slack").unwrap();
    let line = format!("hosts = [\"{}\"]", service.upstream.grant());
    assert_eq!(
        (permit.granted_by()[0].table(), permit.granted_by()[0].line()),
        ("[[capabilities.credential]]", &*line)
    );
    let denial = why("bearer/slack").unwrap_err();
    assert_eq!(
        (denial.requested(), denial.code().name()),
        ("credential:bearer/slack", "credential_not_granted")
    );
    assert_eq!(denial.granted(), ["credential:api_key/slack"]);
    service.vault.edit(|bindings| drop(bindings.remove(&"api_key/slack/default".parse().unwrap())));
    let notes = why("api_key/slack").unwrap().notes().join(" ");
    assert!(notes.contains("`cofferdam binding set api_key/slack/default`"), "{notes}");
    service.vault.set_locked(true);
    assert!(why(&service.upstream.url("/")).unwrap().notes().join(" ").contains("The vault is locked."));
    // For the credential itself, `why` does not agree: a call would end with this.
    let access = cofferdam_runtime::host::AccessQuery::parse("api_key/slack").unwrap();
    let error = service.host.why(&example("probe"), &access, None).unwrap_err();
    assert!(error.to_string().contains("The vault is locked."), "{error}");
    let shown = &service.host.inspect(&example("probe")).unwrap().credentials[0];
    let text = format!("api_key/slack, query parameter api_key, to {}", service.upstream.grant());
    assert_eq!((shown.to_string(), shown.optional), (text, false));
}

#[test]
fn a_binding_can_be_checked_without_a_call() {
    let service = with_key("", "k-1");
    let check = |name: &str| run(service.host.check_binding(&name.parse().unwrap()));
    check("api_key/slack").unwrap();
    let error = check("api_key/slack/work").unwrap_err();
    assert_eq!(error.failure().unwrap().code(), "unbound");
}
