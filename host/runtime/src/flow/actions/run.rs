//! Runs an action: its steps in order, each with a call of its own. The first step without a value ends the action.
//!
//! A failure is returned unchanged, with its own audit id. Nothing is rolled back, and a failed action returns none
//! of its values. The report and the audit log show the steps that are done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::KEY_BYTES;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{
    AuditId, Failure, FailureContext, LimitHit, LimitKind, RepeatRule, sanitize_line,
};
use cofferdam_core::limits::{LimitRequest, PAYLOAD_BYTES};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_core::secret::Scanner;
use cofferdam_model::action::{Action, ActionStep, RenderError, StepTarget, TemplateValues};
use cofferdam_sandbox::json_size_over;
use serde_json::{Map, Value};
use tracing::Instrument as _;

use super::checked_action::{CheckedAction, CheckedStep, ReadyTarget};
use super::report::{ActionReport, ActionResult, ActionValue, StepStatus};
use crate::approvals::CallFacts;
use crate::call::{
    ActionApproval, ActionContext, ActionIdentity, ActionProgress, ActionStart, Call, CallPipeline,
    CallResult, Cancellation, Fallback, OnKeyConflict, StepStart, cancelled,
};

/// The most bytes of the values of all steps together, as JSON text.
const VALUES_BYTES: u64 = 4 * PAYLOAD_BYTES as u64;

/// Runs it. Returns its value, the first failure or the error that it was refused with, and a report of its steps.
/// Dropping the future cancels it.
pub(crate) async fn run(pipeline: &CallPipeline, runnable: &CheckedAction, run: RunRequest) -> ActionResult {
    let action = runnable.action();
    let identity = ActionIdentity {
        audit_id: run.audit_id.clone(),
        name: &action.reference,
        file: action.hash,
        actor: run.actor.as_deref(),
        steps: action.steps.len(),
    };
    let mut progress = ActionProgress::open(pipeline, identity);
    let mut report = report(runnable, progress.audit_id().clone());
    report.idempotency_key.clone_from(&run.key);
    let action_run = ActionRun { pipeline, runnable, action, run: &run };
    let span = progress.span();
    let outcome = action_run.begin(&mut progress, &mut report).instrument(span).await;
    let (outcome, closed) = progress.close(outcome).await;
    (report.operator, report.replayed, report.partial) = (closed.operator, closed.replayed, closed.partial);
    ActionResult { outcome: outcome.map(ActionValue::recorded), report }
}

