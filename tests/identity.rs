//! Nothing runs unverified: calls after the package, its signature or its signer changed.

use std::fs;
use std::path::Path;

use cofferdam::{Call, ConnectorRef, Error, Failure, FailureBoundary, FailureClass, Host, InstallOptions};
use cofferdam_core::digest::Digest;
use cofferdam_model::manifest::ConnectorName;
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, connector, package};
use semver::Version;
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope::{Expected, check, check_host_error, signature};
use crate::shared_host::{failed, refused, run};

const MISMATCH: Expected = Expected {
    class: FailureClass::HashMismatch,
    boundary: FailureBoundary::Runtime,
    retriable: false,
    code: "hash",
};

/// A home in which one connector is installed.
struct Installed {
    home: Home,
    signer: Signer,
    bytes: Vec<u8>,
    reference: ConnectorRef,
}

fn quiet(version: &str) -> Vec<u8> {
    package::pack(&package::quiet(), &package::manifest("github://acme/quiet", version))
}

fn installed() -> Installed {
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://acme/quiet");
    let bytes = quiet("1.0.0");
    run(home.install(&bytes, &signer)).unwrap();
    Installed { home, signer, bytes, reference: connector("github://acme/quiet@1.0.0") }
}

impl Installed {
    fn call(&self, host: &Host) -> Result<Value, Error> {
        run(host.call(&self.reference, "run", json!({})))
    }

    /// The failure of a call by a host that had it loaded, and by a new one: they have to be the same.
    #[track_caller]
    fn fails_in(&self, warm: &Host) -> Failure {
        let first = failed(self.call(warm));
        let second = failed(self.call(&self.home.host()));
        let parts =
            |failure: &Failure| (failure.class(), failure.code().to_owned(), failure.message().to_owned());
        assert_eq!(parts(&first), parts(&second));
        first
    }

    fn package_file(&self) -> std::path::PathBuf {
        self.home.installed_file(&self.bytes)
    }

