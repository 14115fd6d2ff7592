//! Made-up histories: a correct one, and one for each kind of finding.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use serde_json::{Value, json};

use crate::log::sha256;
use crate::{Answer, Effect, Exchange, FindingKind, Histories, Log, PlannedKey, PlannedStep, Verdict, check};

/// A call that writes its entries, and a client that waits for it.
#[derive(Default)]
struct Story {
    plan: Vec<PlannedKey>,
    answers: Vec<Exchange>,
    effects: Vec<Effect>,
    entries: Vec<Value>,
    time: u64,
}

impl Story {
    /// A story of one key, of a call.
    fn of(key: &str, repeatable: bool) -> Self {
        let steps = vec![PlannedStep { id: String::new(), repeatable }];
        Self { plan: vec![PlannedKey { key: key.into(), steps }], ..Self::default() }
    }

    fn now(&mut self) -> u64 {
        self.time += 10;
        self.time
    }

    /// A call begins its first attempt.
    fn begins(&mut self, id: &str, key: &str) {
        let claim = json!({"fingerprint": "0", "key_sha256": sha256(key.as_bytes())});
        self.entries.push(json!({"audit_id": id, "events": [
            {"seq": 1, "type": "received", "payload": {}},
            {"seq": 2, "type": "admitted", "payload": {"claim": claim}},
            {"seq": 3, "type": "attempt_started", "payload": {"attempt": 1}},
        ]}));
    }

    /// The call ends.
    fn ends(&mut self, id: &str, payload: Value) {
        let events = json!([{"seq": 4, "type": "final", "payload": payload}]);
        self.entries.push(json!({"audit_id": id, "events": events}));
    }

    fn ends_with_value(&mut self, id: &str, text: &str) {
        let result = json!({"bytes": text.len(), "sha256": sha256(text.as_bytes())});
        self.ends(id, json!({"status": "value", "result": result, "key_end": {"state": "keeps"}}));
    }

    /// The upstream gets a request and has the effect.
    fn has_effect(&mut self, key: &str, service_key: &str) -> u64 {
        let (serial, at) = (self.effects.len() as u64 + 1, self.now());
        let service_key = (!service_key.is_empty()).then(|| service_key.to_owned());
        let (key, step) = key.split_once('/').unwrap_or((key, ""));
        self.effects.push(Effect {
            serial,
            key: key.into(),
            step: step.into(),
            service_key,
            at,
            performed: true,
            answer: "200".into(),
        });
        serial
    }

    fn answers(&mut self, key: &str, answer: Answer) {
        let (sent, answered) = (self.now(), self.now());
        self.answers.push(Exchange { key: key.into(), by: "call".into(), host: 0, sent, answered, answer });
    }

    fn answers_value(&mut self, key: &str, text: &str, id: &str) {
        self.answers(key, Answer::Value { text: text.into(), audit_id: id.into(), replayed: None });
    }

    fn answers_unknown(&mut self, key: &str, call: &str) {
        let code = "outcome_unknown".into();
        self.answers(key, Answer::Error { code, call: Some(call.into()), request_id: None });
    }

    /// A call that does everything right.
    fn does_well(&mut self, key: &str, id: &str) {
        self.begins(id, key);
        let serial = self.has_effect(key, &format!("{key}:effect"));
        let text = format!("\"effect-{serial}\"");
        self.ends_with_value(id, &text);
        self.answers_value(key, &text, id);
    }

    /// The lines of the journal, chained.
    fn lines(&self) -> Vec<String> {
        let mut prev = "0".repeat(64);
        let chained = self.entries.iter().enumerate().map(|(at, entry)| {
            let mut entry = entry.clone();
            entry["n"] = (at + 1).into();
            entry["prev"] = prev.clone().into();
            let line = entry.to_string();
            prev = sha256(line.as_bytes());
            line
        });
        let header = json!({"journal": "a", "after": {"n": 0, "hash": "0".repeat(64)}}).to_string();
        std::iter::once(header).chain(chained).collect()
    }

