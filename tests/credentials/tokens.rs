//! OAuth 2.0: obtained, renewed once for all waiting calls, stored before use, refused, and unavailable.

use std::sync::Arc;
use std::time::Duration;

use cofferdam::{Call, FailureClass, Host, HostErrorKind};
use cofferdam_egress::vault::{Binding, OauthGrant, SecretMaterial};
use cofferdam_test_support::vault::{binding, oauth, secret};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::issuer::{Answer, Issuer, rotating, tokens};
use super::{PROBE, Service, Wants, credential, make};
use crate::shared_host::{example, failed, refused, run};

const NAME: &str = "oauth2/slack/default";

/// A service whose token comes from `issuer`, with the access token that is in use.
fn with(issuer: &Issuer, access: Option<(&str, Option<Timestamp>)>) -> Service {
    with_material(issuer, oauth(&issuer.url(), "refresh", access), true)
}

fn with_material(issuer: &Issuer, material: SecretMaterial, private: bool) -> Service {
    make(&Wants {
        credentials: &credential("oauth2", "slack", "\"HOST\"", ""),
        bindings: &|hosts| vec![binding("oauth2/slack", material.clone(), &[PROBE], hosts)],
        more: &|mut builder| {
            if let Some(root) = &issuer.root {
                builder = builder.extra_root_pem(root.as_bytes());
            }
            if private { builder.allow_private(issuer.host_port()) } else { builder }
        },
    })
}

fn in_seconds(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp::now() + SignedDuration::from_secs(seconds))
}

fn says(status: u16, body: &str) -> impl Fn(usize) -> Answer + Send + Sync + 'static {
    let body = body.to_owned();
    move |_| (status, body.clone(), Duration::ZERO)
}

impl Service {
    /// The authorization of the only request to `path`.
    #[track_caller]
    fn token(&self, path: &str) -> String {
        self.header(path, "authorization").unwrap_or_default()
    }

    fn call_to(&self, path: &str) -> Call {
        Call::new(example("probe"), "fetch", json!({"url": self.upstream.url(path)}))
    }

    /// Another host over the same home and vault, as in another process.
    fn another(&self, issuer: &Issuer) -> Host {
        let builder = self.home.builder().vault(self.vault.clone());
        let builder = builder.allow_private(issuer.host_port()).allow_private(self.upstream.host_port());
        builder.build().unwrap()
    }
}

#[test]
fn a_token_is_obtained_over_tls_and_reused() {
    let issuer = Issuer::start(true, rotating);
    let service = with(&issuer, None);
    service.got("/text/a");
    service.got("/text/b");
    assert_eq!(
        (service.token("/text/a"), service.token("/text/b")),
        ("Bearer access-0".into(), "Bearer access-0".into())
    );
    let asked = issuer.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    // RFC 6749, 2.3.1: id and secret, each in the form's encoding, by HTTP Basic.
    let basic = "Basic b3VyK2NsaWVudDpjbGllbnQrc2VjcmV0KyUyNittb3Jl";
    assert_eq!(asked[0].authorization.as_deref(), Some(basic));
    assert_eq!(asked[0].form, "grant_type=refresh_token&refresh_token=refresh&scope=read+write");
    // Another process finds it in the vault.
    let other = service.another(&issuer);
    run(other.run(service.call_to("/text/c"))).outcome.unwrap();
    assert_eq!((service.token("/text/c"), issuer.asked().len()), ("Bearer access-0".into(), 1));
}

#[test]
fn read_only_operations_can_renew_tokens() {
    let issuer = Issuer::start(false, rotating);
    let material = oauth(&issuer.url(), "refresh", None);
    let effects = "[connector.effects.operations]\nfetch = \"read_only\"\n";
    let service = make(&Wants {
        credentials: &(credential("oauth2", "slack", "\"HOST\"", "") + effects),
        bindings: &|hosts| vec![binding("oauth2/slack", material.clone(), &[PROBE], hosts)],
        more: &|builder| builder.allow_private(issuer.host_port()),
    });
    service.got("/text/a");
    assert_eq!((service.token("/text/a"), issuer.asked().len()), ("Bearer access-0".into(), 1));
}

