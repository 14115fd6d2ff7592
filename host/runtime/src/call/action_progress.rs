//! Tracks a running action: its key, its steps and its end.
//!
//! The beginning is durable before the first step runs, and the end before any listener or caller sees it. The
//! entries between are submitted before the step's call is, and the audit log writes in the order of submission. So
//! every call of an action in the audit log is named by its action.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::approvals::{Approval, ApprovalBinding};
use cofferdam_audit::{CallOutcome, CallTarget, KeyClaim, KeyDisposition, KeyScope, OpenOutcome};
use cofferdam_core::clock::millis;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError};
use cofferdam_core::event::recorded::{Admitted, RecordedEvent, RecordedLimits};
use cofferdam_core::event::{ACTION_SCHEME, EventKind};
use cofferdam_core::failpoint;
use cofferdam_core::failure::{AuditId, RecoveryPrompt};
use cofferdam_core::secret::Scanner;
use cofferdam_model::manifest::OperationEffect;
use serde_json::{Map, Value};
use tracing::Span;

use super::approval;
use super::idempotency::{self, KeyDecision, PollBackoff};
use super::pipeline::CallPipeline;
use super::recorder::{CallEnd, CallRecorder, outcome_of, unavailable};
use super::redact;
use super::report::Report;
use super::request::{OnKeyConflict, actor_name, idempotency_key};
use super::sealed_payload::{self, RecordedOutcome};
use super::spans;

/// The operation in an action's row.
const RUN: &str = "run";

/// The state of a running action. If it is dropped without an outcome, a cancellation is recorded.
pub(crate) struct ActionProgress {
    recorder: CallRecorder,
    /// The action, as `name@version`.
    name: Arc<str>,
    file: Digest,
    steps: u32,
    /// The step that was begun last, until it is over.
    running: Option<StepStart>,
    begun: u32,
    args: Map<String, Value>,
    key: Option<Arc<str>>,
    replayed: Option<AuditId>,
    /// The number of failed items in the values of its steps, for steps that have any.
    partial: BTreeMap<String, u64>,
    /// The question that a person could be asked about the outcome.
    prompt: Option<RecoveryPrompt>,
}

/// The action to run, and its actor.
pub(crate) struct ActionIdentity<'a> {
    /// The action's id, if its caller had to know it beforehand.
    pub(crate) audit_id: Option<AuditId>,
    /// The action, as `name@version`.
    pub(crate) name: &'a str,
    /// The SHA-256 of its file.
    pub(crate) file: Digest,
    /// The actor. None: the host's own actor.
    pub(crate) actor: Option<&'a str>,
    /// The number of steps.
    pub(crate) steps: usize,
}

/// The parameters that an action begins with.
pub(crate) struct ActionStart {
    /// The arguments, defaults included.
    pub(crate) args: Map<String, Value>,
    /// The identity that its caller chose for each service.
    pub(crate) identities: BTreeMap<String, String>,
    /// The idempotency key that its caller gave.
    pub(crate) key: Option<String>,
    /// The keys that its steps carry if the caller gave one.
    pub(crate) step_keys: Vec<String>,
    /// The behavior if an action with the same key is still running.
    pub(crate) if_running: OnKeyConflict,
    /// The longest time that it may take.
    pub(crate) allowed: Duration,
    /// The time at which it has to end.
    pub(crate) deadline: Instant,
    /// The approval that it needs, if it needs one.
    pub(crate) approval: Option<ActionApproval>,
}

/// The facts about an action that a person has to approve.
pub(crate) struct ActionApproval {
    /// The operations that ask, each as `name@version operation`.
    pub(crate) operations: Vec<String>,
    /// The SHA-256 of the package of each step and fallback, in order.
    pub(crate) packages: Vec<String>,
    /// The effect of the whole action.
    pub(crate) effect: Option<OperationEffect>,
    /// True if the caller is an agent.
    pub(crate) is_by_agent: bool,
    /// The scanners for the secrets that the calls of its steps could carry, which are not shown to the person.
    pub(crate) scanners: Vec<Arc<Scanner>>,
}

/// A step that begins.
#[derive(Debug, Clone)]
pub(crate) struct StepStart {
    /// The step's id in the action.
    pub(crate) id: Arc<str>,
    /// The audit id of its call.
    pub(crate) call: AuditId,
    /// The connector, as `name@version`.
    pub(crate) connector: Arc<str>,
    /// The operation.
    pub(crate) op: Arc<str>,
    /// The number of the step, from 1.
    pub(crate) number: u32,
}

/// Further results of an action that is over.
pub(crate) struct ActionEnd {
    /// The failure as its operator sees it.
    pub(crate) operator: Option<Map<String, Value>>,
    /// The action whose recorded outcome this is.
    pub(crate) replayed: Option<AuditId>,
    /// The number of failed items in the values of its steps, for steps that have any.
    pub(crate) partial: BTreeMap<String, u64>,
}

