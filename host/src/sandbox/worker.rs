//! The compile worker, both sides of it: what the host asks of a child process, and what that process does.
//!
//! A request on standard input is a mark, the bounds, and the component; the answer is the code on standard
//! output, or a reason on standard error. The worker bounds and confines itself before it reads the component. It
//! runs nothing of the component, so that the confinement only guards against faults of the compiler itself. The
//! number of processes is not bounded: the system counts that by user, and a busy user would stop the compiler's
//! own threads.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wasmtime::Engine;

use super::cache::TrustedCode;
use super::compile_limits::Budget;
use super::engine;
use crate::confine::{Coverage, Role, confine};
use crate::error::{HostError, HostErrorKind};
use crate::failure::safe_line;

/// The first argument that makes `cofferdam` a compile worker.
pub const COMPILE_WORKER_ARG: &str = "__compile-worker";

/// The argument that leaves a compile worker without the walls of [`confine`].
pub(super) const NO_CONFINE_ARG: &str = "--no-confine";

/// How a request starts; changes with its form, so that a worker of another version says so.
const MARK: [u8; 8] = *b"coffcmp2";

/// The longest reason that is taken from a worker, in bytes.
const REASON_BYTES: u64 = 4 * 1024;

/// Files that a worker may have open: its pipes, and what the standard library looks at.
const OPEN_FILES: u64 = 32;

/// The exit codes of a worker: the component is not valid, the request is not of this version, it failed.
const INVALID: i32 = 65;
const OTHER_VERSION: i32 = 64;
const FAILED: i32 = 70;
/// What Rust ends a process with after a panic: the compiler gave up on this component.
const PANICKED: i32 = 101;

/// Has `program` compile `component`, and ends it once it takes more than `budget`.
pub(super) async fn run(
    program: &Path,
    args: &[String],
    component: &[u8],
    budget: Budget,
) -> Result<TrustedCode, HostError> {
    let mut child = tokio::process::Command::new(program)
        .args(args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| no_worker("The compile worker could not be started.").because(error))?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(no_worker("The compile worker has no pipes."));
    };
    let work = async {
        let feed = async {
            // A worker that dies early closes the pipe; its exit status says why.
            let fed = async {
                stdin.write_all(&header(&budget)).await?;
                stdin.write_all(component).await
            };
            drop(fed.await);
            drop(stdin);
            Ok(())
        };
        let (mut code, mut reason) = (Vec::new(), Vec::new());
        let (mut bounded_out, mut bounded_err) = (stdout.take(budget.code + 1), stderr.take(REASON_BYTES));
        let out = async {
            bounded_out.read_to_end(&mut code).await.map_err(unread)?;
            match code.len() as u64 > budget.code {
                true => Err(refused(&budget, "code", format!("more than {} of code", mib(budget.code)))),
                false => Ok(()),
            }
        };
        let err = async { bounded_err.read_to_end(&mut reason).await.map_err(unread).map(drop) };
        tokio::try_join!(feed, out, err)?;
        // Whoever fills the pipe of reasons would wait for ever.
        drop(bounded_err);
        let status =
            child.wait().await.map_err(|error| no_worker("The compile worker was lost.").because(error))?;
        Ok::<_, HostError>((status, code, reason))
    };
    let (status, code, reason) = match tokio::time::timeout(budget.wall, work).await {
        Ok(done) => done?,
        Err(_) => {
            let asked = format!("more than {} seconds", budget.wall.as_secs());
            return Err(refused(&budget, "wall_time", asked));
        }
    };
    if status.success() {
        return Ok(TrustedCode::from_worker(code));
    }
    Err(why(status, &safe_line(&String::from_utf8_lossy(&reason), 500), &budget))
}

fn unread(error: std::io::Error) -> HostError {
    no_worker("The compile worker's answer could not be read.").because(error)
}

