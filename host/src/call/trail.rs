//! What came of the candidates that were asked: what a failure of a whole chain says of each.

use serde_json::{Map, Value};

use super::chain::Candidate;
use super::record::Record;
use crate::error::{Error, HostError};
use crate::failure::{Failure, safe_line};

/// The candidates that were asked so far, in order. A call without alternates leaves none.
#[derive(Default)]
pub(super) struct Trail {
    entries: Vec<Map<String, Value>>,
    /// What came of the last of them.
    last: Option<Failure>,
}

impl Trail {
    /// `candidate` was asked, this came of it, and another is asked.
    pub(super) fn failed(&mut self, candidate: &Candidate<'_>, failure: Failure, record: &Record) {
        self.entries.push(entry(candidate, Ok(&failure), record));
        self.last = Some(failure);
    }

    /// `candidate` was asked, this came of it, and nobody else is asked: the failure, with what came of the others
    /// where there were others.
    pub(super) fn ended(mut self, candidate: &Candidate<'_>, failure: Failure, record: &Record) -> Failure {
        if self.entries.is_empty() {
            return failure;
        }
        self.entries.push(entry(candidate, Ok(&failure), record));
        failure.with_chain(self.entries)
    }

    /// `candidate` could not be asked, for what is not an outage: it was removed, a key was revoked, nothing is bound.
    /// What came of those before it stands, and is not lost for that; where there are none, the error does.
    pub(super) fn not_taken_up(mut self, candidate: &Candidate<'_>, error: Error, record: &Record) -> Error {
        let Some(last) = self.last else { return error };
        let note = format!("alternate {} was not taken up: {error}", candidate.index);
        let outcome = match &error {
            Error::Failure(failure) => Ok(failure),
            Error::Host(error) => Err(error),
        };
        self.entries.push(entry(candidate, outcome, record));
        last.with_chain(self.entries).with_operator_note(note).into()
    }
}

fn entry(
    candidate: &Candidate<'_>,
    outcome: Result<&Failure, &HostError>,
    record: &Record,
) -> Map<String, Value> {
    let (attempts, request_sent) = record.attempts_of(candidate.index);
    let mut entry = Map::new();
    let mut add = |key: &str, value: Value| drop(entry.insert(key.to_owned(), value));
    add("connector", (**candidate.connector.text()).into());
    add("op", safe_line(candidate.op, 100).into());
    let (code, message) = match outcome {
        Ok(failure) => {
            add("class", failure.class().name().into());
            (failure.code(), failure.message())
        }
        Err(error) => (error.kind().code(), error.message()),
    };
    add("code", code.into());
    add("message", message.into());
    add("attempts", attempts.into());
    add("request_sent", request_sent.into());
    entry
}
