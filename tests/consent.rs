//! Consent: a package gets no access that an operator did not accept, and each acceptance is in the audit log.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use cofferdam::{Error, HostErrorKind, InstallOptions};
use cofferdam_core::digest::Digest;
use cofferdam_test_support::package::{component, guest, pack};
use cofferdam_test_support::{Cli, CommandResult, Home, InstallAccepted as _, Signer, connector};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::run;

const NAME: &str = "github://acme/probe";

struct Site {
    home: Home,
    signer: Signer,
}

impl Site {
    fn new() -> Self {
        let (home, signer) = (Home::new(COFFERDAM), Signer::new());
        home.trust(&signer.public(), "github://acme/*");
        Self { home, signer }
    }

    fn cli(&self) -> Cli {
        Cli::new(COFFERDAM, self.home.path())
    }

    /// Writes the signed package `<version>.wasm`, which may reach `hosts`.
    fn packs(&self, version: &str, hosts: &[&str]) -> Vec<u8> {
        let bytes = package(version, hosts);
        self.signer.write(self.home.path().join(format!("{version}.wasm")), &bytes);
        bytes
    }

    fn install(&self, args: &[&str]) -> CommandResult {
        self.cli().run(&[&["install"], args, &["--format", "json"]].concat())
    }

    /// The install is refused for want of consent; the reasons.
    #[track_caller]
    fn is_refused(&self, args: &[&str]) -> String {
        let before = self.home.snapshot().without("cache");
        let refused = self.install(args).fails(93).envelope();
        assert_eq!(refused["error"]["code"], "consent_required", "{refused}");
        assert_eq!(self.home.snapshot().without("cache"), before, "nothing was installed");
        refused["error"]["message"].as_str().unwrap().to_owned()
    }

    /// The acceptances in the audit log, oldest first.
    fn acceptances(&self) -> Vec<Value> {
        let changes = self.cli().run(&["audit", "changes", "--format", "json"]).json();
        let changes = changes.as_array().unwrap().iter();
        changes.filter(|change| change["action"] == "consent").cloned().collect()
    }
}

fn package(version: &str, hosts: &[&str]) -> Vec<u8> {
    let manifest = format!(
        "[connector]\nname = \"{NAME}\"\nversion = \"{version}\"\n[capabilities.network]\nhosts = {hosts:?}\n\
         [capabilities.runtime]\nimports = [\"wasi:http/outgoing-handler\"]\n"
    );
    pack(&guest("probe"), &manifest)
}

/// A component whose only operation has the name `name`, and does nothing.
fn quiet_component(name: &str) -> Vec<u8> {
    component(&format!(
        r#"(core module $m (memory (export "memory") 1) (func (export "run") (result i32) (i32.const 0)))
           (core instance $i (instantiate $m))
           (alias core export $i "memory" (core memory $memory))
           (func (export "{name}") (result (result (error $failure)))
             (canon lift (core func $i "run") (memory $memory)))"#
    ))
}

fn hash(bytes: &[u8]) -> String {
    format!("sha256:{}", Digest::sha256(bytes))
}

#[test]
fn a_new_package_has_to_be_accepted_by_its_hash() {
    let it = Site::new();
    let (bytes, other) = (it.packs("1.0.0", &["a.example:443"]), it.packs("1.0.1", &[]));
    assert!(it.is_refused(&["1.0.0.wasm"]).contains("no version of it is installed"));
    let refused = it.install(&["1.0.0.wasm"]).envelope();
    let hint = refused["error"]["details"]["suggestion"].as_str().unwrap();
    assert!(hint.contains(&format!("--accept {}", hash(&bytes))), "{hint}");
    let refused = it.install(&["1.0.0.wasm", "--accept", &hash(&other)]).fails(80).envelope();
    assert_eq!(refused["error"]["class"], "hash_mismatch", "another package was accepted");
    let installed = it.install(&["1.0.0.wasm", "--accept", &hash(&bytes)]).json();
    assert_eq!(installed["consent"]["state"], "required");
    let again = it.install(&["1.0.0.wasm"]).json();
    assert_eq!(again["consent"]["state"], "accepted", "it is accepted once");
    let recorded = it.acceptances();
    let [acceptance] = &*recorded else { panic!("{recorded:#?}") };
    assert_eq!(acceptance["subject"], format!("{NAME}@1.0.0"));
    assert_eq!(acceptance["after"]["hash"], hash(&bytes));
    let grants = acceptance["after"]["grants"].as_array().unwrap();
    for grant in ["host a.example:443", "interface wasi:http/outgoing-handler"] {
        assert!(grants.contains(&json!(grant)), "{grants:?}");
    }
    assert!(acceptance["user"].as_str().is_some_and(|user| !user.is_empty()) && acceptance["at"].is_string());
}

