//! Parsing and compiling, which wasmtime does not defend: in a child process under its own limits.
//!
//! A component of 700 bytes can make the compiler ask for gigabytes, and one of 50 KB the validator take minutes
//! over one section, in which nothing stops it. So the host hands the bytes to a
//! worker process that has a bound on memory, processor time and wall time, and takes the code back
//! over a pipe. The worker is any program that calls [`compile_worker`](super::compile_worker) first; the
//! `cofferdam` binary does when its first argument is [`COMPILE_WORKER_ARG`].

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::package::{
    self, OperationSignature, Package, ParseReply, VALIDATION_TIMEOUT, check_kind,
};
use tokio::sync::Semaphore;
use wasmtime::Engine;

use super::adapter;
use super::cache::TrustedCode;
use super::compile_limits::{CompileBudget, CompileLimits};
use super::engine::GuestDebugging;
use super::values::LayoutTable;
use super::worker::{self, COMPILE_WORKER_ARG, WorkerForm, WorkerProgram, WorkerTask};

/// The place where components are compiled. There is no default: the choice is the embedder's.
#[derive(Debug, Clone)]
pub struct Compiler {
    kind: CompilerKind,
}

#[derive(Debug, Clone)]
enum CompilerKind {
    Child(WorkerProgram),
    InProcess(GuestDebugging),
}

impl Compiler {
    /// In a child process: `program` is the path of the `cofferdam` binary.
    #[must_use]
    pub fn child(program: impl Into<PathBuf>) -> Self {
        Self::child_with_args(program, [COMPILE_WORKER_ARG.into()])
    }

    /// In a child process of any program that, run with `args`, calls
    /// [`compile_worker`](super::compile_worker) and nothing else.
    #[must_use]
    pub fn child_with_args(program: impl Into<PathBuf>, args: impl IntoIterator<Item = String>) -> Self {
        let args = args.into_iter().collect();
        Self {
            kind: CompilerKind::Child(WorkerProgram {
                path: program.into(),
                args,
                confined: true,
                debugging: GuestDebugging::Off,
            }),
        }
    }

    /// In this process, after the pre-scan. A hostile component can then take this process's memory and time.
    /// Unverified bytes are parsed and validated here too, with no way to stop it: use it only for components
    /// that you trust.
    #[must_use]
    pub fn in_process() -> Self {
        Self { kind: CompilerKind::InProcess(GuestDebugging::Off) }
    }

    /// Leaves the compile worker without Landlock and seccomp, which it otherwise applies if the system has
    /// them. Its limits of memory and time stay.
    #[must_use]
    pub fn without_confinement(mut self) -> Self {
        if let CompilerKind::Child(worker) = &mut self.kind {
            worker.confined = false;
        }
        self
    }

    /// Makes code that names the guest's functions, and the lines of its source where it has debug information, when a
    /// trap ends it. For the development of connectors: the names are in the notes for the operator and in traces. Code
    /// that was compiled without it is compiled again.
    #[must_use]
    pub fn debugging_guests(mut self) -> Self {
        match &mut self.kind {
            CompilerKind::Child(WorkerProgram { debugging, .. }) | CompilerKind::InProcess(debugging) => {
                *debugging = GuestDebugging::On;
            }
        }
        self
    }

    pub(super) fn debugging(&self) -> GuestDebugging {
        match &self.kind {
            CompilerKind::Child(WorkerProgram { debugging, .. }) | CompilerKind::InProcess(debugging) => {
                *debugging
            }
        }
    }

