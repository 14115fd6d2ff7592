//! Recovery of calls that a crash interrupted: lists them, and resumes one if that is safe, or skips it.
//!
//! The effect of such a call is unknown, and nothing here guesses. It is decided about exactly once: by the commit
//! that opens the call which resumes it, or by the commit of a new call with its key. A later request finds it
//! decided and runs nothing.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_audit::{AuditErrorKind, AuditReader, CallStatus, Filter, ResolveCall};
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::is_action;
use cofferdam_core::failure::{AuditId, sanitize_line};
use jiff::Timestamp;
use serde::Serialize;

use super::recorded_call::{RecordedCall, find, read_call};
use crate::call::{CallPipeline, CallResult, Cancellation, ConnectorRef, Report};
use crate::log_errors::{log_error, unreadable};

/// The time for which a call that runs is looked at again, before that is an error.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// The longest reason that is stored, in characters.
const REASON_CHARS: usize = 1000;

/// An interrupted call. It has no end and its host is gone; or it has one, and its own effect under its key, or the
/// effect of the call that it was to resume, is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IncompleteCall {
    /// Its audit id.
    pub audit_id: AuditId,
    /// The time at which it was received.
    #[serde(serialize_with = "shown")]
    pub at: Timestamp,
    /// The connector, as `name@version`.
    pub connector: String,
    /// The operation.
    pub op: String,
    /// The action that it was a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Its step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The actor of the call.
    pub actor: String,
    /// True if its operation may be repeated, whatever it sent.
    pub idempotent: bool,
    /// The number of attempts that were begun.
    pub attempts: u32,
    /// True if a request may have left. This counts an interrupted attempt, whose requests are unknown.
    pub may_have_sent: bool,
    /// The idempotency key that its caller gave. None if the caller gave none, or if it cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Its arguments as the audit log has them: redacted, and cut if they are long. None if it has none, as of an
    /// action, whose arguments are recorded with its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// True if it can be resumed: its operation may be repeated, its request is stored, and its package is
    /// installed.
    pub resumable: bool,
    /// The reason that it cannot be resumed: `an_action`, `cancelled` or `effect_unknown` (it has an end),
    /// `not_idempotent`, `undeclared`, `not_kept`, `sealed_under_another_key` or `not_installed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_resumable: Option<&'static str>,
    /// True if it has an outcome that can be replayed.
    pub replayable: bool,
    /// The reason that its effect is unknown: `execution_incomplete` (it has no end, and its host is gone), `cancelled`,
    /// or `effect_unknown` (it has an end, at which a request was under way).
    pub reason: &'static str,
    /// The advice for an action: it is not resumed, but its steps are calls that may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'static str>,
}

/// The decision to leave an interrupted call as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkipRequest {
    /// The actor of the decision.
    pub actor: Arc<str>,
    /// The reason for it.
    pub reason: String,
    /// True if its idempotency key may be used again. If not, no call ever runs under it.
    pub frees_key: bool,
}

fn shown<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{at:.6}"))
}

impl IncompleteCall {
    fn from_recorded(found: RecordedCall, pipeline: &CallPipeline) -> Self {
        let request =
            found.request.as_ref().map(|request| pipeline.recorded_call(&found.row.audit_id, request));
        let is_action = is_action(&found.row.connector);
        let hint = is_action.then(|| action_hint(found.row.idempotent));
        let reason = match found.row.status {
            CallStatus::Incomplete if !found.was_cancelled => "execution_incomplete",
            CallStatus::Incomplete | CallStatus::Cancelled => "cancelled",
            _ => "effect_unknown",
        };
        let not_resumable = match &request {
            _ if is_action => Some("an_action"),
            _ if found.row.status == CallStatus::Cancelled => Some(reason),
            _ if found.row.status != CallStatus::Incomplete && found.may_be_repeated() => Some(reason),
            _ if !found.may_be_repeated() && found.is_undeclared => Some("undeclared"),
            _ if !found.may_be_repeated() => Some("not_idempotent"),
            None => Some("not_kept"),
            Some(Err(_)) => Some("sealed_under_another_key"),
            Some(Ok(call)) if !is_installed(pipeline, call.connector(), found.hash) => Some("not_installed"),
            Some(Ok(_)) => None,
        };
        let key = request.and_then(Result::ok).and_then(|call| call.key_given().map(str::to_owned));
        let RecordedCall { row, attempts, arguments, action_key, outcome, .. } = found;
        Self {
            audit_id: row.audit_id,
            at: row.at,
            connector: row.connector,
            op: row.op,
            action: row.action,
            step: row.step,
            actor: row.actor,
            idempotent: row.idempotent,
            attempts: attempts.begun,
            may_have_sent: attempts.may_have_sent(),
            idempotency_key: key.or(action_key),
            arguments,
            resumable: not_resumable.is_none(),
            not_resumable,
            replayable: outcome.is_some(),
            reason,
            hint,
        }
    }
}

