//! The schema of the events that the audit log stores: one type that everything writes and reads.
//!
//! An event serializes straight to canonical JSON (RFC 8785): fields are declared in the order of their names, and
//! have no fractions. Facts that do not apply are left out.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::log_event::{
    KeyDecided, KeysKept, LossAccepted, PrunedEntries, SegmentBegun, WriterReleased, WriterTaken,
};
use super::operator::OperatorEvent;
use super::{DelaySource, EventKind, attempt_status};
use crate::clock::millis;
use crate::failure::{AbortedRequest, Failure, FailureCause, RecoveryPrompt, RepeatRule, UnkeyedRequest};
use crate::limits::Usage;

type Text<'e> = Cow<'e, str>;

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Declares the enum of events with the name of each.
macro_rules! recorded_events {
    ($e:lifetime: $(#[doc = $doc:literal] $variant:ident($payload:ty) = $name:literal,)*) => {
        /// An event of a call, or of the log itself, as the audit log stores it.
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub enum RecordedEvent<$e> {
            $(#[doc = $doc] $variant($payload),)*
            /// An event that this version does not know, or whose payload it does not understand.
            Unknown(UnknownEvent),
        }

        impl RecordedEvent<'_> {
            /// The names of all known events.
            #[cfg(test)]
            const NAMES: &'static [&'static str] = &[$($name),*];

            /// Returns the name, which is the event's `type` in the audit log.
            #[must_use]
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Unknown(event) => &event.name,
                }
            }

            /// Reads an event. One that is not known, or has an unexpected payload, is kept as it is.
            #[must_use]
            pub fn read(name: &str, payload: &RawValue) -> RecordedEvent<'static> {
                let known = match name {
                    $($name => serde_json::from_str(payload.get()).map(RecordedEvent::$variant).ok(),)*
                    _ => None,
                };
                known.unwrap_or_else(|| {
                    RecordedEvent::Unknown(UnknownEvent { name: name.to_owned(), payload: payload.to_owned() })
                })
            }
        }

        /// Returns the name of each event, what happened, and the JSON Schema of its payload.
        #[cfg(test)]
        fn payload_schemas(
            generator: &mut schemars::SchemaGenerator,
        ) -> Vec<(&'static str, &'static str, schemars::Schema)> {
            vec![$(($name, $doc.trim(), reference_tests::payload_schema(generator, RecordedEvent::$variant))),*]
        }

        /// Serializes the facts of an event, without its name.
        struct Facts<'a, 'e>(&'a RecordedEvent<'e>);

        impl Serialize for Facts<'_, '_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self.0 {
                    $(RecordedEvent::$variant(payload) => payload.serialize(serializer),)*
                    RecordedEvent::Unknown(event) => event.payload.serialize(serializer),
                }
            }
        }
    };
}

