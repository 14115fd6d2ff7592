//! One line of a journal: an entry in canonical JSON (RFC 8785), with its number and the hash of the line before it.
//!
//! ```text
//! {"audit_id":"audit-...","events":[...],"n":2,"prev":"<64 digits>","v":2}
//! {"log":{"at":"...","payload":{...},"type":"..."},"n":3,"prev":"<64 digits>","v":2}
//! ```
//!
//! A line also has `resumes` if its call resumes an interrupted one, and `sealed` if a request or an outcome is stored
//! in the file beside the segment. The hash of a line is the SHA-256 of its bytes without the line break.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;

use cofferdam_core::digest::Digest;
use cofferdam_core::event::operator::{OPERATOR_EVENT, OperatorAction, OperatorEvent, OperatorState};
use cofferdam_core::event::recorded::{EventLine, RecordedEvent};
use cofferdam_core::failure::AuditId;
use cofferdam_core::home_state::StateLoss;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::stored_key::SealedOutcome;
use crate::command::OpenCall;
use crate::entry::{Entry, LoggedEvent};
use crate::error::{AuditError, AuditErrorKind};
use crate::hex::unhex;
use crate::seal::Sealed;

/// The version of the form of lines.
const FORMAT_VERSION: u8 = 2;

/// The end of a chain of lines: the number of the last one, and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChainHead {
    /// The number of the last line; 0 for none.
    pub n: u64,
    /// Its hash.
    pub hash: [u8; 32],
}

impl ChainHead {
    /// The head of a journal without a line.
    pub const EMPTY: Self = Self { n: 0, hash: [0; 32] };

    /// Returns the head at the line with this number, which is given without its line break.
    pub fn at(n: u64, line: &[u8]) -> Self {
        Self { n, hash: *Digest::sha256(line).as_bytes() }
    }

    /// Returns the head after this line, which is given without its line break.
    pub fn after(self, line: &[u8]) -> Self {
        Self::at(self.n.saturating_add(1), line)
    }
}

/// The contents of an entry.
#[derive(Debug, Clone)]
enum DraftContents {
    /// Events of a call, which may end with them.
    Call { audit_id: AuditId, entry: Entry, is_end: bool },
    /// An event about the log itself: the line up to its number.
    Log(Arc<str>),
}

/// An entry before it has its place in a journal. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EntryDraft {
    contents: DraftContents,
    resumes: Option<AuditId>,
    pub(super) sealed: Option<Sealed>,
    /// The place of the sealed part in the last write of the entry, which may have failed.
    pub(super) sealed_at: Option<SealedOutcome>,
}

impl EntryDraft {
    fn new(contents: DraftContents) -> Self {
        Self { contents, resumes: None, sealed: None, sealed_at: None }
    }

    /// Creates an entry with some events of a call. `is_end` is true if the call ends with it.
    pub fn of_call(audit_id: &AuditId, is_end: bool, entry: &Entry) -> Self {
        Self::new(DraftContents::Call { audit_id: audit_id.clone(), entry: entry.clone(), is_end })
    }

    /// Creates the first entry of a call, with its sealed request if that is kept.
    pub fn of_opening(call: &OpenCall, request: Option<Sealed>) -> Self {
        // A call that was refused for its key, or got the outcome of another one, holds none: read again, its claim
        // would take the key from the call that does.
        let entry = if call.key.is_some() { call.entry.clone() } else { call.entry.without_claims() };
        let resumes = call.resumes.as_ref().map(|(before, _)| before.clone());
        Self { resumes, ..Self::of_call(&call.audit_id, false, &entry).with_sealed(request) }
    }

    /// Creates the entry that resolves an interrupted call: with its last event, which has this number.
    pub fn of_resolution(audit_id: &AuditId, at: Timestamp, seq: u32, event: RecordedEvent<'_>) -> Self {
        Self::of_call(audit_id, true, &Entry::new(vec![EventLine { at, seq, event }.to_text()]))
    }

    /// Creates an entry about the log itself.
    pub fn of_log(at: Timestamp, event: &RecordedEvent<'_>) -> Self {
        let (payload, name) = (event.payload_text(), event.name());
        let fields = format!("{{\"log\":{{\"at\":\"{at:.6}\",\"payload\":{payload},\"type\":\"{name}\"}}");
        Self::new(DraftContents::Log(fields.into()))
    }

