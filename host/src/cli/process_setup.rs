//! No core dumps: the memory of this process may hold secrets, and a dump would keep them.

use rustix::process::{Resource, getrlimit, setrlimit};

/// The most bytes of a dump. Where dumps go to a program, Linux ignores the limit 0 and heeds the limit 1; a file of
/// one byte it does not begin.
const MOST: u64 = 1;

/// Turns dumps off for this process and those that it starts, unless they are off already.
///
/// `PR_SET_DUMPABLE` would also keep debuggers of the same user away, but takes `/proc/self/pagemap` with it, by
/// which the sandbox cleans used memory fast; who can debug this process can read the vault's key anyway.
pub(super) fn forbid() {
    let mut limit = getrlimit(Resource::Core);
    limit.current = Some(limit.maximum.map_or(MOST, |most| most.min(MOST)));
    // Lowering one's own limit is always allowed.
    let _ = setrlimit(Resource::Core, limit);
}
