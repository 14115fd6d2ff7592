//! What is known of a call while it runs: an event for each step, for the record, the log and whoever listens, and its
//! report.
//!
//! The log's targets are `cofferdam::event` (each step) and `cofferdam::record` (the end). What they say has what the
//! envelope must not have (operator notes), and neither arguments nor results.

mod repeats;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{CallStatus, KeyEnd, Opened, Part, Standing, Verdict};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::{Listener, Step};
use cofferdam_core::failure::{AuditId, Prompt, RepeatRule};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_sandbox::{Answer, Ended, Suppressed, UnkeyedWatch};
use serde_json::{Map, Value, json};
use tracing::{Instrument as _, Span};

use super::kept;
use super::key_end;
use super::on_record::{End, OnRecord, verdict};
use super::operator_view;
use super::redact::Redactor;
use super::report::{AttemptOutcome, AttemptReport, Report};
use super::spans;
use super::tell::{self, Who, tell};
use super::told::AdmittedFacts;

/// What is known of a call while it runs; dropped without an outcome it records a cancellation.
pub(super) struct Record {
    connector: Arc<str>,
    op: Arc<str>,
    on_record: OnRecord,
    hash: Option<Arc<str>>,
    signer: Option<Arc<str>>,
    listener: Option<Arc<dyn Listener>>,
    seq: u32,
    /// Since when the call waits, and how long it means to.
    wait: Option<(Instant, Duration)>,
    report: Option<Report>,
    /// The span of the whole call.
    span: Span,
    /// Whether any request of any attempt may have left.
    sent: bool,
    /// Whether the operation of the last attempt may be repeated, and what watches that attempt's requests for it.
    repeat: (RepeatRule, Option<Arc<UnkeyedWatch>>),
    /// Whether the last attempt's guest returned while a request was under way that may have changed something.
    left_unsafe: bool,
    redactor: Redactor,
    /// Where the call's key was claimed and another call has it: how it stands.
    taken: Option<Standing>,
    /// How the call ended, once that is written down.
    ended: Option<Verdict>,
    /// What the last attempt took before it began, in microseconds.
    before: Vec<(&'static str, u64)>,
}

impl Record {
    pub(super) fn open(
        audit_id: AuditId,
        (connector, op): (Arc<str>, Arc<str>),
        parent: Option<&AuditId>,
        on_record: OnRecord,
        listener: Option<Arc<dyn Listener>>,
    ) -> Self {
        let span = spans::call(&audit_id, &connector, &op);
        let (own, report) = ((Arc::clone(&connector), Arc::clone(&op)), Report::new(audit_id));
        let redactor = Redactor::new(on_record.recording().settings().field_bytes);
        let mut record = Self {
            connector,
            op,
            on_record,
            hash: None,
            signer: None,
            listener,
            seq: 0,
            wait: None,
            report: Some(report),
            span,
            sent: false,
            repeat: (RepeatRule::Always, None),
            left_unsafe: false,
            redactor,
            taken: None,
            ended: None,
            before: Vec::new(),
        };
        let route = record.on_record.route();
        let mut more = Map::from_iter([("actor".to_owned(), (**record.on_record.actor()).into())]);
        for (name, text) in [("action", &route.action), ("step", &route.step)] {
            more.extend(text.as_ref().map(|text| (name.to_owned(), (**text).into())));
        }
        more.extend(parent.map(|action| ("parent".to_owned(), action.as_str().into())));
        record.step_with(Step::Received { connector: &own.0, op: &own.1 }, more);
        record
    }

    /// The call's place in the record.
    pub(super) fn on_record(&mut self) -> &mut OnRecord {
        &mut self.on_record
    }

    /// What takes secrets out of what is recorded.
    pub(super) fn redactor(&mut self) -> &mut Redactor {
        &mut self.redactor
    }

