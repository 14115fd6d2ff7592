//! One budget of bytes for the requests that a server holds: those being read, waiting, running or being
//! answered.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The default budget of a server for all its clients, in bytes.
const DEFAULT_BYTES: usize = 128 << 20;

/// The least budget: two of the longest requests.
const LEAST_BYTES: usize = 2 * super::BODY_BYTES;

/// A client, as far as the server can distinguish it before it has read the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BudgetClient {
    /// The one client of a pair of streams; it has the whole budget.
    Streams,
    /// A client at this address, within the session that the request names. That name is not checked: an
    /// address has a share of its own, regardless of the sessions that its requests name.
    Network { address: IpAddr, session: Option<u64> },
}

/// The account that bytes are charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum BudgetAccount {
    Client(BudgetClient),
    Address(IpAddr),
}

impl BudgetClient {
    /// Returns the accounts of the client's bytes, each with its share of a budget of `bytes`.
    fn accounts(self, bytes: usize) -> impl Iterator<Item = (BudgetAccount, usize)> {
        let (own, address) = match self {
            Self::Streams => (bytes, None),
            Self::Network { address, .. } => {
                (bytes / 2, Some((BudgetAccount::Address(address), bytes / 4 * 3)))
            }
        };
        std::iter::once((BudgetAccount::Client(self), own)).chain(address)
    }
}

/// The budget of one server.
#[derive(Debug, Clone)]
pub struct RequestBudget(Arc<BudgetShared>);

#[derive(Debug)]
struct BudgetShared {
    bytes: usize,
    held: Mutex<ChargedBytes>,
}

#[derive(Debug, Default)]
struct ChargedBytes {
    all: usize,
    by_account: HashMap<BudgetAccount, usize>,
}

impl Default for RequestBudget {
    fn default() -> Self {
        Self::new(DEFAULT_BYTES)
    }
}

impl RequestBudget {
    /// Creates a budget of so many bytes. One client of several gets half at most, and all clients of one
    /// address three quarters. No budget is too small for the longest request.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(BudgetShared { bytes: bytes.max(LEAST_BYTES), held: Mutex::default() }))
    }

    /// Charges `bytes` to `client`; returns none if that exceeds its share or the budget.
    pub(crate) fn charge(&self, client: BudgetClient, bytes: usize) -> Option<BudgetCharge> {
        let charge = BudgetCharge { budget: self.clone(), client, bytes: AtomicUsize::new(0) };
        charge.grow(bytes).then_some(charge)
    }

    fn held(&self) -> MutexGuard<'_, ChargedBytes> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that are charged to a client until this is dropped.
#[derive(Debug)]
pub(crate) struct BudgetCharge {
    budget: RequestBudget,
    client: BudgetClient,
    bytes: AtomicUsize,
}

impl BudgetCharge {
    /// Charges `more` bytes, unless that exceeds the client's share or the budget.
    pub(crate) fn grow(&self, more: usize) -> bool {
        let mut held = self.budget.held();
        let all = self.budget.0.bytes;
        let has_room = |(account, share): (BudgetAccount, usize)| {
            held.by_account.get(&account).copied().unwrap_or(0).saturating_add(more) <= share
        };
        let fits = self.client.accounts(all).all(has_room) && held.all.saturating_add(more) <= all;
        if fits {
            self.add(&mut held, more);
        }
        fits
    }

    /// Charges bytes that exist already, even beyond the budget: they keep further requests out.
    pub(crate) fn force(&self, more: usize) {
        self.add(&mut self.budget.held(), more);
    }

    fn add(&self, held: &mut ChargedBytes, more: usize) {
        held.all = held.all.saturating_add(more);
        for (account, _) in self.client.accounts(self.budget.0.bytes) {
            let own = held.by_account.entry(account).or_default();
            *own = own.saturating_add(more);
        }
        self.bytes.fetch_add(more, Ordering::Relaxed);
    }
}

impl Drop for BudgetCharge {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        let mut held = self.budget.held();
        held.all = held.all.saturating_sub(bytes);
        for (account, _) in self.client.accounts(self.budget.0.bytes) {
            if let Some(own) = held.by_account.get_mut(&account) {
                *own = own.saturating_sub(bytes);
                if *own == 0 {
                    held.by_account.remove(&account);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{BudgetClient, LEAST_BYTES, RequestBudget};

    fn at(address: u8, session: u64) -> BudgetClient {
        BudgetClient::Network { address: [127, 0, 0, address].into(), session: Some(session) }
    }

    fn client(number: u8) -> BudgetClient {
        at(number, 0)
    }

    #[test]
    fn made_up_sessions_leave_room_for_other_addresses() {
        let budget = RequestBudget::new(0);
        let held: Vec<_> = (0..64).map_while(|n| budget.charge(at(1, n), LEAST_BYTES / 16)).collect();
        assert_eq!(held.len(), 12, "three quarters");
        assert!(budget.charge(at(2, 0), LEAST_BYTES / 4).is_some());
    }

    #[test]
    fn a_client_gets_half_and_all_get_the_whole() {
        let budget = RequestBudget::new(0);
        let half = LEAST_BYTES / 2;
        let first = budget.charge(client(1), half).unwrap();
        assert!(!first.grow(1) && budget.charge(client(1), 1).is_none());
        let second = budget.charge(client(2), half).unwrap();
        assert!(budget.charge(client(3), 1).is_none(), "the budget is used up");
        drop(first);
        let third = budget.charge(client(3), 1).unwrap();
        third.force(half);
        assert!(!third.grow(1) && budget.charge(client(1), 1).is_none(), "what is there counts");
        drop((second, third));
        let held = budget.held();
        assert_eq!((held.all, held.by_account.len()), (0, 0));
        drop(held);
        assert!(
            budget.charge(BudgetClient::Streams, LEAST_BYTES).is_some(),
            "a client without others has all"
        );
    }
}
