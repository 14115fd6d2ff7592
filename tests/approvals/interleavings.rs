//! Random sequences of calls, answers, waits, cancellations, restarts and second hosts, against a model that counts
//! effects: nothing runs without an approval of exactly it, and nothing runs twice with one.
//!
//! `COFFERDAM_APPROVALS=10000` runs so many sequences instead of 40; `COFFERDAM_APPROVALS_SEED` chooses them.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam::{Call, Cancellation, Error, Host, HostErrorKind};
use cofferdam_audit::approvals::ApprovalState;
use cofferdam_runtime::call::CallResult;
use cofferdam_runtime::host::ApprovalDecision;
use fastrand::Rng;
use serde_json::json;

use super::{Desk, answer, count};
use crate::shared_host::{begin, example, run, shared_host};

const MINUTE: i64 = 60;
const STEPS: usize = 25;

/// The calls: by whom, and with which text.
const CALLS: [(&str, &str); 4] = [("mcp:x", "a"), ("mcp:x", "b"), ("mcp:y", "a"), ("mcp:y", "b")];

/// The state of the request for a call, as the model has it. Times are in seconds.
#[derive(Debug, Clone)]
enum Expected {
    Waiting { id: String, until: i64 },
    Approved { id: String, until: i64, is_window: bool },
    Denied { until: i64 },
}

struct Model {
    desk: Desk,
    hosts: Vec<Host>,
    rng: Rng,
    path: String,
    now: i64,
    calls: BTreeMap<usize, Expected>,
    /// When each request would end.
    asked_until: BTreeMap<String, i64>,
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().unwrap())
}

impl Model {
    fn call(&self, n: usize) -> Call {
        let (actor, body) = CALLS[n];
        let args = json!({"url": shared_host().upstream.url(&self.path), "body": body});
        Call::new(example("probe"), "post", args).actor(actor).by_agent()
    }

    fn host(&mut self) -> Host {
        self.hosts[self.rng.usize(..self.hosts.len())].clone()
    }

    /// What is expected of a call now.
    fn expected(&self, n: usize) -> Option<Expected> {
        self.calls.get(&n).cloned().filter(|expected| match expected {
            Expected::Waiting { until, .. }
            | Expected::Approved { until, .. }
            | Expected::Denied { until } => self.now < *until,
        })
    }

    /// Takes over what a call ended with that ran or did not.
    fn heard(&mut self, n: usize, before: Option<Expected>, outcome: Result<(), Error>, effects: usize) {
        match (before, outcome) {
            (Some(Expected::Approved { is_window, .. }), Ok(())) => {
                assert_eq!(effects, 1, "a value without an effect");
                if !is_window {
                    self.calls.remove(&n);
                }
            }
            (Some(Expected::Approved { is_window: false, id, .. }), Err(error)) => {
                assert!(is_cancelled(&error), "{error}");
                let is_used = self.hosts[0].approval(&id).unwrap().state == ApprovalState::Used;
                assert!(
                    effects == 0 || (effects == 1 && is_used),
                    "an effect without the use of its approval"
                );
                if is_used {
                    self.calls.remove(&n);
                }
            }
            (Some(Expected::Approved { .. }), Err(error)) => assert!(is_cancelled(&error), "{error}"),
            (before, Err(Error::Host(error))) => {
                assert_eq!(effects, 0, "an effect without an approval: {before:?}");
                match (error.kind(), before) {
                    (HostErrorKind::Cancelled, _) => self.resynchronise(n),
                    (HostErrorKind::ApprovalDenied, Some(Expected::Denied { .. })) => {}
                    (HostErrorKind::ApprovalRequired, before) => {
                        let id = error.details()["approval"].as_str().unwrap().to_owned();
                        match before {
                            Some(Expected::Waiting { id: known, .. }) => assert_eq!(known, id),
                            Some(other) => panic!("{other:?}: {error}"),
                            None => self.waits(n, id),
                        }
                    }
                    (_, before) => panic!("{before:?}: {error}"),
                }
            }
            (before, outcome) => panic!("{before:?}: {outcome:?}"),
        }
    }

    fn waits(&mut self, n: usize, id: String) {
        let until = self.now + 60 * MINUTE;
        self.asked_until.insert(id.clone(), until);
        self.calls.insert(n, Expected::Waiting { id, until });
    }

    /// A cancelled call may have asked.
    fn resynchronise(&mut self, n: usize) {
        if self.expected(n).is_some() {
            return;
        }
        let (actor, body) = CALLS[n];
        let text = format!("\"body\":\"{body}\"");
        let waiting = self.hosts[0].approvals().unwrap().into_iter();
        let waiting = waiting.filter(|it| it.state == ApprovalState::Waiting && it.actor == actor);
        let shown = waiting.map(|it| self.hosts[0].approval(it.id.as_str()).unwrap());
        let is_own = |shown: &str| shown.contains(&text) && shown.contains(&self.path);
        let own = shown.filter(|it| is_own(it.arguments.text.as_ref().unwrap())).last();
        if let Some(own) = own {
            self.waits(n, own.id.to_string());
        }
    }

