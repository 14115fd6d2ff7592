//! Verification: every reason to refuse from real bytes, which reason wins, and what is accepted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::digest::Digest;
use cofferdam_core::failure::SignatureCode::{
    BadSignature, ExpiredKey, IdentityMismatch, KeyScope, Malformed, RevokedKey, TooFewSignatures,
    UnknownKey, Unsigned,
};
use serde_json::{Value, json};

use super::{FOREIGN, PACKAGE, date, key, name, now, signed, slack, statement, trusting, version};
use crate::trust::{
    Envelope, KeyEnd, KeySuccession, Keyring, ReleaseStatement, SignatureThreshold, SigningScope, TrustError,
    Verified, allow_unsigned, check_unsigned, sign, verify,
};

const ACME: &str = "github://acme/*";

fn check(envelope: &[u8], keyring: &Keyring) -> Result<Verified, TrustError> {
    verify(envelope, keyring, &slack(), &version("1.2.0"), &Digest::sha256(PACKAGE), now())
}

fn check_envelope(envelope: &Envelope, keyring: &Keyring) -> Result<Verified, TrustError> {
    check(envelope.to_json().as_bytes(), keyring)
}

/// `envelope` with one byte of the payload changed (a digit of the hash).
fn with_payload_flipped(envelope: &Envelope) -> Vec<u8> {
    let mut wire: Value = serde_json::from_str(&envelope.to_json()).unwrap();
    let mut payload = STANDARD.decode(wire["payload"].as_str().unwrap()).unwrap();
    let at = payload.windows(6).position(|window| window == b"c0cd5c").unwrap();
    payload[at] = b'd';
    wire["payload"] = STANDARD.encode(payload).into();
    wire.to_string().into_bytes()
}

#[test]
fn an_unknown_algorithm_changes_no_verdict() {
    let with_other = |envelope: &Envelope| {
        let mut wire: Value = serde_json::from_str(&envelope.to_json()).unwrap();
        // Even where it claims to be by a key that is trusted.
        let other = json!({"keyid": key(1).public().id().to_string(), "sig": STANDARD.encode([7; 71])});
        wire["signatures"].as_array_mut().unwrap().insert(0, other);
        wire.to_string().into_bytes()
    };
    assert!(check(&with_other(&signed(1)), &trusting(1, ACME)).is_ok());
    for (by, keyring) in [(2, trusting(1, ACME)), (1, trusting(1, "hub://x/*"))] {
        let alone = check_envelope(&signed(by), &keyring).unwrap_err();
        assert_eq!(check(&with_other(&signed(by)), &keyring).unwrap_err(), alone);
    }
}

#[test]
fn a_trusted_signature_over_the_release_is_accepted() {
    let verified = check_envelope(&signed(1), &trusting(1, ACME)).unwrap();
    assert_eq!((verified.name(), verified.version()), (&slack(), &version("1.2.0")));
    assert_eq!(verified.digest(), &Digest::sha256(PACKAGE));
    assert_eq!(verified.signer(), Some(&key(1).public().id()));
    assert!(check_envelope(&signed(1), &trusting(1, "github://acme/slack")).is_ok());
    assert!(check(FOREIGN, &trusting(0, ACME)).is_ok(), "an envelope of the reference implementation");

    let unsigned = allow_unsigned(slack(), version("1.2.0"), Digest::sha256(PACKAGE));
    assert_eq!((unsigned.signer(), unsigned.name()), (None, &slack()));
}

