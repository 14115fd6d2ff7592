//! The build directory that all connectors in Rust share, so that the crates that they depend on are compiled once.
//!
//! Only cargo's intermediate files are in it; each project keeps its own `target`. A cargo that cannot separate the
//! two (before 1.91) ignores the setting, and so builds in the project.
//!
//! Cargo names the intermediate files of a crate in a workspace by its path *within* the workspace: two connectors
//! with one name would be the same to it, and so would two vendored copies of the SDK. Therefore the directory has, for
//! each crate in the directory of a workspace, a record of the `Cargo.toml` that was built last; a build of another one
//! first removes what cargo knows about the crate.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::private_file;
use etcetera::BaseStrategy as _;

use super::resolved_crates::ResolvedCrates;
use crate::toolchain::{self, ConnectorCrate};
use crate::ui::Ui;
use crate::{files, progress};

/// The subdirectory with the records: a file for each crate, with the path of its `Cargo.toml`.
const OWNERS: &str = "owners";

/// The shared build directory, reserved for one build.
pub(super) struct SharedBuild {
    dir: PathBuf,
    _turn: File,
}

impl SharedBuild {
    /// The variable that names cargo's directory for intermediate files.
    pub(super) const VARIABLE: &str = "CARGO_BUILD_BUILD_DIR";

    /// Waits for other builds, and reserves the directory for the crate. None if the crate is not to be built there:
    /// it is a part of a larger workspace, the author chose another directory, or there is no place for it.
    pub(super) async fn enter(
        ui: &Ui,
        found: &ConnectorCrate,
        resolved: Option<&ResolvedCrates>,
    ) -> Option<Self> {
        let resolved = resolved.filter(|_| found.builds_in_its_own_target())?;
        let crates = resolved.in_workspace();
        let work = async {
            let dir = directory(&toolchain::target_libdir(files::parent(&found.manifest)).ok()?)?;
            tokio::task::spawn_blocking(move || reserve(dir, &crates)).await.ok()
        };
        match progress::during(ui, "preparing the build", work).await? {
            Ok(shared) => Some(shared),
            Err(error) => {
                ui.note(&format!(
                    "the shared build directory cannot be used ({}); building in the project",
                    files::reason(&error)
                ));
                None
            }
        }
    }

    /// Returns the directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Returns the directory of all connectors that are built with one toolchain. Two standard libraries of one version
/// look the same to cargo, so each has its own.
pub(crate) fn directory(libdir: &Path) -> Option<PathBuf> {
    let toolchain = Digest::sha256(libdir.as_os_str().as_encoded_bytes()).to_string();
    Some(root()?.join(toolchain.get(..12)?))
}

/// Returns the directory of the build directories: `$XDG_CACHE_HOME/cofferdam/build`.
pub(crate) fn root() -> Option<PathBuf> {
    Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("cofferdam/build"))
}

/// Takes the lock, and makes cargo forget the crates that were built from other sources.
fn reserve(dir: PathBuf, crates: &BTreeMap<String, PathBuf>) -> io::Result<SharedBuild> {
    // What is in it is linked into connectors: for this user only.
    private_file::create_dir(&dir.join(OWNERS))?;
    let turn = File::create(dir.join("lock"))?;
    turn.lock()?;
    for (name, manifest) in crates {
        let record = dir.join(OWNERS).join(name);
        let owner = manifest.as_os_str().as_encoded_bytes();
        if fs::read(&record).is_ok_and(|last| last == owner) {
            continue;
        }
        forget(&dir, name)?;
        fs::write(record, owner)?;
    }
    Ok(SharedBuild { dir, _turn: turn })
}

/// Removes what cargo knows about the crates with this name, for every target and profile.
fn forget(dir: &Path, name: &str) -> io::Result<()> {
    for outer in directories(dir) {
        for profile in directories(&outer).chain([outer.clone()]) {
            for unit in directories(&profile.join(".fingerprint")).filter(|unit| is_unit_of(unit, name)) {
                fs::remove_dir_all(unit)?;
            }
            // Newer versions of cargo have all about a crate in one directory.
            let whole = profile.join("build").join(name);
            if whole.is_dir() {
                fs::remove_dir_all(whole)?;
            }
        }
    }
    Ok(())
}

fn directories(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = dir.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir())
}

/// Returns whether the directory is named like a unit of the crate: `weather-0123456789abcdef`.
fn is_unit_of(unit: &Path, name: &str) -> bool {
    let file = unit.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let hash = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    hash.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    const HASH: &str = "0123456789abcdef";

    fn units(dir: &Path) -> Vec<PathBuf> {
        let units = ["release", "wasm32-wasip2/release"].into_iter().flat_map(|profile| {
            ["weather", "weather-2", "serde"]
                .map(|name| dir.join(format!("{profile}/.fingerprint/{name}-{HASH}")))
        });
        units.chain([dir.join("wasm32-wasip2/release/build/weather")]).collect()
    }

    #[test]
    fn another_crate_of_the_same_name_is_forgotten() {
        let cache = tempfile::tempdir().unwrap();
        let dir = cache.path().join("build");
        let crates = |path: &str| BTreeMap::from([("weather".to_owned(), PathBuf::from(path))]);
        drop(reserve(dir.clone(), &crates("/a/Cargo.toml")).unwrap());
        let make = || units(&dir).iter().for_each(|unit| fs::create_dir_all(unit).unwrap());
        make();
        drop(reserve(dir.clone(), &crates("/a/Cargo.toml")).unwrap());
        assert!(units(&dir).iter().all(|unit| unit.exists()), "its own build is kept");
        drop(reserve(dir.clone(), &crates("/b/Cargo.toml")).unwrap());
        let kept: Vec<_> = units(&dir).into_iter().filter(|unit| unit.exists()).collect();
        let others = |unit: &PathBuf| {
            unit.to_string_lossy().contains("weather-2-") || unit.ends_with(format!("serde-{HASH}"))
        };
        assert_eq!(kept.len(), 4);
        assert!(kept.iter().all(others), "{kept:?}");
        make();
        drop(reserve(dir.clone(), &crates("/a/Cargo.toml")).unwrap());
        assert_eq!(units(&dir).iter().filter(|unit| unit.exists()).count(), 4, "and back again");
    }

    #[test]
    fn each_toolchain_has_its_own_directory() {
        let [one, two] = ["/rust/1/lib", "/rust/2/lib"].map(|path| directory(Path::new(path)));
        assert!(one.is_some() && one != two);
    }
}
