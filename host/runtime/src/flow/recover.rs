//! Calls that a crash cut short: which there are, doing one again where that is as good as once, or leaving it.
//!
//! What such a call did is not known, and nothing here guesses. It is decided about exactly once: the commit that
//! opens the call which does it again settles it, and so does the one in which somebody gives its key again; whoever
//! comes second finds it decided, and runs nothing.

use std::sync::Arc;

use cofferdam_audit::{AuditReader, AuditTrouble, CallStatus, Decision, Filter, Order, written};
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::is_action;
use cofferdam_core::failure::{AuditId, safe_line};
use cofferdam_sandbox::Answer;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::found::{Found, find, unreadable, whole};
use crate::call::{Cancellation, ConnectorRef, Pipeline, Report};

/// The longest reason that is kept, in characters.
const REASON_CHARS: usize = 1000;

/// A call that was cut short: it has no end, and its host is gone; or it was cancelled, and what it did under its key,
/// or what the call did that it was to do again, is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Incomplete {
    /// Its id.
    pub audit_id: AuditId,
    /// When it was received.
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
    /// Who asked.
    pub actor: String,
    /// Whether its operation may be repeated, whatever it sent.
    pub idempotent: bool,
    /// How many attempts were begun.
    pub attempts: u32,
    /// Whether a request may have left. Of an attempt that was cut short that is not known.
    pub may_have_sent: bool,
    /// The idempotency key that its caller gave; none where nobody gave one, or it cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Its arguments as the record has them: redacted, and cut where they are long. None where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// Whether it can be done again: its operation may be repeated, what was asked for is kept, and its package is
    /// there.
    pub resumable: bool,
    /// Why not: `cancelled` (it has an end), `not_idempotent`, `undeclared`, `not_kept`, `sealed_under_another_key` or
    /// `not_installed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_resumable: Option<&'static str>,
    /// Whether it has an outcome that can be given again: it has not.
    pub replayable: bool,
    /// Why: `execution_incomplete`, or `cancelled`.
    pub reason: &'static str,
    /// What is to be done about an action: it is not resumed, but its steps are calls that may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'static str>,
}

/// How a call that was cut short is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// Who decides.
    pub actor: Arc<str>,
    /// Why nothing is to be done about it.
    pub reason: String,
    /// Whether its idempotency key may be used again. Where not, nobody ever runs under it.
    pub frees_key: bool,
}

fn shown<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{at:.6}"))
}

impl Incomplete {
    fn of(found: Found, pipeline: &Pipeline) -> Self {
        let request =
            found.request.as_ref().map(|request| pipeline.recorded_call(&found.row.audit_id, request));
        let is_action = is_action(&found.row.connector);
        let hint = is_action.then(|| action_hint(found.row.idempotent));
        let not_resumable = match &request {
            _ if is_action => Some("an_action"),
            _ if !found.row.incomplete && found.row.status != CallStatus::Failure => Some("cancelled"),
            _ if !found.may_be_repeated() && found.is_undeclared => Some("undeclared"),
            _ if !found.may_be_repeated() => Some("not_idempotent"),
            None => Some("not_kept"),
            Some(Err(_)) => Some("sealed_under_another_key"),
            Some(Ok(call)) if !is_installed(pipeline, call.connector(), found.hash) => Some("not_installed"),
            Some(Ok(_)) => None,
        };
        let key = request.and_then(Result::ok).and_then(|call| call.key_given().map(str::to_owned));
        let Found { row, attempts, arguments, was_cancelled, .. } = found;
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
            idempotency_key: key,
            arguments,
            resumable: not_resumable.is_none(),
            not_resumable,
            replayable: false,
            // Cut off by a limit it has an end, and what it did is as unknown.
            reason: match row.status {
                CallStatus::Failure => "execution_incomplete",
                _ if row.incomplete && !was_cancelled => "execution_incomplete",
                _ => "cancelled",
            },
            hint,
        }
    }
}

/// Whether the package is there that the call had, or one of its version where it did not come so far as to have one.
fn is_installed(pipeline: &Pipeline, connector: &ConnectorRef, hash: Option<Digest>) -> bool {
    match pipeline.loader.registry.find(connector.name(), connector.version()) {
        Ok(there) => {
            there.is_some_and(|there| hash.or(connector.hash().copied()).is_none_or(|hash| hash == there))
        }
        // It may be: the call itself says what is wrong.
        Err(_) => true,
    }
}

