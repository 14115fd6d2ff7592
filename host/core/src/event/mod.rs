//! The events of a call, step by step: for progress, for the log, and for listeners.
//!
//! A listener observes and decides nothing: its errors cannot fail a call. Events contain no arguments, no
//! results and no secrets.

mod fanout;
pub mod log_event;
pub mod operator;
pub mod recorded;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::failure::{AuditId, Failure, FailureCause, RecoveryPrompt, RepeatRule};
use crate::limits::Usage;

pub use fanout::fanout;

/// One step of one call.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'e> {
    /// The call's audit id.
    pub audit_id: &'e AuditId,
    /// The number of the step within the call, from 1.
    pub seq: u32,
    /// The event.
    pub kind: EventKind<'e>,
}

impl<'e> Event<'e> {
    /// Creates the event with this number.
    pub fn new(audit_id: &'e AuditId, seq: u32, step: EventKind<'e>) -> Self {
        Self { audit_id, seq, kind: step }
    }
}

/// The kind of an event.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum EventKind<'e> {
    /// The call was requested; or the action, whose steps are calls.
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
        /// The id of the key that signed it; `None` if unsigned packages were allowed for the call.
        signer: Option<&'e str>,
        /// The index of the candidate in the chain, from 0.
        candidate: u32,
        /// The rule for repeating the call.
        repeat: RepeatRule,
        /// The retry policy's name.
        profile: &'e str,
    },
    /// The outcome of an earlier call with the same idempotency key is returned; nothing runs.
    Replayed {
        /// The earlier call.
        of: &'e AuditId,
    },
    /// An attempt begins.
    AttemptStarted {
        /// The connector, as `name@version`.
        connector: &'e str,
        /// The operation.
        op: &'e str,
        /// The index of the candidate in the chain, from 0.
        candidate: u32,
        /// The number of the attempt within the call, from 1.
        attempt: u32,
    },
    /// An attempt has ended.
    AttemptEnded {
        /// The connector, as `name@version`.
        connector: &'e str,
        /// The number of the attempt within the call.
        attempt: u32,
        /// Its failure; `None` if it has a value, or was refused.
        failure: Option<&'e Failure>,
        /// The code of the host's own error, if the attempt could not be made.
        refused: Option<&'e str>,
        /// The used resources.
        usage: &'e Usage,
    },
    /// The call waits, and is then attempted again.
    RetryScheduled {
        /// The failure to be retried.
        failure: &'e Failure,
        /// The number of the retry of the candidate, from 1.
        retry: u32,
        /// The number of retries that the policy allows for this cause.
        of: u32,
        /// The length of the wait.
        delay: Duration,
        /// The source of the wait.
        wait: DelaySource,
        /// The policy's name.
        profile: &'e str,
    },
    /// The call falls back to the next candidate of the chain.
    FallbackTriggered {
        /// The failed candidate, as `name@version`.
        from: &'e str,
        /// The next candidate, as `name@version`.
        to: &'e str,
        /// The failure of the former.
        failure: &'e Failure,
    },
    /// A circuit changed its state.
    CircuitChanged {
        /// The connector's name.
        connector: &'e str,
        /// The `host:port`.
        host: &'e str,
        /// The state before.
        from: &'static str,
        /// The state after.
        to: &'static str,
        /// The failure that was observed; `None` if replacing a credential closed it.
        cause: Option<FailureCause>,
    },
    /// A request waits because of a rate limit.
    RateDelayed {
        /// The `host:port`.
        host: &'e str,
        /// The length of the wait.
        delay: Duration,
    },
    /// An error was ignored, for this reason.
    Suppressed {
        /// The time.
        at: Timestamp,
        /// The source of the statement.
        by: EventSource,
        /// The reason why it does not matter.
        reason: &'e str,
        /// The ignored error.
        cause: &'e str,
    },
    /// A step of an action begins, as a call of its own.
    StepStarted {
        /// The step's name in the action.
        step: &'e str,
        /// Its call, whose own events follow under that id.
        call: &'e AuditId,
        /// The connector, as `name@version`.
        connector: &'e str,
        /// The operation.
        op: &'e str,
        /// The number of the step in the action, from 1.
        number: u32,
        /// The number of steps of the action.
        of: u32,
    },
    /// A step of an action has ended.
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
        /// The number of the step in the action, from 1.
        number: u32,
        /// The number of steps of the action.
        of: u32,
    },
    /// The call, or the action, has ended.
    Final {
        /// `value`, `failure`, `refused` or `cancelled`.
        outcome: &'static str,
        /// The failure's class.
        class: Option<&'e str>,
        /// The failure's code, or the error's.
        code: Option<&'e str>,
        /// The prompt for a person about it.
        prompt: Option<RecoveryPrompt>,
    },
}

/// The source of an event's statement. A connector's statement is text of its author, and may be anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSource {
    /// The host, about observations of its own gate.
    Host,
    /// The connector.
    Connector,
}

impl EventSource {
    /// Returns the stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Connector => "connector",
        }
    }
}

/// The source of the length of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelaySource {
    /// The policy's schedule, with its jitter.
    Backoff,
    /// The exact wait that the upstream service asked for.
    RetryAfter,
}

impl EventKind<'_> {
    /// Returns the stable name of the event.
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

    /// Returns the facts of the event as JSON; the audit log has these and more, each in one event of the call.
    #[must_use]
    pub fn payload(self) -> Map<String, Value> {
        let mut facts = recorded::RecordedEvent::from(self).facts();
        // In the audit log, the candidate's `admitted` has these.
        if let Self::AttemptStarted { connector, op, .. } = self {
            facts.insert("connector".into(), connector.into());
            facts.insert("op".into(), op.into());
        }
        facts
    }
}

/// The prefix of an action's name in the place of a connector's name.
pub const ACTION_SCHEME: &str = "action://";

/// Returns whether the name in the place of a connector's name is that of an action.
pub fn is_action(connector: &str) -> bool {
    connector.starts_with(ACTION_SCHEME)
}

/// Returns the result of an attempt: `value`, `failure` or `refused`.
pub const fn attempt_status(failure: Option<&Failure>, refused: Option<&str>) -> &'static str {
    match (failure, refused) {
        (Some(_), _) => "failure",
        (None, Some(_)) => "refused",
        (None, None) => "value",
    }
}

/// Formats a wait for people: in seconds, unless it is short.
pub fn shown_wait(wait: Duration) -> String {
    match wait.as_millis() {
        ms @ 0..100 => format!("{ms}ms"),
        _ => format!("{:.1}s", wait.as_secs_f64()),
    }
}

/// A listener for events. It is called on the thread that runs the call, between its steps: it must be quick,
/// and must not block.
pub trait Listener: Send + Sync + 'static {
    /// Handles one event.
    fn event(&self, event: &Event<'_>);
}