recorded_events! {
    'e:
    /// The call, or the action, was requested.
    Received(Received<'e>) = "received",
    /// A candidate of the call, or the action, passed every check.
    Admitted(Admitted<'e>) = "admitted",
    /// A person has to approve the call, or the action. It does not run.
    ApprovalRequested(ApprovalRequested<'e>) = "approval_requested",
    /// The call, or the action, runs because a person approved it.
    ApprovalUsed(ApprovalUsed<'e>) = "approval_used",
    /// The outcome of an earlier call with the same key is returned.
    Replayed(Replayed<'e>) = "replayed",
    /// An attempt begins.
    AttemptStarted(AttemptStarted) = "attempt_started",
    /// An attempt has ended.
    AttemptEnded(AttemptEnded<'e>) = "attempt_ended",
    /// The call waits, and is then attempted again.
    RetryScheduled(RetryScheduled<'e>) = "retry_scheduled",
    /// The call falls back to its next candidate.
    FallbackTriggered(FallbackTriggered<'e>) = "fallback_triggered",
    /// A circuit changed its state.
    CircuitChanged(CircuitChanged<'e>) = "circuit_changed",
    /// A request waits because of a rate limit.
    RateDelayed(RateDelayed<'e>) = "rate_delayed",
    /// An error was ignored.
    Suppressed(Suppressed<'e>) = "suppressed",
    /// A step of an action begins.
    StepStarted(StepStarted<'e>) = "step_started",
    /// A step of an action has ended.
    StepEnded(StepEnded<'e>) = "step_ended",
    /// A call that was to resume another one did nothing, or was cancelled.
    CutShort(Ended<'e>) = "cut_short",
    /// The call, or the action, has ended.
    Final(Ended<'e>) = "final",
    /// The call was incomplete, and another call resumes it.
    Resumed(Resolution<'e>) = "resumed",
    /// The call was incomplete, and an operator decided that it stays undone.
    Skipped(Resolution<'e>) = "skipped",
    /// A segment of a journal begins.
    SegmentBegun(SegmentBegun) = "segment_begun",
    /// A process took the journal, and writes to it from now on.
    WriterTaken(WriterTaken) = "writer_taken",
    /// A process is done with the journal, and all calls in it have an end.
    WriterReleased(WriterReleased) = "writer_released",
    /// An operator decided about the key of a call that has ended.
    KeyDecided(KeyDecided) = "key_decided",
    /// Keys of calls that were pruned stay taken.
    KeysKept(KeysKept) = "keys_kept",
    /// An operator accepts findings of a verification, or a loss.
    LossAccepted(LossAccepted) = "loss_accepted",
    /// The oldest entries were removed.
    Pruned(PrunedEntries) = "pruned",
    /// An operator changes something.
    Operator(Box<OperatorEvent<'e>>) = "operator",
}

/// One event of a call, with its time and its number.
#[derive(Debug, Clone)]
pub struct EventLine<'e> {
    /// When it happened.
    pub at: Timestamp,
    /// The number of the event within its call, from 1, without gaps.
    pub seq: u32,
    /// The event.
    pub event: RecordedEvent<'e>,
}

/// The length of the longest usual event, the admission of a call: a text of so many bytes rarely has to grow.
const EVENT_BYTES: usize = 1024;

impl EventLine<'_> {
    /// Returns the canonical JSON: `{"at", "payload", "seq", "type"}`.
    #[must_use]
    pub fn to_text(&self) -> EventText {
        let mut text = Vec::with_capacity(EVENT_BYTES);
        // Texts, whole numbers and canonical JSON: the serialization cannot fail.
        let _ = serde_json::to_writer(&mut text, self);
        EventText(String::from_utf8(text).unwrap_or_default())
    }
}

/// The canonical JSON of an event, with its time and its number.
#[derive(Debug, Clone)]
pub struct EventText(String);

impl EventText {
    /// Returns the JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for EventLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_struct("EventLine", 4)?;
        line.serialize_field("at", &format_args!("{:.6}", self.at))?;
        line.serialize_field("payload", &Facts(&self.event))?;
        line.serialize_field("seq", &self.seq)?;
        line.serialize_field("type", self.event.name())?;
        line.end()
    }
}

/// An event that this version does not know.
#[derive(Debug, Clone)]
pub struct UnknownEvent {
    /// Its name.
    pub name: String,
    /// Its facts.
    pub payload: Box<RawValue>,
}

/// A part of an event without a schema, in canonical JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct CanonicalJson(Box<RawValue>);

impl CanonicalJson {
    /// Returns the canonical form of an object.
    #[must_use]
    pub fn new(fields: &Map<String, Value>) -> Option<Self> {
        let text = serde_json_canonicalizer::to_string(fields).ok()?;
        RawValue::from_string(text).map(Self).ok()
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

/// The request of a call, or of an action.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Received<'e> {
    /// The action that the call is a step of, or that is requested, as `name@version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Text<'e>>,
    /// The caller.
    pub actor: Text<'e>,
    /// The connector, as `name@version`; of an action, `action://name@version`.
    pub connector: Text<'e>,
    /// The operation; of an action, `run`.
    pub op: Text<'e>,
    /// The audit id of the action that the call is a step of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<Text<'e>>,
    /// The step of the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Text<'e>>,
}

impl Received<'_> {
    /// Returns the connector, the operation, the action and the step; empty where there is none.
    #[must_use]
    pub fn target(&self) -> [&str; 4] {
        let [action, step] = [&self.action, &self.step].map(|name| name.as_deref().unwrap_or_default());
        [&self.connector, &self.op, action, step]
    }
}

/// The admission of a candidate of a call, or of an action.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Admitted<'e> {
    /// The arguments; none for a fallback, which has those of its call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<RecordedPayload>,
    /// The bindings by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bindings: Vec<Text<'e>>,
    /// The index of the candidate in the chain, from 0.
    pub candidate: u32,
    /// The key that the caller gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<RecordedClaim>,
    /// The connector, as `name@version`; none if it is the one in `received`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connector: Option<Text<'e>>,
    /// The SHA-256 of its package, or of the action's file.
    pub hash: Text<'e>,
    /// The key that its attempts carry, redacted; none if that is the audit id of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Text<'e>>,
    /// `given` by the caller, or `minted` by the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Text<'e>>,
    /// The limits.
    pub limits: RecordedLimits,
    /// The operation; none if it is the one in `received`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<Text<'e>>,
    /// The retry policy's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Text<'e>>,
    /// The rule for repeating the call: `always`, whatever its requests, `unless_unkeyed` (undeclared operations) or
    /// `never`; none for an action, which may be repeated if its caller gave a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Text<'e>>,
    /// The id of the key that signed the package; none if it is unsigned, which the call allowed, and for an action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<Text<'e>>,
    /// The number of steps of an action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
}

impl Admitted<'_> {
    /// Returns true if the candidate, or the action, may be repeated, whatever its requests: those of an attempt that a
    /// crash interrupted are unknown.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        may_be_repeated(self.repeat.as_deref(), self.idempotency_key.is_some())
    }
}

/// Returns true if a call with this recorded rule, or an action, which has none, may be repeated, whatever it sends.
#[must_use]
pub fn may_be_repeated(repeat: Option<&str>, has_key: bool) -> bool {
    repeat.map_or(has_key, |rule| rule == RepeatRule::Always.name())
}

/// The request to a person to approve a candidate of a call, or an action.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ApprovalRequested<'e> {
    /// The id of the approval.
    pub approval: Text<'e>,
    /// The index of the candidate in the chain, from 0.
    pub candidate: u32,
    /// The time until which the request waits for an answer, as RFC 3339.
    pub until: Text<'e>,
}

/// The approval that a candidate of a call, or an action, runs with.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ApprovalUsed<'e> {
    /// The id of the approval.
    pub approval: Text<'e>,
    /// The index of the candidate in the chain, from 0.
    pub candidate: u32,
    /// The person who approved it.
    pub person: Text<'e>,
    /// True if the approval is for further calls with the same arguments; left out if this call used it up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub same_arguments: bool,
}

/// The call whose outcome is returned.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Replayed<'e> {
    /// True if that call may be repeated; none for an action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// The audit id of the earlier call.
    pub of: Text<'e>,
}

/// The beginning of an attempt.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct AttemptStarted {
    /// The number of the attempt within the call, from 1.
    pub attempt: u32,
    /// The index of the candidate in the chain, from 0.
    pub candidate: u32,
}

/// The end of an attempt.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct AttemptEnded<'e> {
    /// Requests that were pending when the guest returned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aborted_on_return: Vec<AbortedRequest>,
    /// The number of the attempt within the call, from 1.
    pub attempt: u32,
    /// The failure's class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Text<'e>>,
    /// The failure's code, or the error's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Text<'e>>,
    /// The connector, as `name@version`; none if it is the one in `received`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connector: Option<Text<'e>>,
    /// The operator's view of the failure or the error, without facts that the event or the call has already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<CanonicalJson>,
    /// The first lines that the connector logged, up to 64 KiB of text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<RecordedLogLine<'e>>,
    /// The number of later lines, which are not in `log`; left out if there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_omitted: u64,
    /// The durations of its parts.
    pub phases: RecordedPhases,
    /// True if any byte of a request may have left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_sent: Option<bool>,
    /// Its requests, including a denied one, in the order in which the connector sent them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RecordedRequest<'e>>,
    /// `value`, `failure` or `refused`.
    pub status: Text<'e>,
    /// The first unkeyed request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unkeyed: Option<UnkeyedRequest>,
    /// The used resources.
    pub usage: RecordedUsage,
}

/// A wait before a retry.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RetryScheduled<'e> {
    /// The index of the candidate in the chain, from 0.
    pub candidate: u32,
    /// The failure's class.
    pub class: Text<'e>,
    /// The failure's code.
    pub code: Text<'e>,
    /// The length of the wait in milliseconds.
    pub delay_ms: u64,
    /// `backoff` or `retry_after`.
    pub from: Text<'e>,
    /// The random part of the wait in microseconds; negative if the wait is shorter than planned.
    pub jitter_us: i64,
    /// The number of retries that the policy allows for this cause.
    pub of: u32,
    /// The policy's name.
    pub profile: Text<'e>,
    /// The number of the retry of the candidate, from 1.
    pub retry: u32,
}

/// A change to the next candidate.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct FallbackTriggered<'e> {
    /// The failure's class.
    pub class: Text<'e>,
    /// The failure's code.
    pub code: Text<'e>,
    /// The failed candidate, as `name@version`.
    pub from: Text<'e>,
    /// The next candidate, as `name@version`.
    pub to: Text<'e>,
}

/// The change of a circuit.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CircuitChanged<'e> {
    /// The observed failure; none if replacing a credential closed the circuit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Text<'e>>,
    /// The connector's name.
    pub connector: Text<'e>,
    /// The state before.
    pub from: Text<'e>,
    /// The `host:port`.
    pub host: Text<'e>,
    /// The state after.
    pub to: Text<'e>,
}

/// The delay of a request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RateDelayed<'e> {
    /// The length of the delay in milliseconds.
    pub delay_ms: u64,
    /// The `host:port`.
    pub host: Text<'e>,
}

/// An ignored error.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Suppressed<'e> {
    /// The time, as RFC 3339.
    pub at: Text<'e>,
    /// `host` or `connector`.
    pub by: Text<'e>,
    /// The error.
    pub cause: Text<'e>,
    /// The reason why it does not matter.
    pub reason: Text<'e>,
}

/// The beginning of a step.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StepStarted<'e> {
    /// The audit id of its call.
    pub call: Text<'e>,
    /// The connector, as `name@version`.
    pub connector: Text<'e>,
    /// The number of the step in the action, from 1.
    pub number: u32,
    /// The number of steps of the action.
    pub of: u32,
    /// The operation.
    pub op: Text<'e>,
    /// The step's name.
    pub step: Text<'e>,
}

/// The end of a step.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StepEnded<'e> {
    /// The number of attempts of its call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The audit id of its call.
    pub call: Text<'e>,
    /// The failure's class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Text<'e>>,
    /// The failure's code, or the error's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Text<'e>>,
    /// True if a request may have left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_have_sent: Option<bool>,
    /// The number of the step in the action, from 1.
    pub number: u32,
    /// The number of steps of the action.
    pub of: u32,
    /// The call whose outcome was returned for the step's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Text<'e>>,
    /// `value`, `failure`, `refused` or `cancelled`.
    pub status: Text<'e>,
    /// The step's name.
    pub step: Text<'e>,
}

