//! The sources of a rebuild, in a directory of their own: a clone of a repository, or a copy without ignored files.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use cofferdam_core::error::{HostError, HostErrorKind};

use crate::files;
use crate::layout::printable_line;
use crate::project::{git, git_output};
use crate::ui::Ui;

/// Names that a directory in no repository is copied without: what builds leave there.
const NO_SOURCES: [&str; 5] = [".git", ".cofferdam", "target", "node_modules", "__pycache__"];

/// Lines of git's output that an error repeats.
const OUTPUT_LINES: usize = 12;

/// Sources that were put in a directory.
pub(super) struct Checkout {
    /// The connector's directory.
    pub(super) connector: PathBuf,
    /// The commit; none for a copy of a directory as it is.
    pub(super) commit: Option<String>,
}

impl Checkout {
    /// Puts the sources in `to`, which does not exist. `directory` is that of the connector within a repository; by
    /// default that of `source`.
    pub(super) fn make(
        ui: &Ui,
        to: &Path,
        source: &str,
        commit: Option<String>,
        directory: Option<PathBuf>,
    ) -> Result<Self, HostError> {
        let path = Path::new(source);
        if !path.is_dir() {
            let commit = clone(ui, source, to, commit.as_deref())?;
            return Self::in_repository(to, directory.unwrap_or_default(), Some(commit));
        }
        let path = path.canonicalize().map_err(|error| files::unreadable("The directory", path, error))?;
        let is_bare =
            git_output(&path, &["rev-parse", "--is-bare-repository"]).is_some_and(|it| it == "true");
        let root =
            git_output(&path, &["rev-parse", "--show-toplevel"]).filter(|_| !is_bare).map(PathBuf::from);
        let within = |root: &Path| path.strip_prefix(root).unwrap_or(Path::new("")).to_owned();
        match (commit, root) {
            (None, root) if !is_bare => {
                ui.note(&format!("copying {}", files::shown(&path)));
                let root = root.unwrap_or_else(|| path.clone());
                let copied = copy(&root, to);
                copied.map_err(|error| files::unreadable("The directory", &root, error))?;
                Self::in_repository(to, within(&root), None)
            }
            (commit, root) => {
                let directory = directory.unwrap_or_else(|| root.as_deref().map(within).unwrap_or_default());
                let repository = root.unwrap_or(path);
                let commit = clone(ui, &repository.to_string_lossy(), to, commit.as_deref())?;
                Self::in_repository(to, directory, Some(commit))
            }
        }
    }

    fn in_repository(to: &Path, directory: PathBuf, commit: Option<String>) -> Result<Self, HostError> {
        let is_below =
            directory.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_below {
            let message = format!("{} is not a directory of the repository.", files::shown(&directory));
            return Err(HostError::new(HostErrorKind::Validation, message)
                .with_hint("Name the connector's directory from the root of the repository."));
        }
        Ok(Self { connector: to.join(directory), commit })
    }
}

/// Clones a repository without its hooks, and checks `commit` out; its whole hash.
fn clone(ui: &Ui, source: &str, to: &Path, commit: Option<&str>) -> Result<String, HostError> {
    ui.note(&format!("cloning {source}"));
    let mut command = Command::new("git");
    command.args(["clone", "--quiet", "--no-checkout", "--"]).arg(source).arg(to);
    let named = format!("The repository {source} cannot be cloned.");
    run_git(command, &named, "Check its address, and that git can read it without a question.")?;
    let revision = format!("{}^{{commit}}", commit.unwrap_or("HEAD"));
    let parse = ["rev-parse", "--verify", "--quiet", "--end-of-options", &revision];
    let of_branch = || {
        let revision = format!("refs/remotes/origin/{revision}");
        git_output(to, &["rev-parse", "--verify", "--quiet", "--end-of-options", &revision])
    };
    let hash = git_output(to, &parse).or_else(of_branch).ok_or_else(|| {
        let message = format!("The repository has no commit {}.", commit.unwrap_or("HEAD"));
        HostError::new(HostErrorKind::InputUnreadable, message)
            .with_hint("Name a commit, a tag or a branch with --commit.")
    })?;
    let mut command = git(to);
    command.args(["-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--detach", &hash]);
    run_git(command, &format!("The commit {hash} cannot be checked out."), "Check the space on the disk.")?;
    Ok(hash)
}

