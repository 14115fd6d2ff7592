//! The source directory of a connector: its language, and the way from its sources to a component.
//!
//! The language is that of the file that is there: `Cargo.toml`, `app.py` or `app.js`. Nothing in the manifest
//! says how a connector was built, because the manifest is embedded in the package and is the same for everybody.

mod javascript;
mod provenance;
mod python;
mod resolved_crates;
mod rust;
mod shared_build;
mod tool;
mod tool_process;
mod wit_dir;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::manifest::Manifest;
use cofferdam_model::package::{self, WitOutline};
use cofferdam_model::trust::{
    DependencyRecord, Provenance, ProvenanceError, ProvenanceRecord, SourceRecord, ToolRecord,
};

use super::commands::packaging;
use super::files;
use super::toolchain::{self, ConnectorCrate};
use super::ui::Ui;
pub(super) use javascript::is_new_enough as is_node_new_enough;
pub(super) use provenance::{git, git_output};
pub(super) use shared_build::root as shared_build_root;
use tool::ToolDirectory;

/// The manifest's file name.
const MANIFEST: &str = "connector.toml";

/// The files that decide a project's language.
const CARGO_TOML: &str = "Cargo.toml";
const APP_PY: &str = "app.py";
const APP_JS: &str = "app.js";

/// The purpose of a build.
pub(super) enum BuildPurpose<'a> {
    /// A package that ships; these are further arguments of `cargo build`.
    Package(&'a [OsString]),
    /// A build that is called at once: quick to compile, with the lines of the source for panics and traps. The messages
    /// of cargo, with this `--color`, are passed on line by line.
    Development { color: &'a str, message: &'a (dyn Fn(&str) + Sync) },
}

/// A component, and what it was made with.
#[derive(Debug)]
pub(super) struct BuiltComponent {
    path: PathBuf,
    tools: Vec<ToolRecord>,
    dependencies: Vec<DependencyRecord>,
}

impl BuiltComponent {
    /// Reads the component, without the names that the linker leaves in it.
    ///
    /// # Errors
    /// The file cannot be read, or is no component.
    pub(super) fn read(&self) -> Result<Vec<u8>, HostError> {
        Ok(package::strip_names(&files::read_package(&self.path)?)?)
    }

    /// Returns the provenance of a package of the component, made from `source`.
    pub(super) fn provenance(self, source: Option<SourceRecord>) -> Result<Provenance, ProvenanceError> {
        let own = ToolRecord { name: "cofferdam".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        Provenance::try_from(ProvenanceRecord {
            source,
            tools: std::iter::once(own).chain(self.tools).collect(),
            target: toolchain::TARGET.to_owned(),
            dependencies: self.dependencies,
        })
    }
}

/// A connector's source directory.
#[derive(Debug)]
pub(super) struct Project {
    dir: PathBuf,
    source: ProjectSource,
    manifest: Manifest,
    wit: Vec<(String, String)>,
}

/// The language of a project, and what its toolchain needs to know of it.
#[derive(Debug)]
enum ProjectSource {
    Rust(ConnectorCrate),
    Python(WitOutline),
    JavaScript(WitOutline),
}

/// A language that `cofferdam build` has a toolchain for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    Python,
    JavaScript,
}

impl Language {
    /// Returns its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
        }
    }

    /// Returns the language of the connector in `dir`; none if there is no source file of one.
    ///
    /// # Errors
    /// There are two.
    pub(super) fn of(dir: &Path) -> Result<Option<Self>, HostError> {
        let there = |name: &str| dir.join(name).is_file();
        match (there(CARGO_TOML), there(APP_PY), there(APP_JS)) {
            (true, ..) => Ok(Some(Self::Rust)),
            (_, true, true) => {
                let message = format!("{} has both {APP_PY} and {APP_JS}.", files::shown(dir));
                Err(HostError::new(HostErrorKind::Validation, message).with_hint(
                    "A connector is written in one language: rename the file that is not its source.",
                ))
            }
            (_, true, _) => Ok(Some(Self::Python)),
            (.., true) => Ok(Some(Self::JavaScript)),
            _ => Ok(None),
        }
    }
}

impl Project {
    /// Opens the project in `dir`. Simple faults are found here, before minutes of compiling.
    ///
    /// # Errors
    /// A file is missing or invalid, or the toolchain of the language is incomplete.
    pub(super) fn open(dir: &Path) -> Result<Self, HostError> {
        let language = Language::of(dir)?.ok_or_else(|| no_source(dir))?;
        let found = match language {
            Language::Rust => Some(toolchain::find_crate(dir)?),
            Language::Python | Language::JavaScript => None,
        };
        let manifest = packaging::read_manifest(&dir.join(MANIFEST))?;
        let wit = packaging::read_wit(&wit_files(dir)?)?;
        let outline = match wit.is_empty() {
            true => None,
            false => Some(WitOutline::parse(&wit)?),
        };
        let source = match (language, found) {
            (Language::Rust, Some(found)) => {
                toolchain::check_target(dir)?;
                ProjectSource::Rust(found)
            }
            (Language::Python, _) => ProjectSource::Python(outline.ok_or_else(|| no_wit(dir))?),
            (_, _) => ProjectSource::JavaScript(outline.ok_or_else(|| no_wit(dir))?),
        };
        let dir = dir.canonicalize().map_err(|error| files::unreadable("The directory", dir, error))?;
        Ok(Self { dir, source, manifest, wit })
    }

    /// Returns its directory, absolute.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the revision of the sources; none if they are in no git repository.
    pub(super) fn source(&self) -> Option<SourceRecord> {
        provenance::source(&self.dir, MANIFEST)
    }

