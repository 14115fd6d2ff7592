//! Checks the state after kills: the log, the service's requests, and the reported outcomes must agree.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam::AuditId;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::fixture::{Job, Left, Op, Stage};

/// A call as its entries have it.
#[derive(Debug, Default)]
struct OnRecord {
    /// The names of its events, in order.
    events: Vec<String>,
    /// The call that resumed it.
    resumed_by: Option<String>,
}

impl OnRecord {
    fn count(&self, name: &str) -> usize {
        self.events.iter().filter(|event| *event == name).count()
    }

    fn has_ended(&self) -> bool {
        ["final", "resumed", "skipped"].iter().any(|end| self.count(end) > 0)
    }
}

/// The state known so far.
pub(super) struct KillChecker {
    /// By segment, the lines that were read, and the hash and number of the last one.
    segments: BTreeMap<String, (usize, String, u64)>,
    calls: BTreeMap<String, OnRecord>,
    /// By call, the SHA-256 of the key that its caller gave.
    claims: BTreeMap<String, String>,
    /// The service's requests: the keys, and the number of each.
    effects: BTreeMap<String, usize>,
    /// The keys of these requests, by their SHA-256: the log has no key, but its hash.
    keys: BTreeMap<String, String>,
    seen: usize,
    jobs: BTreeMap<String, Job>,
    /// The reported outcomes, by audit id: the original line, and its content.
    pub(super) told: BTreeMap<String, (String, Value)>,
    /// The jobs for which an outcome with a value was reported.
    pub(super) done: BTreeSet<String>,
    /// The jobs that were reported as waiting for a decision.
    pub(super) undecided: BTreeSet<String>,
}

impl KillChecker {
    pub(super) fn new() -> Self {
        Self {
            segments: BTreeMap::new(),
            calls: BTreeMap::new(),
            claims: BTreeMap::new(),
            effects: BTreeMap::new(),
            keys: BTreeMap::new(),
            seen: 0,
            jobs: BTreeMap::new(),
            told: BTreeMap::new(),
            done: BTreeSet::new(),
            undecided: BTreeSet::new(),
        }
    }

    /// Reads the output of a process before its end.
    pub(super) fn hears(&mut self, left: &Left) {
        self.jobs.extend(left.jobs.iter().map(|job| (job.name.clone(), job.clone())));
        for line in &left.lines {
            let told: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let job = &left.jobs[told["line"].as_u64().unwrap() as usize - 1];
            if told.get("value").is_some() {
                let body = if job.name.starts_with("flaky") { "at last" } else { &job.name };
                assert_eq!(told["value"]["body"], body, "the outcome of another call: {line}");
                self.done.insert(job.name.clone());
            }
            if told["error"]["code"] == "outcome_unknown" {
                self.undecided.insert(job.name.clone());
            }
            // A call that was refused has no id: nothing of it ran.
            let Some(id) = told["audit_id"].as_str().map(str::to_owned) else {
                assert_eq!(told["error"]["code"], "audit_unavailable", "{line}");
                continue;
            };
            self.told.insert(id, (line.clone(), told));
        }
    }

    /// Reads the output of a recovery before its end; returns whether it was killed.
    pub(super) fn hears_of_recovery(&mut self, left: &Left) -> bool {
        for line in &left.lines {
            let told: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            self.told.insert(told["audit_id"].as_str().unwrap().to_owned(), (line.clone(), told));
        }
        left.was_killed()
    }

    /// Everything that does not agree.
    pub(super) fn finds(&mut self, stage: &Stage) -> Vec<String> {
        let mut findings = Vec::new();
        self.reads(stage, &mut findings);
        self.sees(stage);
        self.agrees(&mut findings);
        findings
    }

    /// Reads the new entries of the log, verifying the chains.
    fn reads(&mut self, stage: &Stage, findings: &mut Vec<String>) {
        for (path, lines) in stage.home.journals() {
            let (read, mut hash, mut n) = self.segments.get(&path).cloned().unwrap_or_default();
            for line in &lines[read..] {
                let entry: Value = serde_json::from_str(line).unwrap();
                let is_first = hash.is_empty();
                let follows = entry["prev"] == hash && entry["n"] == n + 1;
                if !is_first && !follows {
                    findings.push(format!("the chain breaks at entry {} of {path:?}", entry["n"]));
                }
                hash = hex(&Sha256::digest(line));
                n = entry["n"].as_u64().unwrap();
                self.reads_entry(&entry, findings);
            }
            self.segments.insert(path, (lines.len(), hash, n));
        }
    }

