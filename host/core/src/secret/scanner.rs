//! Finds known secrets in data, in every form in which they commonly travel.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, BuildError, MatchError, MatchKind};
use zeroize::Zeroizing;

use super::Secret;
use super::encodings::{self, MIN_SCANNED_BYTES};

/// The replacement of a secret in texts for the operator.
pub const REDACTED: &str = "[redacted]";

/// Scans for a set of secrets. Created once for a set and shared.
///
/// It holds its patterns: as long as it lives, so do copies of the secrets, which unlike a [`Secret`] are not
/// cleared from memory when it is dropped.
#[derive(Default)]
pub struct Scanner {
    sought: Option<ScanPatterns>,
    /// The secrets that are so short that they occur by coincidence.
    short: Vec<(Zeroizing<String>, Arc<str>)>,
}

struct ScanPatterns {
    /// `None` if there are too many patterns: then everything may be a secret.
    search: Option<PatternSearch>,
    /// The binding of each pattern.
    owners: Vec<Arc<str>>,
}

/// The match of a secret, with its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretMatch {
    /// The name of the binding; empty if it is not known.
    pub binding: Arc<str>,
}

impl Scanner {
    /// Creates a scanner for `secrets` without owners.
    #[must_use]
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Self {
        Self::for_bindings(secrets.into_iter().map(|secret| ("", secret)))
    }

    /// Creates a scanner for `secrets`, each with the name of its binding.
    pub fn for_bindings<'s, N: AsRef<str>>(secrets: impl IntoIterator<Item = (N, &'s Secret)>) -> Self {
        let (mut patterns, mut owners, mut short) = (Vec::new(), Vec::new(), Vec::new());
        for (name, secret) in secrets {
            let (name, text) = (Arc::<str>::from(name.as_ref()), secret.expose());
            if (1..MIN_SCANNED_BYTES).contains(&text.len()) {
                short.push((Zeroizing::new(text.to_owned()), name.clone()));
            }
            let forms = encodings::encoded_forms(text);
            owners.extend(forms.iter().map(|_| Arc::clone(&name)));
            patterns.extend(forms);
        }
        let sought = (!patterns.is_empty())
            .then(|| ScanPatterns { search: PatternSearch::new(&patterns).ok(), owners });
        Self { sought, short }
    }

    /// Returns whether there are no secrets to scan for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sought.is_none() && self.short.is_empty()
    }

    /// Returns whether `bytes` contain any of the secrets.
    #[must_use]
    pub fn finds(&self, bytes: &[u8]) -> bool {
        self.find(bytes).is_some()
    }

    /// Returns the first of the secrets in `bytes`.
    #[must_use]
    pub fn find(&self, bytes: &[u8]) -> Option<SecretMatch> {
        self.sought.as_ref()?.scan_stream().read(bytes).err()
    }

    /// Returns the first of the secrets in a single value, such as that of a header field or of one
    /// parameter. Short secrets are found too, if they are all of it, or its last word.
    #[must_use]
    pub fn find_in_value(&self, value: &[u8]) -> Option<SecretMatch> {
        let last = value.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        let short = self.short.iter().find(|(secret, _)| [value, last].contains(&secret.as_bytes()));
        short.map(|(_, binding)| SecretMatch { binding: Arc::clone(binding) }).or_else(|| self.find(value))
    }

    /// Begins to scan data that comes in pieces; `None` if there are no secrets to scan for.
    pub fn scan_stream(&self) -> Option<StreamScan<'_>> {
        self.sought.as_ref().map(ScanPatterns::scan_stream)
    }

    /// Returns the first of the secrets in the JSON text of `value`.
    pub fn find_in_json(&self, value: &impl serde::Serialize) -> Option<SecretMatch> {
        let mut sink = ScanSink { reading: self.scan_stream()?, found: None };
        drop(serde_json::to_writer(&mut sink, value));
        sink.found
    }

    /// Returns `text` without any of the secrets. If it was `cut` from a longer text, also without a last
    /// part that may be the beginning of one.
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str, cut: bool) -> Cow<'t, str> {
        self.redact_as(text, cut, |_| REDACTED.to_owned())
    }

    /// Redacts like [`redact`](Self::redact), but replaces each secret by the `mark` of its binding's name.
    pub fn redact_as<'t>(&self, text: &'t str, cut: bool, mark: impl Fn(&str) -> String) -> Cow<'t, str> {
        let Some(sought) = &self.sought else { return Cow::Borrowed(text) };
        let Some(search) = &sought.search else { return Cow::Borrowed(REDACTED) };
        let (mut clean, mut rest) = (String::new(), text);
        loop {
            let mut place = search.start();
            let Some(hit) = search.advance(&mut place, rest.as_bytes()) else {
                let pending = if cut { search.pending(place) } else { 0 };
                let end = rest.floor_char_boundary(rest.len().saturating_sub(pending));
                if clean.is_empty() && pending == 0 {
                    return Cow::Borrowed(rest);
                }
                clean.push_str(rest.get(..end).unwrap_or_default());
                clean.push_str(if pending == 0 { "" } else { REDACTED });
                return Cow::Owned(clean);
            };
            // Forms of texts are texts: they begin and end with whole characters.
            let begin = rest.floor_char_boundary(hit.end.saturating_sub(hit.length));
            clean.push_str(rest.get(..begin).unwrap_or_default());
            clean.push_str(&mark(sought.owners.get(hit.pattern).map_or("", |owner| owner)));
            rest = rest.get(rest.ceil_char_boundary(hit.end)..).unwrap_or_default();
        }
    }
}

