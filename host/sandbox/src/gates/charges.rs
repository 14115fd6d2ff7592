//! Which object of a store is charged for how much, by the number of its handle in the host's table.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ledger::Ledger;
use crate::memory::Charge;

/// The charges of one store. Numbers are used again for other objects.
#[derive(Debug, Default)]
pub(crate) struct Charges(BTreeMap<u32, Arc<Charge>>);

impl Charges {
    /// The charge of an object; an empty one where it had none.
    pub(super) fn of(&mut self, rep: u32, ledger: &Arc<Ledger>) -> &Charge {
        self.0.entry(rep).or_insert_with(|| Arc::new(Charge::empty(ledger)))
    }

    /// The object is gone, or part of another one.
    pub(super) fn take(&mut self, rep: u32) -> Option<Arc<Charge>> {
        self.0.remove(&rep)
    }

    /// A new object has this charge.
    pub(super) fn put(&mut self, rep: u32, charge: Option<Arc<Charge>>) {
        match charge {
            Some(charge) => drop(self.0.insert(rep, charge)),
            None => drop(self.0.remove(&rep)),
        }
    }
}