    fn reads_entry(&mut self, body: &Value, findings: &mut Vec<String>) {
        let Some(audit_id) = body["audit_id"].as_str() else { return };
        let call = self.calls.entry(audit_id.to_owned()).or_default();
        for event in body["events"].as_array().unwrap() {
            if call.has_ended() {
                findings.push(format!("{audit_id} goes on after its end: {event}"));
            }
            call.events.push(event["type"].as_str().unwrap().to_owned());
            if event["seq"].as_u64() != Some(call.events.len() as u64) {
                findings.push(format!("{audit_id} has events out of order: {event}"));
            }
            if let Some(sha256) = event["payload"]["claim"]["key_sha256"].as_str() {
                self.claims.insert(audit_id.to_owned(), sha256.to_owned());
            }
            if event["type"] == "resumed" {
                call.resumed_by = event["payload"]["by"].as_str().map(str::to_owned);
            }
        }
    }

    /// Counts what the service saw since.
    fn sees(&mut self, stage: &Stage) {
        for seen in stage.upstream.seen_after(self.seen) {
            self.seen += 1;
            // Before the colon is the key of the call, after it the connector's label.
            let header = seen.header("idempotency-key").unwrap_or_default();
            let key = header.split(':').next().unwrap().to_owned();
            if !self.effects.contains_key(&key) {
                self.keys.insert(hex(&Sha256::digest(&key)), key.clone());
            }
            *self.effects.entry(key).or_default() += 1;
        }
    }

    fn agrees(&self, findings: &mut Vec<String>) {
        // The logged attempts, by the key that they carried.
        let mut attempts: BTreeMap<&str, usize> = BTreeMap::new();
        let resumes: BTreeMap<&str, &str> = self
            .calls
            .iter()
            .filter_map(|(old, call)| Some((call.resumed_by.as_deref()?, old.as_str())))
            .collect();
        for (audit_id, call) in &self.calls {
            // Done again, it carries the key of the first.
            let mut first = audit_id.as_str();
            while let Some(before) = resumes.get(first) {
                first = before;
            }
            let key = self.claims.get(audit_id).and_then(|claim| self.keys.get(claim));
            let key = key.map_or(first, String::as_str);
            *attempts.entry(key).or_default() += call.count("attempt_started");
        }
        for (key, effects) in &self.effects {
            let begun = attempts.get(key.as_str()).copied().unwrap_or(0);
            if begun == 0 {
                findings.push(format!("the service was asked under {key}, which is not on record"));
            } else if *effects > begun {
                findings.push(format!("{effects} effects under {key}, and {begun} attempts on record"));
            }
        }
        let once = self.jobs.values().filter(|job| job.keyed && job.op == Op::OrderOnce);
        for job in once {
            if self.effects.get(&job.name).is_some_and(|effects| *effects > 1) {
                findings.push(format!("{} was done twice", job.name));
            }
        }
        for (audit_id, (_, told)) in &self.told {
            let call = self.calls.get(audit_id);
            let unknown =
                told["error"]["code"] == "outcome_unknown" || told["error"]["code"] == "audit_unavailable";
            if !unknown && call.is_none_or(|call| call.count("final") != 1) {
                findings.push(format!("{audit_id} was told, and is not on record: {told}"));
            }
        }
    }

    /// Checks that the reported outcomes of these calls are logged byte for byte, and are replayed without
    /// effects.
    pub(super) fn replays<'i>(&self, stage: &Stage, ids: impl Iterator<Item = &'i String>) {
        let (host, before) = (stage.home.host(), stage.upstream.requests());
        for audit_id in ids {
            let (line, told) = &self.told[audit_id];
            if told["error"]["code"] == "outcome_unknown" || told["error"]["code"] == "cancelled" {
                continue;
            }
            let replayed = host.replay(&AuditId::parse(audit_id).unwrap());
            let payload = match replayed.unwrap_or_else(|error| panic!("{error}: {line}")).outcome {
                Ok(value) => format!(",\"value\":{value}}}\n"),
                Err(error) => {
                    format!(",{}\n", serde_json::to_string(&error).unwrap().trim_start_matches('{'))
                }
            };
            assert!(line.ends_with(&payload), "{line} was told, and {payload} is on record");
        }
        assert_eq!(stage.upstream.requests(), before, "a replay had an effect");
    }

    /// The calls that have no end.
    pub(super) fn without_end(&self) -> Vec<&str> {
        let open = self.calls.iter().filter(|(_, call)| !call.has_ended());
        open.map(|(audit_id, _)| audit_id.as_str()).collect()
    }

    /// True if any call has more than one attempt.
    pub(super) fn has_retried(&self) -> bool {
        self.calls.values().any(|call| call.count("attempt_started") > 1)
    }

    /// The number of logged calls, and of requests to the service.
    pub(super) fn totals(&self) -> (usize, usize) {
        (self.calls.len(), self.seen)
    }
}

fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
