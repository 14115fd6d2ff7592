//! The notes on a request from the moment at which bytes of it may leave.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_core::failure::UnkeyedRequest;
use cofferdam_egress::egress::ObserveDeparture;

use super::ledger::{Ledger, RequestNumber};
use super::unkeyed::{SentNumber, UnkeyedWatch};

/// One admitted request, as the ledger and the watch for unkeyed requests note it.
pub(super) struct DepartingRequest {
    ledger: Arc<Ledger>,
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
        ledger: Arc<Ledger>,
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
