//! The bounds of compiling: for the whole machine, and for one component by its size.

use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::package::MAX_BYTES;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// The minimum that every component gets; the rest grows with its size. A file of a few hundred bytes that
/// needs more than this is an attack; CPython, at 18 MB, takes 10 s optimised and 30 s not.
const LEAST_MEMORY: u64 = GIB;
const MEMORY_PER_BYTE: u64 = 128;
const LEAST_CPU_SECONDS: u64 = 20;
const CPU_SECONDS_PER_MIB: u64 = 4;
const WALL_SECONDS: u64 = 10;
const WALL_PER_CPU: u64 = 4;
/// The bound for parsing and validating without compiling; CPython takes a tenth of it.
const PARSE_CPU_SECONDS: u64 = 5;
const PARSE_MIB_PER_CPU_SECOND: u64 = 4;
/// Code is 2 to 4 times as large as the component it was made from.
const LEAST_CODE: u64 = 4 * MIB;
const CODE_PER_BYTE: u64 = 8;

/// The bounds of compiling, as the embedder sets them; see `HostBuilder::compile_limits`.
///
/// A component gets 20 seconds of processor time and 1 GiB of address space, and 4 seconds and 128 MiB more
/// for each MiB it has, up to these bounds. On the wall it gets four times the processor time and ten
/// seconds: a busy machine is not the component's fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileLimits {
    parallel: u32,
    memory: u64,
    cpu_seconds: u64,
    component: u64,
}

impl Default for CompileLimits {
    /// 2 at once, 3 GiB, 90 seconds, components of 64 MiB.
    fn default() -> Self {
        Self { parallel: 2, memory: 3 * GIB, cpu_seconds: 90, component: MAX_BYTES }
    }
}

impl CompileLimits {
    /// Sets the number of components that are compiled at once, 1 to 64; each takes a worker process. Default
    /// 2.
    ///
    /// # Errors
    /// `configuration`: any other number.
    pub fn parallel(self, compiles: u32) -> Result<Self, HostError> {
        within("parallel compiles", u64::from(compiles), 1, 64, "")?;
        Ok(Self { parallel: compiles, ..self })
    }

    /// Sets the most address space of one worker, in bytes, 512 MiB to 16 GiB. Default 3 GiB.
    ///
    /// # Errors
    /// `configuration`: any other amount.
    pub fn memory(self, bytes: u64) -> Result<Self, HostError> {
        within("memory of a compile worker", bytes, 512 * MIB, 16 * GIB, " bytes")?;
        Ok(Self { memory: bytes, ..self })
    }

    /// Sets the most processor time of one worker over all its threads, 1 second to 10 minutes, in whole
    /// seconds. Default 90 seconds.
    ///
    /// # Errors
    /// `configuration`: any other time.
    pub fn cpu_time(self, time: Duration) -> Result<Self, HostError> {
        let whole = if time.subsec_nanos() == 0 { time.as_secs() } else { 0 };
        within("processor time of a compile worker", whole, 1, 600, " whole seconds")?;
        Ok(Self { cpu_seconds: whole, ..self })
    }

    /// Sets the largest component that is compiled, in bytes, up to 64 MiB. Default 64 MiB.
    ///
    /// # Errors
    /// `configuration`: any other size.
    pub fn component_size(self, bytes: u64) -> Result<Self, HostError> {
        within("size of a component", bytes, 1, MAX_BYTES, " bytes")?;
        Ok(Self { component: bytes, ..self })
    }

    pub(super) fn parallel_compiles(&self) -> usize {
        self.parallel as usize
    }

    /// Returns the budget for compiling a component of `bytes`.
    pub(super) fn budget(&self, bytes: usize) -> Result<CompileBudget, HostError> {
        let size = bytes as u64;
        if size > self.component {
            return Err(HostError::new(
                HostErrorKind::CompileRefused,
                format!("The component has {size} bytes; this host compiles up to {}.", self.component),
            )
            .with_hint("Make the component smaller, or have the operator allow larger ones.")
            .detail("limit", "compile")
            .detail("configured", self.component)
            .detail("used", size));
        }
        let cpu = LEAST_CPU_SECONDS.saturating_add(size.saturating_mul(CPU_SECONDS_PER_MIB) / MIB);
        Ok(self.within_bounds(size, cpu))
    }

    /// Returns the budget for parsing and validating a package of `bytes`, before any of it is compiled.
    pub(super) fn parse_budget(&self, bytes: usize) -> CompileBudget {
        let size = bytes as u64;
        self.within_bounds(size, PARSE_CPU_SECONDS.saturating_add(size / MIB / PARSE_MIB_PER_CPU_SECOND))
    }

    fn within_bounds(&self, size: u64, cpu_seconds: u64) -> CompileBudget {
        let cpu_seconds = cpu_seconds.min(self.cpu_seconds);
        CompileBudget {
            memory: LEAST_MEMORY.saturating_add(size.saturating_mul(MEMORY_PER_BYTE)).min(self.memory),
            cpu_seconds,
            wall: Duration::from_secs(cpu_seconds.saturating_mul(WALL_PER_CPU).saturating_add(WALL_SECONDS)),
            output: LEAST_CODE.saturating_add(size.saturating_mul(CODE_PER_BYTE)),
        }
    }
}

/// The bounds for parsing or compiling one component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CompileBudget {
    /// Address space, in bytes.
    pub(super) memory: u64,
    pub(super) cpu_seconds: u64,
    pub(super) wall: Duration,
    /// Bytes of the answer: compiled code, or what was parsed.
    pub(super) output: u64,
}

fn within(what: &str, given: u64, least: u64, most: u64, unit: &str) -> Result<(), HostError> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    let message = format!("The {what} of CompileLimits is not acceptable.");
    Err(HostError::new(HostErrorKind::Configuration, message)
        .with_hint(format!("Choose {least} to {most}{unit}.")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn compile_budgets_grow_with_the_component() {
        let limits = CompileLimits::default();
        let small = limits.budget(700).unwrap();
        assert_eq!((small.cpu_seconds, small.memory >> 20, small.output >> 20), (20, 1024, 4));
        let python = limits.budget(18 << 20).unwrap();
        assert_eq!((python.cpu_seconds, python.memory), (90, 3 * GIB));
        assert!(python.output > 3 * (18 << 20));
    }

    #[test]
    fn an_out_of_range_bound_is_refused_not_clamped() {
        let limits = CompileLimits::default;
        let wrong = [
            (limits().parallel(0), "parallel"),
            (limits().parallel(65), "parallel"),
            (limits().memory(0), "memory"),
            (limits().memory(u64::MAX), "memory"),
            (limits().cpu_time(Duration::ZERO), "processor time"),
            (limits().cpu_time(Duration::from_millis(1500)), "processor time"),
            (limits().cpu_time(Duration::MAX), "processor time"),
            (limits().component_size(0), "component"),
            (limits().component_size(MAX_BYTES + 1), "component"),
        ];
        for (outcome, name) in wrong {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), HostErrorKind::Configuration);
            assert!(error.message().contains(name), "{error}");
        }
        let small = limits().component_size(100).unwrap();
        assert_eq!(small.budget(101).unwrap_err().kind(), HostErrorKind::CompileRefused);
        assert!(small.budget(100).is_ok());
    }
}