/// The end of a call, or of an action.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Ended<'e> {
    /// The arguments of an action, redacted with the secrets of its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<RecordedPayload>,
    /// The number of attempts; of an action, of begun steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The failure's class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Text<'e>>,
    /// The failure's code, or the error's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Text<'e>>,
    /// The time since the request, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// The attempt with the rest of `failure`, which has only the boundary and what differs; none if it has all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_attempt: Option<u32>,
    /// The operator's view of the failure or the error, without facts that the event or the call has already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<CanonicalJson>,
    /// The state of the caller's key from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_end: Option<RecordedKeyEnd<'e>>,
    /// The question for a person: `approve`, `ask` or `authenticate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Text<'e>>,
    /// The call whose outcome was returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Text<'e>>,
    /// The value, or the envelope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<RecordedPayload>,
    /// The number of retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried: Option<u32>,
    /// `value`, `failure`, `refused` or `cancelled`.
    pub status: Text<'e>,
}

/// The decision about an incomplete call.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Resolution<'e> {
    /// The operator.
    pub actor: Text<'e>,
    /// The audit id of the call that resumes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Text<'e>>,
    /// True if the key of a skipped call may be used again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frees_key: Option<bool>,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<'e>>,
}

/// A payload: its length and hash, and its readable text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RecordedPayload {
    /// The length of the JSON text in bytes.
    pub bytes: u64,
    /// The SHA-256 of the JSON text, in hexadecimal.
    pub sha256: String,
    /// The text, redacted and shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A request of an attempt, as the host observed it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RecordedRequest<'e> {
    /// True if it had neither a response nor an error when the attempt ended; left out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// The time at which the connector sent it, as RFC 3339.
    pub at: String,
    /// The bindings whose credentials it carried, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bindings: Vec<Text<'e>>,
    /// Bytes of the response's body that the connector got.
    pub bytes_received: u64,
    /// Bytes of the first line and the body that may have left; 0 if certainly nothing did.
    pub bytes_sent: u64,
    /// The code of its failure or, without a `phase`, of the refusal that ended the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Text<'e>>,
    /// The `host:port`; left out if the URL had a secret in it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub host: Text<'e>,
    /// True if it carried the call's idempotency key.
    pub keyed: bool,
    /// The method.
    pub method: Text<'e>,
    /// The time until the last byte of its response, its failure or the end of the attempt, in milliseconds.
    pub ms: u64,
    /// The first 256 characters of the path, without the query; left out if the URL had a secret in it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub path: Text<'e>,
    /// The phase in which it failed: `dns`, `connect`, `tls`, `send` or `response`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Text<'e>>,
    /// The HTTP status of its response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// A line that a connector logged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RecordedLogLine<'e> {
    /// The time, as RFC 3339.
    pub at: String,
    /// `trace`, `debug`, `info`, `warn` or `error`.
    pub level: Text<'e>,
    /// The text with its fields, printable and redacted.
    pub text: String,
}

