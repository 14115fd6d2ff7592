//! The search for many patterns at once, in pieces: where it stands between two pieces is one number.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, BuildError, MatchError, MatchKind};
use zeroize::Zeroizing;

use super::skip::Skip;

/// The patterns, made ready.
pub(super) struct Search {
    nfa: NFA,
    start: StateID,
    skip: Skip,
    /// How many bytes of a pattern stand behind each state, in the order of the states.
    depths: Vec<(StateID, usize)>,
}

/// Where a search stands after the bytes it was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place(StateID);

/// A pattern that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    /// Which one.
    pub(super) pattern: usize,
    /// How long it is.
    pub(super) length: usize,
    /// How many of the bytes that were given last it needed.
    pub(super) end: usize,
}

/// The patterns are too many or too long to be looked for.
#[derive(Debug, thiserror::Error)]
#[error("too many patterns")]
pub(super) struct TooMuch;

impl From<BuildError> for TooMuch {
    fn from(_: BuildError) -> Self {
        Self
    }
}

impl From<MatchError> for TooMuch {
    fn from(_: MatchError) -> Self {
        Self
    }
}

impl Search {
    /// A search for `patterns`, each of at least three bytes.
    pub(super) fn new(patterns: &[Zeroizing<Vec<u8>>]) -> Result<Self, TooMuch> {
        let nfa = NFA::builder()
            .match_kind(MatchKind::Standard)
            .prefilter(false)
            .build(patterns.iter().map(|pattern| pattern.as_slice()))?;
        let start = nfa.start_state(Anchored::No)?;
        let mut depths = Vec::new();
        for pattern in patterns {
            let mut state = start;
            for (index, byte) in pattern.iter().enumerate() {
                state = nfa.next_state(Anchored::No, state, *byte);
                depths.push((state, index.saturating_add(1)));
            }
        }
        depths.sort_unstable();
        depths.dedup();
        Ok(Self { nfa, start, skip: Skip::new(patterns), depths })
    }

    /// Where it stands before the first byte.
    pub(super) fn start(&self) -> Place {
        Place(self.start)
    }

    /// Goes on with `bytes`, up to the first pattern that ends in them.
    pub(super) fn advance(&self, place: &mut Place, bytes: &[u8]) -> Option<Hit> {
        let mut at = 0;
        let mut state = place.0;
        while let Some(byte) = bytes.get(at) {
            if state == self.start {
                let next = self.skip.next(bytes, at);
                if next != at {
                    at = next;
                    continue;
                }
            }
            state = self.nfa.next_state(Anchored::No, state, *byte);
            at = at.saturating_add(1);
            if self.nfa.is_match(state) {
                let pattern = self.nfa.match_pattern(state, 0);
                let (length, pattern) = (self.nfa.pattern_len(pattern), pattern.as_usize());
                return Some(Hit { pattern, length, end: at });
            }
        }
        place.0 = state;
        None
    }

    /// How many of the last bytes may be the beginning of a pattern.
    pub(super) fn pending(&self, place: Place) -> usize {
        let found = self.depths.binary_search_by_key(&place.0, |(state, _)| *state);
        found.ok().and_then(|index| self.depths.get(index)).map_or(0, |(_, depth)| *depth)
    }
}
