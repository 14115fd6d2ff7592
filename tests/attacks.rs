//! Attacks on packages, signatures and the package directory, one row each: the verdict, and an untouched disk.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use cofferdam::digest::Digest;
use cofferdam::manifest::ConnectorName;
use cofferdam::trust::{KeyStatus, Keyring};
use cofferdam::{Boundary, Error, FailureClass, HostErrorKind, InstallOptions};
use cofferdam_test_support::{Cli, Home, Signer, connector, package};
use semver::Version;
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope::{Expected, check, check_host_error, check_json, signature};
use crate::world::{failed, refused, run};

const NAME: &str = "github://acme/quiet";

const MISMATCH: Expected = Expected {
    class: FailureClass::HashMismatch,
    boundary: Boundary::Runtime,
    retriable: false,
    code: "hash",
};

fn quiet(name: &str, version: &str) -> Vec<u8> {
    package::pack(&package::quiet(), &package::manifest(name, version))
}

/// A home in which `bytes` are installed.
struct Installed {
    home: Home,
    signer: Signer,
    bytes: Vec<u8>,
}

fn installed() -> Installed {
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://acme/*");
    let bytes = quiet(NAME, "1.0.0");
    run(home.install(&bytes, &signer)).unwrap();
    Installed { home, signer, bytes }
}

impl Installed {
    fn call(&self, host: &cofferdam::Host) -> Result<Value, Error> {
        run(host.call(&connector(&format!("{NAME}@1.0.0")), "run", json!({})))
    }

    fn packages(&self) -> std::path::PathBuf {
        self.home.path().join("packages")
    }

    fn file(&self) -> std::path::PathBuf {
        self.home.installed_file(&self.bytes)
    }
}

/// `path` with each byte flipped in turn, one bit of it, and put right again at the end.
fn each_flip(path: &Path, mut look: impl FnMut(usize, &[u8])) {
    let good = fs::read(path).unwrap();
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(path, &bytes).unwrap();
        look(at, &bytes);
    }
    fs::write(path, good).unwrap();
}

#[test]
fn p11_every_flipped_byte_of_an_installed_package_is_a_hash_mismatch() {
    let it = installed();
    let host = it.home.host();
    each_flip(&it.file(), |at, _| {
        let failure = failed(it.call(&host));
        assert_eq!(failure.class(), FailureClass::HashMismatch, "byte {at}: {failure}");
        check(&failure, MISMATCH);
    });
    it.call(&host).unwrap();
}

#[test]
fn p11_every_flipped_byte_of_a_package_is_refused_at_install() {
    let it = installed();
    let (bytes, host) = (quiet(NAME, "2.0.0"), it.home.host());
    let signed = it.signer.sign(&bytes);
    let before = it.home.snapshot();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        match run(host.install(flipped, Some(signed.clone()), InstallOptions::default())) {
            Err(Error::Host(error)) => check_host_error(&error),
            Err(Error::Failure(failure)) => {
                check_json(&serde_json::to_value(&failure).unwrap());
                assert_eq!(failure.class(), FailureClass::SignatureFailure, "byte {at}: {failure}");
            }
            Ok(installed) => panic!("byte {at}: {installed:?}"),
        }
    }
    assert_eq!(it.home.snapshot(), before);
}

#[test]
fn p11_a_flipped_byte_of_a_signature_is_refused_or_says_the_same() {
    let it = installed();
    let host = it.home.host();
    let good: Value = serde_json::from_slice(&it.signer.sign(&it.bytes)).unwrap();
    let mut harmless = 0;
    each_flip(&it.file().with_file_name("signature.dsse.json"), |at, bytes| match it.call(&host) {
        Err(Error::Failure(failure)) => {
            check_json(&serde_json::to_value(&failure).unwrap());
            assert_eq!(failure.class(), FailureClass::SignatureFailure, "byte {at}: {failure}");
        }
        // Key ids are hints, and white space is none of the content: the payload has to be what it was.
        Ok(_) => {
            harmless += 1;
            let read: Value = serde_json::from_slice(bytes).unwrap();
            let payload = |value: &Value| value["payload"].as_str().unwrap().trim_end_matches('=').len();
            assert_eq!(payload(&read), payload(&good), "byte {at}");
        }
        Err(Error::Host(error)) => panic!("byte {at}: {error}"),
    });
    assert!(harmless < 120, "{harmless} flips are of no consequence");
    it.call(&host).unwrap();
}

