//! Runs an action: its steps in order, each with a call of its own. The first step without a value ends the action.
//!
//! A failure is returned unchanged, with its own audit id. Nothing is rolled back, and a failed action returns none
//! of its values. The report and the audit log show the steps that are done.

use std::time::{Duration, Instant};

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, Failure, FailureContext, LimitHit, LimitKind, RepeatRule};
use cofferdam_core::limits::PAYLOAD_BYTES;
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_model::action::{Action, TemplateValues};
use cofferdam_sandbox::json_size_over;
use serde_json::{Map, Value};
use tracing::Instrument as _;

use super::ask::RunRequest;
use super::outcome::ActionValue;
use super::report::{ActionReport, StepStatus};
use super::runnable::CheckedAction;
use super::step::{self, OneStep};
use crate::call::{ActionRecord, Asked, Beginning, CallPipeline, KEY_BYTES, PartOf, Running, cancelled};

/// The most bytes of the values of all steps together, as JSON text.
const VALUES_BYTES: u64 = 4 * PAYLOAD_BYTES as u64;

/// Runs it. Returns its value, the first failure or the error that it was refused with, and a report of its steps.
/// Dropping the future cancels it.
pub(crate) async fn run(
    pipeline: &CallPipeline,
    runnable: &CheckedAction,
    run: RunRequest,
) -> (Result<ActionValue, Error>, ActionReport) {
    let action = runnable.action();
    let asked = Asked {
        audit_id: run.audit_id.clone(),
        name: &action.reference,
        file: action.hash,
        actor: run.actor.as_deref(),
        steps: action.steps.len(),
    };
    let mut record = ActionRecord::open(pipeline, asked);
    let mut report = report(runnable, record.audit_id().clone());
    report.idempotency_key.clone_from(&run.key);
    let course = ActionRun { pipeline, runnable, action, run: &run };
    let span = record.span();
    let outcome = course.begin(&mut record, &mut report).instrument(span).await;
    let (outcome, closed) = record.close(outcome).await;
    (report.operator, report.replayed, report.partial) = (closed.operator, closed.replayed, closed.partial);
    (outcome.map(ActionValue::recorded), report)
}

/// Returns the report of an action that has not begun.
fn report(runnable: &CheckedAction, audit_id: AuditId) -> ActionReport {
    let action = runnable.action();
    let steps = step::all(runnable).map(|one| (one.step.id.clone(), one.ready.idempotent()));
    ActionReport::new(audit_id, action.reference.clone(), steps)
}

/// The state that all steps of a run share.
struct ActionRun<'r> {
    pipeline: &'r CallPipeline,
    runnable: &'r CheckedAction,
    action: &'r Action,
    run: &'r RunRequest,
}

