//! The succession of keys: a statement that both keys signed, and every reason to refuse it.

use serde_json::Value;

use super::{date, key, now, trusting};
use crate::trust::{KeyEnd, KeyStatus, KeySuccession, Keyring, SecretKey, SigningScope, sign};

const ACME: &str = "github://acme/*";

fn statement(old: u8, new: u8) -> Vec<u8> {
    let until = date("2027-06-01T00:00:00Z");
    KeySuccession::sign(&key(old), &key(new), now(), until).unwrap().to_json().into_bytes()
}

fn verified(old: u8, new: u8) -> KeySuccession {
    KeySuccession::verify(&statement(old, new), now()).unwrap()
}

/// Lets `new` succeed `old`, which expires in a month.
fn succeed(keyring: &mut Keyring, old: u8, new: u8) -> Result<(), String> {
    let end = KeyEnd::At(date("2026-07-01T00:00:00Z"));
    keyring.succeed(&verified(old, new), end, None, now()).map_err(|error| error.to_string())
}

#[test]
fn a_successor_gets_the_scopes_and_the_old_key_ends() {
    let mut keyring = trusting(1, ACME);
    let last = date("2027-01-01T00:00:00Z");
    let slack = [SigningScope::parse("hub://x/slack").unwrap()];
    keyring.trust(&key(1).public(), &slack, now(), Some(last), Some("the old key")).unwrap();
    let mut at_once = keyring.clone();
    at_once.succeed(&verified(1, 2), KeyEnd::Revoked, None, now()).unwrap();
    succeed(&mut keyring, 1, 2).unwrap();
    for (keyring, status) in [(&keyring, KeyStatus::Trusted), (&at_once, KeyStatus::Revoked)] {
        let [old, new] = keyring.entries() else { panic!("{}", keyring.to_text()) };
        assert_eq!((old.status(now()), new.status(now())), (status, KeyStatus::Trusted));
        assert_eq!(
            old.status(date("2026-07-02T00:00:00Z")).max(KeyStatus::Expired),
            status.max(KeyStatus::Expired)
        );
        assert_eq!((old.scopes(), new.not_after()), (new.scopes(), Some(last)));
        assert!(old.reason().unwrap().contains(&new.id().short()), "{old:?}");
        assert!(keyring.is_successor(old.id(), new.id()) && !keyring.is_successor(new.id(), old.id()));
        assert!(!keyring.is_successor(old.id(), old.id()));
        let text = keyring.to_text();
        assert_eq!(&Keyring::parse("keyring.toml", &text).unwrap(), keyring, "{text}");
    }
}

#[test]
fn succession_is_transitive_and_never_forgotten() {
    let mut keyring = trusting(1, ACME);
    for (old, new) in [(1, 2), (2, 3), (3, 4)] {
        succeed(&mut keyring, old, new).unwrap();
    }
    let id = |seed| key(seed).public().id();
    let pairs = [(1, 2), (1, 3), (1, 4), (2, 4), (3, 4)];
    assert!(pairs.iter().all(|(old, new)| keyring.is_successor(&id(*old), &id(*new))));
    assert!(!pairs.iter().any(|(old, new)| keyring.is_successor(&id(*new), &id(*old))));
    // Removed and added again, any of these would count as another owner, or could succeed its own successor.
    for (seed, relative) in [(2, 1), (3, 2), (4, 3)] {
        let refused = keyring.remove(&id(seed)).unwrap_err();
        assert!(refused.message().contains(&id(relative).short()), "{refused}");
        assert!(refused.fix().contains("trust revoke"), "{refused}");
    }
    keyring.remove(&id(1)).unwrap().unwrap();
    assert!(keyring.is_successor(&id(1), &id(4)), "the first key need not be there");
    assert!(keyring.remove(&id(2)).unwrap_err().message().contains(&id(3).short()));
    let acme = [SigningScope::parse(ACME).unwrap()];
    keyring.trust(&key(1).public(), &acme, now(), None, None).unwrap();
    assert_eq!(keyring.owners([id(1), id(2), id(3), id(4)].iter()), 1);
    // Without any key of its owner, a successor can be removed.
    let mut two = trusting(1, ACME);
    succeed(&mut two, 1, 2).unwrap();
    two.remove(&id(1)).unwrap().unwrap();
    two.remove(&id(2)).unwrap().unwrap();
    assert!(two.entries().is_empty());
    let text = keyring.to_text();
    assert_eq!(Keyring::parse("keyring.toml", &text).unwrap(), keyring, "{text}");
}

