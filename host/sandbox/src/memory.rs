//! The memory of one attempt: the guest's own and the host's memory for it, in one budget.
//!
//! A guest can fill more than linear memories and tables: methods, paths, header fields, bodies in transit,
//! output and handles are kept by the host. Each is charged to the attempt before it is stored, and released
//! with it. Prices are upper bounds of the allocator's cost, found by measuring (`tests/host_memory.rs` checks
//! them).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cofferdam_core::failure::{LimitHit, LimitKind};
use cofferdam_core::limits;
use wasmtime::ResourceLimiter;

use super::adapter;
use super::hostcalls::attempt_log::{AttemptLog, Termination};

/// Bytes that a handle on a host resource costs: its entry in the tables, and the object behind it without the data
/// that is charged by length.
pub(super) const HANDLE_BYTES: u64 = 2 * 1024;

/// The bytes that a header field costs in addition to its name and value, at the worst fill of the map.
pub(super) const FIELD_BYTES: u64 = 320;

/// The bytes that one running request costs in addition to the guest's input for it: its task and the buffers
/// of its connection.
pub(super) const REQUEST_BYTES: u64 = 64 * 1024;

/// The counts of one attempt. Never above the budget, so that no sum of them can overflow.
#[derive(Debug)]
pub(super) struct MemoryAccount {
    budget: u64,
    used: AtomicU64,
    held: AtomicU64,
    peak: AtomicU64,
    held_peak: AtomicU64,
    hit: OnceLock<LimitHit>,
}

impl MemoryAccount {
    pub(super) fn new(budget: u64) -> Self {
        Self {
            budget,
            used: AtomicU64::new(0),
            held: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            held_peak: AtomicU64::new(0),
            hit: OnceLock::new(),
        }
    }

    /// Takes `bytes` of the budget for the guest itself, without release.
    ///
    /// # Errors
    /// The budget has less left; the first such refusal is kept as the [`hit`](Self::hit).
    pub(super) fn grow(&self, bytes: u64) -> Result<(), GrowthRefusal> {
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.budget);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(before) => {
                self.peak.fetch_max(before.saturating_add(bytes), Ordering::Relaxed);
                Ok(())
            }
            Err(used) => Err(self.refuse(used.saturating_add(bytes))),
        }
    }

    /// Records and returns the refusal of a use of so many bytes.
    pub(super) fn refuse(&self, asked: u64) -> GrowthRefusal {
        let hit = LimitHit::new(LimitKind::Memory, self.budget, asked);
        GrowthRefusal(*self.hit.get_or_init(|| hit))
    }

    /// Records and returns the refusal of a use of more than is left, by an unknown amount.
    pub(super) fn exhausted(&self) -> GrowthRefusal {
        self.refuse(self.budget.saturating_add(1))
    }

    /// Takes `bytes` for memory that the host holds.
    pub(super) fn hold(&self, bytes: u64) -> Result<(), GrowthRefusal> {
        self.grow(bytes)?;
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        self.held_peak.fetch_max(before.saturating_add(bytes), Ordering::Relaxed);
        Ok(())
    }

    /// Releases bytes that were taken with [`hold`](Self::hold).
    pub(super) fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the rest of the budget.
    pub(super) fn room(&self) -> u64 {
        self.budget.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// The first refusal.
    pub(super) fn hit(&self) -> Option<LimitHit> {
        self.hit.get().copied()
    }

    /// Returns the peak of the bytes in use, and of the bytes that the host held.
    pub(super) fn peaks(&self) -> (u64, u64) {
        (self.peak.load(Ordering::Relaxed), self.held_peak.load(Ordering::Relaxed))
    }
}

/// Host memory that is charged to an attempt until this is dropped. Objects that share an allocation share
/// the charge.
#[derive(Debug)]
pub(super) struct MemoryCharge {
    ledger: Arc<AttemptLog>,
    bytes: AtomicU64,
}

impl MemoryCharge {
    /// Creates an empty charge.
    pub(super) fn empty(ledger: &Arc<AttemptLog>) -> Self {
        Self { ledger: Arc::clone(ledger), bytes: AtomicU64::new(0) }
    }

