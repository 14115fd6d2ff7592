//! The calls of a journal, entry by entry: events are numbered without gaps, and nothing follows the end.

use std::collections::{HashMap, HashSet, VecDeque};

use cofferdam_core::failure::AuditId;

use super::finding::FindingKind;
use crate::entry::LoggedEvent;
use crate::journal::ends_call;

/// Calls that are remembered after their end, so that a second end is found.
const REMEMBERED: usize = 65_536;

/// A problem with an entry of a call: the flaw, the event's number, and a description.
type CallProblem = (FindingKind, Option<u32>, String);

/// The calls that have no end yet, and the last that ended.
#[derive(Default)]
pub(super) struct JournalCalls {
    /// By call, the number of its last event.
    open: HashMap<[u8; 16], u32>,
    /// True if calls may have begun before the first entry.
    is_part: bool,
    ended: HashSet<[u8; 16]>,
    order: VecDeque<[u8; 16]>,
}

impl JournalCalls {
    /// Creates the calls of a journal. With `is_part`, calls may have begun before its first entry.
    pub(super) fn new(is_part: bool) -> Self {
        Self { is_part, ..Self::default() }
    }

    /// Notes one more entry of a call. Returns true if it is the call's first, and what is wrong.
    pub(super) fn entry(&mut self, id: &AuditId, events: &[LoggedEvent]) -> (bool, Option<CallProblem>) {
        let id = id.bytes();
        let after_end = |event: &LoggedEvent| {
            let what = format!("the call has an event `{}` after its end", event.name);
            (FindingKind::AfterTheEnd, Some(event.seq), what)
        };
        if self.ended.contains(&id) {
            // A call that began and ended in one entry may have another entry for its sealed outcome alone.
            return (false, events.first().map(after_end));
        }
        let known = self.open.remove(&id);
        let mut seq = known.unwrap_or_else(|| match events.first() {
            Some(event) if self.is_part => event.seq.saturating_sub(1),
            _ => 0,
        });
        let (mut wrong, mut ended) = (None, false);
        for event in events {
            let due = seq.saturating_add(1);
            if ended {
                wrong = wrong.or_else(|| Some(after_end(event)));
            } else if event.seq != due {
                let what = format!("event {} of the call stands where its event {due} is due", event.seq);
                wrong = wrong.or(Some((FindingKind::Sequence, Some(event.seq), what)));
            }
            seq = event.seq;
            ended |= ends_call(&event.name);
        }
        if ended {
            self.remember(id);
        } else {
            self.open.insert(id, seq);
        }
        (known.is_none(), wrong)
    }

    fn remember(&mut self, id: [u8; 16]) {
        self.ended.insert(id);
        self.order.push_back(id);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    type Names<'n> = &'n [(u32, &'n str)];

    /// Returns the flaw of each entry of a call, whose events have these numbers and names.
    fn flaws(is_part: bool, entries: &[Names<'_>]) -> Vec<Option<FindingKind>> {
        let (mut calls, id) = (JournalCalls::new(is_part), AuditId::mint());
        let mut flaws = Vec::new();
        for names in entries {
            let mut events = Vec::new();
            for (seq, name) in *names {
                let payload = to_raw_value(&json!({})).unwrap();
                events.push(LoggedEvent { seq: *seq, at: String::new(), name: (*name).to_owned(), payload });
            }
            flaws.push(calls.entry(&id, &events).1.map(|(flaw, ..)| flaw));
        }
        flaws
    }

    #[test]
    fn gaps_and_events_after_the_end_are_found() {
        use FindingKind::{AfterTheEnd, Sequence};
        let begun: Names<'_> = &[(1, "received"), (2, "admitted")];
        let end: Names<'_> = &[(3, "final")];
        // What is sealed of a call that has ended may have an entry of its own.
        assert_eq!(flaws(false, &[begun, end, &[]]), [None, None, None]);
        assert_eq!(flaws(false, &[begun, &[(4, "final")]]), [None, Some(Sequence)]);
        assert_eq!(flaws(false, &[begun, begun]), [None, Some(Sequence)]);
        assert_eq!(flaws(false, &[end]), [Some(Sequence)]);
        assert_eq!(flaws(true, &[end]), [None]);
        assert_eq!(flaws(false, &[begun, &[(3, "final"), (4, "suppressed")]]), [None, Some(AfterTheEnd)]);
        for name in ["final", "resumed", "skipped"] {
            let entries: [Names<'_>; 3] = [begun, &[(3, name)], &[(4, "suppressed")]];
            assert_eq!(flaws(false, &entries), [None, None, Some(AfterTheEnd)], "{name}");
        }
    }
}
