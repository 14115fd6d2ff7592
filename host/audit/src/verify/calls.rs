//! The calls of a chain, as their entries go by: numbers without gaps, one end, nothing after it.

use std::collections::{HashMap, HashSet, VecDeque};

use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use super::finding::Flaw;
use crate::entry::LoggedEvent;

/// Calls that are remembered after their end, so that a second end is known for what it is.
const REMEMBERED: usize = 65_536;

/// The facts about a call in the chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFacts {
    /// When it was received.
    pub(crate) at: Timestamp,
    /// The connector that it was asked of.
    pub(crate) connector: Option<String>,
    /// The operation.
    pub(crate) op: Option<String>,
    /// The actor.
    pub(crate) actor: Option<String>,
    /// The action and the step of it.
    pub(crate) action: Option<String>,
    pub(crate) step: Option<String>,
    /// True if the call may be repeated, as declared when it first ran.
    pub(crate) idempotent: Option<bool>,
    /// Its outcome.
    pub(crate) status: Option<String>,
    /// The failure's class.
    pub(crate) class: Option<String>,
    /// The failure's or the error's code.
    pub(crate) code: Option<String>,
    /// The SHA-256 of the key that its caller gave, and of all that the key stands for, in hexadecimal.
    pub(crate) claim: Option<(String, String)>,
    /// The state of that key at the call's end, and its expiry.
    pub(crate) key_end: Option<(String, Option<Timestamp>)>,
    /// True if that key may be used again, as decided when the call was skipped.
    pub(crate) frees_key: Option<bool>,
    /// The number of attempts that began.
    pub(crate) attempts: u32,
    /// The SHA-256 of its arguments, in hexadecimal.
    pub(crate) arguments: Option<String>,
    /// The SHA-256 of its value or envelope, in hexadecimal.
    pub(crate) outcome: Option<String>,
    /// The number of its first entry,
    pub(crate) first: u64,
    /// and of its last.
    pub(crate) last: u64,
    /// The number of its last event.
    seq: u32,
}

/// A problem with an entry of a call: the flaw, the event's number, and a description.
type Wrong = (Flaw, Option<u32>, String);

/// The effect of an entry on its call.
pub(super) enum Step {
    /// It goes on.
    Open,
    /// It is over, and this is all of it.
    Ended(Box<CallFacts>),
}

/// The calls that have no end yet, and those that ended a while ago at most.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) open: HashMap<[u8; 16], CallFacts>,
    /// True if calls may have begun before the first entry.
    pub(super) is_a_part: bool,
    ended: HashSet<[u8; 16]>,
    order: VecDeque<[u8; 16]>,
}

impl Calls {
    /// One more entry of a call: what it does to it, and what is wrong.
    pub(super) fn entry(
        &mut self,
        n: u64,
        id: &AuditId,
        events: Vec<LoggedEvent>,
        prev: Option<u64>,
    ) -> (Step, Option<Wrong>) {
        let id = id.bytes();
        if self.ended.contains(&id) {
            return match events.first() {
                // A call that began and ended in one entry may have another entry for its sealed outcome alone.
                None => (Step::Open, None),
                Some(event) => {
                    let what = format!("the call has an event `{}` after its end", event.name);
                    (Step::Open, Some((Flaw::AfterTheEnd, Some(event.seq), what)))
                }
            };
        }
        let mut call = self.open.remove(&id).unwrap_or_else(|| {
            let first_here = events.first().filter(|_| self.is_a_part).map_or(1, |event| event.seq);
            CallFacts { first: n, seq: first_here.saturating_sub(1), ..CallFacts::default() }
        });
        let before = std::mem::replace(&mut call.last, n);
        let mut wrong = prev.filter(|prev| *prev != before).map(|prev| {
            let what = format!("the entry before it of the same call is entry {before}, and not {prev}");
            (Flaw::Calls, None, what)
        });
        let mut ended = false;
        for event in events {
            let due = call.seq.saturating_add(1);
            if ended {
                let what = format!("the call has an event `{}` after its end", event.name);
                wrong = wrong.or(Some((Flaw::AfterTheEnd, Some(event.seq), what)));
            } else if event.seq != due {
                let what = format!("event {} of the call stands where its event {due} is due", event.seq);
                wrong = wrong.or(Some((Flaw::Sequence, Some(event.seq), what)));
            }
            call.seq = event.seq;
            ended |= call.event(&event);
        }
        if ended {
            self.remember(id);
        } else {
            self.open.insert(id, call.clone());
        }
        let step = if ended { Step::Ended(Box::new(call)) } else { Step::Open };
        (step, wrong)
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

impl CallFacts {
    /// Returns true if the call was incomplete and another call resumes it.
    pub(crate) fn is_resumed(&self) -> bool {
        self.status.as_deref() == Some("resumed")
    }

    /// Takes over what an event says; whether it is the end.
    fn event(&mut self, event: &LoggedEvent) -> bool {
        match event.event() {
            RecordedEvent::Received(received) => {
                self.at = event.at.parse().unwrap_or_default();
                (self.connector, self.op) = (Some(received.connector.into()), Some(received.op.into()));
                (self.action, self.step) = (received.action.map(Into::into), received.step.map(Into::into));
                self.actor = Some(received.actor.into());
            }
            RecordedEvent::Admitted(admitted) => {
                if self.attempts == 0 {
                    self.idempotent = admitted.idempotent;
                }
                let claim = admitted.claim.map(|claim| (claim.key_sha256, claim.fingerprint));
                self.claim = self.claim.take().or(claim);
                self.arguments = self.arguments.take().or(admitted.arguments.map(|it| it.sha256));
            }
            // A call that was given another's outcome says of itself what that one says.
            RecordedEvent::Replayed(replayed) => self.idempotent = replayed.idempotent,
            RecordedEvent::AttemptStarted(_) => self.attempts = self.attempts.saturating_add(1),
            RecordedEvent::Final(end) => {
                self.status = Some(end.status.into());
                (self.class, self.code) = (end.class.map(Into::into), end.code.map(Into::into));
                self.outcome = end.result.map(|result| result.sha256);
                // An attempt that was announced is not made where the announcement itself is what is cut short.
                self.attempts = end.attempts.unwrap_or(self.attempts);
                self.key_end = end.key_end.map(|key| {
                    let until = key.until.and_then(|until| until.parse().ok());
                    (key.state.into(), until)
                });
            }
            // The decision about a call that never ended.
            RecordedEvent::Resumed(decision) | RecordedEvent::Skipped(decision) => {
                (self.status, self.frees_key) = (Some(event.name.clone()), decision.frees_key);
            }
            _ => {}
        }
        // Also one with an unexpected payload.
        matches!(event.name.as_str(), "final" | "resumed" | "skipped")
    }
}
