//! Finds known secrets in data, in every form in which they commonly travel.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::Secret;
use super::encodings::{self, MIN_SCANNED_BYTES};
use super::search::{PatternSearch, SearchState};

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
