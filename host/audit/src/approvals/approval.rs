//! One approval: what it is for, its state, and the rules by which the state changes. Every store follows these.

use std::time::Duration;

use cofferdam_core::digest::Digest;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{AnswerOutcome, ApprovalId, ApprovalVerdict, Decision, PersonAnswer};
use crate::command::{LogTime, serialize_time};

/// All that an approval is for, as SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ApprovalBinding {
    /// Everything, with the idempotency key if the caller gave one.
    pub exact: [u8; 32],
    /// The same without the key.
    pub same_arguments: [u8; 32],
}

impl ApprovalBinding {
    /// Binds an approval to a call or an action by its fingerprint, to its packages, to the position of the candidate in
    /// the chain, and to the idempotency key if the caller gave one.
    #[must_use]
    pub fn new(fingerprint: &[u8; 32], packages: &[&str], candidate: u32, key: Option<&str>) -> Self {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        part(b"cofferdam-approval-v1");
        part(fingerprint);
        part(&candidate.to_be_bytes());
        part(&(packages.len() as u64).to_be_bytes());
        packages.iter().for_each(|package| part(package.as_bytes()));
        let same_arguments: [u8; 32] = hash.finalize().into();
        let mut hash = Sha256::new();
        hash.update(same_arguments);
        // A call without a key differs from one with an empty key.
        match key {
            Some(key) => {
                hash.update([1]);
                hash.update(key);
            }
            None => hash.update([0]),
        }
        Self { exact: hash.finalize().into(), same_arguments }
    }
}

/// The state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ApprovalState {
    /// No person has answered yet.
    Waiting,
    /// A person approved it, and no call has used it up.
    Approved,
    /// A call used it.
    Used,
    /// A person denied it.
    Denied,
    /// It ended without an answer, or without a call that used it.
    Expired,
}

impl ApprovalState {
    /// Returns the stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Approved => "approved",
            Self::Used => "used",
            Self::Denied => "denied",
            Self::Expired => "expired",
        }
    }
}

/// The arguments of a call that waits for a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema), schemars(rename = "ApprovalArguments"))]
pub struct ShownArguments {
    /// Their length in bytes.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: String,
    /// The arguments as the audit log has them: without secrets, and cut if they are long. The HTTP API has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// True if `text` is only their beginning.
    pub cut: bool,
}

impl ShownArguments {
    /// Creates the arguments with this redacted text.
    #[must_use]
    pub fn new(bytes: u64, sha256: String, text: Option<String>) -> Self {
        let end = format!("…[truncated, {bytes} bytes]");
        let cut = text.as_ref().is_some_and(|text| text.ends_with(&end));
        Self { bytes, sha256, text, cut }
    }
}

/// The request to a person, with its answer and its use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredApproval {
    /// The facts for people.
    pub approval: Approval,
    /// All that the approval is for.
    pub binding: ApprovalBinding,
    /// The SHA-256 of the text of the arguments, which is stored beside the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    text_sha256: Option<String>,
    /// The time of the log until which the request waits, in microseconds since 1970.
    waits_until: i64,
    /// That until which the approval can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    usable_until: Option<i64>,
}

/// A call that waits for a person, or waited not long ago. Times are those of the clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Approval {
    /// Its id.
    #[cfg_attr(feature = "schemars", schemars(with = "String"))]
    pub id: ApprovalId,
    /// `waiting`, `approved`, `used`, `denied` or `expired`: when it was stored, or when it was looked at.
    #[cfg_attr(feature = "schemars", schemars(with = "String"))]
    pub state: ApprovalState,
    /// The caller.
    pub actor: String,
    /// True if the caller is an agent.
    pub agent: bool,
    /// The connector, as `name@version`; of an action, `action://name@version`.
    pub connector: String,
    /// The operation; of an action, `run`.
    pub op: String,
    /// The position of the candidate among the fallbacks of the call, from 0.
    pub candidate: u32,
    /// The operations of an action that need the approval, each as `name@version operation`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<String>,
    /// The action that the call is a step of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The declared effect of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The SHA-256 of the package, or of the action's file.
    pub hash: String,
    /// The idempotency key that the caller gave, redacted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The arguments.
    pub arguments: ShownArguments,
    /// The audit id of the call that asked first.
    pub call: String,
    /// The time at which it was asked for, as RFC 3339.
    #[serde(serialize_with = "serialize_time")]
    #[cfg_attr(feature = "schemars", schemars(with = "String"))]
    pub asked_at: Timestamp,
    /// The time until which it waits for an answer.
    #[serde(serialize_with = "serialize_time")]
    #[cfg_attr(feature = "schemars", schemars(with = "String"))]
    pub waits_until: Timestamp,
    /// The time of the answer.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_time")]
    #[cfg_attr(feature = "schemars", schemars(with = "Option<String>"))]
    pub answered_at: Option<Timestamp>,
    /// The person who answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// The reason that the person gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time until which the approval can be used.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_time")]
    #[cfg_attr(feature = "schemars", schemars(with = "Option<String>"))]
    pub usable_until: Option<Timestamp>,
    /// True if it is for all calls with the same arguments.
    pub same_arguments: bool,
    /// The audit id of the call that used it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
}