    fn ask(&mut self, n: usize) {
        let (host, before, known) = (self.host(), self.expected(n), count(&self.path));
        let call = self.call(n);
        let outcome = run(host.run(call)).outcome.map(drop);
        let effects = count(&self.path) - known;
        self.heard(n, before, outcome, effects);
    }

    /// A call that is cancelled at some moment.
    fn cancel(&mut self, n: usize) {
        let (host, before, known) = (self.host(), self.expected(n), count(&self.path));
        let cancellation = Cancellation::new();
        let call = self.call(n).cancelled_by(&cancellation);
        let delay = Duration::from_micros(self.rng.u64(..6_000));
        let outcome = run(async move {
            let canceller = async {
                tokio::time::sleep(delay).await;
                cancellation.cancel();
            };
            let (CallResult { outcome, .. }, ()) = tokio::join!(host.run(call), canceller);
            host.flush().await;
            outcome.map(drop)
        });
        // Its request may be on the way still, and what it asked for be written.
        std::thread::sleep(Duration::from_millis(20));
        let effects = count(&self.path) - known;
        self.heard(n, before, outcome, effects);
    }

    /// The same call on two hosts at once: with one approval, one of them runs.
    fn ask_twice(&mut self, n: usize) {
        let (before, known) = (self.expected(n), count(&self.path));
        let calls = [(self.host(), self.call(n)), (self.host(), self.call(n))]
            .map(|(host, call)| begin(async move { host.run(call).await.outcome.map(drop) }));
        let outcomes = calls.map(|call| run(call).unwrap());
        let (values, effects) = (outcomes.iter().filter(|it| it.is_ok()).count(), count(&self.path) - known);
        let allowed = match &before {
            Some(Expected::Approved { is_window: true, .. }) => 2,
            Some(Expected::Approved { .. }) => 1,
            _ => 0,
        };
        assert_eq!((values, effects), (allowed, allowed), "{before:?}: {outcomes:?}");
        if let Some(Expected::Approved { is_window: false, .. }) = before {
            self.calls.remove(&n);
        }
        let mut rest: Vec<_> = outcomes.into_iter().filter(Result::is_err).collect();
        if let Some(outcome) = rest.pop() {
            let before = self.expected(n);
            self.heard(n, before, outcome, 0);
        }
    }

    fn answer(&mut self) {
        let n = self.rng.usize(..CALLS.len());
        let Some(known) = self.calls.get(&n).cloned() else { return };
        let decision = match self.rng.u8(..5) {
            0 | 1 => ApprovalDecision::Approve,
            2 => ApprovalDecision::ApproveSameArguments(Duration::from_secs(20 * 60)),
            _ => ApprovalDecision::Deny,
        };
        let (id, until) = match &known {
            Expected::Waiting { id, until } | Expected::Approved { id, until, .. } => (id.clone(), *until),
            Expected::Denied { .. } => return,
        };
        let is_open = self.now < until
            && (matches!(known, Expected::Waiting { .. }) || decision == ApprovalDecision::Deny);
        let answered = answer(&self.host(), &id, decision);
        assert_eq!(answered.is_ok(), is_open, "{known:?} {decision:?}: {answered:?}");
        if !is_open {
            return;
        }
        let asked_until = self.asked_until[&id];
        let next = match decision {
            ApprovalDecision::Approve => {
                Expected::Approved { id, until: self.now + 10 * MINUTE, is_window: false }
            }
            ApprovalDecision::ApproveSameArguments(time) => {
                Expected::Approved { id, until: self.now + time.as_secs().cast_signed(), is_window: true }
            }
            ApprovalDecision::Deny => Expected::Denied { until: asked_until.max(until) },
        };
        self.calls.insert(n, next);
    }

    fn step(&mut self) {
        let n = self.rng.usize(..CALLS.len());
        match self.rng.u8(..20) {
            0..8 => self.ask(n),
            8..13 => self.answer(),
            13..15 => self.ask_twice(n),
            15..17 => self.cancel(n),
            17..19 => {
                let minutes = *self.rng.choice(&[1, 3, 9, 11, 25, 61]).unwrap();
                self.desk.clock.skip(Duration::from_secs(minutes * 60));
                self.now += minutes.cast_signed() * MINUTE;
            }
            _ => {
                let at = self.rng.usize(..self.hosts.len());
                self.hosts[at] = self.desk.host();
            }
        }
    }
}

fn is_cancelled(error: &Error) -> bool {
    matches!(error, Error::Host(error) if error.kind() == HostErrorKind::Cancelled)
}

#[test]
fn random_sequences_run_nothing_unapproved_or_twice() {
    let (sequences, seed) = (number("COFFERDAM_APPROVALS", 40), number("COFFERDAM_APPROVALS_SEED", 7));
    let mut rng = Rng::with_seed(seed);
    let desk = Desk::new();
    let hosts = vec![desk.host(), desk.host()];
    let mut model = Model {
        desk,
        hosts,
        rng: rng.fork(),
        path: String::new(),
        now: 0,
        calls: BTreeMap::new(),
        asked_until: BTreeMap::new(),
    };
    for n in 0..sequences {
        // Other calls than those of the sequences before.
        model.path = format!("/text/approval-random-{seed}-{n}?approval");
        model.calls.clear();
        model.rng = rng.fork();
        for _ in 0..STEPS {
            model.step();
        }
    }
}