#[test]
fn only_wider_upgrades_need_consent() {
    let it = Site::new();
    let first = it.packs("1.0.0", &["a.example:443", "b.example:443"]);
    it.install(&["1.0.0.wasm", "--accept", &hash(&first)]).ok();
    it.packs("1.1.0", &["a.example:443"]);
    let narrower = it.install(&["1.1.0.wasm"]).json();
    assert_eq!(narrower["consent"], json!({"state": "no_wider", "than": "1.0.0"}));
    // What was given up has to be accepted again.
    let wider = it.packs("1.2.0", &["a.example:443", "b.example:443"]);
    let reason = it.is_refused(&["1.2.0.wasm"]);
    assert!(reason.contains("network: b.example:443: it may reach this host as well"), "{reason}");
    it.install(&["1.2.0.wasm", "--accept", &hash(&wider)]).ok();
    let reasons: Vec<_> = it.acceptances().iter().map(|it| it["after"]["reason"].clone()).collect();
    let by_operator = "accepted by the operator";
    assert_eq!(reasons, [by_operator, "no wider than 1.0.0, by the same signer", by_operator]);
}

#[test]
fn another_signer_or_none_needs_consent() {
    let it = Site::new();
    let first = it.packs("1.0.0", &[]);
    it.install(&["1.0.0.wasm", "--accept", &hash(&first)]).ok();
    let other = Signer::new();
    it.home.trust(&other.public(), "github://acme/*");
    other.write(it.home.path().join("1.1.0.wasm"), &package("1.1.0", &[]));
    assert!(it.is_refused(&["1.1.0.wasm"]).contains("another key signed it than 1.0.0"));
    fs::remove_file(it.home.path().join("1.1.0.wasm.dsse.json")).unwrap();
    it.install(&["1.1.0.wasm", "--allow-unsigned"]).fails(93).said("has no signature");
}

#[test]
fn another_signature_beside_it_needs_no_consent() {
    let it = Site::new();
    let first = it.packs("1.0.0", &[]);
    it.install(&["1.0.0.wasm", "--accept", &hash(&first)]).ok();
    it.packs("1.1.0", &[]);
    let other = Signer::new();
    it.home.trust(&other.public(), "github://acme/*");
    let key = it.home.path().join("other.key");
    fs::write(&key, other.secret_text()).unwrap();
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    it.cli().run(&["sign", "1.1.0.wasm", "--key", "other.key"]).ok();
    assert_eq!(it.install(&["1.1.0.wasm"]).json()["consent"]["state"], "no_wider");
}

#[test]
fn operations_of_any_name_need_consent() {
    let it = Site::new();
    let operation = |version: &str, effect: &str| {
        let manifest = format!(
            "[connector]\nname = \"{NAME}\"\nversion = \"{version}\"\n[connector.effects.operations]\n{effect}"
        );
        pack(&quiet_component("signer"), &manifest)
    };
    let (first, second) = (operation("1.0.0", "signer = \"read_only\"\n"), operation("1.1.0", ""));
    for (version, bytes) in [("1.0.0", &first), ("1.1.0", &second)] {
        it.signer.write(it.home.path().join(format!("{version}.wasm")), bytes);
    }
    it.install(&["1.0.0.wasm", "--accept", &hash(&first)]).ok();
    assert!(it.is_refused(&["1.1.0.wasm"]).contains("it lost its read-only guard"));
}