/// Every call that was cut short and nobody decided about, the oldest first. Blocks.
///
/// # Errors
/// `audit_unavailable`: the record cannot be read.
pub(crate) fn incomplete(pipeline: &Pipeline) -> Result<Vec<Incomplete>, HostError> {
    let mut reader = match pipeline.log().reader() {
        Ok(reader) => reader,
        // Nothing was ever called.
        Err(error) if error.trouble() == AuditTrouble::Absent => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let filter = Filter { incomplete: true, limit: 0, ..Filter::default() };
    let read = |reader: &mut dyn AuditReader| {
        let mut rows = reader.list(&filter)?;
        for audit_id in reader.undecided_keys(None)? {
            rows.extend(reader.call(&audit_id)?);
        }
        // Ids are in the order of time.
        rows.sort_by(|a, b| a.audit_id.as_str().cmp(b.audit_id.as_str()));
        let of = |found| Incomplete::of(found, pipeline);
        rows.into_iter().map(|row| whole(reader, row).map(of)).collect::<Result<_, _>>()
    };
    read(&mut *reader).map_err(unreadable)
}

/// A call that was cut short and nobody decided about. Blocks.
///
/// # Errors
/// `audit_not_found`, `in_progress`, or `conflict`: it has an end, or it is decided.
pub(crate) fn look(pipeline: &Pipeline, audit_id: &AuditId) -> Result<Incomplete, HostError> {
    undecided(find(&**pipeline.log(), audit_id)?).map(|found| Incomplete::of(found, pipeline))
}

fn undecided(found: Found) -> Result<Found, HostError> {
    let id = &found.row.audit_id;
    match found.row.status {
        CallStatus::Running if found.row.incomplete => Ok(found),
        _ if found.key_is_undecided => Ok(found),
        CallStatus::Running => {
            let message = format!("The call {id} is still running.");
            let hint = "Wait for its end; a host that is gone leaves it incomplete.";
            Err(HostError::new(HostErrorKind::InProgress, message).hint(hint))
        }
        _ => Err(decided(&found)),
    }
}

fn decided(found: &Found) -> HostError {
    let id = &found.row.audit_id;
    let what = match (found.row.status, &found.resumed_by) {
        (CallStatus::Resumed, Some(by)) => format!("it was done again, as {}", safe_line(by, 60)),
        (CallStatus::Resumed, None) => "it was done again".to_owned(),
        (CallStatus::Skipped, _) => "it was skipped".to_owned(),
        (status, _) => format!("it has an end: {}", status.name()),
    };
    let message = format!("There is nothing to decide about the call {id}: {what}.");
    HostError::new(HostErrorKind::Conflict, message)
        .hint(format!("`cofferdam audit show {id}` has all of it."))
}

/// Does a call again that was cut short, under the key that it had, with the package that it had.
///
/// # Errors
/// Beside what any call may end with: as [`look`]; `outcome_unknown` where its operation must not be repeated;
/// `not_replayable` where what was asked for is not kept.
pub(crate) async fn resume<A: Answer>(
    pipeline: &Pipeline,
    audit_id: &AuditId,
    actor: &Arc<str>,
    cancellation: Option<&Cancellation>,
) -> (Result<A, Error>, Report) {
    let call = async {
        let (log, id) = (Arc::clone(pipeline.log()), audit_id.clone());
        let found = tokio::task::spawn_blocking(move || find(&*log, &id)).await;
        let found = undecided(found.map_err(gone)??)?;
        let id = &found.row.audit_id;
        if is_action(&found.row.connector) {
            return Err(action_not_resumed(&found));
        }
        if !found.may_be_repeated() || !found.row.incomplete {
            return Err(not_repeatable(&found));
        }
        let Some(request) = &found.request else {
            let message = format!("The call {id} cannot be done again: what was asked for is not kept.");
            let hint = format!("Call anew, and then: cofferdam recover skip {id} --reason TEXT");
            return Err(HostError::new(HostErrorKind::NotReplayable, message)
                .hint(hint)
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
            let (outcome, report) = pipeline.run(call).await;
            (outcome.map_err(still_undecided), report)
        }
        Err(error) => {
            let report = Report::new(error.request_id().clone());
            (Err(error.into()), report)
        }
    }
}

/// What is to be done about an action that was cut short; one may be repeated if it was given a key.
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

/// An action is run again as a whole, or not at all.
fn action_not_resumed(found: &Found) -> HostError {
    let id = &found.row.audit_id;
    let message = format!("{id} is an action, and an action is not resumed.");
    HostError::new(HostErrorKind::NotReplayable, message)
        .hint(action_hint(found.row.idempotent))
        .detail("reason", "an_action")
        .detail("call", id.as_str())
}

/// What was to be done again and was cancelled is to be decided about still.
fn still_undecided(error: Error) -> Error {
    match error {
        Error::Host(error) if error.kind() == HostErrorKind::Cancelled => {
            error.hint("`cofferdam recover list` has what is to be decided about still.").into()
        }
        error => error,
    }
}

/// What was begun may have had its effect, and a second one is not to be had by a command.
fn not_repeatable(found: &Found) -> HostError {
    let (id, op) = (&found.row.audit_id, safe_line(&found.row.op, 100));
    let why = match found.is_undeclared {
        true => "is not declared idempotent by its connector's manifest",
        false => "must not be repeated",
    };
    let message =
        format!("The call {id} is not done again: `{op}` {why}, and whether it had its effect is not known.");
    HostError::new(HostErrorKind::OutcomeUnknown, message)
        .hint(format!(
            "Look at the service. Where the effect is there, or nobody wants it any more: cofferdam recover skip \
             {id} --reason TEXT. Where it is missing: call anew, and skip this one."
        ))
        .detail("call", id.as_str())
        .detail("may_have_sent", found.attempts.may_have_sent())
}

/// Leaves a call as it is that was cut short, and puts on record who says so and why.
///
/// # Errors
/// `validation`: there is no reason; else as [`look`]; `audit_unavailable`: it could not be written.
pub(crate) async fn skip(pipeline: &Pipeline, audit_id: &AuditId, skip: Skip) -> Result<(), HostError> {
    if skip.reason.trim().is_empty() {
        let message = "There is no reason why the call is skipped.";
        let hint = "Say what you found at the service: it is what is known of this call from now on.";
        return Err(HostError::new(HostErrorKind::Validation, message).hint(hint));
    }
    let (log, id) = (Arc::clone(pipeline.log()), audit_id.clone());
    let frees_key = skip.frees_key;
    let found = tokio::task::spawn_blocking(move || {
        let found = find(&*log, &id)?;
        // A key that was to stay taken may be freed later; the record knows whether there is one.
        if frees_key && found.row.status != CallStatus::Running { Ok(found) } else { undecided(found) }
    });
    let found = found.await.map_err(gone)??;
    let facts = [("actor", &*skip.actor), ("reason", &*safe_line(&skip.reason, REASON_CHARS))];
    let mut facts = Map::from_iter(facts.map(|(name, fact)| (name.to_owned(), Value::from(fact))));
    facts.insert("frees_key".into(), skip.frees_key.into());
    let decision =
        Decision { status: CallStatus::Skipped, at: pipeline.now(), facts, frees_key: skip.frees_key };
    let (reply, answer) = written();
    pipeline.log().submit(Order::Settle { audit_id: audit_id.clone(), decision: Box::new(decision), reply });
    match answer.done().await {
        Ok(true) => Ok(()),
        Ok(false) if !found.key_is_undecided && found.row.status != CallStatus::Running => {
            Err(decided(&found))
        }
        // Somebody was first, since it was looked at.
        Ok(false) => Err(HostError::new(
            HostErrorKind::Conflict,
            format!("The call {} was decided about meanwhile.", found.row.audit_id),
        )),
        Err(error) => {
            let message = format!("It could not be recorded: {}.", error.says());
            Err(HostError::new(HostErrorKind::AuditUnavailable, message)
                .hint(error.trouble().fix())
                .because(error))
        }
    }
}

pub(super) fn gone(error: tokio::task::JoinError) -> HostError {
    HostError::new(HostErrorKind::Internal, "The record could not be read.").because(error)
}
