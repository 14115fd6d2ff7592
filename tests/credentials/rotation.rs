//! Refresh tokens that their issuer replaces: a command that ends early, or cannot write, must not lose one.

use std::fs;
use std::time::Duration;

use cofferdam_egress::vault::{OauthGrant, SecretMaterial};
use cofferdam_runtime::host::NewBinding;
use cofferdam_test_support::vault::secret;
use cofferdam_test_support::{Cli, Home, InstallAccepted as _, Signer, Upstream, package};
use serde_json::{Value, json};

use super::issuer::{Issuer, rotating};
use super::{PROBE, credential};
use crate::COFFERDAM;
use crate::shared_host::run;

/// A home whose vault is a file, with the probe and a refresh token of `issuer`.
struct Bound {
    home: Home,
    upstream: Upstream,
    issuer: Issuer,
}

fn bound(issuer: Issuer) -> Bound {
    let (home, upstream, signer) = (Home::new(COFFERDAM), Upstream::start(), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let grant = upstream.grant();
    let manifest = package::with_hosts(&package::guest_manifest("probe"), std::slice::from_ref(&grant));
    let credentials = credential("oauth2", "slack", "\"HOST\"", "").replace("HOST", &grant);
    let bytes = package::pack(&package::guest("probe"), &format!("{manifest}\n{credentials}"));
    let host = home.host();
    run(host.install_accepted(bytes.clone(), Some(signer.sign(&bytes)), Default::default())).unwrap();
    host.bind(NewBinding {
        name: "oauth2/slack".parse().unwrap(),
        material: SecretMaterial::Oauth2 {
            token_url: issuer.url(),
            client_id: "us".into(),
            client_secret: Some(secret("client-secret-and-more")),
            scopes: vec![],
            grant: OauthGrant::RefreshToken(secret("refresh")),
            tokens: None,
        },
        hosts: vec![grant.parse().unwrap()],
        connectors: vec![PROBE.parse().unwrap()],
    })
    .unwrap();
    Bound { home, upstream, issuer }
}

impl Bound {
    /// The output of one call of the command line.
    fn call(&self, timeout: &str) -> Value {
        let url = json!({"url": self.upstream.url("/text/a")}).to_string();
        let args = ["--format", "json", "call", PROBE, "fetch", &url, "--timeout", timeout];
        let mut command = Cli::new(COFFERDAM, self.home.path()).command(&args);
        let allowed = format!("{},{}", self.issuer.host_port(), self.upstream.host_port());
        let output = command.env("COFFERDAM_ALLOW_PRIVATE", allowed).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

#[test]
fn a_command_that_ends_early_keeps_a_rotated_token() {
    let it = bound(Issuer::start(false, |n| {
        let (status, body, _) = rotating(n);
        (status, body, Duration::from_secs(3))
    }));
    let short = it.call("1s");
    assert_eq!(short["error"]["details"]["code"], "wall_time", "{short}");
    // The next one finds the token, and does not use the spent refresh token.
    let next = it.call("20s");
    assert!(next.get("error").is_none(), "{next}");
    assert_eq!(it.issuer.asked().len(), 1, "{:?}", it.issuer.asked());
}

#[test]
fn an_unwritable_vault_prevents_renewal() {
    let it = bound(Issuer::start(false, rotating));
    let obstacle = it.home.path().join("vault.tmp");
    fs::create_dir(&obstacle).unwrap();
    let failed = it.call("20s");
    assert_eq!(failed["error"]["code"], "vault_unusable", "{failed}");
    assert!(it.issuer.asked().is_empty(), "the refresh token would be spent: {:?}", it.issuer.asked());
    fs::remove_dir(&obstacle).unwrap();
    let next = it.call("20s");
    assert!(next.get("error").is_none(), "{next}");
}

#[test]
fn a_refresh_token_is_kept_despite_an_unusable_token() {
    let it = bound(Issuer::start(false, |n| {
        let (status, body, after) = rotating(n);
        (status, if n == 0 { body.replace("Bearer", "DPoP") } else { body }, after)
    }));
    let failed = it.call("20s");
    assert_eq!(failed["error"]["details"]["code"], "unsendable", "{failed}");
    let next = it.call("20s");
    assert!(next.get("error").is_none(), "{next}");
    let asked = it.issuer.asked();
    assert!(asked[1].form.contains("refresh_token=refresh-0"), "{asked:?}");
}

#[test]
fn a_vault_removed_during_renewal_is_not_recreated() {
    let it = bound(Issuer::start(false, |n| {
        let (status, body, _) = rotating(n);
        (status, body, Duration::from_secs(2))
    }));
    let (vault, key) = (it.home.path().join("vault"), it.home.path().join("vault.key"));
    let failed = std::thread::scope(|scope| {
        let call = scope.spawn(|| it.call("20s"));
        while it.issuer.asked().is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        fs::remove_file(&vault).unwrap();
        fs::remove_file(&key).unwrap();
        call.join().unwrap()
    });
    assert_eq!(failed["error"]["code"], "vault_unusable", "{failed}");
    assert!(!vault.exists() && !key.exists(), "it was made anew");
}
