//! The charges of a store's objects, by the number of the object's handle in the host's table.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ledger::AttemptLog;
use crate::memory::MemoryCharge;

/// The charges of one store. Numbers are reused for other objects.
#[derive(Debug, Default)]
pub(crate) struct MemoryCharges(BTreeMap<u32, Arc<MemoryCharge>>);

impl MemoryCharges {
    /// Returns the charge of an object; an empty one if it had none.
    pub(super) fn of(&mut self, rep: u32, ledger: &Arc<AttemptLog>) -> &MemoryCharge {
        self.0.entry(rep).or_insert_with(|| Arc::new(MemoryCharge::empty(ledger)))
    }

    /// Removes the charge of an object that was dropped or became part of another one.
    pub(super) fn take(&mut self, rep: u32) -> Option<Arc<MemoryCharge>> {
        self.0.remove(&rep)
    }

    /// Sets the charge of a new object.
    pub(super) fn put(&mut self, rep: u32, charge: Option<Arc<MemoryCharge>>) {
        match charge {
            Some(charge) => drop(self.0.insert(rep, charge)),
            None => drop(self.0.remove(&rep)),
        }
    }
}
