//! The compile worker, both sides: the host's requests to a child process, and the work of that process.
//!
//! A request on standard input is a mark, the bounds, the task, and the component. The answer is the code, or
//! the parsed package, on standard output, or a reason on standard error. The worker bounds and confines
//! itself before it reads the component. It runs nothing of the component, so that the confinement only
//! guards against faults of the parser and the compiler themselves. The number of processes is not bounded:
//! the system counts that by user, and a busy user would stop the compiler's own threads.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use cofferdam_core::confine::{ProcessRole, ThreadCoverage, confine};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_model::package::{parse_component, parse_package};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wasmtime::Engine;

use super::compile_limits::CompileBudget;
use super::engine::GuestDebugging;
use super::{compile, engine};

/// The first argument that makes `cofferdam` a compile worker.
pub const COMPILE_WORKER_ARG: &str = "__compile-worker";

/// The program of the compile worker.
#[derive(Debug, Clone)]
pub(super) struct WorkerProgram {
    pub(super) path: PathBuf,
    pub(super) args: Vec<String>,
    /// True if it confines itself before it reads the component.
    pub(super) confined: bool,
    /// The kind of code that it makes.
    pub(super) debugging: GuestDebugging,
}

/// The start of a request. It changes with the request's format, so that a worker of another version reports
/// the mismatch.
const MAGIC: [u8; 8] = *b"coffcmp5";

/// The longest reason that is read from a worker, in bytes.
const REASON_BYTES: u64 = 4 * 1024;

/// The files that a worker may have open: its pipes, and the files that the standard library reads.
const OPEN_FILES: u64 = 32;

/// The exit codes of a worker: the component is not valid, the request is of another version, the task
/// failed.
const INVALID: i32 = 65;
const OTHER_VERSION: i32 = 64;
const FAILED: i32 = 70;
/// The exit code of Rust after a panic: the compiler gave up on this component.
const PANICKED: i32 = 101;

/// The task of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerTask {
    /// Parse and validate them as a package; the answer is a
    /// [`ParseReply`](cofferdam_model::package::ParseReply) as JSON.
    ParsePackage,
    /// Parse and validate them as a bare component.
    ParseComponent,
    /// Compile them in this form; the answer is code.
    Compile(WorkerForm),
}

/// The form in which a component is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerForm {
    /// As it is.
    Plain,
    /// Wrapped by the adapter.
    Adapted,
}

impl WorkerTask {
    const ALL: [Self; 4] = [
        Self::ParsePackage,
        Self::ParseComponent,
        Self::Compile(WorkerForm::Plain),
        Self::Compile(WorkerForm::Adapted),
    ];

    /// Returns its number in a request.
    fn number(self) -> u64 {
        Self::ALL
            .iter()
            .zip(0..)
            .find_map(|(task, number)| (*task == self).then_some(number))
            .unwrap_or(u64::MAX)
    }

    fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the verb for sentences about the task's cost.
    fn verb(self) -> &'static str {
        match self {
            Self::ParsePackage | Self::ParseComponent => "Checking",
            Self::Compile(_) => "Compiling",
        }
    }
}

/// Runs `task` for `component` in `program`, and stops it once it takes more than `budget`.
pub(crate) async fn run(
    program: &WorkerProgram,
    task: WorkerTask,
    component: &[u8],
    budget: CompileBudget,
) -> Result<Vec<u8>, HostError> {
    let refused = |bound: &str, asked: String| refused(task, &budget, bound, asked);
    let mut child = tokio::process::Command::new(&program.path)
        .args(&program.args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| no_worker("The compile worker could not be started.").with_source(error))?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(no_worker("The compile worker has no pipes."));
    };
    let work = async {
        let feed = async {
            // A worker that dies early closes the pipe; its exit status says why.
            let fed = async {
                stdin.write_all(&header(task, &budget, program)).await?;
                stdin.write_all(component).await
            };
            drop(fed.await);
            drop(stdin);
            Ok(())
        };
        let (mut code, mut reason) = (Vec::new(), Vec::new());
        let (mut bounded_out, mut bounded_err) =
            (stdout.take(budget.output.saturating_add(1)), stderr.take(REASON_BYTES));
        let out = async {
            bounded_out.read_to_end(&mut code).await.map_err(unread)?;
            match code.len() as u64 > budget.output {
                true => Err(refused("code", format!("more than {} of code", mib(budget.output)))),
                false => Ok(()),
            }
        };
        let err = async { bounded_err.read_to_end(&mut reason).await.map_err(unread).map(drop) };
        tokio::try_join!(feed, out, err)?;
        // A worker that fills the pipe of reasons would wait forever.
        drop(bounded_err);
        let status = child
            .wait()
            .await
            .map_err(|error| no_worker("The compile worker was lost.").with_source(error))?;
        Ok::<_, HostError>((status, code, reason))
    };
    let (status, code, reason) = match tokio::time::timeout(budget.wall, work).await {
        Ok(done) => done?,
        Err(_) => {
            let asked = format!("more than {} seconds", budget.wall.as_secs());
            return Err(refused("wall_time", asked));
        }
    };
    if status.success() {
        return Ok(code);
    }
    Err(exit_error(status, &sanitize_line(&String::from_utf8_lossy(&reason), 500), task, &budget))
}

