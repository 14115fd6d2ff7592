//! The attacks on updates that The Update Framework names, tried on a home: rollback, freeze, and mix-and-match.
//! `docs/guides/keys.md` says what stops each, and what nothing can.

use std::fs;
use std::time::Duration;

use cofferdam::{Digest, InstallOptions};
use cofferdam_model::trust::{Envelope, KeySet, PublishedKey, SecretKey, SigningScope};
use cofferdam_test_support::{Home, Signer, connector};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::envelope::{check, signature};
use crate::keys::{quiet, setup};
use crate::shared_host::{failed, run};

const NAME: &str = "github://acme/quiet";

/// The code of the failure of an install.
#[track_caller]
fn install_code(home: &Home, package: &[u8], signature: &[u8], options: InstallOptions) -> String {
    let before = home.snapshot();
    let error = run(home.host().install(package.to_vec(), Some(signature.to_vec()), options)).unwrap_err();
    assert_eq!(home.snapshot(), before, "a refused install changed something");
    match error {
        cofferdam::Error::Failure(failure) => failure.code().to_owned(),
        cofferdam::Error::Host(error) => error.kind().code().to_owned(),
    }
}

/// Writes a key set, and returns the arguments that import it.
fn write_key_set(home: &Home, file: &str, key: &SecretKey, issued: Timestamp, days: i64) -> Vec<String> {
    let publisher = SigningScope::parse("github://firm/*").unwrap();
    let published = PublishedKey::new(key.public(), vec![publisher.clone()], None, None).unwrap();
    let until = issued + jiff::SignedDuration::from_hours(24 * days);
    let text = KeySet::write(&publisher, (issued, until), &[published], &[key]).unwrap();
    fs::write(home.path().join(file), &text).unwrap();
    ["trust", "import", file, "--fingerprint", &format!("sha256:{}", Digest::sha256(text.as_bytes()))]
        .map(ToOwned::to_owned)
        .to_vec()
}

/// An old release with its valid signature is offered again, because it has a known hole.
#[test]
fn a_rollback_to_an_old_release_is_refused() {
    let (home, cli, signer) = setup(&["1.0.0", "1.1.0"]);
    let (old, new) = (quiet("1.0.0"), quiet("1.1.0"));
    run(home.install(&new, &signer)).unwrap();
    let signed = signer.sign(&old);
    assert_eq!(install_code(&home, &old, &signed, InstallOptions::default()), "downgrade");
    cli.run(&["remove", &format!("{NAME}@1.1.0")]).ok();
    assert_eq!(install_code(&home, &old, &signed, InstallOptions::default()), "downgrade");
    // Also by an operator who allows downgrades, below the minimum version.
    cli.run(&["trust", "floor", NAME, "1.1.0"]).ok();
    assert_eq!(
        install_code(&home, &old, &signed, InstallOptions::default().allow_downgrade()),
        "below_floor"
    );
}

/// Old statements about keys are offered again: they would bring a stolen key back.
#[test]
fn a_rollback_of_keys_is_refused() {
    let (home, cli, _) = setup(&[]);
    let (old, new) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    let now = Timestamp::now();
    let before = now - jiff::SignedDuration::from_hours(48);
    let early = write_key_set(&home, "early.json", &old, before, 365);
    cli.run(&early).ok();
    cli.run(&write_key_set(&home, "later.json", &new, now, 365)).ok();
    cli.run(&["trust", "remove", &old.public().to_string()]).ok();
    cli.run(&early).fails(65).said("is older");
    assert!(home.keyring().load().unwrap().find(&old.public().to_string()).is_err());
}

/// Old state is offered for as long as possible. Only dates end that: nothing tells a host of a release that it was
/// never offered.
#[test]
fn a_freeze_ends_with_the_dates_of_key_and_key_set() {
    let (home, cli, signer) = setup(&["1.0.0"]);
    let key = SecretKey::generate().unwrap();
    let before = Timestamp::now() - jiff::SignedDuration::from_hours(48);
    cli.run(&write_key_set(&home, "stale.json", &key, before, 1)).fails(65).said("stale");
    let last = (Timestamp::now() + Duration::from_secs(2)).to_string();
    let public = signer.public().to_string();
    cli.run(&["trust", "add", &public, "--for", "github://acme/*", "--not-after", &last]).ok();
    run(home.install(&quiet("1.0.0"), &signer)).unwrap();
    let (host, reference) = (home.host(), connector(&format!("{NAME}@1.0.0")));
    run(host.call(&reference, "run", json!({}))).unwrap();
    std::thread::sleep(Duration::from_millis(2_200));
    check(&failed(run(host.call(&reference, "run", json!({})))), signature("expired_key"));
    let new = quiet("1.1.0");
    assert_eq!(install_code(&home, &new, &signer.sign(&new), InstallOptions::default()), "expired_key");
}

/// Parts of different releases are put together: each part is genuine, and the whole was never released.
#[test]
fn parts_of_different_releases_do_not_mix() {
    let (home, cli, signer) = setup(&["1.0.0", "1.1.0"]);
    let (one, two) = (quiet("1.0.0"), quiet("1.1.0"));
    let default = InstallOptions::default;
    assert_eq!(install_code(&home, &one, &signer.sign(&two), default()), "identity_mismatch");
    assert_eq!(install_code(&home, &two, &signer.sign(&one), default()), "identity_mismatch");

    // With a threshold: one key's signature over this release, and another key's over that one.
    let second = Signer::new();
    home.trust(&second.public(), "github://acme/*");
    cli.run(&["trust", "threshold", "github://acme/*", "2"]).ok();
    let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    let mut mixed = parse(&signer.sign(&one));
    let other = parse(&second.sign(&two));
    mixed["signatures"].as_array_mut().unwrap().push(other["signatures"][0].clone());
    let mixed = mixed.to_string().into_bytes();
    assert_eq!(Envelope::parse(&mixed).unwrap().signature_count(), 2);
    assert_eq!(install_code(&home, &one, &mixed, default()), "too_few_signatures");
    // On disk: the signature file of one installed release beside the package of another.
    cli.run(&["trust", "threshold", "github://acme/*", "--remove"]).ok();
    run(home.install(&one, &signer)).unwrap();
    run(home.install(&two, &signer)).unwrap();
    let beside = |package: &[u8]| home.installed_file(package).with_file_name("signature.dsse.json");
    fs::copy(beside(&one), beside(&two)).unwrap();
    let failure = failed(run(home.host().call(&connector(&format!("{NAME}@1.1.0")), "run", json!({}))));
    check(&failure, signature("identity_mismatch"));
}
