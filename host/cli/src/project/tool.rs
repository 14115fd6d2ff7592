//! The toolchains of scripting languages, which are installed inside the project: nothing is installed on the system.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use tokio::process::Command;

use super::tool_process::ToolProcess;
use crate::layout::printable_line;
use crate::ui::Ui;
use crate::{files, passphrase, progress};

/// The directory in the project with its tools and with what they made.
const DIRECTORY: &str = ".cofferdam";

/// Lines of a failed tool's output that its error repeats.
const OUTPUT_LINES: usize = 30;

/// Names of a project that no component is made of, and that no build has to look at.
const NO_SOURCES: [&str; 6] =
    ["target", "tests", "node_modules", "__pycache__", "connector.toml", "README.md"];

/// The most files that a project's sources are looked for in.
const MAX_FILES: usize = 20_000;

/// `.cofferdam` in a project, reserved for one build.
pub(super) struct ToolDirectory {
    project: PathBuf,
    dir: PathBuf,
    _turn: File,
}

impl ToolDirectory {
    /// Opens the directory of the project, and waits for another build of it.
    pub(super) async fn open(ui: &Ui, project: &Path) -> Result<Self, HostError> {
        let (project, dir) = (project.to_owned(), project.join(DIRECTORY));
        let shown = dir.clone();
        let opening = tokio::task::spawn_blocking(move || {
            fs::create_dir_all(&dir)?;
            let ignore = dir.join(".gitignore");
            if !ignore.exists() {
                fs::write(ignore, "*\n")?;
            }
            let turn = File::create(dir.join("lock"))?;
            turn.lock()?;
            Ok(Self { project, dir, _turn: turn })
        });
        let opened = progress::during(ui, "waiting for another build of this project", opening).await;
        opened
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| super::unwritable(&shown, error))
    }

    /// Returns the project's directory.
    pub(super) fn project(&self) -> &Path {
        &self.project
    }

    /// Returns a path in the directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the path of the component that was made last.
    pub(super) fn component(&self) -> PathBuf {
        self.path("component.wasm")
    }

    /// Removes a part of the directory, and makes it again, empty.
    pub(super) fn fresh(&self, name: &str) -> Result<PathBuf, HostError> {
        let path = self.path(name);
        let made = match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::create_dir_all(&path),
        };
        made.map_err(|error| files::unwritable(&path, error))?;
        Ok(path)
    }

    /// Returns whether the tools `name` are those that are `wanted`.
    pub(super) fn has(&self, name: &str, wanted: &str) -> bool {
        fs::read_to_string(self.stamp(name)).is_ok_and(|text| text == wanted)
    }

    /// Records that the tools `name` are those that were wanted, or that they are not.
    pub(super) fn record(&self, name: &str, wanted: Option<&str>) -> Result<(), HostError> {
        let path = self.stamp(name);
        let done = match (wanted, fs::remove_file(&path)) {
            (Some(wanted), _) => fs::write(&path, wanted),
            (None, Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
            (None, _) => Ok(()),
        };
        done.map_err(|error| files::unwritable(&path, error))
    }

    fn stamp(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.made"))
    }

    /// Returns a digest of everything that decides what the component is: the project's files, and `others`.
    pub(super) fn sources_digest(&self, others: &[&str]) -> Result<String, HostError> {
        let mut paths = Vec::new();
        collect(&self.project, &mut paths)
            .map_err(|error| files::unreadable("The project", &self.project, error))?;
        paths.sort();
        let mut parts = Vec::new();
        let mut part = |bytes: &[u8]| parts.extend_from_slice(Digest::sha256(bytes).as_bytes());
        others.iter().for_each(|text| part(text.as_bytes()));
        for path in paths {
            let bytes = fs::read(&path).map_err(|error| files::unreadable("The file", &path, error))?;
            part(path.strip_prefix(&self.project).unwrap_or(&path).as_os_str().as_encoded_bytes());
            part(&bytes);
        }
        Ok(Digest::sha256(&parts).to_string())
    }
}