    fn judged(self) -> Verdict {
        let log = Log::read(self.lines().join("\n").as_bytes());
        check(&Histories { plan: self.plan, answers: self.answers, effects: self.effects, log })
    }

    /// Asserts that there are findings, all of this kind.
    #[track_caller]
    fn expect_only(self, kind: FindingKind) {
        let verdict = self.judged();
        let kinds: Vec<_> = verdict.findings.iter().map(|finding| finding.kind).collect();
        assert!(!kinds.is_empty() && kinds.iter().all(|found| *found == kind), "{kind}: {verdict}");
    }

    #[track_caller]
    fn expect_right(self) -> Verdict {
        let verdict = self.judged();
        assert!(verdict.findings.is_empty(), "{verdict}");
        verdict
    }
}

#[test]
fn a_correct_history_has_no_findings() {
    let mut story = Story::of("k", false);
    story.does_well("k", "audit-1");
    let replayed = Some("audit-1".to_owned());
    story.entries.push(json!({"audit_id": "audit-2", "events": [
        {"seq": 1, "type": "received", "payload": {}},
        {"seq": 2, "type": "replayed", "payload": {"of": "audit-1"}},
        {"seq": 3, "type": "final", "payload": {"status": "value", "replayed": "audit-1"}},
    ]}));
    let text = "\"effect-1\"".to_owned();
    story.answers("k", Answer::Value { text, audit_id: "audit-2".into(), replayed });
    story.answers("k", Answer::Lost { reason: "reset".into() });
    let counts = story.expect_right().counts;
    assert_eq!((counts.keys, counts.values, counts.effects, counts.calls, counts.journals), (1, 1, 1, 2, 1));
}