    fn signature_file(&self) -> std::path::PathBuf {
        self.package_file().with_file_name("signature.dsse.json")
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn installed_packages_are_named_by_their_sha256() {
    let it = installed();
    assert_eq!(it.call(&it.home.host()).unwrap(), Value::Null);
    let output = std::process::Command::new("sha256sum").arg(it.package_file()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let listed = it.home.host().list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(printed.split(' ').next().unwrap(), Digest::sha256(&it.bytes).to_string());
}

#[test]
fn a_flipped_byte_is_a_hash_mismatch() {
    let it = installed();
    for at in [8, it.bytes.len() / 2, it.bytes.len() - 1] {
        let warm = it.home.host();
        it.call(&warm).unwrap();
        flip(&it.package_file(), at);
        let failure = it.fails_in(&warm);
        check(&failure, MISMATCH);
        assert_eq!(failure.details()["expected"], format!("sha256:{}", Digest::sha256(&it.bytes)));
        assert!(failure.details()["suggestion"].as_str().unwrap().contains("cofferdam remove"));
        flip(&it.package_file(), at);
        it.call(&warm).unwrap();
    }
}

#[test]
fn other_truncated_and_missing_packages_do_not_run() {
    let it = installed();
    let warm = it.home.host();
    it.call(&warm).unwrap();
    fs::write(it.package_file(), &it.bytes[..it.bytes.len() / 2]).unwrap();
    check(&it.fails_in(&warm), MISMATCH);
    fs::write(it.package_file(), quiet("6.6.6")).unwrap();
    check(&it.fails_in(&warm), MISMATCH);
    fs::remove_file(it.package_file()).unwrap();
    check_host_error(&refused(it.call(&warm)));
    std::os::unix::fs::symlink("/etc/hostname", it.package_file()).unwrap();
    check_host_error(&refused(it.call(&warm)));
}

#[test]
fn an_oversized_package_is_refused_unread() {
    let it = installed();
    let file = fs::OpenOptions::new().write(true).open(it.package_file()).unwrap();
    file.set_len(3 * 1024 * 1024 * 1024).unwrap();
    drop(file);
    check_host_error(&refused(it.call(&it.home.host())));
}

#[test]
fn a_pinned_hash_must_match() {
    let it = installed();
    let host = it.home.host();
    let pinned = |hash: Digest| Call::new(it.reference.clone().pinned(hash), "run", json!({}));
    run(host.run(pinned(Digest::sha256(&it.bytes)))).outcome.unwrap();
    check(&failed(run(host.run(pinned(Digest::sha256(b"another")))).outcome), MISMATCH);
}

#[test]
fn a_missing_or_damaged_signature_stops_calls() {
    let it = installed();
    let good = fs::read(it.signature_file()).unwrap();
    let warm = it.home.host();
    it.call(&warm).unwrap();
    fs::remove_file(it.signature_file()).unwrap();
    check(&it.fails_in(&warm), signature("unsigned"));
    for (bad, code) in [
        (&b"not json"[..], "malformed_signature"),
        (b"{}", "malformed_signature"),
        (&good[..good.len() / 2], "malformed_signature"),
        (b"", "malformed_signature"),
    ] {
        fs::write(it.signature_file(), bad).unwrap();
        check(&it.fails_in(&warm), signature(code));
    }
    let mut envelope: Value = serde_json::from_slice(&good).unwrap();
    let sig = envelope["signatures"][0]["sig"].as_str().unwrap().to_owned();
    let other = if sig.starts_with('A') { "B" } else { "A" };
    envelope["signatures"][0]["sig"] = format!("{other}{}", &sig[1..]).into();
    fs::write(it.signature_file(), envelope.to_string()).unwrap();
    check(&it.fails_in(&warm), signature("bad_signature"));
    fs::write(it.signature_file(), &good).unwrap();
    it.call(&warm).unwrap();
}

#[test]
fn a_revoked_or_removed_key_stops_calls() {
    let it = installed();
    let warm = it.home.host();
    it.call(&warm).unwrap();
    it.home.revoke(&it.signer.public());
    check(&it.fails_in(&warm), signature("revoked_key"));
    let id = it.signer.public().id();
    it.home.keyring().update(|keyring| Ok(keyring.remove(&id).unwrap())).unwrap();
    check(&it.fails_in(&warm), signature("unknown_key"));
    fs::remove_file(it.home.path().join("keyring.toml")).unwrap();
    check(&it.fails_in(&warm), signature("unknown_key"));
    it.home.trust(&it.signer.public(), "github://acme/*");
    it.call(&warm).unwrap();
}

#[test]
fn a_key_past_its_date_stops_the_next_call() {
    let it = installed();
    let warm = it.home.host();
    it.call(&warm).unwrap();
    let keyring = it.home.path().join("keyring.toml");
    let text = fs::read_to_string(&keyring).unwrap();
    fs::write(&keyring, format!("{text}not_after = 2020-01-01T00:00:00Z\n")).unwrap();
    let failure = it.fails_in(&warm);
    check(&failure, signature("expired_key"));
}

#[test]
fn an_unsafe_keyring_stops_every_call() {
    let it = installed();
    let warm = it.home.host();
    it.call(&warm).unwrap();
    let keyring = it.home.path().join("keyring.toml");
    let good = fs::read_to_string(&keyring).unwrap();
    fs::write(&keyring, format!("{good}[[keys]\n")).unwrap();
    check_host_error(&refused(it.call(&warm)));
    fs::write(&keyring, &good).unwrap();
    it.call(&warm).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(&keyring, open).unwrap();
    let error = refused(it.call(&warm));
    check_host_error(&error);
    assert!(error.hint().unwrap().contains("chmod"), "{:?}", error.hint());
}

/// Installs `bytes` with `signature` in an empty home that trusts `signer` for one connector, and checks that
/// nothing is left on disk.
#[track_caller]
fn refused_at_install(home: &Home, bytes: Vec<u8>, signature: Option<Vec<u8>>) -> Failure {
    let host = home.host();
    let before = home.snapshot();
    let error = run(host.install_accepted(bytes, signature, InstallOptions::default())).unwrap_err();
    assert_eq!(home.snapshot(), before, "a refused install changed something");
    match error {
        Error::Failure(failure) => failure,
        Error::Host(error) => panic!("{error}: {:?}", error.hint()),
    }
}

#[test]
fn only_a_trusted_signature_of_the_bytes_installs() {
    let home = Home::new(COFFERDAM);
    let (trusted, stranger, neighbour) = (Signer::new(), Signer::new(), Signer::new());
    home.trust(&trusted.public(), "github://acme/quiet");
    home.trust(&neighbour.public(), "github://acme/loud");
    let bytes = quiet("1.0.0");
    let digest = Digest::sha256(&bytes);
    let (name, version) = (ConnectorName::parse("github://acme/quiet").unwrap(), Version::new(1, 0, 0));
    let other_name = ConnectorName::parse("github://acme/loud").unwrap();
    let cases = [
        (None, "unsigned"),
        (Some(stranger.sign(&bytes)), "unknown_key"),
        (Some(neighbour.sign(&bytes)), "key_scope"),
        (Some(trusted.sign(&quiet("1.0.1"))), "identity_mismatch"),
        (Some(trusted.state(&other_name, &version, &digest)), "identity_mismatch"),
        (Some(trusted.state(&name, &Version::new(1, 0, 1), &digest)), "identity_mismatch"),
        (Some(trusted.state(&name, &version, &Digest::sha256(b"other"))), "identity_mismatch"),
        (Some(b"{\"payload\":".to_vec()), "malformed_signature"),
    ];
    for (at, (signed, code)) in cases.into_iter().enumerate() {
        let failure = refused_at_install(&home, bytes.clone(), signed);
        assert_eq!(failure.code(), code, "case {at}: {failure}");
        check(&failure, signature(code));
    }
    home.revoke(&trusted.public());
    let failure = refused_at_install(&home, bytes.clone(), Some(trusted.sign(&bytes)));
    check(&failure, signature("revoked_key"));
}

#[test]
fn a_manifest_edited_after_signing_is_refused() {
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://acme/*");
    let signed = signer.sign(&quiet("1.0.0"));
    let wider =
        package::with_hosts(&package::manifest("github://acme/quiet", "1.0.0"), &["evil.example:443".into()]);
    let failure = refused_at_install(&home, package::pack(&package::quiet(), &wider), Some(signed));
    check(&failure, signature("identity_mismatch"));
}

#[test]
fn unsigned_runs_only_with_permission_each_time() {
    let home = Home::new(COFFERDAM);
    let host = home.host();
    let bytes = quiet("1.0.0");
    let stranger = Signer::new();
    let unsigned = InstallOptions::default().allow_unsigned();
    let bad = run(host.install_accepted(bytes.clone(), Some(stranger.sign(&bytes)), unsigned.clone()));
    assert_eq!(bad.unwrap_err().failure().unwrap().code(), "unknown_key");
    let installed = run(host.install_accepted(bytes, None, unsigned)).unwrap();
    assert_eq!(installed.signer, None);
    let reference = connector("github://acme/quiet@1.0.0");
    let call = || Call::new(reference.clone(), "run", json!({}));
    check(&failed(run(host.run(call())).outcome), signature("unsigned"));
    assert_eq!(run(host.run(call().allow_unsigned())).outcome.unwrap(), Value::Null);
    check(&failed(run(host.run(call())).outcome), signature("unsigned"));
}

#[test]
fn an_expected_hash_is_checked_before_anything_else() {
    let home = Home::new(COFFERDAM);
    let options = InstallOptions::default().expect_hash(Digest::sha256(b"what was advertised"));
    let before = home.snapshot();
    let error = run(home.host().install(quiet("1.0.0"), None, options)).unwrap_err();
    check(error.failure().unwrap(), MISMATCH);
    assert_eq!(home.snapshot(), before);
}

#[test]
fn tampered_cached_code_is_never_loaded() {
    let it = installed();
    it.call(&it.home.host()).unwrap();
    let cache = it.home.path().join("cache");
    let kept: Vec<_> = walk(&cache);
    assert!(!kept.is_empty(), "compiled code is kept");
    for path in &kept {
        let length = fs::read(path).unwrap().len();
        for at in [0, length / 3, length / 2, length - 1] {
            flip(path, at);
            assert_eq!(it.call(&it.home.host()).unwrap(), Value::Null, "it is compiled again");
        }
        fs::write(path, b"short").unwrap();
        it.call(&it.home.host()).unwrap();
    }
    // Code that another host's key vouches for is code from elsewhere.
    let other = installed();
    other.call(&other.home.host()).unwrap();
    fs::copy(other.home.path().join("host.key"), it.home.path().join("host.key")).unwrap();
    it.call(&it.home.host()).unwrap();
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