#[test]
fn p11_no_flipped_bit_of_the_keyring_makes_a_stranger_trusted_or_a_revoked_key_good() {
    let it = installed();
    let stranger = Signer::new();
    it.home.trust(&stranger.public(), "github://elsewhere/*");
    it.home.revoke(&it.signer.public());
    let text = fs::read_to_string(it.home.path().join("keyring.toml")).unwrap();
    let (name, now) = (ConnectorName::parse(NAME).unwrap(), jiff::Timestamp::now());
    let mut read = 0;
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let Ok(keyring) = Keyring::parse("keyring.toml", &text) else { continue };
            read += 1;
            let good = keyring.entries().iter().filter(|entry| {
                let theirs = [it.signer.public(), stranger.public()].contains(entry.key());
                theirs && entry.status(now) == KeyStatus::Trusted && entry.covers(&name)
            });
            assert_eq!(good.count(), 0, "bit {bit} of byte {at}:\n{text}");
        }
    }
    assert!(read > 100, "only {read} flipped keyrings could be read");
}

/// An index that says what it is made to say, with the right checksum: whoever edits it can compute one.
fn index(packages: &[(&str, &str)]) -> String {
    let packages: BTreeMap<_, _> =
        packages.iter().map(|(key, hash)| (*key, BTreeMap::from([("sha256", *hash)]))).collect();
    let check = Digest::of(&serde_json::to_vec(&packages).unwrap()).to_string();
    json!({"version": 1, "packages": packages, "check": check}).to_string()
}

#[test]
fn an_index_edited_with_a_right_checksum_runs_nothing_else() {
    let it = installed();
    let other = quiet("github://acme/other", "3.0.0");
    run(it.home.install(&other, &it.signer)).unwrap();
    let [quiet, other] = [&it.bytes, &other].map(|bytes| Digest::of(bytes).to_string());
    let path = it.packages().join("index.json");
    let key = format!("{NAME}@1.0.0");
    // What it says, and the failure's code, or none where the host cannot take the call up.
    let rows = [
        ("another package", index(&[(&key, &other)]), Some("identity_mismatch")),
        (
            "another version",
            index(&[(&key, &other), (&format!("{NAME}@9.0.0"), &quiet)]),
            Some("identity_mismatch"),
        ),
        ("a package that is not there", index(&[(&key, &"0".repeat(64))]), None),
        ("a path for a hash", index(&[(&key, "../../../../../../etc/passwd")]), None),
        ("a path in a name", index(&[("github://acme/../../x@1.0.0", &quiet)]), None),
        ("an absolute path", index(&[(&key, "/etc/passwd")]), None),
        ("a name of another script", index(&[("github://аcme/quiet@1.0.0", &quiet)]), None),
        ("escapes in a name", index(&[("github://acme/\u{1b}[31mquiet\u{202e}@1.0.0", &quiet)]), None),
        ("an upper-case hash", index(&[(&key, &quiet.to_uppercase())]), None),
        (
            "the same entry twice",
            index(&[(&key, &quiet)]).replacen(
                "{\"sha256\"",
                &format!("{{\"sha256\":\"{other}\"}},\"{key}\":{{\"sha256\""),
                1,
            ),
            Some("harmless"),
        ),
        ("unknown fields", index(&[(&key, &quiet)]).replacen("{\"", "{\"latest\":true,\"", 1), None),
        ("nothing", index(&[]), None),
        ("deep nesting", "[".repeat(200_000), None),
    ];
    for (what, text, code) in rows {
        fs::write(&path, text).unwrap();
        let before = it.home.snapshot();
        let outcome = it.call(&it.home.host());
        match (code, outcome) {
            (Some(code), Err(Error::Failure(failure))) => check(&failure, signature(code)),
            (None, Err(Error::Host(error))) => check_host_error(&error),
            // The last one counts, and it is what the checksum is about.
            (Some("harmless"), Ok(_)) => {}
            (_, outcome) => panic!("{what}: {outcome:?}"),
        }
        assert_eq!(it.home.snapshot(), before, "{what}");
    }
    // The other version is there, and says itself that it is another.
    fs::write(&path, index(&[(&format!("{NAME}@9.0.0"), &quiet)])).unwrap();
    let newer = run(it.home.host().call(&connector(&format!("{NAME}@9.0.0")), "run", json!({})));
    check(&failed(newer), signature("identity_mismatch"));
}

