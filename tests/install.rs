//! Bad input to an install: each is refused with a way on, and leaves the disk as it was.

use std::fs;

use cofferdam::{Error, HostErrorKind, InstallOptions};
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, connector, package};
use serde_json::json;

use crate::COFFERDAM;
use crate::envelope::{self, check_host_error};
use crate::shared_host::run;

/// A home that trusts one key for everything of `acme`.
struct Setup {
    home: Home,
    signer: Signer,
}

fn setup() -> Setup {
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://acme/*");
    Setup { home, signer }
}

fn manifest() -> String {
    package::manifest("github://acme/quiet", "1.0.0")
}

/// The section `name` with `content`, as bytes.
fn section(name: &str, content: &[u8]) -> Vec<u8> {
    use wasm_encoder::ComponentSection;
    let mut bytes = Vec::new();
    wasm_encoder::CustomSection { name: name.into(), data: content.into() }.append_to_component(&mut bytes);
    bytes
}

impl Setup {
    /// Installs `bytes`, unsigned and with permission: the errors in them have to be found all the same.
    #[track_caller]
    fn refuses(&self, what: &str, bytes: Vec<u8>) -> Error {
        let host = self.home.host();
        let before = self.home.snapshot().without("host.key");
        let outcome = run(host.install_accepted(bytes, None, InstallOptions::default().allow_unsigned()));
        let error = match outcome {
            Ok(installed) => panic!("{what}: installed as {installed:?}"),
            Err(error) => error,
        };
        // The key that authenticates cached code is the host's own, created with the first compilation.
        let after = self.home.snapshot().without("host.key");
        assert_eq!(after, before, "{what}: a refused install changed something");
        assert!(host.list().unwrap().is_empty(), "{what}");
        error
    }

    /// The host's error for `bytes`; its message has to contain `says`.
    #[track_caller]
    fn host_error(&self, what: &str, bytes: Vec<u8>, kind: HostErrorKind, says: &str) {
        match self.refuses(what, bytes) {
            Error::Host(error) => {
                check_host_error(&error);
                assert_eq!(error.kind(), kind, "{what}: {error}");
                let text = format!("{error} {}", error.hint().unwrap_or_default());
                assert!(text.contains(says), "{what}: expected `{says}` in: {text}");
            }
            Error::Failure(failure) => panic!("{what}: {failure}"),
        }
    }
}

#[test]
fn files_that_are_not_components_are_refused() {
    let setup = setup();
    let invalid = |what: &str, bytes: &[u8], says: &str| {
        setup.host_error(what, bytes.to_vec(), HostErrorKind::Validation, says);
    };
    invalid("nothing", b"", "empty");
    invalid("text", b"hello", "not a WebAssembly component");
    invalid("an executable", b"\x7fELF\x02\x01\x01", "not a WebAssembly component");
    invalid("component text", b"(component)", "text");
    invalid("a core module", &wat::parse_str("(module)").unwrap(), "core WebAssembly module");
    let quiet = package::pack(&package::quiet(), &manifest());
    for length in [9, 40, quiet.len() / 2, quiet.len() - 1] {
        setup.refuses("a truncated package", quiet[..length].to_vec());
    }
}

#[test]
fn flipped_bits_never_pass_the_signature() {
    let setup = setup();
    let host = setup.home.host();
    let quiet = package::pack(&package::quiet(), &manifest());
    let signature = setup.signer.sign(&quiet);
    let before = setup.home.snapshot();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..300 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut bytes = quiet.clone();
        let at = usize::try_from(random).unwrap() % bytes.len();
        bytes[at] ^= 1 << (random >> 61);
        let error = run(host.install_accepted(bytes, Some(signature.clone()), InstallOptions::default()))
            .unwrap_err();
        if let Error::Failure(failure) = error {
            // A flipped name has no permitted signer; any other change breaks the signature.
            let code = if failure.code() == "key_scope" { "key_scope" } else { "identity_mismatch" };
            envelope::check(&failure, envelope::signature(code));
        }
    }
    assert_eq!(setup.home.snapshot(), before);
}

