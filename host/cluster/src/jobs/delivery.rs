//! One delivery of a job: from the message to the acknowledgement.
//!
//! The order is what makes the two worst failures impossible. The record says that the job runs before its call begins;
//! the outcome is durable in the audit log before the record says so; and the message is acknowledged last. A worker that
//! dies between any two of these leaves a message that is delivered again, and the log says how far it came.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{AckKind, Message};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failpoint;
use cofferdam_core::failure::{AuditId, sanitize_line};
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_runtime::call::{CallResult, Cancellation, SPANS};
use cofferdam_runtime::flow::{ActionResult, CheckedAction};
use cofferdam_server::http_api::{JobState, JobWork};
use jiff::Timestamp;
use tokio_util::task::AbortOnDropHandle;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, info_span};

use super::authentication::JobId;
use super::disposition::{Disposition, EndedRun, trouble_delay};
use super::log_view::{self, LoggedRun, in_background};
use super::message::{ForeignMessage, JobMessage, OwnMessage};
use super::queue::{QueueStreams, now};
use super::record::{Change, JobRecord, JobRun, StoredRecord};
use super::worker::WorkerContext;

/// The delay before a job is looked at again that another worker, which lives, runs.
const TAKEN: Duration = Duration::from_millis(500);

/// The number of deliveries to workers without its connector after which a job may be dead.
const MISSED: u32 = 3;

/// The first delay of a job whose connector a worker does not have; it doubles.
const MISSED_DELAY: Duration = Duration::from_millis(250);

/// The longest reason in a record, in characters.
const REASON: usize = 500;

/// The reason of a job that is not run because it has waited too long.
const TOO_OLD: &str = "it has waited for longer than outcomes stand under idempotency keys (key_ttl), so that nothing \
                       shows whether it was done; an operator who knows that it was not retries it";

/// The header of a dead letter with its reason.
const DEAD_CODE: &str = "Cofferdam-Code";

/// The header of a dead letter with the id in the audit log, or in the log of the worker if it was never run.
const DEAD_AUDIT_ID: &str = "Cofferdam-Audit-Id";

/// The acknowledgement of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acknowledgement {
    /// The message is done with.
    Done,
    /// The message is delivered again after this time.
    Again(Duration),
    /// The message is never delivered again.
    Remove,
    /// The message is another delivery's, and is not touched: it is delivered again if that says nothing.
    Leave,
}

/// A run that is over.
struct JobOutcome {
    error: Option<Error>,
    replayed: Option<AuditId>,
    /// The retry profile of what failed; none if nothing was run.
    profile: Option<Arc<RetryProfile>>,
}

impl WorkerContext {
    /// Handles one message to its end, and acknowledges it.
    pub(super) async fn handle(&self, message: Message) {
        let acknowledgement = match self.handle_verified(&message).await {
            Ok(acknowledgement) => acknowledgement,
            Err(error) => {
                tracing::warn!(target: "cofferdam::jobs", %error, "a job is delivered again later");
                Acknowledgement::Again(trouble_delay(deliveries(&message)))
            }
        };
        failpoint::pass("job.acknowledges");
        let done = match acknowledgement {
            // Confirmed: an acknowledgement that is lost delivers a job again that is done.
            Acknowledgement::Done => message.double_ack().await,
            Acknowledgement::Again(Duration::ZERO) => message.ack_with(AckKind::Nak(None)).await,
            Acknowledgement::Again(delay) => message.ack_with(AckKind::Nak(Some(delay))).await,
            Acknowledgement::Remove => message.double_ack_with(AckKind::Term).await,
            Acknowledgement::Leave => Ok(()),
        };
        if let Err(error) = done {
            // It is delivered again, and its record or the audit log says that it is done.
            tracing::debug!(target: "cofferdam::jobs", %error, "a job could not be acknowledged");
        }
    }

    async fn handle_verified(&self, message: &Message) -> Result<Acknowledgement, HostError> {
        let authenticator = self.queue.authenticator();
        let own = match OwnMessage::verify(authenticator, message.headers.as_ref(), &message.payload) {
            Ok(own) => own,
            Err(foreign) => return Ok(self.reject(message, foreign)),
        };
        let streams = self.queue.streams().await?;
        match own.decode(authenticator) {
            Ok(job) => self.handle_job(message, &job, &streams).await,
            Err(reason) => self.bury_undecodable(message, &own.id, &reason, &streams).await,
        }
    }

