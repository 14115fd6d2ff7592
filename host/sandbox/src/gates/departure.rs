//! Bookkeeping of a request from the moment at which its bytes may leave.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_core::failure::UnkeyedRequest;
use cofferdam_egress::egress::ObserveDeparture;

use super::ledger::{AttemptLog, RequestNumber};
use super::unkeyed::{SentNumber, UnkeyedWatch};

/// One admitted request, as recorded by the ledger and the watch for unkeyed requests.
pub(super) struct DepartingRequest {
    ledger: Arc<AttemptLog>,
    number: RequestNumber,
    /// The bytes of its first line.
    line: u64,
    watch: Arc<UnkeyedWatch>,
    /// Its description as an unkeyed request, if it is one.
    unkeyed: Option<UnkeyedRequest>,
    noted: Mutex<Option<SentNumber>>,
}

impl DepartingRequest {
    pub(super) fn new(
        ledger: Arc<AttemptLog>,
        (number, line): (RequestNumber, u64),
        watch: Arc<UnkeyedWatch>,
        unkeyed: Option<UnkeyedRequest>,
    ) -> Self {
        Self { ledger, number, line, watch, unkeyed, noted: Mutex::new(None) }
    }

    fn noted(&self) -> MutexGuard<'_, Option<SentNumber>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_unkeyed(&self) {
        if let Some(number) = self.noted().take() {
            self.watch.unsent(number);
        }
    }
}

impl ObserveDeparture for DepartingRequest {
    fn departs(&self) -> bool {
        if let Some(unkeyed) = &self.unkeyed {
            let Ok(number) = self.watch.sends(unkeyed.clone()) else { return false };
            *self.noted() = Some(number);
        }
        let may_depart = self.ledger.sending(self.number, self.line);
        if !may_depart {
            self.forget_unkeyed();
        }
        may_depart
    }

    fn stayed(&self) {
        self.ledger.unsent(self.number, self.line);
        self.forget_unkeyed();
    }
}
