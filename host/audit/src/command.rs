//! The parameters of the audit log's commands, which open, extend, close and resolve calls, and their results.

use std::sync::Arc;

use cofferdam_core::digest::Digest;
use cofferdam_core::event::recorded::{RecordedClaim, RecordedEvent, RecordedKeyEnd, Resolution};
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use super::entry::Entry;
use super::journal::{ClockState, clock_state};
use super::named_enum::named_enum;
use super::seal::Sealed;

named_enum! {
    /// The state of a call. The order is that of the numbers in the index.
    #[derive(Default, Hash)]
    #[non_exhaustive]
    pub enum CallStatus {
        /// The call has begun and has no end yet. As it is stored, whether its host lives or not.
        #[default]
        Running = "running",
        /// It has a value.
        Value = "value",
        /// It has a failure.
        Failure = "failure",
        /// It was not taken up.
        Refused = "refused",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// It was begun and never ended; another call did it again.
        Resumed = "resumed",
        /// It was begun and never ended; the operator says that nothing is to be done about it.
        Skipped = "skipped",
        /// It was begun by a host that is gone, and has no end. Never stored: readers find it out.
        Incomplete = "incomplete",
    }
}

impl CallStatus {
    /// Returns true if a call with this status has an end, or is resolved.
    #[must_use]
    pub const fn has_end(self) -> bool {
        !matches!(self, Self::Running | Self::Incomplete)
    }

    /// The number that it has in the index.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the status that is stored with this number; `Running` if none is: whether the host of such a call lives
    /// is not stored.
    #[must_use]
    pub fn from_number(number: impl TryInto<usize>) -> Self {
        let stored = number.try_into().ok().and_then(|number| Self::ALL.get(number).copied());
        stored.filter(|status| *status != Self::Incomplete).unwrap_or_default()
    }
}

/// The target of a call, by which calls are searched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallTarget {
    /// The connector, as `name@version`.
    pub connector: Arc<str>,
    /// The operation.
    pub op: Arc<str>,
    /// The action and its step, within one.
    pub action: Option<Arc<str>>,
    /// The step.
    pub step: Option<Arc<str>>,
}

/// The outcome of a call, by which calls are searched as well.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallOutcome {
    /// The status; never running.
    pub status: CallStatus,
    /// The failure's class.
    pub class: Option<&'static str>,
    /// The failure's code, or the host error's.
    pub code: Option<Arc<str>>,
}

/// An idempotency key that its caller gave, and what it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyClaim {
    /// The key.
    pub key: Arc<str>,
    /// The SHA-256 of everything that identifies the call: actor, connector, operation, arguments, identities.
    pub fingerprint: [u8; 32],
    /// When it is given: an outcome that stood until before then stands no more.
    pub at: Timestamp,
    /// The kind of call that is to run under the key.
    pub of: KeyScope,
}

impl KeyClaim {
    /// Returns the key of the action whose step has this id and claims its own key: `KEY` of `KEY/STEP`.
    #[must_use]
    pub fn action_key(&self, step: Option<&str>) -> Option<&str> {
        self.key.strip_suffix(step?)?.strip_suffix('/')
    }

    /// Returns the claim of a call, or of an action's step with this id, in the form that proves the key: the key
    /// itself may disclose too much.
    #[must_use]
    pub fn recorded(&self, step: Option<&str>) -> RecordedClaim {
        RecordedClaim {
            action_key_sha256: self.action_key(step).map(sha256),
            fingerprint: Digest::from_bytes(self.fingerprint).to_string(),
            key_sha256: sha256(&self.key),
        }
    }
}

/// The kind of call that is to run under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyScope {
    /// A call, or a step of an action. The outcome of a step stays valid for its key regardless of its age if it has a
    /// value or must not be repeated, until a run of the action has a value: an action that continues under its key
    /// does nothing twice.
    Call,
    /// An action.
    Action {
        /// The action, as `name@version`.
        action: Arc<str>,
        /// The keys of its steps. The action does not begin if another call holds one of them.
        steps: Vec<Arc<str>>,
    },
}

/// The state of a call's key after the call's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyDisposition {
    /// The outcome is kept for the key until then: a call that uses the key again receives it.
    Retain(Timestamp),
    /// Nothing was done under the key, or the call may be repeated: the next call with the key runs.
    Release,
    /// It is unknown what was done under the key, and it must not be done twice: no call runs under the key
    /// until an operator decides.
    Undetermined,
}

impl KeyDisposition {
    /// Reads it from the end of a call.
    #[must_use]
    pub fn read(end: &RecordedKeyEnd<'_>) -> Self {
        match &*end.state {
            "free" => Self::Release,
            "keeps" => {
                let until = end.until.as_deref().and_then(|until| until.parse().ok());
                Self::Retain(until.unwrap_or(Timestamp::MAX))
            }
            _ => Self::Undetermined,
        }
    }