    /// Returns the compiler with its program's path made absolute: the worker starts in another directory.
    ///
    /// A missing program is reported when the host is built, and not when the first component is compiled.
    pub(super) fn ready(self) -> Result<Self, HostError> {
        let CompilerKind::Child(worker) = self.kind else { return Ok(self) };
        let path = absolute_program(&worker.path).map_err(|(what, cause)| {
            let file =
                worker.path.file_name().unwrap_or(worker.path.as_os_str()).to_string_lossy().into_owned();
            let message = format!(
                "The compile worker `{}` {what}.",
                cofferdam_core::failure::sanitize_line(&file, 100)
            );
            let error = HostError::new(HostErrorKind::Configuration, message)
                .with_hint("Give Compiler::child the path of the cofferdam binary, of this very version.");
            error.with_source(format!("{}: {cause}", worker.path.display()))
        })?;
        Ok(Self { kind: CompilerKind::Child(WorkerProgram { path, ..worker }) })
    }

    /// Compiles a component that was parsed before, within `budget` where a child does it.
    pub(super) async fn compile(
        &self,
        engine: &Engine,
        form: WorkerForm,
        component: &[u8],
        budget: CompileBudget,
    ) -> Result<TrustedCode, HostError> {
        match &self.kind {
            CompilerKind::Child(program) => {
                let code = worker::run(program, WorkerTask::Compile(form), component, budget).await?;
                Ok(TrustedCode::from_worker(code))
            }
            CompilerKind::InProcess(_) => {
                let (engine, component) = (engine.clone(), component.to_vec());
                let code = run_blocking(move || code(&engine, &component, form)).await?;
                code.map(TrustedCode::compiled_here).map_err(|reason| worker::invalid(&reason))
            }
        }
    }

    /// Parses and validates the package `bytes`, within `budget` where a child does it.
    pub(super) async fn parse(
        &self,
        bytes: Arc<Vec<u8>>,
        budget: CompileBudget,
    ) -> Result<ParseReply, HostError> {
        self.reply(WorkerTask::ParsePackage, bytes, budget, |bytes| {
            package::parse_package(bytes, VALIDATION_TIMEOUT)
        })
        .await
    }

    /// Parses and validates a component that need not be a package.
    pub(super) async fn parse_component(
        &self,
        bytes: Arc<Vec<u8>>,
        budget: CompileBudget,
    ) -> Result<ParseReply, HostError> {
        self.reply(WorkerTask::ParseComponent, bytes, budget, |bytes| {
            package::parse_component(bytes, VALIDATION_TIMEOUT)
        })
        .await
    }

    async fn reply(
        &self,
        task: WorkerTask,
        bytes: Arc<Vec<u8>>,
        budget: CompileBudget,
        here: fn(&[u8]) -> ParseReply,
    ) -> Result<ParseReply, HostError> {
        match &self.kind {
            CompilerKind::Child(program) => {
                let reply = worker::run(program, task, &bytes, budget).await?;
                // It may have megabytes.
                let read = run_blocking(move || serde_json::from_slice(&reply)).await?;
                read.map_err(|error| package::unreadable_reply().with_source(error))
            }
            CompilerKind::InProcess(_) => run_blocking(move || here(&bytes)).await,
        }
    }
}

/// Returns the native code of `component` in this form, or the reason why there is none.
pub(super) fn code(engine: &Engine, component: &[u8], form: WorkerForm) -> Result<Vec<u8>, String> {
    let compile = |component: &[u8]| {
        engine.precompile_component(component).map_err(|error| error.root_cause().to_string())
    };
    if form == WorkerForm::Plain {
        return compile(component);
    }
    // It was parsed before, so its cost is known to be bounded.
    let operations = package::parse_component(component, Duration::MAX).operations();
    let operations = operations.map_err(|error| error.to_string())?;
    let mut layouts = LayoutTable::default();
    let layouts: Vec<_> = operations.iter().map(|operation| layouts.operation(operation)).collect();
    let wrapped = adapter::wrap(component, &operations, &layouts);
    compile(&wrapped.map_err(|reason| format!("it {reason}"))?)
}

/// Runs `work` on a thread that runs no guests.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, HostError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| HostError::new(HostErrorKind::Internal, "The compiler was lost.").with_source(error))
}

