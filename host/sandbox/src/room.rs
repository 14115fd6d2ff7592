//! Room in the pool of instances: a call that needs more memories or tables than a slot has on average waits
//! for them, so that the pool never refuses what was admitted.

use cofferdam_core::limits;
use tokio::sync::{Semaphore, SemaphorePermit};
use wasmtime::component::Component;

use super::bridge;

/// What the pool has for `slots` calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Totals {
    pub(super) core_instances: u32,
    pub(super) memories: u32,
    pub(super) tables: u32,
}

impl Totals {
    /// Memories and tables take address space, so a slot has some on average, and all together what a single
    /// call may have at most; instances are only counted.
    pub(super) fn of(slots: u32) -> Self {
        let count = |most: usize| u32::try_from(most).unwrap_or(u32::MAX);
        Self {
            core_instances: slots.saturating_mul(count(limits::INSTANCES + bridge::INSTANCES)),
            memories: slots.saturating_mul(3).max(count(limits::MEMORIES + bridge::MEMORIES)),
            tables: slots.saturating_mul(4).max(count(limits::TABLES)),
        }
    }
}

/// What one instance takes of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    memories: u32,
    tables: u32,
}

impl Needs {
    /// Of a component; as much as any call may have where it leaves that open.
    pub(super) fn of(component: &Component) -> Self {
        let most = Totals::of(1);
        component.resources_required().map_or(
            Self { memories: most.memories, tables: most.tables },
            |required| Self { memories: required.num_memories, tables: required.num_tables },
        )
    }
}

/// The pool's memories and tables that no call has taken.
#[derive(Debug)]
pub(super) struct Rooms {
    totals: Totals,
    memories: Semaphore,
    tables: Semaphore,
}

/// Room that a call has taken, until it is dropped.
#[derive(Debug)]
pub struct Room<'r> {
    _memories: SemaphorePermit<'r>,
    _tables: SemaphorePermit<'r>,
}

impl Rooms {
    pub(super) fn new(totals: Totals) -> Self {
        let semaphore = |count: u32| Semaphore::new(count as usize);
        Self { totals, memories: semaphore(totals.memories), tables: semaphore(totals.tables) }
    }

    /// Takes room, if there is some now.
    pub(super) fn try_take(&self, needs: Needs) -> Option<Room<'_>> {
        let (memories, tables) = self.wanted(needs);
        let memories = self.memories.try_acquire_many(memories).ok()?;
        let tables = self.tables.try_acquire_many(tables).ok()?;
        Some(Room { _memories: memories, _tables: tables })
    }

    /// Takes room, in turn. Memories come first for everybody, so that no two calls wait for each other.
    pub(super) async fn take(&self, needs: Needs) -> Option<Room<'_>> {
        let (memories, tables) = self.wanted(needs);
        let memories = self.memories.acquire_many(memories).await.ok()?;
        let tables = self.tables.acquire_many(tables).await.ok()?;
        Some(Room { _memories: memories, _tables: tables })
    }

    /// No more than there is: what needs more is refused by its limit before it is instantiated.
    fn wanted(&self, needs: Needs) -> (u32, u32) {
        (needs.memories.min(self.totals.memories), needs.tables.min(self.totals.tables))
    }
}
