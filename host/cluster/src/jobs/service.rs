//! Jobs for clients and operators: submitting, looking, cancelling, and deciding about dead letters.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_audit::{AuditError, AuditErrorKind};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::AuditId;
use cofferdam_runtime::call::SPANS;
use cofferdam_runtime::host::Host;
use cofferdam_server::http_api::{
    JobFuture, JobService, JobState, JobView, NewJob, SubmittedJob, job_not_found,
};
use tracing::field::Empty;
use tracing::{Instrument as _, info_span};
use uuid::Uuid;

use super::authentication::JobId;
use super::log_view::{self, LoggedOutcome, LoggedRun};
use super::message::JobMessage;
use super::metrics::JobMetrics;
use super::queue::{JobQueue, StoredJob, now};
use super::record::{JobRecord, StoredRecord};
use super::settings::JobTrace;

/// The most jobs that are read for a list.
const LISTED: usize = 100_000;

/// The longest look at the audit log before a job is accepted.
const LOG_CHECK: Duration = Duration::from_secs(1);

/// The jobs of a cluster, as one host sees them. Every host gives the same answers.
#[derive(Clone)]
pub struct Jobs {
    queue: JobQueue,
    host: Host,
    metrics: Arc<JobMetrics>,
    trace: Option<Arc<dyn JobTrace>>,
}

impl Jobs {
    /// Creates the service over `queue`. Outcomes are read from the audit log of `host`.
    #[must_use]
    pub fn new(
        queue: JobQueue,
        host: Host,
        metrics: Arc<JobMetrics>,
        trace: Option<Arc<dyn JobTrace>>,
    ) -> Self {
        Self { queue, host, metrics, trace }
    }

    /// Returns the actor of this host's own jobs.
    #[must_use]
    pub fn actor(&self) -> &str {
        self.host.actor()
    }

    /// Returns the jobs that are known, the newest first: all of them, or those in this state. Their outcomes are not read.
    ///
    /// # Errors
    /// `queue_unavailable`.
    pub async fn list(&self, state: Option<JobState>, most: usize) -> Result<Vec<JobView>, HostError> {
        let mut records = self.queue.streams().await?.records.list(LISTED).await?;
        records.retain(|record| state.is_none_or(|state| record.state == state));
        records.sort_by(|a, b| (&b.submitted_at, &b.id).cmp(&(&a.submitted_at, &a.id)));
        records.truncate(most);
        Ok(records.into_iter().map(|record| view(record, LoggedOutcome::default())).collect())
    }

    /// Puts a dead job on the queue again. Its attempts are counted anew; its key is the same, so that nothing that is done
    /// is done again.
    ///
    /// # Errors
    /// `job_not_found`; `conflict`: it is not dead, or its message cannot be read; `busy`; `queue_unavailable`.
    pub async fn retry(&self, id: &str) -> Result<JobView, HostError> {
        let job_id = JobId::parse(id).ok_or_else(|| job_not_found(id))?;
        let Some(StoredRecord { record, .. }) = self.queue.record(&job_id).await? else {
            return Err(job_not_found(id));
        };
        let streams = self.queue.streams().await?;
        let conflict = |what: &str, hint: &str| {
            HostError::new(
                HostErrorKind::Conflict,
                format!("The job {id} cannot be put on the queue again: {what}."),
            )
            .with_hint(hint)
        };
        let letter = self.queue.stored_job(&streams.dead, &self.queue.dead_subject(&job_id)).await?;
        let is_queued =
            self.queue.stored_job(&streams.jobs, &self.queue.job_subject(&job_id)).await?.is_some();
        // An earlier try may have ended between the record and the message.
        let is_half_queued = record.state == JobState::Queued && !is_queued;
        if record.state != JobState::Dead && !is_half_queued {
            let what = format!("it is not dead, but {}", record.state.name());
            return Err(conflict(&what, "Only dead jobs are; submit others with another key."));
        }
        let Some(StoredJob { job, sequence: letter }) = letter else {
            return Err(conflict(
                "there is no dead letter of it that this version can read",
                "`cofferdam jobs cancel` discards it; submit it again with another key.",
            ));
        };
        // The record first: a worker that gets a job whose record says that it is dead acknowledges it.
        let changed = streams.records.change(&job_id, |record| {
            if !matches!(record.state, JobState::Dead | JobState::Queued) {
                return false;
            }
            record.set_state(JobState::Queued, now());
            record.copies = record.copies.saturating_add(1);
            (record.attempts, record.interrupted, record.missed) = (0, 0, 0);
            record.missing_on.clear();
            record.is_cancel_requested = false;
            true
        });
        let Some(changed) = changed.await? else {
            return Err(conflict("it was changed meanwhile", "Look at it again."));
        };
        if let Err(error) = self.queue.publish_again(&streams, &job).await {
            // It is dead still, as far as anybody has to know.
            let back = streams.records.change(&job_id, |record| {
                let is_own = record.state == JobState::Queued && record.copies == changed.copies;
                if is_own {
                    record.set_state(JobState::Dead, now());
                }
                is_own
            });
            drop(back.await);
            return Err(error);
        }
        // This letter alone: if the job is dead again already, the next one is there.
        drop(streams.dead.delete_message(letter).await);
        Ok(view(changed, LoggedOutcome::default()))
    }