    /// Removes a message that is not the cluster's own.
    fn reject(&self, message: &Message, foreign: ForeignMessage) -> Acknowledgement {
        self.metrics.rejected(foreign);
        tracing::warn!(
            target: "cofferdam::jobs", reason = foreign.name(), bytes = message.payload.len(),
            "a message on the queue of jobs is not the cluster's own; it was removed and not run"
        );
        Acknowledgement::Remove
    }

    async fn handle_job(
        &self,
        message: &Message,
        job: &JobMessage,
        streams: &QueueStreams,
    ) -> Result<Acknowledgement, HostError> {
        let Some(_running) = self.begin(&job.id) else {
            // This worker runs it, and could not say so in time.
            return Ok(Acknowledgement::Again(self.queue.settings().ack_wait / 2));
        };
        let audit_id = AuditId::mint();
        let (record, is_first) = match self.take(job, &audit_id, streams, message).await? {
            Taken::Runs { record, is_first } => (record, is_first),
            Taken::Over(acknowledgement) => return Ok(acknowledgement),
        };
        if is_first {
            let waited = now().duration_since(job.submitted_at);
            self.metrics.waited(waited.as_secs_f64());
        }
        let in_flight = self.metrics.begin();
        let cancellation = Cancellation::new();
        let is_cancel_requested = Arc::new(AtomicBool::new(false));
        let heart = self.beat(message, &job.id, streams, &cancellation, &is_cancel_requested);
        let span = self.span(job, &record);
        failpoint::pass("job.begins");
        let outcome = self.run(job, &audit_id, &cancellation).instrument(span.clone()).await;
        failpoint::pass("job.ended");
        heart.abort();
        drop(in_flight);
        let run = EndedRun {
            error: outcome.error.as_ref(),
            is_replayed: outcome.replayed.is_some(),
            profile: outcome.profile.as_deref(),
            attempts: record.attempts.saturating_add(1),
            deliveries: deliveries(message),
            is_cancel_requested: is_cancel_requested.load(Ordering::Relaxed),
        };
        let disposition = run.disposition(&*self.rng);
        let acknowledgement = self.conclude(message, job, &audit_id, &outcome, disposition, streams).await?;
        drop(span);
        Ok(acknowledgement)
    }

    /// Records that this worker runs the job, unless it is over, is not yet to be run, or another worker runs it.
    async fn take(
        &self,
        job: &JobMessage,
        audit_id: &AuditId,
        streams: &QueueStreams,
        message: &Message,
    ) -> Result<Taken, HostError> {
        loop {
            let (mut record, sequence) = match streams.records.get(&job.id).await? {
                Some(StoredRecord { record, sequence }) => (record, sequence),
                // Its submitter died before it wrote the record, or is just about to.
                None => (JobRecord::new(job), 0),
            };
            let is_first = record.attempts == 0 && record.run.is_none();
            if record.state.is_final() {
                return Ok(Taken::Over(Acknowledgement::Done));
            }
            // A restarted server may deliver it earlier.
            if let Some(left) = time_left(&record, now()) {
                return Ok(Taken::Over(Acknowledgement::Again(left)));
            }
            if record.state == JobState::Running {
                match self.take_over(&mut record).await? {
                    TakeOver::Goes => {}
                    TakeOver::Waits => return Ok(Taken::Over(Acknowledgement::Again(TAKEN))),
                    TakeOver::IsDone => {
                        record.set_state(JobState::Done, now());
                        if streams.records.put(&record, sequence).await? {
                            self.metrics.ended(JobState::Done);
                            return Ok(Taken::Over(Acknowledgement::Done));
                        }
                        continue;
                    }
                }
                if !record.is_cancel_requested && record.interrupted >= self.settings.max_interruptions {
                    let reason =
                        format!("it was begun {} times, and its worker ended each time", record.interrupted);
                    let id = record.audit_id().unwrap_or_else(|| audit_id.clone());
                    let letter = DeadLetter {
                        audit_id: &id,
                        code: "too_many_deliveries",
                        class: None,
                        reason: &reason,
                    };
                    return self.bury_seen(message, job, letter, sequence, streams).await.map(Taken::Over);
                }
            }
            if record.is_cancel_requested {
                record.set_state(JobState::Cancelled, now());
                if streams.records.put(&record, sequence).await? {
                    self.metrics.ended(JobState::Cancelled);
                    return Ok(Taken::Over(Acknowledgement::Done));
                }
                continue;
            }
            if self.is_too_old(&record).await? {
                let id = record.audit_id().unwrap_or_else(|| audit_id.clone());
                let letter = DeadLetter { audit_id: &id, code: "too_old", class: None, reason: TOO_OLD };
                return self.bury_seen(message, job, letter, sequence, streams).await.map(Taken::Over);
            }
            record.set_state(JobState::Running, now());
            record.run = Some(JobRun {
                audit_id: audit_id.to_string(),
                worker: self.settings.name.clone(),
                since: now().to_string(),
            });
            if streams.records.put(&record, sequence).await? {
                return Ok(Taken::Runs { record: Box::new(record), is_first });
            }
        }
    }