impl ActionRun<'_> {
    /// Runs the action, unless an earlier run has its key.
    async fn begin(&self, record: &mut ActionRecord, report: &mut ActionReport) -> Result<Value, Error> {
        let own = |id: &AuditId, error: HostError| Error::from(error.with_request_id(id));
        let id = record.audit_id().clone();
        let asked = || {
            keys_fit(self.action, self.run)?;
            step::identities_fit(self.runnable, self.run)?;
            Ok((self.action.arguments(&self.run.args)?, allowed(self.pipeline, self.runnable, self.run)?))
        };
        let (args, allowed) = asked().map_err(|error| own(&id, error))?;
        let part = PartOf { audit_id: id.clone(), since: self.now(), allowed };
        let with = Beginning {
            args: args.clone(),
            identities: self.run.identities.clone(),
            key: self.run.key.clone(),
            step_keys: self.step_keys(),
            if_running: self.run.if_running,
            allowed,
            deadline: part.deadline(),
        };
        let begins = record.begins(self.pipeline, with);
        let recorded = match &self.run.cancellation {
            None => begins.await,
            Some(cancellation) => tokio::select! {
                biased;
                () = cancellation.cancelled() => Err(cancelled(0)),
                begins = begins => begins,
            },
        };
        match recorded.map_err(|error| own(&id, error))? {
            Some(recorded) => recorded.outcome,
            None => self.steps(&args, &part, record, report).await,
        }
    }

    /// Returns the keys that its steps carry. Empty if the run has no key.
    fn step_keys(&self) -> Vec<String> {
        let of = |key: &String| self.action.steps.iter().map(|step| step::key_of(key, &step.id)).collect();
        self.run.key.as_ref().map(of).unwrap_or_default()
    }

    async fn steps(
        &self,
        args: &Map<String, Value>,
        part: &PartOf,
        record: &mut ActionRecord,
        report: &mut ActionReport,
    ) -> Result<Value, Error> {
        let mut values = Vec::with_capacity(self.action.steps.len());
        let mut size = 0_u64;
        for (n, one) in step::all(self.runnable).enumerate() {
            let value =
                self.step(n, one, &TemplateValues { args, steps: &values }, part, record, report).await?;
            size = size.saturating_add(json_size_over(&value, 0).unwrap_or(0));
            values.push(value);
            if size > VALUES_BYTES {
                let hit = LimitHit::new(LimitKind::Payload, VALUES_BYTES, size);
                let context = FailureContext::new(part.audit_id.clone());
                return Err(Failure::resource_limit_exceeded(&context, hit).into());
            }
        }
        if let Some(output) = &self.action.output {
            output.check(values.last().unwrap_or(&Value::Null)).map_err(|error| {
                let message = format!(
                    "{} answered something else than its file says: {error}. Every step of it is done.",
                    self.action.reference
                );
                let hint =
                    format!("Correct [output] in {}.md, or what its last step asks for.", self.action.name);
                let error = HostError::new(HostErrorKind::Validation, message).with_hint(hint);
                with_done(error, report).with_request_id(&part.audit_id)
            })?;
        }
        let ids = self.action.steps.iter().map(|step| &*step.id);
        Ok(ActionValue::whole(&self.action.name, ids, values))
    }

    /// Runs one step, and returns its value.
    async fn step(
        &self,
        n: usize,
        one: OneStep<'_>,
        values: &TemplateValues<'_>,
        part: &PartOf,
        record: &mut ActionRecord,
        report: &mut ActionReport,
    ) -> Result<Value, Error> {
        let step = one.step;
        let refused = |error: HostError, report: &ActionReport| {
            Error::from(at_step(error, &step.id, report).with_request_id(&part.audit_id))
        };
        if self.run.cancellation.as_ref().is_some_and(crate::call::Cancellation::is_cancelled) {
            return Err(refused(cancelled(0), report));
        }
        let call = one.call(values, self.run).map_err(|error| refused(error, report))?;
        let connector = call.connector().to_string().into();
        let now = self.now();
        if now >= part.deadline() {
            let context = FailureContext::new(part.audit_id.clone())
                .with_connector(connector, None)
                .with_op(step.target.op.as_str(), one.ready.repeat_rule());
            return Err(part.out_of_time(&context, now).into());
        }
        let id = AuditId::mint();
        let mut call = call.recorded_as(id.clone()).part_of(part.clone()).if_running(self.run.if_running);
        if let Some(cancellation) = &self.run.cancellation {
            call = call.cancelled_by(cancellation);
        }
        let number = u32::try_from(n.saturating_add(1)).unwrap_or(u32::MAX);
        let op = step.target.op.as_str().into();
        record.step_starts(Running { id: step.id.clone(), call: id, connector, op, number });
        let (outcome, of_call) = self.pipeline.run::<Value>(call).await;
        record.step_ended(outcome.as_ref().err(), &of_call);
        if let Some(step) = report.steps.get_mut(n) {
            let may_be_repeated = match one.ready.repeat_rule() {
                RepeatRule::Always => true,
                RepeatRule::UnlessUnkeyed => !of_call.may_have_sent_unkeyed(),
                RepeatRule::Never => false,
            };
            step.idempotent = may_be_repeated;
            (step.status, step.report) = (StepStatus::of(&outcome), Some(of_call));
        }
        outcome.map_err(|error| match error {
            Error::Host(error) => at_step(error, &step.id, report).into(),
            failure @ Error::Failure(_) => failure,
        })
    }

    fn now(&self) -> Instant {
        self.pipeline.loader.clock.now()
    }
}

/// Checks that each step's key, which is derived from the action's, is no longer than a key may be.
pub(super) fn keys_fit(action: &Action, run: &RunRequest) -> Result<(), HostError> {
    let Some(key) = &run.key else { return Ok(()) };
    let longest = action.steps.iter().map(|step| step::key_of("", &step.id).len()).max();
    let most = KEY_BYTES.saturating_sub(longest.unwrap_or(0));
    match key.len() <= most {
        true => Ok(()),
        false => {
            let message = format!("The idempotency key has {} bytes.", key.len());
            let hint = format!(
                "Give one of {most} bytes at most: the steps of {} carry it with their ids.",
                action.name
            );
            Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint))
        }
    }
}

/// Returns the time limit of the action. It is at most the sum of the limits of all its steps.
pub(super) fn allowed(
    pipeline: &CallPipeline,
    runnable: &CheckedAction,
    run: &RunRequest,
) -> Result<Duration, HostError> {
    let Some(asked) = run.wall_time else { return Ok(runnable.timeout()) };
    let steps = u32::try_from(runnable.steps().len()).unwrap_or(u32::MAX).max(1);
    let most = pipeline.loader.ceilings.wall_time().saturating_mul(steps);
    match asked.is_zero() || asked > most {
        false => Ok(asked),
        true => {
            let message = format!(
                "The action cannot have {} ms: its {steps} steps together may take {} ms here.",
                asked.as_millis(),
                most.as_millis()
            );
            Err(HostError::new(HostErrorKind::Validation, message).with_hint("Give it a time within that."))
        }
    }
}

/// Adds the step in which the action ended, and the steps that are done, to the error.
fn at_step(error: HostError, step: &str, report: &ActionReport) -> HostError {
    let done: Vec<_> = report.done().map(|step| &*step.id).collect();
    let before = match done.is_empty() {
        true => String::new(),
        false => format!(" Done before it, and not undone: {}.", done.join(", ")),
    };
    let error = error.map_message(|message| format!("Step {step}: {message}{before}"));
    with_done(error, report).detail("step", step)
}

fn with_done(error: HostError, report: &ActionReport) -> HostError {
    let done: Vec<_> = report.done().map(|step| Value::from(&*step.id)).collect();
    error
        .detail("action", &*report.action)
        .detail("action_audit_id", report.audit_id.as_str())
        .detail("done", done)
}
