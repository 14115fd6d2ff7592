//! Guarantees that hold when another part fails: the request counts as sent, and secrets are searched for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cofferdam::Call;
use cofferdam_egress::vault::{Bindings, Vault, VaultError};
use cofferdam_test_support::vault::{binding, oauth};
use cofferdam_test_support::{MemoryVault, Upstream};
use serde_json::json;

use super::issuer::{Issuer, rotating};
use super::{PROBE, Wants, credential, make, service};
use crate::shared_host::{example, failed, run};

#[test]
fn a_pending_request_counts_as_sent_on_failure() {
    for claimed in [false, true] {
        let mut it = service(&credential("bearer", "shop", "\"HOST\"", "optional = true"), |_| vec![]);
        let closed = if claimed { String::new() } else { it.other.url("/x") };
        it.other = Upstream::start();
        let first = it.upstream.url("/hang/effect");
        let call = Call::new(example("probe"), "lose_track", json!({"first": first, "second": closed}));
        let failure = failed(run(it.host.run(call.not_idempotent())).outcome);
        assert_eq!(it.upstream.seen("/hang/effect").len(), 1);
        assert_eq!(failure.details()["request_sent"], true, "{claimed}: {:?}", failure.details());
    }
}

/// A vault that cannot be read any more once it was written.
struct Failing(Arc<MemoryVault>, AtomicBool);

impl Vault for Failing {
    fn bindings(&self) -> Result<Arc<Bindings>, VaultError> {
        match self.1.load(Ordering::SeqCst) {
            true => {
                Err(VaultError::Unusable { message: "Too many files.".into(), hint: "Close some.".into() })
            }
            false => self.0.bindings(),
        }
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&mut Bindings) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        self.0.change(change)?;
        self.1.store(true, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_renewed_token_is_redacted_when_the_vault_fails() {
    let issuer = Issuer::start(false, rotating);
    let it = make(&Wants {
        credentials: &credential("oauth2", "slack", "\"HOST\"", ""),
        bindings: &|_| vec![],
        more: &|builder| builder,
    });
    let bound = oauth(&issuer.url(), "refresh", None);
    let bound = binding("oauth2/slack", bound, &[PROBE], &[it.upstream.grant()]);
    // The same home, another vault.
    let vault = Arc::new(Failing(MemoryVault::with([bound]), AtomicBool::new(false)));
    let builder = it.home.builder().vault(vault).allow_private(issuer.host_port());
    let host = builder.allow_private(it.upstream.host_port()).build().unwrap();
    let url = it.upstream.url("/echo");
    let failure = failed(run(host.call(&example("probe"), "fetch", json!({"url": url}))));
    assert_eq!(failure.code(), "secret_reflected");
}