    /// Builds in `target`, with nothing of another build. Python and JavaScript build in the project itself.
    pub(super) fn build_in(&mut self, target: &Path) {
        if let ProjectSource::Rust(found) = &mut self.source {
            found.build_in(target);
        }
    }

    /// Returns the manifest.
    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the author's WIT files, each with the name that messages call it by.
    pub(super) fn wit(&self) -> &[(String, String)] {
        &self.wit
    }

    /// Returns the file of the package, if the author names none; its directory is made.
    pub(super) fn package_path(&self) -> Result<PathBuf, HostError> {
        let target = match &self.source {
            ProjectSource::Rust(found) => found.target_directory.clone(),
            ProjectSource::Python(_) | ProjectSource::JavaScript(_) => self.dir.join("target"),
        };
        let dir = target.join("cofferdam");
        make_writable(&dir)?;
        Ok(dir.join(packaging::file_name(self.manifest.name(), self.manifest.version())))
    }

    /// Builds the component. Dropping the future ends the compiler.
    ///
    /// # Errors
    /// The toolchain is missing or cannot be installed, or it refuses the sources.
    pub(super) async fn build(
        &self,
        ui: &Ui,
        purpose: BuildPurpose<'_>,
    ) -> Result<BuiltComponent, HostError> {
        let has_cargo_args = matches!(purpose, BuildPurpose::Package(args) if !args.is_empty());
        if has_cargo_args && !matches!(self.source, ProjectSource::Rust(_)) {
            let message =
                "The arguments after `--` are for cargo, and this connector is not written in Rust.";
            return Err(HostError::new(HostErrorKind::Validation, message).with_hint("Leave them out."));
        }
        match &self.source {
            ProjectSource::Rust(found) => rust::build(ui, &self.dir, found, purpose).await,
            ProjectSource::Python(outline) => {
                python::build(ui, &ToolDirectory::open(ui, &self.dir).await?, outline).await
            }
            ProjectSource::JavaScript(outline) => {
                javascript::build(ui, &ToolDirectory::open(ui, &self.dir).await?, outline).await
            }
        }
    }
}

/// Makes a directory that a build writes to, if it is not there.
fn make_writable(dir: &Path) -> Result<(), HostError> {
    std::fs::create_dir_all(dir).map_err(|error| unwritable(dir, error))?;
    match rustix::fs::access(dir, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Ok(()),
        Err(error) => Err(unwritable(dir, error.into())),
    }
}

/// The error for a directory in the project that a build cannot write to: no option names another one.
fn unwritable(dir: &Path, error: std::io::Error) -> HostError {
    files::unwritable(dir, error).with_hint("Build in a copy of the project that this user can write to.")
}

fn no_source(dir: &Path) -> HostError {
    let message = format!("There is no connector in {}.", files::shown(dir));
    HostError::new(HostErrorKind::InputUnreadable, message).with_hint(format!(
        "Run this in the directory with its {CARGO_TOML}, {APP_PY} or {APP_JS}; `cofferdam new` makes one. For other \
         languages, build a component with their own tools and use `cofferdam pack`."
    ))
}

fn no_wit(dir: &Path) -> HostError {
    let message = format!("There is no WIT file in {}.", files::shown(&dir.join("wit")));
    HostError::new(HostErrorKind::InputUnreadable, message)
        .with_hint("Write the operations as an interface in wit/NAME.wit; `cofferdam new` makes an example.")
}

/// The author's own WIT: `wit/*.wit`, and not the packages in `wit/deps`.
fn wit_files(dir: &Path) -> Result<Vec<PathBuf>, HostError> {
    let wit = dir.join("wit");
    let entries = match wit.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(files::unreadable("The directory", &wit, error)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|it| it == "wit")).collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::fs;

    use super::*;

    #[test]
    fn the_language_is_that_of_the_source_file() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Language::of(dir.path()).unwrap(), None);
        let error = Project::open(dir.path()).unwrap_err();
        assert!(error.hint().unwrap().contains("cofferdam new"), "{error}");
        fs::write(dir.path().join(APP_JS), "").unwrap();
        assert_eq!(Language::of(dir.path()).unwrap(), Some(Language::JavaScript));
        fs::write(dir.path().join(APP_PY), "").unwrap();
        assert!(Language::of(dir.path()).unwrap_err().message().contains("both"));
        fs::remove_file(dir.path().join(APP_JS)).unwrap();
        assert_eq!(Language::of(dir.path()).unwrap(), Some(Language::Python));
        fs::write(dir.path().join(CARGO_TOML), "").unwrap();
        assert_eq!(Language::of(dir.path()).unwrap(), Some(Language::Rust));
    }

    #[test]
    fn a_script_without_wit_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(APP_PY), "").unwrap();
        fs::write(
            dir.path().join(MANIFEST),
            "[connector]\nname = \"github://acme/a\"\nversion = \"0.1.0\"\n",
        )
        .unwrap();
        assert!(Project::open(dir.path()).unwrap_err().message().contains("no WIT file"));
        fs::create_dir(dir.path().join("wit")).unwrap();
        let wit = "package acme:a; interface a { use cofferdam:connector/types@0.2.0.{failure}; }";
        fs::write(dir.path().join("wit/a.wit"), wit).unwrap();
        let error = Project::open(dir.path()).unwrap_err();
        assert_eq!(error.kind(), HostErrorKind::ContractVersion);
        assert!(error.hint().unwrap().contains("types@0.1.0"), "{error}");
    }
}