#[test]
fn row_68_a_symbolic_link_anywhere_in_the_package_directory_is_not_followed() {
    let it = installed();
    let elsewhere = tempfile::tempdir().unwrap();
    let directory = it.file().parent().unwrap().to_owned();
    for (what, path) in [
        ("the package", it.file()),
        ("the signature", it.file().with_file_name("signature.dsse.json")),
        ("the package's directory", directory),
        ("the store", it.packages().join("sha256")),
        ("the index", it.packages().join("index.json")),
    ] {
        let target = elsewhere.path().join("moved");
        fs::rename(&path, &target).unwrap();
        symlink(&target, &path).unwrap();
        let before = it.home.snapshot();
        let error = refused(it.call(&it.home.host()));
        check_host_error(&error);
        assert!(
            error.to_string().contains("symbolic link")
                || what == "the package's directory"
                || what == "the store",
            "{what}: {error}"
        );
        let newer = quiet(NAME, "1.0.0");
        let outcome = run(it.home.install(&newer, &it.signer));
        assert!(matches!(outcome, Err(Error::Host(_))), "{what}: {outcome:?}");
        assert_eq!(it.home.snapshot(), before, "{what}");
        fs::remove_file(&path).unwrap();
        fs::rename(&target, &path).unwrap();
        it.call(&it.home.host()).unwrap();
    }
    // Links where writers write: they are never written through.
    let victim = elsewhere.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), "precious").unwrap();
    symlink(&victim, it.packages().join("tmp")).ok();
    fs::remove_dir_all(it.packages().join("tmp")).ok();
    symlink(&victim, it.packages().join("tmp")).ok();
    run(it.home.install(&quiet(NAME, "1.1.0"), &it.signer)).unwrap();
    fs::remove_file(it.packages().join(".lock")).unwrap();
    symlink(victim.join("file"), it.packages().join(".lock")).unwrap();
    assert!(run(it.home.install(&quiet(NAME, "1.2.0"), &it.signer)).is_err());
    assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "precious");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
}

#[test]
fn rows_70_71_a_name_is_what_it_looks_like_and_no_path() {
    let it = installed();
    let host = it.home.host();
    let before = it.home.snapshot();
    for name in [
        "github://acme/../../../tmp/x",
        "github://acme/..",
        "github://acme/%2e%2e",
        "github://acme/a\\\\b",
        "github://acme/a\\u0000b",
        "/etc/passwd",
        "github:///x",
        "github://acme//x",
        "github://Acme/quiet",
        "github://аcme/quiet",
        "github://acme/qui\u{200b}et",
        "github://acme/\u{202e}teiuq",
        "github://acme/ｑuiet",
        "github://acme/\\u001b[31mquiet",
        "github://acme/quiet@1.0.0",
        &format!("github://acme/{}", "a".repeat(4_096)),
    ] {
        let bytes = package::pack(&package::quiet(), &package::manifest(name, "1.0.0"));
        let error = refused(run(host.install(bytes, None, InstallOptions::default().allow_unsigned())));
        check_host_error(&error);
        assert_eq!(error.kind(), HostErrorKind::Validation, "{name}: {error}");
        let text = format!("{error} {}", error.hint_text().unwrap_or_default());
        assert!(text.contains("connector.toml:2") && text.len() < 1_000, "{name}: {text}");
        // As an argument it is no name either.
        let cli = Cli::new(COFFERDAM, it.home.path());
        if !name.contains(['\\', '@']) {
            let ran = cli.run(&["call", name, "run"]);
            assert!([65, 66].contains(&ran.code.unwrap()), "{name}: {ran:?}");
            assert!(!hostile(&ran.stderr), "{name}: {:?}", ran.stderr);
        }
    }
    assert_eq!(it.home.snapshot(), before);
}

/// What a terminal would act on, or an eye be misled by.
fn hostile(text: &str) -> bool {
    text.chars().any(|c| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
    })
}

