//! Parsing of unverified packages in the compile worker, which can be stopped.

use std::sync::Arc;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::package::{OperationSignature, Package, check_kind};
use tokio::sync::Semaphore;

use super::compile::Compiler;
use super::compile_limits::CompileLimits;

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
