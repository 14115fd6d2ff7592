//! Key sets of publishers: read, refused, confined to scopes, and compared with what was imported before.

use serde_json::{Value, json};

use super::{date, key, now, trusting};
use crate::trust::{KeySet, KeySetEffect, Keyring, PublicKey, PublishedKey, SecretKey, SigningScope};

const ACME: &str = "github://acme/*";

fn scope(text: &str) -> SigningScope {
    SigningScope::parse(text).unwrap()
}

fn published(seed: u8, scopes: &[&str]) -> PublishedKey {
    let scopes = scopes.iter().map(|text| scope(text)).collect();
    PublishedKey::new(key(seed).public(), scopes, None, Some("release key".into())).unwrap()
}

fn written(keys: &[PublishedKey], issued: &str, signers: &[&SecretKey]) -> String {
    let times = (date(issued), date("2027-06-01T00:00:00Z"));
    KeySet::write(&scope(ACME), times, keys, signers).unwrap()
}

fn set(keys: &[PublishedKey], issued: &str) -> KeySet {
    KeySet::parse(written(keys, issued, &[]).as_bytes()).unwrap()
}

const ISSUED: &str = "2026-05-01T00:00:00Z";

#[test]
fn a_set_is_read_as_it_was_written() {
    let keys = [published(1, &[ACME]), published(2, &["github://acme/slack"])];
    let plain = set(&keys, ISSUED);
    assert_eq!((plain.publisher(), plain.issued(), plain.keys()), (&scope(ACME), date(ISSUED), &keys[..]));
    assert_eq!(plain.signers(&trusting(1, ACME), now()), []);
    let text = written(&keys, ISSUED, &[&key(1), &key(2)]);
    let signed = KeySet::parse(text.as_bytes()).unwrap();
    assert_eq!(signed.keys(), plain.keys());
    assert_eq!(signed.fingerprint(), &cofferdam_core::digest::Digest::sha256(text.as_bytes()));
    let ids = [1, 2].map(|seed| key(seed).public().id());
    assert_eq!(signed.signers(&Keyring::empty(), now()), ids);
    // A set that a key signs which is trusted here and not in the set.
    let text = written(&keys, ISSUED, &[&key(1), &key(3)]);
    let signed = KeySet::parse(text.as_bytes()).unwrap();
    assert_eq!(signed.signers(&trusting(3, ACME), now()).len(), 2);
    assert_eq!(signed.signers(&Keyring::empty(), now()).len(), 1);
}

#[test]
fn documents_that_are_no_key_sets_are_refused() {
    let good: Value = serde_json::from_str(&written(&[published(1, &[ACME])], ISSUED, &[])).unwrap();
    let with = |pointer: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed.to_string()
    };
    let twice = json!([good["keys"][0], good["keys"][0]]);
    let mut unknown = good.clone();
    unknown["revoked"] = json!([]);
    let stranger = written(&[published(1, &[ACME])], ISSUED, &[&key(2)]);
    let mut bad: Value =
        serde_json::from_str(&written(&[published(1, &[ACME])], ISSUED, &[&key(1)])).unwrap();
    bad["signatures"][0]["sig"] = json!("A".repeat(86) + "==");
    for (text, says) in [
        (String::new(), "not a key set"),
        ("{}".into(), "missing field"),
        ("[]".into(), "not a key set"),
        (unknown.to_string(), "unknown field `revoked`"),
        (with("/publisher", json!("github://acme/slack")), "not all of one owner"),
        (with("/publisher", json!("*")), "not all of one owner"),
        (with("/issued", json!("yesterday")), "issued"),
        (with("/validUntil", json!(ISSUED)), "never be valid"),
        (with("/keys", json!([])), "1 to 64 keys"),
        (with("/keys", twice), "twice"),
        (with("/keys/0/key", json!("ed25519:AAAA")), "not a public key"),
        (with("/keys/0/scopes", json!([])), "scopes"),
        (with("/keys/0/scopes", json!(["*"])), "not a scope"),
        (with("/keys/0/comment", json!("two\nlines")), "one line"),
        (stranger, "none of its keys signed it"),
        (bad.to_string(), "none of its keys signed it"),
        (" ".repeat(64 * 1024 + 1), "64 KiB"),
        (String::from_utf8(super::signed(1).to_json().into_bytes()).unwrap(), "not a key set"),
    ] {
        let error = KeySet::parse(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(says), "{says}: {error}");
    }
}

