//! A refused credential opens its circuit for that credential only: not for another, nor for the same one after
//! rebinding.

use std::sync::Arc;

use cofferdam::Call;
use cofferdam_egress::resilience::{CircuitView, RetryProfile};
use cofferdam_egress::vault::{Binding, SecretMaterial};
use cofferdam_test_support::vault::{binding, oauth, secret};
use serde_json::{Value, json};

use super::issuer::{Issuer, rotating};
use super::{PROBE, Service, credential, make, service};
use crate::shared_host::{example, failed, run};

impl Service {
    /// Gets `path` under a profile with a breaker, as this identity.
    fn guarded(&self, path: &str, identity: &str) -> Result<Value, cofferdam::Error> {
        let call = Call::new(example("probe"), "fetch", json!({"url": self.upstream.url(path)}));
        let call = call.retry(RetryProfile::named("failover").unwrap()).identity("acme", identity);
        run(self.host.run(call)).outcome
    }

    #[track_caller]
    fn code(&self, path: &str, identity: &str) -> String {
        failed(self.guarded(path, identity)).code().to_owned()
    }

    fn circuit(&self) -> Option<CircuitView> {
        self.host.circuits().unwrap().pop()
    }
}

fn key(identity: &str, hosts: &[String], key: &str) -> Binding {
    let name = format!("api_key/acme/{identity}");
    binding(&name, SecretMaterial::ApiKey { key: secret(key) }, &[PROBE], hosts)
}

/// Another identity passes; rebinding heals, also for a process that has not seen it.
#[test]
fn a_refused_credential_blocks_calls_until_rebound() {
    let wanted = credential("api_key", "acme", "\"HOST\"", "");
    let service = service(&wanted, |hosts| {
        vec![key("default", hosts, "key-that-is-refused"), key("other", hosts, "key-of-the-other")]
    });
    assert_eq!(service.code("/status/401", "default"), "auth");
    let refused = failed(service.guarded("/text/a", "default"));
    assert_eq!(refused.code(), "circuit_open");
    // A reset would send the same credential again.
    assert_eq!(refused.details()["suggestion"], "cofferdam binding rebind api_key/acme/default");
    assert_eq!(refused.details()["binding"], "api_key/acme/default");
    assert!(service.upstream.seen("/text").is_empty());
    let open = service.circuit().unwrap();
    assert_eq!(open.open_for_good[0].bindings, ["api_key/acme/default"]);
    // The stored circuit names the binding, and contains nothing derived from the secret.
    for file in std::fs::read_dir(service.home.path().join("circuits")).unwrap().flatten() {
        let bytes = std::fs::read(file.path()).unwrap();
        let secret = b"key-that-is-refused";
        assert!(!bytes.windows(secret.len()).any(|part| part == secret), "{}", file.path().display());
    }

    service.guarded("/text/other", "other").unwrap();
    assert_eq!(service.code("/text/a", "default"), "circuit_open", "the other's success is not its own");

    let mut rebound = service.vault.get("api_key/acme/default");
    rebound.material = SecretMaterial::ApiKey { key: secret("key-that-is-good") };
    rebound.changed = jiff::Timestamp::now();
    service.vault.bind(rebound);
    let another =
        service.home.builder().vault(Arc::clone(&service.vault) as Arc<dyn cofferdam_egress::vault::Vault>);
    let another = another.allow_private(service.upstream.host_port()).build().unwrap();
    let service = Service { host: another, ..service };
    service.guarded("/text/a", "default").unwrap();
    assert_eq!(service.circuit(), None, "what was bound before is nobody's any more");
    // And the new one is judged for itself.
    assert_eq!(service.code("/status/401", "default"), "auth");
    assert_eq!(service.code("/text/a", "default"), "circuit_open");
}

/// A token that is not accepted is renewed for the next call; only when a new one is refused, too, is it the
/// credential that is refused.
#[test]
fn a_renewable_token_is_not_a_refused_credential() {
    let issuer = Issuer::start(false, rotating);
    let wanted = credential("oauth2", "acme", "\"HOST\"", "");
    let (url, issuer_host) = (issuer.url(), issuer.host_port());
    let bindings = move |hosts: &[String]| {
        let material = oauth(&url, "refresh", Some(("token-of-yesterday", None)));
        vec![binding("oauth2/acme/default", material, &[PROBE], hosts)]
    };
    let service = make(&super::Wants {
        credentials: &wanted,
        bindings: &bindings,
        more: &|builder| builder.allow_private(issuer_host.clone()),
    });
    assert_eq!(service.code("/status/401/old", "default"), "auth");
    assert_eq!(service.circuit(), None, "the token may have been revoked: there is a new one");
    assert_eq!(service.code("/status/401/new", "default"), "auth");
    assert_eq!(service.code("/text/a", "default"), "circuit_open");
    assert_eq!(service.circuit().unwrap().open_for_good[0].bindings, ["oauth2/acme/default"]);
}