    /// Returns true if the record of a job is so old that its key may have expired. A NATS store that was restored from
    /// an older copy, or a record that was replayed, shows a job that is done as one that waits; a key that stands
    /// keeps it from running again, one that has expired does not.
    async fn is_too_old(&self, record: &JobRecord) -> Result<bool, HostError> {
        // Keys expire by this time, and by no host's clock.
        let time = self.host.audit().time().await?.time;
        Ok(has_outlived(record, time, self.host.key_ttl()))
    }

    /// Decides about a job that was running when it was delivered again: its worker is gone, or could not say that it
    /// lives. The audit log says which.
    async fn take_over(&self, record: &mut JobRecord) -> Result<TakeOver, HostError> {
        self.metrics.redelivered();
        let logged = match record.audit_id() {
            Some(audit_id) => log_view::look(&self.host, &audit_id).await?,
            None => LoggedRun::Absent,
        };
        Ok(match logged {
            LoggedRun::Value => TakeOver::IsDone,
            LoggedRun::Running => TakeOver::Waits,
            LoggedRun::Failure => {
                record.attempts = record.attempts.saturating_add(1);
                TakeOver::Goes
            }
            LoggedRun::Ended => TakeOver::Goes,
            LoggedRun::Absent | LoggedRun::Interrupted => {
                record.interrupted = record.interrupted.saturating_add(1);
                TakeOver::Goes
            }
        })
    }

    fn span(&self, job: &JobMessage, record: &JobRecord) -> Span {
        let span = info_span!(
            target: SPANS,
            "job",
            job = job.id.as_str(),
            attempt = record.attempts.saturating_add(1),
            outcome = Empty,
        );
        if let (Some(trace), Some(traceparent)) = (&self.trace, &job.traceparent) {
            trace.follow(&span, traceparent);
        }
        span
    }

