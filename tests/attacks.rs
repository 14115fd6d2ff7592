//! Attacks on packages, signatures and the package directory, one row each: the verdict, and an untouched disk.

mod flips;
mod names;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

use cofferdam::{Error, InstallOptions};
use cofferdam_core::digest::Digest;
use cofferdam_model::manifest::ConnectorName;
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, connector, package};
use semver::Version;
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope::{check, check_host_error, signature};
use crate::shared_host::{failed, refused, run};

const NAME: &str = "github://acme/quiet";

fn quiet(name: &str, version: &str) -> Vec<u8> {
    package::pack(&package::quiet(), &package::manifest(name, version))
}

/// A custom section as written by a foreign tool.
fn section(name: &str, content: &str) -> Vec<u8> {
    use wasm_encoder::ComponentSection;
    let mut bytes = Vec::new();
    let data = content.as_bytes().into();
    wasm_encoder::CustomSection { name: name.into(), data }.append_to_component(&mut bytes);
    bytes
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

/// An index with the given contents and a correct checksum: an attacker can compute one.
fn index(packages: &[(&str, &str)]) -> String {
    let active: BTreeMap<_, _> = packages
        .iter()
        .filter_map(|(key, _)| key.rsplit_once('@'))
        .map(|(name, version)| (name, BTreeMap::from([("version", version)])))
        .collect();
    let packages: BTreeMap<_, _> =
        packages.iter().map(|(key, hash)| (*key, BTreeMap::from([("sha256", *hash)]))).collect();
    let check = Digest::sha256(&serde_json::to_vec(&(&packages, &active)).unwrap()).to_string();
    json!({"version": 2, "packages": packages, "active": active, "check": check}).to_string()
}

#[test]
fn an_edited_index_cannot_select_another_package() {
    let it = installed();
    let other = quiet("github://acme/other", "3.0.0");
    run(it.home.install(&other, &it.signer)).unwrap();
    let [quiet, other] = [&it.bytes, &other].map(|bytes| Digest::sha256(bytes).to_string());
    let path = it.packages().join("index.json");
    let key = format!("{NAME}@1.0.0");
    // The index entry, and the failure's code; none if the host refuses the call before it starts.
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
    // The other version is installed, and its manifest names another version.
    fs::write(&path, index(&[(&format!("{NAME}@9.0.0"), &quiet)])).unwrap();
    let newer = run(it.home.host().call(&connector(&format!("{NAME}@9.0.0")), "run", json!({})));
    check(&failed(newer), signature("identity_mismatch"));
}

#[test]
fn symlinks_in_the_package_directory_are_not_followed() {
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
fn signer_subject_and_digest_must_all_match() {
    let home = Home::new(COFFERDAM);
    let (acme, evil) = (Signer::new(), Signer::new());
    home.trust(&acme.public(), "github://acme/*");
    home.trust(&evil.public(), "github://evil/*");
    let bytes = quiet(NAME, "1.0.0");
    let digest = Digest::sha256(&bytes);
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
        ("of other bytes", state(&acme, of(NAME, 1, Digest::sha256(b"x"))), "identity_mismatch"),
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
        let outcome =
            run(home.host().install_accepted(bytes.clone(), Some(envelope), InstallOptions::default()));
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
fn reordered_sections_fail_the_signature() {
    let it = installed();
    let text = package::manifest(NAME, "2.0.0");
    let (manifest, docs) =
        (section("cofferdam:manifest", &text), section("cofferdam:docs", "{\"operations\":{}}"));
    let quiet = package::quiet();
    let signed = it.signer.sign(&package::pack(&quiet, &text));
    let before = it.home.snapshot();
    let swapped = [&quiet[..], &docs, &manifest].concat();
    let wider = section("cofferdam:manifest", &package::with_hosts(&text, &["evil.example:443".into()]));
    let in_front = [&quiet[..8], &wider, &quiet[8..], &manifest, &docs].concat();
    let unknown =
        [&quiet[..], &manifest, &docs, &section("cofferdam:manifest2", "x"), &section("cofferdam", "y")]
            .concat();
    let inner = [b"\0asm\x0d\0\x01\0", &wider[..]].concat();
    let mut nested = wasm_encoder::Component::new();
    nested.section(&wasm_encoder::RawSection { id: 4, data: &inner });
    let nested = [&quiet[..], &nested.finish()[8..], &manifest, &docs].concat();
    // The signature is about other bytes, which is detected before any of these is parsed.
    for (what, bytes) in [
        ("swapped", swapped.clone()),
        ("a second manifest in front", in_front),
        ("a manifest in a nested component", nested),
        ("unknown sections of ours", unknown),
    ] {
        match run(it.home.host().install_accepted(bytes, Some(signed.clone()), InstallOptions::default())) {
            Err(Error::Failure(failure)) => check(&failure, signature("identity_mismatch")),
            outcome => panic!("{what}: {outcome:?}"),
        }
        assert_eq!(it.home.snapshot(), before, "{what}");
    }
    // Signed as it is, the order of sections does not matter.
    run(it.home.install(&swapped, &it.signer)).unwrap();
}
