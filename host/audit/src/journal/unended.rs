//! The calls of a journal that have no end.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cofferdam_core::event::log_event::{SegmentBegun, WriterReleased};
use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use serde::Deserialize;

use super::line::{EntryDraft, JournalLine};

/// The name of the first entry of a segment.
pub(crate) const SEGMENT_BEGUN: &str = "segment_begun";

/// Returns true if a call ends with the event of this name.
pub(crate) fn ends_call(event: &str) -> bool {
    matches!(event, "final" | "resumed" | "skipped")
}

/// The calls of a journal that have no end: by id, the number of the first entry. Each segment begins with them, so
/// that no earlier one has to be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UnendedCalls(BTreeMap<[u8; 16], u64>);

/// The name of an event.
#[derive(Deserialize)]
struct EventName<'l> {
    #[serde(borrow, rename = "type")]
    name: Cow<'l, str>,
}

/// Returns the first entry of the journal of this writer.
pub fn first_entry(writer: &str, at: Timestamp) -> EntryDraft {
    UnendedCalls::default().begin_segment(writer, at)
}

impl UnendedCalls {
    /// Returns the first entry of the next segment of this writer.
    pub(super) fn begin_segment(&self, writer: &str, at: Timestamp) -> EntryDraft {
        let calls = self.0.iter().map(|(id, first)| (AuditId::from_bytes(*id).to_string(), *first)).collect();
        let begun = SegmentBegun { calls, writer: writer.to_owned() };
        EntryDraft::of_log(at, &RecordedEvent::SegmentBegun(begun))
    }

    /// Returns the entry after which nothing has to be read to know that all calls have an end; none if one has not.
    pub(super) fn release(&self, at: Timestamp) -> Option<EntryDraft> {
        self.0.is_empty().then(|| EntryDraft::of_log(at, &RecordedEvent::WriterReleased(WriterReleased {})))
    }

    /// Returns the calls after this line, if it is the last one of a process that left none without an end.
    pub(super) fn after_release(line: &JournalLine<'_>) -> Option<Self> {
        let event = line.log.as_ref()?.event();
        matches!(event, RecordedEvent::WriterReleased(_)).then(Self::default)
    }

    /// Returns the number of the call's first entry, if the call has no end.
    pub(crate) fn first_entry(&self, audit_id: &AuditId) -> Option<u64> {
        self.0.get(&audit_id.bytes()).copied()
    }

    /// Returns the ids of the calls.
    pub(crate) fn ids(&self) -> impl Iterator<Item = [u8; 16]> + '_ {
        self.0.keys().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes an entry that was written.
    pub(super) fn wrote(&mut self, draft: &EntryDraft, n: u64) {
        if let Some((audit_id, is_end)) = draft.call() {
            self.entry(audit_id, is_end, draft.resumes(), n);
        }
    }

    /// Notes an entry that was read. False if it cannot be understood.
    pub(super) fn read(&mut self, line: &JournalLine<'_>) -> bool {
        if let Some(log) = &line.log {
            if log.name == SEGMENT_BEGUN {
                let RecordedEvent::SegmentBegun(begun) = log.event() else { return false };
                let calls = begun.calls.iter().map(|(id, first)| Some((AuditId::parse(id)?.bytes(), *first)));
                let Some(calls) = calls.collect() else { return false };
                self.0 = calls;
            }
            return true;
        }
        let events =
            line.events_text().and_then(|events| serde_json::from_str::<Vec<EventName<'_>>>(events).ok());
        let (Some(audit_id), Some(events)) = (line.audit_id.as_deref().and_then(AuditId::parse), events)
        else {
            return false;
        };
        let resumes = line.resumes.as_deref().and_then(AuditId::parse);
        let is_end = events.last().is_some_and(|event| ends_call(&event.name));
        self.entry(&audit_id, is_end, resumes.as_ref(), line.n);
        true
    }

    fn entry(&mut self, audit_id: &AuditId, is_end: bool, resumes: Option<&AuditId>, n: u64) {
        if let Some(before) = resumes {
            self.0.remove(&before.bytes());
        }
        match is_end {
            true => drop(self.0.remove(&audit_id.bytes())),
            false => drop(self.0.entry(audit_id.bytes()).or_insert(n)),
        }
    }
}
