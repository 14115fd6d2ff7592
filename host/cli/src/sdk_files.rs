//! The guest SDK and the contract's WIT: embedded in this program, and where they came from.

use std::io;
use std::path::Path;

include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));

/// The prefix of the contract's WIT files.
const WIT: &str = "wit/";

/// The prefix of the SDK's files, and of those among them that are for other languages than Rust.
const SDK: &str = "guest-sdk/";
const OTHER_LANGUAGES: [&str; 2] = ["guest-sdk/python/", "guest-sdk/javascript/"];

/// Returns the path of the SDK in the source tree that this program was built from, if the tree is still there.
pub(super) fn source_tree() -> Option<String> {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?.join(SDK.trim_end_matches('/'));
    // Another version of the tree may have another version of the contract.
    let manifest = std::fs::read_to_string(sdk.join("Cargo.toml")).ok()?;
    let same = FILES.iter().any(|(name, text)| *name == "guest-sdk/Cargo.toml" && *text == manifest);
    sdk.to_str().filter(|_| same).map(ToOwned::to_owned)
}

/// Returns the files of the Rust SDK, which has the contract's WIT inside: (path, text), in one Cargo workspace.
pub(super) fn sdk() -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_rust = |name: &str| !OTHER_LANGUAGES.iter().any(|prefix| name.starts_with(prefix));
    FILES.iter().copied().filter(move |(name, _)| is_rust(name))
}

/// Returns the SDK's files for a language that needs no toolchain of its own for it: (name, text).
pub(super) fn of_language(language: &str) -> impl Iterator<Item = (String, String)> {
    let prefix = format!("{SDK}{language}/");
    let named = FILES.iter().filter_map(move |(path, text)| Some((path.strip_prefix(&prefix)?, *text)));
    named.map(|(name, text)| (name.to_owned(), text.to_owned()))
}

/// Writes the contract's WIT as `deps` of a WIT directory.
pub(super) fn write_contract(wit: &Path) -> io::Result<()> {
    for (name, text) in FILES {
        let Some(name) = name.strip_prefix(WIT).filter(|name| name.ends_with(".wit")) else { continue };
        let path = match name.strip_prefix("deps/") {
            Some(name) => wit.join("deps").join(name),
            None => wit.join("deps/cofferdam").join(name),
        };
        write(&path, text)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    std::fs::create_dir_all(super::files::parent(path))?;
    std::fs::write(path, text)
}
