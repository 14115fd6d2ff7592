//! The arguments of a call as servers hold them: text until the call is admitted.

use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::strict_json;
use serde_json::Value;

use super::budget::BudgetCharge;

/// The most values in one request, each item and each field counted.
pub(crate) const VALUES: usize = 500_000;

/// The most values in the arguments of an action: they are built, and stay in memory while it runs.
const ACTION_VALUES: usize = 50_000;

/// The memory of one built value, in bytes.
pub(crate) const VALUE_BYTES: usize = 96;

/// The arguments of one call; its handler takes them once.
#[derive(Debug)]
pub(crate) struct CallArguments {
    text: Mutex<Option<String>>,
    /// The request's charge to the server's budget; none in a router that is served without our listener.
    charge: Option<Arc<BudgetCharge>>,
}

impl CallArguments {
    /// Wraps the arguments in `text`, which is an object.
    pub(crate) fn new(text: String, charge: Option<Arc<BudgetCharge>>) -> Self {
        Self { text: Mutex::new(Some(text)), charge }
    }

    /// Returns the text, the first time.
    pub(crate) fn take(&self) -> Option<String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns a copy for a second run of the call, charged as the first is, for as long as the request is. None if they
    /// were taken, or if the budget has no room for a copy.
    pub(crate) fn copy(&self) -> Option<Self> {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let has_room = self.charge.as_ref().is_none_or(|charge| charge.grow(text.len()));
        has_room.then(|| Self::new(text, self.charge.clone()))
    }

    /// Returns the values of an action's arguments, charged for as long as the request is.
    ///
    /// # Errors
    /// `validation`: there are too many. `busy`: the budget has no room for them.
    pub(crate) fn take_values(&self) -> Result<Value, HostError> {
        let text = self.take().unwrap_or_default();
        let values = super::budget::count(text.as_bytes(), ACTION_VALUES);
        let values = values.map_err(|rejection| unacceptable(&rejection.into_error()))?;
        if self.charge.as_ref().is_some_and(|charge| !charge.grow(values.saturating_mul(VALUE_BYTES))) {
            return Err(busy());
        }
        strict_json::parse(text.as_bytes()).map_err(|error| unacceptable(&error))
    }
}

fn unacceptable(error: &serde_json::Error) -> HostError {
    let message = format!("The arguments are not acceptable: {}.", sanitize_line(&error.to_string(), 300));
    HostError::new(HostErrorKind::Validation, message)
}

/// Returns the error for a request that exceeds the budget.
fn busy() -> HostError {
    HostError::new(
        HostErrorKind::Busy,
        "The server holds as many bytes of requests as it may. Nothing was run.",
    )
    .with_hint("Try again later, or with fewer large requests at once.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::sync::Arc;

    use super::{ACTION_VALUES, CallArguments, HostErrorKind, VALUE_BYTES};
    use crate::server::{BudgetClient, RequestBudget};

    fn zeros(count: usize) -> String {
        format!("{{\"a\": [{}]}}", vec!["0"; count].join(","))
    }

    #[test]
    fn action_values_are_counted_and_charged() {
        let budget = RequestBudget::new(0);
        let charge = || budget.charge(BudgetClient::Streams, 0).map(Arc::new);
        let values = |text: String, charge| CallArguments::new(text, charge).take_values();
        assert_eq!(values(zeros(1), None).unwrap(), serde_json::json!({"a": [0]}));
        let error = values(zeros(ACTION_VALUES), charge()).unwrap_err();
        assert_eq!(
            (error.kind(), error.message().contains("more than 50000 values")),
            (HostErrorKind::Validation, true)
        );
        let held = charge();
        assert!(values(zeros(40_000), held.clone()).is_ok());
        let error = values(zeros(49_000), charge()).unwrap_err();
        assert_eq!(error.kind(), HostErrorKind::Busy, "{} are charged", 40_000 * VALUE_BYTES);
        drop(held);
        assert!(values(zeros(49_000), charge()).is_ok());
    }
    #[test]
    fn a_copy_is_charged_like_the_first() {
        let budget = RequestBudget::new(0);
        let charge = budget.charge(BudgetClient::Streams, 0).map(Arc::new);
        let first = CallArguments::new(zeros(2_500_000), charge);
        assert_eq!(first.copy().unwrap().take(), Some(zeros(2_500_000)));
        assert!(first.copy().is_none(), "two copies exceed the budget");
        assert!(first.take().is_some() && first.copy().is_none(), "it was taken");
    }
}