#[test]
fn every_refusal_has_its_code_and_its_fix() {
    let trusted = trusting(1, ACME);
    let mut revoked = trusting(1, ACME);
    revoked.revoke(&key(1).public(), date("2026-03-01T00:00:00Z"), None).unwrap();
    let mut expired = Keyring::empty();
    let scopes = [SigningScope::parse(ACME).unwrap()];
    let last = date("2026-05-31T00:00:00Z");
    expired.trust(&key(1).public(), &scopes, date("2026-01-01T00:00:00Z"), Some(last), None).unwrap();
    let good = signed(1).to_json().into_bytes();
    let public = key(1).public();
    let of =
        |name, version, digest| sign(&key(1), &ReleaseStatement::new(name, version, digest, now())).to_json();
    let other_name = of(name("github://acme/other"), version("1.2.0"), Digest::sha256(PACKAGE));
    let other_version = of(slack(), version("1.1.0"), Digest::sha256(PACKAGE));
    let other_digest = of(slack(), version("1.2.0"), Digest::sha256(b"another package"));
    for (envelope, keyring, code, reason, fix) in [
        (good.clone(), Keyring::empty(), UnknownKey, "not in the keyring", format!("add KEY --for '{ACME}'")),
        (
            good.clone(),
            trusting(2, ACME),
            UnknownKey,
            "not in the keyring",
            format!("add KEY --for '{ACME}'"),
        ),
        (
            good.clone(),
            trusting(1, "github://acme/other"),
            KeyScope,
            "not trusted for github://acme/slack",
            format!("`cofferdam trust add {public} --for 'github://acme/slack'`"),
        ),
        (
            good.clone(),
            trusting(1, "gitlab://acme/*"),
            KeyScope,
            "not trusted for github://acme/slack",
            format!("`cofferdam trust add {public} --for 'github://acme/slack'`"),
        ),
        (
            good.clone(),
            revoked,
            RevokedKey,
            "which was revoked",
            "`cofferdam trust list` shows those there are. If it was installed here before 2026-03-01T00:00:00Z, \
             `cofferdam trust keep"
                .to_owned(),
        ),
        (
            good.clone(),
            expired,
            ExpiredKey,
            "last day has passed",
            "--not-after DATE`. If it was installed here before 2026-05-31T00:00:00Z,".to_owned(),
        ),
        (
            with_payload_flipped(&signed(1)),
            trusted.clone(),
            BadSignature,
            "does not hold",
            "again".to_owned(),
        ),
        (
            good[..good.len() / 2].to_vec(),
            trusted.clone(),
            Malformed,
            "not a signature envelope",
            "again".to_owned(),
        ),
        (Vec::new(), trusted.clone(), Malformed, "not a signature envelope", "again".to_owned()),
        (
            other_name.into_bytes(),
            trusted.clone(),
            IdentityMismatch,
            "for github://acme/other",
            "again".to_owned(),
        ),
        (other_version.into_bytes(), trusted.clone(), IdentityMismatch, "version 1.1.0", "again".to_owned()),
        (other_digest.into_bytes(), trusted, IdentityMismatch, "with the hash", "again".to_owned()),
    ] {
        let error = check(&envelope, &keyring).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.reason().contains(reason), "{error}");
        assert!(!error.reason().ends_with('.') && error.fix().ends_with('.'), "{error}");
        assert!(error.fix().contains(&fix), "{error}");
    }
    let unsigned = TrustError::unsigned(&slack());
    assert_eq!(unsigned.code(), Unsigned);
    assert!(unsigned.fix().contains("--allow-unsigned"), "{unsigned}");
}

#[test]
fn flipped_envelope_bits_are_refused_or_harmless() {
    let (keyring, envelope) = (trusting(1, ACME), signed(1).to_json().into_bytes());
    let (mut refused, mut same) = (0, 0);
    for at in 0..envelope.len() {
        for bit in 0..8 {
            let mut flipped = envelope.clone();
            flipped[at] ^= 1 << bit;
            match check(&flipped, &keyring) {
                Ok(_) => same += 1,
                Err(_) => refused += 1,
            }
        }
    }
    // Allowed changes: the key id, which is a hint, and the name of that optional field.
    assert!(refused > 4_000 && same <= (64 + 5 + 1) * 8, "{refused} {same}");
}

#[test]
fn the_signature_decides_before_the_payload_is_read() {
    // Not JSON at all, and signed by no key: the signature is reported.
    let mut wire: Value = serde_json::from_str(&signed(1).to_json()).unwrap();
    wire["payload"] = STANDARD.encode("{").into();
    let error = check(wire.to_string().as_bytes(), &trusting(1, ACME)).unwrap_err();
    assert_eq!(error.code(), BadSignature);
    // The same, signed by a key that is trusted: only now is it looked at.
    let mut message = b"DSSEv1 28 application/vnd.in-toto+json 1 ".to_vec();
    message.push(b'{');
    wire["signatures"][0]["sig"] = STANDARD.encode(key(1).sign(&message)).into();
    let error = check(wire.to_string().as_bytes(), &trusting(1, ACME)).unwrap_err();
    assert_eq!((error.code(), error.reason().contains("not a release statement")), (Malformed, true));
}

#[test]
fn the_key_id_is_a_hint_and_never_decides() {
    let keyring = trusting(1, ACME);
    let with_id = |id: Value, sig_of: u8| {
        let mut wire: Value = serde_json::from_str(&signed(sig_of).to_json()).unwrap();
        wire["signatures"][0]["keyid"] = id;
        check(wire.to_string().as_bytes(), &keyring)
    };
    for id in [json!(null), json!(""), json!("x"), json!(key(2).public().id().to_string())] {
        assert!(with_id(id.clone(), 1).is_ok(), "{id}");
        assert_eq!(with_id(id.clone(), 2).unwrap_err().code(), UnknownKey, "{id}");
    }
    assert_eq!(with_id(json!(key(1).public().id().to_string()), 2).unwrap_err().code(), BadSignature);
    let error = with_id(json!("\u{1b}[31m\u{202e}evil\n"), 2).unwrap_err();
    assert!(!error.to_string().contains(['\u{1b}', '\u{202e}', '\n']), "{error}");
}