/// Why a worker ended without code.
fn why(status: ExitStatus, reason: &str, budget: &Budget) -> HostError {
    let signal = status.signal();
    let memory = || refused(budget, "memory", format!("more than {} of memory", mib(budget.memory)));
    match status.code() {
        Some(INVALID) => invalid(reason),
        Some(OTHER_VERSION) => no_worker("The compile worker is of another version."),
        // An allocation or a thread that the system refused, deep in the compiler.
        Some(PANICKED) => memory().because(format!("the compiler gave up: {reason}")),
        Some(other) => {
            no_worker("The compile worker failed.").because(format!("exit code {other}: {reason}"))
        }
        None if signal == Some(Signal::XCPU.as_raw()) => {
            let asked = format!("more than {} seconds of processor time", budget.cpu_seconds);
            refused(budget, "cpu_time", asked)
        }
        None if signal == Some(Signal::ABORT.as_raw()) => memory().because(reason.to_owned()),
        None => {
            let asked = format!("more than the machine gives (signal {})", signal.unwrap_or_default());
            refused(budget, "machine", asked)
        }
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn refused(budget: &Budget, bound: &str, asked: String) -> HostError {
    let configured = match bound {
        "cpu_time" => budget.cpu_seconds,
        "wall_time" => budget.wall.as_secs(),
        "code" => budget.code,
        _ => budget.memory,
    };
    HostError::new(
        HostErrorKind::CompileRefused,
        format!("Compiling this component takes {asked}; the compile worker was ended."),
    )
    .hint("Make the component smaller, or do not trust it: small components that do this are attacks.")
    .detail("limit", "compile")
    .detail("bound", bound)
    .detail("configured", configured)
}

fn no_worker(message: &str) -> HostError {
    HostError::new(HostErrorKind::Configuration, message)
        .hint("Compiler::child needs the path of the cofferdam binary, of this very version.")
}

/// The refusal of what is no valid component.
pub(super) fn invalid(reason: &str) -> HostError {
    let message = format!("The component is not valid WebAssembly: {}.", safe_line(reason, 500));
    HostError::new(HostErrorKind::Validation, message).hint("Build it again, for the target wasm32-wasip2.")
}

fn header(budget: &Budget) -> [u8; 24] {
    let mut header = [0u8; 24];
    let bytes = [MARK, budget.memory.to_le_bytes(), budget.cpu_seconds.to_le_bytes()].into_iter().flatten();
    header.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    header
}

/// The bounds in a request's header; none where it is not one of this version.
fn bounds(header: [u8; 24]) -> Option<(u64, u64)> {
    let (mark, rest) = header.split_first_chunk::<8>()?;
    let (memory, rest) = rest.split_first_chunk::<8>()?;
    let cpu_seconds = rest.first_chunk::<8>()?;
    (*mark == MARK).then(|| (u64::from_le_bytes(*memory), u64::from_le_bytes(*cpu_seconds)))
}

/// What a compile worker does: reads a request from standard input, bounds itself, and writes compiled
/// code to standard output. Exit code 65 means that the component is not valid.
#[must_use]
pub fn compile_worker() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, reason)) => {
            // The parent reads this pipe; where it is gone there is nobody to tell.
            drop(std::io::stderr().lock().write_all(reason.as_bytes()));
            ExitCode::from(u8::try_from(code).unwrap_or(70))
        }
    }
}

fn work() -> Result<(), (i32, String)> {
    let failed = |error: &dyn std::fmt::Display| (FAILED, error.to_string());
    let mut input = std::io::stdin().lock();
    let mut header = [0u8; 24];
    input.read_exact(&mut header).map_err(|_| (OTHER_VERSION, "not a whole request".to_owned()))?;
    let (memory, cpu_seconds) =
        bounds(header).ok_or_else(|| (OTHER_VERSION, "not a request of this version".to_owned()))?;
    bound(memory, cpu_seconds).map_err(|error| failed(&error))?;
    // Before a byte of the component is read. A kernel without the walls leaves the bounds above.
    if std::env::args_os().all(|arg| arg != NO_CONFINE_ARG) {
        confine(&Role::CompileWorker, Coverage::Thread);
    }
    let mut component = Vec::new();
    input.read_to_end(&mut component).map_err(|error| failed(&error))?;
    let engine = Engine::new(&engine::config()).map_err(|error| failed(&error))?;
    let code =
        engine.precompile_component(&component).map_err(|error| (INVALID, error.root_cause().to_string()))?;
    std::io::stdout().lock().write_all(&code).map_err(|error| failed(&error))
}

fn bound(memory: u64, cpu_seconds: u64) -> rustix::io::Result<()> {
    let limit =
        |resource, amount, most| setrlimit(resource, Rlimit { current: Some(amount), maximum: Some(most) });
    limit(Resource::As, memory, memory)?;
    // The signal that tells of it comes at the lower bound, the one that cannot be held off a second later.
    limit(Resource::Cpu, cpu_seconds, cpu_seconds.saturating_add(1))?;
    limit(Resource::Core, 0, 0)?;
    limit(Resource::Fsize, 0, 0)?;
    limit(Resource::Nofile, OPEN_FILES, OPEN_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_its_bounds_and_what_is_no_request_says_none() {
        let budget = Budget { memory: 7, cpu_seconds: 9, wall: std::time::Duration::ZERO, code: 0 };
        assert_eq!(bounds(header(&budget)), Some((7, 9)));
        assert_eq!(bounds(*b"\0asm\x0d\0\x01\0a component here"), None);
    }

    #[test]
    fn every_way_a_worker_ends_is_told_apart() {
        let budget = Budget { memory: 1 << 30, cpu_seconds: 20, wall: std::time::Duration::ZERO, code: 0 };
        let ended = |raw: i32| why(ExitStatus::from_raw(raw), "because", &budget);
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
