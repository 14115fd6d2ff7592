//! Confinement of this process: a second barrier in case the sandbox has a vulnerability.
//!
//! Landlock bounds the files that the process can open, and seccomp the system calls that it can make. Both
//! are inherited by threads and child processes, and neither can be removed. A process confines itself once
//! it knows what it needs, and before it reads untrusted data: the compile worker before it reads a
//! component, a server before it opens its home. An embedder's process is never confined by this library.

mod files;
mod probe;
mod system_calls;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::Serialize;

pub use probe::{ProbeAttempt, attempts};

/// The files that a confined server uses.
#[derive(Debug, Clone, Default)]
pub struct ServerFiles {
    /// The home directory: its files may be read and written, but not run.
    pub home: PathBuf,
    /// The compiler program, which may be read and run.
    pub compiler: PathBuf,
    /// Files that the operator configured, which may be read.
    pub configured: Vec<PathBuf>,
    /// Programs that the operator configured and what they need, which may be read and run.
    pub runnable: Vec<PathBuf>,
}

/// The role of a confined process, which decides its remaining rights.
#[derive(Debug, Clone)]
pub enum ProcessRole {
    /// The compile worker: its pipes, and no file, socket or process.
    CompileWorker,
    /// A server: its home, the network, and the compile worker as its only child.
    Server(ServerFiles),
}

/// The threads that a confinement covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadCoverage {
    /// The calling thread and those that it starts: for a process without other threads, and for probes.
    Thread,
    /// Every thread for system calls; for files as [`Self::Thread`], since Landlock before Linux 7.0 knows no more.
    Process,
}

/// The extent to which the platform supports a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtectionLevel {
    /// Full support.
    Holds,
    /// An older kernel: it bounds opening, writing and running files, but not everything else.
    Partly,
    /// No support: the kernel does not have the feature, or rejected the call.
    Missing,
}

/// The barriers around a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Confinement {
    /// Landlock.
    pub files: ProtectionLevel,
    /// seccomp.
    pub system_calls: ProtectionLevel,
}

impl Confinement {
    /// Returns whether every barrier is fully supported.
    pub fn holds(self) -> bool {
        self.files == ProtectionLevel::Holds && self.system_calls == ProtectionLevel::Holds
    }
}

/// Enables both barriers as far as the platform supports them. Missing ones are reported but are no error:
/// the sandbox is the first barrier, and must also work on a kernel without the second.
pub fn confine(role: &ProcessRole, coverage: ThreadCoverage) -> Confinement {
    // Files first, so that the seccomp filter never has to allow the Landlock system calls, even if it
    // becomes an allow list.
    let files = files::restrict(role).unwrap_or(ProtectionLevel::Missing);
    let system_calls = match system_calls::restrict(role, coverage) {
        Ok(()) => ProtectionLevel::Holds,
        Err(_) => ProtectionLevel::Missing,
    };
    Confinement { files, system_calls }
}
