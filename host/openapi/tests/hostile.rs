//! Documents of hostile strings: nothing of them becomes code, and what comes out parses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

mod support;

use cofferdam_openapi::DocumentReader;
use proptest::prelude::*;
use support::hostile::{MARK, PIECES, TEXTS, document, hostile_text};
use support::{assert_valid, file, options, read_text};

fn check(texts: &[String]) {
    let text = document(&[texts.to_vec()]).to_string();
    let document = read_text(&text).unwrap();
    let project = DocumentReader::new(&document)
        .project(&options(&[]))
        .unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_valid(&project, &text);
    for path in ["src/generated/mod.rs", "src/generated/operations.rs", "src/generated/types.rs"] {
        assert_no_mark(file(&project, path), path);
    }
    let wit = support::resolve(file(&project, "wit/service.wit")).unwrap();
    let functions: usize = wit.interfaces.iter().map(|(_, interface)| interface.functions.len()).sum();
    assert_eq!(functions, 2, "the document has two operations: {text}");
    let manifest: toml::Table = toml::from_str(file(&project, "connector.toml")).unwrap();
    let keys: Vec<_> = manifest.keys().map(String::as_str).collect();
    assert_eq!(keys, ["capabilities", "connector"]);
}

/// Names are made of a document's texts, so the mark may be a name; it must not be an item of its own.
fn assert_no_mark(code: &str, path: &str) {
    let parsed = syn3::parse_file(code).unwrap();
    let is_hostile = |item: &syn3::Item| match item {
        syn3::Item::Fn(function) => function.sig.ident == MARK && !code.contains("Target::new"),
        syn3::Item::Const(_)
        | syn3::Item::Static(_)
        | syn3::Item::ExternCrate(_)
        | syn3::Item::ForeignMod(_) => true,
        _ => false,
    };
    assert!(!parsed.items.iter().any(is_hostile), "{path}:\n{code}");
    let bidi = |character: char| matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let comments = code.lines().filter(|line| line.trim_start().starts_with("//"));
    for comment in comments {
        assert!(!comment.contains(bidi) && !comment.contains("```"), "{path}: {comment:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_becomes_code(texts in proptest::collection::vec(hostile_text(), TEXTS)) {
        check(&texts);
    }
}

#[test]
fn each_hostile_piece_alone_is_harmless() {
    for piece in PIECES {
        check(&vec![piece.to_owned(); TEXTS]);
    }
}