#[test]
fn one_good_signature_wins_else_the_best_reason() {
    // Key 1 is good, 2 unknown, 3 for other names, 4 expired, 5 revoked, 6 known and its signature bad.
    let mut keyring = trusting(1, ACME);
    let past = date("2026-01-01T00:00:00Z");
    let mut add = |seed, scope, until: Option<&str>| {
        let scopes = [SigningScope::parse(scope).unwrap()];
        keyring.trust(&key(seed).public(), &scopes, past, until.map(date), None).unwrap();
    };
    add(3, "hub://other/*", None);
    add(4, ACME, Some("2026-02-01T00:00:00Z"));
    add(5, ACME, None);
    add(6, ACME, None);
    keyring.revoke(&key(5).public(), past, None).unwrap();
    let made_by = |seeds: &[u8]| {
        let mut envelope = sign(&key(seeds[0]), &statement());
        for seed in seeds {
            envelope.add(&key(*seed)).unwrap();
        }
        let mut wire: Value = serde_json::from_str(&envelope.to_json()).unwrap();
        let bad = key(6).public().id().to_string();
        for signature in wire["signatures"].as_array_mut().unwrap() {
            if signature["keyid"] == bad {
                signature["sig"] = STANDARD.encode([9u8; 64]).into();
            }
        }
        wire.to_string().into_bytes()
    };
    for (seeds, code) in [
        (vec![2], UnknownKey),
        (vec![3, 2], KeyScope),
        (vec![2, 3, 4], ExpiredKey),
        (vec![5, 4, 3, 2], RevokedKey),
        (vec![2, 3, 4, 5, 6], BadSignature),
        (vec![6, 5, 4, 3, 2], BadSignature),
    ] {
        assert_eq!(check(&made_by(&seeds), &keyring).unwrap_err().code(), code, "{seeds:?}");
        let verified = check(&made_by(&[seeds, vec![1]].concat()), &keyring).unwrap();
        assert_eq!(verified.signer(), Some(&key(1).public().id()));
    }
}

#[test]
fn releases_below_the_minimum_version_are_refused() {
    let with_floor = |of: &str, floor: &str| {
        let mut keyring = trusting(1, ACME);
        keyring.set_floor(&name(of), &version(floor)).unwrap();
        check_envelope(&signed(1), &keyring).map(drop)
    };
    for (of, floor) in [
        ("github://acme/slack", "1.2.0"),
        ("github://acme/slack", "1.2.0-rc.9"),
        ("github://acme/other", "9.0.0"),
    ] {
        with_floor(of, floor).unwrap();
    }
    for floor in ["1.2.1-alpha", "1.10.0", "999999.0.0"] {
        let error = with_floor("github://acme/slack", floor).unwrap_err();
        assert_eq!(error.code(), cofferdam_core::failure::SignatureCode::BelowFloor);
        assert!(error.to_string().contains(floor) && error.fix().contains("trust floor"), "{error}");
    }
    let mut keyring = Keyring::empty();
    keyring.set_floor(&slack(), &version("9.0.0")).unwrap();
    let unknown = check_envelope(&signed(1), &keyring).unwrap_err();
    assert_eq!(unknown.code(), UnknownKey, "who signed comes before what may run");
}

/// An envelope about [`statement`] that these keys signed.
fn signed_by(seeds: &[u8]) -> Envelope {
    let mut envelope = signed(seeds[0]);
    for seed in &seeds[1..] {
        envelope.add(&key(*seed)).unwrap();
    }
    envelope
}

/// A keyring that trusts keys 1 to 3, and needs two of them.
fn two_of_three() -> Keyring {
    let mut keyring = trusting(1, ACME);
    let scope = SigningScope::parse(ACME).unwrap();
    for seed in [2, 3] {
        keyring.trust(&key(seed).public(), std::slice::from_ref(&scope), now(), None, None).unwrap();
    }
    keyring.set_threshold(&scope, SignatureThreshold::new(2).unwrap()).unwrap();
    keyring
}