    async fn submit_job(&self, new: NewJob) -> Result<SubmittedJob, HostError> {
        let NewJob { key, actor, request, traceparent } = new;
        let key = match key {
            Some(key) => key,
            // It is returned, and is what makes a repeated submission harmless.
            None => format!("job-key-{}", Uuid::now_v7().simple()),
        };
        Host::check_key(&key)?;
        self.check_log().await.map_err(|error| error.detail("idempotency_key", key.as_str()))?;
        let span = info_span!(target: SPANS, "submit", job = Empty, outcome = Empty);
        if let (Some(trace), Some(traceparent)) = (&self.trace, &traceparent) {
            trace.follow(&span, traceparent);
        }
        let own = self.trace.as_ref().and_then(|trace| trace.traceparent(&span)).or(traceparent);
        let job = JobMessage::new(self.queue.authenticator(), key.clone(), &actor, request, own, now());
        span.record("job", job.id.as_str());
        let submitted = self.queue.submit(&job).instrument(span.clone()).await;
        // The caller may not know the key, and needs it to submit the same job again.
        let (record, is_known) = submitted.map_err(|error| error.detail("idempotency_key", key))?;
        span.record("outcome", if is_known { "known" } else { "queued" });
        if !is_known {
            self.metrics.submitted();
        }
        Ok(SubmittedJob { job: self.seen(record, &actor).await?, is_known })
    }

    /// Refuses a job that no worker with this host's configuration could run: the audit log is another cluster's, or of
    /// a newer version. One that cannot be reached now refuses nothing: the job waits until it can.
    async fn check_log(&self) -> Result<(), HostError> {
        let look = log_view::in_background(&self.host, |host| host.audit().existing().map(drop));
        match tokio::time::timeout(LOG_CHECK, look).await {
            Ok(Err(error)) if is_refusal(&error) => Err(error),
            _ => Ok(()),
        }
    }

    async fn show_job(&self, id: &str, actor: &str) -> Result<JobView, HostError> {
        let job_id = JobId::parse(id).ok_or_else(|| job_not_found(id))?;
        match self.queue.record(&job_id).await? {
            Some(StoredRecord { record, .. }) => self.seen(record, actor).await,
            None => Err(job_not_found(id)),
        }
    }

    /// Returns the job as the audit log and its record say together. The log decides.
    async fn seen(&self, mut record: JobRecord, actor: &str) -> Result<JobView, HostError> {
        let audit_id = record.audit_id();
        if matches!(record.state, JobState::Running | JobState::Dead)
            && let Some(audit_id) = &audit_id
            && log_view::look(&self.host, audit_id).await? == LoggedRun::Value
        {
            // The worker was gone, or is about to say so; or another one, which was cut off, has said that it is dead.
            record.state = JobState::Done;
        }
        let has_outcome = matches!(record.state, JobState::Done | JobState::Failed | JobState::Dead);
        let outcome = match &audit_id {
            Some(audit_id) if has_outcome && record.actor == actor => {
                let of = record.replayed.as_deref().and_then(AuditId::parse);
                log_view::outcome(&self.host, of.as_ref().unwrap_or(audit_id)).await?
            }
            _ => LoggedOutcome::default(),
        };
        Ok(view(record, outcome))
    }

    async fn cancel_job(&self, id: &str) -> Result<JobView, HostError> {
        let job_id = JobId::parse(id).ok_or_else(|| job_not_found(id))?;
        if self.queue.record(&job_id).await?.is_none() {
            return Err(job_not_found(id));
        }
        let streams = self.queue.streams().await?;
        let mut refused = None;
        let changed = streams.records.change(&job_id, |record| {
            refused = None;
            match record.state {
                JobState::Queued | JobState::Dead => record.set_state(JobState::Cancelled, now()),
                JobState::Running => record.is_cancel_requested = true,
                state => {
                    refused = Some(state);
                    return false;
                }
            }
            true
        });
        let changed = changed.await?;
        match (changed, refused) {
            (Some(record), _) => {
                if record.state == JobState::Cancelled {
                    self.metrics.ended(JobState::Cancelled);
                    // A message that stays is acknowledged by the worker that gets it.
                    drop(streams.jobs.purge().filter(self.queue.job_subject(&job_id)).await);
                    drop(streams.dead.purge().filter(self.queue.dead_subject(&job_id)).await);
                }
                Ok(view(record, LoggedOutcome::default()))
            }
            (None, Some(state)) => {
                let message = format!("The job {id} cannot be cancelled: it is {}.", state.name());
                Err(HostError::new(HostErrorKind::Conflict, message).with_hint("Nothing is to be done."))
            }
            (None, None) => Err(job_not_found(id)),
        }
    }
}

impl JobService for Jobs {
    fn submit(&self, job: NewJob) -> JobFuture<'_, SubmittedJob> {
        Box::pin(self.submit_job(job))
    }

    fn show<'a>(&'a self, id: &'a str, actor: &'a str) -> JobFuture<'a, JobView> {
        Box::pin(self.show_job(id, actor))
    }

    fn cancel<'a>(&'a self, id: &'a str) -> JobFuture<'a, JobView> {
        Box::pin(self.cancel_job(id))
    }
}

/// Returns true if the audit log refuses this host, and will until an operator changes something.
fn is_refusal(error: &HostError) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<AuditError>());
    cause.is_some_and(|cause| matches!(cause.kind(), AuditErrorKind::Refused | AuditErrorKind::TooNew))
}

fn view(mut record: JobRecord, outcome: LoggedOutcome) -> JobView {
    if record.state == JobState::Done {
        // They are those of an earlier run.
        (record.class, record.code, record.reason) = (None, None, None);
    }
    let audit_id = record.audit_id().map(|id| id.to_string());
    JobView {
        id: record.id,
        state: record.state,
        idempotency_key: record.key,
        target: record.target,
        actor: record.actor,
        submitted_at: record.submitted_at,
        updated_at: record.updated_at,
        attempts: record.attempts,
        next_attempt_at: record.next_attempt_at,
        audit_id,
        replayed: record.replayed,
        class: record.class,
        code: record.code,
        reason: record.reason,
        value: outcome.value,
        error: outcome.error,
    }
}
