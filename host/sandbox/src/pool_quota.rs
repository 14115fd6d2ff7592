//! Room in the pool of instances. A call that needs more memories or tables than a slot has on average waits
//! for them, so that the pool never refuses an admitted call.

use cofferdam_core::limits;
use tokio::sync::{Semaphore, SemaphorePermit};
use wasmtime::component::Component;

use super::adapter;

/// The capacity of the pool for `slots` calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolCapacity {
    pub(super) core_instances: u32,
    pub(super) memories: u32,
    pub(super) tables: u32,
}

impl PoolCapacity {
    /// Computes the capacity. Memories and tables take address space, so a slot has some on average, and all
    /// slots together have the maximum of a single call; instances are only counted.
    pub(super) fn for_slots(slots: u32) -> Self {
        let count = |most: usize| u32::try_from(most).unwrap_or(u32::MAX);
        Self {
            core_instances: slots.saturating_mul(count(limits::INSTANCES + adapter::INSTANCES)),
            memories: slots.saturating_mul(3).max(count(limits::MEMORIES + adapter::MEMORIES)),
            tables: slots.saturating_mul(4).max(count(limits::TABLES)),
        }
    }
}

/// The pool resources that one instance needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolNeeds {
    memories: u32,
    tables: u32,
}

impl PoolNeeds {
    /// Returns the needs of a component; the maximum of any call if the component leaves that open.
    pub(super) fn for_component(component: &Component) -> Self {
        let most = PoolCapacity::for_slots(1);
        component.resources_required().map_or(
            Self { memories: most.memories, tables: most.tables },
            |required| Self { memories: required.num_memories, tables: required.num_tables },
        )
    }
}

/// The pool's memories and tables that no call has taken.
#[derive(Debug)]
pub(super) struct PoolQuota {
    totals: PoolCapacity,
    memories: Semaphore,
    tables: Semaphore,
}

/// Room that a call has taken, until it is dropped.
#[derive(Debug)]
pub struct PoolPermit<'r> {
    _memories: SemaphorePermit<'r>,
    _tables: SemaphorePermit<'r>,
}

impl PoolQuota {
    pub(super) fn new(totals: PoolCapacity) -> Self {
        let semaphore = |count: u32| Semaphore::new(count as usize);
        Self { totals, memories: semaphore(totals.memories), tables: semaphore(totals.tables) }
    }

    /// Takes room, if there is some now.
    pub(super) fn try_take(&self, needs: PoolNeeds) -> Option<PoolPermit<'_>> {
        let (memories, tables) = self.wanted(needs);
        let memories = self.memories.try_acquire_many(memories).ok()?;
        let tables = self.tables.try_acquire_many(tables).ok()?;
        Some(PoolPermit { _memories: memories, _tables: tables })
    }

    /// Takes room, in turn. Every call takes memories first, so that no two calls wait for each other.
    pub(super) async fn take(&self, needs: PoolNeeds) -> Option<PoolPermit<'_>> {
        let (memories, tables) = self.wanted(needs);
        let memories = self.memories.acquire_many(memories).await.ok()?;
        let tables = self.tables.acquire_many(tables).await.ok()?;
        Some(PoolPermit { _memories: memories, _tables: tables })
    }

    /// Caps the needs at the capacity: a call that needs more is refused by its limit before it is
    /// instantiated.
    fn wanted(&self, needs: PoolNeeds) -> (u32, u32) {
        (needs.memories.min(self.totals.memories), needs.tables.min(self.totals.tables))
    }
}
