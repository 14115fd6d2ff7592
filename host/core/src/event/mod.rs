//! What happens in a call, step by step: for progress, for the log, and for whoever listens.
//!
//! A listener watches and decides nothing: what it does wrong cannot fail a call. Events name no arguments, no
//! results and no secrets.

mod together;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::failure::{AuditId, Cause, Failure, Prompt, RepeatRule};
use crate::limits::Usage;

pub use together::together;

/// One step of one call.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'e> {
    /// The call's record.
    pub audit_id: &'e AuditId,
    /// The number of the step within the call, from 1.
    pub seq: u32,
    /// What happened.
    pub step: Step<'e>,
}

impl<'e> Event<'e> {
    /// The step with this number.
    pub fn new(audit_id: &'e AuditId, seq: u32, step: Step<'e>) -> Self {
        Self { audit_id, seq, step }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Step<'e> {
    /// The call was asked for; or the action, of which the steps are calls.
    Received {
        /// The connector, as `name@version`; of an action, `action://name@version`.
        connector: &'e str,
        /// The operation; of an action, `run`.
        op: &'e str,
    },
    /// A candidate of the call passed every check; its first attempt begins next.
    Admitted {
        /// The connector, as `name@version`.
        connector: &'e str,
        /// The SHA-256 of its package.
        hash: &'e str,
        /// The id of the key that signed it; none where unsigned packages were allowed for the call.
        signer: Option<&'e str>,
        /// Which candidate of the chain it is, from 0.
        candidate: u32,
        /// Whether the call may be repeated.
        repeat: RepeatRule,
        /// The retry policy's name.
        profile: &'e str,
    },
    /// The outcome of a call before it, with the same idempotency key, is this one's; nothing runs.
    Replayed {
        /// That call.
        of: &'e AuditId,
    },
    /// An attempt begins.
    AttemptStarted {
        /// The connector, as `name@version`.
        connector: &'e str,
        /// The operation.
        op: &'e str,
        /// Which candidate of the chain it is, from 0.
        candidate: u32,
        /// Which attempt of the call it is, from 1.
        attempt: u32,
    },
    /// An attempt is over.
    AttemptEnded {
        /// The connector, as `name@version`.
        connector: &'e str,
        /// Which attempt of the call it was.
        attempt: u32,
        /// Its failure; none where it has a value, or was refused.
        failure: Option<&'e Failure>,
        /// The code of the host's own error, where it could not be made after all.
        refused: Option<&'e str>,
        /// What it used.
        usage: &'e Usage,
    },
    /// The call waits, and is then attempted again.
    RetryScheduled {
        /// Why.
        failure: &'e Failure,
        /// Which retry of the candidate it is, from 1.
        retry: u32,
        /// How many the policy allows for this cause.
        of: u32,
        /// How long it waits.
        delay: Duration,
        /// Where the wait comes from.
        wait: Wait,
        /// The policy's name.
        profile: &'e str,
    },
    /// The next candidate of the chain is asked.
    FallbackTriggered {
        /// Who failed, as `name@version`.
        from: &'e str,
        /// Who is asked now.
        to: &'e str,
        /// Why.
        failure: &'e Failure,
    },
    /// A circuit changed.
    CircuitChanged {
        /// The connector's name.
        connector: &'e str,
        /// The host:port.
        host: &'e str,
        /// From this state,
        from: &'static str,
        /// to this one.
        to: &'static str,
        /// What was seen there; none where it was healed.
        cause: Option<Cause>,
    },
    /// A request waits for its turn under a rate limit.
    RateDelayed {
        /// The host:port.
        host: &'e str,
        /// How long.
        delay: Duration,
    },
    /// An error was passed over, and this is why.
    Suppressed {
        /// When.
        at: Timestamp,
        /// Who says so.
        by: Speaker,
        /// Why it does not matter.
        reason: &'e str,
        /// What it was.
        cause: &'e str,
    },
    /// A step of an action begins: a call of its own.
    StepStarted {
        /// The step's name in the action.
        step: &'e str,
        /// Its call, whose own steps follow under that id.
        call: &'e AuditId,
        /// The connector, as `name@version`.
        connector: &'e str,
        /// The operation.
        op: &'e str,
        /// Which step of the action it is, from 1.
        number: u32,
        /// How many the action has.
        of: u32,
    },
    /// A step of an action is over.
    StepEnded {
        /// The step's name in the action.
        step: &'e str,
        /// Its call.
        call: &'e AuditId,
        /// `value`, `failure`, `refused` or `cancelled`.
        outcome: &'static str,
        /// The failure's class.
        class: Option<&'e str>,
        /// The failure's code, or the error's.
        code: Option<&'e str>,
        /// Which step of the action it is, from 1.
        number: u32,
        /// How many the action has.
        of: u32,
    },
    /// The call, or the action, is over: `value`, `failure`, `refused` or `cancelled`.
    Final {
        /// Which of the four.
        outcome: &'static str,
        /// The failure's class, or the error's code.
        class: Option<&'e str>,
        /// The failure's code.
        code: Option<&'e str>,
        /// What a person could be asked about it.
        prompt: Option<Prompt>,
    },
}

/// Who says what a step tells. What a connector says is text of its author's, and may be anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The host, of what its own gate saw.
    Host,
    /// The connector.
    Connector,
}

