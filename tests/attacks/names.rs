//! Names and texts of untrusted packages: no name is ambiguous, and a terminal shows them without acting on
//! them.

use std::fs;

use cofferdam::{HostErrorKind, InstallOptions};
use cofferdam_test_support::{Cli, Home, InstallAccepted as _, package};
use serde_json::json;

use super::{installed, section};
use crate::COFFERDAM;
use crate::envelope::check_host_error;
use crate::shared_host::{refused, run};

#[test]
fn deceptive_names_and_path_names_are_refused() {
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
        let error =
            refused(run(host.install_accepted(bytes, None, InstallOptions::default().allow_unsigned())));
        check_host_error(&error);
        assert_eq!(error.kind(), HostErrorKind::Validation, "{name}: {error}");
        let text = format!("{error} {}", error.hint().unwrap_or_default());
        assert!(text.contains("connector.toml:2") && text.len() < 1_000, "{name}: {text}");
        // It is not a valid name as an argument either.
        let cli = Cli::new(COFFERDAM, it.home.path());
        if !name.contains(['\\', '@']) {
            let ran = cli.run(&["call", name, "run"]);
            assert!([65, 66].contains(&ran.code.unwrap()), "{name}: {ran:?}");
            assert!(!hostile(&ran.stderr), "{name}: {:?}", ran.stderr);
        }
    }
    assert_eq!(it.home.snapshot(), before);
}

/// Characters on which a terminal would act, or which mislead the reader.
fn hostile(text: &str) -> bool {
    text.chars().any(|c| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
    })
}

#[test]
fn package_text_is_displayed_safely() {
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
        let hash = format!("sha256:{}", cofferdam::Digest::sha256(&fs::read(&file).unwrap()));
        for args in [
            &["inspect", "odd.wasm"][..],
            &["inspect", "odd.wasm", "--format", "json"],
            &["install", "odd.wasm", "--allow-unsigned", "--accept", &hash],
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