fn run_git(mut command: Command, message: &str, hint: &str) -> Result<(), HostError> {
    // No question for a password: this command does not wait for one.
    command.env("GIT_TERMINAL_PROMPT", "0").env_remove(crate::passphrase::VARIABLE);
    let output = command.output().map_err(|error| {
        HostError::new(HostErrorKind::Tool, format!("git cannot be started: {}.", files::reason(&error)))
            .with_hint("Install git, and see that it is on the PATH.")
            .with_source(error)
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: String =
        said.lines().take(OUTPUT_LINES).map(|line| format!("\n{}", printable_line(line, 300))).collect();
    Err(HostError::new(HostErrorKind::Tool, message).with_hint(format!("{hint} It said:{lines}")))
}

/// Copies the files of `from`: those that its repository does not ignore, or all that no build left there.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let listed = git(from).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).output();
    let Some(listed) = listed.ok().filter(|output| output.status.success()) else {
        return copy_all(from, to);
    };
    use std::os::unix::ffi::OsStrExt as _;
    for name in listed.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = Path::new(std::ffi::OsStr::from_bytes(name));
        copy_one(&from.join(name), &to.join(name))?;
    }
    Ok(())
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if NO_SOURCES.iter().any(|no| name == *no) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &to.join(name))?,
            false => copy_one(&entry.path(), &to.join(name))?,
        }
    }
    Ok(())
}

/// Copies a file or a link; one that was removed and is still in the index is left out.
fn copy_one(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(metadata) = from.symlink_metadata() else { return Ok(()) };
    fs::create_dir_all(files::parent(to))?;
    if metadata.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    // A directory in the index is another repository: a submodule.
    match metadata.is_dir() {
        true => copy_all(from, to),
        false => fs::copy(from, to).map(drop),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn git_in(dir: &Path, args: &[&str]) {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        assert!(git(dir).args(identity).args(args).output().unwrap().status.success(), "{args:?}");
    }

    /// A repository with one commit and a later change, an ignored file and an untracked one.
    fn repository(dir: &Path) {
        git_in(dir, &["init", "--quiet"]);
        fs::create_dir_all(dir.join("slack")).unwrap();
        fs::write(dir.join(".gitignore"), "target\n").unwrap();
        fs::write(dir.join("slack/connector.toml"), "one").unwrap();
        git_in(dir, &["add", "."]);
        git_in(dir, &["commit", "--quiet", "--message", "one"]);
        fs::write(dir.join("slack/connector.toml"), "two").unwrap();
        fs::write(dir.join("slack/new"), "").unwrap();
        fs::create_dir_all(dir.join("target")).unwrap();
        fs::write(dir.join("target/x"), "").unwrap();
    }

    #[test]
    fn a_directory_is_copied_without_ignored_files() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        repository(from.path());
        let source = from.path().join("slack");
        let to = to.path().join("source");
        let made = Checkout::make(&Ui::silent(), &to, source.to_str().unwrap(), None, None).unwrap();
        assert_eq!((made.connector.clone(), made.commit), (to.join("slack"), None));
        assert_eq!(fs::read_to_string(made.connector.join("connector.toml")).unwrap(), "two");
        assert!(made.connector.join("new").exists());
        assert!(!to.join("target").exists() && !to.join(".git").exists());
    }

    #[test]
    fn a_commit_is_cloned_as_it_was() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        repository(from.path());
        let head = git_output(from.path(), &["rev-parse", "HEAD"]).unwrap();
        let source = from.path().join("slack").to_str().unwrap().to_owned();
        let url = format!("file://{}", from.path().display());
        for (at, source, directory) in [("a", &source, None), ("b", &url, Some("slack".into()))] {
            let to = to.path().join(at);
            let made = Checkout::make(&Ui::silent(), &to, source, Some("HEAD".into()), directory).unwrap();
            assert_eq!((made.connector.clone(), made.commit), (to.join("slack"), Some(head.clone())));
            assert_eq!(fs::read_to_string(made.connector.join("connector.toml")).unwrap(), "one");
            assert!(!made.connector.join("new").exists());
        }
        let make = |at: &str, source: &str, commit: &str, directory: Option<&str>| {
            let directory = directory.map(PathBuf::from);
            Checkout::make(&Ui::silent(), &to.path().join(at), source, Some(commit.into()), directory)
        };
        let error = make("c", &source, "--upload-pack=x", None).err().unwrap();
        assert!(error.message().contains("no commit"), "{error}");
        let error = make("d", &url, &head, Some("../..")).err().unwrap();
        assert!(error.message().contains("not a directory of the repository"), "{error}");
        let error = make("e", "file:///no/such/repository", &head, None).err().unwrap();
        assert!(error.message().contains("cannot be cloned"), "{error}");
    }

    #[test]
    fn without_a_repository_build_results_stay_behind() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(from.path().join(".cargo")).unwrap();
        fs::create_dir_all(from.path().join("target")).unwrap();
        fs::write(from.path().join(".cargo/config.toml"), "").unwrap();
        copy_all(from.path(), to.path()).unwrap();
        assert!(to.path().join(".cargo/config.toml").exists() && !to.path().join("target").exists());
    }
}
