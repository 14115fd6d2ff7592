//! Judges what many hosts did together, from three histories that were written by different programs: the answers to
//! clients, the audit log, and the effects that the upstream counted.
//!
//! It shares no code with the host. It reads four files of JSON lines in one directory:
//!
//! | file | a line |
//! |---|---|
//! | `plan.jsonl` | a key that clients use, and its steps: [`PlannedKey`] |
//! | `answers.jsonl` | one request of a client, and the answer: [`Exchange`] |
//! | `effects.jsonl` | one request to the upstream, and whether it had its effect: [`Effect`] |
//! | `log.jsonl` | the entries of the audit log, as `cofferdam audit export` writes them: [`Log`] |
//!
//! The upstream counts every effect and recognises no key, so that its count does not hide a repetition.

mod answers;
mod check;
mod effects;
mod log;
mod plan;
#[cfg(test)]
mod tests;
mod verdict;

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;

pub use answers::{Answer, Exchange};
pub use check::check;
pub use effects::Effect;
pub use log::Log;
pub use plan::{PlannedKey, PlannedStep};
pub use verdict::{Counts, Finding, FindingKind, Unknown, Verdict};

/// All histories of a run.
#[derive(Debug, Default)]
pub struct Histories {
    /// The keys that clients used.
    pub plan: Vec<PlannedKey>,
    /// The answers to clients.
    pub answers: Vec<Exchange>,
    /// The requests that the upstream got.
    pub effects: Vec<Effect>,
    /// The audit log.
    pub log: Log,
}

impl Histories {
    /// Reads the four files of a directory.
    ///
    /// # Errors
    /// A file is missing, or a line has another form; the text says which.
    pub fn read(dir: &Path) -> Result<Self, String> {
        Ok(Self {
            plan: lines(&dir.join("plan.jsonl"))?,
            answers: lines(&dir.join("answers.jsonl"))?,
            effects: lines(&dir.join("effects.jsonl"))?,
            log: Log::read(&text(&dir.join("log.jsonl"))?),
        })
    }
}

fn text(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, String> {
    let text = text(path)?;
    let lines = text.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    lines
        .map(|(n, line)| {
            serde_json::from_slice(line).map_err(|error| format!("{}:{}: {error}", path.display(), n + 1))
        })
        .collect()
}
