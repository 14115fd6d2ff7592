//! Confinement of this very process: the wall behind the sandbox, for the day that the sandbox has a hole.
//!
//! Landlock bounds the files that the process can open, and seccomp the system calls that it can make. Both are
//! inherited by threads and child processes and neither can be taken off again. A process confines itself once it
//! knows what it needs and before it touches anything that it does not trust: the compile worker before it reads a
//! component, a server before it opens its home. An embedder's process is never confined by this library.

mod files;
mod probe;
mod system_calls;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::Serialize;

pub use probe::{Attempt, attempts};

/// The files that a confined server works with.
#[derive(Debug, Clone, Default)]
pub struct ServerFiles {
    /// The home directory: everything in it may be read and written, nothing in it run.
    pub home: PathBuf,
    /// The program that compiles, which may be read and run.
    pub compiler: PathBuf,
    /// Files that the operator configured, which may be read.
    pub configured: Vec<PathBuf>,
}

/// The role of a confined process, which decides what it keeps.
#[derive(Debug, Clone)]
pub enum Role {
    /// The compile worker: its pipes, and no file, socket or process.
    CompileWorker,
    /// A server: its home, the network, and the compile worker as its only child.
    Server(ServerFiles),
}

/// The threads that a confinement covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// The calling thread and those that it starts: for a process that has no other yet, and for probes.
    Thread,
    /// Every thread for system calls; for files as [`Coverage::Thread`], since Landlock before Linux 7.0 knows no more.
    Process,
}

/// How much of a wall the platform raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wall {
    /// All of it.
    Holds,
    /// An older kernel: it bounds opening, writing and running files, and not all else.
    Partly,
    /// None: the kernel has it not, or refused.
    Missing,
}

/// The walls around a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Confinement {
    /// Landlock.
    pub files: Wall,
    /// seccomp.
    pub system_calls: Wall,
}

impl Confinement {
    /// Whether every wall was raised in full.
    pub fn holds(self) -> bool {
        self.files == Wall::Holds && self.system_calls == Wall::Holds
    }
}

/// Raises what the platform has of both walls. Missing ones are reported, never an error: the sandbox is the first
/// wall, and a kernel without the second is no reason not to work.
pub fn confine(role: &Role, coverage: Coverage) -> Confinement {
    // Files first: a seccomp filter has no reason to let the Landlock system calls through, should it ever be a list
    // of what is allowed.
    let files = files::restrict(role).unwrap_or(Wall::Missing);
    let system_calls = match system_calls::restrict(role, coverage) {
        Ok(()) => Wall::Holds,
        Err(_) => Wall::Missing,
    };
    Confinement { files, system_calls }
}
