//! Arbitrary and mutated text against every parser of untrusted text, and arbitrary JSON against typed
//! operations: a value or an error of printable lines, never a panic.
//!
//! The seeds are fixed; a failure prints the smallest input that proptest finds.

use std::fs;

use cofferdam::{ConnectorRef, Error, HostErrorKind};
use cofferdam_egress::resilience::ResilienceSettings;
use cofferdam_model::action::{Action, TemplateValues};
use cofferdam_model::manifest::Manifest;
use cofferdam_model::package::{ConnectorDocs, Package, PackageSections, embed, extract, strip};
use cofferdam_model::trust::{Envelope, KeySet, KeySuccession, Keyring, PublicKey, SigningScope};
use cofferdam_test_support::{Cli, Home, InstallAccepted as _, Signer, package};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseResult, TestRunner};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope::{check_host_error, check_json};
use crate::shared_host::{example, run, shared_host};

/// Runs `test` on inputs of `strategy`, the same ones every time.
fn each<T: std::fmt::Debug>(cases: u32, strategy: impl Strategy<Value = T>, test: impl Fn(T)) {
    let config = ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x00c0_ffee),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&strategy, |input| {
        test(input);
        TestCaseResult::Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// `text` with pieces cut out, doubled, and replaced by what breaks parsers.
fn mutated(text: String) -> impl Strategy<Value = Vec<u8>> {
    const NASTY: [&str; 18] = [
        "\"",
        "'''",
        "[[",
        "{",
        "}",
        "\n",
        "\r",
        "\u{1b}[31m",
        "\u{202e}",
        "\0",
        "\u{feff}",
        "99999999999999999999",
        "-1",
        "\\uD800",
        "\\",
        "= =",
        "#",
        "1e999",
    ];
    let edit =
        (any::<prop::sample::Index>(), 0..12_usize, 0..5_u8, prop::sample::select(&NASTY[..]), any::<u8>());
    prop::collection::vec(edit, 1..5).prop_map(move |edits| {
        let mut bytes = text.clone().into_bytes();
        for (at, length, how, nasty, byte) in edits {
            let at = at.index(bytes.len() + 1);
            let end = (at + length).min(bytes.len());
            match how {
                0 => drop(bytes.drain(at..end)),
                1 => drop(bytes.splice(at..end, nasty.bytes())),
                2 => drop(bytes.splice(at..at, nasty.bytes())),
                3 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
            }
        }
        bytes
    })
}

/// Anything at all, or `text` after an accident.
fn anything_or(text: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let arbitrary = prop::collection::vec(any::<u8>(), 0..400);
    let printable = any::<String>().prop_map(String::into_bytes);
    prop_oneof![1 => arbitrary, 1 => printable, 6 => mutated(text.to_owned())]
}

/// One printable line a problem, and not a novel.
fn lines(error: &impl std::fmt::Display) {
    let text = error.to_string();
    for line in text.lines() {
        assert!(!line.is_empty() && line.chars().count() < 2_000, "{line:?}");
        crate::envelope::printable(&json!(line));
    }
    assert!(!text.is_empty() && text.lines().count() <= 50, "{text}");
}

const MANIFEST: &str = r#"
[connector]
name = "github://acme/slack"
version = "1.2.0"
description = "Posts to Slack"
publisher = "acme"
[connector.idempotency]
default = "idempotent"
[connector.idempotency.operations]
post_message = "not_idempotent"
[capabilities.network]
hosts = ["slack.com:443", "http://localhost:8080"]
[[capabilities.credential]]
kind = "api_key"
service = "slack"
hosts = ["slack.com:443"]
header = "Authorization"
format = "Bearer {key}"
[capabilities.runtime]
imports = ["wasi:http/outgoing-handler", "wasi:clocks/monotonic-clock"]
[limits]
memory = "64MiB"
wall_time = "30s"
fuel = 30_000_000_000
"#;

#[test]
fn arbitrary_manifests_do_not_panic() {
    Manifest::parse("connector.toml", MANIFEST).unwrap();
    each(3_000, anything_or(MANIFEST), |bytes| {
        let text = String::from_utf8_lossy(&bytes);
        match Manifest::parse("connector.toml", &text) {
            Ok(manifest) => drop(manifest.name().to_string()),
            Err(error) => {
                lines(&error);
                // The rendered error contains the document's own line, made printable.
                for line in error.render(false).lines() {
                    crate::envelope::printable(&json!(line));
                }
            }
        }
    });
}

#[test]
fn arbitrary_keyrings_scopes_and_keys_do_not_panic() {
    let (key, id) = (Signer::new().public().to_string(), "9f86d081884c7d65".repeat(4));
    let text = format!(
        "[[keys]]\nkey = \"{key}\"\nscopes = [\"github://acme/*\", \"hub://x/y\"]\ncomment = \"a\"\nadded = 2026-01-01T00:00:00Z\n\
         not_after = 2027-01-01T00:00:00Z\nreason = \"b\"\nsuccessor_of = \"{id}\"\nkept = [\"sha256:{id}\"]\n\n[[floor]]\n\
         name = \"github://acme/slack\"\nversion = \"1.0.0\"\n\n[[threshold]]\nscope = \"github://acme/*\"\nsignatures = 2\n\n\
         [[import]]\npublisher = \"github://acme/*\"\nsource = \"https://a.example/k\"\nfingerprint = \"sha256:{id}\"\n\
         issued = 2026-01-01T00:00:00Z\nimported = 2026-01-01T00:00:00Z\nkeys = [\"{id}\"]\n"
    );
    Keyring::parse("keyring.toml", &text).unwrap();
    each(2_000, anything_or(&text), |bytes| {
        let text = String::from_utf8_lossy(&bytes);
        match Keyring::parse("keyring.toml", &text) {
            // Serialization writes the parsed content.
            Ok(keyring) => assert_eq!(Keyring::parse("again", &keyring.to_text()).unwrap(), keyring),
            Err(error) => lines(&error),
        }
    });
    let set = format!(
        r#"{{"publisher": "github://acme/*", "issued": "2026-01-01T00:00:00Z", "validUntil": "2027-01-01T00:00:00Z",
        "keys": [{{"key": "{key}", "scopes": ["github://acme/*"], "notAfter": "2027-01-01T00:00:00Z"}}]}}"#
    );
    KeySet::parse(set.as_bytes()).unwrap();
    each(2_000, anything_or(&set), |bytes| {
        KeySet::parse(&bytes).err().iter().for_each(lines);
        KeySuccession::verify(&bytes, jiff::Timestamp::UNIX_EPOCH).err().iter().for_each(lines);
    });
    each(1_000, anything_or(&key), |bytes| {
        let text = String::from_utf8_lossy(&bytes);
        PublicKey::parse(&text).err().iter().for_each(lines);
        SigningScope::parse(&text).err().iter().for_each(lines);
        if let Err(error) = ConnectorRef::parse(&text) {
            check_host_error(&error);
        }
    });
}