#[test]
fn rows_21_22_156_what_a_package_says_about_itself_is_shown_safely() {
    let home = Home::new(COFFERDAM);
    let nasty = "\u{1b}]0;owned\u{7}\u{202e}gnp.exe\u{200b}\u{e0041}\n[ok] signature trusted\r";
    let names = {
        // A name section: module name and function name.
        let text = nasty.as_bytes();
        let length = u8::try_from(text.len()).unwrap();
        [&[0, length + 1, length][..], text, &[1, length + 3, 1, 0, length], text].concat()
    };
    let escaped: String = names.iter().map(|byte| format!("\\{byte:02x}")).collect();
    let component = package::component(&format!(
        r#"(core module $m (memory (export "memory") 1)
             (func (export "run") (result i32) unreachable)
             (@custom "name" "{escaped}"))"#
    ));
    let manifest = package::manifest("local://acme/odd", "1.0.0");
    let docs =
        json!({"operations": {"run": {"summary": nasty, "description": nasty, "text": nasty, nasty: nasty}}});
    let section = |name: &str, content: &str| {
        use wasm_encoder::ComponentSection;
        let mut bytes = Vec::new();
        let data = content.as_bytes().into();
        wasm_encoder::CustomSection { name: name.into(), data }.append_to_component(&mut bytes);
        bytes
    };
    let strange = |docs: &str| {
        [
            &component[..],
            &section("cofferdam:manifest", &manifest),
            &section("cofferdam:docs", docs),
            &section(nasty, nasty),
        ]
        .concat()
    };
    let cli = Cli::new(COFFERDAM, home.path());
    let file = home.path().join("odd.wasm");
    let odd_docs = [
        "{\"operations\":{}}".to_owned(),
        docs.to_string(),
        format!("{{\"{nasty}\": 1}}"),
        json!([nasty]).to_string(),
    ];
    for docs in odd_docs.iter().chain(&[json!({"operations": {"run": nasty}}).to_string()]) {
        fs::write(&file, strange(docs)).unwrap();
        for args in [
            &["inspect", "odd.wasm"][..],
            &["inspect", "odd.wasm", "--format", "json"],
            &["install", "odd.wasm", "--allow-unsigned"],
            &["list"],
            &["inspect", "local://acme/odd@1.0.0"],
            &["call", "local://acme/odd@1.0.0", "run", "--allow-unsigned"],
            &["remove", "local://acme/odd@1.0.0"],
        ] {
            let ran = cli.run(args);
            assert!(!hostile(&ran.stdout), "{args:?}: {:?}", ran.stdout);
            assert!(!hostile(&ran.stderr), "{args:?}: {:?}", ran.stderr);
            assert!(!format!("{ran:?}").contains("panicked"), "{ran:?}");
        }
    }
    // A description is one readable line, or the manifest is refused.
    let text = manifest + &format!("description = {}\n", json!(nasty)).replace("\\u", "\\u");
    fs::write(&file, package::pack(&component, &text)).unwrap();
    let ran = cli.run(&["inspect", "odd.wasm"]);
    assert!(ran.code != Some(0) && !hostile(&ran.stderr), "{ran:?}");
    // So is a file's name, and a key id.
    let name = "\u{1b}[31m\u{202e}x.wasm";
    fs::write(home.path().join(name), b"junk").unwrap();
    assert!(!hostile(&cli.run(&["inspect", name]).fails(65).stderr));
}

