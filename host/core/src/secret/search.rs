//! The search for many patterns at once in pieces of data: its state between two pieces is one number.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, BuildError, MatchError, MatchKind};
use zeroize::Zeroizing;

use super::shift_table::ShiftTable;

/// The compiled patterns.
pub(super) struct PatternSearch {
    nfa: NFA,
    start: StateID,
    skip: ShiftTable,
    /// The number of pattern bytes matched in each state, in the order of the states.
    depths: Vec<(StateID, usize)>,
}

/// The state of a search after the bytes that it was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchState(StateID);

/// A match of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatternMatch {
    /// The index of the pattern.
    pub(super) pattern: usize,
    /// Its length.
    pub(super) length: usize,
    /// The number of bytes of the last piece that it needed.
    pub(super) end: usize,
}

/// The patterns are too many or too long.
#[derive(Debug, thiserror::Error)]
#[error("too many patterns")]
pub(super) struct TooManyPatterns;

impl From<BuildError> for TooManyPatterns {
    fn from(_: BuildError) -> Self {
        Self
    }
}

impl From<MatchError> for TooManyPatterns {
    fn from(_: MatchError) -> Self {
        Self
    }
}

impl PatternSearch {
    /// Creates a search for `patterns`, each of at least three bytes.
    pub(super) fn new(patterns: &[Zeroizing<Vec<u8>>]) -> Result<Self, TooManyPatterns> {
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
        Ok(Self { nfa, start, skip: ShiftTable::new(patterns), depths })
    }

    /// Returns the state before the first byte.
    pub(super) fn start(&self) -> SearchState {
        SearchState(self.start)
    }

    /// Continues with `bytes`, up to the first pattern that ends in them.
    pub(super) fn advance(&self, place: &mut SearchState, bytes: &[u8]) -> Option<PatternMatch> {
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
                return Some(PatternMatch { pattern, length, end: at });
            }
        }
        place.0 = state;
        None
    }

    /// Returns how many of the last bytes may be the beginning of a pattern.
    pub(super) fn pending(&self, place: SearchState) -> usize {
        let found = self.depths.binary_search_by_key(&place.0, |(state, _)| *state);
        found.ok().and_then(|index| self.depths.get(index)).map_or(0, |(_, depth)| *depth)
    }
}
