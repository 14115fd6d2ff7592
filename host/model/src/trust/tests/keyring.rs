//! The keyring document: read, written, changed, and refused with place and fix.

use super::{date, key, name, now, slack, trusting};
use cofferdam_core::digest::Digest;

use crate::trust::{KeyStatus, Keyring, SignatureThreshold, SigningScope, TrustChange};

fn scope(text: &str) -> SigningScope {
    SigningScope::parse(text).unwrap()
}

#[test]
fn a_missing_or_empty_keyring_trusts_no_key() {
    assert_eq!(Keyring::parse("keyring.toml", "").unwrap(), Keyring::empty());
    assert_eq!(Keyring::parse("keyring.toml", &Keyring::empty().to_text()).unwrap(), Keyring::empty());
    assert!(Keyring::empty().entries().is_empty());
}

#[test]
fn written_and_read_it_is_the_same() {
    let mut keyring = trusting(1, "github://acme/*");
    let scopes = [scope("github://acme/slack"), scope("hub://x/*")];
    let comment = "the \"release\" key \\ of é, 2026 # not a comment";
    keyring
        .trust(&key(2).public(), &scopes, now(), Some(date("2027-01-01T00:00:00Z")), Some(comment))
        .unwrap();
    keyring
        .revoke(&key(2).public(), date("2026-07-01T12:34:56.789Z"), Some("the laptop was stolen"))
        .unwrap();
    let text = keyring.to_text();
    assert_eq!(Keyring::parse("keyring.toml", &text).unwrap(), keyring, "{text}");
    assert!(text.starts_with("# cofferdam keyring"), "{text}");
    assert!(text.contains("not_after = 2027-01-01T00:00:00Z"), "{text}");
    let [_, entry] = keyring.entries() else { panic!("{text}") };
    assert_eq!(entry.comment(), Some(comment));
    assert_eq!(entry.revoked(), Some(date("2026-07-01T12:34:56Z")));
    assert_eq!(entry.added(), Some(now()));
    assert_eq!(entry.reason(), Some("the laptop was stolen"));
    // Dates may be written as strings as well, in any offset.
    let quoted =
        text.replace("not_after = 2027-01-01T00:00:00Z", "not_after = \"2027-01-01T01:00:00+01:00\"");
    assert_eq!(Keyring::parse("keyring.toml", &quoted).unwrap(), keyring);
}

#[test]
fn trust_adds_extends_and_never_revives() {
    let mut keyring = Keyring::empty();
    let public = key(1).public();
    let acme = [scope("github://acme/*")];
    let mut trust = |scopes: &[SigningScope], at, until: Option<&str>, comment| {
        keyring.trust(&public, scopes, at, until.map(date), comment).map_err(|error| error.to_string())
    };
    assert!(trust(&[], now(), None, None).unwrap_err().contains("--for"));
    assert!(trust(&acme, now(), None, Some("two\nlines")).is_err());
    assert!(trust(&acme, now(), Some("2020-01-01T00:00:00Z"), None).unwrap_err().contains("--not-after"));
    assert_eq!(trust(&acme, now(), None, None), Ok(TrustChange::Added));
    assert_eq!(trust(&acme, now(), None, None), Ok(TrustChange::Unchanged));
    assert_eq!(trust(&[scope("hub://x/y")], now(), None, Some("c")), Ok(TrustChange::Extended));
    assert_eq!(trust(&acme, now(), Some("2026-12-31T00:00:00Z"), None), Ok(TrustChange::Extended));
    let later = date("2027-06-01T00:00:00Z");
    assert!(trust(&acme, later, None, None).unwrap_err().contains("--not-after"));
    assert_eq!(trust(&acme, later, Some("2028-01-01T00:00:00Z"), None), Ok(TrustChange::Extended));

    let id = public.id();
    assert_eq!(keyring.entries()[0].scopes().len(), 2);
    keyring.revoke(&public, now(), None).unwrap();
    keyring.revoke(&public, later, None).unwrap();
    assert_eq!(keyring.entries()[0].revoked(), Some(now()), "the first date stays");
    let error = keyring.trust(&public, &acme, now(), None, None).unwrap_err();
    assert!(error.fix().contains(&format!("cofferdam trust remove {}", id.short())), "{error}");
    assert!(keyring.remove(&id).unwrap().is_some() && keyring.remove(&id).unwrap().is_none());
    assert!(keyring.entries().is_empty());
}

