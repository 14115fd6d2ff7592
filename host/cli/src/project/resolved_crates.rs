//! The crates that cargo resolves for a connector: where they are on this machine, and the names of those places in a
//! component that is the same on every machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::Deserialize;

use crate::toolchain::{self, ConnectorCrate};
use crate::{files, passphrase, sdk_files};

/// Arguments of `cargo build` that decide whether cargo may use the network or change `Cargo.lock`.
const RESOLVING: [&str; 3] = ["--offline", "--locked", "--frozen"];

/// The names of directories in messages of a component's panics.
const REGISTRY: &str = "/cargo/registry";
const CHECKOUTS: &str = "/cargo/git";
const LOCAL: &str = "/local";
const BUILD: &str = "/build";

/// The answer of `cargo metadata` with every dependency. Cargo downloads what is missing.
#[derive(Debug, Deserialize)]
pub(super) struct ResolvedCrates {
    packages: Vec<ResolvedCrate>,
    workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
struct ResolvedCrate {
    name: String,
    manifest_path: PathBuf,
    /// None for a crate at a path.
    source: Option<String>,
}

impl ResolvedCrates {
    /// Asks cargo; none if it cannot say, which the build will report.
    pub(super) async fn look_up(found: &ConnectorCrate, args: &[OsString]) -> Option<Self> {
        let resolving = args.iter().filter(|arg| RESOLVING.iter().any(|known| *arg == *known));
        let mut command = tokio::process::Command::new(toolchain::cargo());
        command.env_remove(passphrase::VARIABLE);
        command.args(["metadata", "--format-version", "1", "--filter-platform", toolchain::TARGET]);
        command.arg("--manifest-path").arg(&found.manifest).args(resolving);
        command.current_dir(files::parent(&found.manifest));
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.ok()?;
        output.status.success().then(|| Self::parse(&output.stdout))?
    }

    fn parse(metadata: &[u8]) -> Option<Self> {
        serde_json::from_slice(metadata).ok()
    }

    /// Returns the crates in the directory of the workspace, each with its `Cargo.toml`. Cargo knows crates elsewhere by
    /// their whole path or their registry.
    pub(super) fn in_workspace(&self) -> BTreeMap<String, PathBuf> {
        let local = self.packages.iter().filter(|it| it.manifest_path.starts_with(&self.workspace_root));
        local.map(|it| (it.name.clone(), it.manifest_path.clone())).collect()
    }

    /// Returns the arguments of rustc that replace directories of this machine, so that a component does not depend on
    /// them. `build` is the directory of cargo's intermediate files.
    ///
    /// They are the same for all connectors that share it, since a build with other arguments compiles every dependency
    /// again. Crates in the workspace need none: cargo names their files relative to it.
    pub(super) fn remapping(&self, build: &Path) -> Vec<String> {
        let mut names = BTreeMap::from([(build.to_owned(), BUILD.to_owned())]);
        if let Some(sdk) = sdk_files::source_tree().map(PathBuf::from) {
            names.insert(sdk.join("macro"), format!("{LOCAL}/cofferdam-guest-macro"));
            names.insert(sdk, format!("{LOCAL}/cofferdam-guest"));
        }
        for one in &self.packages {
            let dir = files::parent(&one.manifest_path);
            match &one.source {
                None if dir.starts_with(&self.workspace_root) => continue,
                None => names.insert(dir.to_owned(), format!("{LOCAL}/{}", one.name)),
                Some(source) if source.starts_with("git+") => {
                    let checkouts = dir.ancestors().find(|dir| dir.ends_with("git/checkouts"));
                    checkouts.and_then(|checkouts| names.insert(checkouts.to_owned(), CHECKOUTS.to_owned()))
                }
                Some(_) => names.insert(files::parent(dir).to_owned(), REGISTRY.to_owned()),
            };
        }
        // rustc takes the last one that fits: the innermost.
        let names = names.iter().filter_map(|(path, name)| Some((path.to_str()?, name)));
        names.map(|(path, name)| format!("--remap-path-prefix={path}={name}")).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    const METADATA: &[u8] = br#"{"workspace_root": "/w", "packages": [
        {"name": "serde", "source": "registry+https://x", "manifest_path": "/c/registry/src/x-1/serde-1.0.0/Cargo.toml"},
        {"name": "own", "source": "git+https://x", "manifest_path": "/c/git/checkouts/own-1/2/sub/Cargo.toml"},
        {"name": "near", "source": null, "manifest_path": "/ww/Cargo.toml"},
        {"name": "weather", "source": null, "manifest_path": "/w/Cargo.toml"}]}"#;

    #[test]
    fn crates_outside_the_workspace_have_no_owner() {
        let crates = ResolvedCrates::parse(METADATA).unwrap().in_workspace();
        assert_eq!(crates.into_iter().collect::<Vec<_>>(), [("weather".to_owned(), "/w/Cargo.toml".into())]);
    }

    #[test]
    fn directories_of_this_machine_are_replaced() {
        let arguments = ResolvedCrates::parse(METADATA).unwrap().remapping(Path::new("/b"));
        for expected in [
            "/b=/build",
            "/c/registry/src/x-1=/cargo/registry",
            "/c/git/checkouts=/cargo/git",
            "/ww=/local/near",
        ] {
            let expected = format!("--remap-path-prefix={expected}");
            assert!(arguments.contains(&expected), "{expected}: {arguments:?}");
        }
        assert!(!arguments.iter().any(|argument| argument.contains("/w=")), "{arguments:?}");
    }
}