#[test]
fn rows_57_to_60_62_whose_signature_of_what_decides() {
    let home = Home::new(COFFERDAM);
    let (acme, evil) = (Signer::new(), Signer::new());
    home.trust(&acme.public(), "github://acme/*");
    home.trust(&evil.public(), "github://evil/*");
    let bytes = quiet(NAME, "1.0.0");
    let digest = Digest::of(&bytes);
    let of = |name: &str, version: u64, digest| {
        (ConnectorName::parse(name).unwrap(), Version::new(version, 0, 0), digest)
    };
    let state = |signer: &Signer, (name, version, digest): (ConnectorName, Version, Digest)| {
        signer.state(&name, &version, &digest)
    };
    let edited = |change: &dyn Fn(&mut Value)| {
        let mut envelope: Value = serde_json::from_slice(&acme.sign(&bytes)).unwrap();
        change(&mut envelope);
        envelope.to_string().into_bytes()
    };
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("another owner's key", evil.sign(&bytes), "key_scope"),
        ("of another name", state(&acme, of("github://acme/loud", 1, digest)), "identity_mismatch"),
        ("of a name of the attacker's", state(&evil, of("github://evil/quiet", 1, digest)), "key_scope"),
        ("of another version", state(&acme, of(NAME, 2, digest)), "identity_mismatch"),
        ("of other bytes", state(&acme, of(NAME, 1, Digest::of(b"x"))), "identity_mismatch"),
        ("no algorithm", edited(&|it| it["signatures"][0]["alg"] = "none".into()), ""),
        (
            "another payload type",
            edited(&|it| it["payloadType"] = "text/plain".into()),
            "malformed_signature",
        ),
        ("no signatures", edited(&|it| it["signatures"] = json!([])), "malformed_signature"),
        ("an empty signature", edited(&|it| it["signatures"][0]["sig"] = "".into()), "malformed_signature"),
        ("zeros", edited(&|it| it["signatures"][0]["sig"] = ("A".repeat(86) + "==").into()), "bad_signature"),
        (
            "somebody else's key id",
            edited(&|it| it["signatures"][0]["keyid"] = evil.public().id().to_string().into()),
            "",
        ),
        (
            "a key of the envelope's own",
            edited(&|it| {
                it["signatures"][0]["keyid"] = "x".into();
                it["signatures"][0]["sig"] = ("A".repeat(86) + "==").into();
                it["publicKey"] = evil.public().to_string().into();
            }),
            "unknown_key",
        ),
        (
            "a field twice",
            String::from_utf8(acme.sign(&bytes))
                .unwrap()
                .replacen('{', "{\"payload\":\"e30=\",", 1)
                .into_bytes(),
            "malformed_signature",
        ),
        ("something after it", [acme.sign(&bytes), b"{}".to_vec()].concat(), "malformed_signature"),
        (
            "17 signatures",
            edited(&|it| it["signatures"] = vec![it["signatures"][0].clone(); 17].into()),
            "malformed_signature",
        ),
        ("deep nesting", "[".repeat(60_000).into_bytes(), "malformed_signature"),
        ("a megabyte", vec![b' '; 1_000_000], "malformed_signature"),
    ];
    for (what, envelope, code) in rows {
        let before = home.snapshot().without("host.key").without("cache");
        let outcome = run(home.host().install(bytes.clone(), Some(envelope), InstallOptions::default()));
        if code.is_empty() {
            // No algorithm is negotiable and key ids are hints: such fields change nothing.
            outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
            home.host().remove(&connector(&format!("{NAME}@1.0.0"))).unwrap();
            continue;
        }
        let Err(Error::Failure(failure)) = outcome else { panic!("{what}: {outcome:?}") };
        assert_eq!(failure.code(), code, "{what}: {failure}");
        check(&failure, signature(code));
        assert_eq!(home.snapshot().without("host.key").without("cache"), before, "{what}");
    }
}

#[test]
fn sections_in_another_order_or_out_of_place_are_another_package() {
    let it = installed();
    let one = |name: &str, content: &str| {
        use wasm_encoder::ComponentSection;
        let mut bytes = Vec::new();
        let data = content.as_bytes().into();
        wasm_encoder::CustomSection { name: name.into(), data }.append_to_component(&mut bytes);
        bytes
    };
    let text = package::manifest(NAME, "2.0.0");
    let (manifest, docs) = (one("cofferdam:manifest", &text), one("cofferdam:docs", "{\"operations\":{}}"));
    let quiet = package::quiet();
    let signed = it.signer.sign(&package::pack(&quiet, &text));
    let before = it.home.snapshot();
    let swapped = [&quiet[..], &docs, &manifest].concat();
    let wider = one("cofferdam:manifest", &package::with_hosts(&text, &["evil.example:443".into()]));
    let in_front = [&quiet[..8], &wider, &quiet[8..], &manifest, &docs].concat();
    let unknown =
        [&quiet[..], &manifest, &docs, &one("cofferdam:manifest2", "x"), &one("cofferdam", "y")].concat();
    let inner = [b"\0asm\x0d\0\x01\0", &wider[..]].concat();
    let mut nested = wasm_encoder::Component::new();
    nested.section(&wasm_encoder::RawSection { id: 4, data: &inner });
    let nested = [&quiet[..], &nested.finish()[8..], &manifest, &docs].concat();
    for (what, bytes, code) in [
        ("swapped", swapped.clone(), Some("identity_mismatch")),
        ("a second manifest in front", in_front, None),
        ("a manifest in a nested component", nested, None),
        ("unknown sections of ours", unknown, Some("identity_mismatch")),
    ] {
        match (run(it.home.host().install(bytes, Some(signed.clone()), InstallOptions::default())), code) {
            (Err(Error::Failure(failure)), Some(code)) => check(&failure, signature(code)),
            (Err(Error::Host(error)), None) => check_host_error(&error),
            (outcome, _) => panic!("{what}: {outcome:?}"),
        }
        assert_eq!(it.home.snapshot(), before, "{what}");
    }
    // Signed as it is, the order of sections is nobody's concern.
    run(it.home.install(&swapped, &it.signer)).unwrap();
}
