//! The rules: what must agree between the answers, the log and the effects.

use std::collections::{BTreeMap, BTreeSet};

use crate::answers::{Answer, Exchange};
use crate::effects::{Effect, serials};
use crate::log::{Call, End, sha256};
use crate::verdict::{FindingKind, Unknown, Verdict};
use crate::{Histories, PlannedKey};

/// Judges the histories.
#[must_use]
pub fn check(histories: &Histories) -> Verdict {
    let mut checker = Checker::new(histories);
    checker.log_form();
    for (planned, exchanges) in checker.by_key() {
        checker.answers_of(planned, &exchanges);
        checker.effects_of(planned);
        checker.executions_of(planned);
    }
    checker.unplanned();
    checker.count();
    checker.verdict
}

struct Checker<'h> {
    histories: &'h Histories,
    /// The calls in the log by the SHA-256 of their key.
    calls: BTreeMap<&'h str, Vec<(&'h str, &'h Call)>>,
    /// The requests to the upstream by key and step.
    effects: BTreeMap<(&'h str, &'h str), Vec<&'h Effect>>,
    by_serial: BTreeMap<u64, &'h Effect>,
    verdict: Verdict,
}

impl<'h> Checker<'h> {
    fn new(histories: &'h Histories) -> Self {
        let mut calls = BTreeMap::<_, Vec<_>>::new();
        for (id, call) in &histories.log.calls {
            if let Some(key) = &call.key_sha256 {
                calls.entry(key.as_str()).or_default().push((id.as_str(), call));
            }
        }
        let mut effects = BTreeMap::<_, Vec<_>>::new();
        for effect in &histories.effects {
            effects.entry((effect.key.as_str(), effect.step.as_str())).or_default().push(effect);
        }
        let by_serial = histories.effects.iter().map(|effect| (effect.serial, effect)).collect();
        Self { histories, calls, effects, by_serial, verdict: Verdict::default() }
    }

