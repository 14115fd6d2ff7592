//! The example connectors as components, built from source on first use by a test or the tour.
//!
//! All are built together, by one cargo call in `examples/`, once per process; when nothing has changed that
//! call is all it costs. Not a build script: it would hide its progress, and a host that is only compiled needs no
//! wasm at all. `wasm-target.sh` provides the target.

mod build;
mod error;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use error::GuestError;

/// The component of the example connector `name` (its folder in `examples/`), without a manifest packed in.
///
/// The first call of a process builds all of them, and prints a message on stderr if that takes long. Processes
/// take turns.
///
/// # Errors
///
/// When there is no such example, when this machine cannot compile for wasm, when the build fails.
pub fn component(name: &str) -> Result<PathBuf, GuestError> {
    static BUILT: OnceLock<Result<PathBuf, GuestError>> = OnceLock::new();

    let known = names()?;
    if !known.iter().any(|one| one == name) {
        return Err(GuestError::Unknown { name: name.to_owned(), known });
    }
    let folder = BUILT.get_or_init(|| build::all(&examples(), &known)).clone()?;
    Ok(folder.join(file(name)))
}

/// The folder of the example connector `name`: `connector.toml`, `wit/`, `src/`.
///
/// # Errors
///
/// When there is no such example.
pub fn folder(name: &str) -> Result<PathBuf, GuestError> {
    let known = names()?;
    if known.iter().any(|one| one == name) {
        return Ok(examples().join(name));
    }
    Err(GuestError::Unknown { name: name.to_owned(), known })
}

/// All example connectors that cargo builds, sorted: what a test that each of them is tested goes through.
///
/// # Errors
///
/// When `examples/` cannot be read.
pub fn names() -> Result<Vec<String>, GuestError> {
    let examples = examples();
    let unreadable = |error: std::io::Error| GuestError::io("read", &examples, &error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&examples).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        // The SDK is a link.
        let is_link = entry.path().is_symlink();
        if !is_link && entry.path().join("Cargo.toml").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Cargo's file name for the component of a package.
fn file(name: &str) -> String {
    format!("{}.wasm", name.replace('-', "_"))
}

/// The workspace of the guests, found from where this crate is.
fn examples() -> PathBuf {
    support().ancestors().nth(2).unwrap_or(Path::new("/")).join("examples")
}

fn support() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, clippy::panic, reason = "a test")]

    use super::*;

    #[test]
    fn an_unknown_guest_is_named_with_the_known_ones() {
        let error = component("hallo").expect_err("there is none").to_string();
        assert!(error.contains("`hallo`") && error.contains("hello"), "{error}");
    }

    #[test]
    fn every_guest_is_a_component() {
        for name in names().expect("examples/") {
            let path = component(&name).unwrap_or_else(|error| panic!("{error}"));
            let bytes = std::fs::read(&path).expect("a file");
            assert!(bytes.starts_with(b"\0asm\x0d\0\x01\0"), "{} is no component", path.display());
        }
    }

    #[test]
    fn every_member_of_the_workspace_is_a_guest() {
        let workspace = std::fs::read_to_string(examples().join("Cargo.toml")).expect("examples/Cargo.toml");
        let members = workspace.lines().find(|line| line.starts_with("members")).expect("members");
        for name in names().expect("examples/") {
            assert!(members.contains(&format!("\"{name}\"")), "{name} is not in {members}");
        }
        assert_eq!(members.matches('"').count() / 2, names().expect("examples/").len());
    }
}
