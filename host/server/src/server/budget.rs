//! One budget of bytes for the requests that a server holds: those being read, waiting, running or being answered.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes that a server holds for all its clients, unless it is told otherwise.
const DEFAULT_BYTES: usize = 128 << 20;

/// The least that a budget can be: two of the longest requests.
const LEAST_BYTES: usize = 2 * super::BODY_BYTES;

/// A client, as far as the server can tell it from others before it has read the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// The one client of a pair of streams; all of the budget is its own.
    Streams,
    /// A client at this address, within the session that the request names. That name is not checked: an address
    /// has a share of its own, whatever sessions its requests name.
    Network { address: IpAddr, session: Option<u64> },
}

/// The account that bytes are charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Account {
    Client(Client),
    Address(IpAddr),
}

impl Client {
    /// The accounts of the client's bytes, each with its share of a budget of `bytes`.
    fn accounts(self, bytes: usize) -> impl Iterator<Item = (Account, usize)> {
        let (own, address) = match self {
            Self::Streams => (bytes, None),
            Self::Network { address, .. } => (bytes / 2, Some((Account::Address(address), bytes / 4 * 3))),
        };
        std::iter::once((Account::Client(self), own)).chain(address)
    }
}

/// The budget of one server.
#[derive(Debug, Clone)]
pub struct RequestBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    by_account: HashMap<Account, usize>,
}

impl Default for RequestBudget {
    fn default() -> Self {
        Self::new(DEFAULT_BYTES)
    }
}

impl RequestBudget {
    /// A budget of so many bytes, of which one client of several gets half at most, and all clients of one address three
    /// quarters. No budget is too small for the longest request.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Shared { bytes: bytes.max(LEAST_BYTES), held: Mutex::default() }))
    }

    /// Charges `bytes` to `client`; none where that exceeds its share or the budget.
    pub(crate) fn charge(&self, client: Client, bytes: usize) -> Option<Charge> {
        let charge = Charge { budget: self.clone(), client, bytes: AtomicUsize::new(0) };
        charge.grow(bytes).then_some(charge)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that are charged to a client until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: RequestBudget,
    client: Client,
    bytes: AtomicUsize,
}

impl Charge {
    /// Charges `more` bytes, unless that exceeds the client's share or the budget.
    pub(crate) fn grow(&self, more: usize) -> bool {
        let mut held = self.budget.held();
        let all = self.budget.0.bytes;
        let has_room = |(account, share): (Account, usize)| {
            held.by_account.get(&account).copied().unwrap_or(0).saturating_add(more) <= share
        };
        let fits = self.client.accounts(all).all(has_room) && held.all.saturating_add(more) <= all;
        if fits {
            self.add(&mut held, more);
        }
        fits
    }

    /// Charges bytes that are there already, whether or not they fit: they keep further requests out.
    pub(crate) fn force(&self, more: usize) {
        self.add(&mut self.budget.held(), more);
    }

    fn add(&self, held: &mut Held, more: usize) {
        held.all = held.all.saturating_add(more);
        for (account, _) in self.client.accounts(self.budget.0.bytes) {
            let own = held.by_account.entry(account).or_default();
            *own = own.saturating_add(more);
        }
        self.bytes.fetch_add(more, Ordering::Relaxed);
    }
}

impl Drop for Charge {
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
    use super::{Client, LEAST_BYTES, RequestBudget};

    fn at(address: u8, session: u64) -> Client {
        Client::Network { address: [127, 0, 0, address].into(), session: Some(session) }
    }

    fn client(number: u8) -> Client {
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
        assert!(budget.charge(Client::Streams, LEAST_BYTES).is_some(), "a client without others has all");
    }
}
