//! Records an action in the audit log: the request, each of its steps with its call, and one end.
//!
//! The beginning is durable before the first step runs, and the end before any listener or caller sees it. The
//! entries between are submitted before the step's call is, and the audit log writes in the order of submission. So
//! every call of an action in the audit log is named by its action.

use cofferdam_core::event::recorded::{
    Admitted, CanonicalJson, Ended, Received, RecordedEvent, RecordedLimits,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{
    CallOutcome, CallStatus, CallTarget, KeyClaim, KeyDisposition, KeyScope, OpenOutcome, Part,
};
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::{ACTION_SCHEME, EventKind, Listener};
use cofferdam_core::failpoint;
use cofferdam_core::failure::{AuditId, RecoveryPrompt};
use serde_json::{Map, Value};
use tracing::Span;

use super::idempotency;
use super::idempotency::{KeyDecision, PollBackoff};
use super::kept::{self, Recorded};
use super::on_record::{End, OnRecord, unavailable, verdict};
use super::pipeline::CallPipeline;
use super::redact::{self, FieldRedactor};
use super::report;
use super::report::Report;
use super::request::{OnKeyConflict, actor_name, idempotency_key};
use super::spans;
use super::tell::tell;

/// The operation in an action's row.
const RUN: &str = "run";

/// The state of a running action. If it is dropped without an outcome, it records a cancellation.
pub(crate) struct ActionRecord {
    audit_id: AuditId,
    /// The action, as `name@version`.
    name: Arc<str>,
    file: Digest,
    on_record: OnRecord,
    redactor: FieldRedactor,
    listener: Option<Arc<dyn Listener>>,
    seq: u32,
    steps: u32,
    /// The step that was begun last, until it is over.
    running: Option<Running>,
    begun: u32,
    args: Map<String, Value>,
    key: Option<Arc<str>>,
    replayed: Option<AuditId>,
    /// The number of failed items in the values of its steps, for steps that have any.
    partial: BTreeMap<String, u64>,
    span: Span,
    /// The verdict, once the end is written.
    ended: Option<CallOutcome>,
    operator: Option<Map<String, Value>>,
    /// The question that a person could be asked about the outcome.
    prompt: Option<RecoveryPrompt>,
    told: bool,
}

/// The action to run, and its actor.
pub(crate) struct Asked<'a> {
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
pub(crate) struct Beginning {
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
}

/// A step that begins.
#[derive(Debug, Clone)]
pub(crate) struct Running {
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
pub(crate) struct Closed {
    /// The failure as its operator sees it.
    pub(crate) operator: Option<Map<String, Value>>,
    /// The action whose recorded outcome this is.
    pub(crate) replayed: Option<AuditId>,
    /// The number of failed items in the values of its steps, for steps that have any.
    pub(crate) partial: BTreeMap<String, u64>,
}

impl ActionRecord {
    /// Opens the state for a requested action.
    pub(crate) fn open(pipeline: &CallPipeline, asked: Asked<'_>) -> Self {
        let recording = Arc::clone(&pipeline.recording);
        let actor = asked.actor.map_or_else(|| Arc::clone(&recording.settings().actor), actor_name);
        let audit_id = asked.audit_id.unwrap_or_else(AuditId::mint);
        let (name, steps): (Arc<str>, _) =
            (asked.name.into(), u32::try_from(asked.steps).unwrap_or(u32::MAX));
        let connector: Arc<str> = format!("{ACTION_SCHEME}{name}").into();
        let route = CallTarget {
            connector: Arc::clone(&connector),
            op: RUN.into(),
            action: Some(Arc::clone(&name)),
            step: None,
        };
        let redactor = FieldRedactor::new(recording.settings().field_bytes);
        let clock = Arc::clone(&pipeline.loader.clock);
        let mut record = Self {
            on_record: OnRecord::new(recording, clock, audit_id.clone(), route, actor),
            span: spans::action(&audit_id, &name, steps),
            audit_id,
            name: Arc::clone(&name),
            file: asked.file,
            redactor,
            listener: pipeline.listener.clone(),
            seq: 0,
            steps,
            running: None,
            begun: 0,
            args: Map::new(),
            key: None,
            replayed: None,
            partial: BTreeMap::new(),
            ended: None,
            operator: None,
            prompt: None,
            told: false,
        };
        let actor = Arc::clone(record.on_record.actor());
        record.write_down(RecordedEvent::Received(Received {
            action: Some((&*name).into()),
            actor: (&*actor).into(),
            connector: (&*connector).into(),
            op: RUN.into(),
            ..Received::default()
        }));
        record.tell(EventKind::Received { connector: &connector, op: RUN });
        record
    }

    /// Returns the action's id.
    pub(crate) fn audit_id(&self) -> &AuditId {
        &self.audit_id
    }

    /// Returns the span of the whole action.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Begins the action, and returns when that is durable. Returns the recorded outcome if an earlier action with
    /// the same key has one, and none if the action runs.
    ///
    /// # Errors
    /// The key is not valid, belongs to another action, or stands for an unknown outcome; or nothing can be
    /// recorded.
    pub(crate) async fn begins(
        &mut self,
        pipeline: &CallPipeline,
        with: Beginning,
    ) -> Result<Option<Recorded<Value>>, HostError> {
        pipeline.recording.ready().map_err(unavailable)?;
        self.key = match with.key.as_deref() {
            Some(key) => Some(idempotency_key(Some(key), self.audit_id.text())?),
            None => None,
        };
        // With a key, each step has a key of its own. So the whole action may be requested again.
        self.on_record.idempotent(self.key.is_some());
        if let Some(key) = &self.key {
            let actor = self.on_record.actor();
            let fingerprint = idempotency::action_fingerprint(
                (&self.name, &self.file),
                &with.args,
                &with.identities,
                actor,
            );
            let at = self.on_record.now();
            let steps = with.step_keys.iter().map(|key| Arc::from(key.as_str())).collect();
            let of = KeyScope::Action { action: Arc::clone(&self.name), steps };
            self.on_record.claims(KeyClaim { key: Arc::clone(key), fingerprint, at, of });
        }
        self.args = with.args;
        let mut patience = PollBackoff::with_deadline(with.deadline);
        loop {
            let standing = self.on_record.standing().await?;
            match pipeline.decide_for_key(with.if_running, standing, &mut patience).await? {
                KeyDecision::Recorded { of, mut recorded, .. } => {
                    self.partial = std::mem::take(&mut recorded.partial_steps);
                    self.step(EventKind::Replayed { of: &of });
                    spans::replayed(&self.span, &of);
                    self.replayed = Some(of);
                    return Ok(Some(recorded));
                }
                KeyDecision::PollAgain => {}
                KeyDecision::Own => {
                    if self.admitted(with.allowed).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Records that the action runs. Returns false if another action has taken its key meanwhile.
    async fn admitted(&mut self, allowed: Duration) -> Result<bool, HostError> {
        let allowed = u64::try_from(allowed.as_millis()).unwrap_or(u64::MAX);
        let arguments = serde_json::to_vec(&self.args).unwrap_or_default();
        self.write_down(RecordedEvent::Admitted(Admitted {
            arguments: Some(redact::measured(&arguments)),
            claim: self.on_record.claimed(),
            connector: format!("{ACTION_SCHEME}{}", self.name).into(),
            hash: format!("sha256:{}", self.file).into(),
            idempotency_key: self.key.as_ref().map(|key| self.redactor.text(key).into()),
            idempotent: Some(self.on_record.is_idempotent()),
            limits: RecordedLimits { wall_ms: allowed, ..RecordedLimits::default() },
            steps: Some(self.steps),
            ..Admitted::default()
        }));
        let opened = spans::recording(self.on_record.durable()).await;
        let begun = matches!(opened, Ok(OpenOutcome::Started));
        if !begun {
            self.seq = self.seq.saturating_sub(1);
        }
        opened?;
        Ok(begun)
    }

    /// Records that a step begins. This is submitted to the audit log before the step's call is.
    pub(crate) fn step_starts(&mut self, running: Running) {
        self.begun = self.begun.saturating_add(1);
        let Running { id, call, connector, op, number } = &running;
        let (number, of) = (*number, self.steps);
        self.step(EventKind::StepStarted { step: id, call, connector, op, number, of });
        self.on_record.soon();
        self.running = Some(running);
        failpoint::pass("step.begins");
    }

    /// Records that the step that was begun last is over.
    pub(crate) fn step_ended(&mut self, error: Option<&Error>, report: &Report) {
        self.redactor.add_scanners(&report.secrets);
        if let (Some(running), Some(failed)) = (&self.running, report.partial) {
            self.partial.insert(running.id.to_string(), failed);
        }
        let verdict = match error {
            None => verdict(CallStatus::Value),
            Some(error) => of_error(error),
        };
        self.step_over(&verdict, Some(report));
        failpoint::pass("step.ended");
    }

    fn step_over(&mut self, verdict: &CallOutcome, report: Option<&Report>) {
        let Some(Running { id, call, number, .. }) = self.running.take() else { return };
        let step = EventKind::StepEnded {
            step: &id,
            call: &call,
            outcome: verdict.status.name(),
            class: verdict.class,
            code: verdict.code.as_deref(),
            number,
            of: self.steps,
        };
        let mut event = RecordedEvent::from(step);
        if let (RecordedEvent::StepEnded(facts), Some(report)) = (&mut event, report) {
            facts.attempts = Some(u32::try_from(report.attempts.len()).unwrap_or(u32::MAX));
            facts.may_have_sent = Some(report.may_have_sent());
            facts.replayed = report.replayed.as_ref().map(|of| of.as_str().into());
        }
        self.write_down(event);
        self.tell(step);
    }

    fn step(&mut self, step: EventKind<'_>) {
        self.write_down(step.into());
        self.tell(step);
    }

    fn write_down(&mut self, event: RecordedEvent<'_>) {
        self.seq = self.seq.saturating_add(1);
        self.on_record.event(self.seq, event);
    }

    fn tell(&self, step: EventKind<'_>) {
        tell(&self.audit_id, self.seq, self.listener.as_deref(), step);
    }

    /// Writes the end, and returns the outcome once that is durable.
    pub(crate) async fn close(mut self, outcome: Result<Value, Error>) -> (Result<Value, Error>, Closed) {
        let (mut facts, mut sealed) = (Ended::default(), None);
        match &self.replayed {
            Some(of) => facts.replayed = Some(of.to_string().into()),
            None => {
                let whole = kept::outcome_of_action(&outcome, self.partial.clone());
                facts.result = Some(self.redactor.recorded_outcome(whole.payload(), outcome.is_ok()));
                // The arguments are redacted only now, when the secrets of the calls are known.
                let args = serde_json::to_vec(&self.args).unwrap_or_default();
                facts.arguments = Some(self.redactor.recorded(&args));
                sealed = self.on_record.sealed(Part::Outcome, whole.text).ok().flatten();
            }
        }
        let (verdict, key) = match &outcome {
            // The action's own key is released. Each step's key decides whether that step may be repeated.
            Err(error) => {
                let mut view = report::error_view(error, &self.redactor);
                view.insert("actor".to_owned(), (**self.on_record.actor()).into());
                view.insert("at".to_owned(), self.on_record.now().to_string().into());
                self.operator = Some(view.clone());
                self.prompt = error.prompt();
                facts.failure = CanonicalJson::new(&view);
                (of_error(error), KeyDisposition::Release)
            }
            Ok(_) if self.begun == 0 => (verdict(CallStatus::Value), KeyDisposition::Release),
            Ok(_) => (verdict(CallStatus::Value), KeyDisposition::Retain(self.on_record.key_stands_until())),
        };
        self.write_end(&verdict, key, facts);
        let end = End { attempts: self.begun, verdict: verdict.clone(), key, outcome: sealed };
        let closed = match &outcome {
            // Nothing was done, so the error is returned even if it cannot be recorded.
            Err(_) if self.begun == 0 => spans::recording(self.on_record.close_once(end)).await.or(Ok(())),
            _ => spans::recording(self.on_record.close(end)).await,
        };
        spans::called(&self.span, self.begun, &verdict, closed.as_ref().err());
        // Listeners are notified of the caller's result, and only after it is durable.
        let closed = closed.map_err(|error| error.with_request_id(&self.audit_id));
        match &closed {
            Ok(()) => self.told(&verdict),
            Err(error) => {
                let code = Some(error.kind().code().into());
                self.told(&CallOutcome { code, ..super::on_record::verdict(CallStatus::Refused) });
            }
        }
        let also = Closed {
            operator: self.operator.take(),
            replayed: self.replayed.take(),
            partial: std::mem::take(&mut self.partial),
        };
        (closed.map_err(Error::from).and(outcome), also)
    }

    /// Writes the events of the end.
    fn write_end(&mut self, verdict: &CallOutcome, key: KeyDisposition, facts: Ended<'_>) {
        self.write_down(RecordedEvent::Final(Ended {
            attempts: Some(self.begun),
            class: verdict.class.map(Cow::from),
            code: verdict.code.as_deref().map(Cow::from),
            key_end: self.on_record.claimed().map(|_| idempotency::recorded_key_end(key)),
            prompt: self.prompt.map(|prompt| prompt.name().into()),
            status: verdict.status.name().into(),
            ..facts
        }));
        self.ended = Some(verdict.clone());
    }

    /// Notifies the log and the listener of the end, once.
    fn told(&mut self, verdict: &CallOutcome) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let (outcome, class, code) = (verdict.status.name(), verdict.class, verdict.code.as_deref());
        self.tell(EventKind::Final { outcome, class, code, prompt: self.prompt });
        tracing::info!(
            target: "cofferdam::record",
            audit_id = self.audit_id.as_str(),
            action = &*self.name,
            steps = self.begun,
            outcome,
            class,
            code,
            "action"
        );
    }
}

impl Drop for ActionRecord {
    fn drop(&mut self) {
        if self.told {
            return;
        }
        let verdict = match self.ended.take() {
            // The end was requested already, and its waiter was dropped.
            Some(verdict) => verdict,
            None => {
                let verdict = verdict(CallStatus::Cancelled);
                self.step_over(&verdict, None);
                self.write_end(&verdict, KeyDisposition::Release, Ended::default());
                verdict
            }
        };
        self.told(&verdict);
        spans::called(&self.span, self.begun, &verdict, None);
        self.on_record.abandon(End {
            attempts: self.begun,
            verdict,
            key: KeyDisposition::Release,
            outcome: None,
        });
    }
}

/// Returns the verdict for this error.
fn of_error(error: &Error) -> CallOutcome {
    match error {
        Error::Failure(failure) => CallOutcome {
            class: Some(failure.class().name()),
            code: Some(failure.code().into()),
            ..verdict(CallStatus::Failure)
        },
        Error::Host(error) => {
            let status = match error.kind() {
                HostErrorKind::Cancelled => CallStatus::Cancelled,
                _ => CallStatus::Refused,
            };
            CallOutcome { code: Some(error.kind().code().into()), ..verdict(status) }
        }
    }
}