    /// How the call's key stands, where it turned out to be another's as the first attempt was to begin.
    pub(super) fn taken(&mut self) -> Option<Standing> {
        self.taken.take()
    }

    /// The outcome will be the recorded one of that call.
    pub(super) fn replays(&mut self, of: AuditId, idempotent: bool, partial: Option<u64>) {
        self.on_record.idempotent(idempotent);
        let more = Map::from_iter([("idempotent".to_owned(), idempotent.into())]);
        self.step_with(Step::Replayed { of: &of }, more);
        spans::replayed(&self.span, &of);
        if let Some(report) = &mut self.report {
            (report.replayed, report.partial) = (Some(of), partial);
        }
    }

    /// What passed before the next attempt, and how long it took.
    pub(super) fn took(&mut self, what: &'static str, since: Instant, now: Instant) {
        let micros = now.saturating_duration_since(since).as_micros();
        self.before.push((what, u64::try_from(micros).unwrap_or(u64::MAX)));
    }

    /// A candidate was admitted.
    ///
    /// # Errors
    /// What is kept of the call cannot be sealed.
    pub(super) fn admitted(&mut self, step: Step<'_>, facts: AdmittedFacts<'_>) -> Result<(), HostError> {
        let AdmittedFacts { version, bindings, limits, key, key_given, request } = facts;
        let carried = self.redactor.text(key);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let limits = json!({
            "fuel": limits.fuel(),
            "wall_ms": millis(limits.wall_time()),
            "attempt_ms": millis(limits.attempt_time()),
            "memory_bytes": limits.memory(),
        });
        let mut more = Map::from_iter([
            ("version".to_owned(), version.to_string().into()),
            ("bindings".to_owned(), bindings.into()),
            ("limits".to_owned(), limits),
            ("idempotency_key".to_owned(), carried.into()),
            ("key".to_owned(), if key_given { "given" } else { "minted" }.into()),
        ]);
        more.extend(self.on_record.claimed().map(|claim| ("claim".to_owned(), claim)));
        if let Some(request) = request {
            more.insert("arguments".to_owned(), self.shown(request.payload()).into());
            self.on_record.keeps(request.text)?;
        }
        self.step_with(step, more);
        Ok(())
    }

    /// A payload as the record shows it.
    fn shown(&self, payload: &[u8]) -> Map<String, Value> {
        let mut shown = kept::measured(payload);
        shown.extend(self.redactor.payload(payload).map(|text| ("text".to_owned(), text.into())));
        shown
    }

    /// The span of the whole call.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn identified(&mut self, hash: Arc<str>, signer: Option<Arc<str>>) {
        self.hash = Some(hash);
        self.signer = signer;
    }

    pub(super) fn keyed(&mut self, key: &Arc<str>) {
        if let Some(report) = &mut self.report {
            report.idempotency_key = Some(Arc::clone(key));
        }
    }

    /// The attempts that were begun.
    pub(super) fn attempts(&self) -> usize {
        self.report.as_ref().map_or(0, |report| report.attempts.len())
    }

    /// How many attempts of this candidate were begun, and whether any byte of theirs may have left.
    pub(super) fn attempts_of(&self, candidate: u32) -> (usize, bool) {
        let all = self.report.iter().flat_map(|report| &report.attempts);
        let own = all.filter(|attempt| attempt.candidate == candidate);
        // Of an attempt without a failure's own word it is not known.
        own.fold((0, false), |(attempts, sent), attempt| match &attempt.outcome {
            Some(AttemptOutcome::Failure { request_sent, .. }) => (attempts + 1, sent || *request_sent),
            _ => (attempts + 1, true),
        })
    }

