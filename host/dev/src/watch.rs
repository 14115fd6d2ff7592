//! Waits for changes of a project's sources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use notify::event::{EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

/// The silence after which a change is complete: editors write a file in several steps.
const QUIET: Duration = Duration::from_millis(40);

/// Directories that builds write, and that are no sources.
const OUTPUTS: [&str; 4] = ["target", "node_modules", "__pycache__", "vendor"];

/// Watches the sources of one project directory.
pub struct SourceWatcher {
    root: PathBuf,
    watcher: RecommendedWatcher,
    changes: UnboundedReceiver<PathBuf>,
}

impl SourceWatcher {
    /// Watches `root` and the directories in it, except hidden ones and those with build output.
    ///
    /// # Errors
    /// The directory cannot be read, or the system has no more watches for this user.
    pub fn new(root: &Path) -> Result<Self, HostError> {
        let (sender, changes) = unbounded_channel();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error of the watcher itself may have lost changes: it counts as one.
            let paths = match event {
                Ok(event) if is_change(&event.kind) => event.paths,
                Ok(_) => return,
                Err(_) => vec![PathBuf::from("?")],
            };
            for path in paths {
                // Fails only when the receiver is gone.
                drop(sender.send(path));
            }
        });
        let watcher = watcher.map_err(not_watched)?;
        let mut watching = Self { root: root.to_owned(), watcher, changes };
        watching.watcher.watch(root, RecursiveMode::NonRecursive).map_err(not_watched)?;
        for entry in root.read_dir().map_err(|error| not_watched(notify::Error::io(error)))?.flatten() {
            watching.watch_directory(&entry.path())?;
        }
        Ok(watching)
    }

    /// Waits for the next change of a source, and until no further one comes. Returns the changed paths, relative to the
    /// project's directory. Changes between two calls are not lost. It never returns if the watcher has ended.
    pub async fn changed(&mut self) -> BTreeSet<PathBuf> {
        let mut changed = BTreeSet::new();
        loop {
            let next = match changed.is_empty() {
                true => self.changes.recv().await,
                false => match timeout(QUIET, self.changes.recv()).await {
                    Ok(next) => next,
                    Err(_) => return changed,
                },
            };
            let Some(path) = next else {
                std::future::pending::<()>().await;
                continue;
            };
            let relative = path.strip_prefix(&self.root).unwrap_or(&path);
            if is_source(relative) {
                // A new directory: what is put into it later is watched, too.
                drop(self.watch_directory(&path));
                changed.insert(relative.to_owned());
            }
        }
    }

    /// Watches a directory of the project with everything in it, if it is one with sources.
    fn watch_directory(&mut self, path: &Path) -> Result<(), HostError> {
        let is_top = path.parent() == Some(&self.root);
        let named = path.strip_prefix(&self.root).is_ok_and(is_source);
        if !is_top || !named || !path.is_dir() {
            return Ok(());
        }
        self.watcher.watch(path, RecursiveMode::Recursive).map_err(not_watched)
    }
}

/// Returns whether an event may have changed a file's contents or its name.
fn is_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Modify(ModifyKind::Metadata(_)) | EventKind::Access(_) => false,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
}

/// Returns whether a path, relative to the project, may be a source: not hidden, not build output, not an editor's
/// temporary file.
fn is_source(path: &Path) -> bool {
    let mut parts = path.components().map(|part| part.as_os_str().to_string_lossy());
    let is_temporary = |name: &str| {
        // Vim tests with a file `4913` whether it may create files.
        name.ends_with('~') || name.starts_with('#') || name == "4913"
    };
    parts.all(|part| !part.starts_with('.') && !OUTPUTS.contains(&&*part) && !is_temporary(&part))
        && path.file_name().is_none_or(|name| name != "Cargo.lock")
}

fn not_watched(error: notify::Error) -> HostError {
    HostError::new(HostErrorKind::Configuration, "The project's directory cannot be watched for changes.")
        .with_hint(
            "See that it can be read. On a system with few watches for each user, raise the sysctl fs.inotify.max_user_watches.",
        )
        .with_source(error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::fs;

    use super::*;

    #[test]
    fn only_sources_count_as_changes() {
        for path in ["connector.toml", "src/lib.rs", "wit/weather.wit", "app.py", "tests/a.toml"] {
            assert!(is_source(Path::new(path)), "{path}");
        }
        for path in [
            "target/x",
            ".git/index",
            "src/.lib.rs.swp",
            "src/lib.rs~",
            "src/4913",
            "Cargo.lock",
            "a/node_modules/b",
        ] {
            assert!(!is_source(Path::new(path)), "{path}");
        }
    }

    #[tokio::test]
    async fn a_save_by_rename_and_a_new_directory_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("src")).unwrap();
        fs::create_dir(root.join("target")).unwrap();
        let mut watcher = SourceWatcher::new(&root).unwrap();
        fs::write(root.join("target/out"), "1").unwrap();
        fs::write(root.join("src/.lib.rs.tmp"), "1").unwrap();
        fs::rename(root.join("src/.lib.rs.tmp"), root.join("src/lib.rs")).unwrap();
        assert_eq!(watcher.changed().await, BTreeSet::from(["src/lib.rs".into()]));
        fs::create_dir(root.join("wit")).unwrap();
        assert_eq!(watcher.changed().await, BTreeSet::from(["wit".into()]));
        fs::write(root.join("wit/a.wit"), "1").unwrap();
        assert_eq!(watcher.changed().await, BTreeSet::from(["wit/a.wit".into()]));
    }
}