impl Speaker {
    /// The stable word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Connector => "connector",
        }
    }
}

/// Where the length of a wait comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The policy's schedule, with its jitter.
    Backoff,
    /// What the upstream service asked for, exactly.
    RetryAfter,
}

impl Step<'_> {
    /// The stable name of the step.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Received { .. } => "received",
            Self::Admitted { .. } => "admitted",
            Self::Replayed { .. } => "replayed",
            Self::AttemptStarted { .. } => "attempt_started",
            Self::AttemptEnded { .. } => "attempt_ended",
            Self::RetryScheduled { .. } => "retry_scheduled",
            Self::FallbackTriggered { .. } => "fallback_triggered",
            Self::CircuitChanged { .. } => "circuit_changed",
            Self::RateDelayed { .. } => "rate_delayed",
            Self::Suppressed { .. } => "suppressed",
            Self::StepStarted { .. } => "step_started",
            Self::StepEnded { .. } => "step_ended",
            Self::Final { .. } => "final",
        }
    }

    /// The step's facts, as the record has them.
    #[must_use]
    pub fn facts(&self) -> Map<String, Value> {
        let facts = match self {
            Self::Received { connector, op } => json!({"connector": connector, "op": op}),
            Self::Admitted { connector, hash, signer, candidate, repeat, profile } => json!({
                "connector": connector,
                "hash": hash,
                "signer": signer,
                "unsigned": signer.is_none(),
                "candidate": candidate,
                // Whatever it sends: what an attempt sent that a crash cut short is not known.
                "idempotent": *repeat == RepeatRule::Always,
                "repeat": repeat.name(),
                "profile": profile,
            }),
            Self::Replayed { of } => json!({"of": of}),
            Self::AttemptStarted { connector, op, candidate, attempt } => {
                json!({"connector": connector, "op": op, "candidate": candidate, "attempt": attempt})
            }
            Self::AttemptEnded { connector, attempt, failure, refused, usage } => json!({
                "connector": connector,
                "attempt": attempt,
                "status": attempt_status(*failure, *refused),
                "class": failure.map(|failure| failure.class().name()),
                "code": failure.map(Failure::code).or(*refused),
                "usage": usage,
            }),
            Self::RetryScheduled { failure, retry, of, delay, wait, profile } => json!({
                "class": failure.class().name(),
                "code": failure.code(),
                "retry": retry,
                "of": of,
                "delay_ms": millis(*delay),
                "from": match wait { Wait::Backoff => "backoff", Wait::RetryAfter => "retry_after" },
                "profile": profile,
            }),
            Self::FallbackTriggered { from, to, failure } => {
                json!({"from": from, "to": to, "class": failure.class().name(), "code": failure.code()})
            }
            Self::CircuitChanged { connector, host, from, to, cause } => json!({
                "connector": connector, "host": host, "from": from, "to": to, "cause": cause.map(Cause::name),
            }),
            Self::RateDelayed { host, delay } => json!({"host": host, "delay_ms": millis(*delay)}),
            Self::Suppressed { at, by, reason, cause } => {
                json!({"at": at.to_string(), "by": by.name(), "reason": reason, "cause": cause})
            }
            Self::StepStarted { step, call, connector, op, number, of } => json!({
                "step": step, "call": call, "connector": connector, "op": op, "number": number, "of": of,
            }),
            Self::StepEnded { step, call, outcome, class, code, number, of } => json!({
                "step": step,
                "call": call,
                "status": outcome,
                "class": class,
                "code": code,
                "number": number,
                "of": of,
            }),
            Self::Final { outcome, class, code, prompt } => json!({
                "status": outcome,
                "outcome": outcome,
                "class": class,
                "code": code,
                "prompt": prompt.map(Prompt::name),
            }),
        };
        match facts {
            Value::Object(facts) => facts,
            _ => Map::new(),
        }
    }
}

/// What stands before an action's name where a connector's stands otherwise.
pub const ACTION_SCHEME: &str = "action://";

/// Whether what is named where a connector's name stands is an action.
pub fn is_action(connector: &str) -> bool {
    connector.starts_with(ACTION_SCHEME)
}

/// How an attempt ended, in a word: `value`, `failure` or `refused`.
pub const fn attempt_status(failure: Option<&Failure>, refused: Option<&str>) -> &'static str {
    match (failure, refused) {
        (Some(_), _) => "failure",
        (None, Some(_)) => "refused",
        (None, None) => "value",
    }
}

/// A wait as people read it: in seconds, unless it is a short one.
pub fn shown_wait(wait: Duration) -> String {
    match wait.as_millis() {
        ms @ 0..100 => format!("{ms}ms"),
        _ => format!("{:.1}s", wait.as_secs_f64()),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Who wants to know. Called on the thread that runs the call, between its steps: it must be quick, and must not
/// block.
pub trait Listener: Send + Sync + 'static {
    /// Something happened.
    fn event(&self, event: &Event<'_>);
}