/// Adds the files below `dir` that may be sources: none that are hidden, were built, or belong to a virtual environment.
fn collect(dir: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = entry.path();
        if name.starts_with('.') || NO_SOURCES.contains(&&*name) || path.join("pyvenv.cfg").exists() {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            collect(&path, paths)?;
        } else if path.is_file() {
            paths.push(path);
        }
        if paths.len() > MAX_FILES {
            return Err(io::Error::other(format!("it has more than {MAX_FILES} files")));
        }
    }
    Ok(())
}

/// A tool that is run to its end.
pub(super) struct ToolRun<'a> {
    /// The tool's name in messages.
    pub(super) tool: &'a str,
    /// The work, for a person who waits: `installing componentize-py`.
    pub(super) doing: &'a str,
    /// The fix if the tool is missing.
    pub(super) missing: &'a str,
    /// The fix if it fails.
    pub(super) failed: &'a str,
}

impl ToolRun<'_> {
    /// Runs `command`; its standard output.
    pub(super) async fn run(&self, ui: &Ui, mut command: Command) -> Result<String, HostError> {
        // The tools are other people's programs.
        command.env_remove(passphrase::VARIABLE);
        // An author has no use for the frames of a tool that reports an error in the source.
        command.env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = async { ToolProcess::spawn(&mut command)?.output().await };
        let output = progress::during(ui, self.doing, running).await;
        let output = output.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                HostError::new(HostErrorKind::Tool, format!("{} was not found.", self.tool))
                    .with_hint(self.missing)
                    .with_source(error)
            }
            _ => {
                let message = format!("{} cannot be started: {}.", self.tool, files::reason(&error));
                HostError::new(HostErrorKind::Tool, message)
                    .with_hint("Check its permissions.")
                    .with_source(error)
            }
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let message = format!("{} failed while {} ({}).", self.tool, self.doing, output.status);
        let said = last_lines(&output);
        Err(HostError::new(HostErrorKind::Tool, message).with_hint(format!("{}{said}", self.failed)))
    }
}

/// The end of a tool's output, each line after a line break.
fn last_lines(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(OUTPUT_LINES);
    lines.iter().skip(from).map(|line| format!("\n{}", printable_line(line, 300))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[tokio::test]
    async fn the_sources_digest_covers_sources_alone() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(files::parent(&path)).unwrap();
            fs::write(path, text).unwrap();
        };
        let ui = Ui::silent();
        write("app.py", "1");
        let tools = ToolDirectory::open(&ui, dir.path()).await.unwrap();
        let digest = || tools.sources_digest(&["wit"]).unwrap();
        let first = digest();
        for other in
            ["target/x", "tests/a.toml", ".git/x", "connector.toml", "venv/pyvenv.cfg", "venv/lib/x.py"]
        {
            write(other, "x");
            assert_eq!(digest(), first, "{other}");
        }
        assert_ne!(tools.sources_digest(&["other"]).unwrap(), first);
        write("lib/util.py", "");
        let with_library = digest();
        assert_ne!(with_library, first);
        write("app.py", "2");
        assert!(![first, with_library].contains(&digest()));
        assert_eq!(fs::read_to_string(dir.path().join(".cofferdam/.gitignore")).unwrap(), "*\n");
    }

    #[tokio::test]
    async fn a_tool_is_recorded_once_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let tools = ToolDirectory::open(&Ui::silent(), dir.path()).await.unwrap();
        assert!(!tools.has("python", "1.0"));
        tools.record("python", Some("1.0")).unwrap();
        assert!(tools.has("python", "1.0") && !tools.has("python", "1.1"));
        tools.record("python", None).unwrap();
        tools.record("python", None).unwrap();
        assert!(!tools.has("python", "1.0"));
    }

    #[tokio::test]
    async fn a_failed_tool_is_quoted_and_a_missing_one_named() {
        let run = ToolRun { tool: "sh", doing: "testing", missing: "Install it.", failed: "Correct it." };
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo '\u{1b}[31mNameError: x' >&2; exit 3"]);
        let error = run.run(&Ui::silent(), command).await.unwrap_err();
        assert_eq!(error.message(), "sh failed while testing (exit status: 3).");
        assert_eq!(error.hint().unwrap(), "Correct it.\nout\n[31mNameError: x");
        let error = run.run(&Ui::silent(), Command::new("/no/such/tool")).await.unwrap_err();
        assert_eq!((error.message(), error.hint()), ("sh was not found.", Some("Install it.")));
    }
}
