//! Limits the memory, tables and instances of an instance tree.
//!
//! `memory.grow` only returns -1 to the guest, after which it may trap for any reason or even return. So the
//! refusal itself is an error that ends the call, and is kept in the account to name the limit.

use std::sync::Arc;

use cofferdam_core::failure::LimitHit;
use cofferdam_core::limits;
use wasmtime::ResourceLimiter;

use super::bridge;
use super::gates::ledger::AttemptLog;

/// The bytes that a table element counts as.
const ELEMENT_BYTES: u64 = 8;

/// The marker error of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {} limit was hit", .0.limit.name())]
pub(super) struct GrowthRefusal(pub(super) LimitHit);

/// Charges all memories and tables to the attempt's memory.
#[derive(Debug)]
pub(super) struct StoreLimiter {
    ledger: Arc<AttemptLog>,
    grows: u64,
}

impl StoreLimiter {
    pub(super) fn new(ledger: Arc<AttemptLog>) -> Self {
        Self { ledger, grows: 0 }
    }

    /// Returns the number of growths of existing memories. A memory that starts empty counts from its second
    /// growth.
    pub(super) fn grows(&self) -> u64 {
        self.grows
    }

    fn grow(&self, current: u64, desired: u64) -> wasmtime::Result<bool> {
        self.ledger.memory().grow(desired.saturating_sub(current))?;
        Ok(true)
    }
}

impl ResourceLimiter for StoreLimiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let may = self.grow(current as u64, desired as u64)?;
        self.grows = self.grows.saturating_add(u64::from(current > 0));
        Ok(may)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        self.grow(
            (current as u64).saturating_mul(ELEMENT_BYTES),
            (desired as u64).saturating_mul(ELEMENT_BYTES),
        )
    }

    fn instances(&self) -> usize {
        limits::INSTANCES + bridge::INSTANCES
    }

    fn tables(&self) -> usize {
        limits::TABLES
    }

    fn memories(&self) -> usize {
        limits::MEMORIES + bridge::MEMORIES
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use cofferdam_core::failure::LimitKind;

    #[test]
    fn many_memories_and_tables_share_one_budget() {
        let ledger = Arc::new(AttemptLog::new(1_000));
        let mut limiter = StoreLimiter::new(Arc::clone(&ledger));
        assert!(limiter.memory_growing(0, 400, None).unwrap());
        assert!(limiter.memory_growing(0, 300, None).unwrap());
        assert!(limiter.table_growing(0, 30, None).unwrap());
        assert_eq!(ledger.memory().peaks(), (940, 0));
        assert_eq!(limiter.grows(), 0);
        assert!(limiter.memory_growing(400, 450, None).unwrap());
        assert_eq!(limiter.grows(), 1);
        assert!(limiter.memory_growing(450, 550, None).is_err());
        assert_eq!(limiter.grows(), 1, "what is refused is no growth");
        let hit = ledger.memory().hit().unwrap();
        assert_eq!((hit.limit, hit.configured, hit.used), (LimitKind::Memory, 1_000, 1_090));
    }
}