#[test]
fn a_key_can_be_revoked_before_it_is_trusted() {
    let mut keyring = Keyring::empty();
    let (public, acme) = (key(1).public(), [scope("github://acme/*")]);
    assert!(keyring.revoke(&public, now(), Some("two\nlines")).is_err());
    assert!(keyring.entries().is_empty());
    keyring.revoke(&public, now(), Some("in the advisory of May")).unwrap();
    keyring.revoke(&public, now(), None).unwrap();
    let mut keyring = Keyring::parse("keyring.toml", &keyring.to_text()).unwrap();
    let error = keyring.trust(&public, &acme, now(), None, None).unwrap_err();
    assert!(error.message().contains("revoked (in the advisory of May) and stays so"), "{error}");
    assert_eq!(keyring.entries()[0].status(now()), KeyStatus::Revoked);
    assert!(keyring.entries()[0].scopes().is_empty());
    keyring.remove(&public.id()).unwrap();
    assert_eq!(keyring.trust(&public, &acme, now(), None, None), Ok(TrustChange::Added));
    // Only a revoked key may be trusted for nothing, and only a key with an end has a reason.
    let text = keyring.to_text();
    let bare = text.replace("scopes = [\"github://acme/*\"]\n", "");
    assert!(bare != text && Keyring::parse("keyring.toml", &bare).is_err());
    assert!(Keyring::parse("keyring.toml", &(text + "reason = \"why\"\n")).is_err());
}

#[test]
fn keys_expire_and_revocations_always_apply() {
    let mut keyring = trusting(1, "github://acme/*");
    let last = date("2026-12-31T00:00:00Z");
    let public = key(1).public();
    keyring.trust(&public, &[scope("hub://x/*")], now(), Some(last), None).unwrap();
    let entry = &keyring.entries()[0];
    assert_eq!(entry.status(last), KeyStatus::Trusted);
    assert_eq!(entry.status(date("2026-12-31T00:00:01Z")), KeyStatus::Expired);
    assert!(entry.covers(&slack()) && entry.covers(&name("hub://x/y")) && !entry.covers(&name("hub://y/x")));
    keyring.revoke(&public, date("2030-01-01T00:00:00Z"), None).unwrap();
    assert_eq!(keyring.entries()[0].status(now()), KeyStatus::Revoked);
}

#[test]
fn keys_are_found_by_key_or_id_prefix() {
    let mut keyring = trusting(0, "github://acme/*");
    keyring.trust(&key(1).public(), &[scope("hub://x/*")], now(), None, None).unwrap();
    let id = key(0).public().id().to_string();
    for text in [key(0).public().to_string().as_str(), &id, &id[..12], &id[..6], &format!(" {id}\n")] {
        assert_eq!(keyring.find(text).unwrap().id().to_string(), id, "{text}");
    }
    let secret = key(0).to_text();
    let unknown = key(9).public().to_string();
    for text in ["", &id[..5], "zzzzzzzz", "000000000000", &unknown, secret.lines().last().unwrap()] {
        let error = keyring.find(text).unwrap_err();
        assert!(error.fix().contains("cofferdam trust list"), "{text}: {error}");
    }
}

#[test]
fn keyring_errors_have_a_place_and_a_fix() {
    let good = trusting(1, "github://acme/*").to_text();
    let line = |needle: &str| good.lines().position(|line| line.contains(needle)).unwrap() + 1;
    let key_line = good.lines().find(|line| line.starts_with("key = ")).unwrap();
    let weak = "key = \"ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"";
    let added = good.lines().find(|line| line.starts_with("added")).unwrap();
    for (old, new, line, place, fix) in [
        (key_line, "key = \"ed25519:AAAA\"", line("key = "), "keys[0].key", "cofferdam key generate"),
        (key_line, weak, line("key = "), "keys[0].key", "cofferdam key generate"),
        (key_line, "", line("[[keys]]"), "keys[0].key", "add key = "),
        ("[\"github://acme/*\"]", "[\"*\"]", line("scopes"), "keys[0].scopes[0]", "write github://acme/*"),
        ("[\"github://acme/*\"]", "[]", line("[[keys]]"), "keys[0]", "name its scopes"),
        (
            "[\"github://acme/*\"]",
            "\"github://acme/*\"",
            line("scopes"),
            "keys[0].scopes",
            "an array of strings",
        ),
        ("scopes", "scope", line("scopes"), "keys[0].scope", "did you mean `scopes`?"),
        (added, "added = 2026-06-01", line("added"), "keys[0].added", "like 2027-01-31T00:00:00Z"),
        (added, "revoked = \"soon\"", line("added"), "keys[0].revoked", "like 2027-01-31T00:00:00Z"),
        (added, "revoked = false", line("added"), "keys[0].revoked", "a date and time"),
        (added, "comment = \"a\\nb\"", line("added"), "keys[0].comment", "without control characters"),
        ("[[keys]]", "[keys]", line("[[keys]]"), "keys", "[[keys]]"),
        ("[[keys]]", "[[key]]", line("[[keys]]"), "key", "did you mean `keys`?"),
    ] {
        let text = good.replacen(old, new, 1);
        assert_ne!(text, good, "{old}");
        let error = Keyring::parse("keyring.toml", &text).unwrap_err();
        let found = error.problems().iter().find(|problem| (problem.line(), problem.key()) == (line, place));
        let problem = found.unwrap_or_else(|| panic!("{new} at {line} {place}:\n{error}"));
        assert!(problem.fix().contains(fix), "{error}");
        assert_eq!(problem.file(), "keyring.toml");
    }
    let twice = format!("{good}{}", good.split_once('\n').unwrap().1);
    let error = Keyring::parse("keyring.toml", &twice).unwrap_err();
    assert_eq!((error.problems().len(), error.problems()[0].key()), (1, "keys[1].key"), "{error}");
    // A truncated keyring is an error, or what is left of it trusts no more than the whole did.
    let whole = Keyring::parse("keyring.toml", &good).unwrap();
    for end in (0..good.len()).filter(|end| good.is_char_boundary(*end)) {
        if let Ok(left) = Keyring::parse("keyring.toml", &good[..end]) {
            assert!(left.entries().iter().all(|entry| whole.find(&entry.key().to_string()).is_ok()));
        }
    }
}