#[test]
fn a_non_connector_component_is_refused_by_function() {
    let setup = setup();
    let pack = |component: &[u8]| package::pack(component, &manifest());
    let invalid = |what: &str, component: &[u8], says: &str| {
        setup.host_error(what, pack(component), HostErrorKind::Validation, says);
    };
    invalid("no operations", &wat::parse_str("(component)").unwrap(), "no operation");
    let lifted = |signature: &str, core: &str| {
        package::component(&format!(
            r#"(core module $m (memory (export "memory") 1) (func (export "f") {core} unreachable)
                 (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable))
               (core instance $i (instantiate $m))
               (alias core export $i "memory" (core memory $memory))
               (func (export "odd-one") {signature}
                 (canon lift (core func $i "f") (memory $memory) (realloc (core func $i "realloc"))))"#
        ))
    };
    invalid("no result", &lifted("", ""), "odd-one");
    invalid("a bare value", &lifted("(result u32)", "(result i32)"), "odd-one");
    invalid("another error", &lifted("(result (result (error string)))", "(result i32)"), "odd-one");
    invalid(
        "a resource",
        &package::component(
            r#"(type $r' (resource (rep i32))) (export $r "r" (type $r'))
               (core module $m (memory (export "memory") 1) (func (export "f") (result i32) unreachable))
               (core instance $i (instantiate $m))
               (alias core export $i "memory" (core memory $memory))
               (func (export "odd-one") (result (result (own $r) (error $failure)))
                 (canon lift (core func $i "f") (memory $memory)))"#,
        ),
        "odd-one",
    );
}

#[test]
fn undeclared_imports_are_denied_by_name() {
    let setup = setup();
    let importing = |import: &str| {
        let quiet = r#"(core module $m (memory (export "memory") 1) (func (export "run") (result i32) (i32.const 0)))"#;
        package::pack(&package::component(&format!("(import \"{import}\" (instance))\n{quiet}")), &manifest())
    };
    for import in ["wasi:http/outgoing-handler@0.2.0", "wasi:sockets/tcp@0.2.0", "acme:made/up@1.0.0"] {
        let error = setup.refuses(import, importing(import));
        let failure = error.failure().unwrap_or_else(|| panic!("{import}: {error}")).clone();
        envelope::check(
            &failure,
            envelope::Expected {
                boundary: cofferdam::FailureBoundary::ConnectorManifest,
                ..envelope::denied("capability_unavailable")
            },
        );
        let bare = import.split('@').next().unwrap();
        assert_eq!(failure.details()["requested"], format!("import:{bare}"));
    }
    let declared =
        format!("{}[capabilities.runtime]\nimports = [\"wasi:http/outgoing-handler\"]\n", manifest());
    let component = package::component(
        r#"(import "wasi:http/outgoing-handler@0.2.0" (instance))
           (core module $m (memory (export "memory") 1) (func (export "run") (result i32) (i32.const 0)))"#,
    );
    let host = setup.home.host();
    let options = InstallOptions::default().allow_unsigned();
    run(host.install_accepted(package::pack(&component, &declared), None, options)).unwrap();
}

#[test]
fn an_unsupported_contract_version_is_named() {
    let setup = setup();
    for version in ["0.2.0", "1.0.0", "0.1.0-rc.1"] {
        let component = package::component(&format!(
            r#"(import "cofferdam:connector/call@{version}" (instance))
               (core module $m (memory (export "memory") 1) (func (export "run") (result i32) (i32.const 0)))"#
        ));
        let bytes = package::pack(&component, &manifest());
        setup.host_error(version, bytes, HostErrorKind::ContractVersion, "0.1.0");
    }
}

