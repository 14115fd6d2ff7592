//! The calls that are not over: what the steps between their first and their last do not say again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use cofferdam_core::failure::AuditId;

use super::labels::Operation;

/// Calls that are kept track of at once; a host runs and holds fewer.
const MOST: usize = 1_000_000;

/// One of them.
pub(super) struct Flight {
    pub(super) began: Instant,
    /// What was called.
    pub(super) called: Operation,
    /// What was attempted last.
    pub(super) attempted: Option<Operation>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<AuditId, Flight>>);

impl Flights {
    /// A call begins.
    pub(super) fn begin(&self, audit_id: &AuditId, flight: Flight) {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.len() < MOST {
            flights.insert(audit_id.clone(), flight);
        }
    }

    /// Looks at a call, and may change what is known of it.
    pub(super) fn at<T>(&self, audit_id: &AuditId, look: impl FnOnce(&mut Flight) -> T) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(audit_id).map(look)
    }

    /// A call is over.
    pub(super) fn end(&self, audit_id: &AuditId) -> Option<Flight> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(audit_id)
    }
}
