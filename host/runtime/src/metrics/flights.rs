//! The calls in flight, with the facts that only their first events contain.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use cofferdam_core::failure::AuditId;

use super::labels::OperationLabels;

/// The most calls that are tracked at once. A host runs and queues fewer.
const MOST: usize = 1_000_000;

/// A call in flight.
pub(super) struct CallFlight {
    pub(super) began: Instant,
    /// The called operation.
    pub(super) called: OperationLabels,
    /// The operation of the last attempt.
    pub(super) attempted: Option<OperationLabels>,
}

/// All calls in flight.
#[derive(Default)]
pub(super) struct InFlightCalls(Mutex<HashMap<AuditId, CallFlight>>);

impl InFlightCalls {
    /// Adds a call.
    pub(super) fn begin(&self, audit_id: &AuditId, flight: CallFlight) {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.len() < MOST {
            flights.insert(audit_id.clone(), flight);
        }
    }

    /// Reads or changes the state of a call.
    pub(super) fn at<T>(&self, audit_id: &AuditId, look: impl FnOnce(&mut CallFlight) -> T) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(audit_id).map(look)
    }

    /// Removes a call that is over.
    pub(super) fn end(&self, audit_id: &AuditId) -> Option<CallFlight> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(audit_id)
    }
}
