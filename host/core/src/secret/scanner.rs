//! Finds known secrets in what passes by, in every form in which they commonly travel.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::Secret;
use super::forms::{self, SHORTEST_SOUGHT};
use super::search::{Place, Search};

/// What stands where a secret stood, in texts for the operator.
pub const REDACTED: &str = "[redacted]";

/// Looks for a set of secrets. Made once for a set, shared by all who look.
///
/// It holds what it looks for: as long as it lives, so do copies of the secrets, which unlike a [`Secret`] are not
/// cleared from memory when it goes.
#[derive(Default)]
pub struct Scanner {
    sought: Option<Sought>,
    /// Those that are too short to be told from chance.
    short: Vec<(Zeroizing<String>, Arc<str>)>,
}

struct Sought {
    /// None where there is too much to look for: then everything may be a secret.
    search: Option<Search>,
    /// Whose each pattern is.
    owners: Vec<Arc<str>>,
}

/// A secret was found; whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The name of the binding; empty where that is not known.
    pub binding: Arc<str>,
}

impl Scanner {
    /// A scanner for `secrets`, whosever they are.
    #[must_use]
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Self {
        Self::for_bindings(secrets.into_iter().map(|secret| ("", secret)))
    }

    /// A scanner for `secrets`, each with the name of the binding that it belongs to.
    pub fn for_bindings<'s, N: AsRef<str>>(secrets: impl IntoIterator<Item = (N, &'s Secret)>) -> Self {
        let (mut patterns, mut owners, mut short) = (Vec::new(), Vec::new(), Vec::new());
        for (name, secret) in secrets {
            let (name, text) = (Arc::<str>::from(name.as_ref()), secret.expose());
            if (1..SHORTEST_SOUGHT).contains(&text.len()) {
                short.push((Zeroizing::new(text.to_owned()), name.clone()));
            }
            let forms = forms::of(text);
            owners.extend(forms.iter().map(|_| Arc::clone(&name)));
            patterns.extend(forms);
        }
        let sought = (!patterns.is_empty()).then(|| Sought { search: Search::new(&patterns).ok(), owners });
        Self { sought, short }
    }

    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sought.is_none() && self.short.is_empty()
    }

    /// Whether any of the secrets stands in `bytes`.
    #[must_use]
    pub fn finds(&self, bytes: &[u8]) -> bool {
        self.find(bytes).is_some()
    }

    /// The first of the secrets that stands in `bytes`.
    #[must_use]
    pub fn find(&self, bytes: &[u8]) -> Option<Found> {
        self.sought.as_ref()?.reading().read(bytes).err()
    }

    /// The same for a value by itself, as that of a header field or of one parameter: here short secrets are
    /// found too, if they are all of it, or its last word.
    #[must_use]
    pub fn find_in_value(&self, value: &[u8]) -> Option<Found> {
        let last = value.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        let short = self.short.iter().find(|(secret, _)| [value, last].contains(&secret.as_bytes()));
        short.map(|(_, binding)| Found { binding: Arc::clone(binding) }).or_else(|| self.find(value))
    }

    /// Begins to look in something that comes in pieces; none where there is nothing to look for.
    pub fn reading(&self) -> Option<Reading<'_>> {
        self.sought.as_ref().map(Sought::reading)
    }

    /// The first of the secrets that stands in the JSON text of `value`.
    pub fn find_in_json(&self, value: &impl serde::Serialize) -> Option<Found> {
        let mut sink = Sink { reading: self.reading()?, found: None };
        drop(serde_json::to_writer(&mut sink, value));
        sink.found
    }

    /// `text` without any of the secrets; where it was `cut` from a longer text, also without a last part that may
    /// be the beginning of one.
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str, cut: bool) -> Cow<'t, str> {
        self.redact_as(text, cut, |_| REDACTED.to_owned())
    }

    /// The same, with what `mark` makes of a binding's name where its secret stood.
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

impl Sought {
    fn reading(&self) -> Reading<'_> {
        Reading { sought: self, place: self.search.as_ref().map(Search::start) }
    }
}

/// A look at something that comes in pieces.
pub struct Reading<'s> {
    sought: &'s Sought,
    place: Option<Place>,
}

/// The position of a `Reading`, for callers that cannot keep the borrow.
#[derive(Debug, Clone, Copy)]
pub struct Bookmark(Option<Place>);

impl Reading<'_> {
    /// Looks at the next piece; how many of the last bytes, of this piece and those before it, may be the beginning
    /// of a secret.
    pub fn read(&mut self, piece: &[u8]) -> Result<usize, Found> {
        let (Some(search), Some(place)) = (&self.sought.search, &mut self.place) else {
            return Err(Found { binding: "".into() });
        };
        match search.advance(place, piece) {
            None => Ok(search.pending(*place)),
            Some(hit) => {
                let binding = self.sought.owners.get(hit.pattern).cloned().unwrap_or_default();
                Err(Found { binding })
            }
        }
    }

    /// To go on from here later.
    pub fn bookmark(&self) -> Bookmark {
        Bookmark(self.place)
    }
}

impl Scanner {
    /// Goes on with a look, where `bookmark` was made by the same scanner.
    pub fn resume(&self, bookmark: Bookmark) -> Option<Reading<'_>> {
        self.sought.as_ref().map(|sought| Reading { sought, place: bookmark.0 })
    }
}

/// Where JSON is written to be looked at and not kept.
struct Sink<'s> {
    reading: Reading<'s>,
    found: Option<Found>,
}

impl io::Write for Sink<'_> {
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
