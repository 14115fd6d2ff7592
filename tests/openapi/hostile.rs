//! Documents of hostile strings: the projects that are made of them compile, and pass their scenarios.

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{RngSeed, TestRunner};

#[path = "../../host/openapi/tests/support/hostile.rs"]
#[allow(dead_code, reason = "the mark is for the tests of the crate")]
mod documents;

use documents::{PIECES, TEXTS, document, hostile_text};

use super::author;
use crate::new::ok;

/// Texts in which each piece is in several places.
fn of_pieces() -> impl Iterator<Item = Vec<String>> {
    (0..12).map(|part| (0..TEXTS).map(|at| PIECES[(part * 17 + at * 5) % PIECES.len()].to_owned()).collect())
}

#[test]
fn what_hostile_documents_give_compiles() {
    let seed = std::env::var("COFFERDAM_OPENAPI_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let config = proptest::test_runner::Config { rng_seed: RngSeed::Fixed(seed), ..Default::default() };
    let texts = proptest::collection::vec(proptest::collection::vec(hostile_text(), TEXTS), 8);
    let random = texts.new_tree(&mut TestRunner::new(config)).unwrap().current();
    let all: Vec<_> = of_pieces().chain(random).collect();
    let author = author(&document(&all).to_string());
    let made = author.new_project(&["shop", "--openapi", "api.yaml"]);
    let carried = &made["carried_over"];
    let (exact, with_text) = (carried["exact"].as_u64(), carried["with_json_text"].as_u64());
    assert_eq!(exact.zip(with_text).map(|(one, other)| one + other), Some(2 * all.len() as u64), "{made}");
    let dir = author.work("shop");
    let built = author.command(&dir, &["build", "--format", "json", "--", "--locked"]).output().unwrap();
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(!said.contains("warning"), "COFFERDAM_OPENAPI_SEED={seed}: {said}");
    ok(&built);
    let tested = author.command(&dir, &["test"]).output().unwrap();
    let said = String::from_utf8_lossy(&tested.stdout).into_owned();
    assert!(tested.status.success(), "COFFERDAM_OPENAPI_SEED={seed}: {said}");
}