#[test]
fn minimum_versions_round_trip_or_are_refused() {
    let mut keyring = trusting(1, "github://acme/*");
    let floor = |text: &str| semver::Version::parse(text).unwrap();
    assert_eq!(keyring.set_floor(&slack(), &floor("1.2.0-rc.1")).unwrap(), None);
    assert_eq!(keyring.set_floor(&name("hub://x/y"), &floor("2.0.0")).unwrap(), None);
    assert_eq!(keyring.set_floor(&slack(), &floor("1.4.0")).unwrap(), Some(floor("1.2.0-rc.1")));
    let text = keyring.to_text();
    assert_eq!(Keyring::parse("keyring.toml", &text).unwrap(), keyring, "{text}");
    assert_eq!(keyring.floor(&slack()), Some(&floor("1.4.0")));
    assert_eq!(keyring.remove_floor(&slack()), Some(floor("1.4.0")));
    assert_eq!(keyring.floor(&slack()), None);
    let one = "[[floor]]\nname = \"github://acme/slack\"\nversion = \"1.0.0\"\n";
    for (text, line, says) in [
        (one.replace("1.0.0", "1.0"), 3, "is not an exact version"),
        (one.replace("1.0.0", "1.0.0+b"), 3, "no build metadata"),
        (one.replace("1.0.0", ">=1.0.0"), 3, "is not an exact version"),
        (one.replace("github://acme/slack", "github://acme/*"), 2, "is not a connector name"),
        (one.replace("version", "versions"), 3, "did you mean `version`?"),
        (format!("{one}{one}"), 5, "floor above already"),
        ("[floor]\nx = 1\n".to_owned(), 1, "array of tables"),
        (one.repeat(1_001), 1, "more than 1000"),
    ] {
        let error = Keyring::parse("keyring.toml", &text).unwrap_err();
        let said = error.problems().iter().any(|problem| {
            let words = format!("{} {}", problem.message(), problem.fix());
            (problem.line() == line || line == 1) && words.contains(says)
        });
        assert!(said, "{says}: {error}");
    }
}

#[test]
fn thresholds_round_trip_or_are_refused() {
    let mut keyring = trusting(1, "github://acme/*");
    let number = |number: u64| SignatureThreshold::new(number).unwrap();
    assert_eq!(keyring.set_threshold(&scope("github://acme/*"), number(2)).unwrap(), None);
    assert_eq!(keyring.set_threshold(&scope("github://acme/slack"), number(16)).unwrap(), None);
    let text = keyring.to_text();
    assert_eq!(Keyring::parse("keyring.toml", &text).unwrap(), keyring, "{text}");
    let of = |keyring: &Keyring, text| keyring.threshold(&name(text)).map(|(_, number)| number.get());
    assert_eq!(of(&keyring, "github://acme/slack"), Some(16));
    assert_eq!(of(&keyring, "github://acme/other"), Some(2));
    assert_eq!(of(&keyring, "github://else/slack"), None);
    // An entry for one connector does not weaken that of its owner.
    keyring.set_threshold(&scope("github://acme/*"), number(3)).unwrap();
    keyring.set_threshold(&scope("github://acme/slack"), number(2)).unwrap();
    assert_eq!(of(&keyring, "github://acme/slack"), Some(3));
    assert_eq!(keyring.owners_for(&scope("github://acme/slack"), now()), 1);
    assert_eq!(keyring.remove_threshold(&scope("github://acme/*")), Some(number(3)));
    for wrong in [0, 1, 17, u64::MAX] {
        assert!(SignatureThreshold::new(wrong).is_err(), "{wrong}");
    }
    let one = "[[threshold]]\nscope = \"github://acme/slack\"\nsignatures = 2\n";
    for (text, line, says) in [
        (one.replace("= 2", "= 1"), 3, "is not a threshold"),
        (one.replace("= 2", "= 17"), 3, "write 2 to 16"),
        (one.replace("= 2", "= \"2\""), 3, "a whole number"),
        (one.replace("github://acme/slack", "*"), 2, "is not a scope"),
        (one.replace("signatures", "signature"), 3, "did you mean `signatures`?"),
        (one.replace("signatures = 2\n", ""), 1, "add signatures = 2"),
        (format!("{one}{one}"), 5, "threshold above already"),
        (one.repeat(1_001), 1, "more than 1000"),
    ] {
        refused_at(&text, line, says);
    }
}