/// Returns the absolute path of an executable program, or the problem with it.
fn absolute_program(program: &Path) -> Result<PathBuf, (&'static str, String)> {
    let absolute = std::path::absolute(program).map_err(|error| ("has no path", error.to_string()))?;
    let found = absolute.metadata().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => ("does not exist", error.to_string()),
        _ => ("cannot be looked at", error.to_string()),
    })?;
    match found.is_file() && found.permissions().mode() & 0o111 != 0 {
        true => Ok(absolute),
        false => Err(("is not a program", format!("mode {:o}", found.permissions().mode()))),
    }
}

/// Parses packages and components in the compile worker, or in this process only if the embedder chose to
/// compile in it.
#[derive(Debug)]
pub struct PackageParser {
    compiler: Compiler,
    limits: CompileLimits,
    /// Separate from compiles, which take longer.
    workers: Semaphore,
}

impl PackageParser {
    /// Makes a parser that starts at most as many workers at once as `limits` allow compiles.
    ///
    /// # Errors
    /// The compiler cannot be used.
    pub fn new(compiler: Compiler, limits: CompileLimits) -> Result<Self, HostError> {
        let workers = Semaphore::new(limits.parallel_compiles());
        Ok(Self { compiler: compiler.ready()?, limits, workers })
    }

    /// Opens the package `bytes`.
    ///
    /// # Errors
    /// As [`Package::open`], or the reason why the worker was stopped.
    pub async fn open(&self, bytes: Vec<u8>) -> Result<Package, HostError> {
        check_kind(&bytes)?;
        let budget = self.limits.parse_budget(bytes.len());
        let bytes = Arc::new(bytes);
        let worker = self.workers.acquire().await;
        let reply = self.compiler.parse(Arc::clone(&bytes), budget).await?;
        drop(worker);
        // Megabytes are hashed.
        let package = move || Package::from_reply(Arc::unwrap_or_clone(bytes), reply);
        tokio::task::spawn_blocking(package).await.map_err(lost)?
    }

    /// Returns the operations of the component `bytes`, which need not be a package.
    ///
    /// # Errors
    /// As [`package::operations_of`](cofferdam_model::package::operations_of), or the reason why the worker
    /// was stopped.
    pub async fn operations(&self, bytes: Vec<u8>) -> Result<Vec<OperationSignature>, HostError> {
        check_kind(&bytes)?;
        let budget = self.limits.parse_budget(bytes.len());
        let worker = self.workers.acquire().await;
        let reply = self.compiler.parse_component(Arc::new(bytes), budget).await?;
        drop(worker);
        reply.operations()
    }

    /// Opens a package like [`open`](Self::open), from a thread that may block, inside a runtime or not.
    pub fn open_blocking(&self, bytes: Vec<u8>) -> Result<Package, HostError> {
        std::thread::scope(|threads| {
            // The calling thread may belong to a runtime, and cannot block on another one.
            let opened = threads.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.map_err(lost)?.block_on(self.open(bytes))
            });
            opened.join().unwrap_or_else(|_| Err(lost("the thread panicked")))
        })
    }
}

fn lost(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> HostError {
    HostError::new(HostErrorKind::Internal, "The package could not be parsed.").with_source(error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_missing_or_invalid_worker_is_reported_at_once() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("notes.txt");
        std::fs::write(&file, "").unwrap();
        for (program, what) in [
            (PathBuf::from("/nope"), "`nope` does not exist"),
            (PathBuf::from(""), "has no path"),
            (home.path().to_owned(), "is not a program"),
            (file, "`notes.txt` is not a program"),
        ] {
            let error = Compiler::child(&program).ready().unwrap_err();
            assert_eq!(error.kind(), HostErrorKind::Configuration);
            assert!(error.message().contains(what), "{error}");
            assert!(!error.message().contains(home.path().to_str().unwrap()), "{error}");
        }
        assert!(Compiler::in_process().ready().is_ok());
        assert!(Compiler::child(std::env::current_exe().unwrap()).ready().is_ok());
    }
}
