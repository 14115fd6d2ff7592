//! Envelopes: what is read, what is refused, and agreement with the reference implementation.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};
use cofferdam_core::digest::Digest;
use serde_json::{Value, json};

use super::{FOREIGN, key, name, now, signed, slack, statement, version};
use crate::trust::{Envelope, ReleaseStatement, sign};

fn wire() -> Value {
    serde_json::from_str(&signed(1).to_json()).unwrap()
}

fn parse(value: &Value) -> Result<Envelope, String> {
    Envelope::parse(value.to_string().as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn written_and_read_it_is_the_same() {
    let envelope = signed(1);
    assert_eq!(Envelope::parse(envelope.to_json().as_bytes()).unwrap(), envelope);
    let statement = envelope.unverified_statement().unwrap();
    assert_eq!(statement, super::statement());
    assert_eq!(statement.signed_at().to_string(), "2026-01-31T12:00:00Z");
    let wire = wire();
    assert_eq!(wire["payloadType"], "application/vnd.in-toto+json");
    assert_eq!(wire["signatures"][0]["keyid"], key(1).public().id().to_string());
    let payload = STANDARD.decode(wire["payload"].as_str().unwrap()).unwrap();
    let payload: Value = serde_json::from_slice(&payload).unwrap();
    let expected = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{
            "name": "github://acme/slack",
            "digest": {"sha256": "c0cd5ccfdb563a59366e33e73001b78fdb8cca5a6c48e2f90fffcde44b81f1f6"},
        }],
        "predicateType": "https://cofferdam.dev/connector-release/v1",
        "predicate": {"version": "1.2.0", "signedAt": "2026-01-31T12:00:00Z"},
    });
    assert_eq!(payload, expected);
}

#[test]
fn the_provenance_is_signed_with_the_statement() {
    let provenance = json!({
        "tools": [{"name": "cofferdam", "version": "0.1.0"}],
        "target": "wasm32-wasip2",
        "dependencies": [{"name": "serde", "version": "1.0.228", "source": "crates.io", "checksum": "sha256:00"}],
    });
    let statement = statement().with_provenance(Some(serde_json::from_value(provenance.clone()).unwrap()));
    let envelope = sign(&key(1), &statement);
    let payload: Value = serde_json::from_slice(&envelope.payload).unwrap();
    assert_eq!(payload["predicate"]["provenance"], provenance);
    assert_eq!(envelope.unverified_statement().unwrap(), statement);
    let with = |field: &str, value: Value| {
        let mut payload = payload.clone();
        payload["predicate"]["provenance"][field] = value;
        ReleaseStatement::parse(&serde_json::to_vec(&payload).unwrap())
    };
    assert_eq!(with("later", json!({"x": 1})).unwrap(), statement, "unknown fields are ignored");
    assert!(with("target", json!("a\u{1b}[2J")).unwrap_err().contains("its provenance is invalid: target"));
    assert!(with("tools", json!("rustc")).is_err());
}

#[test]
fn a_reference_implementation_envelope_is_read() {
    let envelope = Envelope::parse(FOREIGN).unwrap();
    assert_eq!(envelope.unverified_statement().unwrap(), statement());
    // Its key id is another hash than ours: a hint, which decides nothing.
    let id = key(0).public().id().to_string();
    assert!(!String::from_utf8_lossy(FOREIGN).contains(&id));
    assert!(envelope.signed_by(&key(0).public(), envelope.signatures().next().unwrap()));
}

#[test]
fn both_base64_alphabets_are_read_strictly() {
    let payload = STANDARD.decode(wire()["payload"].as_str().unwrap()).unwrap();
    let sig = STANDARD.decode(wire()["signatures"][0]["sig"].as_str().unwrap()).unwrap();
    for (payload, sig) in [
        (URL_SAFE.encode(&payload), URL_SAFE.encode(&sig)),
        (URL_SAFE_NO_PAD.encode(&payload), URL_SAFE_NO_PAD.encode(&sig)),
        (STANDARD.encode(&payload), URL_SAFE.encode(&sig)),
    ] {
        let mut wire = wire();
        wire["payload"] = payload.into();
        wire["signatures"][0]["sig"] = sig.into();
        assert_eq!(parse(&wire).unwrap(), signed(1));
    }
    let sig = STANDARD.encode(&sig);
    for loose in [
        format!("{sig}\r\n"),
        format!(" {sig}"),
        format!("{sig}="),
        format!("{sig}AAAA"),
        sig[..84].to_owned(),
        // The last character before the padding carries four bits that nothing uses.
        sig.replace("Q==", "R==").replace("g==", "h==").replace("w==", "x==").replace("A==", "B=="),
        "-_+/".to_owned() + &sig[4..],
        String::new(),
    ] {
        let mut wire = wire();
        wire["signatures"][0]["sig"] = loose.clone().into();
        assert!(parse(&wire).is_err(), "{loose:?}");
    }
}