#[test]
fn an_action_has_one_effect_of_each_step() {
    let step = |id: &str| PlannedStep { id: id.into(), repeatable: id != "pay" };
    let plan = || Story {
        plan: vec![PlannedKey { key: "a".into(), steps: ["note", "pay"].map(step).to_vec() }],
        ..Story::default()
    };
    let mut story = plan();
    for (key, id) in [("a/note", "audit-1"), ("a/pay", "audit-2")] {
        story.begins(id, key);
        let serial = story.has_effect(key, &format!("{key}:effect"));
        story.ends_with_value(id, &format!("\"effect-{serial}\""));
    }
    story.begins("audit-3", "a");
    let text = r#"{"note":"effect-1","pay":"effect-2"}"#;
    story.ends_with_value("audit-3", text);
    story.answers_value("a", text, "audit-3");
    let half = (story.entries.clone(), story.effects.clone());
    story.expect_right();
    // The same without the second step's effect in the value.
    let mut story = plan();
    (story.entries, story.effects) = half;
    story.entries.truncate(4);
    story.begins("audit-3", "a");
    story.ends_with_value("audit-3", r#""effect-1""#);
    story.answers_value("a", r#""effect-1""#, "audit-3");
    story.expect_only(FindingKind::Lost);
}

#[test]
fn a_value_that_is_not_logged_is_lost() {
    // The call is not in the log at all.
    let mut story = Story::of("k", true);
    story.answers_value("k", "\"effect-1\"", "audit-1");
    let serial = story.has_effect("k", "k:effect");
    assert_eq!(serial, 1);
    let verdict = story.judged();
    assert_eq!(verdict.count(FindingKind::Lost), 1, "{verdict}");
    // It has no end there; the next call with the key is told so.
    let mut story = Story::of("k", false);
    story.begins("audit-1", "k");
    story.has_effect("k", "k:effect");
    story.answers_value("k", "\"effect-1\"", "audit-1");
    story.answers_unknown("k", "audit-1");
    story.expect_only(FindingKind::Lost);
}

#[test]
fn a_value_without_an_effect_is_lost() {
    let mut story = Story::of("k", true);
    story.begins("audit-1", "k");
    story.ends_with_value("audit-1", "\"effect-1\"");
    story.answers_value("k", "\"effect-1\"", "audit-1");
    story.expect_only(FindingKind::Lost);
}

#[test]
fn an_accepted_job_that_never_ran_is_lost() {
    let mut story = Story::of("k", true);
    story.answers("k", Answer::Accepted { job: "job-1".into() });
    story.expect_only(FindingKind::Lost);
    // One that runs is not, even if no client asked for its outcome.
    let mut story = Story::of("k", true);
    story.answers("k", Answer::Accepted { job: "job-1".into() });
    story.begins("audit-1", "k");
    story.has_effect("k", "k:effect");
    story.expect_right();
}

#[test]
fn a_repeated_effect_is_doubled() {
    // An operation that must not be repeated, with two attempts in the log.
    let twice = |repeatable: bool, keys: [&str; 2]| {
        let mut story = Story::of("k", repeatable);
        story.begins("audit-1", "k");
        story.has_effect("k", keys[0]);
        story.ends("audit-1", json!({"status": "failure", "key_end": {"state": "free"}}));
        story.begins("audit-2", "k");
        let serial = story.has_effect("k", keys[1]);
        let text = format!("\"effect-{serial}\"");
        story.ends_with_value("audit-2", &text);
        story.answers_value("k", &text, "audit-2");
        story
    };
    twice(false, ["k:effect", "k:effect"]).expect_only(FindingKind::Doubled);
    // One that may be repeated, under another key or without one.
    twice(true, ["k:effect", "other:effect"]).expect_only(FindingKind::Doubled);
    twice(true, ["", ""]).expect_only(FindingKind::Doubled);
    // Under the same key, the service would have recognised it.
    assert_eq!(twice(true, ["k:effect", "k:effect"]).expect_right().counts.recognisable, 1);
}

#[test]
fn two_executions_under_one_key_are_doubled() {
    let mut story = Story::of("k", true);
    story.begins("audit-1", "k");
    story.begins("audit-2", "k");
    story.has_effect("k", "k:effect");
    story.ends_with_value("audit-1", "\"effect-1\"");
    story.ends_with_value("audit-2", "\"effect-1\"");
    story.expect_only(FindingKind::Doubled);
    // The first was interrupted, and the second resumed it.
    let mut story = Story::of("k", true);
    story.begins("audit-1", "k");
    story.has_effect("k", "k:effect");
    let resumed = json!([{"seq": 4, "type": "resumed", "payload": {"by": "audit-2"}}]);
    story.entries.push(json!({"audit_id": "audit-1", "events": resumed}));
    story.begins("audit-2", "k");
    story.has_effect("k", "k:effect");
    story.ends_with_value("audit-2", "\"effect-2\"");
    story.answers_value("k", "\"effect-2\"", "audit-2");
    story.expect_right();
}

#[test]
fn another_value_than_logged_differs() {
    let mut story = Story::of("k", true);
    story.does_well("k", "audit-1");
    let Answer::Value { text, .. } = &mut story.answers[0].answer else { return };
    text.push(' ');
    story.expect_only(FindingKind::Differs);
    // A value, where the log has a failure.
    let mut story = Story::of("k", true);
    story.begins("audit-1", "k");
    story.has_effect("k", "k:effect");
    story.ends("audit-1", json!({"status": "failure", "class": "network_error", "code": "reset"}));
    story.answers_value("k", "\"effect-1\"", "audit-1");
    story.expect_only(FindingKind::Differs);
}

#[test]
fn two_values_of_one_key_are_two_outcomes() {
    let mut story = Story::of("k", true);
    story.does_well("k", "audit-1");
    // The key was freed by mistake: the log has it so.
    story.entries[1]["events"][0]["payload"]["key_end"]["state"] = "free".into();
    story.does_well("k", "audit-2");
    story.expect_only(FindingKind::TwoOutcomes);
}

#[test]
fn an_unknown_after_a_value_is_two_outcomes() {
    let mut story = Story::of("k", true);
    story.does_well("k", "audit-1");
    story.answers_unknown("k", "audit-1");
    story.expect_only(FindingKind::TwoOutcomes);
}

#[test]
fn an_effect_without_an_attempt_is_unlogged() {
    let mut story = Story::of("k", true);
    story.has_effect("k", "k:effect");
    story.expect_only(FindingKind::Unlogged);
    let mut story = Story::of("k", true);
    story.does_well("k", "audit-1");
    story.has_effect("k", "k:effect");
    story.expect_only(FindingKind::Unlogged);
    let mut story = Story::of("k", true);
    story.has_effect("stranger", "k:effect");
    story.expect_only(FindingKind::Unlogged);
}

#[test]
fn an_unknown_outcome_needs_a_reason() {
    let mut story = Story::of("k", false);
    story.answers_unknown("k", "audit-1");
    story.expect_only(FindingKind::Unjustified);
    let mut story = Story::of("k", false);
    story.begins("audit-1", "k");
    story.has_effect("k", "k:effect");
    story.answers_unknown("k", "audit-1");
    let verdict = story.expect_right();
    assert_eq!((verdict.unknown.len(), verdict.unknown[0].is_resolved), (1, false));
    assert!(verdict.to_string().contains("k: audit-1: 1 attempts and no end"), "{verdict}");
}

/// A job names its last run, which was refused for its key.
#[test]
fn a_refused_run_needs_an_undecided_call() {
    let refused = |story: &mut Story| {
        story.entries.push(json!({"audit_id": "audit-2", "events": [
            {"seq": 1, "type": "received", "payload": {}},
            {"seq": 2, "type": "final", "payload": {"status": "refused", "code": "outcome_unknown"}},
        ]}));
        story.answers_unknown("k", "audit-2");
    };
    let mut story = Story::of("k", false);
    story.begins("audit-1", "k");
    story.has_effect("k", "k:effect");
    refused(&mut story);
    assert_eq!(story.expect_right().unknown[0].call, "audit-1");
    let mut story = Story::of("k", false);
    refused(&mut story);
    story.expect_only(FindingKind::Unjustified);
}

#[test]
fn an_undecided_call_is_listed_if_no_client_asks() {
    let mut story = Story::of("k", false);
    story.begins("audit-1", "k");
    story.has_effect("k", "k:effect");
    let verdict = story.expect_right();
    assert!(
        verdict.to_string().contains("k: audit-1: 1 attempts and no end; no client was told"),
        "{verdict}"
    );
}

/// Edits the lines of a correct journal, and returns the kinds of the findings.
fn edited(edit: impl FnOnce(&mut Vec<String>)) -> Vec<FindingKind> {
    let mut story = Story::of("k", true);
    story.does_well("k", "audit-1");
    let mut lines = story.lines();
    edit(&mut lines);
    let log = Log::read(lines.join("\n").as_bytes());
    let verdict = check(&Histories { plan: story.plan, answers: story.answers, effects: story.effects, log });
    verdict.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn an_edited_journal_breaks_its_chain() {
    assert!(edited(|_| {}).is_empty());
    let changed = edited(|lines| lines[1] = lines[1].replace("received", "recieved"));
    assert_eq!(changed, [FindingKind::Chain]);
    assert_eq!(edited(|lines| lines.insert(2, "{".into())), [FindingKind::Chain]);
    let removed = edited(|lines| {
        lines.remove(1);
    });
    assert!(removed.contains(&FindingKind::Chain) && removed.contains(&FindingKind::Events), "{removed:?}");
}

#[test]
fn events_after_the_end_are_found() {
    let mut story = Story::of("k", true);
    story.does_well("k", "audit-1");
    let late = json!([{"seq": 5, "type": "suppressed", "payload": {}}]);
    story.entries.push(json!({"audit_id": "audit-1", "events": late}));
    story.expect_only(FindingKind::Events);
    let mut story = Story::of("k", true);
    story.does_well("k", "audit-1");
    story.entries[1]["events"][0]["seq"] = 6.into();
    story.expect_only(FindingKind::Events);
}