#[test]
fn arbitrary_signatures_do_not_panic() {
    let bytes = package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"));
    let text = String::from_utf8(Signer::new().sign(&bytes)).unwrap();
    each(3_000, anything_or(&text), |bytes| match Envelope::parse(&bytes) {
        Ok(envelope) => {
            envelope.unverified_statement().err().iter().for_each(lines);
            assert_eq!(Envelope::parse(envelope.to_json().as_bytes()).unwrap(), envelope);
        }
        Err(error) => lines(&error),
    });
}

#[test]
fn arbitrary_sections_do_not_panic() {
    let quiet = package::quiet();
    let docs = r#"{"operations":{"run":{"doc":"Runs.","params":{"a":"b"}}}}"#;
    each(1_000, anything_or(docs), |docs| {
        use wasm_encoder::ComponentSection;
        let mut bytes = quiet.clone();
        for (name, data) in [("cofferdam:manifest", MANIFEST.as_bytes()), ("cofferdam:docs", &docs[..])] {
            wasm_encoder::CustomSection { name: name.into(), data: data.into() }
                .append_to_component(&mut bytes);
        }
        extract(&bytes).err().iter().for_each(lines);
        Package::open(bytes.clone()).err().iter().for_each(lines);
        strip(&bytes).err().iter().for_each(lines);
    });
    each(1_000, anything_or(MANIFEST), |manifest| {
        let Ok(manifest) = String::from_utf8(manifest) else { return };
        let packed = embed(&quiet, &manifest, &ConnectorDocs::default()).unwrap();
        let PackageSections { manifest: read, .. } = extract(&packed).unwrap();
        assert_eq!(read, manifest);
        assert_eq!(strip(&packed).unwrap(), quiet);
        if let Err(error) = Package::open(packed) {
            check_host_error(&error.into());
        }
    });
}

