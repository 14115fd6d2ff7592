//! Checks for forgotten things: a test file without a module, a guest that no test calls.

use std::fs;

use cofferdam_test_support::package::repository;

use crate::shared_host::GUESTS;

/// The names of the entries of a directory of the repository that pass the filter `kept`.
fn names(dir: &str, kept: impl Fn(&fs::DirEntry) -> bool) -> Vec<String> {
    let entries = fs::read_dir(repository().join(dir)).unwrap().map(Result::unwrap).filter(kept);
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The text of all tests: every file below `tests`, but for what they stand on.
fn tests() -> String {
    fn read(dir: &str) -> String {
        let rust = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "rs");
        let folder = |entry: &fs::DirEntry| entry.path().is_dir() && entry.file_name() != "support";
        let files = names(dir, rust);
        let texts = files.iter().map(|file| fs::read_to_string(repository().join(dir).join(file)).unwrap());
        let folders = names(dir, folder);
        texts.chain(folders.iter().map(|folder| read(&format!("{dir}/{folder}")))).collect()
    }
    read("tests")
}

#[test]
fn every_test_file_is_a_module() {
    let main = fs::read_to_string(repository().join("tests/main.rs")).unwrap();
    for file in names("tests", |entry| entry.path().extension().is_some_and(|extension| extension == "rs")) {
        let module = file.trim_end_matches(".rs");
        let named = main.lines().any(|line| line == format!("mod {module};"));
        assert!(module == "main" || named, "tests/{file} runs nowhere: add `mod {module};` to tests/main.rs");
    }
}

#[test]
fn every_example_guest_is_called_by_a_test() {
    let guests = names("examples", |entry| entry.path().join("connector.toml").is_file());
    assert!(!guests.is_empty());
    let tests = tests();
    for guest in guests {
        // Those that cargo does not build are tried by `languages`, where their tools are.
        let in_world = GUESTS.iter().any(|(name, _)| *name == guest);
        let by_cargo = repository().join("examples").join(&guest).join("Cargo.toml").is_file();
        assert!(in_world || !by_cargo, "examples/{guest} is not in the tests' world");
        let called = ["value", "failure", "failure_within", "call"].iter().any(|how| {
            tests.contains(&format!(".{how}(\"{guest}\"")) || tests.contains(&format!("example(\"{guest}\")"))
        });
        assert!(called, "no test calls examples/{guest}");
    }
}

#[test]
fn every_example_operation_is_called_by_a_test() {
    let tests = tests();
    for (guest, package) in &crate::shared_host::shared_host().packages {
        let package = cofferdam_model::package::Package::open(package.clone()).unwrap();
        for operation in package.operations() {
            let name = operation.name().json();
            assert!(tests.contains(&format!("\"{name}\"")), "no test calls {name} of examples/{guest}");
        }
    }
}