#[test]
fn a_threshold_needs_as_many_different_keys() {
    let keyring = two_of_three();
    for (seeds, signers) in [(vec![1, 2], 2), (vec![3, 1], 2), (vec![1, 2, 3], 3), (vec![9, 1, 8, 3], 2)] {
        let verified = check_envelope(&signed_by(&seeds), &keyring).unwrap();
        assert_eq!(verified.signers().len(), signers, "{seeds:?}");
    }
    for seeds in [vec![1], vec![1, 9], vec![9, 8, 2]] {
        let error = check_envelope(&signed_by(&seeds), &keyring).unwrap_err();
        assert_eq!(error.code(), TooFewSignatures, "{error}");
        assert!(error.reason().contains("2 different trusted keys must sign it, and 1 did"), "{error}");
        for part in ["cofferdam trust threshold", "and install it again", "--remove"] {
            assert!(error.fix().contains(part), "{part}: {error}");
        }
    }
    assert_eq!(check_envelope(&signed_by(&[8, 9]), &keyring).unwrap_err().code(), UnknownKey);
    // One key's signature twice is one.
    let mut wire: Value = serde_json::from_str(&signed(1).to_json()).unwrap();
    let first = wire["signatures"][0].clone();
    wire["signatures"].as_array_mut().unwrap().push(first);
    assert_eq!(check(wire.to_string().as_bytes(), &keyring).unwrap_err().code(), TooFewSignatures);
    // Without any signature, permission to run unsigned is not enough.
    let refused = check_unsigned(&keyring, &slack(), &version("1.2.0")).unwrap_err();
    assert_eq!(refused.code(), TooFewSignatures);
    check_unsigned(&keyring, &name("github://else/slack"), &version("1.2.0")).unwrap();
}

#[test]
fn ended_keys_do_not_count_towards_a_threshold() {
    let mut keyring = two_of_three();
    keyring.revoke(&key(2).public(), now(), Some("stolen")).unwrap();
    let error = check_envelope(&signed_by(&[1, 2]), &keyring).unwrap_err();
    assert!(error.code() == TooFewSignatures && error.reason().contains("was revoked (stolen)"), "{error}");
    keyring.keep(&key(2).public().id(), &[Digest::sha256(PACKAGE)]).unwrap();
    check_envelope(&signed_by(&[1, 2]), &keyring).unwrap();
}

#[test]
fn a_key_and_its_successor_count_once() {
    let mut keyring = two_of_three();
    let until = date("2027-01-01T00:00:00Z");
    let statement = KeySuccession::sign(&key(1), &key(4), now(), until).unwrap().to_json();
    let succession = KeySuccession::verify(statement.as_bytes(), now()).unwrap();
    keyring.succeed(&succession, KeyEnd::At(until), None, now()).unwrap();
    let error = check_envelope(&signed_by(&[1, 4]), &keyring).unwrap_err();
    assert!(error.code() == TooFewSignatures && error.reason().contains("count once"), "{error}");
    for seeds in [[1, 2], [4, 2]] {
        check_envelope(&signed_by(&seeds), &keyring).unwrap();
    }
    assert_eq!(keyring.owners_for(&SigningScope::parse(ACME).unwrap(), now()), 3);
}

#[test]
fn kept_packages_stay_valid_and_no_others() {
    let envelope = signed(1);
    let mut keyring = trusting(1, ACME);
    let id = key(1).public().id();
    keyring.revoke(&key(1).public(), date("2026-03-01T00:00:00Z"), Some("stolen")).unwrap();
    assert_eq!(check_envelope(&envelope, &keyring).unwrap_err().code(), RevokedKey);
    keyring.keep(&id, &[Digest::sha256(b"another package")]).unwrap();
    let error = check_envelope(&envelope, &keyring).unwrap_err();
    assert!(error.code() == RevokedKey && error.reason().contains("stolen"), "{error}");
    keyring.keep(&id, &[Digest::sha256(PACKAGE)]).unwrap();
    let verified = check_envelope(&envelope, &keyring).unwrap();
    assert!(verified.in_date(date("2099-01-01T00:00:00Z")), "it has no end any more");
    // A statement of the thief's, dated before the theft, is about other bytes.
    let dated = date("2026-01-01T00:00:00Z");
    let forged = ReleaseStatement::new(slack(), version("1.2.0"), Digest::sha256(b"evil"), dated);
    let forged = sign(&key(1), &forged).to_json();
    let evil = Digest::sha256(b"evil");
    let error = verify(forged.as_bytes(), &keyring, &slack(), &version("1.2.0"), &evil, now()).unwrap_err();
    assert_eq!(error.code(), RevokedKey);
    // And the key's scopes still hold.
    let elsewhere = Keyring::parse("k", &keyring.to_text().replace("acme/*", "acme/other")).unwrap();
    assert!(check_envelope(&envelope, &elsewhere).is_err());
}
