//! The handles of one attempt. A handle is opaque, unguessable and valid for one request only.

use std::collections::BTreeMap;

use cofferdam_core::limits::REQUESTS;

/// The prefix of every handle; 32 hexadecimal digits follow.
const PREFIX: &str = "cofferdam-handle-";
const DIGITS: usize = 32;

/// The state of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandleState {
    Fresh,
    Spent,
}

/// The issued handles, each with the credential of the call that it stands for.
#[derive(Debug, Default)]
pub(super) struct HandleTable {
    given: BTreeMap<String, (usize, HandleState)>,
}

/// The reason why no handle could be issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoHandle {
    /// There are already as many handles as there can be requests.
    TooMany,
    /// The system has no randomness.
    NoRandomness,
}

impl HandleTable {
    /// Issues a handle of 128 random bits for the credential `of`.
    pub(super) fn mint(&mut self, of: usize) -> Result<String, NoHandle> {
        if self.given.len() as u64 >= REQUESTS {
            return Err(NoHandle::TooMany);
        }
        let mut bytes = [0; DIGITS / 2];
        getrandom::fill(&mut bytes).map_err(|_| NoHandle::NoRandomness)?;
        let handle = format!("{PREFIX}{:032x}", u128::from_be_bytes(bytes));
        self.given.insert(handle.clone(), (of, HandleState::Fresh));
        Ok(handle)
    }

    /// Returns the credential that `handle` stands for, if the handle belongs to this attempt and is not
    /// spent.
    pub(super) fn of(&self, handle: &str) -> Result<usize, &'static str> {
        match self.given.get(handle) {
            Some((of, HandleState::Fresh)) => Ok(*of),
            Some((_, HandleState::Spent)) => Err("it was good for one request, which was made"),
            None => Err("it is none of this attempt's"),
        }
    }

    /// Invalidates the handle.
    pub(super) fn spend(&mut self, handle: &str) {
        if let Some((_, state)) = self.given.get_mut(handle) {
            *state = HandleState::Spent;
        }
    }
}

/// Returns everything in `text` that looks like a handle, without duplicates.
pub(super) fn in_text(text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, window) in text.windows(PREFIX.len()).enumerate() {
        if window != PREFIX.as_bytes() {
            continue;
        }
        let rest = text.get(at + PREFIX.len()..).unwrap_or_default();
        let digits = rest.iter().take(DIGITS).take_while(|b| b.is_ascii_hexdigit()).count();
        let end = at + PREFIX.len() + digits;
        let handle = String::from_utf8_lossy(text.get(at..end).unwrap_or_default()).into_owned();
        if !found.contains(&handle) {
            found.push(handle);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    #[test]
    fn w29_a_handle_is_unguessable_and_good_once() {
        let mut handles = HandleTable::default();
        let (one, two) = (handles.mint(0).unwrap(), handles.mint(1).unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), PREFIX.len() + DIGITS);
        assert_eq!((handles.of(&one), handles.of(&two)), (Ok(0), Ok(1)));
        handles.spend(&one);
        assert!(handles.of(&one).is_err() && handles.of(&two) == Ok(1));
        assert!(handles.of(&one[..one.len() - 1]).is_err() && HandleTable::default().of(&two).is_err());
        let more = std::iter::from_fn(|| handles.mint(0).ok()).count() as u64;
        assert_eq!(more, REQUESTS - 2);
    }

    #[test]
    fn w29_handles_are_found_in_a_text_whole_or_broken() {
        let handle = HandleTable::default().mint(0).unwrap();
        let text = format!("a={handle}&b={handle}.{PREFIX}12-{PREFIX}");
        assert_eq!(in_text(text.as_bytes()), [handle, format!("{PREFIX}12"), PREFIX.to_owned()]);
        assert!(in_text(b"cofferdam-handl").is_empty());
    }
}
