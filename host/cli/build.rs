//! The build script of the command: embeds the guest SDK and the contract's WIT, so that `cofferdam new` and
//! `cofferdam build` need no copy of this repository.

#[path = "../failpoints.rs"]
mod failpoints;

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The parts of this repository that a vendored SDK has, besides a workspace manifest.
const PARTS: [&str; 3] = ["LICENSE", "guest-sdk", "wit"];

/// The sections of the workspace's manifest that the SDK's crates inherit from.
const INHERITED: [&str; 3] = ["[workspace.package]", "[workspace.lints.rust]", "[workspace.lints.clippy]"];

fn main() -> Result<(), Box<dyn Error>> {
    failpoints::main();
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize()?;
    let mut files = Vec::new();
    for part in PARTS {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
        collect(&root.join(part), &mut files)?;
    }
    files.sort();
    let manifest = root.join("Cargo.toml");
    println!("cargo::rerun-if-changed={}", manifest.display());

    let mut code = String::from("pub(crate) static FILES: &[(&str, &str)] = &[\n");
    let workspace = workspace(&fs::read_to_string(&manifest)?);
    writeln!(code, "    (\"Cargo.toml\", {workspace:?}),")?;
    for file in files {
        let name = file.strip_prefix(&root)?.to_str().ok_or("a file's name is not UTF-8")?;
        let path = file.to_str().ok_or("the path of the repository is not UTF-8")?;
        writeln!(code, "    ({name:?}, include_str!({path:?})),")?;
    }
    code.push_str("];\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("sdk_files.rs"), code)?;
    Ok(())
}

/// Adds the files below `path`, but not those that builds and editors leave there.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let text = name.to_str().unwrap_or_default();
        let is_source = !text.starts_with('.') && !["target", "__pycache__", "node_modules"].contains(&text);
        if is_source && text != "Cargo.lock" {
            collect(&path.join(&name), files)?;
        }
    }
    Ok(())
}

/// Returns a workspace manifest for the SDK alone.
fn workspace(manifest: &str) -> String {
    let mut text = String::from(
        "# The guest SDK of cofferdam, as it was when this copy was made; see guest-sdk/src/lib.rs.\n\
         [workspace]\nresolver = \"3\"\nmembers = [\"guest-sdk\", \"guest-sdk/macro\"]\n",
    );
    let mut inherited = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            inherited = INHERITED.contains(&line);
            if inherited {
                text.push('\n');
            }
        }
        if inherited && !line.is_empty() {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