    /// Puts on record that an attempt begins; it may, once this comes back.
    ///
    /// # Errors
    /// It could not be written: the attempt must not be made.
    pub(super) async fn attempt_starts(
        &mut self,
        connector: &Arc<str>,
        op: &Arc<str>,
        candidate: u32,
        profile: &Arc<str>,
        (repeat, strictest): (RepeatRule, RepeatRule),
    ) -> Result<(), HostError> {
        let attempt = self.number().saturating_add(1);
        let step = Step::AttemptStarted { connector, op, candidate, attempt };
        // What an attempt sends that is cut short is not known: only what may be repeated whatever it sent is idempotent.
        self.on_record.idempotent(repeat.max(strictest) == RepeatRule::Always);
        self.repeat = (repeat, None);
        self.write_down(step, Map::new());
        let durable = spans::recording(self.on_record.durable()).await;
        if durable.is_err() {
            self.seq = self.seq.saturating_sub(1);
        }
        match durable? {
            Opened::Begun => {}
            Opened::Taken(standing) => {
                self.seq = self.seq.saturating_sub(1);
                self.taken = Some(standing);
                return Err(HostError::new(HostErrorKind::InProgress, "The idempotency key is taken."));
            }
            Opened::Decided => {
                self.seq = self.seq.saturating_sub(1);
                let message =
                    "The call that was to be done again was decided about meanwhile. Nothing was run.";
                return Err(HostError::new(HostErrorKind::Conflict, message));
            }
        }
        self.tell(step);
        if let Some(report) = &mut self.report {
            report.attempts.push(AttemptReport {
                connector: Arc::clone(connector),
                op: Arc::clone(op),
                candidate,
                profile: Arc::clone(profile),
                outcome: None,
                usage: None,
                aborted_on_return: Vec::new(),
                waited_ms: None,
                unkeyed: None,
            });
        }
        Ok(())
    }

    pub(super) fn attempt_ended<A>(&mut self, connector: &str, ended: &Ended<A>) {
        let failure = match &ended.outcome {
            Err(Error::Failure(failure)) => Some(failure),
            _ => None,
        };
        if let Some(attempt) = self.report.as_mut().and_then(|report| report.attempts.last_mut()) {
            attempt.usage = Some(ended.usage);
            attempt.unkeyed.clone_from(&ended.unkeyed);
            attempt.aborted_on_return.clone_from(&ended.aborted_on_return);
            attempt.outcome = Some(match &ended.outcome {
                Ok(_) => AttemptOutcome::Value,
                Err(Error::Failure(failure)) => AttemptOutcome::Failure {
                    class: failure.class(),
                    code: failure.code().to_owned(),
                    cause: failure.cause(),
                    request_sent: ended.request_sent,
                },
                Err(Error::Host(error)) => AttemptOutcome::Refused { code: error.kind().code() },
            });
        }
        for Suppressed { at, by, reason, cause } in &ended.suppressed {
            self.step(Step::Suppressed { at: *at, by: *by, reason, cause });
        }
        if let Some(report) = &mut self.report {
            report.partial = ended.missing();
        }
        self.sent |= ended.request_sent;
        self.left_unsafe = ended.aborted_on_return.iter().any(|request| request.unsafe_sent);
        let attempt = self.number();
        let mut more = Map::from_iter([("phases".to_owned(), self.phases(ended).into())]);
        if let Err(error) = &ended.outcome {
            more.insert("failure".to_owned(), operator_view::of(error, &self.redactor).into());
        }
        more.insert("request_sent".to_owned(), ended.request_sent.into());
        more.extend(ended.unkeyed.as_ref().map(|unkeyed| ("unkeyed".to_owned(), json!(unkeyed))));
        if !ended.aborted_on_return.is_empty() {
            more.insert("aborted_on_return".to_owned(), json!(ended.aborted_on_return));
        }
        let refused = match &ended.outcome {
            Err(Error::Host(error)) => Some(error.kind().code()),
            _ => None,
        };
        let usage = &ended.usage;
        self.step_with(Step::AttemptEnded { connector, attempt, failure, refused, usage }, more);
    }