/// A caller's key, in a form that proves it without disclosing it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RecordedClaim {
    /// The SHA-256 of the key of the action that the call is a step of, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_key_sha256: Option<String>,
    /// The SHA-256 of everything that identifies the call, in hexadecimal.
    pub fingerprint: String,
    /// The SHA-256 of the key, in hexadecimal.
    pub key_sha256: String,
}

/// The state of a key at the end of its call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RecordedKeyEnd<'e> {
    /// The SHA-256 of the key of an action, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_sha256: Option<String>,
    /// `keeps`, `free` or `unknown`.
    pub state: Text<'e>,
    /// The time until which the outcome is kept, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// The limits of a call, or of an action.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RecordedLimits {
    /// The time of an attempt in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_ms: Option<u64>,
    /// The fuel of an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// The memory of an attempt in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The time of the call, or the action, in milliseconds.
    pub wall_ms: u64,
}

/// The durations of an attempt's parts in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RecordedPhases {
    /// Queueing, loading and checks before it.
    pub admit_us: u64,
    /// The guest, its requests included.
    pub guest_us: u64,
    /// The creation of the sandbox.
    pub instantiate_us: u64,
    /// Writing the attempt's beginning to the audit log.
    pub record_us: u64,
}

/// The resources that an attempt used, and their limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RecordedUsage {
    /// Bytes of response bodies.
    pub bytes_in: u64,
    /// Bytes of the requests' first lines and bodies.
    pub bytes_out: u64,
    /// Burnt fuel.
    pub fuel: u64,
    /// The limit on fuel.
    pub fuel_limit: u64,
    /// The most bytes that the host held for the guest at once.
    pub host_memory_bytes: u64,
    /// Log lines that were written.
    pub log_lines: u64,
    /// Log lines above the limit, which were dropped.
    pub log_lines_dropped: u64,
    /// The most bytes in use at once.
    pub memory_bytes: u64,
    /// The number of times that a memory grew.
    pub memory_grows: u64,
    /// The limit on memory in bytes.
    pub memory_limit_bytes: u64,
    /// Requests, including refused ones.
    pub requests: u64,
    /// Bytes of stdout and stderr that were kept.
    pub stdio_bytes: u64,
    /// Bytes of stdout and stderr above the limit, which were dropped.
    pub stdio_bytes_dropped: u64,
    /// The limit on the wall time in milliseconds.
    pub wall_limit_ms: u64,
    /// The wall time in microseconds.
    pub wall_us: u64,
}