impl Approval {
    /// Creates the facts of a request that `call` makes for `actor`, with a new id. The arguments, and what is not in
    /// every request, are to be added.
    #[must_use]
    pub fn new(connector: &str, op: &str, actor: &str, call: &AuditId) -> Self {
        Self {
            id: ApprovalId::mint(),
            state: ApprovalState::Waiting,
            actor: actor.to_owned(),
            agent: false,
            connector: connector.to_owned(),
            op: op.to_owned(),
            candidate: 0,
            operations: Vec::new(),
            action: None,
            step: None,
            effect: None,
            hash: String::new(),
            idempotency_key: None,
            arguments: ShownArguments::default(),
            call: call.to_string(),
            asked_at: Timestamp::UNIX_EPOCH,
            waits_until: Timestamp::UNIX_EPOCH,
            answered_at: None,
            answered_by: None,
            reason: None,
            usable_until: None,
            same_arguments: false,
            used_by: None,
        }
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn text_hash(text: Option<&str>) -> Option<String> {
    text.map(|text| Digest::sha256(text.as_bytes()).to_string())
}

impl StoredApproval {
    /// Creates a request that waits for `lifetime`. The times in `approval` are replaced.
    #[must_use]
    pub fn new(approval: Approval, binding: ApprovalBinding, lifetime: Duration, now: LogTime) -> Self {
        let (asked_at, waits_until) = (now.clock, later(now.clock, lifetime));
        let approval = Approval { asked_at, waits_until, ..approval };
        let text_sha256 = text_hash(approval.arguments.text.as_deref());
        let waits_until = now.time.as_microsecond().saturating_add(micros(lifetime));
        Self { approval, binding, text_sha256, waits_until, usable_until: None }
    }

    /// Adds the text of the arguments as it was stored. None if it is not the text that was shown.
    #[must_use]
    pub fn with_shown_text(mut self, text: Option<String>) -> Option<Self> {
        let is_shown = text_hash(text.as_deref()) == self.text_sha256;
        let ShownArguments { bytes, sha256, .. } = self.approval.arguments;
        self.approval.arguments = ShownArguments::new(bytes, sha256, text);
        is_shown.then_some(self)
    }

    /// Returns the state at this time.
    #[must_use]
    pub fn state(&self, now: LogTime) -> ApprovalState {
        let is_asked = now.time.as_microsecond() < self.waits_until;
        match self.approval.state {
            ApprovalState::Waiting | ApprovalState::Denied if !is_asked => ApprovalState::Expired,
            ApprovalState::Approved if !self.is_usable(now) => ApprovalState::Expired,
            state => state,
        }
    }

    /// Returns the approval with its state at this time.
    #[must_use]
    pub fn at(&self, now: LogTime) -> Approval {
        Approval { state: self.state(now), ..self.approval.clone() }
    }

    /// Returns the time of the log after which nothing depends on it, in microseconds since 1970.
    #[must_use]
    pub fn ends(&self) -> i64 {
        self.usable_until.map_or(self.waits_until, |until| until.max(self.waits_until))
    }

    /// Returns true if it can be used: by the time of the log, and by that of the clock, which may have leapt either way
    /// since the answer.
    fn is_usable(&self, now: LogTime) -> bool {
        let Approval { answered_at: Some(from), usable_until: Some(to), .. } = &self.approval else {
            return false;
        };
        let since = |time: &Timestamp| time.as_microsecond().abs_diff(from.as_microsecond());
        self.usable_until.is_some_and(|until| now.time.as_microsecond() < until)
            && since(&now.clock) < since(to)
    }

    /// Returns true if it may be answered so.
    fn takes(&self, decision: Decision, now: LogTime) -> bool {
        match self.state(now) {
            ApprovalState::Waiting => true,
            // Withdraws what is not used up.
            ApprovalState::Approved => decision == Decision::Deny,
            _ => false,
        }
    }

    /// Answers it, if it can be answered.
    pub fn answer(&mut self, answer: PersonAnswer, now: LogTime) -> AnswerOutcome {
        if !self.takes(answer.decision, now) {
            return AnswerOutcome::TooLate(Box::new(self.at(now)));
        }
        let approved = match answer.decision {
            Decision::ApproveOnce(lifetime) => Some((lifetime, false)),
            Decision::ApproveSameArguments(lifetime) => Some((lifetime, true)),
            Decision::Deny => None,
        };
        let ends = self.ends();
        let approval = &mut self.approval;
        (approval.answered_at, approval.answered_by) = (Some(now.clock), Some(answer.by));
        approval.reason = answer.reason;
        match approved {
            Some((lifetime, same_arguments)) => {
                approval.state = ApprovalState::Approved;
                approval.same_arguments = same_arguments;
                approval.usable_until = Some(later(now.clock, lifetime));
                self.usable_until = Some(now.time.as_microsecond().saturating_add(micros(lifetime)));
            }
            None => {
                approval.state = ApprovalState::Denied;
                approval.usable_until = None;
                // A withdrawn approval may have outlived its request.
                (self.waits_until, self.usable_until) = (ends, None);
            }
        }
        AnswerOutcome::Taken(Box::new(self.at(now)))
    }

    /// Uses the approval for this call. None if it does not let the call run.
    fn use_for(&mut self, call: &AuditId, now: LogTime) -> Option<ApprovalVerdict> {
        if self.state(now) != ApprovalState::Approved {
            return None;
        }
        let approval = &mut self.approval;
        if !approval.same_arguments {
            approval.state = ApprovalState::Used;
            approval.used_by = Some(call.as_str().to_owned());
        }
        Some(ApprovalVerdict::Approved {
            id: approval.id.clone(),
            by: approval.answered_by.clone().unwrap_or_default(),
            same_arguments: approval.same_arguments,
        })
    }
}

/// The step that a store takes for a request.
#[derive(Debug)]
pub enum ApprovalStep {
    /// Nothing changes.
    Keep(ApprovalVerdict),
    /// The call runs, and this approval, which it used up, is stored.
    UseUp(ApprovalVerdict, Box<StoredApproval>),
    /// The request is added, if there is room.
    Ask,
}

/// Decides about a request of `call`. `found` are the stored approvals with the same arguments, valid ones alone.
pub fn decide_approval(
    found: Vec<StoredApproval>,
    binding: &ApprovalBinding,
    call: &AuditId,
    now: LogTime,
) -> ApprovalStep {
    let is_exact = |it: &StoredApproval| it.binding == *binding;
    let is_same = |it: &StoredApproval| it.binding.same_arguments == binding.same_arguments;
    let denied = found.iter().find(|it| is_exact(it) && it.state(now) == ApprovalState::Denied);
    if let Some(denied) = denied {
        return ApprovalStep::Keep(ApprovalVerdict::Denied(denied.approval.id.clone()));
    }
    let waiting = found.iter().find(|it| is_exact(it) && it.state(now) == ApprovalState::Waiting);
    let waiting = waiting.map(|it| ApprovalVerdict::Waiting(Box::new(it.at(now))));
    // One that is for further calls comes first: it is not used up.
    let (windows, single): (Vec<_>, Vec<_>) =
        found.into_iter().filter(is_same).partition(|it| it.approval.same_arguments);
    for mut approval in windows.into_iter().chain(single.into_iter().filter(is_exact)) {
        if let Some(verdict) = approval.use_for(call, now) {
            return match approval.approval.same_arguments {
                true => ApprovalStep::Keep(verdict),
                false => ApprovalStep::UseUp(verdict, Box::new(approval)),
            };
        }
    }
    waiting.map_or(ApprovalStep::Ask, ApprovalStep::Keep)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: i64) -> LogTime {
        let time = Timestamp::from_second(1_700_000_000 + seconds).unwrap();
        LogTime { time, clock: time, is_believed: true }
    }

    fn binding(key: Option<&str>) -> ApprovalBinding {
        ApprovalBinding::new(&[1; 32], &["package"], 0, key)
    }

    fn request(key: Option<&str>) -> StoredApproval {
        let call = AuditId::mint();
        let approval = Approval {
            agent: true,
            effect: Some("destructive".to_owned()),
            arguments: ShownArguments::new(2, "0".to_owned(), Some("{}".to_owned())),
            ..Approval::new("github://acme/files@1.0.0", "delete", "mcp:a", &call)
        };
        StoredApproval::new(approval, binding(key), HOUR, at(0))
    }

    fn answer(decision: Decision) -> PersonAnswer {
        PersonAnswer { decision, by: "ada".to_owned(), reason: None }
    }

    fn verdict(found: &[StoredApproval], key: Option<&str>, now: LogTime) -> Option<ApprovalVerdict> {
        match decide_approval(found.to_vec(), &binding(key), &AuditId::mint(), now) {
            ApprovalStep::Keep(verdict) | ApprovalStep::UseUp(verdict, _) => Some(verdict),
            ApprovalStep::Ask => None,
        }
    }

    #[test]
    fn bindings_differ_in_every_part() {
        let base = ApprovalBinding::new(&[1; 32], &["a", "b"], 0, Some("k"));
        let others = [
            ApprovalBinding::new(&[2; 32], &["a", "b"], 0, Some("k")),
            ApprovalBinding::new(&[1; 32], &["ab"], 0, Some("k")),
            ApprovalBinding::new(&[1; 32], &["a", "b"], 1, Some("k")),
        ];
        for other in others {
            assert_ne!((base.exact, base.same_arguments), (other.exact, other.same_arguments));
            assert_ne!(base.exact, other.exact);
        }
        let keys = [None, Some(""), Some("k"), Some("l")];
        let exact = keys.map(|key| ApprovalBinding::new(&[1; 32], &["a", "b"], 0, key));
        assert!(exact.iter().all(|it| it.same_arguments == base.same_arguments));
        let distinct: std::collections::HashSet<_> = exact.iter().map(|it| it.exact).collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn an_approval_is_used_once_within_its_time() {
        let mut approval = request(None);
        assert!(matches!(verdict(&[approval.clone()], None, at(10)), Some(ApprovalVerdict::Waiting(_))));
        let taken = approval.answer(answer(Decision::ApproveOnce(10 * MINUTE)), at(10));
        assert!(matches!(taken, AnswerOutcome::Taken(_)));
        let late = approval.answer(answer(Decision::ApproveOnce(HOUR)), at(11));
        assert!(matches!(late, AnswerOutcome::TooLate(_)), "only the first answer counts");
        assert_eq!(verdict(&[approval.clone()], None, at(610)), None, "it has ended");
        assert_eq!(verdict(&[approval.clone()], Some("k"), at(20)), None, "another key");
        let step = decide_approval(vec![approval], &binding(None), &AuditId::mint(), at(609));
        let ApprovalStep::UseUp(given, used) = step else { unreachable!("it is used up") };
        assert!(matches!(given, ApprovalVerdict::Approved { same_arguments: false, .. }));
        assert_eq!(used.state(at(609)), ApprovalState::Used);
        assert_eq!(verdict(&[*used], None, at(610)), None);
    }

    #[test]
    fn leaps_of_the_clock_end_approvals() {
        let mut approval = request(None);
        approval.answer(answer(Decision::ApproveOnce(10 * MINUTE)), at(0));
        for leap in [-601, 601, 90_000] {
            let now = LogTime { clock: at(leap).clock, ..at(1) };
            assert_eq!(approval.state(now), ApprovalState::Expired, "{leap}");
        }
        let now = LogTime { clock: at(-30).clock, ..at(1) };
        assert_eq!(approval.state(now), ApprovalState::Approved, "clocks are corrected by seconds");
    }

    #[test]
    fn a_window_is_for_the_same_arguments_alone() {
        let mut approval = request(Some("k"));
        approval.answer(answer(Decision::ApproveSameArguments(10 * MINUTE)), at(0));
        for key in [None, Some("k"), Some("l")] {
            let used = verdict(&[approval.clone()], key, at(599));
            assert!(matches!(used, Some(ApprovalVerdict::Approved { same_arguments: true, .. })), "{key:?}");
            assert_eq!(verdict(&[approval.clone()], key, at(600)), None);
        }
        let other = ApprovalBinding::new(&[2; 32], &["package"], 0, None);
        let step = decide_approval(vec![approval.clone()], &other, &AuditId::mint(), at(1));
        assert!(matches!(step, ApprovalStep::Ask));
        assert!(matches!(approval.answer(answer(Decision::Deny), at(5)), AnswerOutcome::Taken(_)));
        assert_eq!(verdict(&[approval.clone()], None, at(6)), None, "it is withdrawn");
        assert!(matches!(verdict(&[approval], Some("k"), at(6)), Some(ApprovalVerdict::Denied(_))));
    }

    #[test]
    fn a_denial_stands_until_the_request_would_end() {
        let mut approval = request(None);
        approval.answer(answer(Decision::Deny), at(100));
        assert!(matches!(verdict(&[approval.clone()], None, at(3599)), Some(ApprovalVerdict::Denied(_))));
        assert_eq!(verdict(&[approval.clone()], None, at(3600)), None);
        let window = {
            let mut other = request(Some("l"));
            other.answer(answer(Decision::ApproveSameArguments(HOUR)), at(200));
            other
        };
        let both = [window, approval];
        assert!(matches!(verdict(&both, None, at(300)), Some(ApprovalVerdict::Denied(_))), "a denial wins");
    }
    /// An answer that was taken, as the model of the random test has it.
    struct Granted {
        binding: ApprovalBinding,
        from: i64,
        until: i64,
        is_window: bool,
        is_used: bool,
        is_withdrawn: bool,
    }

    #[test]
    fn random_interleavings_use_no_approval_twice() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..10_000 {
            let (mut store, mut now) = (Vec::<StoredApproval>::new(), 0_i64);
            let mut granted = std::collections::BTreeMap::<ApprovalId, Granted>::new();
            for _ in 0..24 {
                let key = *rng.choice(&[None, Some("k"), Some("l")]).unwrap();
                let binding = ApprovalBinding::new(&[rng.u8(..2); 32], &["p"], rng.u32(..2), key);
                match rng.u8(..10) {
                    0..4 => {
                        let step = decide_approval(store.clone(), &binding, &AuditId::mint(), at(now));
                        if let ApprovalStep::Keep(ApprovalVerdict::Approved { id, same_arguments, .. })
                        | ApprovalStep::UseUp(ApprovalVerdict::Approved { id, same_arguments, .. }, _) =
                            &step
                        {
                            let of = granted.get_mut(id).unwrap();
                            assert!((of.from..of.until).contains(&now) && !of.is_withdrawn);
                            assert_eq!(of.is_window, *same_arguments);
                            assert_eq!(of.binding.same_arguments, binding.same_arguments);
                            assert!(of.is_window || (of.binding == binding && !of.is_used));
                            of.is_used = true;
                        }
                        match step {
                            ApprovalStep::Keep(_) => {}
                            ApprovalStep::UseUp(_, changed) => {
                                let id = &changed.approval.id;
                                let own = store.iter_mut().find(|it| it.approval.id == *id).unwrap();
                                *own = *changed;
                            }
                            ApprovalStep::Ask => {
                                let new = request(key).approval;
                                store.push(StoredApproval::new(new, binding, HOUR, at(now)));
                            }
                        }
                    }
                    4..7 if !store.is_empty() => {
                        let n = rng.usize(..store.len());
                        let (decision, minutes) = match rng.u8(..4) {
                            0 | 1 => (Decision::ApproveOnce(10 * MINUTE), 10),
                            2 => (Decision::ApproveSameArguments(30 * MINUTE), 30),
                            _ => (Decision::Deny, 0),
                        };
                        if let AnswerOutcome::Taken(taken) = store[n].answer(answer(decision), at(now)) {
                            if let Some(of) = granted.get_mut(&taken.id) {
                                assert!(decision == Decision::Deny && (of.is_window || !of.is_used));
                                of.is_withdrawn = true;
                            } else if decision != Decision::Deny {
                                let is_window = minutes == 30;
                                let (binding, until) = (store[n].binding, now + minutes * 60);
                                let (is_used, is_withdrawn) = (false, false);
                                let of =
                                    Granted { binding, from: now, until, is_window, is_used, is_withdrawn };
                                granted.insert(taken.id, of);
                            }
                        }
                    }
                    7 | 8 => now += 60 * rng.i64(0..25),
                    _ => {
                        // A restart, which reads what was written; and what has ended is removed.
                        let text = serde_json::to_string(&store).unwrap();
                        store = serde_json::from_str(&text).unwrap();
                        store.retain(|it| it.ends() > at(now).time.as_microsecond());
                    }
                }
            }
        }
    }
}
