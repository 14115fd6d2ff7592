//! A probe of the confinement: a thread confines itself as a server or a worker does, and then tries to break
//! out.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, IoSliceMut};
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::getpid;
use serde::Serialize;

use super::{Confinement, ProcessRole, ThreadCoverage, confine};

/// One action that a confined thread tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeAttempt {
    /// The action in words, like "run another program".
    pub what: &'static str,
    /// True if the system refused it.
    pub refused: bool,
}

/// Confines a new thread as `role`, lets it try actions that no confined process may do, and returns both
/// results. The calling thread is not confined.
///
/// # Errors
/// Those of creating a temporary file, outside of any home, that the thread then tries to open.
pub fn attempts(role: ProcessRole) -> io::Result<(Confinement, Vec<ProbeAttempt>)> {
    let outside = tempfile::NamedTempFile::new()?;
    let probe = std::thread::Builder::new().name("cofferdam-probe".into()).spawn(move || {
        let confinement = confine(&role, ThreadCoverage::Thread);
        let open = |options: &OpenOptions| options.open(outside.path()).map(drop);
        let tried = [
            ("read a file outside of the home", open(OpenOptions::new().read(true))),
            ("write a file outside of the home", open(OpenOptions::new().write(true))),
            ("run another program", run_shell()),
            ("read the memory of a process", read_memory()),
            ("make a new namespace", unshare(CloneFlags::CLONE_NEWUTS).map_err(io::Error::from)),
        ];
        let attempt =
            |(what, outcome): (_, io::Result<()>)| ProbeAttempt { what, refused: is_refusal(&outcome) };
        (confinement, outside, tried.map(attempt).to_vec())
    })?;
    // The file is deleted here, because the confined thread is not allowed to.
    let (confinement, outside, tried) =
        probe.join().map_err(|_| io::Error::other("the probe of the confinement panicked"))?;
    outside.close()?;
    Ok((confinement, tried))
}

fn is_refusal(outcome: &io::Result<()>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn run_shell() -> io::Result<()> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", ":"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(drop)
}

/// Reads a byte of this process, which only a filter of system calls refuses: the attempt harms no other
/// process.
fn read_memory() -> io::Result<()> {
    let (byte, mut read) = (1_u8, [0_u8]);
    let from = [RemoteIoVec { base: (&raw const byte).addr(), len: 1 }];
    process_vm_readv(getpid(), &mut [IoSliceMut::new(&mut read)], &from)?;
    Ok(())
}