#[test]
fn a_person_at_a_terminal_is_asked() {
    let it = Site::new();
    it.packs("1.0.0", &["a.example:443"]);
    let answered = |answer: &str| {
        let mut terminal = Command::new("script")
            .args(["-qec", &format!("{COFFERDAM} install 1.0.0.wasm"), "/dev/null"])
            .env("COFFERDAM_HOME", it.home.path())
            .env("SHELL", "/bin/sh")
            .current_dir(it.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        terminal.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let output = terminal.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, shown) = answered("\n");
    assert_eq!(code, Some(93), "the default is no: {shown}");
    assert!(shown.contains("host a.example:443") && shown.contains("(y/n)"), "{shown}");
    assert_eq!(it.home.host().list().unwrap(), []);
    let (code, shown) = answered("y\n");
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(it.acceptances().len(), 1);
}

#[test]
fn calls_need_the_acceptance() {
    let it = Site::new();
    let bytes = it.packs("1.0.0", &[]);
    let signature = it.signer.sign(&bytes);
    let host = it.home.host();
    run(host.install_accepted(bytes.clone(), Some(signature.clone()), InstallOptions::default())).unwrap();
    let target = connector(&format!("{NAME}@1.0.0"));
    let package = || it.home.host().package(&target).map(drop);
    package().unwrap();
    let accepted = it.home.installed_file(&bytes).with_file_name("accepted.json");
    let text = fs::read_to_string(&accepted).unwrap();
    // An acceptance of other grants, as of a host that reads more into the manifest; a damaged one; none.
    let document: Value = serde_json::from_str(&text).unwrap();
    let grants = document["grants"].as_str().unwrap();
    for changed in [text.replace(grants, &hash(b"other")), text.replace('{', "["), String::new()] {
        fs::write(&accepted, changed).unwrap();
        let Err(Error::Host(error)) = package() else { panic!("it may be called") };
        assert_eq!(error.kind(), HostErrorKind::ConsentRequired);
    }
    fs::remove_file(&accepted).unwrap();
    let refused = run(it.home.host().call(&target, "greet", json!({}))).unwrap_err();
    assert!(matches!(refused, Error::Host(error) if error.kind() == HostErrorKind::ConsentRequired));
    // The same package, accepted again, can be called again.
    run(host.install_accepted(bytes, Some(signature), InstallOptions::default())).unwrap();
    package().unwrap();
}

#[test]
fn a_review_is_text_json_and_html() {
    let it = Site::new();
    let first = it.packs("1.0.0", &["a.example:443"]);
    it.install(&["1.0.0.wasm", "--accept", &hash(&first)]).ok();
    it.packs("1.1.0", &["a.example:443", "http://b.example:80"]);
    let review = it.cli().run(&["review", "1.1.0.wasm", "--format", "json"]).json();
    assert_eq!(review["consent"]["state"], "required");
    assert_eq!(review["difference"]["before"]["version"], "1.0.0");
    assert_eq!(review["grants"][0], "host a.example:443");
    let text = it.cli().run(&["review", "1.1.0.wasm", "--html", "review.html"]).ok();
    assert!(text.lines().count() < 40, "one screen:\n{text}");
    let html = fs::read_to_string(it.home.path().join("review.html")).unwrap();
    for shown in ["CHANGES SINCE 1.0.0", "it may reach this host as well, unencrypted", "LOOK AT", "needed: "]
    {
        assert!(text.contains(shown) && html.contains(shown), "{shown}: {text}{html}");
    }
    let against = it.cli().run(&["review", NAME, "--against", "1.1.0.wasm", "--format", "json"]).json();
    assert_eq!(against["consent"]["state"], "accepted");
    assert_eq!(against["difference"]["before"]["version"], "1.1.0");
}
