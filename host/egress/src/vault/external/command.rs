//! An external command: the client of a secret manager, or a script around it.
//!
//! The command reads one line of JSON on its standard input, and writes one line of JSON to its standard output. It
//! is run without a shell, with the environment that the operator names and nothing else. Its standard error is
//! discarded: such programs print secrets there when they fail.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::document::InvalidValue;
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::material::{SecretField, SecretProblem};
use super::{SecretResults, SecretSource};
use crate::vault::error::VaultError;
use crate::vault::file::name;

/// The version of the protocol.
const VERSION: u32 = 1;

/// The longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// The time for which a failure is remembered: a broken command is not started for every call.
const FAILURE_TTL: Duration = Duration::from_secs(5);

/// The pause between two looks at a command that neither writes nor reads.
const PAUSE: Duration = Duration::from_millis(2);

/// The settings of the command.
#[derive(Debug, Clone)]
pub struct SecretCommandSettings {
    /// The absolute path of the program.
    pub program: PathBuf,
    /// Its arguments. They have no secret: other users can read them.
    pub arguments: Vec<OsString>,
    /// The whole environment of the command.
    pub environment: Vec<(OsString, OsString)>,
    /// The time in which it has to answer.
    pub timeout: Duration,
    /// The time for which an answer is used.
    pub cache: Duration,
    /// True if it can store the refresh token that an issuer replaced.
    pub stores: bool,
}

/// A command that returns secrets.
pub struct SecretCommand {
    settings: SecretCommandSettings,
    /// The end of the time for which the last answer, or failure, counts.
    state: Mutex<CommandState>,
}

#[derive(Default)]
struct CommandState {
    read_at: Option<Instant>,
    failure: Option<(Instant, SecretProblem)>,
}

#[derive(Serialize)]
struct GetRequest<'r> {
    version: u32,
    get: &'r [&'r str],
}

#[derive(Serialize)]
struct StoreRequest<'r> {
    version: u32,
    store: StoreItem<'r>,
}

#[derive(Serialize)]
struct StoreItem<'r> {
    name: &'r str,
    secret: &'r str,
}

/// The answer to either request. Other fields are ignored, so that a command may serve other programs, too.
#[derive(Deserialize)]
struct Answer {
    version: u32,
    #[serde(default)]
    secrets: BTreeMap<String, SecretField>,
    #[serde(default)]
    stored: bool,
}

impl SecretCommand {
    /// Creates the source of the secrets that the command returns. It is run when bindings are read.
    #[must_use]
    pub fn new(settings: SecretCommandSettings) -> Self {
        Self { settings, state: Mutex::default() }
    }

    fn shown(&self) -> String {
        name(&self.settings.program)
    }

    fn failed(&self, problem: SecretProblem) -> VaultError {
        VaultError::Unusable {
            message: format!("The vault's command ({}) {}.", self.shown(), problem.reason),
            hint: problem.fix,
        }
    }

    /// Runs the command for one request.
    fn ask(&self, request: &impl Serialize) -> Result<Answer, SecretProblem> {
        let mut line = Zeroizing::new(Vec::with_capacity(256 * 1024));
        let is_written = serde_json::to_writer(&mut *line, request).is_ok();
        line.push(b'\n');
        if !is_written {
            return Err(SecretProblem::new("could not be asked", "This is a bug of cofferdam: report it."));
        }
        let (status, output) = self.run(line)?;
        if !status.success() {
            let how = match status.code() {
                Some(code) => format!("ended with exit code {code}"),
                None => "was ended by a signal".to_owned(),
            };
            return Err(SecretProblem::new(
                how,
                "Run it by hand, with the environment that [vault] names: it reads one line of JSON and writes one.",
            ));
        }
        answer(&output)
    }