#[test]
fn the_manifest_section_must_be_single_and_readable() {
    let setup = setup();
    let invalid = |what: &str, bytes: Vec<u8>, says: &str| {
        setup.host_error(what, bytes, HostErrorKind::Validation, says);
    };
    let quiet = package::quiet();
    let with = |sections: &[Vec<u8>]| [&quiet[..], &sections.concat()].concat();
    let (text, docs) = (manifest(), b"{\"operations\":{}}");
    let one = || section("cofferdam:manifest", text.as_bytes());
    let doc = || section("cofferdam:docs", docs);
    invalid("no sections", quiet.clone(), "cofferdam:manifest");
    invalid("no docs", with(&[one()]), "cofferdam:docs");
    invalid("two manifests", with(&[one(), one(), doc()]), "2 times");
    invalid("two docs", with(&[one(), doc(), doc()]), "2 times");
    invalid("not UTF-8", with(&[section("cofferdam:manifest", b"\xff\xfe"), doc()]), "cofferdam:manifest");
    invalid("docs that are no JSON", with(&[one(), section("cofferdam:docs", b"[")]), "cofferdam:docs");
    let inner = [&wat::parse_str("(module)").unwrap()[..], &one()].concat();
    let mut nested = wasm_encoder::Component::new();
    nested.section(&wasm_encoder::RawSection { id: 1, data: &inner });
    let nested = [&quiet[..], &nested.finish()[8..], &one(), &doc()].concat();
    invalid("a nested manifest", nested, "nested");
}

#[test]
fn a_bad_manifest_is_refused_by_line_and_key() {
    let setup = setup();
    let cases = [
        ("", "connector"),
        ("[connector]\nname = \"github://acme/quiet\"\n", "version"),
        ("[connector]\nname = \"acme\"\nversion = \"1.0.0\"\n", "connector.toml:2"),
        ("[connector]\nname = \"github://acme/quiet\"\nversion = \"latest\"\n", "connector.toml:3"),
        ("[connector]\nname = \"github://acme/quiet\"\nversion = \"1.0.0\"\ncolour = 1\n", "colour"),
        (
            "[connector]\nname = \"github://acme/quiet\"\nversion = \"1.0.0\"\n[limits]\nfuel = 0\n",
            "limits.fuel",
        ),
        (
            "[connector]\nname = \"github://acme/quiet\"\nversion = \"1.0.0\"\n[capabilities.network]\nhosts = [\"*.x.com\"]\n",
            "capabilities.network.hosts[0]",
        ),
        (
            "[connector]\nname = \"github://acme/quiet\"\nversion = \"1.0.0\"\n[connector.idempotency.operations]\nrum = \"idempotent\"\n",
            "rum",
        ),
        ("\u{1b}[31m = 1\n", "connector.toml:1"),
    ];
    for (text, says) in cases {
        let bytes = package::pack(&package::quiet(), text);
        setup.host_error(text, bytes, HostErrorKind::Validation, says);
    }
    let above = format!("{}[limits]\nmemory = \"2GiB\"\n", manifest());
    setup.host_error(
        "a limit",
        package::pack(&package::quiet(), &above),
        HostErrorKind::Validation,
        "memory",
    );
}

