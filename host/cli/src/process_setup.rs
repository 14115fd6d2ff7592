//! The first steps of the process, before it knows its command: no core dumps, and no death by a full disk.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, Signal, getrlimit, setrlimit};

/// The most bytes of a dump. If dumps are piped to a program, Linux ignores the limit 0 and obeys the limit 1; it does
/// not create a file of one byte.
const DUMP_BYTES: u64 = 1;

/// Prepares this process.
pub(super) fn prepare() {
    forbid_dumps();
    survive_file_size_limits();
}

/// Turns dumps off for this process and those that it starts, unless they are off already: the memory of this process
/// may hold secrets, and a dump would keep them.
///
/// `PR_SET_DUMPABLE` would also keep debuggers of the same user away, but takes `/proc/self/pagemap` with it, by
/// which the sandbox cleans used memory fast. A debugger of this process can read the vault's key anyway.
fn forbid_dumps() {
    let mut limit = getrlimit(Resource::Core);
    limit.current = Some(limit.maximum.map_or(DUMP_BYTES, |most| most.min(DUMP_BYTES)));
    // Lowering one's own limit is always allowed.
    let _ = setrlimit(Resource::Core, limit);
}

/// Handles SIGXFSZ, which ends a process by default that writes beyond `ulimit -f`. With a handler the write fails
/// instead, as it does on a full disk, and what is already done is still reported and recorded. Child processes start
/// with the default again.
fn survive_file_size_limits() {
    // The handler fails to be set only for signals that cannot be handled.
    let _ = signal_hook::flag::register(Signal::XFSZ.as_raw(), Arc::new(AtomicBool::new(false)));
}

/// Has the C library give freed memory back to the system: its allocator raises its own thresholds with the first
/// large request, and then keeps what later ones took (measured: 52 of 53 MB of a flood over HTTP, with fixed
/// thresholds 15). It reads them at the start alone, so the process starts once more in place, with the same id.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn keep_no_freed_memory() {
    use std::os::unix::process::CommandExt as _;
    const VARIABLE: &str = "GLIBC_TUNABLES";
    /// The thresholds that the allocator begins with, in bytes.
    const FIXED: &str = "glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072";
    let there = std::env::var_os(VARIABLE).unwrap_or_default();
    let there = there.to_string_lossy();
    // Set by the process before this one, or by the operator.
    if there.contains("glibc.malloc.") {
        return;
    }
    let value =
        [&*there, FIXED].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(":");
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    // Returns only where it fails; then the allocator is as it was.
    let error =
        std::process::Command::new("/proc/self/exe").arg0(name).args(args).env(VARIABLE, value).exec();
    tracing::debug!(%error, "the allocator keeps freed memory");
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn keep_no_freed_memory() {}