    /// Returns it as the last event of a call with this claim records it.
    #[must_use]
    pub fn recorded(self, claim: &KeyClaim) -> RecordedKeyEnd<'static> {
        let (state, until) = match self {
            Self::Retain(until) => ("keeps", Some(until.to_string())),
            Self::Release => ("free", None),
            Self::Undetermined => ("unknown", None),
        };
        // The beginning of an action may be pruned before its end.
        let key_sha256 = matches!(claim.of, KeyScope::Action { .. }).then(|| sha256(&claim.key));
        RecordedKeyEnd { key_sha256, state: state.into(), until }
    }
}

fn sha256(key: &str) -> String {
    Digest::sha256(key.as_bytes()).to_string()
}

/// A call that begins.
#[derive(Debug, Clone)]
pub struct OpenCall {
    /// Its id.
    pub audit_id: AuditId,
    /// When it was received.
    pub at: Timestamp,
    /// The called operation.
    pub route: CallTarget,
    /// The actor.
    pub actor: Arc<str>,
    /// True if the call may be repeated.
    pub idempotent: bool,
    /// The key, where the caller gave one.
    pub key: Option<KeyClaim>,
    /// The incomplete call that this call resumes, and the actor that asks for it. It is marked as resumed in
    /// the same commit; if it was already resolved, nothing is opened.
    pub resumes: Option<(AuditId, Arc<str>)>,
    /// Its first events.
    pub entry: Entry,
    /// All that is needed to do it again.
    pub request: Option<Sealed>,
}

/// A call that ends.
#[derive(Debug, Clone)]
pub struct CloseCall {
    /// Its id.
    pub audit_id: AuditId,
    /// The number of attempts.
    pub attempts: u32,
    /// Its outcome.
    pub verdict: CallOutcome,
    /// The state of its key from now on.
    pub key: KeyDisposition,
    /// Its last events.
    pub entry: Entry,
    /// Its outcome, to be given again.
    pub outcome: Option<Sealed>,
}

impl OpenCall {
    /// Returns the last event of the call that this one resumes for `actor`.
    #[must_use]
    pub fn resumption<'e>(&'e self, actor: &'e str) -> RecordedEvent<'e> {
        let by = Some(self.audit_id.as_str().into());
        RecordedEvent::Resumed(Resolution { actor: actor.into(), by, ..Resolution::default() })
    }
}

impl CloseCall {
    /// Returns its last events, and whether the call ends with them. One that `resumes` another and did nothing does
    /// not: the unknown result of the other one is unknown for this one as well, and an operator decides about it.
    #[must_use]
    pub fn last_events(&self, resumes: bool) -> (Entry, bool) {
        let did_nothing = self.verdict.status == CallStatus::Cancelled || self.attempts == 0;
        if did_nothing && resumes {
            (self.entry.without_its_end(), false)
        } else {
            (self.entry.clone(), true)
        }
    }
}

/// The decision of an operator that nothing is to be done about a call that never ended, or about its key.
#[derive(Debug, Clone)]
pub struct ResolveCall {
    /// When.
    pub at: Timestamp,
    /// The operator.
    pub actor: Arc<str>,
    /// The reason.
    pub reason: String,
    /// True if the key that the caller gave may be used again. If false, no call ever runs under it.
    pub frees_key: bool,
}

impl ResolveCall {
    /// Returns the last event of the call.
    #[must_use]
    pub fn event(&self) -> RecordedEvent<'_> {
        RecordedEvent::Skipped(Resolution {
            actor: (&*self.actor).into(),
            by: None,
            frees_key: Some(self.frees_key),
            reason: Some(self.reason.as_str().into()),
        })
    }
}

/// The result of opening a call.
#[derive(Debug, Clone)]
pub enum OpenOutcome {
    /// The call is in the audit log and may run.
    Started,
    /// Nothing was written: another call has its key.
    KeyInUse(KeyState),
    /// Nothing was written: the call that it would resume is not incomplete any more.
    AlreadyResolved,
}

/// The state of an idempotency key that was given before.
#[derive(Debug, Clone)]
pub enum KeyState {
    /// Its call has an outcome. None is kept where the operator keeps none.
    Done {
        /// The call.
        audit_id: AuditId,
        /// True if the call may have been repeated.
        idempotent: bool,
        /// Its sealed outcome.
        outcome: Option<Sealed>,
    },
    /// It was given with another call.
    Different {
        /// That call.
        audit_id: AuditId,
    },
    /// Its call is running, here or in another process.
    Running {
        /// The call.
        audit_id: AuditId,
    },
    /// Its call may have had its effect, cannot be repeated, and has no outcome.
    Unknown {
        /// The call.
        audit_id: AuditId,
    },
    /// The key is unused, or it may be used again.
    Free,
}

