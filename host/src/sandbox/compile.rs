//! Compiling, the one thing wasmtime does not defend: in a child process under its own limits.
//!
//! A component of 700 bytes can make the compiler ask for gigabytes, so the host hands the bytes to a
//! worker process that has a bound on memory, processor time and wall time, and takes the code back
//! over a pipe. The worker is any program that calls [`compile_worker`] first; the `cofferdam` binary
//! does when its first argument is [`COMPILE_WORKER_ARG`].

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wasmtime::Engine;

use super::cache::TrustedCode;
use super::engine;
use crate::error::{HostError, HostErrorKind};

/// The first argument that makes `cofferdam` a compile worker.
pub const COMPILE_WORKER_ARG: &str = "__compile-worker";

/// Address space of the worker, in bytes.
const MEMORY_BYTES: u64 = 3 * 1024 * 1024 * 1024;
/// Processor time of the worker, in seconds, over all its threads.
const CPU_SECONDS: u64 = 90;
/// Wall time of the worker.
const WALL_TIME: Duration = Duration::from_secs(90);
/// The most code that is taken from a worker, in bytes.
const CODE_BYTES: u64 = 512 * 1024 * 1024;

/// Where components are compiled. There is no default: the choice is the embedder's.
#[derive(Debug, Clone)]
pub struct Compiler {
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Child { program: PathBuf, args: Vec<String> },
    InProcess,
}

impl Compiler {
    /// In a child process: `program` is the `cofferdam` binary.
    #[must_use]
    pub fn child(program: impl Into<PathBuf>) -> Self {
        Self { kind: Kind::Child { program: program.into(), args: vec![COMPILE_WORKER_ARG.into()] } }
    }

    /// In a child process of any program that, run with `args`, calls [`compile_worker`] and nothing else.
    #[must_use]
    pub fn child_with_args(program: impl Into<PathBuf>, args: impl IntoIterator<Item = String>) -> Self {
        Self { kind: Kind::Child { program: program.into(), args: args.into_iter().collect() } }
    }

    /// In this process, after the pre-scan. A hostile component can then take this process's memory
    /// and time: only for components that you trust.
    #[must_use]
    pub fn in_process() -> Self {
        Self { kind: Kind::InProcess }
    }

    /// Compiles a component that passed the pre-scan.
    pub(super) async fn compile(&self, engine: &Engine, component: &[u8]) -> Result<TrustedCode, HostError> {
        match &self.kind {
            Kind::InProcess => engine.precompile_component(component).map(TrustedCode::compiled_here).map_err(invalid),
            Kind::Child { program, args } => run_child(program, args, component).await,
        }
    }
}

async fn run_child(program: &PathBuf, args: &[String], component: &[u8]) -> Result<TrustedCode, HostError> {
    let mut child = tokio::process::Command::new(program)
        .args(args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| no_worker("The compile worker could not be started.").because(error))?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(no_worker("The compile worker has no pipes."));
    };
    let work = async {
        let feed = async {
            // A worker that dies early closes the pipe; its exit status says why.
            drop(stdin.write_all(component).await);
            drop(stdin);
        };
        let (mut code, mut reason) = (Vec::new(), Vec::new());
        let mut bounded_out = stdout.take(CODE_BYTES + 1);
        let mut bounded_err = stderr.take(4 * 1024);
        let ((), out, err) =
            tokio::join!(feed, bounded_out.read_to_end(&mut code), bounded_err.read_to_end(&mut reason));
        out.and(err).map_err(|error| no_worker("The compile worker's answer could not be read.").because(error))?;
        let status = child.wait().await.map_err(|error| no_worker("The compile worker was lost.").because(error))?;
        Ok::<_, HostError>((status, code, reason))
    };
    let (status, code, reason) = match tokio::time::timeout(WALL_TIME, work).await {
        Ok(done) => done?,
        Err(_) => return Err(refused("more than 90 seconds")),
    };
    let reason = crate::failure::safe_line(&String::from_utf8_lossy(&reason), 500);
    match status.code() {
        Some(0) if code.len() as u64 <= CODE_BYTES => Ok(TrustedCode::from_worker(code)),
        Some(0) => Err(refused("more than 512 MiB of code")),
        Some(INVALID) => {
            Err(HostError::new(HostErrorKind::Validation, format!("The component is not valid WebAssembly: {reason}."))
                .hint("Build it again, for the target wasm32-wasip2."))
        }
        Some(other) => Err(no_worker("The compile worker failed.").because(format!("exit code {other}: {reason}"))),
        // Ended by a signal: SIGABRT when an allocation was refused, SIGXCPU or SIGKILL at the CPU limit.
        None => Err(refused("more than 3 GiB of memory or 90 seconds of processor time")),
    }
}

fn refused(asked: &str) -> HostError {
    HostError::new(
        HostErrorKind::CompileRefused,
        format!("Compiling this component takes {asked}; the compile worker was ended."),
    )
    .hint("Make the component smaller, or do not trust it: small components that do this are attacks.")
}

fn no_worker(message: &str) -> HostError {
    HostError::new(HostErrorKind::Configuration, message)
        .hint("Compiler::child needs the path of the cofferdam binary, of this very version.")
}

fn invalid(error: wasmtime::Error) -> HostError {
    let reason = crate::failure::safe_line(&error.root_cause().to_string(), 500);
    HostError::new(HostErrorKind::Validation, format!("The component is not valid WebAssembly: {reason}."))
        .hint("Build it again, for the target wasm32-wasip2.")
}

/// The exit code by which a worker says that the component itself is at fault.
const INVALID: i32 = 65;

/// What a compile worker does: limits itself, reads a component from standard input, writes its
/// compiled code to standard output. Exit code 65 means that the component is not valid.
#[must_use]
pub fn compile_worker() -> ExitCode {
    let limit = |resource, amount| setrlimit(resource, Rlimit { current: Some(amount), maximum: Some(amount) });
    let limited = limit(Resource::As, MEMORY_BYTES)
        .and_then(|()| limit(Resource::Cpu, CPU_SECONDS))
        .and_then(|()| limit(Resource::Core, 0));
    let mut component = Vec::new();
    let result = match limited.map_err(|error| (70, error.to_string())) {
        Err(error) => Err(error),
        Ok(()) => std::io::stdin().lock().read_to_end(&mut component).map_err(|error| (74, error.to_string())).and_then(
            |_| {
                let engine = Engine::new(&engine::config()).map_err(|error| (70, error.to_string()))?;
                let code = engine.precompile_component(&component);
                let code = code.map_err(|error| (INVALID, error.root_cause().to_string()))?;
                std::io::stdout().lock().write_all(&code).map_err(|error| (74, error.to_string()))
            },
        ),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, reason)) => {
            // The parent reads this pipe; where it is gone there is nobody to tell.
            drop(std::io::stderr().lock().write_all(reason.as_bytes()));
            ExitCode::from(u8::try_from(code).unwrap_or(70))
        }
    }
}