#[test]
fn client_credentials_work_with_and_without_a_secret() {
    let issuer = Issuer::start(false, says(200, r#"{"access_token":"cc","token_type":"bearer"}"#));
    let material = |client_secret| SecretMaterial::Oauth2 {
        token_url: issuer.url(),
        client_id: "me&you".into(),
        client_secret,
        scopes: Vec::new(),
        grant: OauthGrant::ClientCredentials,
        tokens: None,
    };
    let service = with_material(&issuer, material(Some(secret("s"))), true);
    service.got("/text/a");
    service.got("/text/b");
    assert_eq!(service.token("/text/b"), "Bearer cc");
    let asked = issuer.asked();
    assert_eq!(asked.len(), 1, "no end was said: it holds until it is refused");
    assert_eq!(
        (asked[0].form.as_str(), asked[0].authorization.is_some()),
        ("grant_type=client_credentials", true)
    );
    with_material(&issuer, material(None), true).got("/text/a");
    let asked = issuer.asked();
    assert_eq!(asked[1].form, "grant_type=client_credentials&client_id=me%26you");
    assert_eq!(asked[1].authorization, None);
}

#[test]
fn concurrent_calls_share_one_renewal() {
    let issuer = Issuer::start(false, |n| {
        let (status, body, _) = rotating(n);
        (status, body, Duration::from_millis(300))
    });
    let service = with(&issuer, Some(("stale", in_seconds(30))));
    let other = service.another(&issuer);
    run(async {
        let calls = (0..16).map(|number| {
            let host = if number % 2 == 0 { service.host.clone() } else { other.clone() };
            let call = service.call_to(&format!("/text/{number}"));
            tokio::spawn(async move { host.run(call).await.outcome.map(drop) })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap().unwrap();
        }
    });
    assert_eq!(issuer.asked().len(), 1);
    assert!(
        service
            .upstream
            .seen("/text")
            .iter()
            .all(|seen| seen.header("authorization") == Some("Bearer access-0"))
    );
}

#[test]
fn a_cancelled_caller_does_not_end_the_renewal() {
    let issuer = Issuer::start(false, |n| {
        let (status, body, _) = rotating(n);
        (status, body, Duration::from_millis(500))
    });
    let service = with(&issuer, None);
    run(async {
        let first = tokio::spawn({
            let (host, call) = (service.host.clone(), service.call_to("/text/first"));
            async move { host.run(call).await.outcome.map(drop) }
        });
        while issuer.asked().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let second = service.host.run(service.call_to("/text/second"));
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        second.await.outcome.unwrap();
    });
    assert_eq!((service.token("/text/second"), issuer.asked().len()), ("Bearer access-0".into(), 1));
    assert!(service.upstream.seen("/text/first").is_empty());
}

#[test]
fn waiting_for_a_token_ends_at_the_deadline() {
    let issuer = Issuer::start(false, |_| (200, String::new(), Duration::from_secs(60)));
    let service = with(&issuer, None);
    let limits = cofferdam_core::limits::LimitRequest::parse(None, Some("300ms"), None).unwrap();
    let failure = failed(run(service.host.run(service.call_to("/text/a").limits(limits))).outcome);
    assert_eq!((failure.class(), failure.code()), (FailureClass::ResourceLimitExceeded, "wall_time"));
}

#[test]
fn a_token_is_renewed_a_minute_before_expiry() {
    let issuer = Issuer::start(false, |n| tokens(n, 59));
    let service = with(&issuer, Some(("good", in_seconds(90))));
    service.got("/text/good");
    assert_eq!((service.token("/text/good"), issuer.asked().len()), ("Bearer good".into(), 0));
    service.vault.bind(binding(
        NAME,
        oauth(&issuer.url(), "refresh", Some(("old", in_seconds(59)))),
        &[PROBE],
        &[service.upstream.grant()],
    ));
    // The issuer's token also expires within the minute: it is used, and the next call asks again.
    for n in 0..3 {
        service.got(&format!("/text/{n}"));
        assert_eq!(service.token(&format!("/text/{n}")), format!("Bearer access-{n}"));
    }
    let refresh = |n: usize| issuer.asked()[n].form.split('&').nth(1).unwrap().to_owned();
    assert_eq!(
        [refresh(0), refresh(1), refresh(2)],
        ["refresh", "refresh-0", "refresh-1"].map(|it| format!("refresh_token={it}"))
    );
}

#[test]
fn a_refused_renewal_is_final_until_rebound() {
    let issuer = Issuer::start(false, |n| match n {
        0 => (400, r#"{"error":"invalid_grant","error_description":"token=refresh"}"#.into(), Duration::ZERO),
        n => rotating(n),
    });
    let service = with(&issuer, None);
    let failure = service.fails("/text/a");
    assert_eq!((failure.class(), failure.code()), (FailureClass::BindingFailed, "refresh_refused"));
    assert!(!failure.retriable());
    let details = failure.details();
    assert_eq!((&details["status"], &details["binding"]), (&json!(400), &json!(NAME)));
    assert_eq!(details["suggestion"], format!("cofferdam binding rebind {NAME}"));
    assert!(
        failure.message().contains("(invalid_grant)") && !failure.message().contains("token=refresh"),
        "{failure}"
    );
    assert!(service.upstream.seen("/text").is_empty());
    let refused = service.vault.get(NAME).refused.unwrap();
    assert!(refused.contains("invalid_grant"), "{refused}");
    let renewed = Binding {
        changed: Timestamp::now(),
        ..binding(NAME, oauth(&issuer.url(), "new", None), &[PROBE], &[service.upstream.grant()])
    };
    service.vault.bind(renewed);
    service.got("/text/b");
    assert_eq!(service.vault.get(NAME).refused, None);
}

#[test]
fn only_transient_renewal_failures_are_retriable() {
    let bad = r#"{"access_token":"a\r\nX-Evil: 1","token_type":"bearer"}"#;
    for (status, body, class_code, retriable) in [
        (503, "", "refresh_unreachable", true),
        (429, "", "refresh_unreachable", true),
        (200, "<html>log in to the network</html>", "refresh_unreachable", true),
        (200, bad, "unsendable", false),
        (302, "", "refresh_refused", false),
        (401, r#"{"error":"invalid_client"}"#, "refresh_refused", false),
    ] {
        let issuer = Issuer::start(false, says(status, body));
        let failure = with(&issuer, None).fails("/text/a");
        assert_eq!(
            (failure.class(), failure.code()),
            (FailureClass::BindingFailed, class_code),
            "{status} {body}"
        );
        assert_eq!(failure.retriable(), retriable, "{status} {body}");
        assert_eq!(issuer.asked().len(), 1, "{status}: asked once, and no redirect followed");
    }
    let too_long = format!(r#"{{"access_token":"{}"}}"#, "a".repeat(70_000));
    let issuer = Issuer::start(false, says(200, &too_long));
    assert_eq!(with(&issuer, None).fails("/text/a").code(), "refresh_unreachable");
    // No server listens; and an operation that must not be repeated is not.
    let issuer = Issuer::start(false, rotating);
    let nowhere =
        oauth(&format!("http://localhost:{}/", crate::shared_host::shared_host().closed_port), "r", None);
    let service = make(&Wants {
        credentials: &credential("oauth2", "slack", "\"HOST\"", ""),
        bindings: &|hosts| vec![binding("oauth2/slack", nowhere.clone(), &[PROBE], hosts)],
        more: &|builder| {
            builder.allow_private(format!("localhost:{}", crate::shared_host::shared_host().closed_port))
        },
    });
    let failure = service.fails("/text/a");
    assert_eq!((failure.code(), failure.retriable()), ("refresh_unreachable", true));
    let post = json!({"url": service.upstream.url("/text/a"), "body": "x"});
    assert!(!failed(service.call("post", post)).retriable());
    assert!(issuer.asked().is_empty());
}

#[test]
fn private_or_plain_token_endpoints_need_permission() {
    for tls in [true, false] {
        let issuer = Issuer::start(tls, rotating);
        let service = with_material(&issuer, oauth(&issuer.url(), "refresh", None), false);
        let failure = service.fails("/text/a");
        assert_eq!((failure.class(), failure.code()), (FailureClass::BindingFailed, "endpoint_not_allowed"));
        assert!(issuer.asked().is_empty() && service.upstream.seen("/text").is_empty());
        assert!(service.vault.get(NAME).refused.is_none());
    }
    for url in [
        "ftp://x/",
        "not a url",
        "https://me@issuer.example/",
        "https://127.0.0.1/",
        "http://issuer.example/t",
    ] {
        let issuer = Issuer::start(false, rotating);
        let failure = with_material(&issuer, oauth(url, "refresh", None), true).fails("/text/a");
        assert_eq!(failure.code(), "endpoint_not_allowed", "{url}");
    }
}

#[test]
fn a_refused_token_is_renewed_for_the_next_call() {
    let issuer = Issuer::start(false, rotating);
    let service = with(&issuer, Some(("revoked", in_seconds(3600))));
    let failure = service.fails("/status/401");
    assert_eq!((failure.class(), failure.code()), (FailureClass::ExternalApiError, "auth"));
    assert_eq!(failure.details()["binding"], NAME);
    assert_eq!(
        (service.upstream.seen("/status").len(), issuer.asked().len()),
        (1, 0),
        "no second try in the attempt"
    );
    // Also for another process, which has nothing but the vault.
    run(service.another(&issuer).run(service.call_to("/text/a"))).outcome.unwrap();
    assert_eq!(service.token("/text/a"), "Bearer access-0");
    service.got("/text/b");
    assert_eq!((service.token("/text/b"), issuer.asked().len()), ("Bearer access-0".into(), 1));
}

#[test]
fn renewed_tokens_survive_a_failed_write() {
    let issuer = Issuer::start(false, rotating);
    let service = with(&issuer, None);
    service.vault.set_full(true);
    let error = refused(service.get("/text/a"));
    assert_eq!(error.kind(), HostErrorKind::VaultUnusable, "{error}");
    assert!(service.upstream.seen("/text").is_empty(), "a token that is not kept is not used");
    service.vault.set_full(false);
    service.got("/text/b");
    assert_eq!(service.token("/text/b"), "Bearer access-0");
    let asked = issuer.asked();
    assert_eq!(asked.len(), 1, "the old refresh token is used up: {asked:?}");
    let vault = Arc::clone(&service.vault);
    assert!(vault.writes() >= 1);
}
