//! The audit log: journals of chained entries, and the calls in them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A journal, as far as it was read.
#[derive(Debug, Default)]
struct Head {
    n: u64,
    hash: String,
}

/// The end of a call in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// There is none.
    #[default]
    Open,
    /// An outcome.
    Final {
        /// `value`, `failure`, `refused` or `cancelled`.
        status: String,
        class: Option<String>,
        code: Option<String>,
        /// The SHA-256 of the value's text.
        sha256: Option<String>,
        /// `keeps`, `free` or `unknown`.
        key: Option<String>,
        /// The earlier call whose outcome this is.
        replayed: Option<String>,
    },
    /// Another call resumed it.
    Resumed,
    /// The operator decided about it.
    Skipped { frees_key: bool },
}

/// A call or an action in the log.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// The types of the events, by their number.
    events: BTreeMap<u64, String>,
    /// The SHA-256 of the idempotency key.
    pub(crate) key_sha256: Option<String>,
    /// The begun attempts.
    pub(crate) attempts: usize,
    pub(crate) end: End,
}

impl Call {
    /// True if no other call may run under the key.
    pub(crate) fn holds_key(&self) -> bool {
        match &self.end {
            End::Open => true,
            End::Final { key, replayed, .. } => replayed.is_none() && key.as_deref() != Some("free"),
            End::Resumed => false,
            End::Skipped { frees_key } => !frees_key,
        }
    }

    /// True if it may have had its effect, and an operator has to decide about it.
    pub(crate) fn is_undecided(&self) -> bool {
        let is_unknown = matches!(&self.end, End::Final { key, .. } if key.as_deref() == Some("unknown"));
        self.attempts > 0 && (self.end == End::Open || is_unknown)
    }

    /// True if it did nothing, because the outcome of another call with its key is unknown.
    pub(crate) fn was_refused_as_unknown(&self) -> bool {
        let is_unknown = |code: &Option<String>| code.as_deref() == Some("outcome_unknown");
        self.attempts == 0 && matches!(&self.end, End::Final { code, .. } if is_unknown(code))
    }

    /// The state in words.
    pub(crate) fn state(&self) -> String {
        let attempts = self.attempts;
        match &self.end {
            End::Open => format!("{attempts} attempts and no end"),
            End::Final { status, code, key, .. } => {
                let code = code.as_ref().map_or(String::new(), |code| format!(" {code}"));
                let key = key.as_deref().unwrap_or("-");
                format!("{attempts} attempts, ended with {status}{code}, key {key}")
            }
            End::Resumed => format!("{attempts} attempts, resumed"),
            End::Skipped { .. } => format!("{attempts} attempts, skipped by the operator"),
        }
    }
}

/// The audit log, with the faults of its form.
#[derive(Debug, Default)]
pub struct Log {
    pub(crate) calls: BTreeMap<String, Call>,
    pub(crate) entries: usize,
    pub(crate) journals: usize,
    /// By journal, the first fault of its chain.
    pub(crate) broken: BTreeMap<String, String>,
    /// Faults of the events of a call.
    pub(crate) disordered: Vec<(String, String)>,
}

impl Log {
    /// Reads the lines of an export, or of journals with the header of each, recomputing every hash.
    #[must_use]
    pub fn read(text: &[u8]) -> Self {
        let mut log = Self::default();
        let mut journal = (String::from("-"), Head::default());
        let mut seen = BTreeMap::<String, Head>::new();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(entry) = serde_json::from_slice::<Value>(line) else {
                log.breaks(&journal.0, "a line is no JSON");
                continue;
            };
            if entry.get("export").is_some() || entry.get("checkpoint").is_some() {
                continue;
            }
            if let Some(name) = entry.get("journal").and_then(Value::as_str) {
                let (name_before, head) = std::mem::take(&mut journal);
                seen.insert(name_before, head);
                log.journals += 1;
                let hash = text_at(&entry, "/after/hash").unwrap_or_default();
                journal = (name.to_owned(), Head { n: number_at(&entry, "/after/n"), hash });
                if seen.contains_key(name) {
                    log.breaks(name, "the journal is there twice");
                }
                continue;
            }
            let (name, head) = &mut journal;
            let (n, prev) = (number_at(&entry, "/n"), text_at(&entry, "/prev").unwrap_or_default());
            if n != head.n + 1 {
                log.breaks(name, &format!("entry {n} follows entry {}", head.n));
            } else if prev != head.hash {
                log.breaks(name, &format!("entry {n} does not name the hash of the entry before it"));
            }
            *head = Head { n, hash: sha256(line) };
            log.entries += 1;
            log.reads(&entry);
        }
        log.orders();
        log
    }

    /// Remembers the first fault of a journal.
    fn breaks(&mut self, journal: &str, text: &str) {
        self.broken.entry(journal.to_owned()).or_insert_with(|| text.to_owned());
    }

    fn reads(&mut self, entry: &Value) {
        let Some(id) = text_at(entry, "/audit_id") else { return };
        let call = self.calls.entry(id.clone()).or_default();
        for event in entry.get("events").and_then(Value::as_array).into_iter().flatten() {
            let (kind, seq) = (text_at(event, "/type").unwrap_or_default(), number_at(event, "/seq"));
            if let Some(claim) = text_at(event, "/payload/claim/key_sha256") {
                call.key_sha256 = Some(claim);
            }
            let end = match kind.as_str() {
                "attempt_started" => {
                    call.attempts += 1;
                    None
                }
                "final" => Some(End::Final {
                    status: text_at(event, "/payload/status").unwrap_or_default(),
                    class: text_at(event, "/payload/class"),
                    code: text_at(event, "/payload/code"),
                    sha256: text_at(event, "/payload/result/sha256"),
                    key: text_at(event, "/payload/key_end/state"),
                    replayed: text_at(event, "/payload/replayed"),
                }),
                "resumed" => Some(End::Resumed),
                "skipped" => {
                    let frees_key = event.pointer("/payload/frees_key") == Some(&Value::Bool(true));
                    Some(End::Skipped { frees_key })
                }
                _ => None,
            };
            call.end = end.unwrap_or_else(|| std::mem::take(&mut call.end));
            if call.events.insert(seq, kind).is_some() {
                self.disordered.push((id.clone(), format!("two events have the number {seq}")));
            }
        }
    }

    /// Checks that the events of each call are numbered without gaps, and that nothing follows its end.
    fn orders(&mut self) {
        for (id, call) in &self.calls {
            if !call.events.keys().copied().eq(1..=call.events.len() as u64) {
                self.disordered.push((id.clone(), "the numbers of its events have gaps".to_owned()));
            }
            let ends = |kind: &&String| ["final", "resumed", "skipped"].contains(&kind.as_str());
            if call.events.values().rev().skip(1).any(|kind| ends(&kind)) {
                self.disordered.push((id.clone(), "it goes on after its end".to_owned()));
            }
        }
    }
}

/// Returns the text at a place.
fn text_at(value: &Value, place: &str) -> Option<String> {
    value.pointer(place).and_then(Value::as_str).map(str::to_owned)
}

/// Returns the number at a place; 0 if there is none, which no entry and no event has.
fn number_at(value: &Value, place: &str) -> u64 {
    value.pointer(place).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns the SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