#[test]
fn an_import_is_confined_to_scopes_and_never_widens_time() {
    let keys = [published(1, &[ACME, "gitlab://other/*"]), published(2, &["hub://x/y"])];
    let mut keyring = Keyring::empty();
    let changes = keyring.import(&set(&keys, ISSUED), &[], "keys.json", now()).unwrap();
    assert_eq!((changes[0].effect, changes[1].effect), (KeySetEffect::Added, KeySetEffect::Refused));
    assert_eq!(changes[0].outside, [scope("gitlab://other/*")]);
    assert_eq!(keyring.entries().len(), 1);
    assert_eq!(keyring.entries()[0].scopes(), [scope(ACME)]);
    assert_eq!(keyring.entries()[0].comment(), Some("release key"));

    // The operator's scope is narrower than the suggested one, and another one is not the publisher's.
    let mut keyring = Keyring::empty();
    let allowed = [scope("github://acme/slack"), scope("hub://x/*")];
    keyring.import(&set(&keys, ISSUED), &allowed, "keys.json", now()).unwrap();
    let scopes: Vec<_> = keyring.entries().iter().map(|entry| entry.scopes().to_vec()).collect();
    assert_eq!(scopes, [vec![scope("github://acme/slack")], vec![scope("hub://x/y")]]);

    // A key that is known for a shorter time stays so, and one that the set ends earlier ends earlier.
    let last = date("2026-08-01T00:00:00Z");
    let mut keyring = Keyring::empty();
    keyring.trust(&key(1).public(), &[scope("github://acme/slack")], now(), Some(last), None).unwrap();
    let changes = keyring.import(&set(&[published(1, &[ACME])], ISSUED), &[], "keys.json", now()).unwrap();
    assert_eq!((changes[0].effect, changes[0].not_after), (KeySetEffect::Changed, Some(last)));
    assert_eq!(changes[0].gains, [scope(ACME)]);
    let earlier = date("2026-07-01T00:00:00Z");
    let ends = PublishedKey::new(key(1).public(), vec![scope(ACME)], Some(earlier), None).unwrap();
    let changes = keyring.import(&set(&[ends], ISSUED), &[], "keys.json", now()).unwrap();
    assert_eq!((changes[0].effect, changes[0].not_after), (KeySetEffect::Changed, Some(earlier)));
    assert!(changes[0].gains.is_empty());
}

#[test]
fn revoked_and_missing_keys_are_shown_and_stay() {
    let mut keyring = Keyring::empty();
    keyring.revoke(&key(2).public(), now(), Some("stolen")).unwrap();
    let keys = [published(1, &[ACME]), published(2, &[ACME]), published(3, &[ACME])];
    let changes = keyring.import(&set(&keys, ISSUED), &[], "keys.json", now()).unwrap();
    let effects: Vec<_> = changes.iter().map(|change| change.effect).collect();
    assert_eq!(effects, [KeySetEffect::Added, KeySetEffect::Refused, KeySetEffect::Added]);
    assert!(changes[1].reason.as_ref().unwrap().contains("stolen"), "{changes:?}");
    let text = keyring.to_text();
    assert_eq!(Keyring::parse("keyring.toml", &text).unwrap(), keyring, "{text}");
    for issued in ["2026-05-02T00:00:00Z", "2026-05-03T00:00:00Z"] {
        let changes = keyring.import(&set(&keys[..1], issued), &[], "other.json", now()).unwrap();
        let effects: Vec<_> = changes.iter().map(|change| (change.key.clone(), change.effect)).collect();
        let public = |seed: u8| -> PublicKey { key(seed).public() };
        assert_eq!(
            effects,
            [(public(1), KeySetEffect::Unchanged), (public(3), KeySetEffect::Missing)],
            "{issued}"
        );
    }
    assert_eq!(keyring.imports().map(|import| import.source()).collect::<Vec<_>>(), ["other.json"]);
}

#[test]
fn old_stale_and_future_sets_are_refused() {
    let keys = [published(1, &[ACME])];
    let mut keyring = Keyring::empty();
    keyring.import(&set(&keys, ISSUED), &[], "keys.json", now()).unwrap();
    let before = keyring.clone();
    for (issued, at, says) in [
        ("2026-04-30T00:00:00Z", "2026-06-01T00:00:00Z", "is older"),
        (ISSUED, "2027-06-01T00:00:01Z", "stale"),
        ("2026-06-03T00:00:00Z", "2026-06-01T00:00:00Z", "from the future"),
    ] {
        let error = keyring.import(&set(&keys, issued), &[], "keys.json", date(at)).unwrap_err();
        assert!(error.message().contains(says), "{error}");
        assert_eq!(keyring, before);
    }
}
