//! How much a call may use: validated amounts, their ceilings, and who outranks whom.
//!
//! A [`Limits`] has every limit set: there is no value that means "unlimited" and no way to make one
//! without going through [`Limits::resolve`] or the defaults. The caller's wish outranks the
//! manifest's, which outranks the default; each must lie within the host's ceiling, and one that does
//! not is refused by name.

mod amount;

use std::time::Duration;

pub use amount::{LimitError, LimitRequest};

const MIB: u64 = 1024 * 1024;

/// Fuel per millisecond of wall time where nobody asks for an amount: 1e9 a second.
const FUEL_PER_MS: u64 = 1_000_000;

/// The stack of WebAssembly frames, in bytes. Fixed: it is part of the compiled code's contract.
pub const STACK_BYTES: usize = 512 * 1024;

/// Arguments and result, each, as JSON text, in bytes.
pub const PAYLOAD_BYTES: usize = 4 * 1024 * 1024;

/// Bytes in one transfer from guest to host (wasmtime's hostcall fuel).
pub const HOST_TRANSFER_BYTES: usize = 16 * 1024 * 1024;

/// Random bytes that a guest gets in one host call: a host function must never take long.
pub const RANDOM_BYTES: usize = 64 * 1024;

/// Handles that a guest may hold on host resources.
pub const HANDLES: usize = 1_000;

/// Core instances of one component.
pub const INSTANCES: usize = 64;

/// Linear memories of one component.
pub const MEMORIES: usize = 8;

/// Tables of one component.
pub const TABLES: usize = 32;

/// Outgoing requests of one call.
pub const REQUESTS: u64 = 64;

/// Outgoing requests of one call that may be under way at once.
pub const CONCURRENT_REQUESTS: usize = 8;

/// Bytes of one request's body.
pub const REQUEST_BODY_BYTES: u64 = 10 * MIB;

/// Bytes of one response's body.
pub const RESPONSE_BODY_BYTES: u64 = 10 * MIB;

/// Bytes of one message's header fields.
pub const HEADER_BYTES: usize = 64 * 1024;

/// Log lines of one call; what comes after is dropped, with one marker.
pub const LOG_LINES: usize = 1_000;

/// Characters of one log line.
pub const LOG_LINE_CHARS: usize = 4 * 1024;

/// Bytes kept of a call's stdout and stderr, each.
pub const STDIO_BYTES: usize = 64 * 1024;

/// The most that any call on this host may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    fuel: u64,
    wall_time: Duration,
    memory: u64,
}

impl Default for Ceilings {
    /// 5 minutes, 1 GiB, and the fuel of 100 seconds of computing at 3e9 a second.
    fn default() -> Self {
        Self { fuel: 300_000 * FUEL_PER_MS, wall_time: Duration::from_secs(300), memory: 1024 * MIB }
    }
}

impl Ceilings {
    /// The most fuel.
    #[must_use]
    pub fn fuel(&self) -> u64 {
        self.fuel
    }

    /// The longest wall time.
    #[must_use]
    pub fn wall_time(&self) -> Duration {
        self.wall_time
    }

    /// The most memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Lowers the ceilings to those named in `request`; a ceiling can only go down from the default.
    ///
    /// # Errors
    /// A ceiling above the default one is refused by name.
    pub fn lowered(self, request: &LimitRequest) -> Result<Self, LimitError> {
        request.within(&self)?;
        Ok(Self {
            fuel: request.fuel().unwrap_or(self.fuel),
            wall_time: request.wall_time().unwrap_or(self.wall_time),
            memory: request.memory().unwrap_or(self.memory),
        })
    }
}

/// The limits of one call, complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    fuel: u64,
    wall_time: Duration,
    memory: u64,
}

impl Limits {
    /// The limits of a call: `caller` outranks `manifest`, which outranks the default.
    ///
    /// The default fuel is 1e9 for each second of the wall time that results.
    ///
    /// # Errors
    /// A request above its ceiling is refused by name, never clamped.
    pub fn resolve(
        ceilings: &Ceilings,
        manifest: &LimitRequest,
        caller: &LimitRequest,
    ) -> Result<Self, LimitError> {
        manifest.within(ceilings)?;
        caller.within(ceilings)?;
        let default_wall = Duration::from_secs(30).min(ceilings.wall_time);
        let wall_time = caller.wall_time().or(manifest.wall_time()).unwrap_or(default_wall);
        let wall_ms = u64::try_from(wall_time.as_millis()).unwrap_or(u64::MAX);
        let default_fuel = wall_ms.saturating_mul(FUEL_PER_MS).clamp(1, ceilings.fuel);
        let fuel = caller.fuel().or(manifest.fuel()).unwrap_or(default_fuel);
        let memory = caller.memory().or(manifest.memory()).unwrap_or((64 * MIB).min(ceilings.memory));
        Ok(Self { fuel, wall_time, memory })
    }

    /// Fuel of one attempt.
    #[must_use]
    pub fn fuel(&self) -> u64 {
        self.fuel
    }

    /// Wall time of the whole call.
    #[must_use]
    pub fn wall_time(&self) -> Duration {
        self.wall_time
    }

    /// Linear memories and tables together, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn the_caller_outranks_the_manifest_which_outranks_the_default() {
        let ceilings = Ceilings::default();
        let none = LimitRequest::default();
        let manifest = LimitRequest::parse(Some(5_000), Some("10s"), Some("8MiB")).unwrap();
        let caller = LimitRequest::parse(None, Some("2s"), None).unwrap();
        let default = Limits::resolve(&ceilings, &none, &none).unwrap();
        assert_eq!(
            (default.fuel(), default.wall_time().as_secs(), default.memory()),
            (30_000_000_000, 30, 64 * MIB)
        );
        let both = Limits::resolve(&ceilings, &manifest, &caller).unwrap();
        assert_eq!((both.fuel(), both.wall_time().as_secs(), both.memory()), (5_000, 2, 8 * MIB));
    }

    #[test]
    fn above_a_ceiling_is_refused_by_name_and_never_clamped() {
        let ceilings = Ceilings::default();
        let none = LimitRequest::default();
        for (fuel, wall, memory, name) in [
            (Some(u64::MAX), None, None, "fuel"),
            (None, Some("6m"), None, "wall_time"),
            (None, None, Some("2GiB"), "memory"),
        ] {
            let request = LimitRequest::parse(fuel, wall, memory).unwrap();
            for (manifest, caller) in [(&request, &none), (&none, &request)] {
                let error = Limits::resolve(&ceilings, manifest, caller).unwrap_err();
                assert!(error.to_string().contains(name), "{error}");
            }
        }
    }
}