#[test]
fn arbitrary_registry_files_do_not_panic() {
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://acme/*");
    let bytes = package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"));
    let host = home.host();
    for file in ["index.json", "highest.json"] {
        run(home.install(&bytes, &signer)).unwrap();
        let path = home.path().join("packages").join(file);
        if file == "highest.json" {
            host.remove(&cofferdam_test_support::connector("github://acme/quiet@1.0.0")).unwrap();
        }
        let good = fs::read_to_string(&path).unwrap();
        each(300, anything_or(&good), |text| {
            fs::write(&path, text).unwrap();
            if let Err(error) = host.list() {
                check_host_error(&error);
            }
            if file == "highest.json" {
                let refused =
                    run(host.install_accepted(bytes.clone(), None, cofferdam::InstallOptions::default()));
                assert!(refused.is_err());
            }
        });
        host.rebuild_index().unwrap();
        fs::write(&path, good).unwrap();
    }
}

#[test]
fn arbitrary_settings_do_not_panic() {
    let home = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, home.path());
    let text = "[network]\nallow_private = [\"localhost:8080\"]\nextra_roots = [\"ca.pem\"]\n";
    each(60, anything_or(text), |bytes| {
        fs::write(home.path().join("config.toml"), bytes).unwrap();
        let ran = cli.run(&["list"]);
        assert!(matches!(ran.code, Some(0 | 64 | 65 | 66)), "{ran:?}");
        ran.stderr.lines().for_each(|line| crate::envelope::printable(&json!(line)));
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    });
}