impl From<&Usage> for RecordedUsage {
    fn from(usage: &Usage) -> Self {
        Self {
            bytes_in: usage.bytes_in,
            bytes_out: usage.bytes_out,
            fuel: usage.fuel,
            fuel_limit: usage.limits.fuel(),
            host_memory_bytes: usage.host_memory,
            log_lines: usage.log_lines,
            log_lines_dropped: usage.log_lines_dropped,
            memory_bytes: usage.memory,
            memory_grows: usage.memory_grows,
            memory_limit_bytes: usage.limits.memory(),
            requests: usage.requests,
            stdio_bytes: usage.stdio_bytes,
            stdio_bytes_dropped: usage.stdio_bytes_dropped,
            wall_limit_ms: usage.wall_limit_ms(),
            wall_us: usage.wall_us(),
        }
    }
}

impl<'e> From<EventKind<'e>> for RecordedEvent<'e> {
    /// Returns the facts that listeners get, too; the host adds those for its operator.
    fn from(kind: EventKind<'e>) -> Self {
        match kind {
            EventKind::Received { connector, op } => {
                Self::Received(Received { connector: connector.into(), op: op.into(), ..Received::default() })
            }
            EventKind::Admitted { connector, hash, signer, candidate, repeat, profile } => {
                Self::Admitted(Admitted {
                    candidate,
                    connector: Some(connector.into()),
                    hash: hash.into(),
                    profile: Some(profile.into()),
                    repeat: Some(repeat.name().into()),
                    signer: signer.map(Cow::from),
                    ..Admitted::default()
                })
            }
            EventKind::Replayed { of } => {
                Self::Replayed(Replayed { idempotent: None, of: of.as_str().into() })
            }
            EventKind::AttemptStarted { candidate, attempt, .. } => {
                Self::AttemptStarted(AttemptStarted { attempt, candidate })
            }
            EventKind::AttemptEnded { connector, attempt, failure, refused, usage } => {
                Self::AttemptEnded(AttemptEnded {
                    attempt,
                    class: failure.map(|failure| failure.class().name().into()),
                    code: failure.map(Failure::code).or(refused).map(Cow::from),
                    connector: Some(connector.into()),
                    status: attempt_status(failure, refused).into(),
                    usage: usage.into(),
                    ..AttemptEnded::default()
                })
            }
            EventKind::RetryScheduled { failure, retry, of, delay, wait, profile } => {
                let from = match wait {
                    DelaySource::Backoff => "backoff",
                    DelaySource::RetryAfter => "retry_after",
                };
                Self::RetryScheduled(RetryScheduled {
                    class: failure.class().name().into(),
                    code: failure.code().into(),
                    delay_ms: millis(delay),
                    from: from.into(),
                    of,
                    profile: profile.into(),
                    retry,
                    ..RetryScheduled::default()
                })
            }
            EventKind::FallbackTriggered { from, to, failure } => {
                Self::FallbackTriggered(FallbackTriggered {
                    class: failure.class().name().into(),
                    code: failure.code().into(),
                    from: from.into(),
                    to: to.into(),
                })
            }
            EventKind::CircuitChanged { connector, host, from, to, cause } => {
                Self::CircuitChanged(CircuitChanged {
                    cause: cause.map(|cause| FailureCause::name(cause).into()),
                    connector: connector.into(),
                    from: from.into(),
                    host: host.into(),
                    to: to.into(),
                })
            }
            EventKind::RateDelayed { host, delay } => {
                Self::RateDelayed(RateDelayed { delay_ms: millis(delay), host: host.into() })
            }
            EventKind::Suppressed { at, by, reason, cause } => Self::Suppressed(Suppressed {
                at: at.to_string().into(),
                by: by.name().into(),
                cause: cause.into(),
                reason: reason.into(),
            }),
            EventKind::StepStarted { step, call, connector, op, number, of } => {
                Self::StepStarted(StepStarted {
                    call: call.as_str().into(),
                    connector: connector.into(),
                    number,
                    of,
                    op: op.into(),
                    step: step.into(),
                })
            }
            EventKind::StepEnded { step, call, outcome, class, code, number, of } => {
                Self::StepEnded(StepEnded {
                    call: call.as_str().into(),
                    class: class.map(Cow::from),
                    code: code.map(Cow::from),
                    number,
                    of,
                    status: outcome.into(),
                    step: step.into(),
                    ..StepEnded::default()
                })
            }
            EventKind::Final { outcome, class, code, prompt } => Self::Final(Ended {
                class: class.map(Cow::from),
                code: code.map(Cow::from),
                prompt: prompt.map(|prompt| RecoveryPrompt::name(prompt).into()),
                status: outcome.into(),
                ..Ended::default()
            }),
        }
    }
}

