//! One entry of the audit log: some events of one call, in canonical JSON.

use std::sync::Arc;

use cofferdam_core::event::recorded::{Admitted, EventLine, EventText, RecordedEvent};
use cofferdam_core::failure::AuditId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::log::CallRow;

/// An event as it is read from an entry.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedEvent {
    /// The number of the event within its call, from 1.
    pub seq: u32,
    /// When it happened, as RFC 3339.
    pub at: String,
    /// The event's name.
    #[serde(rename = "type")]
    pub name: String,
    /// Its facts.
    pub payload: Box<RawValue>,
}

impl LoggedEvent {
    /// Returns the event with its facts.
    #[must_use]
    pub fn event(&self) -> RecordedEvent<'static> {
        RecordedEvent::read(&self.name, &self.payload)
    }

    /// Returns the operator's view of the failure or the error that this call or an attempt of it ended with, complete:
    /// with the facts that the event and the call have. None for other events, and after a value. The event has to be
    /// one of [`events_of`](crate::AuditReader::events_of).
    #[must_use]
    pub fn failure(&self, call: &CallRow) -> Option<Map<String, Value>> {
        let (failure, class, code, retried) = match self.event() {
            RecordedEvent::Final(end) => (end.failure?, end.class, end.code, end.retried),
            RecordedEvent::AttemptEnded(end) => (end.failure?, end.class, end.code, None),
            _ => return None,
        };
        let mut view: Map<String, Value> = serde_json::from_str(failure.get()).ok()?;
        // The end of an action counts no retries; the failure of its step may.
        let of_step = || view.get("details")?.get("retried").cloned();
        let none = || class.is_some().then(|| 0.into());
        let retried = retried.map(Value::from).or_else(of_step).or_else(none);
        let facts = [
            ("actor", Some(call.actor.as_str().into())),
            ("at", Some(self.at.as_str().into())),
            ("class", class.map(Value::from)),
            ("code", code.map(Value::from)),
            ("retried", retried),
        ];
        let facts = facts.map(|(name, fact)| Some((name.to_owned(), fact?)));
        view.extend(facts.into_iter().flatten());
        // The failure of another call has its own: that of a step, or of the call that is replayed.
        view.entry("audit_id").or_insert_with(|| call.audit_id.as_str().into());
        view.sort_keys();
        Some(view)
    }

    /// Returns all facts, also those that this version does not know.
    #[must_use]
    pub fn facts(&self) -> Map<String, Value> {
        serde_json::from_str(self.payload.get()).unwrap_or_default()
    }

    /// Replaces the facts.
    pub(crate) fn set_facts(&mut self, mut facts: Map<String, Value>) {
        facts.sort_keys();
        // JSON that was read can be written.
        if let Ok(payload) = serde_json::value::to_raw_value(&facts) {
            self.payload = payload;
        }
    }
}

/// The events of one call that are written together. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Entry(Arc<[EventText]>);

impl Entry {
    /// Creates an entry of these events.
    #[must_use]
    pub fn new(events: Vec<EventText>) -> Self {
        Self(events.into())
    }

    /// Returns the events.
    #[must_use]
    pub fn events(&self) -> &[EventText] {
        &self.0
    }

    /// Returns true if the entry has no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the beginning of a journal's line to `line`: `{"audit_id":"...","events":[...]`.
    pub(crate) fn write_fields(&self, audit_id: &AuditId, line: &mut Vec<u8>) {
        line.extend_from_slice(b"{\"audit_id\":\"");
        line.extend_from_slice(audit_id.as_str().as_bytes());
        line.extend_from_slice(b"\",\"events\":[");
        for (number, event) in self.0.iter().enumerate() {
            if number > 0 {
                line.push(b',');
            }
            line.extend_from_slice(event.as_str().as_bytes());
        }
        line.push(b']');
    }

    /// Returns the same entry for a call that is not to end with it: what would be its end says that it was cut short.
    #[must_use]
    pub fn without_its_end(&self) -> Self {
        self.changed(|event| match event {
            RecordedEvent::Final(end) => Some(RecordedEvent::CutShort(end)),
            _ => None,
        })
    }

    /// Returns the same entry for a call that does not hold the key that it was to claim.
    #[must_use]
    pub fn without_claims(&self) -> Self {
        if !self.0.iter().any(|text| text.as_str().contains("\"claim\":{")) {
            return self.clone();
        }
        self.changed(|event| match event {
            RecordedEvent::Admitted(admitted) => {
                Some(RecordedEvent::Admitted(Admitted { claim: None, ..admitted }))
            }
            _ => None,
        })
    }

    /// Returns the entry for a call of which `written` is in the log, although its host was told that it is not: equal events
    /// are left out, and those that take the place of others are numbered after them. All of the call's events are numbered
    /// `by` higher already; the number for those that follow is returned, too.
    #[must_use]
    pub fn after(&self, written: &[EventText], by: u32) -> (Self, u32) {
        if written.is_empty() && by == 0 {
            return (self.clone(), 0);
        }
        let seq_of = |text: &EventText| {
            serde_json::from_str::<LoggedEvent>(text.as_str()).map_or(0, |event| event.seq)
        };
        let moved = |text: &EventText, by: u32| {
            let logged = serde_json::from_str::<LoggedEvent>(text.as_str()).ok()?;
            let (at, seq) = (logged.at.parse().ok()?, logged.seq.saturating_add(by));
            Some(EventLine { at, seq, event: logged.event() }.to_text())
        };
        let is_new = |text: &EventText| !written.iter().any(|known| known.as_str() == text.as_str());
        let own = self
            .0
            .iter()
            .map(|text| if by == 0 { text.clone() } else { moved(text, by).unwrap_or_else(|| text.clone()) });
        let new: Vec<_> = own.filter(is_new).collect();
        let last = written.iter().map(seq_of).max().unwrap_or(0);
        let more = last.saturating_add(1).saturating_sub(new.first().map_or(u32::MAX, seq_of));
        let new = new.iter().map(|text| {
            if more == 0 { text.clone() } else { moved(text, more).unwrap_or_else(|| text.clone()) }
        });
        (Self(new.collect()), by.saturating_add(more))
    }

    /// Returns the entry with the events that `change` returns in place of others.
    fn changed(&self, change: impl Fn(RecordedEvent<'static>) -> Option<RecordedEvent<'static>>) -> Self {
        let changed = |text: &EventText| {
            // No event of this process is unreadable; if one is, it is written as it is.
            let logged = serde_json::from_str::<LoggedEvent>(text.as_str()).ok()?;
            let (at, event) = (logged.at.parse().unwrap_or_default(), change(logged.event())?);
            Some(EventLine { at, seq: logged.seq, event }.to_text())
        };
        Self(self.0.iter().map(|text| changed(text).unwrap_or_else(|| text.clone())).collect())
    }
}