impl ActionProgress {
    /// Records that an action was requested.
    pub(crate) fn open(pipeline: &CallPipeline, action: ActionIdentity<'_>) -> Self {
        let settings = pipeline.audit.settings();
        let actor = action.actor.map_or_else(|| Arc::clone(&settings.actor), actor_name);
        let audit_id = action.audit_id.unwrap_or_else(AuditId::mint);
        let (name, steps): (Arc<str>, _) =
            (action.name.into(), u32::try_from(action.steps).unwrap_or(u32::MAX));
        let target = CallTarget {
            connector: format!("{ACTION_SCHEME}{name}").into(),
            op: RUN.into(),
            action: Some(Arc::clone(&name)),
            step: None,
        };
        let span = spans::action(&audit_id, &name, steps);
        Self {
            recorder: CallRecorder::open(pipeline, audit_id, target, actor, None, span),
            name,
            file: action.file,
            steps,
            running: None,
            begun: 0,
            args: Map::new(),
            key: None,
            replayed: None,
            partial: BTreeMap::new(),
            prompt: None,
        }
    }

    /// Returns the action's id.
    pub(crate) fn audit_id(&self) -> &AuditId {
        &self.recorder.audit_id
    }

    /// Returns the span of the whole action.
    pub(crate) fn span(&self) -> Span {
        self.recorder.span.clone()
    }

