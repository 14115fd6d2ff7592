//! One budget of bytes for the requests that a server holds: those being read, waiting, running or being
//! answered.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_core::strict_json::duplicate_name_error;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

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

/// The most names of one object. The types of operations have far fewer; each costs more than its text while
/// it is compared with the others.
const NAMES: usize = 65_536;

/// The reason why a text is not accepted as JSON.
#[derive(Debug)]
pub(crate) enum JsonCountError {
    Malformed(serde_json::Error),
    RepeatedName(serde_json::Error),
    TooManyValues(serde_json::Error),
}

impl JsonCountError {
    pub(crate) fn into_error(self) -> serde_json::Error {
        match self {
            Self::Malformed(error) | Self::RepeatedName(error) | Self::TooManyValues(error) => error,
        }
    }
}

/// Counts the values of one JSON text: each item of an array, each field of an object, and the whole. At most
/// `most` are accepted, and no name may be repeated in an object, as in
/// [`parse`](cofferdam_core::strict_json::parse).
pub(crate) fn count(text: &[u8], most: usize) -> Result<usize, JsonCountError> {
    let counter = ValueCounter { left: &Cell::new(most), is_over: &Cell::new(false), most };
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let counted = counter.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    match counted {
        Ok(()) => Ok(most - counter.left.get()),
        Err(error) if error.classify() != Category::Data => Err(JsonCountError::Malformed(error)),
        Err(error) if counter.is_over.get() => Err(JsonCountError::TooManyValues(error)),
        Err(error) => Err(JsonCountError::RepeatedName(error)),
    }
}

#[derive(Clone, Copy)]
struct ValueCounter<'c> {
    left: &'c Cell<usize>,
    is_over: &'c Cell<bool>,
    most: usize,
}

impl ValueCounter<'_> {
    fn over<E: serde::de::Error>(self, most: usize, what: &str) -> E {
        self.is_over.set(true);
        E::custom(format!("it has more than {most} {what}"))
    }
}

impl<'de> DeserializeSeed<'de> for ValueCounter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Some(left) = self.left.get().checked_sub(1) else { return Err(self.over(self.most, "values")) };
        self.left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueCounter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(ObjectKey(name)) = fields.next_key()? {
            if names.len() >= NAMES {
                return Err(self.over(NAMES, "names in one object"));
            }
            fields.next_value_seed(self)?;
            if let Some(name) = names.replace(name) {
                return Err(duplicate_name_error(&name));
            }
        }
        Ok(())
    }
}

/// A name in an object: borrowed from the text unless it is written with escapes.
#[derive(Deserialize)]
struct ObjectKey<'n>(#[serde(borrow)] Cow<'n, str>);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use cofferdam_core::strict_json::parse;

    use super::{BudgetClient, JsonCountError, LEAST_BYTES, NAMES, RequestBudget, count};

    fn at(address: u8, session: u64) -> BudgetClient {
        BudgetClient::Network { address: [127, 0, 0, address].into(), session: Some(session) }
    }

    fn client(number: u8) -> BudgetClient {
        at(number, 0)
    }

    #[test]
    fn forged_sessions_leave_room_for_other_addresses() {
        let budget = RequestBudget::new(0);
        let held: Vec<_> = (0..64).map_while(|n| budget.charge(at(1, n), LEAST_BYTES / 16)).collect();
        assert_eq!(held.len(), 12, "three quarters");
        assert!(budget.charge(at(2, 0), LEAST_BYTES / 4).is_some());
    }

    #[test]
    fn one_client_gets_half_of_the_budget() {
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
    #[test]
    fn counting_and_parsing_accept_the_same_json() {
        for text in
            [r#"{"a": [1, -2, 0.5, "x\u00e9", true, null], "b": {"a": {}}}"#, "[]", "7", "{a: 1}", "1e999"]
        {
            assert_eq!(count(text.as_bytes(), 100).ok().is_some(), parse(text.as_bytes()).is_ok(), "{text}");
        }
        let text = br#"{"a": [1, 2, {"b": null}]}"#;
        assert_eq!(count(text, 6).unwrap(), 6);
        assert!(matches!(count(text, 5), Err(JsonCountError::TooManyValues(_))));
        assert!(matches!(count(b"[1,]", 5), Err(JsonCountError::Malformed(_))));
        for text in [r#"{"a": 1, "a": 1}"#, r#"{"x": [{"a": 1, "\u0061": 2}]}"#] {
            assert!(matches!(count(text.as_bytes(), 9), Err(JsonCountError::RepeatedName(_))), "{text}");
        }
        let names: Vec<_> = (0..=NAMES).map(|n| format!("\"{n}\": 0")).collect();
        let wide = format!("{{{}}}", names.join(","));
        assert!(matches!(count(wide.as_bytes(), usize::MAX), Err(JsonCountError::TooManyValues(_))));
        assert!(matches!(count("[".repeat(100_000).as_bytes(), 9), Err(JsonCountError::TooManyValues(_))));
    }
}