fn unread(error: std::io::Error) -> HostError {
    no_worker("The compile worker's answer could not be read.").with_source(error)
}

/// Returns the reason why a worker ended without code.
fn exit_error(status: ExitStatus, reason: &str, task: WorkerTask, budget: &CompileBudget) -> HostError {
    let signal = status.signal();
    let refused = |bound: &str, asked: String| refused(task, budget, bound, asked);
    let memory = || refused("memory", format!("more than {} of memory", mib(budget.memory)));
    match status.code() {
        Some(INVALID) => invalid(reason),
        Some(OTHER_VERSION) => no_worker("The compile worker is of another version."),
        // The system refused an allocation or a thread, deep in the compiler.
        Some(PANICKED) => memory().with_source(format!("the compiler gave up: {reason}")),
        Some(other) => {
            no_worker("The compile worker failed.").with_source(format!("exit code {other}: {reason}"))
        }
        None if signal == Some(Signal::XCPU.as_raw()) => {
            let asked = format!("more than {} seconds of processor time", budget.cpu_seconds);
            refused("cpu_time", asked)
        }
        None if signal == Some(Signal::ABORT.as_raw()) => memory().with_source(reason.to_owned()),
        None => {
            let asked = format!("more than the machine gives (signal {})", signal.unwrap_or_default());
            refused("machine", asked)
        }
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn refused(task: WorkerTask, budget: &CompileBudget, bound: &str, asked: String) -> HostError {
    let configured = match bound {
        "cpu_time" => budget.cpu_seconds,
        "wall_time" => budget.wall.as_secs(),
        "code" => budget.output,
        _ => budget.memory,
    };
    HostError::new(
        HostErrorKind::CompileRefused,
        format!("{} this component takes {asked}; the compile worker was ended.", task.verb()),
    )
    .with_hint("Make the component smaller, or do not trust it: small components that do this are attacks.")
    .detail("limit", "compile")
    .detail("bound", bound)
    .detail("configured", configured)
}

fn no_worker(message: &str) -> HostError {
    HostError::new(HostErrorKind::Configuration, message)
        .with_hint("Compiler::child needs the path of the cofferdam binary, of this very version.")
}

/// Returns the error for an invalid component.
pub(super) fn invalid(reason: &str) -> HostError {
    let message = format!("The component is not valid WebAssembly: {}.", sanitize_line(reason, 500));
    HostError::new(HostErrorKind::Validation, message)
        .with_hint("Build it again, for the target wasm32-wasip2.")
}

const HEADER_BYTES: usize = 48;

fn header(task: WorkerTask, budget: &CompileBudget, program: &WorkerProgram) -> [u8; HEADER_BYTES] {
    let mut header = [0u8; HEADER_BYTES];
    let (confined, debugging) = (program.confined, program.debugging == GuestDebugging::On);
    let numbers =
        [budget.memory, budget.cpu_seconds, task.number(), u64::from(confined), u64::from(debugging)];
    let bytes = std::iter::once(MAGIC).chain(numbers.map(u64::to_le_bytes)).flatten();
    header.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    header
}

/// The content of a request's header.
#[derive(Debug, PartialEq, Eq)]
struct WorkerRequest {
    memory: u64,
    cpu_seconds: u64,
    task: WorkerTask,
    confined: bool,
    debugging: GuestDebugging,
}

/// Reads a request's header; none if it is of another version.
fn request(header: [u8; HEADER_BYTES]) -> Option<WorkerRequest> {
    let numbers = header.strip_prefix(&MAGIC)?.as_chunks::<8>().0;
    let [memory, cpu_seconds, task, confined, debugging] = *numbers else { return None };
    Some(WorkerRequest {
        memory: u64::from_le_bytes(memory),
        cpu_seconds: u64::from_le_bytes(cpu_seconds),
        task: WorkerTask::from_number(u64::from_le_bytes(task))?,
        confined: u64::from_le_bytes(confined) != 0,
        debugging: match u64::from_le_bytes(debugging) {
            0 => GuestDebugging::Off,
            _ => GuestDebugging::On,
        },
    })
}

/// Runs a compile worker: reads a request from standard input, bounds itself, and writes compiled code, or
/// the parsed package, to standard output. Exit code 65 means that the component is not valid.
#[must_use]
pub fn compile_worker() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, reason)) => {
            // The parent reads this pipe; if it is gone, the reason has no reader.
            drop(std::io::stderr().lock().write_all(reason.as_bytes()));
            ExitCode::from(u8::try_from(code).unwrap_or(70))
        }
    }
}

