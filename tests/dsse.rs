//! Our signatures are DSSE as others read and write it: securesystemslib from PyPI, in both directions.
//!
//! Python is `$COFFERDAM_PYTHON`, or `python3`, or a virtual environment that the test creates once under the
//! target directory. If none of them has the library, the test says so and checks nothing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam::InstallOptions;
use cofferdam_model::trust::PublicKey;
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::run;

static PYTHON: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let given = std::env::var_os("COFFERDAM_PYTHON").map(PathBuf::from);
    if let Some(given) = given {
        assert!(has_library(&given), "COFFERDAM_PYTHON has no securesystemslib");
        return Some(given);
    }
    let system = PathBuf::from("python3");
    if has_library(&system) {
        return Some(system);
    }
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("securesystemslib");
    let own = venv.join("bin/python");
    if !has_library(&own) {
        let quietly = |command: &mut Command| {
            command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        quietly(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
        quietly(Command::new(&own).args(["-m", "pip", "install", "securesystemslib[crypto]"]));
    }
    has_library(&own).then_some(own)
});

fn has_library(python: &Path) -> bool {
    let program = "import securesystemslib.dsse, cryptography";
    let output = Command::new(python).args(["-c", program]).output();
    output.is_ok_and(|output| output.status.success())
}

/// The other implementation's answer; none if it is not available.
fn other_side(args: &[&str], input: &[u8]) -> Option<Result<String, String>> {
    let Some(python) = &*PYTHON else {
        crate::skipped("securesystemslib cannot be installed; DSSE is not checked against it");
        return None;
    };
    let script = package::repository().join("tests/dsse_interop.py");
    let mut child = Command::new(python)
        .arg(script)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

fn quiet() -> Vec<u8> {
    package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"))
}

/// A public key's 32 bytes in hexadecimal.
fn hex_of(key: &PublicKey) -> String {
    let text = key.to_string();
    let bytes = STANDARD.decode(text.strip_prefix("ed25519:").unwrap()).unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn securesystemslib_verifies_our_signature() {
    let signer = Signer::new();
    let (bytes, key) = (quiet(), signer.public());
    let envelope = signer.sign(&bytes);
    let (public, id) = (hex_of(&key), key.id().to_string());
    let Some(payload) = other_side(&["verify", &public, &id], &envelope) else { return };
    let statement: Value = serde_json::from_str(&payload.unwrap()).unwrap();
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    let digest = cofferdam_core::digest::Digest::sha256(&bytes).to_string();
    assert_eq!(statement["subject"], json!([{"name": "github://acme/quiet", "digest": {"sha256": digest}}]));
    assert_eq!(statement["predicate"]["version"], "1.0.0");
}

#[test]
fn securesystemslib_refuses_a_foreign_signature() {
    let signer = Signer::new();
    let key = signer.public();
    let mut envelope: Value = serde_json::from_slice(&signer.sign(&quiet())).unwrap();
    let payload = STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
    let other = String::from_utf8(payload).unwrap().replace("1.0.0", "1.0.1");
    envelope["payload"] = STANDARD.encode(other).into();
    let answer =
        other_side(&["verify", &hex_of(&key), &key.id().to_string()], envelope.to_string().as_bytes());
    let Some(answer) = answer else { return };
    assert!(answer.unwrap_err().contains("VerificationError"));
}

#[test]
fn we_verify_the_signature_of_securesystemslib() {
    let bytes = quiet();
    let digest = cofferdam_core::digest::Digest::sha256(&bytes).to_string();
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "github://acme/quiet", "digest": {"sha256": digest}}],
        "predicateType": cofferdam_model::trust::PREDICATE_TYPE,
        "predicate": {"version": "1.0.0", "signedAt": "2026-01-02T03:04:05Z", "builder": "not ours"},
    });
    let Some(answer) = other_side(&["sign"], statement.to_string().as_bytes()) else { return };
    let answer: Value = serde_json::from_str(&answer.unwrap()).unwrap();
    let public = answer["public"].as_str().unwrap();
    let raw: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&public[2 * at..2 * at + 2], 16).unwrap()).collect();
    let key = PublicKey::parse(&format!("ed25519:{}", STANDARD.encode(raw))).unwrap();
    let home = Home::new(COFFERDAM);
    let envelope = answer["envelope"].to_string().into_bytes();
    let install = || {
        run(home.host().install_accepted(bytes.clone(), Some(envelope.clone()), InstallOptions::default()))
    };
    assert_eq!(install().unwrap_err().failure().unwrap().code(), "unknown_key");
    home.trust(&key, "github://acme/quiet");
    assert_eq!(install().unwrap().signer.as_deref(), Some(key.id().to_string().as_str()));
}
