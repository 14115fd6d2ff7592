//! Collects the outcomes of the candidates of a chain, for the failure of the whole chain.

use cofferdam_core::error::Error;
use cofferdam_core::failure::{Failure, sanitize_line};
use cofferdam_core::privileged::MakeFailure as _;
use serde_json::{Map, Value};

use super::chain::CallCandidate;
use super::record::Record;

/// The candidates that were tried so far, in order. Empty for a call without fallbacks.
#[derive(Default)]
pub(super) struct FallbackTrace {
    entries: Vec<Map<String, Value>>,
    /// The failure of the last of them.
    last: Option<Failure>,
}

impl FallbackTrace {
    /// Adds a candidate that failed and is followed by another one.
    pub(super) fn failed(&mut self, candidate: &CallCandidate<'_>, failure: Failure, record: &Record) {
        self.entries.push(entry(candidate, said_of(&failure), record));
        self.last = Some(failure);
    }

    /// Adds the last candidate that failed. Returns its failure, with the outcomes of the other candidates if there
    /// are any.
    pub(super) fn ended(
        mut self,
        candidate: &CallCandidate<'_>,
        failure: Failure,
        record: &Record,
    ) -> Failure {
        if self.entries.is_empty() {
            return failure;
        }
        self.entries.push(entry(candidate, said_of(&failure), record));
        failure.with_chain(self.entries)
    }

    /// Adds a candidate that could not be tried for a reason that is not an outage: it was removed, a key was
    /// revoked, nothing is bound. Keeps the previous candidate's failure as the outcome. Without one, returns
    /// `error`.
    pub(super) fn not_taken_up(
        mut self,
        candidate: &CallCandidate<'_>,
        error: Error,
        record: &Record,
    ) -> Error {
        let Some(last) = self.last else { return error };
        let note = format!("alternate {} was not taken up: {error}", candidate.index);
        self.entries.push(entry(candidate, said(&error), record));
        last.with_chain(self.entries).with_operator_note(note).into()
    }
}

fn entry(candidate: &CallCandidate<'_>, said: Map<String, Value>, record: &Record) -> Map<String, Value> {
    let (attempts, request_sent) = record.attempts_of(candidate.index);
    let mut entry = Map::new();
    entry.insert("connector".into(), (**candidate.connector.text()).into());
    entry.insert("op".into(), sanitize_line(candidate.op, 100).into());
    entry.extend(said);
    entry.insert("attempts".into(), attempts.into());
    entry.insert("request_sent".into(), request_sent.into());
    entry
}

/// Returns a caller's view of an error within another one: class (of a failure), code and message. The host's own
/// error may name paths of its machine, so it is replaced by the meaning of its code.
pub(super) fn said(error: &Error) -> Map<String, Value> {
    match error {
        Error::Failure(failure) => said_of(failure),
        Error::Host(error) => {
            let kind = error.kind();
            let message = if kind.is_about_the_request() { error.message() } else { kind.meaning() };
            Map::from_iter([("code".into(), kind.code().into()), ("message".into(), message.into())])
        }
    }
}

fn said_of(failure: &Failure) -> Map<String, Value> {
    Map::from_iter([
        ("class".into(), failure.class().name().into()),
        ("code".into(), failure.code().into()),
        ("message".into(), failure.message().into()),
    ])
}