/// Checks that a problem of `text` in `line` says `says`; in the first line, that of any line.
#[track_caller]
fn refused_at(text: &str, line: usize, says: &str) {
    let error = Keyring::parse("keyring.toml", text).unwrap_err();
    let said = error.problems().iter().any(|problem| {
        let words = format!("{} {}", problem.message(), problem.fix());
        (problem.line() == line || line == 1) && words.contains(says)
    });
    assert!(said, "{says}: {error}");
}

#[test]
fn kept_packages_and_successors_have_a_place_and_a_fix() {
    let mut keyring = trusting(1, "github://acme/*");
    keyring.revoke(&key(1).public(), now(), Some("stolen")).unwrap();
    let (id, package) = (key(1).public().id(), Digest::sha256(b"package"));
    assert_eq!(keyring.keep(&id, &[package, package]).unwrap(), 1);
    assert_eq!(keyring.keep(&id, &[package]).unwrap(), 0);
    let entry = &keyring.entries()[0];
    assert!(entry.vouches_for(&package, now()) && !entry.vouches_for(&Digest::sha256(b"other"), now()));
    let good = keyring.to_text();
    assert_eq!(Keyring::parse("keyring.toml", &good).unwrap(), keyring, "{good}");
    let many: Vec<_> = (0..1_001_u32).map(|n| Digest::sha256(&n.to_le_bytes())).collect();
    assert!(keyring.clone().keep(&id, &many).unwrap_err().message().contains("more than 1000"));
    let line = good.lines().count();
    refused_at(&good.replace("sha256:", "md5:"), line, "is not a package's hash");
    refused_at(&good.replace("kept", "kepts"), line, "did you mean `kept`?");
    let succeeds = |key: u8, old: u8| {
        let (key, old) = (super::key(key).public(), super::key(old).public().id());
        format!("[[keys]]\nkey = \"{key}\"\nscopes = [\"hub://x/*\"]\nsuccessor_of = \"{old}\"\n")
    };
    refused_at(&succeeds(1, 1), 4, "would succeed itself");
    refused_at(&(succeeds(1, 2) + &succeeds(2, 1)), 8, "in a circle");
    refused_at(&(succeeds(1, 3) + &succeeds(2, 1) + &succeeds(3, 2)), 12, "in a circle");
    refused_at(&(succeeds(2, 1) + &succeeds(3, 1)), 8, "has a successor above already");
    refused_at(&succeeds(1, 2).replace("successor_of = \"", "successor_of = \"0"), 4, "is not a key's id");
    Keyring::parse("keyring.toml", &(succeeds(2, 1) + &succeeds(3, 2))).unwrap();
}

#[test]
fn damaged_imports_have_a_place_and_a_fix() {
    let (id, hash) = (key(1).public().id(), Digest::sha256(b"set"));
    let good = format!(
        "[[import]]\npublisher = \"github://acme/*\"\nsource = \"https://acme.example/keys \\\"x\\\".json\"\n\
         fingerprint = \"sha256:{hash}\"\nissued = 2026-05-01T00:00:00Z\nimported = 2026-06-01T00:00:00Z\n\
         keys = [\"{id}\"]\n"
    );
    let keyring = Keyring::parse("keyring.toml", &good).unwrap();
    assert_eq!(Keyring::parse("keyring.toml", &keyring.to_text()).unwrap(), keyring);
    assert_eq!(keyring.imports().next().unwrap().source(), "https://acme.example/keys \"x\".json");
    for (old, new, line, says) in [
        ("github://acme/*", "github://acme/slack", 2, "not all of one owner"),
        ("source = ", "sources = ", 3, "did you mean `source`?"),
        ("sha256:", "md5:", 4, "is not a fingerprint"),
        ("issued = 2026-05-01T00:00:00Z", "", 1, "add issued = "),
        ("2026-06-01T00:00:00Z", "2026-06-01", 6, "like 2027-01-31T00:00:00Z"),
        ("keys = [\"", "keys = [\"0", 7, "is not a key's id"),
    ] {
        refused_at(&good.replacen(old, new, 1), line, says);
    }
    refused_at(&format!("{good}{good}"), 9, "has an import above already");
}