fn work() -> Result<(), (i32, String)> {
    let failed = |error: &dyn std::fmt::Display| (FAILED, error.to_string());
    let mut input = std::io::stdin().lock();
    let mut header = [0u8; HEADER_BYTES];
    input.read_exact(&mut header).map_err(|_| (OTHER_VERSION, "not a whole request".to_owned()))?;
    let WorkerRequest { memory, cpu_seconds, task, confined, debugging } =
        request(header).ok_or_else(|| (OTHER_VERSION, "not a request of this version".to_owned()))?;
    bound(memory, cpu_seconds).map_err(|error| failed(&error))?;
    // Before a byte of the component is read. On a kernel without Landlock or seccomp the bounds above
    // remain.
    if confined {
        confine(&ProcessRole::CompileWorker, ThreadCoverage::Thread);
    }
    let mut component = Vec::new();
    input.read_to_end(&mut component).map_err(|error| failed(&error))?;
    let answer =
        match task {
            // Processor time is bounded, so wall time need not be.
            WorkerTask::ParsePackage => serde_json::to_vec(&parse_package(&component, Duration::MAX))
                .map_err(|error| failed(&error))?,
            WorkerTask::ParseComponent => serde_json::to_vec(&parse_component(&component, Duration::MAX))
                .map_err(|error| failed(&error))?,
            WorkerTask::Compile(form) => {
                let engine = Engine::new(&engine::config(debugging)).map_err(|error| failed(&error))?;
                compile::code(&engine, &component, form).map_err(|reason| (INVALID, reason))?
            }
        };
    std::io::stdout().lock().write_all(&answer).map_err(|error| failed(&error))
}

fn bound(memory: u64, cpu_seconds: u64) -> rustix::io::Result<()> {
    let limit =
        |resource, amount, most| setrlimit(resource, Rlimit { current: Some(amount), maximum: Some(most) });
    limit(Resource::As, memory, memory)?;
    // The signal that can be handled comes at the lower bound, the one that cannot a second later.
    limit(Resource::Cpu, cpu_seconds, cpu_seconds.saturating_add(1))?;
    limit(Resource::Core, 0, 0)?;
    limit(Resource::Fsize, 0, 0)?;
    limit(Resource::Nofile, OPEN_FILES, OPEN_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_header_carries_its_bounds_and_task() {
        let budget = CompileBudget { memory: 7, cpu_seconds: 9, wall: Duration::ZERO, output: 0 };
        for task in WorkerTask::ALL {
            for (confined, debugging) in [(true, GuestDebugging::Off), (false, GuestDebugging::On)] {
                let (path, args) = (PathBuf::new(), Vec::new());
                let program = WorkerProgram { path, args, confined, debugging };
                let expected = WorkerRequest { memory: 7, cpu_seconds: 9, task, confined, debugging };
                assert_eq!(request(header(task, &budget, &program)), Some(expected));
            }
        }
        assert_eq!(request(*b"\0asm\x0d\0\x01\0a component that is here, and it is all "), None);
    }

    #[test]
    fn every_worker_exit_is_distinguished() {
        let budget = CompileBudget { memory: 1 << 30, cpu_seconds: 20, wall: Duration::ZERO, output: 0 };
        let task = WorkerTask::Compile(WorkerForm::Plain);
        let ended = |raw: i32| exit_error(ExitStatus::from_raw(raw), "because", task, &budget);
        let exit = |code: i32| ended(code << 8);
        assert_eq!(exit(INVALID).kind(), HostErrorKind::Validation);
        for code in [1, 127, OTHER_VERSION, FAILED] {
            assert_eq!(exit(code).kind(), HostErrorKind::Configuration, "{code}");
        }
        let bounds = [
            (exit(PANICKED), "memory"),
            (ended(Signal::ABORT.as_raw()), "memory"),
            (ended(Signal::SEGV.as_raw()), "machine"),
            (ended(Signal::KILL.as_raw()), "machine"),
            (ended(Signal::XCPU.as_raw()), "cpu_time"),
        ];
        for (error, bound) in bounds {
            assert_eq!(error.kind(), HostErrorKind::CompileRefused, "{error}");
            assert_eq!(error.details().get("bound").and_then(|it| it.as_str()), Some(bound), "{error}");
        }
    }
}