#[test]
fn components_too_large_for_an_instance_are_refused() {
    let setup = setup();
    let module = |items: &str| {
        let run = r#"(func (export "run") (result i32) (i32.const 0))"#;
        package::component(&format!("(core module $m {items} {run})"))
    };
    let memory = r#"(memory (export "memory") 1)"#;
    let cases = [
        ("table", format!("{memory} (table 10000000 funcref)")),
        ("memory", r#"(memory (export "memory") 65536)"#.to_owned()),
    ];
    for (what, items) in cases {
        let bytes = package::pack(&module(&items), &manifest());
        setup.host_error(what, bytes, HostErrorKind::CompileRefused, what);
    }
}

#[test]
fn one_name_and_version_is_one_package() {
    let Setup { home, signer } = setup();
    let first = package::pack(&package::quiet(), &manifest());
    let other = package::pack(&package::quiet(), &format!("# other bytes\n{}", manifest()));
    assert!(!run(home.install(&first, &signer)).unwrap().already_installed);
    assert!(run(home.install(&first, &signer)).unwrap().already_installed);
    let rotated = Signer::new();
    home.trust(&rotated.public(), "github://acme/*");
    let again = run(home.install(&first, &rotated)).unwrap();
    assert!(again.already_installed, "the same bytes under another signature are the same bytes");
    let before = home.snapshot();
    let Err(Error::Host(error)) = run(home.install(&other, &signer)) else { panic!("installed") };
    check_host_error(&error);
    assert_eq!(error.kind(), HostErrorKind::Conflict, "{error}");
    assert!(error.hint().unwrap().contains("remove"), "{:?}", error.hint());
    assert_eq!(home.snapshot(), before);
    let reference = connector("github://acme/quiet@1.0.0");
    home.host().remove(&reference).unwrap();
    run(home.install(&other, &signer)).unwrap();
    let Error::Host(error) = run(home.host().verify(&connector("github://acme/quiet@2.0.0"))).unwrap_err()
    else {
        panic!("verified");
    };
    assert_eq!(error.kind(), HostErrorKind::ConnectorNotFound);
}

#[test]
fn two_installs_at_once_converge() {
    let Setup { home, signer } = setup();
    let bytes = package::pack(&package::quiet(), &manifest());
    let signature = signer.sign(&bytes);
    run(async {
        let installs: Vec<_> = (0..6)
            .map(|_| {
                let (host, bytes, signature) = (home.host(), bytes.clone(), signature.clone());
                tokio::spawn(async move {
                    host.install_accepted(bytes, Some(signature), Default::default()).await
                })
            })
            .collect();
        for install in installs {
            install.await.unwrap().unwrap();
        }
    });
    assert_eq!(home.host().list().unwrap().len(), 1);
    let reference = connector("github://acme/quiet@1.0.0");
    run(home.host().call(&reference, "run", json!({}))).unwrap();
    let leftovers = home.snapshot();
    let leftovers: Vec<_> = leftovers.paths().filter(|path| path.contains("tmp/")).collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn a_damaged_index_is_named_and_rebuilt() {
    let Setup { home, signer } = setup();
    let bytes = package::pack(&package::quiet(), &manifest());
    run(home.install(&bytes, &signer)).unwrap();
    let index = home.path().join("packages/index.json");
    let good = fs::read(&index).unwrap();
    let reference = connector("github://acme/quiet@1.0.0");
    for bad in [&good[..good.len() / 2], b"", b"{\"version\":999,\"packages\":{}}", b"\xff\xff"] {
        fs::write(&index, bad).unwrap();
        let host = home.host();
        let before = home.snapshot();
        let error = crate::shared_host::refused(run(host.call(&reference, "run", json!({}))));
        check_host_error(&error);
        assert!(error.hint().unwrap().contains("--rebuild-index"), "{:?}", error.hint());
        let Err(Error::Host(error)) = run(home.install(&bytes, &signer)) else { panic!("installed") };
        check_host_error(&error);
        assert_eq!(home.snapshot(), before, "an error repairs nothing behind one's back");
        assert_eq!(host.rebuild_index().unwrap().entries.len(), 1);
        run(host.call(&reference, "run", json!({}))).unwrap();
    }
    fs::remove_file(&index).unwrap();
    assert_eq!(home.host().rebuild_index().unwrap().entries.len(), 1);
    run(home.host().call(&reference, "run", json!({}))).unwrap();
}

#[test]
fn an_edited_index_is_refused() {
    let Setup { home, signer } = setup();
    let quiet = package::pack(&package::quiet(), &manifest());
    let other = package::pack(&package::quiet(), &package::manifest("github://acme/other", "1.0.0"));
    run(home.install(&quiet, &signer)).unwrap();
    run(home.install(&other, &signer)).unwrap();
    let index = home.path().join("packages/index.json");
    let text = fs::read_to_string(&index).unwrap();
    let [a, b] = [&quiet, &other].map(|bytes| cofferdam_core::digest::Digest::sha256(bytes).to_string());
    fs::write(&index, text.replace(&a, "A").replace(&b, &a).replace('A', &b)).unwrap();
    let outcome = run(home.host().call(&connector("github://acme/quiet@1.0.0"), "run", json!({})));
    check_host_error(&crate::shared_host::refused(outcome));
}