    /// Tells the server that the job runs, and looks whether it is to be cancelled, until the task is aborted.
    fn beat(
        &self,
        message: &Message,
        id: &JobId,
        streams: &QueueStreams,
        cancellation: &Cancellation,
        is_cancel_requested: &Arc<AtomicBool>,
    ) -> AbortOnDropHandle<()> {
        let (message, id, records) = (message.clone(), id.clone(), streams.records.clone());
        let (cancellation, requested) = (cancellation.clone(), Arc::clone(is_cancel_requested));
        let (every, shutdown) = (self.queue.settings().ack_wait / 3, self.shutdown.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut ticks = tokio::time::interval(every.max(Duration::from_millis(50)));
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            // The first one is at once: the message is as old as its delivery.
            ticks.tick().await;
            loop {
                tokio::select! {
                    () = shutdown.cancelled(), if !cancellation.is_cancelled() => {
                        cancellation.cancel();
                        continue;
                    }
                    _ = ticks.tick() => {}
                }
                drop(message.ack_with(AckKind::Progress).await);
                if let Ok(Some(StoredRecord { record, .. })) = records.get(&id).await
                    && record.is_cancel_requested
                {
                    requested.store(true, Ordering::Relaxed);
                    cancellation.cancel();
                }
            }
        }))
    }

    /// Runs the job under its key.
    async fn run(&self, job: &JobMessage, audit_id: &AuditId, cancellation: &Cancellation) -> JobOutcome {
        let request = job.request.clone();
        let work = in_background(&self.host, move |host| {
            let profile = request.retry_name().map(|name| host.profile(name)).transpose()?;
            Ok((request.work(host)?, profile))
        });
        match work.await {
            Ok((JobWork::Call(call), profile)) => {
                let profile = profile.unwrap_or_else(|| self.host.profile_for(call.connector().name()));
                let call = call
                    .single_attempt()
                    .idempotency_key(job.key.as_str())
                    .actor(&job.actor)
                    .with_audit_id(audit_id.clone())
                    .cancelled_by(cancellation);
                let CallResult { outcome, report } = self.host.run_text(call).await;
                JobOutcome { error: outcome.err(), replayed: report.replayed, profile: Some(profile) }
            }
            Ok((JobWork::Action(name, run), _)) => {
                let checked = match self.host.runnable(&name).await {
                    Ok(checked) => checked,
                    Err(error) => return JobOutcome::refused(not_runnable(error)),
                };
                let run = run
                    .single_attempts()
                    .idempotency_key(job.key.as_str())
                    .actor(job.actor.as_str())
                    .with_audit_id(audit_id.clone())
                    .cancelled_by(cancellation);
                let result = self.host.run_checked_action(&checked, run).await;
                self.action_outcome(result, &checked)
            }
            Err(error) => JobOutcome::refused(error),
        }
    }

    /// Returns the outcome of an action; the retry profile and the recorded outcome are those of the step that ended it.
    fn action_outcome(&self, result: ActionResult, checked: &CheckedAction) -> JobOutcome {
        let ActionResult { outcome, report } = result;
        let ended_in = report.ended_in();
        let step = ended_in.and_then(|ended| {
            let at = checked.action().steps.iter().position(|step| step.id == ended.id)?;
            checked.steps().get(at)
        });
        let profile = step.map(|step| match step.retry() {
            Some(profile) => Arc::clone(profile),
            None => self.host.profile_for(step.connector().name()),
        });
        let of_step = ended_in.and_then(|step| step.report.as_ref()?.replayed.clone());
        JobOutcome { error: outcome.err(), replayed: report.replayed.clone().or(of_step), profile }
    }

    /// Records what came of a run, and decides about its message.
    async fn conclude(
        &self,
        message: &Message,
        job: &JobMessage,
        audit_id: &AuditId,
        outcome: &JobOutcome,
        disposition: Disposition,
        streams: &QueueStreams,
    ) -> Result<Acknowledgement, HostError> {
        let (class, code, reason) = describe_error(outcome.error.as_ref());
        let at = now();
        let is_own =
            |record: &JobRecord| record.run.as_ref().is_some_and(|run| run.audit_id == audit_id.as_str());
        let describe = |record: &mut JobRecord| {
            record.class.clone_from(&class);
            record.code.clone_from(&code);
            record.reason.clone_from(&reason);
        };
        let final_state = match &disposition {
            Disposition::Done => Some(JobState::Done),
            Disposition::Failed => Some(JobState::Failed),
            Disposition::Cancelled => Some(JobState::Cancelled),
            _ => None,
        };
        if let Some(state) = final_state {
            let end = |record: &mut JobRecord| {
                record.set_state(state, at);
                record.run = Some(JobRun {
                    audit_id: audit_id.to_string(),
                    worker: self.settings.name.clone(),
                    since: at.to_string(),
                });
                record.replayed = outcome.replayed.as_ref().map(ToString::to_string);
                describe(record);
            };
            let ended = streams.records.try_change(&job.id, |record| {
                let may_end = !record.state.is_final() && is_own(record);
                if may_end {
                    end(record);
                }
                may_end
            });
            let is_ended = match ended.await? {
                Change::Stored(_) => true,
                Change::Refused(record) => return Ok(left_to_others(&record)),
                Change::Absent => {
                    let mut record = JobRecord::new(job);
                    end(&mut record);
                    streams.records.put(&record, 0).await?
                }
            };
            if !is_ended {
                return Ok(Acknowledgement::Leave);
            }
            self.metrics.ended(state);
            return Ok(Acknowledgement::Done);
        }
        match disposition {
            Disposition::Retry(delay) => {
                self.metrics.retried();
                let waits = streams.records.try_change(&job.id, |record| {
                    if record.state.is_final() || !is_own(record) {
                        return false;
                    }
                    record.set_state(JobState::Queued, at);
                    record.attempts = record.attempts.saturating_add(1);
                    record.next_attempt_at = after(at, delay);
                    describe(record);
                    true
                });
                Ok(waiting(&waits.await?, delay))
            }
            Disposition::Later(delay) => {
                let waits = streams.records.try_change(&job.id, |record| {
                    if record.state.is_final() || !is_own(record) {
                        return false;
                    }
                    record.set_state(JobState::Queued, at);
                    describe(record);
                    true
                });
                Ok(waiting(&waits.await?, delay))
            }
            Disposition::Missing => self.miss(message, job, audit_id, code.as_deref(), reason, streams).await,
            _ => {
                let letter = DeadLetter {
                    audit_id,
                    code: code.as_deref().unwrap_or("internal"),
                    class: class.as_deref(),
                    reason: reason.as_deref().unwrap_or_default(),
                };
                self.bury(message, job, letter, streams, |stored| is_own(&stored.record)).await
            }
        }
    }

    /// Leaves a job to workers that have its connector; if no worker that lives has it, the job is dead.
    async fn miss(
        &self,
        message: &Message,
        job: &JobMessage,
        audit_id: &AuditId,
        code: Option<&str>,
        reason: Option<String>,
        streams: &QueueStreams,
    ) -> Result<Acknowledgement, HostError> {
        let is_own =
            |record: &JobRecord| record.run.as_ref().is_some_and(|run| run.audit_id == audit_id.as_str());
        let changed = streams.records.try_change(&job.id, |record| {
            if record.state.is_final() || !is_own(record) {
                return false;
            }
            record.set_state(JobState::Queued, now());
            record.note_missing(&self.settings.name);
            record.code = code.map(str::to_owned);
            record.reason.clone_from(&reason);
            true
        });
        let record = match changed.await? {
            Change::Stored(record) => record,
            changed => return Ok(waiting(&changed, MISSED_DELAY)),
        };
        let workers = streams.records.workers().await?;
        let is_missing = |worker: &String| record.missing_on.contains(worker);
        let nobody_has_it = workers.iter().all(|present| is_missing(&present.worker));
        if record.missed >= MISSED && nobody_has_it {
            let code = code.unwrap_or("connector_not_found");
            let reason = format!("no worker has it: {}", reason.unwrap_or_default());
            let letter = DeadLetter { audit_id, code, class: None, reason: &reason };
            return self.bury(message, job, letter, streams, |stored| is_own(&stored.record)).await;
        }
        Ok(Acknowledgement::Again(MISSED_DELAY.saturating_mul(1 << record.missed.min(7))))
    }

    /// Buries a job whose record has this number, or has none if that is 0.
    async fn bury_seen(
        &self,
        message: &Message,
        job: &JobMessage,
        letter: DeadLetter<'_>,
        sequence: u64,
        streams: &QueueStreams,
    ) -> Result<Acknowledgement, HostError> {
        self.bury(message, job, letter, streams, |stored| stored.sequence == sequence).await
    }

    /// Puts a job into the dead-letter stream, where it stays until an operator decides; unless it is over, or
    /// `may_bury` says that its record is another worker's by now.
    async fn bury(
        &self,
        message: &Message,
        job: &JobMessage,
        letter: DeadLetter<'_>,
        streams: &QueueStreams,
        may_bury: impl Fn(&StoredRecord) -> bool,
    ) -> Result<Acknowledgement, HostError> {
        let seen = streams.records.get(&job.id).await?;
        if let Some(stored) = &seen
            && (stored.record.state.is_final() || !may_bury(stored))
        {
            return Ok(left_to_others(&stored.record));
        }
        let place = match self.store_dead_letter(message, &job.id, &letter).await? {
            Ok(place) => place,
            Err(acknowledgement) => return Ok(acknowledgement),
        };
        let (mut record, sequence) = match seen {
            Some(StoredRecord { record, sequence }) => (record, sequence),
            None => (JobRecord::new(job), 0),
        };
        record.die(&letter, &self.settings.name);
        if !streams.records.put(&record, sequence).await? {
            // It was changed meanwhile. If it is dead, one of the two letters is its own, and they have the same job.
            let is_dead = streams.records.get(&job.id).await?;
            if is_dead.is_none_or(|stored| stored.record.state != JobState::Dead) {
                drop(streams.dead.delete_message(place).await);
            }
            return Ok(Acknowledgement::Again(TAKEN));
        }
        self.metrics.ended(JobState::Dead);
        tracing::warn!(
            target: "cofferdam::jobs", job = job.id.as_str(), audit_id = letter.audit_id.as_str(), code = letter.code,
            "a job is dead; `cofferdam jobs show` says why"
        );
        Ok(Acknowledgement::Done)
    }

    /// Puts a message of the cluster into the dead-letter stream that this version cannot read.
    async fn bury_undecodable(
        &self,
        message: &Message,
        id: &JobId,
        reason: &str,
        streams: &QueueStreams,
    ) -> Result<Acknowledgement, HostError> {
        let (mut record, sequence) = match streams.records.get(id).await? {
            Some(StoredRecord { record, .. }) if record.state != JobState::Queued => {
                return Ok(left_to_others(&record));
            }
            Some(StoredRecord { record, sequence }) => (record, sequence),
            None => (JobRecord::unknown(id, now()), 0),
        };
        let request_id = AuditId::mint();
        let reason = sanitize_line(reason, REASON);
        let letter = DeadLetter { audit_id: &request_id, code: "undecodable", class: None, reason: &reason };
        if let Err(acknowledgement) = self.store_dead_letter(message, id, &letter).await? {
            return Ok(acknowledgement);
        }
        record.die(&letter, &self.settings.name);
        if !streams.records.put(&record, sequence).await? {
            return Ok(Acknowledgement::Again(TAKEN));
        }
        self.metrics.ended(JobState::Dead);
        tracing::warn!(
            target: "cofferdam::jobs", job = id.as_str(), request_id = request_id.as_str(), reason,
            "a job cannot be read; it is among the dead letters"
        );
        Ok(Acknowledgement::Done)
    }

    /// Stores a dead letter, and returns its number; or the acknowledgement of a job that stays in the queue because
    /// there is no room for it.
    async fn store_dead_letter(
        &self,
        message: &Message,
        id: &JobId,
        letter: &DeadLetter<'_>,
    ) -> Result<Result<u64, Acknowledgement>, HostError> {
        let mut headers = HeaderMap::new();
        for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
            // Those of JetStream are of the other stream.
            let is_own = !name.to_string().to_ascii_lowercase().starts_with("nats-");
            if let Some(value) = values.first().filter(|_| is_own) {
                headers.insert(name.clone(), value.clone());
            }
        }
        headers.insert(DEAD_CODE, letter.code);
        headers.insert(DEAD_AUDIT_ID, letter.audit_id.as_str());
        let subject = self.queue.dead_subject(id);
        match self.queue.connection().publish(subject, headers, message.payload.clone()).await {
            Ok(stored) => Ok(Ok(stored.sequence)),
            Err(fault) => {
                tracing::warn!(
                    target: "cofferdam::jobs", job = id.as_str(), reason = super::record::describe(&fault),
                    "a dead letter cannot be stored; the job stays in the queue"
                );
                Ok(Err(Acknowledgement::Again(Duration::from_secs(30))))
            }
        }
    }
}