/// Returns the report of an action that has not begun.
fn report(runnable: &CheckedAction, audit_id: AuditId) -> ActionReport {
    let action = runnable.action();
    let steps = all(runnable).map(|one| (one.step.id.clone(), one.ready.idempotent()));
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
    async fn begin(&self, progress: &mut ActionProgress, report: &mut ActionReport) -> Result<Value, Error> {
        let own = |id: &AuditId, error: HostError| Error::from(error.with_request_id(id));
        let id = progress.audit_id().clone();
        let asked = || {
            keys_fit(self.action, self.run)?;
            identities_fit(self.runnable, self.run)?;
            Ok((self.action.arguments(&self.run.args)?, allowed(self.pipeline, self.runnable, self.run)?))
        };
        let (args, allowed) = asked().map_err(|error| own(&id, error))?;
        let part = ActionContext { audit_id: id.clone(), since: self.now(), allowed };
        let mut start = ActionStart {
            args: args.clone(),
            identities: self.run.identities.clone(),
            key: self.run.key.clone(),
            step_keys: self.step_keys(),
            if_running: self.run.if_running,
            allowed,
            deadline: part.deadline(),
            approval: self.approval(progress.actor()),
        };
        let is_approved = start.approval.is_some();
        let begins = async {
            if let Some(approval) = &mut start.approval {
                // Boxed: few actions wait for a person, and the others should not be larger for it.
                approval.scanners = Box::pin(self.scanners()).await;
            }
            progress.begin(self.pipeline, start).await
        };
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
            None => self.steps(&args, (&part, is_approved), progress, report).await,
        }
    }

    /// Returns the approval that the action needs before its first step, if a person has to approve one of them. The
    /// steps then need none of their own.
    fn approval(&self, actor: &str) -> Option<ActionApproval> {
        let policy = &self.pipeline.approvals.policy;
        let steps = self.runnable.steps();
        let targets = || steps.iter().flat_map(|step| std::iter::once(&step.target).chain(step.fallbacks()));
        let asks = |target: &&ReadyTarget| {
            policy.asks(CallFacts {
                connector: target.connector().name(),
                op: target.operation().name().json(),
                effect: target.effect(),
                actor,
                is_agent: self.run.is_by_agent,
            })
        };
        let described = |target: &ReadyTarget| {
            format!("{} {}", target.connector(), sanitize_line(target.operation().name().json(), 100))
        };
        let operations: Vec<_> = targets().filter(asks).map(described).collect();
        let package = |target: &ReadyTarget| {
            let hash = target.connector().hash().map(ToString::to_string);
            format!("{}#{}", target.connector(), hash.unwrap_or_default())
        };
        (!operations.is_empty()).then(|| ActionApproval {
            operations,
            packages: targets().map(package).collect(),
            effect: self.runnable.effect(),
            is_by_agent: self.run.is_by_agent,
            scanners: Vec::new(),
        })
    }

    /// Returns the scanners for the secrets that the calls of its steps could carry.
    async fn scanners(&self) -> Vec<Arc<Scanner>> {
        let mut scanners = Vec::new();
        for one in all(self.runnable) {
            if let Ok(call) = one.without_arguments(self.run) {
                scanners.extend(self.pipeline.scanners(&call).await);
            }
        }
        scanners
    }

    /// Returns the keys that its steps carry. Empty if the run has no key.
    fn step_keys(&self) -> Vec<String> {
        let of = |key: &String| self.action.steps.iter().map(|step| key_of(key, &step.id)).collect();
        self.run.key.as_ref().map(of).unwrap_or_default()
    }

    async fn steps(
        &self,
        args: &Map<String, Value>,
        (part, is_approved): (&ActionContext, bool),
        progress: &mut ActionProgress,
        report: &mut ActionReport,
    ) -> Result<Value, Error> {
        let mut values = Vec::with_capacity(self.action.steps.len());
        let mut size = 0_u64;
        for (n, one) in all(self.runnable).enumerate() {
            let templates = TemplateValues { args, steps: &values };
            let value = self.step(n, one, &templates, (part, is_approved), progress, report).await?;
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
        Ok(ActionValue::build_json(&self.action.name, ids, values))
    }

    /// Runs one step, and returns its value.
    async fn step(
        &self,
        n: usize,
        one: OneStep<'_>,
        values: &TemplateValues<'_>,
        (part, is_approved): (&ActionContext, bool),
        progress: &mut ActionProgress,
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
        let mut call =
            call.with_audit_id(id.clone()).with_action(part.clone()).if_running(self.run.if_running);
        call = call.in_action_of(self.run.is_by_agent, is_approved);
        if let Some(cancellation) = &self.run.cancellation {
            call = call.cancelled_by(cancellation);
        }
        let number = u32::try_from(n.saturating_add(1)).unwrap_or(u32::MAX);
        let op = step.target.op.as_str().into();
        progress.step_starts(StepStart { id: step.id.clone(), call: id, connector, op, number });
        let CallResult { outcome, report: of_call } = self.pipeline.run::<Value>(call).await;
        progress.step_ended(outcome.as_ref().err(), &of_call);
        if let Some(step) = report.steps.get_mut(n) {
            let may_be_repeated = match one.ready.repeat_rule() {
                RepeatRule::Always => true,
                RepeatRule::UnlessUnkeyed => !of_call.may_have_sent_unkeyed(),
                RepeatRule::Never => false,
            };
            // Without a key of its caller, another run has other keys.
            let keeps_key = self.run.key.is_some() || !of_call.relies_on_key();
            step.is_undecided =
                matches!(&outcome, Err(Error::Host(error)) if is_of_an_earlier_call(error.kind()));
            step.idempotent = may_be_repeated && keeps_key && !step.is_undecided;
            (step.status, step.report) = (StepStatus::from_outcome(&outcome), Some(of_call));
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

/// True if a call was refused for what an earlier one under its key did, or still does.
fn is_of_an_earlier_call(kind: HostErrorKind) -> bool {
    matches!(
        kind,
        HostErrorKind::OutcomeUnknown | HostErrorKind::IdempotencyConflict | HostErrorKind::InProgress
    )
}

/// Checks that each step's key, which is derived from the action's, is no longer than a key may be.
pub(super) fn keys_fit(action: &Action, run: &RunRequest) -> Result<(), HostError> {
    let Some(key) = &run.key else { return Ok(()) };
    let longest = action.steps.iter().map(|step| key_of("", &step.id).len()).max();
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
    let done = report.done().map(|step| &*step.id).collect::<Vec<_>>().join(", ");
    let again = if report.idempotency_key.is_some() { " Another key runs them again." } else { "" };
    let before = match done.is_empty() {
        true => String::new(),
        false => format!(" Done before it, and not undone: {done}.{again}"),
    };
    let error = error.map_message(|message| format!("Step {step}: {message}{before}"));
    with_done(error, report).detail("step", step)
}

/// Adds the facts of the report to the details, with the advice about another run. In the envelope, the error's own
/// hint takes the place of that advice.
fn with_done(error: HostError, report: &ActionReport) -> HostError {
    let advice = report.repeat_hint().map(|hint| ("suggestion".to_owned(), Value::from(hint)));
    report.half_done().chain(advice).fold(error, |error, (name, fact)| error.detail(&name, fact))
}

/// One complete run of an action. Every setting that is not given has a default.
#[derive(Debug, Clone)]
pub struct RunRequest {
    pub(super) args: Value,
    pub(super) actor: Option<String>,
    pub(super) is_by_agent: bool,
    pub(super) identities: BTreeMap<String, String>,
    pub(super) key: Option<String>,
    pub(super) if_running: OnKeyConflict,
    pub(super) wall_time: Option<Duration>,
    pub(super) single_attempts: bool,
    pub(super) cancellation: Option<Cancellation>,
    pub(super) audit_id: Option<AuditId>,
}

impl RunRequest {
    /// Runs it with `args`, an object with a field for each of its inputs. They are data: nothing in them is parsed
    /// as a reference, and none of them replaces text of the action's author.
    #[must_use]
    pub fn new(args: Value) -> Self {
        Self {
            args,
            actor: None,
            is_by_agent: false,
            identities: BTreeMap::new(),
            key: None,
            if_running: OnKeyConflict::Wait,
            wall_time: None,
            single_attempts: false,
            cancellation: None,
            audit_id: None,
        }
    }

    /// Sets the actor for the audit log, as [`Call::actor`](crate::call::Call::actor) does. Default: the host's
    /// actor.
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// Marks the run as one that an agent makes, as [`Call::by_agent`](crate::call::Call::by_agent) does. A person
    /// approves the whole run, before its first step.
    #[must_use]
    pub fn by_agent(mut self) -> Self {
        self.is_by_agent = true;
        self
    }

    /// Uses the credential that is bound as `<kind>/<service>/<identity>` in every step whose connector requests
    /// one for this service. This takes precedence over the action's choice.
    #[must_use]
    pub fn identity(mut self, service: impl Into<String>, identity: impl Into<String>) -> Self {
        self.identities.insert(service.into(), identity.into());
        self
    }

    /// Sets the idempotency key, as [`Call::idempotency_key`](crate::call::Call::idempotency_key) does. Each step
    /// carries it followed by `/` and the step's id. If the action is run again under the same key, the steps that
    /// are done return their recorded values and do not run again.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the behavior if the same action with its key is still running. Default: this run waits.
    #[must_use]
    pub fn if_running(mut self, then: OnKeyConflict) -> Self {
        self.if_running = then;
        self
    }

    /// Sets the longest time of the whole action. Default: the limit in its file, or two minutes.
    #[must_use]
    pub fn wall_time(mut self, longest: Duration) -> Self {
        self.wall_time = Some(longest);
        self
    }

    /// Makes one attempt with each step, as [`Call::single_attempt`](crate::call::Call::single_attempt) does.
    #[must_use]
    pub fn single_attempts(mut self) -> Self {
        self.single_attempts = true;
        self
    }

    /// Lets `cancellation` end the action and its current call.
    #[must_use]
    pub fn cancelled_by(mut self, cancellation: &Cancellation) -> Self {
        self.cancellation = Some(cancellation.clone());
        self
    }

    /// Records it under this id, which no other run has. So a listener of the host knows the id before the run
    /// begins.
    #[must_use]
    pub fn with_audit_id(mut self, audit_id: AuditId) -> Self {
        self.audit_id = Some(audit_id);
        self
    }
}

/// A step of a checked action.
#[derive(Clone, Copy)]
pub(super) struct OneStep<'r> {
    pub(super) action: &'r Action,
    pub(super) step: &'r ActionStep,
    pub(super) ready: &'r CheckedStep,
}

/// Returns the steps of an action, in order.
pub(super) fn all(runnable: &CheckedAction) -> impl Iterator<Item = OneStep<'_>> {
    let action = &**runnable.action();
    action.steps.iter().zip(runnable.steps()).map(move |(step, ready)| OneStep { action, step, ready })
}

impl OneStep<'_> {
    /// Returns the call of the step. Its inputs are filled in with `values`.
    ///
    /// # Errors
    /// A referenced value is missing.
    pub(super) fn call(&self, values: &TemplateValues<'_>, run: &RunRequest) -> Result<Call, HostError> {
        let filled = |target: &StepTarget| {
            target.render(values).map(Value::Object).map_err(|error| unfillable(&error))
        };
        self.build_call(filled, run)
    }

    /// Returns the call of the step without its arguments, which are not known.
    pub(super) fn without_arguments(&self, run: &RunRequest) -> Result<Call, HostError> {
        self.build_call(|_| Ok(Map::new().into()), run)
    }

    fn build_call(
        &self,
        args: impl Fn(&StepTarget) -> Result<Value, HostError>,
        run: &RunRequest,
    ) -> Result<Call, HostError> {
        let Self { action, step, ready } = self;
        let mut call = Call::new(ready.connector().clone(), step.target.op.as_str(), args(&step.target)?)
            .step_of(&action.reference, &step.id);
        if let Some(required) = action.requires.get(step.target.requirement) {
            call = call.within(Arc::clone(&required.scope));
        }
        if let Some(actor) = &run.actor {
            call = call.actor(actor);
        }
        if let Some(key) = &run.key {
            call = call.idempotency_key(key_of(key, &step.id));
        }
        if !ready.idempotent() {
            call = call.not_idempotent();
        }
        if let Some(timeout) = step.timeout {
            call = call.limits(wall_time(timeout)?);
        }
        if let Some(profile) = ready.retry() {
            call = call.retry(Arc::clone(profile));
        }
        if run.single_attempts {
            call = call.single_attempt();
        }
        // A connector that requests no credential for a service does not get its identity: it would be refused for
        // it.
        for (service, identity) in used(&ready.target, run) {
            call = call.identity(service, identity);
        }
        for (target, found) in step.fallback.iter().zip(ready.fallbacks()) {
            let fallback = build_fallback(action, target, found, args(target)?);
            // A choice that the run made applies to the step's fallbacks, too.
            let chosen = used(found, run).filter(|(service, _)| !ready.target.services().contains(service));
            call = call.or_else(
                chosen.fold(fallback, |fallback, (service, identity)| fallback.identity(service, identity)),
            );
        }
        Ok(call)
    }
}

