//! The command line in tests: a separate environment, and output that must be checked.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The settings for running the binary.
#[derive(Debug, Clone)]
pub struct Cli {
    program: PathBuf,
    home: PathBuf,
    cwd: PathBuf,
}

impl Cli {
    /// The binary `program`, with `home` as its home and working directory.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, home: &Path) -> Self {
        Self { program: program.into(), home: home.to_owned(), cwd: home.to_owned() }
    }

    /// Runs in `dir`.
    #[must_use]
    pub fn in_dir(mut self, dir: &Path) -> Self {
        self.cwd = dir.to_owned();
        self
    }

    /// The command, ready to run: no environment but a home and a path.
    #[must_use]
    pub fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env_clear()
            .env("HOME", &self.home)
            .env("COFFERDAM_HOME", &self.home)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(&self.cwd)
            .stdin(Stdio::null());
        if let Some(url) = crate::store::url_of(&self.home) {
            command.env("COFFERDAM_AUDIT_URL", url);
        }
        command
    }

    /// Installs a package whose access is accepted, as most tests need. `args` begins with the package's file.
    ///
    /// # Panics
    /// The file cannot be read, or the binary cannot be started.
    pub fn install(&self, args: &[impl AsRef<OsStr>]) -> CommandResult {
        self.run(&self.install_args(args))
    }

    /// The arguments of [`install`](Self::install).
    ///
    /// # Panics
    /// The file cannot be read.
    #[must_use]
    pub fn install_args(&self, args: &[impl AsRef<OsStr>]) -> Vec<OsString> {
        let file = args.first().expect("a package");
        let bytes = std::fs::read(self.cwd.join(file.as_ref())).expect("a package that can be read");
        let hash = format!("sha256:{}", cofferdam_core::digest::Digest::sha256(&bytes));
        let mut all: Vec<OsString> = vec!["install".into(), "--accept".into(), hash.into()];
        all.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        all
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn run(&self, args: &[impl AsRef<OsStr>]) -> CommandResult {
        let output = self.command(args).output().expect("the binary starts");
        let line = args.iter().map(|arg| arg.as_ref().to_string_lossy().into_owned()).collect::<Vec<_>>();
        CommandResult {
            line: line.join(" "),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The result of a command, which must be checked.
#[must_use]
#[derive(Debug, Clone)]
pub struct CommandResult {
    /// The arguments.
    pub line: String,
    /// The exit code; none where a signal ended it.
    pub code: Option<i32>,
    /// Its data.
    pub stdout: String,
    /// Everything else.
    pub stderr: String,
}

impl CommandResult {
    /// It succeeded; its data.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "`{}` failed\n{}\n{}", self.line, self.stdout, self.stderr);
        self.stdout
    }

    /// It succeeded; its data is JSON.
    ///
    /// # Panics
    /// It did not, or it is not.
    #[track_caller]
    pub fn json(self) -> Value {
        let line = self.line.clone();
        let text = self.ok();
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("`{line}` printed no JSON ({error}):\n{text}"))
    }

    /// It failed with `code`; both outputs.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn fails(self, code: u8) -> Self {
        let Self { line, stdout, stderr, .. } = &self;
        assert_eq!(self.code, Some(i32::from(code)), "`{line}`\nstdout: {stdout}\nstderr: {stderr}");
        self
    }

    /// Asserts that standard error contains `words`.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn said(self, words: &str) {
        assert!(self.stderr.contains(words), "`{}` did not say `{words}`: {}", self.line, self.stderr);
    }

    /// The envelope among the outputs, whichever of the two it is in.
    ///
    /// # Panics
    /// There is none.
    #[track_caller]
    pub fn envelope(&self) -> Value {
        let parsed = [&self.stdout, &self.stderr].map(|text| serde_json::from_str::<Value>(text.trim()).ok());
        let found = parsed.into_iter().flatten().find(|value| value.get("error").is_some());
        found.unwrap_or_else(|| {
            panic!("`{}` printed no envelope\n{}\n{}", self.line, self.stdout, self.stderr)
        })
    }
}