/// The reason why a job is dead.
pub(super) struct DeadLetter<'l> {
    pub(super) audit_id: &'l AuditId,
    pub(super) code: &'l str,
    pub(super) class: Option<&'l str>,
    pub(super) reason: &'l str,
}

impl JobRecord {
    fn die(&mut self, letter: &DeadLetter<'_>, worker: &str) {
        let at = now();
        self.set_state(JobState::Dead, at);
        self.run = Some(JobRun {
            audit_id: letter.audit_id.to_string(),
            worker: worker.to_owned(),
            since: at.to_string(),
        });
        self.class = letter.class.map(str::to_owned);
        self.code = Some(letter.code.to_owned());
        self.reason = Some(sanitize_line(letter.reason, REASON));
    }
}

impl JobOutcome {
    fn refused(error: HostError) -> Self {
        Self { error: Some(error.into()), replayed: None, profile: None }
    }
}

/// The result of taking a job.
enum Taken {
    /// This worker runs it.
    Runs { record: Box<JobRecord>, is_first: bool },
    /// There is nothing to run now.
    Over(Acknowledgement),
}

/// The decision about a job that was running.
enum TakeOver {
    /// This worker goes on with it.
    Goes,
    /// Another worker runs it.
    Waits,
    /// It is done.
    IsDone,
}