    /// Creates an entry about a change of the log that an operator makes.
    pub fn of_operator(
        at: Timestamp,
        action: OperatorAction,
        before: Option<OperatorState<'_>>,
        after: OperatorState<'_>,
        user: &str,
    ) -> Self {
        let (subject, user) = ("audit".into(), user.into());
        let event = OperatorEvent { action, after: Some(after), before, failed: false, subject, user };
        Self::of_log(at, &RecordedEvent::Operator(Box::new(event.bounded())))
    }

    /// Creates an entry about an operator who accepts this number of findings, and the loss.
    pub fn of_acceptance(at: Timestamp, findings: usize, loss: Option<&StateLoss>, user: &str) -> Self {
        let reason = loss.map(|loss| loss.to_string().into());
        let before = OperatorState { reason, status: Some("open".into()), ..OperatorState::default() };
        let (findings, status) = (Some(findings as u64), Some("accepted".into()));
        let after = OperatorState { findings, status, ..OperatorState::default() };
        Self::of_operator(at, OperatorAction::Accept, Some(before), after, user)
    }

    /// Returns the call of the entry, and true if that ends with it; none for an entry about the log itself.
    pub fn call(&self) -> Option<(&AuditId, bool)> {
        match &self.contents {
            DraftContents::Call { audit_id, is_end, .. } => Some((audit_id, *is_end)),
            DraftContents::Log(_) => None,
        }
    }

    /// Returns true if the call of the entry has an event of this name in it.
    pub(crate) fn has_event(&self, name: &str) -> bool {
        match &self.contents {
            DraftContents::Call { entry, .. } => {
                let ending = format!("\"type\":\"{name}\"}}");
                entry.events().iter().any(|event| event.as_str().ends_with(&ending))
            }
            DraftContents::Log(_) => false,
        }
    }

    /// Adds the interrupted call that the entry's call resumes.
    #[cfg(test)]
    pub(crate) fn resuming(self, before: AuditId) -> Self {
        Self { resumes: Some(before), ..self }
    }

    /// Returns the sealed part of the call.
    pub fn sealed(&self) -> Option<&Sealed> {
        self.sealed.as_ref()
    }

    /// Returns the interrupted call that the entry's call resumes.
    pub fn resumes(&self) -> Option<&AuditId> {
        self.resumes.as_ref()
    }

    /// Adds a sealed part of the call.
    pub fn with_sealed(self, sealed: Option<Sealed>) -> Self {
        Self { sealed, ..self }
    }

    /// Appends the line, with its line break, to `lines`, and returns the head after it. `sealed` is the place of the
    /// sealed part.
    pub fn append_to(&self, lines: &mut Vec<u8>, head: ChainHead, sealed: Option<&SealedPlace>) -> ChainHead {
        let start = lines.len();
        match &self.contents {
            DraftContents::Call { audit_id, entry, .. } => entry.write_fields(audit_id, lines),
            DraftContents::Log(fields) => lines.extend_from_slice(fields.as_bytes()),
        }
        // Writing to memory cannot fail.
        let n = head.n.saturating_add(1);
        let _ = write!(lines, ",\"n\":{n},\"prev\":\"{}\"", Digest::from_bytes(head.hash));
        if let Some(before) = &self.resumes {
            let _ = write!(lines, ",\"resumes\":\"{before}\"");
        }
        if let Some(SealedPlace { bytes, offset, sha256 }) = sealed {
            let _ = write!(
                lines,
                ",\"sealed\":{{\"bytes\":{bytes},\"offset\":{offset},\"sha256\":\"{sha256}\"}}"
            );
        }
        let _ = write!(lines, ",\"v\":{FORMAT_VERSION}}}");
        let head = head.after(lines.get(start..).unwrap_or_default());
        lines.push(b'\n');
        head
    }
}

/// The place of a sealed part in the file beside the segment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedPlace {
    /// The length in bytes.
    pub bytes: u64,
    /// The position of its first byte.
    pub offset: u64,
    /// The SHA-256 of the sealed bytes, in hexadecimal.
    pub sha256: String,
}