#[test]
fn unknown_fields_are_ignored_and_errors_refused() {
    let mut extended = wire();
    extended["extra"] = json!({"a": [1]});
    extended["signatures"][0]["cert"] = json!("x");
    assert_eq!(parse(&extended).unwrap(), signed(1));
    let mut anonymous = wire();
    anonymous["signatures"][0].as_object_mut().unwrap().remove("keyid");
    assert!(parse(&anonymous).is_ok());

    let broken: [(&str, Value); 9] = [
        ("payloadType", json!("text/plain")),
        ("payloadType", json!("application/vnd.in-toto+json; a=b")),
        ("payloadType", json!(null)),
        ("payload", json!("not base64!")),
        ("payload", json!({"a": 1})),
        ("signatures", json!([])),
        ("signatures", json!([{"keyid": "x"}])),
        ("signatures", json!("x")),
        ("signatures", vec![wire()["signatures"][0].clone(); 17].into()),
    ];
    for (field, value) in broken {
        let mut wire = wire();
        wire[field] = value;
        assert!(parse(&wire).is_err(), "{wire}");
    }
    let good = signed(1).to_json();
    let deep = "[".repeat(50_000);
    for text in [
        String::new(),
        good[..good.len() - 3].to_owned(),
        format!("{good}x"),
        format!("\u{feff}{good}"),
        good.replace("{\"payload\"", "{\"payload\":\"AAAA\",\"payload\""),
        format!("{good}{}", " ".repeat(256 * 1024)),
        format!("{{\"x\":{deep}"),
    ] {
        let error = Envelope::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.len() < 400 && !error.contains('\n'), "{error}");
    }
    assert!(Envelope::parse(b"\xff\xfe").is_err());
}

#[test]
fn signatures_are_added_once_and_replace_bad_ones() {
    let mut envelope = signed(1);
    assert!(!envelope.add(&key(1)).unwrap());
    assert!(envelope.add(&key(2)).unwrap());
    assert!(!envelope.add(&key(2)).unwrap());
    assert_eq!(envelope.signature_count(), 2);

    let mut wire: Value = serde_json::from_str(&envelope.to_json()).unwrap();
    wire["signatures"][1]["sig"] = STANDARD.encode([1u8; 64]).into();
    let mut spoiled = parse(&wire).unwrap();
    assert!(spoiled.add(&key(2)).unwrap());
    assert_eq!(spoiled, envelope);

    for seed in 3..=16 {
        assert!(envelope.add(&key(seed)).unwrap());
    }
    assert!(envelope.add(&key(17)).is_err());
    assert_eq!(Envelope::parse(envelope.to_json().as_bytes()).unwrap(), envelope);
}

#[test]
fn signatures_of_other_algorithms_are_preserved() {
    // ECDSA in DER, RSA, ML-DSA, and nothing at all.
    for length in [71, 256, 3309, 0] {
        let mut wire = wire();
        let other = json!({"keyid": "another-kind", "sig": STANDARD.encode(vec![7; length])});
        wire["signatures"].as_array_mut().unwrap().insert(0, other);
        let mut envelope = parse(&wire).unwrap();
        assert_eq!((envelope.signature_count(), envelope.signatures().count()), (2, 1), "{length}");
        assert!(envelope.add(&key(2)).unwrap());
        let again: Value = serde_json::from_str(&envelope.to_json()).unwrap();
        assert_eq!(again["signatures"][0], wire["signatures"][0], "another's signature stays as it was");
        wire["signatures"].as_array_mut().unwrap().truncate(1);
        assert!(parse(&wire).unwrap_err().to_string().contains("ed25519"), "{length}");
    }
}

#[test]
fn payloads_that_are_not_statements_are_refused() {
    let good = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "github://acme/slack", "digest": {"sha256": Digest::sha256(b"x").to_string()}}],
        "predicateType": "https://cofferdam.dev/connector-release/v1",
        "predicate": {"version": "1.2.0", "signedAt": "2026-01-31T12:00:00Z"},
    });
    let mut extended = good.clone();
    extended["extra"] = json!(1);
    extended["subject"][0]["digest"]["sha512"] = json!("00");
    assert!(ReleaseStatement::parse(extended.to_string().as_bytes()).is_ok());
    let changes: [(&str, Value); 10] = [
        ("/_type", json!("https://in-toto.io/Statement/v0.1")),
        ("/predicateType", json!("https://slsa.dev/provenance/v1")),
        ("/subject", json!([])),
        ("/subject", json!([good["subject"][0], good["subject"][0]])),
        ("/subject/0/name", json!("GitHub://acme/slack")),
        ("/subject/0/digest", json!({"sha512": "00"})),
        ("/subject/0/digest/sha256", json!("sha256:".to_owned() + &Digest::sha256(b"x").to_string())),
        ("/predicate/version", json!("1")),
        ("/predicate/signedAt", json!("yesterday")),
        ("/predicate", json!({})),
    ];
    for (at, value) in changes {
        let mut changed = good.clone();
        *changed.pointer_mut(at).unwrap() = value;
        assert!(ReleaseStatement::parse(changed.to_string().as_bytes()).is_err(), "{changed}");
    }
    let twice = good.to_string().replace("\"version\":", "\"version\":\"9.9.9\",\"version\":");
    assert!(ReleaseStatement::parse(twice.as_bytes()).is_err());
    let other = ReleaseStatement::new(name("hub://a/b"), version("0.0.1-rc.1"), Digest::sha256(b""), now());
    assert_eq!(sign(&key(1), &other).unverified_statement().unwrap(), other);
    assert_ne!(other.name(), &slack());
}
