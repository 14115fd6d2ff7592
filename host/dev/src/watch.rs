//! Watches the files of a project.
//!
//! It polls: on every file system, in containers and over networks, without a limit on watches, a project of some
//! hundred files is looked through in less than a millisecond.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(150);

/// The time without a change after which a change is reported: editors and generators write several files.
const QUIET: Duration = Duration::from_millis(60);

/// The directories that are not looked into: what is built, what belongs to tools.
const IGNORED_DIRS: [&str; 6] = ["target", "node_modules", "__pycache__", "venv", ".venv", ".git"];

/// The endings of files in the directory of a project itself that a build or a test reads. The output of this very
/// command is often written there, and must not begin another build.
const ROOT_FILES: [&str; 11] = [
    ".toml",
    ".rs",
    ".wit",
    ".py",
    ".js",
    ".mjs",
    ".ts",
    ".yaml",
    ".yml",
    "package.json",
    "requirements.txt",
];

/// Standard output and standard error, as files.
const OWN_OUTPUT: [&str; 2] = ["/proc/self/fd/1", "/proc/self/fd/2"];

/// The deepest directory that is looked into, so that a link in a circle ends.
const MAX_DEPTH: usize = 16;

/// The most files of a project.
const MAX_FILES: usize = 20_000;

/// The state of a file: changed content has another one, also if the file was replaced by renaming another one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileState {
    fn new(metadata: &Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Self { inode: metadata.ino(), size: metadata.len(), modified }
    }
}

type Files = BTreeMap<PathBuf, FileState>;

/// Watches files and directories for changes.
#[derive(Debug)]
pub struct Watcher {
    paths: Vec<PathBuf>,
    known: Files,
    /// The files that this process writes its output to, by device and inode.
    own_output: Vec<(u64, u64)>,
}

impl Watcher {
    /// Watches `paths`: files, and directories with everything in them. A path need not exist.
    ///
    /// Build output (`target`, `node_modules`), hidden files, logs and temporary files of editors are ignored, and in the
    /// directories of `paths` themselves all files that are no source.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let paths: Vec<_> = paths.into_iter().collect();
        let own_output: Vec<_> = OWN_OUTPUT
            .iter()
            .filter_map(|stream| Path::new(stream).metadata().ok())
            .map(|file| (file.dev(), file.ino()))
            .collect();
        let known = look(&paths, &own_output);
        Self { paths, known, own_output }
    }

    /// Waits for a change, and until nothing more changes; returns the changed paths. A change since the last one that
    /// was reported is not missed. Dropping the future loses nothing.
    pub async fn changed(&mut self) -> Vec<PathBuf> {
        loop {
            let mut seen = self.look().await;
            if seen == self.known {
                tokio::time::sleep(INTERVAL).await;
                continue;
            }
            loop {
                tokio::time::sleep(QUIET).await;
                let now = self.look().await;
                if now == seen {
                    break;
                }
                seen = now;
            }
            // A file that was written and removed again is no change.
            let changed = differences(&self.known, &seen);
            self.known = seen;
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    async fn look(&self) -> Files {
        let (paths, own_output) = (self.paths.clone(), self.own_output.clone());
        let looked = tokio::task::spawn_blocking(move || look(&paths, &own_output));
        // Lost only while the runtime shuts down.
        looked.await.unwrap_or_else(|_| self.known.clone())
    }
}

fn differences(before: &Files, now: &Files) -> Vec<PathBuf> {
    let changed = now.iter().filter(|(path, state)| before.get(*path) != Some(state)).map(|(path, _)| path);
    let removed = before.keys().filter(|path| !now.contains_key(*path));
    let mut paths: Vec<_> = changed.chain(removed).cloned().collect();
    paths.sort();
    paths
}

fn look(paths: &[PathBuf], own_output: &[(u64, u64)]) -> Files {
    let mut files = Files::new();
    for path in paths {
        visit(path, 0, own_output, &mut files);
    }
    files
}

fn visit(path: &Path, depth: usize, own_output: &[(u64, u64)], files: &mut Files) {
    // Follows links: a project may have some of its files elsewhere.
    let Ok(metadata) = path.metadata() else { return };
    if files.len() >= MAX_FILES {
        return;
    }
    if own_output.contains(&(metadata.dev(), metadata.ino())) {
        return;
    }
    if !metadata.is_dir() {
        files.insert(path.to_owned(), FileState::new(&metadata));
        return;
    }
    if depth > MAX_DEPTH {
        return;
    }
    let Ok(entries) = path.read_dir() else { return };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        if !is_ignored(&name) && (depth > 0 || is_root_file(&name) || path.is_dir()) {
            visit(&path, depth + 1, own_output, files);
        }
    }
}

fn is_root_file(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ROOT_FILES.iter().any(|end| name.ends_with(end))
}

/// Returns whether the name is one of a build's output or of an editor's temporary file.
fn is_ignored(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    // Vim tests with `4913` whether it can write; a build writes `Cargo.lock`.
    let is_temporary = name.starts_with('.')
        || name == "Cargo.lock"
        || name.starts_with('#')
        || name.ends_with('~')
        || name == "4913"
        || [".swp", ".swx", ".swo", ".tmp", ".bak", ".orig", ".pyc", ".log"]
            .iter()
            .any(|end| name.ends_with(end));
    is_temporary || IGNORED_DIRS.contains(&name.as_ref())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::fs;

    use super::*;

    async fn changed(watcher: &mut Watcher) -> Vec<String> {
        let changed = tokio::time::timeout(Duration::from_secs(10), watcher.changed()).await.unwrap();
        changed.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[tokio::test]
    async fn saves_are_reported_once_and_noise_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().to_owned();
        fs::create_dir_all(project.join("src")).unwrap();
        fs::write(project.join("src/lib.rs"), "one").unwrap();
        let mut watcher = Watcher::new([project.clone()]);
        // As editors save: a new file takes the place of the old one.
        fs::write(project.join("src/lib.rs.tmp"), "one").unwrap();
        fs::rename(project.join("src/lib.rs.tmp"), project.join("src/lib.rs")).unwrap();
        fs::write(project.join("connector.toml"), "new").unwrap();
        assert_eq!(changed(&mut watcher).await, ["connector.toml", "lib.rs"]);
        for noise in [
            "target/x",
            ".git/index",
            "src/.lib.rs.swp",
            "src/lib.rs~",
            "src/4913",
            "src/a.log",
            "out",
            "calls.json",
        ] {
            fs::create_dir_all(project.join(noise).parent().unwrap()).unwrap();
            fs::write(project.join(noise), "noise").unwrap();
        }
        let more = tokio::time::timeout(Duration::from_millis(600), watcher.changed()).await;
        assert!(more.is_err(), "{more:?}");
        fs::remove_file(project.join("connector.toml")).unwrap();
        assert_eq!(changed(&mut watcher).await, ["connector.toml"]);
    }
}