/// The time that an audit log goes by: idempotency keys expire by it, and old calls are removed by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct LogTime {
    /// The time that the log goes by.
    #[serde(serialize_with = "serialize_time")]
    pub time: Timestamp,
    /// The time of the clock.
    #[serde(serialize_with = "serialize_time")]
    pub clock: Timestamp,
    /// True if the log goes by the clock. It does not while that is more than a day away from the newest entry.
    #[serde(rename = "believed")]
    pub is_believed: bool,
}

impl LogTime {
    /// Returns the time by which calls and keys are old enough to be removed: what is removed is gone, so that neither a
    /// clock that leaps makes them older, nor the entries of one that had leapt.
    #[must_use]
    pub fn removal_time(self) -> Timestamp {
        self.time.min(self.clock)
    }
}

/// The result of pruning, or of its dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Pruned {
    /// The number of entries.
    pub entries: u64,
    /// The number of calls.
    pub calls: u64,
    /// When the first of those calls was received.
    #[serde(serialize_with = "serialize_time")]
    pub since: Option<Timestamp>,
    /// When the last of those calls was received.
    #[serde(serialize_with = "serialize_time")]
    pub until: Option<Timestamp>,
    /// The entry that stays although it is older, or that is ahead of the time of the log, and with it all entries
    /// after it.
    pub stopped: Option<PruneStop>,
}

/// The reason why an entry stays that a later pruning may not remove either.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PruneStop {
    /// The call; none for a change by an operator.
    pub audit_id: Option<AuditId>,
    /// Why.
    pub why: PruneBlocker,
    /// The command that resolves the call, or shows the clock, if a decision of the operator is required.
    pub decide: Option<String>,
}

/// The reason that an entry must not be pruned yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PruneBlocker {
    /// It has no end yet, and its host lives.
    Running,
    /// The call is incomplete and not resolved.
    Incomplete,
    /// It is unknown what was done under the call's idempotency key, and this is not resolved.
    KeyUndecided,
    /// Its outcome stands for its idempotency key for a while yet.
    KeyStands,
    /// Its time is more than a day ahead of the clock or of the time of the log: a clock was wrong, or is not accepted.
    Ahead,
}

impl PruneBlocker {
    /// The same in a few words.
    #[must_use]
    pub const fn says(self) -> &'static str {
        match self {
            Self::Running => "it is still running",
            Self::Incomplete => "it was cut short, and nobody decided about it",
            Self::KeyUndecided => "what was done under its key is not known, and nobody decided about it",
            Self::KeyStands => "its outcome still stands for its key",
            Self::Ahead => "it is more than a day ahead of the clock or of the time of the log",
        }
    }
}

impl PruneStop {
    /// Creates it, with the command that resolves the call, or shows the clock.
    #[must_use]
    pub fn new(audit_id: Option<AuditId>, why: PruneBlocker) -> Self {
        let decide = match why {
            PruneBlocker::Running | PruneBlocker::KeyStands => None,
            PruneBlocker::Incomplete | PruneBlocker::KeyUndecided => {
                audit_id.as_ref().map(|audit_id| format!("cofferdam recover skip {audit_id} --reason TEXT"))
            }
            PruneBlocker::Ahead => Some("cofferdam audit clock".to_owned()),
        };
        Self { audit_id, why, decide }
    }

    /// Returns the stop at an entry that is not old enough, if its time is more than a day ahead of `now`, the time
    /// of the log. Others become old enough.
    #[must_use]
    pub fn if_ahead(audit_id: Option<&AuditId>, at: Timestamp, now: Timestamp) -> Option<Self> {
        let state = clock_state(Some(now.as_microsecond()), at.as_microsecond());
        (state == ClockState::Ahead).then(|| Self::new(audit_id.cloned(), PruneBlocker::Ahead))
    }

    /// Returns the first of these stops, a call that is to be decided about before an entry that is ahead.
    #[must_use]
    pub fn first_to_decide(stops: [Option<Self>; 2]) -> Option<Self> {
        stops.into_iter().flatten().min_by_key(|stop| stop.why == PruneBlocker::Ahead)
    }
}

/// Writes a time for programs, if there is one: as RFC 3339, to the microsecond.
pub(crate) fn serialize_time<S: serde::Serializer>(
    at: &(impl Copy + Into<Option<Timestamp>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let at: Option<Timestamp> = (*at).into();
    serde::Serialize::serialize(&at.map(|at| format!("{at:.6}")), serializer)
}

#[cfg(test)]
mod tests {
    use super::CallStatus;

    #[test]
    fn no_stored_status_says_that_a_host_is_gone() {
        for status in CallStatus::ALL {
            let stored = if status.has_end() { status } else { CallStatus::Running };
            assert_eq!(CallStatus::from_number(status.number()), stored);
        }
        for number in [-1_i16, 8, i16::MAX] {
            assert_eq!(CallStatus::from_number(number), CallStatus::Running);
        }
    }
}