    /// Creates a charge of so many bytes.
    ///
    /// # Errors
    /// The attempt has less left, which ends it.
    pub(super) fn try_new(ledger: &Arc<AttemptLog>, bytes: u64) -> Result<Self, GrowthRefusal> {
        let charge = Self::empty(ledger);
        charge.add(bytes)?;
        Ok(charge)
    }

    /// Returns the charged bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Charges more.
    ///
    /// # Errors
    /// The attempt has less left, which ends it.
    pub(super) fn add(&self, bytes: u64) -> Result<(), GrowthRefusal> {
        self.ledger.hold(bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Replaces the charge by one of `bytes`.
    ///
    /// # Errors
    /// The attempt has less left, which ends it.
    pub(super) fn set(&self, bytes: u64) -> Result<(), GrowthRefusal> {
        let before = self.bytes();
        match bytes.checked_sub(before) {
            Some(more) => self.add(more),
            None => {
                self.bytes.store(bytes, Ordering::Relaxed);
                self.ledger.memory().release(before - bytes);
                Ok(())
            }
        }
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.ledger.memory().release(self.bytes());
    }
}

impl AttemptLog {
    /// Charges host memory to the attempt. If there is not enough left the attempt ends: memory may be held
    /// for a guest outside its code, and no error would reach it there.
    pub(super) fn hold(&self, bytes: u64) -> Result<(), GrowthRefusal> {
        self.memory().hold(bytes).inspect_err(|GrowthRefusal(hit)| self.end(Termination::Limit(*hit)))
    }
}

/// The charges of one store's objects, by the number of the object's handle in the host's table. Numbers are
/// reused for other objects.
#[derive(Debug, Default)]
pub(crate) struct MemoryCharges(BTreeMap<u32, Arc<MemoryCharge>>);

impl MemoryCharges {
    /// Returns the charge of an object; an empty one if it had none.
    pub(crate) fn get_or_empty(&mut self, rep: u32, ledger: &Arc<AttemptLog>) -> &MemoryCharge {
        self.0.entry(rep).or_insert_with(|| Arc::new(MemoryCharge::empty(ledger)))
    }

    /// Removes the charge of an object that was dropped or became part of another one.
    pub(crate) fn take(&mut self, rep: u32) -> Option<Arc<MemoryCharge>> {
        self.0.remove(&rep)
    }

    /// Sets the charge of a new object.
    pub(crate) fn put(&mut self, rep: u32, charge: Option<Arc<MemoryCharge>>) {
        match charge {
            Some(charge) => drop(self.0.insert(rep, charge)),
            None => drop(self.0.remove(&rep)),
        }
    }
}

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
        limits::INSTANCES + adapter::INSTANCES
    }

    fn tables(&self) -> usize {
        limits::TABLES
    }

    fn memories(&self) -> usize {
        limits::MEMORIES + adapter::MEMORIES
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use cofferdam_core::failure::LimitKind;

    use super::*;

    #[test]
    fn charges_and_growth_share_one_budget() {
        let ledger = Arc::new(AttemptLog::new(1_000));
        ledger.memory().grow(400).unwrap();
        let charge = MemoryCharge::try_new(&ledger, 300).unwrap();
        charge.add(200).unwrap();
        assert_eq!((ledger.memory().room(), charge.bytes()), (100, 500));
        charge.set(50).unwrap();
        assert_eq!(ledger.memory().room(), 550);
        drop(charge);
        assert_eq!((ledger.memory().room(), ledger.memory().peaks()), (600, (900, 500)));
        assert!(ledger.memory().hit().is_none() && !ledger.is_over());
    }

    #[test]
    fn a_charge_above_the_budget_ends_the_attempt() {
        let ledger = Arc::new(AttemptLog::new(1_000));
        let charge = MemoryCharge::try_new(&ledger, 600).unwrap();
        let GrowthRefusal(hit) = charge.add(401).unwrap_err();
        assert_eq!((hit.limit, hit.configured, hit.used), (LimitKind::Memory, 1_000, 1_001));
        assert_eq!((charge.bytes(), ledger.memory().room()), (600, 400), "a refused charge takes nothing");
        assert_eq!(ledger.termination(), Some(Termination::Limit(hit)));
        assert!(charge.add(u64::MAX).is_err(), "no sum overflows");
        assert_eq!(ledger.memory().hit(), Some(hit), "the first refusal is the one that is reported");
    }
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
