//! What came of the candidates that were asked: what a failure of a whole chain says of each.

use cofferdam_core::error::Error;
use cofferdam_core::failure::{Failure, safe_line};
use cofferdam_core::privileged::MakeFailure as _;
use serde_json::{Map, Value};

use super::chain::Candidate;
use super::record::Record;

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
        self.entries.push(entry(candidate, said_of(&failure), record));
        self.last = Some(failure);
    }

    /// `candidate` was asked, this came of it, and nobody else is asked: the failure, with what came of the others
    /// where there were others.
    pub(super) fn ended(mut self, candidate: &Candidate<'_>, failure: Failure, record: &Record) -> Failure {
        if self.entries.is_empty() {
            return failure;
        }
        self.entries.push(entry(candidate, said_of(&failure), record));
        failure.with_chain(self.entries)
    }

    /// `candidate` could not be asked, for what is not an outage: it was removed, a key was revoked, nothing is bound.
    /// What came of those before it stands, and is not lost for that; where there are none, the error does.
    pub(super) fn not_taken_up(mut self, candidate: &Candidate<'_>, error: Error, record: &Record) -> Error {
        let Some(last) = self.last else { return error };
        let note = format!("alternate {} was not taken up: {error}", candidate.index);
        self.entries.push(entry(candidate, said(&error), record));
        last.with_chain(self.entries).with_operator_note(note).into()
    }
}

fn entry(candidate: &Candidate<'_>, said: Map<String, Value>, record: &Record) -> Map<String, Value> {
    let (attempts, request_sent) = record.attempts_of(candidate.index);
    let mut entry = Map::new();
    entry.insert("connector".into(), (**candidate.connector.text()).into());
    entry.insert("op".into(), safe_line(candidate.op, 100).into());
    entry.extend(said);
    entry.insert("attempts".into(), attempts.into());
    entry.insert("request_sent".into(), request_sent.into());
    entry
}

/// What callers are told of an error within another one: class (a failure's), code and message. What the host says
/// of itself may name places of its machine: of that it is what such an error means.
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