impl SealedPlace {
    /// Returns the place of a part that is appended to a file of this length.
    pub fn at(offset: u64, sealed: &Sealed) -> Self {
        let (bytes, sha256) = (sealed.bytes().len() as u64, Digest::sha256(sealed.bytes()).to_string());
        Self { bytes, offset, sha256 }
    }
}

/// A line as it is read, with the events of a call as `E`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "E: Deserialize<'de>"))]
pub struct JournalLine<'l, E = &'l RawValue> {
    /// The call.
    #[serde(borrow, default)]
    pub audit_id: Option<Cow<'l, str>>,
    #[serde(default)]
    pub(crate) events: Option<E>,
    /// The event about the log itself.
    #[serde(borrow, default)]
    pub log: Option<LogEvent<'l>>,
    /// Its number.
    pub n: u64,
    #[serde(borrow)]
    prev: Cow<'l, str>,
    /// The interrupted call that its call resumes.
    #[serde(borrow, default)]
    pub resumes: Option<Cow<'l, str>>,
    /// The place of the sealed part.
    #[serde(default)]
    pub sealed: Option<SealedPlace>,
    v: u8,
}

/// An event about the log itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogEvent<'l> {
    #[serde(borrow)]
    at: Cow<'l, str>,
    /// Its facts.
    #[serde(borrow)]
    pub payload: &'l RawValue,
    /// Its name.
    #[serde(borrow, rename = "type")]
    pub name: Cow<'l, str>,
}

impl LogEvent<'_> {
    /// Returns the time of the event, if it has one.
    pub fn at(&self) -> Option<Timestamp> {
        self.at.parse().ok()
    }

    /// Returns true for a change by an operator that can be read.
    pub fn is_operator_change(&self) -> bool {
        self.name == OPERATOR_EVENT && matches!(self.event(), RecordedEvent::Operator(_))
    }

    /// Returns the event.
    pub fn event(&self) -> RecordedEvent<'static> {
        RecordedEvent::read(&self.name, self.payload)
    }
}

/// The reason why a line does not continue a journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// It has another form than a host writes.
    #[error("it has another form than a host writes")]
    Form,
    /// It has another number.
    #[error("it has the number {0}")]
    Number(u64),
    /// It does not name the hash of the line before it.
    #[error("it does not have the hash of the line before it")]
    Previous,
}

impl<'l, E: Deserialize<'l>> JournalLine<'l, E> {
    /// Reads a line, wherever it stands, together with its events.
    pub(crate) fn read_with_events(line: &'l [u8]) -> Result<Self, LineFault> {
        // UTF-8 is checked once, and not for each text.
        let line = std::str::from_utf8(line).map_err(|_| LineFault::Form)?;
        let line: Self = serde_json::from_str(line).map_err(|_| LineFault::Form)?;
        let is_of_call = line.audit_id.is_some() && line.events.is_some() && line.log.is_none();
        let is_of_log = line.audit_id.is_none() && line.events.is_none() && line.log.is_some();
        (line.v == FORMAT_VERSION && (is_of_call || is_of_log)).then_some(line).ok_or(LineFault::Form)
    }
}

impl<'l> JournalLine<'l> {
    /// Reads a line, which is given without its line break, and checks that it follows `head`.
    pub fn following(head: ChainHead, line: &'l [u8]) -> Result<Self, LineFault> {
        let line = Self::read(line)?;
        if line.n != head.n.saturating_add(1) {
            return Err(LineFault::Number(line.n));
        }
        if line.prev()? != head.hash {
            return Err(LineFault::Previous);
        }
        Ok(line)
    }

    /// Reads a line, wherever it stands.
    pub fn read(line: &'l [u8]) -> Result<Self, LineFault> {
        Self::read_with_events(line)
    }

    /// Returns the hash of the line before it.
    pub fn prev(&self) -> Result<[u8; 32], LineFault> {
        unhex(&self.prev).ok_or(LineFault::Form)
    }

    /// Returns the time of its last event, if it has one.
    pub fn at(&self) -> Option<Timestamp> {
        match &self.log {
            Some(log) => log.at(),
            None => self.events().ok()?.last()?.at.parse().ok(),
        }
    }