fn deliveries(message: &Message) -> u64 {
    message.info().map_or(1, |info| u64::try_from(info.delivered).unwrap_or(1))
}

/// Returns the acknowledgement of a job whose record is not this delivery's: nothing, unless the job is over.
fn left_to_others(record: &JobRecord) -> Acknowledgement {
    match record.state.is_final() {
        true => Acknowledgement::Done,
        false => Acknowledgement::Leave,
    }
}

/// Returns the acknowledgement of a job that is to be delivered again after `delay`, if its record says so.
fn waiting(change: &Change, delay: Duration) -> Acknowledgement {
    match change {
        Change::Refused(record) => left_to_others(record),
        Change::Stored(_) | Change::Absent => Acknowledgement::Again(delay),
    }
}

/// Returns the time until the next attempt, if it is not over. The server waits as well: this is for one that was
/// restarted and delivers too early.
fn time_left(record: &JobRecord, now: Timestamp) -> Option<Duration> {
    let next: Timestamp = record.next_attempt_at.as_deref()?.parse().ok()?;
    let written: Timestamp = record.updated_at.parse().ok()?;
    // The clock of the worker that wrote it is ahead of this worker's clock, by an unknown time.
    if written > now {
        return None;
    }
    // The delay of the server and the clock of this machine may differ by a moment.
    let left = Duration::try_from(next.duration_since(now)).ok()?;
    (left > Duration::from_millis(100)).then_some(left)
}