    fn phases<A>(&mut self, ended: &Ended<A>) -> Map<String, Value> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let guest = ended.usage.wall_time.saturating_sub(ended.instantiated_after);
        let within = [("instantiate_us", micros(ended.instantiated_after)), ("guest_us", micros(guest))];
        self.before.drain(..).chain(within).map(|(name, us)| (name.to_owned(), us.into())).collect()
    }

    /// The call waits after its last attempt, from now on and so long, unless it is cancelled. Whatever happens
    /// meanwhile, what came before is on record.
    pub(super) fn waits(&mut self, now: Instant, delay: Duration, step: Step<'_>, more: Map<String, Value>) {
        self.wait = Some((now, delay));
        self.step_with(step, more);
        self.on_record.soon();
    }

    /// The wait is over, if there is one.
    pub(super) fn waited(&mut self, now: Instant) {
        let Some((since, delay)) = self.wait.take() else { return };
        let waited = now.saturating_duration_since(since).min(delay);
        if let Some(attempt) = self.report.as_mut().and_then(|report| report.attempts.last_mut()) {
            attempt.waited_ms = Some(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        }
    }

    /// One more step.
    pub(super) fn step(&mut self, step: Step<'_>) {
        self.step_with(step, Map::new());
    }

    /// One more step, with what the record alone says of it.
    pub(super) fn step_with(&mut self, step: Step<'_>, more: Map<String, Value>) {
        self.write_down(step, more);
        self.tell(step);
    }

    fn write_down(&mut self, step: Step<'_>, more: Map<String, Value>) {
        self.seq = self.seq.saturating_add(1);
        let mut facts = step.facts();
        if let Step::Suppressed { .. } = step {
            facts = self.redactor.fields(&facts);
        }
        facts.extend(more);
        self.on_record.event(self.seq, step.name(), facts);
    }

    fn tell(&self, step: Step<'_>) {
        if let Some(report) = &self.report {
            tell(&report.audit_id, self.seq, self.listener.as_deref(), step);
        }
    }

    /// Writes the end, and gives the outcome back with the report beside it once that is durable.
    pub(super) async fn close<A: Answer>(mut self, outcome: Result<A, Error>) -> (Result<A, Error>, Report) {
        // An envelope speaks of the call: what the last attempt did not send, one before it may have.
        let outcome = outcome.map_err(|error| match error {
            Error::Failure(failure) if self.attempts() > 0 => failure.with_request_sent(self.sent).into(),
            error => error,
        });
        let (partial, replayed) =
            self.report.as_ref().map_or((None, None), |report| (report.partial, report.replayed.clone()));
        let (mut more, mut sealed) = (Map::new(), None);
        match replayed {
            // What it is stands at the call that it is of.
            Some(of) => {
                more.insert("replayed".to_owned(), of.as_str().into());
            }
            None => {
                let whole = kept::outcome(&outcome, partial);
                let mut shown = self.shown(whole.payload());
                // What a failure says is shown whole, below.
                if outcome.is_err() {
                    shown.remove("text");
                }
                more.insert("result".to_owned(), shown.into());
                // What a call that was not admitted gets is told, seal or no seal.
                sealed = self.on_record.sealed(Part::Outcome, whole.text).ok().flatten();
            }
        }
        let (attempts, key) = (self.number(), self.done().key(&outcome));
        let verdict = match &outcome {
            Ok(_) => self.write(CallStatus::Value, None, None, None, key, more),
            Err(error) => {
                let mut view = operator_view::of(error, &self.redactor);
                let retried = self.report.as_ref().map_or(0, Report::retried);
                view.insert("retried".to_owned(), retried.into());
                view.insert("actor".to_owned(), (**self.on_record.actor()).into());
                view.insert("at".to_owned(), self.on_record.now().to_string().into());
                if let Some(report) = &mut self.report {
                    report.operator = Some(view.clone());
                }
                more.insert("failure".to_owned(), view.into());
                self.write_error(error, key, more)
            }
        };
        let told = verdict.clone();
        let end = End { attempts, verdict, key, outcome: sealed };
        let span = self.span.clone();
        let closed = match &outcome {
            // Nothing was done: why not is told, whatever becomes of the record.
            Err(_) if attempts == 0 => {
                let told = spans::recording(self.on_record.close_once(end)).instrument(span).await;
                told.or(Ok(()))
            }
            _ => spans::recording(self.on_record.close(end)).instrument(span).await,
        };
        spans::called(&self.span, attempts, &told, closed.as_ref().err());
        // Whoever listens hears what the caller hears, and no sooner than it is on record.
        match &closed {
            Ok(()) => self.told(&told, outcome.as_ref().err()),
            Err(error) => {
                let refused = Verdict {
                    code: Some(error.kind().code().into()),
                    ..super::on_record::verdict(CallStatus::Refused)
                };
                self.told(&refused, None);
            }
        }
        let mut report = self.report.take().unwrap_or_else(|| Report::new(AuditId::mint()));
        report.secrets = self.redactor.known();
        // What is not on record nobody is told.
        (closed.map_err(Error::from).and(outcome), report)
    }

    fn write_error(&mut self, error: &Error, key: KeyEnd, more: Map<String, Value>) -> Verdict {
        let prompt = error.prompt();
        match error {
            Error::Failure(failure) => {
                let class = Some(failure.class().name());
                self.write(CallStatus::Failure, class, Some(failure.code()), prompt, key, more)
            }
            Error::Host(error) => {
                if error.kind() == HostErrorKind::OpNotFound {
                    self.on_record.has_no_operation();
                }
                let status = match error.kind() {
                    HostErrorKind::Cancelled => CallStatus::Cancelled,
                    _ => CallStatus::Refused,
                };
                self.write(status, None, Some(error.kind().code()), prompt, key, more)
            }
        }
    }

    fn number(&self) -> u32 {
        u32::try_from(self.attempts()).unwrap_or(u32::MAX)
    }

    /// Writes down how the call ended.
    fn write(
        &mut self,
        status: CallStatus,
        class: Option<&'static str>,
        code: Option<&str>,
        prompt: Option<Prompt>,
        key: KeyEnd,
        mut more: Map<String, Value>,
    ) -> Verdict {
        if let Some(report) = &self.report {
            more.insert("attempts".to_owned(), report.attempts.len().into());
            more.insert("retried".to_owned(), report.retried().into());
        }
        if self.on_record.claimed().is_some() {
            more.insert("key_end".to_owned(), key_end::fact(key));
        }
        self.write_down(Step::Final { outcome: status.name(), class, code, prompt }, more);
        let verdict = Verdict { class, code: code.map(Arc::from), ..verdict(status) };
        self.ended = Some(verdict.clone());
        verdict
    }

    /// Tells how the call ended.
    fn told(&self, verdict: &Verdict, error: Option<&Error>) {
        let (outcome, class, prompt) = (verdict.status.name(), verdict.class, error.and_then(Error::prompt));
        self.tell(Step::Final { outcome, class, code: verdict.code.as_deref(), prompt });
        let Some(report) = &self.report else { return };
        let who = Who {
            connector: &self.connector,
            op: &self.op,
            hash: self.hash.as_deref(),
            signer: self.signer.as_deref(),
        };
        tell::end(report, who, verdict, error);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.report.is_some() {
            let (attempts, key) = (self.number(), self.done().key_without_outcome());
            // There is one end: where it was written down already, whoever waited for it is gone.
            let verdict = match self.ended.take() {
                Some(verdict) => verdict,
                None => self.write(CallStatus::Cancelled, None, None, None, key, Map::new()),
            };
            self.told(&verdict, None);
            spans::called(&self.span, attempts, &verdict, None);
            self.on_record.abandon(End { attempts, verdict, key, outcome: None });
        }
    }
}