    /// Begins the action, and returns when that is durable. Returns the recorded outcome if an earlier action with
    /// the same key has one, and none if the action runs.
    ///
    /// # Errors
    /// The key is not valid, belongs to another action, or stands for an unknown outcome; or nothing can be
    /// recorded.
    pub(crate) async fn begin(
        &mut self,
        pipeline: &CallPipeline,
        start: ActionStart,
    ) -> Result<Option<RecordedOutcome<Value>>, HostError> {
        pipeline.audit.ready().map_err(unavailable)?;
        self.key = match start.key.as_deref() {
            Some(key) => Some(idempotency_key(Some(key), self.recorder.audit_id.text())?),
            None => None,
        };
        // With a key, each step has a key of its own. So the whole action may be requested again.
        self.recorder.idempotent = self.key.is_some();
        let fingerprint = || {
            let (file, actor) = ((&*self.name, &self.file), &self.recorder.actor);
            idempotency::action_fingerprint(file, &start.args, &start.identities, actor)
        };
        let mut approval = start.approval.map(|approval| (approval, fingerprint()));
        if let Some(key) = &self.key {
            let fingerprint = fingerprint();
            let at = self.recorder.now();
            let steps = start.step_keys.iter().map(|key| Arc::from(key.as_str())).collect();
            let of = KeyScope::Action { action: Arc::clone(&self.name), steps };
            self.recorder.claim = Some(KeyClaim { key: Arc::clone(key), fingerprint, at, of });
        }
        self.args = start.args;
        let mut backoff = PollBackoff::with_deadline(start.deadline);
        loop {
            let state = self.recorder.key_state().await?;
            match pipeline.decide_for_key(start.if_running, state, &mut backoff).await? {
                KeyDecision::Recorded { of, mut recorded, .. } => {
                    self.partial = std::mem::take(&mut recorded.partial_steps);
                    self.recorder.step(EventKind::Replayed { of: &of });
                    spans::replayed(&self.recorder.span, &of);
                    self.replayed = Some(of);
                    return Ok(Some(recorded));
                }
                KeyDecision::PollAgain => {}
                KeyDecision::Own => {
                    if let Some((needed, fingerprint)) = &approval {
                        if !self.approved(pipeline, needed, fingerprint).await? {
                            continue;
                        }
                        approval = None;
                    }
                    if self.admitted(start.allowed).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Uses the approval of a person for the action. Returns false if another action has taken its key meanwhile.
    async fn approved(
        &mut self,
        pipeline: &CallPipeline,
        needed: &ActionApproval,
        fingerprint: &[u8; 32],
    ) -> Result<bool, HostError> {
        let packages: Vec<&str> = needed.packages.iter().map(String::as_str).collect();
        let binding = ApprovalBinding::new(fingerprint, &packages, 0, self.key.as_deref());
        let recorder = &mut self.recorder;
        needed.scanners.iter().for_each(|scanner| recorder.redactor.add_scanner(Arc::clone(scanner)));
        let arguments = serde_json::to_vec(&self.args).unwrap_or_default();
        let connector = format!("{ACTION_SCHEME}{}", self.name);
        let approval = Approval {
            agent: needed.is_by_agent,
            operations: needed.operations.clone(),
            effect: needed.effect.map(|effect| effect.name().to_owned()),
            hash: format!("sha256:{}", self.file),
            idempotency_key: self.key.as_ref().map(|key| recorder.redactor.text(key)),
            arguments: approval::shown(recorder.redactor.recorded(&arguments)),
            ..Approval::new(&connector, RUN, &recorder.actor, &recorder.audit_id)
        };
        let asked = approval.clone();
        let verdict = pipeline.approvals.request(approval, binding, &recorder.audit_id).await?;
        recorder.apply_verdict(verdict, &asked, false).await
    }

    /// Returns the actor.
    pub(crate) fn actor(&self) -> &str {
        &self.recorder.actor
    }

    /// Records that the action runs. Returns false if another action has taken its key meanwhile.
    async fn admitted(&mut self, allowed: Duration) -> Result<bool, HostError> {
        let arguments = serde_json::to_vec(&self.args).unwrap_or_default();
        let recorder = &mut self.recorder;
        recorder.write(RecordedEvent::Admitted(Admitted {
            arguments: Some(redact::measured(&arguments)),
            claim: recorder.recorded_claim(),
            hash: format!("sha256:{}", self.file).into(),
            idempotency_key: self.key.as_ref().map(|key| recorder.redactor.text(key).into()),
            limits: RecordedLimits { wall_ms: millis(allowed), ..RecordedLimits::default() },
            steps: Some(self.steps),
            ..Admitted::default()
        }));
        Ok(matches!(recorder.commit().await?, OpenOutcome::Started))
    }

    /// Records that a step begins. This is submitted to the audit log before the step's call is.
    pub(crate) fn step_starts(&mut self, start: StepStart) {
        self.begun = self.begun.saturating_add(1);
        let StepStart { id, call, connector, op, number } = &start;
        let (number, of) = (*number, self.steps);
        self.recorder.step(EventKind::StepStarted { step: id, call, connector, op, number, of });
        self.recorder.submit();
        self.running = Some(start);
        failpoint::pass("step.begins");
    }

    /// Records that the step that was begun last is over.
    pub(crate) fn step_ended(&mut self, error: Option<&Error>, report: &Report) {
        self.recorder.redactor.add_scanners(&report.secrets);
        if let (Some(running), Some(failed)) = (&self.running, report.partial) {
            self.partial.insert(running.id.to_string(), failed);
        }
        self.step_over(&outcome_of(error), Some(report));
        failpoint::pass("step.ended");
    }

    fn step_over(&mut self, outcome: &CallOutcome, report: Option<&Report>) {
        let Some(StepStart { id, call, number, .. }) = self.running.take() else { return };
        let step = EventKind::StepEnded {
            step: &id,
            call: &call,
            outcome: outcome.status.name(),
            class: outcome.class,
            code: outcome.code.as_deref(),
            number,
            of: self.steps,
        };
        let mut event = RecordedEvent::from(step);
        if let (RecordedEvent::StepEnded(facts), Some(report)) = (&mut event, report) {
            facts.attempts = Some(u32::try_from(report.attempts.len()).unwrap_or(u32::MAX));
            facts.may_have_sent = Some(report.may_have_sent());
            facts.replayed = report.replayed.as_ref().map(|of| of.as_str().into());
        }
        self.recorder.write(event);
        self.recorder.notify(step);
    }

    /// Writes the end, and returns the outcome once that is durable.
    pub(crate) async fn close(mut self, outcome: Result<Value, Error>) -> (Result<Value, Error>, ActionEnd) {
        let key = match &outcome {
            Ok(_) if self.begun > 0 => KeyDisposition::Retain(self.recorder.key_expiry()),
            // The action's own key is released. Each step's key decides whether that step may be repeated.
            _ => KeyDisposition::Release,
        };
        let (mut end, operator) = self.recorder.end(&outcome, self.begun, key, None);
        match &self.replayed {
            Some(of) => end.facts.replayed = Some(of.to_string().into()),
            None => {
                let payload = sealed_payload::outcome(&outcome, None, self.partial.clone());
                self.recorder.add_result(&mut end, payload);
                // The arguments are redacted only now, when the secrets of the calls are known.
                let args = serde_json::to_vec(&self.args).unwrap_or_default();
                end.facts.arguments = Some(self.recorder.redactor.recorded(&args));
            }
        }
        self.prompt = outcome.as_ref().err().and_then(Error::prompt);
        let (closed, notified) = self.recorder.close(end).await;
        self.notify_end(&notified);
        let (replayed, partial) = (self.replayed.take(), std::mem::take(&mut self.partial));
        (closed.map_err(Error::from).and(outcome), ActionEnd { operator, replayed, partial })
    }

    /// Notifies the log and the listener of the end.
    fn notify_end(&mut self, outcome: &CallOutcome) {
        self.recorder.notify_end(outcome, self.prompt);
        tracing::info!(
            target: "cofferdam::record",
            audit_id = self.recorder.audit_id.as_str(),
            action = &*self.name,
            steps = self.begun,
            outcome = outcome.status.name(),
            class = outcome.class,
            code = outcome.code.as_deref(),
            "action"
        );
    }
}

impl Drop for ActionProgress {
    fn drop(&mut self) {
        if self.recorder.is_over {
            return;
        }
        let mut end = CallEnd::cancelled(self.begun, KeyDisposition::Release, None);
        self.step_over(&end.outcome, None);
        self.recorder.cancel(&mut end);
        self.notify_end(&end.outcome);
        self.recorder.abandon(end);
    }
}
