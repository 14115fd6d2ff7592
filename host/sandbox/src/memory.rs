//! The memory of one attempt: what its guest has and what the host holds for it, in one budget.
//!
//! Linear memories and tables are not all that a guest can fill: methods, paths, header fields, bodies on their way,
//! output and handles are kept by the host. Each is charged to the attempt before it is kept, and released with it.
//! Prices are upper bounds of what the allocator hands out, found by measuring (`tests/hoards.rs` holds them to it).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cofferdam_core::failure::{LimitHit, LimitKind};

use super::gates::ledger::{Ledger, Verdict};
use super::limiter::Refused;

/// Bytes that a handle on a host resource costs: its entry in the tables, and the object behind it without the data
/// that is charged by length.
pub(super) const HANDLE_BYTES: u64 = 2 * 1024;

/// Bytes that a header field costs beside its name and value, at the worst fill of the map.
pub(super) const FIELD_BYTES: u64 = 320;

/// Bytes that one request under way costs beside what the guest gave for it: its task and the buffers of its
/// connection.
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

    /// Takes `bytes` of the budget for the guest itself, for good.
    ///
    /// # Errors
    /// There are not so many left; the first such refusal is kept as the [`hit`](Self::hit).
    pub(super) fn grow(&self, bytes: u64) -> Result<(), Refused> {
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.budget);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(before) => {
                self.peak.fetch_max(before.saturating_add(bytes), Ordering::Relaxed);
                Ok(())
            }
            Err(used) => Err(self.refuse(used.saturating_add(bytes))),
        }
    }

    /// The refusal of a use of so many bytes, noted.
    pub(super) fn refuse(&self, asked: u64) -> Refused {
        let hit = LimitHit::new(LimitKind::Memory, self.budget, asked);
        Refused(*self.hit.get_or_init(|| hit))
    }

    /// The refusal of more than there is left, how much more is not known.
    pub(super) fn exhausted(&self) -> Refused {
        self.refuse(self.budget.saturating_add(1))
    }

    /// Takes `bytes` for what the host holds.
    pub(super) fn hold(&self, bytes: u64) -> Result<(), Refused> {
        self.grow(bytes)?;
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        self.held_peak.fetch_max(before.saturating_add(bytes), Ordering::Relaxed);
        Ok(())
    }

    /// Gives back what was taken with [`hold`](Self::hold).
    pub(super) fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What is left of the budget.
    pub(super) fn room(&self) -> u64 {
        self.budget.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// The first refusal.
    pub(super) fn hit(&self) -> Option<LimitHit> {
        self.hit.get().copied()
    }

    /// The most bytes that were in use at once, and the most that the host held.
    pub(super) fn peaks(&self) -> (u64, u64) {
        (self.peak.load(Ordering::Relaxed), self.held_peak.load(Ordering::Relaxed))
    }
}

/// Host memory that is charged to an attempt until this is dropped. What shares an allocation shares the charge.
#[derive(Debug)]
pub(super) struct Charge {
    ledger: Arc<Ledger>,
    bytes: AtomicU64,
}

impl Charge {
    /// A charge of nothing yet.
    pub(super) fn empty(ledger: &Arc<Ledger>) -> Self {
        Self { ledger: Arc::clone(ledger), bytes: AtomicU64::new(0) }
    }

    /// A charge of so many bytes.
    ///
    /// # Errors
    /// They are more than the attempt has left, which ends it.
    pub(super) fn of(ledger: &Arc<Ledger>, bytes: u64) -> Result<Self, Refused> {
        let charge = Self::empty(ledger);
        charge.add(bytes)?;
        Ok(charge)
    }

    /// What is charged now.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Charges more.
    ///
    /// # Errors
    /// It is more than the attempt has left, which ends it.
    pub(super) fn add(&self, bytes: u64) -> Result<(), Refused> {
        self.ledger.hold(bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Charges `bytes` instead of what is charged now.
    ///
    /// # Errors
    /// It is more than the attempt has left, which ends it.
    pub(super) fn set(&self, bytes: u64) -> Result<(), Refused> {
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

impl Drop for Charge {
    fn drop(&mut self) {
        self.ledger.memory().release(self.bytes());
    }
}

impl Ledger {
    /// Charges host memory to the attempt. Where there is not enough left the attempt ends: what is held for a guest
    /// may be charged beside its code, where no error reaches it.
    pub(super) fn hold(&self, bytes: u64) -> Result<(), Refused> {
        self.memory().hold(bytes).inspect_err(|Refused(hit)| self.end(Verdict::Limit(*hit)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn charges_and_growth_share_one_budget() {
        let ledger = Arc::new(Ledger::new(1_000));
        ledger.memory().grow(400).unwrap();
        let charge = Charge::of(&ledger, 300).unwrap();
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
        let ledger = Arc::new(Ledger::new(1_000));
        let charge = Charge::of(&ledger, 600).unwrap();
        let Refused(hit) = charge.add(401).unwrap_err();
        assert_eq!((hit.limit, hit.configured, hit.used), (LimitKind::Memory, 1_000, 1_001));
        assert_eq!((charge.bytes(), ledger.memory().room()), (600, 400), "a refused charge takes nothing");
        assert_eq!(ledger.verdict(), Some(Verdict::Limit(hit)));
        assert!(charge.add(u64::MAX).is_err(), "no sum overflows");
        assert_eq!(ledger.memory().hit(), Some(hit), "the first refusal is the one that is reported");
    }
}