#[test]
fn arbitrary_action_files_do_not_panic() {
    let page =
        fs::read_to_string(cofferdam_test_support::package::repository().join("docs/guides/actions.md"))
            .unwrap();
    let text = page.split("````").nth(1).unwrap().trim_start_matches("markdown\n").to_owned();
    let action = Action::parse("ship-update.md", text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((action.name(), action.steps().len()), ("ship-update", 2));
    each(2_000, anything_or(&text), |bytes| match Action::parse("ship-update.md", &bytes) {
        Ok(action) => {
            let args = action.arguments(&json!({"number": 1, "channel": null}));
            if let Ok(args) = args {
                let values = TemplateValues { args: &args, steps: &[] };
                for step in action.steps() {
                    drop(step.target().render(&values));
                }
            }
        }
        Err(error) => {
            assert!(!error.problems().is_empty());
            for text in [error.to_string(), error.render(false)] {
                assert_eq!(text.chars().find(|c| c.is_control() && *c != '\n'), None, "{text:?}");
            }
        }
    });
}

#[test]
fn arbitrary_retry_settings_do_not_panic() {
    let text = "[retry]\nprofile = \"own\"\nconnectors = { \"github://acme/slack\" = \"none\" }\n\
                [retry.profiles.own]\nretryable = true\nmax_attempts = 5\nwall_time = \"2m\"\n\
                backoff = { kind = \"linear\", base = \"1s\", cap = \"60s\" }\n\
                jitter = { kind = \"both\", ratio = 0.2 }\n\
                classifier = { retry_on = [\"network_error\", \"rate_limited\"] }\n\
                [breaker]\npolicy = \"windowed\"\n[rate_limit]\nrequests = 30\nper = \"60s\"\n";
    assert!(ResilienceSettings::parse("config.toml", text).is_ok());
    each(2_000, anything_or(text), |bytes| {
        match ResilienceSettings::parse("config.toml", &String::from_utf8_lossy(&bytes)) {
            Ok(settings) => {
                let names: Vec<_> = settings.profile_names().collect();
                let most = names.iter().filter_map(|name| settings.profile(name)).map(|it| it.max_attempts());
                assert!(most.max() <= Some(100));
            }
            Err(error) => {
                assert!(!error.problems().is_empty());
                error.to_string().lines().for_each(|line| crate::envelope::printable(&json!(line)));
            }
        }
    });
}

/// Any JSON of a few levels; the numbers and names are the ones that go wrong.
fn any_json() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        Just("value".to_owned()),
        prop::sample::select(vec!["truth", "circle", "some", "ok", "err", "full_name", "__proto__", ""])
            .prop_map(str::to_owned),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "NaN",
            "-Infinity",
            "18446744073709551616",
            "read",
            "\u{1b}[31m",
            "AAE",
            "empty"
        ])
        .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Arguments that fit, of each operation of the guest with the most shapes.
fn fitting() -> Vec<(&'static str, Value)> {
    vec![
        ("greet", json!({"name": "Ada", "tone": "warm"})),
        (
            "echo_scalars",
            json!({"value": {"truth": true, "small": 1, "short": -1, "big": "18446744073709551615", "low": -5,
                             "fraction": "NaN", "letter": "x", "text": "t"}}),
        ),
        ("areas", json!({"shapes": ["empty", {"circle": 1.5}, {"rectangle": [1.0, 2.0]}]})),
        ("common_rights", json!({"one": ["read", "write"], "other": ["read"]})),
        (
            "by_age",
            json!({"people": [{"full_name": "A", "age": 3, "address": {"some": null}, "nick_names": ["a"]}]}),
        ),
        ("reverse", json!({"bytes": "AAEC"})),
        ("parse_all", json!({"texts": ["1", "x"]})),
        ("divide", json!({"dividend": 7, "divisor": 2})),
        ("nothing", json!({})),
    ]
}

/// Puts `value` at one place inside `args`.
fn replaced(args: &mut Value, place: &prop::sample::Index, value: Value) {
    let mut places = Vec::new();
    fn walk(value: &Value, path: String, places: &mut Vec<String>) {
        places.push(path.clone());
        match value {
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(at, item)| walk(item, format!("{path}/{at}"), places));
            }
            Value::Object(fields) => {
                fields.iter().for_each(|(key, item)| {
                    walk(item, format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), places)
                });
            }
            _ => {}
        }
    }
    walk(args, String::new(), &mut places);
    *args.pointer_mut(&places[place.index(places.len())]).unwrap() = value;
}

#[test]
fn arbitrary_call_arguments_do_not_panic() {
    let world = shared_host();
    let fitting = fitting();
    for (operation, args) in &fitting {
        world.value("hello", operation, args.clone());
    }
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any_json()), 1..3);
    each(600, (prop::sample::select(fitting), edits), |((operation, mut args), edits)| {
        for (place, value) in &edits {
            replaced(&mut args, place, value.clone());
        }
        match run(world.host.call(&example("hello"), operation, args)) {
            Ok(value) => drop(value.to_string()),
            Err(Error::Host(error)) => {
                check_host_error(&error);
                assert_eq!(error.kind(), HostErrorKind::Validation, "{error}");
                lines(&error);
            }
            Err(Error::Failure(failure)) => check_json(&serde_json::to_value(&failure).unwrap()),
        }
    });
}