/// Returns the chosen identities of the services that the connector requests credentials for.
fn used<'r>(target: &'r ReadyTarget, run: &'r RunRequest) -> impl Iterator<Item = (&'r String, &'r String)> {
    run.identities.iter().filter(|(service, _)| target.services().contains(service))
}

/// Checks that every chosen identity is for a service that some step's connector requests credentials for.
///
/// # Errors
/// `validation`: no step does.
pub(super) fn identities_fit(runnable: &CheckedAction, run: &RunRequest) -> Result<(), HostError> {
    let targets =
        || runnable.steps().iter().flat_map(|ready| std::iter::once(&ready.target).chain(ready.fallbacks()));
    let asked = |service: &String| targets().any(|target| target.services().contains(service));
    let Some(service) = run.identities.keys().find(|service| !asked(service)) else { return Ok(()) };
    let message = format!(
        "An identity is chosen for the service `{}`, of which no connector of {} asks for a credential.",
        sanitize_line(service, 64),
        runnable.action().name()
    );
    let mut services: Vec<_> = targets().flat_map(ReadyTarget::services).map(String::as_str).collect();
    services.sort_unstable();
    services.dedup();
    let hint = match services.is_empty() {
        true => "They ask for no credentials at all: leave the choice out.".to_owned(),
        false => format!("They ask for: {}.", services.join(", ")),
    };
    Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint))
}

/// Returns the fallback with these inputs in place of the step's.
fn build_fallback(action: &Action, target: &StepTarget, found: &ReadyTarget, args: Value) -> Fallback {
    let args = if let Value::Object(args) = args { args } else { Map::new() };
    let fallback = Fallback::new(found.connector().clone(), target.op.as_str()).with_args(args);
    match action.requires.get(target.requirement) {
        Some(required) => fallback.within(Arc::clone(&required.scope)),
        None => fallback,
    }
}

/// Returns the key that a step carries if the action was given one.
pub(super) fn key_of(key: &str, step: &str) -> String {
    format!("{key}/{step}")
}

fn unfillable(error: &RenderError) -> HostError {
    HostError::new(HostErrorKind::Validation, format!("Its inputs cannot be filled in: {error}.")).with_hint(
        "Give other arguments, or correct the action's file: `cofferdam run --dry-run` shows what it does.",
    )
}

fn wall_time(longest: Duration) -> Result<LimitRequest, HostError> {
    LimitRequest::parse(None, Some(&format!("{}ms", longest.as_millis())), None)
        .map_err(|error| HostError::new(HostErrorKind::Validation, format!("{error}.")))
}