    /// Returns the JSON text of the call's events; none for an entry about the log itself.
    pub fn events_text(&self) -> Option<&'l str> {
        self.events.map(RawValue::get)
    }

    /// Returns the events of the call; none for an entry about the log itself.
    pub fn events(&self) -> Result<Vec<LoggedEvent>, LineFault> {
        match self.events {
            Some(events) => serde_json::from_str(events.get()).map_err(|_| LineFault::Form),
            None => Ok(Vec::new()),
        }
    }
}

/// Reads a line that an index has as the `n`-th of this writer, of this call. Checks that the next line, if there is
/// one, names its hash.
///
/// # Errors
/// `Tampered`.
pub fn indexed_line<'l>(
    text: &'l [u8],
    next: Option<&[u8]>,
    writer: &str,
    n: u64,
    audit_id: &AuditId,
) -> Result<JournalLine<'l>, AuditError> {
    let changed = |n: u64, what: &str| {
        let what = format_args!("entry {n} of the journal {writer} {what}");
        AuditError::new(AuditErrorKind::Tampered, what)
    };
    let damaged = |n: u64, fault: LineFault| changed(n, &format!("is damaged: {fault}"));
    let line = JournalLine::read(text).map_err(|fault| damaged(n, fault))?;
    if line.audit_id.as_deref() != Some(audit_id.as_str()) || line.n != n {
        return Err(changed(n, "is not the one that was indexed"));
    }
    if let Some(next) = next {
        let number = n.saturating_add(1);
        let next = JournalLine::read(next).map_err(|fault| damaged(number, fault))?;
        if next.n != number {
            return Err(changed(number, "is missing"));
        }
        if next.prev() != Ok(ChainHead::at(n, text).hash) {
            return Err(changed(n, "was changed"));
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use cofferdam_core::event::log_event::WriterTaken;
    use cofferdam_core::event::recorded::Received;
    use serde_json::Value;

    use super::*;

    fn draft() -> EntryDraft {
        let id = AuditId::parse("audit-01890000-0000-7000-8000-000000000001").unwrap();
        let event = RecordedEvent::Received(Received { op: "greet".into(), ..Received::default() });
        let event = EventLine { at: Timestamp::UNIX_EPOCH, seq: 1, event }.to_text();
        EntryDraft::of_call(&id, false, &Entry::new(vec![event]))
    }

    #[test]
    fn lines_are_canonical_and_chained() {
        let sealed = Sealed::from_bytes(b"secret".to_vec());
        let taken = RecordedEvent::WriterTaken(WriterTaken { cut_bytes: 7, version: "é".to_owned() });
        let drafts = [
            draft(),
            EntryDraft::of_log(Timestamp::UNIX_EPOCH, &taken),
            draft().resuming(AuditId::mint()).with_sealed(Some(sealed.clone())),
        ];
        let (mut lines, mut head) = (Vec::new(), ChainHead::EMPTY);
        for draft in &drafts {
            let place = draft.sealed.as_ref().map(|sealed| SealedPlace::at(7, sealed));
            head = draft.append_to(&mut lines, head, place.as_ref());
        }
        let mut read = ChainHead::EMPTY;
        for line in lines.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n') {
            let value: Value = serde_json::from_slice(line).unwrap();
            assert_eq!(serde_json_canonicalizer::to_vec(&value).unwrap(), line);
            JournalLine::following(read, line).unwrap();
            read = read.after(line);
        }
        assert_eq!(read, head);
    }

    #[test]
    fn lines_out_of_their_place_are_rejected() {
        let mut line = Vec::new();
        let first = draft().append_to(&mut line, ChainHead::EMPTY, None);
        let line = line.strip_suffix(b"\n").unwrap();
        let fault = |head| JournalLine::following(head, line).unwrap_err();
        assert_eq!(fault(first), LineFault::Number(1));
        assert_eq!(fault(ChainHead { n: 0, hash: [1; 32] }), LineFault::Previous);
        let text = std::str::from_utf8(line).unwrap();
        for other in
            [text.replace("\"v\":2", "\"v\":3"), text.replace("events", "Events"), text[1..].to_owned()]
        {
            let fault = JournalLine::following(ChainHead::EMPTY, other.as_bytes()).unwrap_err();
            assert_eq!(fault, LineFault::Form, "{other}");
        }
    }
}