/// True if the call's package is installed. For a call that was not admitted yet: any package of its version.
fn is_installed(pipeline: &CallPipeline, connector: &ConnectorRef, hash: Option<Digest>) -> bool {
    match pipeline.loader.registry.find(connector.name(), connector.version()) {
        Ok(there) => {
            there.is_some_and(|there| hash.or(connector.hash().copied()).is_none_or(|hash| hash == there))
        }
        // It may be installed. The call itself reports the error.
        Err(_) => true,
    }
}

/// Lists every interrupted call that is not decided about, the oldest first. Blocks.
///
/// # Errors
/// `audit_unavailable`: the audit log cannot be read.
pub(crate) fn incomplete(pipeline: &CallPipeline) -> Result<Vec<IncompleteCall>, HostError> {
    let mut reader = match pipeline.log().reader() {
        Ok(reader) => reader,
        // No call was ever made.
        Err(error) if error.kind() == AuditErrorKind::Absent => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let filter = Filter { status: Some(CallStatus::Incomplete), ..Filter::default() };
    let read = |reader: &mut dyn AuditReader| {
        let mut rows = reader.list(&filter)?;
        for audit_id in reader.undecided_keys(None)? {
            rows.extend(reader.call(&audit_id)?);
        }
        // Ids sort by time.
        rows.sort_by(|a, b| a.audit_id.as_str().cmp(b.audit_id.as_str()));
        let of = |found| IncompleteCall::from_recorded(found, pipeline);
        rows.into_iter().map(|row| read_call(reader, row).map(of)).collect::<Result<_, _>>()
    };
    read(&mut *reader).map_err(unreadable)
}

/// Returns an interrupted call that is not decided about. Blocks.
///
/// # Errors
/// `audit_not_found`, `in_progress`, or `conflict`: it has an end, or it is decided.
pub(crate) fn incomplete_call(
    pipeline: &CallPipeline,
    audit_id: &AuditId,
) -> Result<IncompleteCall, HostError> {
    undecided(find(&**pipeline.log(), audit_id)?).map(|found| IncompleteCall::from_recorded(found, pipeline))
}

/// Finds a call that is to be decided about, according to `check`. While a process resumes another call of the same
/// journal, it seems to run.
async fn find_undecided(
    pipeline: &CallPipeline,
    audit_id: &AuditId,
    check: impl Fn(RecordedCall) -> Result<RecordedCall, HostError>,
) -> Result<RecordedCall, HostError> {
    let clock = &*pipeline.loader.clock;
    let until = clock.now() + PATIENCE;
    loop {
        let (log, id) = (Arc::clone(pipeline.log()), audit_id.clone());
        let found = tokio::task::spawn_blocking(move || find(&*log, &id)).await.map_err(gone)??;
        match check(found) {
            Err(error) if error.kind() == HostErrorKind::InProgress && clock.now() < until => {
                clock.sleep_until(clock.now() + PAUSE).await;
            }
            found => return found,
        }
    }
}

fn undecided(found: RecordedCall) -> Result<RecordedCall, HostError> {
    let id = &found.row.audit_id;
    match found.row.status {
        CallStatus::Incomplete => Ok(found),
        _ if found.key_is_undecided => Ok(found),
        CallStatus::Running => {
            let message = format!("The call {id} is still running.");
            let hint = "Wait for its end; a host that is gone leaves it incomplete.";
            Err(HostError::new(HostErrorKind::InProgress, message).with_hint(hint))
        }
        _ => Err(decided(&found)),
    }
}

fn decided(found: &RecordedCall) -> HostError {
    let id = &found.row.audit_id;
    let what = match (found.row.status, &found.resumed_by) {
        (CallStatus::Resumed, Some(by)) => format!("it was done again, as {}", sanitize_line(by, 60)),
        (CallStatus::Resumed, None) => "it was done again".to_owned(),
        (CallStatus::Skipped, _) => "it was skipped".to_owned(),
        (status, _) => format!("it has an end ({}), and its key needs no decision", status.name()),
    };
    let message = format!("There is nothing to decide about the call {id}: {what}.");
    HostError::new(HostErrorKind::Conflict, message)
        .with_hint(format!("`cofferdam audit show {id}` has all of it."))
}

/// Resumes an interrupted call, under its key and with its package.
///
/// # Errors
/// In addition to the errors of any call: as [`incomplete_call`]; `outcome_unknown` if its operation must not be
/// repeated; `not_replayable` if its request is not stored.
pub(crate) async fn resume(
    pipeline: &CallPipeline,
    audit_id: &AuditId,
    actor: &Arc<str>,
    cancellation: Option<&Cancellation>,
) -> CallResult {
    let call = async {
        let found = find_undecided(pipeline, audit_id, undecided).await?;
        let id = &found.row.audit_id;
        if is_action(&found.row.connector) {
            return Err(action_not_resumed(&found));
        }
        if !found.may_be_repeated() || found.row.status != CallStatus::Incomplete {
            return Err(not_repeatable(&found));
        }
        let Some(request) = &found.request else {
            let message = format!("The call {id} cannot be done again: what was asked for is not kept.");
            let hint = format!(
                "Look at the service. Where the effect is missing, call anew; then: cofferdam recover skip {id} \
                 --reason TEXT"
            );
            return Err(HostError::new(HostErrorKind::NotReplayable, message)
                .with_hint(hint)
                .detail("reason", "not_kept"));
        };
        let call = pipeline.recorded_call(id, request)?;
        Ok(call.resuming(id.clone(), found.hash, Arc::clone(actor)))
    };
    match call.await {
        Ok(call) => {
            let call = match cancellation {
                Some(cancellation) => call.cancelled_by(cancellation),
                None => call,
            };
            let CallResult { outcome, report } = pipeline.run(call).await;
            CallResult { outcome: outcome.map_err(still_undecided), report }
        }
        Err(error) => {
            let report = Report::new(error.request_id().clone());
            CallResult { outcome: Err(error.into()), report }
        }
    }
}

/// Returns the advice for an interrupted action. It may be repeated if it was given a key.
fn action_hint(keyed: bool) -> &'static str {
    match keyed {
        true => {
            "Run it again under the same key, with the same arguments: what is done of it is not done again."
        }
        false => {
            "Its steps are calls of their own, and it had no key: look at what they did, then skip it. To run it again \
             does all of it again."
        }
    }
}