impl ScanPatterns {
    fn scan_stream(&self) -> StreamScan<'_> {
        StreamScan { sought: self, place: self.search.as_ref().map(PatternSearch::start) }
    }
}

/// A scan of data that comes in pieces.
pub struct StreamScan<'s> {
    sought: &'s ScanPatterns,
    place: Option<SearchState>,
}

/// The state of a `StreamScan`, for callers that cannot keep the borrow.
#[derive(Debug, Clone, Copy)]
pub struct ScanState(Option<SearchState>);

impl StreamScan<'_> {
    /// Scans the next piece. Returns how many of the last bytes, of this piece and those before it, may be
    /// the beginning of a secret.
    pub fn read(&mut self, piece: &[u8]) -> Result<usize, SecretMatch> {
        let (Some(search), Some(place)) = (&self.sought.search, &mut self.place) else {
            return Err(SecretMatch { binding: "".into() });
        };
        match search.advance(place, piece) {
            None => Ok(search.pending(*place)),
            Some(hit) => {
                let binding = self.sought.owners.get(hit.pattern).cloned().unwrap_or_default();
                Err(SecretMatch { binding })
            }
        }
    }

    /// Returns the state, to continue from here later.
    pub fn state(&self) -> ScanState {
        ScanState(self.place)
    }
}

impl Scanner {
    /// Continues a scan from `bookmark`, which must be from the same scanner.
    pub fn resume(&self, bookmark: ScanState) -> Option<StreamScan<'_>> {
        self.sought.as_ref().map(|sought| StreamScan { sought, place: bookmark.0 })
    }
}

/// A writer for JSON that is scanned and not stored.
struct ScanSink<'s> {
    reading: StreamScan<'s>,
    found: Option<SecretMatch>,
}

impl io::Write for ScanSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.reading.read(bytes) {
            Ok(_) => Ok(bytes.len()),
            Err(found) => {
                self.found = Some(found);
                Err(io::ErrorKind::Other.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The number of bytes that are examined together.
const BLOCK: usize = 3;

/// The longest look-ahead. Longer ones fill the table without skipping more.
const WINDOW: usize = 32;

/// The size of the table, as bits of an index.
const BITS: u32 = 14;

/// The number of bytes that may be skipped from a position, by the last block of the window that begins
/// there.
pub(super) struct ShiftTable {
    window: usize,
    /// 0 if a pattern may begin at the position itself.
    shifts: Vec<u8>,
}

impl ShiftTable {
    /// Creates the table for `patterns`, each of at least [`BLOCK`] bytes.
    pub(super) fn new(patterns: &[Zeroizing<Vec<u8>>]) -> Self {
        let window = patterns.iter().map(|pattern| pattern.len()).min().unwrap_or(BLOCK).min(WINDOW);
        let most = window.saturating_sub(BLOCK).saturating_add(1);
        let mut shifts = vec![u8::try_from(most).unwrap_or(1); 1 << BITS];
        for pattern in patterns {
            for (at, block) in pattern.windows(BLOCK).take(most).enumerate() {
                let shift = u8::try_from(most.saturating_sub(1).saturating_sub(at)).unwrap_or(0);
                if let Some(known) = shifts.get_mut(place(block)) {
                    *known = shift.min(*known);
                }
            }
        }
        Self { window, shifts }
    }

    /// Returns the first position from `at` on where a pattern may begin, including one that continues after
    /// `bytes`.
    pub(super) fn next(&self, bytes: &[u8], mut at: usize) -> usize {
        while let Some(block) = bytes.get(at.saturating_add(self.window.saturating_sub(BLOCK))..)
            && let Some(block) = block.get(..BLOCK)
        {
            match self.shifts.get(place(block)) {
                Some(0) | None => break,
                Some(shift) => at = at.saturating_add(usize::from(*shift)),
            }
        }
        at
    }
}

/// Returns the index of this block in the table. Blocks may share an index, which only costs time.
fn place(block: &[u8]) -> usize {
    let number = block.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    (number.wrapping_mul(0x9e37_79b1) >> (u32::BITS - BITS)) as usize
}

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
