//! The usage of a finished attempt, as its store and its ledger counted it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cofferdam_core::limits::{Limits, Usage};

use super::gates::ledger::AttemptLog;
use super::state::StoreData;

/// Returns the resources that the attempt used.
pub(super) fn of(
    state: &StoreData,
    ledger: &AttemptLog,
    limits: &Limits,
    fuel: u64,
    wall_time: Duration,
) -> Usage {
    let (stdout_kept, stdout_dropped) = state.stdout.kept_and_dropped();
    let (stderr_kept, stderr_dropped) = state.stderr.kept_and_dropped();
    let (log_lines, log_lines_dropped) = state.log.kept_and_dropped();
    let (memory, host_memory) = ledger.memory().peaks();
    Usage {
        fuel,
        memory,
        host_memory,
        memory_grows: state.limiter.grows(),
        wall_time,
        requests: ledger.requests.load(Ordering::Relaxed),
        bytes_out: ledger.bytes_out.load(Ordering::Relaxed),
        bytes_in: ledger.bytes_in.load(Ordering::Relaxed),
        log_lines,
        log_lines_dropped,
        stdio_bytes: stdout_kept.saturating_add(stderr_kept),
        stdio_bytes_dropped: stdout_dropped.saturating_add(stderr_dropped),
        limits: *limits,
    }
}