    /// Returns the exit status and the output, or ends the command when its time is over.
    fn run(&self, request: Zeroizing<Vec<u8>>) -> Result<(ExitStatus, Zeroizing<Vec<u8>>), SecretProblem> {
        let settings = &self.settings;
        let mut command = Command::new(&settings.program);
        command.args(&settings.arguments).env_clear().envs(settings.environment.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A group of its own, so that everything that it started ends with it.
        let child = command.current_dir("/").process_group(0).spawn();
        let mut child = ChildGuard::new(child.map_err(|error| {
            SecretProblem::new(
                format!("cannot be started: {}", error.kind()),
                "Check [vault] command in config.toml. A confined server runs only the program, its interpreter and \
                 what [vault] reach names.",
            )
        })?);
        let deadline = Instant::now() + settings.timeout;
        let (Some(stdin), Some(stdout)) = (child.process.stdin.take(), child.process.stdout.take()) else {
            return Err(SecretProblem::new("has no pipes", "This is a bug of cofferdam: report it."));
        };
        let unreadable = |error: std::io::Error| {
            SecretProblem::new(format!("could not be read: {}", error.kind()), "Run it by hand.")
        };
        let unwaited = |error: std::io::Error| {
            SecretProblem::new(
                format!("could not be waited for: {}", error.kind()),
                "Look at the system's log.",
            )
        };
        let mut pipes = CommandPipes::new(stdin, stdout, request).map_err(unreadable)?;
        let mut status = None;
        loop {
            let has_advanced = pipes.advance().map_err(unreadable)?;
            if pipes.output.len() > MAX_ANSWER_BYTES {
                return Err(SecretProblem::new("wrote more than 1 MiB", "It answers with one line of JSON."));
            }
            // Processes that it started and left running would keep its output open.
            if status.is_none() && child.has_ended().map_err(unwaited)? {
                status = Some(child.end().map_err(unwaited)?);
            }
            if let (Some(status), true) = (status, pipes.is_complete) {
                return Ok((status, pipes.output));
            }
            if Instant::now() >= deadline {
                return Err(SecretProblem::new(
                    format!("did not end within {} s", settings.timeout.as_secs_f32()),
                    "Make it faster, or set [vault] timeout in config.toml.",
                ));
            }
            if !has_advanced {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Parses the answer. The parser's message could quote a secret.
fn answer(output: &[u8]) -> Result<Answer, SecretProblem> {
    let fix = "It answers {\"version\":1,\"secrets\":{\"NAME\":\"SECRET\"}} on one line.";
    let line = output.strip_suffix(b"\n").unwrap_or(output);
    if line.is_empty() || line.contains(&b'\n') {
        return Err(SecretProblem::new("did not write exactly one line", fix));
    }
    let answer: Answer = serde_json::from_slice(line).map_err(|error| {
        SecretProblem::new(format!("wrote no answer in JSON, at column {}", error.column()), fix)
    })?;
    match answer.version {
        VERSION => Ok(answer),
        other => Err(SecretProblem::new(
            format!("answers in version {other} of the protocol, and this program knows {VERSION}"),
            "Use a version of the command that fits.",
        )),
    }
}

/// The standard input and output of the running command. Neither blocks: the command may write before it reads, and a
/// process that it started may keep both open.
struct CommandPipes {
    /// `None` once the request is written, or the command has closed its input.
    stdin: Option<ChildStdin>,
    request: Zeroizing<Vec<u8>>,
    written: usize,
    stdout: ChildStdout,
    /// Has its full capacity from the beginning: a buffer that grows would leave copies behind.
    output: Zeroizing<Vec<u8>>,
    /// True at the end of the output, or if it is too long.
    is_complete: bool,
}

impl CommandPipes {
    fn new(stdin: ChildStdin, stdout: ChildStdout, request: Zeroizing<Vec<u8>>) -> std::io::Result<Self> {
        set_nonblocking(&stdin)?;
        set_nonblocking(&stdout)?;
        let output = Zeroizing::new(Vec::with_capacity(MAX_ANSWER_BYTES + 64));
        Ok(Self { stdin: Some(stdin), request, written: 0, stdout, output, is_complete: false })
    }

    /// Writes what the command's input takes, and reads what its output has. Returns false if that was nothing.
    fn advance(&mut self) -> std::io::Result<bool> {
        let has_written = self.write();
        Ok(self.read()? || has_written)
    }

    fn write(&mut self) -> bool {
        let Some(stdin) = &mut self.stdin else { return false };
        let rest = self.request.get(self.written..).unwrap_or_default();
        match stdin.write(rest) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
            Ok(count) if count > 0 => {
                self.written = self.written.saturating_add(count);
                true
            }
            // Everything is written, or the command does not read it.
            Ok(_) | Err(_) => {
                self.stdin = None;
                true
            }
        }
    }

    fn read(&mut self) -> std::io::Result<bool> {
        if self.is_complete {
            return Ok(false);
        }
        let before = self.output.len();
        let room = (MAX_ANSWER_BYTES + 1).saturating_sub(before);
        match self.stdout.by_ref().take(room as u64).read_to_end(&mut self.output) {
            Ok(_) => {
                self.is_complete = true;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(self.output.len() > before),
            Err(error) => Err(error),
        }
    }
}

fn set_nonblocking(pipe: &impl AsFd) -> std::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(pipe)?;
    Ok(rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// The running command. Dropping it ends it with everything that it started.
struct ChildGuard {
    process: Child,
    is_reaped: bool,
}

impl ChildGuard {
    fn new(process: Child) -> Self {
        Self { process, is_reaped: false }
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
    }

    /// Returns true once the command has ended. It is not reaped, because its group can be killed safely only as long as
    /// no other process can get its number.
    fn has_ended(&self) -> std::io::Result<bool> {
        let Some(pid) = self.pid() else { return Ok(false) };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        Ok(waitid(WaitId::Pid(pid), options)?.is_some())
    }

    /// Kills the command and everything that it started, as far as they run, and reaps it.
    fn end(&mut self) -> std::io::Result<ExitStatus> {
        if !self.is_reaped {
            if let Some(group) = self.pid() {
                let _ = kill_process_group(group, Signal::KILL);
            }
            // It may have left its group.
            let _ = self.process.kill();
        }
        let status = self.process.wait()?;
        self.is_reaped = true;
        Ok(status)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if !self.is_reaped {
            drop(self.end());
        }
    }
}

impl SecretSource for SecretCommand {
    fn check_name(&self, _: &str) -> Result<(), InvalidValue> {
        Ok(())
    }

    fn read(&self, secrets: &[&str]) -> Result<SecretResults, VaultError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, problem)) = &state.failure
            && at.elapsed() < FAILURE_TTL
        {
            return Err(self.failed(problem.clone()));
        }
        state.failure = None;
        if secrets.is_empty() {
            state.read_at = Some(Instant::now());
            return Ok(SecretResults::new());
        }
        let started = Instant::now();
        let mut answer = match self.ask(&GetRequest { version: VERSION, get: secrets }) {
            Ok(answer) => answer,
            Err(problem) => {
                state.failure = Some((Instant::now(), problem.clone()));
                state.read_at = None;
                return Err(self.failed(problem));
            }
        };
        state.read_at = Some(started);
        let mut one = |secret: &str| {
            answer.secrets.remove(secret).map(|field| field.0).ok_or_else(|| {
                SecretProblem::new(
                    "is not in the command's answer",
                    "Add it to the secret manager, and give the command access to it.",
                )
            })
        };
        let unique: BTreeSet<&str> = secrets.iter().copied().collect();
        Ok(unique.into_iter().map(|secret| (secret.to_owned(), one(secret))).collect())
    }

    fn is_current(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.read_at.is_some_and(|at| at.elapsed() < self.settings.cache)
    }

    fn expire(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.read_at = None;
    }

    fn stores(&self) -> bool {
        self.settings.stores
    }

    fn store(&self, secret: &str, text: &Secret) -> Result<(), VaultError> {
        let item = StoreItem { name: secret, secret: text.expose() };
        match self.ask(&StoreRequest { version: VERSION, store: item }) {
            Ok(answer) if answer.stored => Ok(()),
            Ok(_) => Err(self.failed(SecretProblem::new(
                "did not say that it stored a renewed token",
                "It answers {\"version\":1,\"stored\":true}; without that, set store = false under [vault].",
            ))),
            Err(problem) => Err(self.failed(problem)),
        }
    }

    fn describe(&self, secret: &str) -> String {
        format!("the secret {secret} of the vault's command ({})", self.shown())
    }

    fn rotation(&self) -> &'static str {
        "replace it in the secret manager that the vault's command asks"
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn processes_of_a_command_end_with_it() {
        let command = SecretCommand::new(SecretCommandSettings {
            program: "/bin/sh".into(),
            // The sleeping process keeps the command's output open.
            arguments: vec![
                "-c".into(),
                r#"sleep 301 & printf '{"version":1,"secrets":{"pid":"%s"}}\n' "$!""#.into(),
            ],
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            timeout: Duration::from_secs(20),
            cache: Duration::ZERO,
            stores: false,
        });
        let answer = command.ask(&GetRequest { version: VERSION, get: &["pid"] }).unwrap();
        let pid = answer.secrets.get("pid").unwrap().0.as_str();
        assert!(!pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()), "{pid}");
        // A zombie has ended, too: its new parent may be slow to reap it.
        let has_ended = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !has_ended() {
            assert!(Instant::now() < deadline, "process {pid} still runs");
            std::thread::sleep(PAUSE);
        }
    }

    #[test]
    fn an_answer_is_one_line_of_this_version() {
        for (text, words) in [
            ("", "exactly one line"),
            ("{\"version\":1}\n\n", "exactly one line"),
            ("{\"version\":1}\n{\"version\":1}\n", "exactly one line"),
            ("hunter2hunter2", "no answer in JSON"),
            ("{\"version\":1,\"secrets\":{\"a\":7}}", "no answer in JSON"),
            ("{\"version\":2}", "version 2"),
            ("{\"secrets\":{}}", "no answer in JSON"),
        ] {
            let problem = answer(text.as_bytes()).err().map(|problem| problem.reason).unwrap_or_default();
            assert!(problem.contains(words) && !problem.contains("hunter2"), "{text}: {problem}");
        }
        assert!(answer(b"{\"version\":1,\"secrets\":{\"a\":\"x\"},\"more\":1}\n").is_ok());
    }
}
