//! The resources that an attempt used and was allowed, also after a success.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::Limits;
use crate::event::recorded::RecordedUsage;

/// The resources that an attempt used, whatever its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Fuel burnt.
    pub fuel: u64,
    /// The maximum number of bytes in use at once: memories, tables and the guest's data in the host.
    pub memory: u64,
    /// The maximum number of bytes that the host held for the guest at once: requests and responses, output,
    /// handles, values.
    pub host_memory: u64,
    /// The number of times that a memory grew after its creation. Each time is a system call that delays
    /// every other call of the process: a guest that does so on its common path scales badly over threads.
    pub memory_grows: u64,
    /// Time from start to outcome.
    pub wall_time: Duration,
    /// Outgoing requests, including those that were refused.
    pub requests: u64,
    /// Bytes of the requests' first lines and bodies.
    pub bytes_out: u64,
    /// Bytes of response bodies.
    pub bytes_in: u64,
    /// Log lines written to the operator's log.
    pub log_lines: u64,
    /// Log lines dropped above the limit.
    pub log_lines_dropped: u64,
    /// Bytes of stdout and stderr that were kept.
    pub stdio_bytes: u64,
    /// Bytes of stdout and stderr that were dropped above the limit.
    pub stdio_bytes_dropped: u64,
    /// The limits of the attempt.
    pub limits: Limits,
}

impl Usage {
    /// Returns the wall time in whole microseconds.
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        u64::try_from(self.wall_time.as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the allowed wall time in whole milliseconds.
    #[must_use]
    pub fn wall_limit_ms(&self) -> u64 {
        u64::try_from(self.limits.wall_time().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Serialize for Usage {
    /// Serializes as in the audit log: amounts in bytes, `wall_us` in microseconds, `wall_limit_ms` in
    /// milliseconds.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RecordedUsage::from(self).serialize(serializer)
    }
}

impl fmt::Display for Usage {
    /// Writes one line for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.wall_time.as_secs_f64() * 1_000.0;
        write!(
            f,
            "{ms:.1} of {} ms, {} of {} fuel, {} of {} KiB of memory (grown {} times, {} KiB held by the host), {} requests, {} bytes out, {} bytes in",
            self.wall_limit_ms(),
            self.fuel,
            self.limits.fuel(),
            self.memory.div_ceil(1024),
            self.limits.memory() / 1024,
            self.memory_grows,
            self.host_memory.div_ceil(1024),
            self.requests,
            self.bytes_out,
            self.bytes_in,
        )?;
        write!(f, ", {} log lines ({} dropped)", self.log_lines, self.log_lines_dropped)?;
        write!(f, ", {} bytes of output ({} dropped)", self.stdio_bytes, self.stdio_bytes_dropped)
    }
}