/// Returns true if the outcome of a run that this record does not know of may not stand any more at `time`.
fn has_outlived(record: &JobRecord, time: Timestamp, key_ttl: Duration) -> bool {
    // An outcome stands for `key_ttl` after it was written, which was later than the record. A margin of 1/24 covers
    // clocks that differ.
    let stands = key_ttl.saturating_sub(key_ttl / 24);
    let Ok(written) = record.updated_at.parse::<Timestamp>() else { return true };
    let next = record.next_attempt_at.as_deref().and_then(|next| next.parse::<Timestamp>().ok());
    let since = next.map_or(written, |next| next.max(written));
    Duration::try_from(time.duration_since(since)).is_ok_and(|age| age > stands)
}

fn after(at: Timestamp, delay: Duration) -> Option<String> {
    at.checked_add(delay).ok().map(|at| at.to_string())
}

/// Returns class, code and reason of an error. The reason has nothing that only an operator of the host may see: it is
/// the message for callers, or the code.
fn describe_error(error: Option<&Error>) -> (Option<String>, Option<String>, Option<String>) {
    match error {
        None => (None, None, None),
        Some(Error::Failure(failure)) => (
            Some(failure.class().name().to_owned()),
            Some(failure.code().to_owned()),
            Some(sanitize_line(failure.message(), REASON)),
        ),
        Some(Error::Host(error)) => {
            let reason = match error.kind().is_about_the_request() {
                true => sanitize_line(error.message(), REASON),
                false => error.kind().meaning().to_owned(),
            };
            (None, Some(error.kind().code().to_owned()), Some(reason))
        }
    }
}

/// Returns the error of an action whose file does not fit this host. It is not the fault of the job.
fn not_runnable(error: HostError) -> HostError {
    use HostErrorKind as Kind;
    match error.kind() {
        Kind::Validation | Kind::OpNotFound | Kind::Conflict => {
            tracing::warn!(target: "cofferdam::jobs", %error, hint = error.hint(), "an action cannot be run");
            HostError::new(Kind::Configuration, "The action's file does not fit what is installed.")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests;
