//! Holds an instance tree to its memory, table and instance limits, and remembers what it refused.
//!
//! `memory.grow` only tells the guest -1, after which it may trap for any reason or even return; so the
//! refusal itself is an error that ends the call, and is kept here to name the limit.

use wasmtime::ResourceLimiter;

use super::bridge;
use crate::failure::{LimitHit, LimitKind};
use crate::limits;

/// What a table element counts as, in bytes.
const ELEMENT_BYTES: u64 = 8;

/// The marker error of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {} limit was hit", .0.limit.name())]
pub(super) struct Refused(pub(super) LimitHit);

/// The account of one attempt. Memories and tables draw on one budget, however many there are.
#[derive(Debug)]
pub(super) struct Limiter {
    budget: u64,
    used: u64,
    grows: u64,
    hit: Option<LimitHit>,
}

impl Limiter {
    pub(super) fn new(budget: u64) -> Self {
        Self { budget, used: 0, grows: 0, hit: None }
    }

    /// The first refusal.
    pub(super) fn hit(&self) -> Option<LimitHit> {
        self.hit
    }

    /// Bytes in use; nothing is ever given back, so this is the peak too.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// How often a memory that was there grew. One that starts empty counts from its second growth.
    pub(super) fn grows(&self) -> u64 {
        self.grows
    }

    fn grow(&mut self, current: u64, desired: u64) -> wasmtime::Result<bool> {
        let asked = self.used.saturating_sub(current).saturating_add(desired);
        if asked > self.budget {
            return self.refuse(LimitHit::new(LimitKind::Memory, self.budget, asked));
        }
        self.used = asked;
        Ok(true)
    }

    fn refuse(&mut self, hit: LimitHit) -> wasmtime::Result<bool> {
        let first = *self.hit.get_or_insert(hit);
        Err(Refused(first).into())
    }
}

impl ResourceLimiter for Limiter {
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

    #[test]
    fn many_memories_and_tables_share_one_budget() {
        let mut limiter = Limiter::new(1_000);
        assert!(limiter.memory_growing(0, 400, None).unwrap());
        assert!(limiter.memory_growing(0, 300, None).unwrap());
        assert!(limiter.table_growing(0, 30, None).unwrap());
        assert_eq!(limiter.used(), 940);
        assert_eq!(limiter.grows(), 0);
        assert!(limiter.memory_growing(400, 450, None).unwrap());
        assert_eq!(limiter.grows(), 1);
        assert!(limiter.memory_growing(450, 550, None).is_err());
        assert_eq!(limiter.grows(), 1, "what is refused is no growth");
        let hit = limiter.hit().unwrap();
        assert_eq!((hit.limit, hit.configured, hit.used), (LimitKind::Memory, 1_000, 1_090));
    }
}