/// Returns the error for resuming an action, which can only be run again as a whole.
fn action_not_resumed(found: &RecordedCall) -> HostError {
    let id = &found.row.audit_id;
    let message = format!("{id} is an action, and an action is not resumed.");
    HostError::new(HostErrorKind::NotReplayable, message)
        .with_hint(action_hint(found.row.idempotent))
        .detail("reason", "an_action")
        .detail("call", id.as_str())
}

/// Adds the hint that a cancelled resumption leaves the call undecided.
fn still_undecided(error: Error) -> Error {
    match error {
        Error::Host(error) if error.kind() == HostErrorKind::Cancelled => {
            error.with_hint("`cofferdam recover list` has what is to be decided about still.").into()
        }
        error => error,
    }
}

/// Returns the error for a call that was begun and may have had its effect. No command repeats such an effect.
fn not_repeatable(found: &RecordedCall) -> HostError {
    let (id, op) = (&found.row.audit_id, sanitize_line(&found.row.op, 100));
    let why = match found.is_undeclared {
        true => "is not declared idempotent by its connector's manifest",
        false => "must not be repeated",
    };
    let message =
        format!("The call {id} is not done again: `{op}` {why}, and whether it had its effect is not known.");
    HostError::new(HostErrorKind::OutcomeUnknown, message)
        .with_hint(format!(
            "Look at the service. Where the effect is there, or nobody wants it any more: cofferdam recover skip \
             {id} --reason TEXT. Where it is missing: call anew, and skip this one."
        ))
        .detail("call", id.as_str())
        .detail("may_have_sent", found.attempts.may_have_sent())
}

/// Leaves an interrupted call as it is, and records the actor and the reason.
///
/// # Errors
/// `validation`: there is no reason; else as [`incomplete_call`]; `audit_unavailable`: it could not be written.
pub(crate) async fn skip(
    pipeline: &CallPipeline,
    audit_id: &AuditId,
    skip: SkipRequest,
) -> Result<(), HostError> {
    if skip.reason.trim().is_empty() {
        let message = "There is no reason why the call is skipped.";
        let hint = "Say what you found at the service: it is what is known of this call from now on.";
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint));
    }
    let found = find_undecided(pipeline, audit_id, |found| {
        // A key that stayed taken may be released later. The audit log decides whether there is one.
        if skip.frees_key && found.row.status.has_end() { Ok(found) } else { undecided(found) }
    });
    let found = found.await?;
    let (at, reason) = (pipeline.now(), sanitize_line(&skip.reason, REASON_CHARS));
    let decision = ResolveCall { at, actor: skip.actor, reason, frees_key: skip.frees_key };
    match pipeline.log().resolve(audit_id, decision).await {
        Ok(true) => Ok(()),
        Ok(false) if !found.key_is_undecided && found.row.status.has_end() => Err(decided(&found)),
        // Another decision was made since the call was read.
        Ok(false) => Err(HostError::new(
            HostErrorKind::Conflict,
            format!("The call {} was decided about meanwhile.", found.row.audit_id),
        )),
        Err(error) => Err(log_error(HostErrorKind::AuditUnavailable, "It could not be recorded", error)),
    }
}

pub(super) fn gone(error: tokio::task::JoinError) -> HostError {
    HostError::new(HostErrorKind::Internal, "The audit log could not be read.").with_source(error)
}