impl RecordedEvent<'_> {
    /// Returns the canonical JSON of the facts.
    #[must_use]
    pub fn payload_text(&self) -> String {
        // Texts, whole numbers and canonical JSON: the serialization cannot fail.
        serde_json::to_string(&Facts(self)).unwrap_or_default()
    }

    /// Returns the facts of the event as JSON.
    #[must_use]
    pub fn facts(&self) -> Map<String, Value> {
        match serde_json::to_value(Facts(self)) {
            Ok(Value::Object(facts)) => facts,
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod reference_tests;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use serde_json::json;

    use super::*;

    /// Every fact of every event, with texts that need escapes and the largest numbers.
    pub(super) fn samples() -> Vec<(&'static str, Value)> {
        let n: u64 = (1 << 53) - 1;
        let text = "\u{0}\u{1f}\"\\/\n\u{7f}\u{e9}\u{2028}\u{1f600}";
        let payload = json!({"bytes": n, "sha256": text, "text": text});
        let failure = json!({"class": text, "details": {"b": 1.5, "a": [1e21, 1e-7, -0.0, null]}, "\u{1f600}": 1, "\u{fb33}": 2});
        let limits = json!({"attempt_ms": n, "fuel": n, "memory_bytes": n, "wall_ms": n});
        let claim = json!({"action_key_sha256": text, "fingerprint": text, "key_sha256": text});
        let phases = json!({"admit_us": n, "guest_us": n, "instantiate_us": n, "record_us": n});
        let abort = json!({"host": text, "method": text, "request_sent": true, "unsafe_sent": false});
        let unkeyed = json!({"host": text, "method": text});
        let log_line = json!({"at": text, "level": text, "text": text});
        let request = json!({
            "aborted": true, "at": text, "bindings": [text], "bytes_received": n, "bytes_sent": n, "code": text,
            "host": text, "keyed": true, "method": text, "ms": n, "path": text, "phase": text, "status": 599,
        });
        let usage = json!({
            "bytes_in": n, "bytes_out": n, "fuel": n, "fuel_limit": n, "host_memory_bytes": n, "log_lines": n,
            "log_lines_dropped": n, "memory_bytes": n, "memory_grows": n, "memory_limit_bytes": n, "requests": n,
            "stdio_bytes": n, "stdio_bytes_dropped": n, "wall_limit_ms": n, "wall_us": n,
        });
        let end = json!({
            "arguments": payload, "attempts": 1, "class": text, "code": text, "duration_us": n, "failed_attempt": 1,
            "failure": failure, "key_end": {"key_sha256": text, "state": text, "until": text}, "prompt": text,
            "replayed": text, "result": payload, "retried": 2, "status": text,
        });
        let resolution = json!({"actor": text, "by": text, "frees_key": true, "reason": text});
        let state = json!({
            "calls": n, "changed": text, "comment": text, "connectors": [text], "details": {"a": text, "b": text},
            "entries": n, "findings": n, "grants": [text], "hash": text, "hosts": [text, text], "kept": [text],
            "not_after": text, "omitted": n, "public_key": text, "reason": text, "scopes": [text], "signatures": n,
            "signer": text, "signers": [text], "since": text, "source": text, "status": text, "successor_of": text,
            "time": text, "unsigned": true, "until": text, "version": text,
        });
        vec![
            (
                "received",
                json!({"action": text, "actor": text, "connector": text, "op": text, "parent": text, "step": text}),
            ),
            (
                "admitted",
                json!({
                    "arguments": payload, "bindings": [text], "candidate": 1, "claim": claim, "connector": text,
                    "hash": text, "idempotency_key": text, "key": text, "limits": limits, "op": text, "profile": text,
                    "repeat": text, "signer": text, "steps": 3,
                }),
            ),
            ("approval_requested", json!({"approval": text, "candidate": 1, "until": text})),
            (
                "approval_used",
                json!({"approval": text, "candidate": 1, "person": text, "same_arguments": true}),
            ),
            ("replayed", json!({"idempotent": true, "of": text})),
            ("attempt_started", json!({"attempt": 1, "candidate": 1})),
            (
                "attempt_ended",
                json!({
                    "aborted_on_return": [abort], "attempt": 1, "class": text, "code": text, "connector": text,
                    "failure": failure, "log": [log_line], "log_omitted": n, "phases": phases, "request_sent": true,
                    "requests": [request], "status": text, "unkeyed": unkeyed, "usage": usage,
                }),
            ),
            (
                "retry_scheduled",
                json!({
                    "candidate": 1, "class": text, "code": text, "delay_ms": n, "from": text, "jitter_us": -7, "of": 3,
                    "profile": text, "retry": 1,
                }),
            ),
            ("fallback_triggered", json!({"class": text, "code": text, "from": text, "to": text})),
            (
                "circuit_changed",
                json!({"cause": text, "connector": text, "from": text, "host": text, "to": text}),
            ),
            ("rate_delayed", json!({"delay_ms": n, "host": text})),
            ("suppressed", json!({"at": text, "by": text, "cause": text, "reason": text})),
            (
                "step_started",
                json!({"call": text, "connector": text, "number": 1, "of": 2, "op": text, "step": text}),
            ),
            (
                "step_ended",
                json!({
                    "attempts": 1, "call": text, "class": text, "code": text, "may_have_sent": true, "number": 1, "of": 2,
                    "replayed": text, "status": text, "step": text,
                }),
            ),
            ("cut_short", end.clone()),
            ("final", end),
            ("resumed", resolution.clone()),
            ("skipped", resolution),
            ("segment_begun", json!({"calls": {"a": n, "b": 0}, "writer": text})),
            ("writer_taken", json!({"cut_bytes": n, "version": text})),
            ("writer_released", json!({})),
            ("key_decided", json!({"actor": text, "call": text, "frees_key": true, "reason": text})),
            ("keys_kept", json!({"keys": [{"call": text, "fingerprint": text, "key_sha256": text}]})),
            ("loss_accepted", json!({"accepted": text, "checkpoint": text})),
            ("pruned", json!({"before": text, "calls": n, "entries": n, "journals": {"a": n}})),
            (
                "operator",
                json!({
                    "action": "install", "after": state, "before": state, "failed": true, "subject": text, "user": text,
                }),
            ),
        ]
    }

    fn read(name: &str, payload: &Value) -> RecordedEvent<'static> {
        let payload = serde_json_canonicalizer::to_string(payload).unwrap();
        RecordedEvent::read(name, &RawValue::from_string(payload).unwrap())
    }

    #[test]
    fn events_are_written_in_canonical_json() {
        let samples = samples();
        assert_eq!(samples.iter().map(|(name, _)| *name).collect::<Vec<_>>(), RecordedEvent::NAMES);
        for (name, payload) in samples {
            let event = read(name, &payload);
            assert!(!matches!(event, RecordedEvent::Unknown(_)), "{name}");
            let line = EventLine { at: Timestamp::UNIX_EPOCH, seq: 3, event };
            let expected =
                json!({"type": name, "seq": 3, "at": "1970-01-01T00:00:00.000000Z", "payload": payload});
            assert_eq!(line.to_text().as_str(), serde_json_canonicalizer::to_string(&expected).unwrap());
        }
    }

    #[test]
    fn facts_that_do_not_apply_are_left_out() {
        for name in RecordedEvent::NAMES {
            let event = read(name, &json!({}));
            assert!(event.facts().values().all(|fact| !fact.is_null()), "{name}");
        }
        let event = RecordedEvent::Replayed(Replayed { idempotent: None, of: "a".into() });
        let line = EventLine { at: Timestamp::UNIX_EPOCH, seq: 1, event };
        let expected = "{\"at\":\"1970-01-01T00:00:00.000000Z\",\"payload\":{\"of\":\"a\"},\"seq\":1,\"type\":\"replayed\"}";
        assert_eq!(line.to_text().as_str(), expected);
    }

    #[test]
    fn unknown_events_are_kept_as_they_are() {
        for (name, payload) in [("soon", json!({"b": 1.5})), ("final", json!({"attempts": "many"}))] {
            let event = read(name, &payload);
            assert!(matches!(event, RecordedEvent::Unknown(_)), "{name}");
            assert_eq!((event.name(), Value::Object(event.facts())), (name, payload));
        }
    }
}