    /// Returns the requests of each planned key, in the order of their answers.
    fn by_key(&self) -> Vec<(&'h PlannedKey, Vec<&'h Exchange>)> {
        let mut by_key = BTreeMap::<_, Vec<_>>::new();
        for exchange in &self.histories.answers {
            by_key.entry(exchange.key.as_str()).or_default().push(exchange);
        }
        let sorted = |planned: &'h PlannedKey| {
            let mut exchanges = by_key.get(planned.key.as_str()).cloned().unwrap_or_default();
            exchanges.sort_by_key(|exchange| exchange.answered);
            (planned, exchanges)
        };
        self.histories.plan.iter().map(sorted).collect()
    }

    /// Returns the calls in the log under a key of the host.
    fn calls_under(&self, key: &str) -> Vec<(&'h str, &'h Call)> {
        self.calls.get(sha256(key.as_bytes()).as_str()).cloned().unwrap_or_default()
    }

    /// Returns the calls under a planned key, and under those of its steps.
    fn calls_of(&self, planned: &PlannedKey) -> BTreeMap<&'h str, &'h Call> {
        let steps = planned.steps.iter().flat_map(|step| self.calls_under(&planned.key_of(step)));
        self.calls_under(&planned.key).into_iter().chain(steps).collect()
    }

    fn log_form(&mut self) {
        for (journal, text) in &self.histories.log.broken {
            self.verdict.find(FindingKind::Chain, journal, text);
        }
        for (call, text) in &self.histories.log.disordered {
            self.verdict.find(FindingKind::Events, call, text);
        }
    }

    fn answers_of(&mut self, planned: &PlannedKey, exchanges: &[&Exchange]) {
        let before = self.verdict.findings.len();
        for exchange in exchanges {
            self.answer(planned, exchange, exchanges);
        }
        // A lost outcome is a finding of its own; that the key got another one afterwards is its consequence.
        if self.verdict.findings.len() == before {
            self.same_outcome(planned, exchanges);
        }
        let counts = &mut self.verdict.counts;
        let has = |is: fn(&Answer) -> bool| exchanges.iter().any(|exchange| is(&exchange.answer));
        if has(|answer| matches!(answer, Answer::Value { .. })) {
            counts.values += 1;
        } else if has(|answer| matches!(answer, Answer::Failure { retriable: false, .. })) {
            counts.failures += 1;
        } else if !has(is_unknown) {
            counts.unanswered += 1;
        }
    }

    fn answer(&mut self, planned: &PlannedKey, exchange: &Exchange, all: &[&Exchange]) {
        let key = &planned.key;
        match &exchange.answer {
            Answer::Value { text, audit_id, replayed } => {
                self.told(key, "value", None, audit_id);
                let source = replayed.as_deref().unwrap_or(audit_id);
                if source != audit_id {
                    self.told(key, "value", None, source);
                }
                let logged = self.histories.log.calls.get(source).map(|call| &call.end);
                if let Some(End::Final { status, sha256: Some(hash), .. }) = logged
                    && status == "value"
                    && *hash != sha256(text.as_bytes())
                {
                    self.verdict.find(
                        FindingKind::Differs,
                        key,
                        format!("{source} has another value than {text}"),
                    );
                }
                self.told_effects(planned, text);
            }
            Answer::Failure { class, code, audit_id, replayed, .. } => {
                let source = replayed.as_deref().unwrap_or(audit_id);
                self.told(key, "failure", Some((class, code)), source);
            }
            Answer::Error { code, call, request_id } if code == "outcome_unknown" => {
                let named = call.as_ref().or(request_id.as_ref()).map_or("-", String::as_str);
                self.unknown(planned, named, exchange, all);
            }
            Answer::Error { code, .. } if code == "idempotency_conflict" => {
                let text = "a client was told that the key belongs to another call, and there is none";
                self.verdict.find(FindingKind::TwoOutcomes, key, text);
            }
            Answer::Accepted { job } => {
                let has_run = !self.calls_of(planned).is_empty();
                let is_answered = all.iter().any(|other| {
                    let is_error = matches!(&other.answer, Answer::Error { .. });
                    other.by == "job" && (is_error || matches!(&other.answer, Answer::Failure { .. }))
                });
                if !has_run && !is_answered {
                    self.verdict.find(
                        FindingKind::Lost,
                        key,
                        format!("the job {job} was accepted, and never ran"),
                    );
                }
            }
            Answer::Error { .. } | Answer::Pending { .. } | Answer::Lost { .. } => {}
        }
    }

    /// Checks that the log has this outcome of a call.
    fn told(&mut self, key: &str, wanted: &str, failure: Option<(&String, &String)>, id: &str) {
        let Some(call) = self.histories.log.calls.get(id) else {
            let text = format!("a client got a {wanted} of {id}, which is not in the log");
            return self.verdict.find(FindingKind::Lost, key, text);
        };
        let state = call.state();
        match &call.end {
            End::Final { status, class, code, .. } => {
                let same = failure.is_none_or(|(told_class, told_code)| {
                    class.as_ref() == Some(told_class) && code.as_ref() == Some(told_code)
                });
                if status != wanted || !same {
                    let text =
                        format!("a client got a {wanted} {failure:?} of {id}, and the log has {state}");
                    self.verdict.find(FindingKind::Differs, key, text);
                }
            }
            End::Open | End::Resumed | End::Skipped { .. } => {
                let text = format!("a client got a {wanted} of {id}, and the log has {state}");
                self.verdict.find(FindingKind::Lost, key, text);
            }
        }
    }

    /// Checks that the upstream has the effects that a value tells of: one of each step.
    fn told_effects(&mut self, planned: &PlannedKey, text: &str) {
        let mut steps: BTreeSet<_> = planned.steps.iter().map(|step| step.id.as_str()).collect();
        for serial in serials(text) {
            let effect = self.by_serial.get(&serial).filter(|effect| effect.performed);
            match effect {
                Some(effect) if effect.key == planned.key => {
                    steps.remove(effect.step.as_str());
                }
                Some(effect) => {
                    let text = format!("a client got effect {serial}, which is of {}", effect.key);
                    self.verdict.find(FindingKind::Differs, &planned.key, text);
                }
                None => {
                    let text = format!("a client got effect {serial}, which the upstream does not have");
                    self.verdict.find(FindingKind::Lost, &planned.key, text);
                }
            }
        }
        if !steps.is_empty() {
            let text = format!("a client got a value without the effects of {steps:?}: {text}");
            self.verdict.find(FindingKind::Lost, &planned.key, text);
        }
    }

    /// Checks that the log has a reason for an unknown outcome: a begun attempt under this key.
    fn unknown(&mut self, planned: &PlannedKey, named: &str, exchange: &Exchange, all: &[&Exchange]) {
        let calls = self.calls_of(planned);
        // An action has no attempts of its own: those of its steps are the reason. A job names its last run, which was
        // refused for the key and so does not have it: the undecided call with the key is the reason.
        let is_action = |call: &&&Call| call.key_sha256.as_deref() == Some(&sha256(planned.key.as_bytes()));
        let has_begun = calls.values().any(|call| call.attempts > 0);
        let named_call = calls.get(named).filter(|call| call.attempts > 0 || is_action(call) && has_begun);
        let refused = self.histories.log.calls.get(named).filter(|call| call.was_refused_as_unknown());
        let undecided = refused.and_then(|_| calls.iter().find(|(_, call)| call.is_undecided()));
        let reason = named_call.map(|call| (named, *call)).or(undecided.map(|(id, call)| (*id, *call)));
        let Some((named, call)) = reason else {
            let logged: Vec<_> = calls.iter().map(|(id, call)| format!("{id}: {}", call.state())).collect();
            let text =
                format!("a client was told that {named} may have had its effect; the log has {logged:?}");
            return self.verdict.find(FindingKind::Unjustified, &planned.key, text);
        };
        let is_resolved =
            all.iter().any(|other| is_outcome(&other.answer) && other.answered >= exchange.answered);
        let unknown =
            Unknown { key: planned.key.clone(), call: named.to_owned(), reason: call.state(), is_resolved };
        if !self.verdict.unknown.contains(&unknown) {
            self.verdict.unknown.push(unknown);
        }
    }

    /// Checks that all clients of a key got the same outcome, and that none got another answer after it.
    fn same_outcome(&mut self, planned: &PlannedKey, exchanges: &[&Exchange]) {
        let values: BTreeSet<_> = exchanges
            .iter()
            .filter_map(|exchange| match &exchange.answer {
                Answer::Value { text, .. } => Some(text),
                _ => None,
            })
            .collect();
        if values.len() > 1 {
            self.verdict.find(FindingKind::TwoOutcomes, &planned.key, format!("clients got {values:?}"));
        }
        let kept = exchanges.iter().find(|exchange| self.is_kept(&exchange.answer));
        let Some(kept) = kept else { return };
        let later = exchanges.iter().filter(|exchange| exchange.sent > kept.answered);
        let other = later.map(|exchange| &exchange.answer).find(|answer| match (&kept.answer, answer) {
            (Answer::Value { text, .. }, Answer::Value { text: other, .. }) => text != other,
            (
                Answer::Failure { class, code, .. },
                Answer::Failure { class: other_class, code: other_code, .. },
            ) => (class, code) != (other_class, other_code),
            (_, answer) => is_outcome(answer) || is_unknown(answer),
        });
        if let Some(other) = other {
            let text = format!("after {:?} a client got {other:?}", kept.answer);
            self.verdict.find(FindingKind::TwoOutcomes, &planned.key, text);
        }
    }

    /// True if the outcome is the last one of its key.
    fn is_kept(&self, answer: &Answer) -> bool {
        match answer {
            Answer::Value { .. } => true,
            Answer::Failure { retriable: false, audit_id, replayed, .. } => {
                let source = replayed.as_ref().unwrap_or(audit_id);
                let end = self.histories.log.calls.get(source).map(|call| &call.end);
                matches!(end, Some(End::Final { key: Some(key), .. }) if key == "keeps")
            }
            _ => false,
        }
    }

    fn effects_of(&mut self, planned: &PlannedKey) {
        for step in &planned.steps {
            let requests = self.effects.get(&(planned.key.as_str(), step.id.as_str()));
            let requests = requests.cloned().unwrap_or_default();
            let performed: Vec<_> = requests.iter().filter(|effect| effect.performed).collect();
            let host_key = planned.key_of(step);
            let calls = self.calls_under(&host_key);
            let attempts: usize = calls.iter().map(|(_, call)| call.attempts).sum();
            if requests.len() > attempts {
                let text = format!(
                    "the upstream got {} requests, and the log has {attempts} attempts",
                    requests.len()
                );
                self.verdict.find(FindingKind::Unlogged, &host_key, text);
            }
            let has_value = calls
                .iter()
                .any(|(_, call)| matches!(&call.end, End::Final { status, .. } if status == "value"));
            if has_value && performed.is_empty() {
                let text = "the log has a value, and the upstream no effect";
                self.verdict.find(FindingKind::Lost, &host_key, text);
            }
            let service_keys: BTreeSet<_> =
                performed.iter().filter_map(|effect| effect.service_key.as_deref()).collect();
            let unkeyed = performed.iter().filter(|effect| effect.service_key.is_none()).count();
            let times = match step.repeatable {
                true => service_keys.len() + unkeyed,
                false => performed.len(),
            };
            if times > 1 {
                let serials: Vec<_> = performed.iter().map(|effect| effect.serial).collect();
                let text = format!("{times} effects: {serials:?}, with the keys {service_keys:?}");
                self.verdict.find(FindingKind::Doubled, &host_key, text);
            } else {
                self.verdict.counts.recognisable += performed.len().saturating_sub(1);
            }
        }
    }

    /// Checks that no two calls hold the key at once.
    fn executions_of(&mut self, planned: &PlannedKey) {
        let steps = planned.steps.iter().map(|step| planned.key_of(step));
        let keys: BTreeSet<_> = steps.chain([planned.key.clone()]).collect();
        for key in keys {
            let calls = self.calls_under(&key);
            let holding: Vec<_> = calls
                .iter()
                .filter(|(_, call)| call.attempts > 0 && call.holds_key())
                .map(|(id, call)| format!("{id}: {}", call.state()))
                .collect();
            for (id, call) in calls.iter().filter(|(_, call)| call.is_undecided()) {
                if !self.verdict.unknown.iter().any(|unknown| unknown.call == *id) {
                    let reason = format!("{}; no client was told", call.state());
                    let unknown =
                        Unknown { key: key.clone(), call: (*id).to_owned(), reason, is_resolved: false };
                    self.verdict.unknown.push(unknown);
                }
            }
            if holding.len() > 1 {
                self.verdict.find(
                    FindingKind::Doubled,
                    &key,
                    format!("calls that each own the key: {holding:?}"),
                );
            }
        }
    }

    /// Checks that the upstream and the clients know no key that is not planned.
    fn unplanned(&mut self) {
        let planned: BTreeSet<_> = self.histories.plan.iter().map(|planned| planned.key.as_str()).collect();
        let steps: BTreeSet<_> = self
            .histories
            .plan
            .iter()
            .flat_map(|planned| planned.steps.iter().map(|step| (planned.key.as_str(), step.id.as_str())))
            .collect();
        for ((key, step), requests) in &self.effects {
            if !steps.contains(&(key, step)) {
                let text = format!(
                    "the upstream got {} requests for the step `{step}`, which is not planned",
                    requests.len()
                );
                self.verdict.find(FindingKind::Unlogged, *key, text);
            }
        }
        let strangers =
            self.histories.answers.iter().filter(|exchange| !planned.contains(exchange.key.as_str()));
        for exchange in strangers {
            self.verdict.find(FindingKind::Differs, &exchange.key, "a client used a key that is not planned");
        }
    }

    fn count(&mut self) {
        let Histories { plan, answers, effects, log } = self.histories;
        let counts = &mut self.verdict.counts;
        counts.keys = plan.len();
        for exchange in answers {
            *counts.answers.entry(name(&exchange.answer)).or_default() += 1;
        }
        counts.requests = effects.len();
        counts.effects = effects.iter().filter(|effect| effect.performed).count();
        (counts.entries, counts.journals, counts.calls) = (log.entries, log.journals, log.calls.len());
        counts.open = log.calls.values().filter(|call| call.end == End::Open).count();
    }
}

/// The name under which an answer is counted.
fn name(answer: &Answer) -> String {
    match answer {
        Answer::Value { replayed: None, .. } => "value".to_owned(),
        Answer::Value { .. } => "replayed value".to_owned(),
        Answer::Failure { class, .. } => class.clone(),
        Answer::Error { code, .. } => code.clone(),
        Answer::Accepted { .. } => "accepted".to_owned(),
        Answer::Pending { .. } => "pending".to_owned(),
        Answer::Lost { .. } => "connection lost".to_owned(),
    }
}

fn is_outcome(answer: &Answer) -> bool {
    matches!(answer, Answer::Value { .. } | Answer::Failure { retriable: false, .. })
}

fn is_unknown(answer: &Answer) -> bool {
    matches!(answer, Answer::Error { code, .. } if code == "outcome_unknown")
}