#[test]
fn impossible_successions_are_refused() {
    let expired = || {
        let mut keyring = Keyring::empty();
        let scopes = [SigningScope::parse(ACME).unwrap()];
        let last = Some(date("2026-05-01T00:00:00Z"));
        keyring.trust(&key(1).public(), &scopes, date("2026-01-01T00:00:00Z"), last, None).unwrap();
        keyring
    };
    let with = |change: &dyn Fn(&mut Keyring)| {
        let mut keyring = trusting(1, ACME);
        change(&mut keyring);
        keyring
    };
    let revoke =
        |seed: u8| move |keyring: &mut Keyring| keyring.revoke(&key(seed).public(), now(), None).unwrap();
    let wider = |keyring: &mut Keyring| {
        let scopes = [SigningScope::parse("hub://x/*").unwrap()];
        keyring.trust(&key(2).public(), &scopes, now(), None, None).unwrap();
    };
    let chain = |pairs: &'static [(u8, u8)]| {
        move |keyring: &mut Keyring| pairs.iter().for_each(|(old, new)| succeed(keyring, *old, *new).unwrap())
    };
    for (keyring, old, new, says) in [
        (Keyring::empty(), 1, 2, "not in the keyring"),
        (with(&revoke(1)), 1, 2, "was revoked"),
        (expired(), 1, 2, "last day"),
        (with(&revoke(2)), 1, 2, "the new key"),
        (with(&wider), 1, 2, "is trusted for hub://x/* here"),
        (with(&chain(&[(1, 2)])), 1, 2, "already"),
        (with(&chain(&[(1, 2)])), 1, 3, "by another key already"),
        (with(&chain(&[(1, 2)])), 2, 1, "was itself succeeded"),
        (with(&chain(&[(1, 2), (2, 3)])), 3, 1, "was itself succeeded"),
        (with(&chain(&[(1, 2)])), 2, 1, "in a circle"),
    ] {
        let mut changed = keyring.clone();
        let error = succeed(&mut changed, old, new).unwrap_err();
        assert!(error.contains(says), "{says}: {error}");
        assert_eq!(changed, keyring, "{says}");
    }
    let mut two = trusting(1, ACME);
    two.trust(&key(5).public(), &[SigningScope::parse(ACME).unwrap()], now(), None, None).unwrap();
    succeed(&mut two, 1, 2).unwrap();
    assert!(succeed(&mut two, 5, 2).unwrap_err().contains("succeeded another key"));
    let past = KeyEnd::At(date("2026-05-01T00:00:00Z"));
    let mut keyring = trusting(1, ACME);
    assert!(keyring.succeed(&verified(1, 2), past, None, now()).is_err());
    assert_eq!(keyring, trusting(1, ACME));
}

#[test]
fn a_known_successor_may_be_trusted_for_less() {
    let mut keyring = trusting(1, ACME);
    let slack = [SigningScope::parse("github://acme/slack").unwrap()];
    keyring.trust(&key(2).public(), &slack, now(), None, None).unwrap();
    succeed(&mut keyring, 1, 2).unwrap();
    assert!(
        keyring.entry(&key(2).public().id()).unwrap().scopes().contains(&SigningScope::parse(ACME).unwrap())
    );
    // The other way, it would gain a scope that the old key does not have.
    let mut narrow = trusting(1, "github://acme/slack");
    narrow.trust(&key(2).public(), &[SigningScope::parse(ACME).unwrap()], now(), None, None).unwrap();
    assert!(succeed(&mut narrow, 1, 2).unwrap_err().contains("is trusted for github://acme/* here"));
}

#[test]
fn a_known_successor_is_not_trusted_for_longer() {
    let mut keyring = trusting(1, ACME);
    let last = date("2026-12-01T00:00:00Z");
    keyring.trust(&key(2).public(), &[SigningScope::parse(ACME).unwrap()], now(), Some(last), None).unwrap();
    succeed(&mut keyring, 1, 2).unwrap();
    assert_eq!(keyring.entry(&key(2).public().id()).unwrap().not_after(), Some(last));
}

#[test]
fn a_statement_needs_both_signatures_and_is_not_stale() {
    let (good, until) = (statement(1, 2), date("2027-06-01T00:00:00Z"));
    assert!(KeySuccession::verify(&good, until).is_ok());
    let refused = |bytes: &[u8], at| KeySuccession::verify(bytes, at).unwrap_err().to_string();
    assert!(refused(&good, date("2027-06-01T00:00:01Z")).contains("stale"));
    let wire: Value = serde_json::from_slice(&good).unwrap();
    for (at, which) in [(0, "old key"), (1, "new key")] {
        let mut one = wire.clone();
        one["signatures"].as_array_mut().unwrap().remove(at);
        assert!(refused(one.to_string().as_bytes(), now()).contains(which));
    }
    let mut twice = wire.clone();
    twice["signatures"][1] = twice["signatures"][0].clone();
    assert!(refused(twice.to_string().as_bytes(), now()).contains("new key"));
    let release = sign(&key(1), &super::statement()).to_json();
    for other in [release.as_bytes(), b"", b"{}", &good[..good.len() / 2]] {
        assert!(refused(other, now()).contains("not a succession"));
    }
    // And a succession is no release: neither kind passes for the other.
    let digest = cofferdam_core::digest::Digest::sha256(super::PACKAGE);
    let as_release = crate::trust::verify(
        &good,
        &trusting(1, ACME),
        &super::slack(),
        &super::version("1.2.0"),
        &digest,
        now(),
    );
    assert!(as_release.unwrap_err().reason().contains("not a release statement"));
    let sign = |old: &SecretKey, new: &SecretKey, until| KeySuccession::sign(old, new, now(), until);
    assert!(sign(&key(1), &key(1), until).unwrap_err().message().contains("itself"));
    assert!(sign(&key(1), &key(2), now()).is_err());
}

#[test]
fn flipped_bits_of_a_statement_are_refused_or_harmless() {
    let good = statement(1, 2);
    let whole = verified(1, 2);
    for at in 0..good.len() {
        let mut flipped = good.clone();
        flipped[at] ^= 1;
        if let Ok(read) = KeySuccession::verify(&flipped, now()) {
            assert_eq!(read, whole, "byte {at}");
        }
    }
}
