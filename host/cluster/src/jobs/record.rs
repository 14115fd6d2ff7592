//! The record of a job: what is known of it beside the queue and the audit log, and who works.
//!
//! Records are the newest messages of their subjects. A record is changed only if nobody changed it meanwhile. It never
//! says more about an outcome than the audit log does: a job is recorded as done after its outcome is durable there.

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use bytes::Bytes;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::AuditId;
use cofferdam_server::http_api::{JobState, JobTarget};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::authentication::{JobAuthenticator, JobId, MessageKind, shown};
use super::connection::{NatsConnection, PublishFault};
use super::message::JobMessage;
use super::settings::JobSettings;

/// The header with the authentication of a record.
const MAC: &str = "Cofferdam-Mac";

/// The header with the time after which JetStream removes a message.
const TTL: &str = "Nats-TTL";

/// The header by which a message is stored only if it is the next one of its subject.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

/// The time after which a worker that says nothing is gone, in seconds.
const PRESENCE_SECONDS: u64 = 30;

/// The version of the form of records.
const VERSION: u8 = 1;

/// The most workers that are remembered not to have the connector of a job.
const MISSING: usize = 256;

/// The state of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JobRecord {
    pub(super) v: u8,
    pub(super) id: String,
    pub(super) key: String,
    pub(super) state: JobState,
    pub(super) target: JobTarget,
    pub(super) actor: String,
    pub(super) fingerprint: String,
    pub(super) submitted_at: String,
    pub(super) updated_at: String,
    /// The number of runs that ended with a failure that is retried.
    pub(super) attempts: u32,
    /// The number of runs that never ended: their workers are gone.
    #[serde(default)]
    pub(super) interrupted: u32,
    /// The number of times that an operator put it on the queue again.
    #[serde(default)]
    pub(super) copies: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_attempt_at: Option<String>,
    /// The last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<JobRun>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replayed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// True if its call is to be cancelled.
    #[serde(default)]
    pub(super) is_cancel_requested: bool,
    /// The workers that do not have its connector.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) missing_on: Vec<String>,
    /// The number of deliveries to workers that do not have its connector.
    #[serde(default)]
    pub(super) missed: u32,
}

/// A run of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JobRun {
    pub(super) audit_id: AuditIdText,
    pub(super) worker: String,
    pub(super) since: String,
}

/// The text of an audit id.
pub(super) type AuditIdText = String;

impl JobRecord {
    /// Creates the record of a job that was submitted.
    pub(super) fn new(job: &JobMessage) -> Self {
        Self {
            key: job.key.clone(),
            actor: job.actor.clone(),
            fingerprint: job.fingerprint.clone(),
            ..Self::queued(&job.id, job.request.target(), job.submitted_at)
        }
    }

    /// Creates the record of a job that cannot be read.
    pub(super) fn unknown(id: &JobId, at: Timestamp) -> Self {
        Self::queued(id, JobTarget::Action { name: "unknown".to_owned() }, at)
    }

    fn queued(id: &JobId, target: JobTarget, at: Timestamp) -> Self {
        Self {
            v: VERSION,
            id: id.to_string(),
            key: String::new(),
            state: JobState::Queued,
            target,
            actor: String::new(),
            fingerprint: String::new(),
            submitted_at: at.to_string(),
            updated_at: at.to_string(),
            attempts: 0,
            interrupted: 0,
            copies: 0,
            next_attempt_at: None,
            run: None,
            replayed: None,
            class: None,
            code: None,
            reason: None,
            is_cancel_requested: false,
            missing_on: Vec::new(),
            missed: 0,
        }
    }

    /// Returns the audit id of the last run.
    pub(super) fn audit_id(&self) -> Option<AuditId> {
        AuditId::parse(&self.run.as_ref()?.audit_id)
    }

    /// Sets the state, at this time.
    pub(super) fn set_state(&mut self, state: JobState, now: Timestamp) {
        if state == JobState::Done {
            // They are those of an earlier run.
            (self.class, self.code, self.reason) = (None, None, None);
        }
        self.state = state;
        self.updated_at = now.to_string();
        self.next_attempt_at = None;
    }

    /// Remembers that this worker does not have its connector.
    pub(super) fn note_missing(&mut self, worker: &str) {
        self.missed = self.missed.saturating_add(1);
        if self.missing_on.len() < MISSING && !self.missing_on.iter().any(|known| known == worker) {
            self.missing_on.push(worker.to_owned());
        }
    }
}

/// A worker that lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerPresence {
    pub(super) worker: String,
    pub(super) concurrency: u32,
}

/// A record as it is stored, and its number.
#[derive(Debug, Clone)]
pub(super) struct StoredRecord {
    pub(super) record: JobRecord,
    pub(super) sequence: u64,
}

/// The result of changing a record.
#[derive(Debug)]
pub(super) enum Change {
    /// It is stored like this.
    Stored(JobRecord),
    /// It is like this, and was not changed.
    Refused(JobRecord),
    /// There is none.
    Absent,
}

/// The reason why the message in the place of a record is not one that this version can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForeignRecord {
    /// A program without the key of the cluster wrote it.
    NotOwn,
    /// A newer version wrote it.
    TooNew,
}

impl ForeignRecord {
    fn error(self, id: &str) -> HostError {
        let (what, hint) = match self {
            Self::NotOwn => (
                "is not the cluster's own",
                "Nothing is run or changed while it is there. See who can write to NATS; docs/guides/jobs.md says how \
                 to remove it.",
            ),
            Self::TooNew => (
                "was written by a newer version of cofferdam",
                "Use a version that is as new. The job is kept.",
            ),
        };
        let message = format!("The record of the job {} {what}.", shown(id));
        HostError::new(HostErrorKind::QueueUnavailable, message).with_hint(hint)
    }
}

/// The store of records.
#[derive(Clone)]
pub(super) struct RecordStore {
    pub(super) connection: NatsConnection,
    pub(super) authenticator: JobAuthenticator,
    pub(super) stream: Stream,
    pub(super) prefix: String,
    pub(super) settings: JobSettings,
}

impl RecordStore {
    fn job_subject(&self, id: &str) -> String {
        format!("{}.state.{id}", self.prefix)
    }

    fn worker_subject(&self, worker: &str) -> String {
        let token: String =
            worker.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        format!("{}.worker.{token}", self.prefix)
    }

    /// Returns the record of a job; none if there is none.
    ///
    /// A foreign message in its place is an error. If it counted as no record, a program that can write to NATS could
    /// bring back a job that is over.
    ///
    /// # Errors
    /// `queue_unavailable`, also if the record is foreign, or of a newer version.
    pub(super) async fn get(&self, id: &JobId) -> Result<Option<StoredRecord>, HostError> {
        let found = self.stream.get_last_raw_message_by_subject(&self.job_subject(id.as_str())).await;
        let message = match found {
            Ok(message) => message,
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(None),
            Err(error) => return Err(self.connection.unreadable(&error.kind())),
        };
        let record = self.read(id.as_str(), &message.headers, &message.payload);
        let record = record.map_err(|foreign| foreign.error(id.as_str()))?;
        Ok(Some(StoredRecord { record, sequence: message.sequence }))
    }

    fn read(&self, id: &str, headers: &HeaderMap, payload: &[u8]) -> Result<JobRecord, ForeignRecord> {
        let mac = headers.get(MAC).map(|mac| mac.as_str()).unwrap_or_default();
        if !self.authenticator.verify(MessageKind::Record, id, "", payload, mac) {
            tracing::warn!(target: "cofferdam::jobs", job = shown(id), "a record of a job is not the cluster's own");
            return Err(ForeignRecord::NotOwn);
        }
        let record: JobRecord = serde_json::from_slice(payload).map_err(|_| ForeignRecord::TooNew)?;
        if record.v == VERSION { Ok(record) } else { Err(ForeignRecord::TooNew) }
    }

    /// Stores a record in the place of the one with this number; 0 for none. Returns false if another one was stored
    /// meanwhile.
    ///
    /// # Errors
    /// `queue_unavailable`.
    pub(super) async fn put(&self, record: &JobRecord, after: u64) -> Result<bool, HostError> {
        // A record is texts and numbers: the serialization cannot fail.
        let payload = Bytes::from(serde_json::to_vec(record).unwrap_or_default());
        let mut headers = HeaderMap::new();
        let mac = self.authenticator.sign(MessageKind::Record, &record.id, "", &payload);
        headers.insert(MAC, mac.as_str());
        headers.insert(EXPECTED, after.to_string().as_str());
        if record.state.is_final() && record.state != JobState::Dead {
            headers.insert(TTL, self.settings.keep.as_secs().max(1).to_string().as_str());
        }
        match self.connection.publish(self.job_subject(&record.id), headers, payload).await {
            Ok(_) => Ok(true),
            Err(PublishFault::Outdated) => Ok(false),
            Err(fault) => Err(self.connection.unavailable(describe(&fault))),
        }
    }

    /// Changes a record with `change` until that succeeds, and returns it as it is stored then. None if there is no record,
    /// or if `change` refuses it.
    ///
    /// # Errors
    /// `queue_unavailable`.
    pub(super) async fn change(
        &self,
        id: &JobId,
        change: impl FnMut(&mut JobRecord) -> bool,
    ) -> Result<Option<JobRecord>, HostError> {
        match self.try_change(id, change).await? {
            Change::Stored(record) => Ok(Some(record)),
            Change::Refused(_) | Change::Absent => Ok(None),
        }
    }

    /// Changes a record as [`change`](Self::change) does, and returns the one that was refused.
    ///
    /// # Errors
    /// `queue_unavailable`.
    pub(super) async fn try_change(
        &self,
        id: &JobId,
        mut change: impl FnMut(&mut JobRecord) -> bool,
    ) -> Result<Change, HostError> {
        loop {
            let Some(StoredRecord { mut record, sequence }) = self.get(id).await? else {
                return Ok(Change::Absent);
            };
            if !change(&mut record) {
                return Ok(Change::Refused(record));
            }
            if self.put(&record, sequence).await? {
                return Ok(Change::Stored(record));
            }
        }
    }

    /// Returns the newest records, up to `most` of them.
    ///
    /// # Errors
    /// `queue_unavailable`.
    pub(super) async fn list(&self, most: usize) -> Result<Vec<JobRecord>, HostError> {
        let subject = format!("{}.state.*", self.prefix);
        let found =
            self.newest(subject, most, |id, headers, payload| self.read(id, headers, payload).ok()).await?;
        Ok(found.into_iter().filter(|record| JobId::parse(&record.id).is_some()).collect())
    }

    /// Says that this worker lives.
    ///
    /// # Errors
    /// `queue_unavailable`.
    pub(super) async fn announce(&self, presence: &WorkerPresence) -> Result<(), HostError> {
        let payload = Bytes::from(serde_json::to_vec(presence).unwrap_or_default());
        let mut headers = HeaderMap::new();
        let mac = self.authenticator.sign(MessageKind::Worker, "", "", &payload);
        headers.insert(MAC, mac.as_str());
        headers.insert(TTL, PRESENCE_SECONDS.to_string().as_str());
        let stored = self.connection.publish(self.worker_subject(&presence.worker), headers, payload).await;
        stored.map(drop).map_err(|fault| self.connection.unavailable(describe(&fault)))
    }

    /// Says that this worker is about to end.
    pub(super) async fn withdraw(&self, worker: &str) {
        drop(self.stream.purge().filter(self.worker_subject(worker)).await);
    }

    /// Returns the workers that live.
    ///
    /// # Errors
    /// `queue_unavailable`.
    pub(super) async fn workers(&self) -> Result<Vec<WorkerPresence>, HostError> {
        let subject = format!("{}.worker.*", self.prefix);
        let read = |_: &str, headers: &HeaderMap, payload: &[u8]| {
            let mac = headers.get(MAC).map(|mac| mac.as_str()).unwrap_or_default();
            let is_own = self.authenticator.verify(MessageKind::Worker, "", "", payload, mac);
            is_own.then(|| serde_json::from_slice(payload).ok()).flatten()
        };
        self.newest(subject, 10_000, read).await
    }

    /// Reads the newest message of each subject.
    async fn newest<T>(
        &self,
        filter_subject: String,
        most: usize,
        read: impl Fn(&str, &HeaderMap, &[u8]) -> Option<T>,
    ) -> Result<Vec<T>, HostError> {
        let config = pull::Config {
            deliver_policy: DeliverPolicy::LastPerSubject,
            ack_policy: AckPolicy::None,
            filter_subject,
            inactive_threshold: std::time::Duration::from_secs(30),
            memory_storage: true,
            num_replicas: 1,
            ..pull::Config::default()
        };
        let failed = |error: &dyn std::fmt::Display| self.connection.unavailable(error);
        let mut consumer = self
            .stream
            .create_consumer(config)
            .await
            .map_err(|error| self.connection.no_consumer(&error.kind()))?;
        let waiting = consumer.info().await.map_err(|error| failed(&error.kind()))?.num_pending;
        let mut left = usize::try_from(waiting).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        while left > 0 && found.len() < most {
            let batch = consumer.fetch().max_messages(left.min(500)).messages().await;
            let mut batch = batch.map_err(|error| failed(&error.kind()))?;
            let before = left;
            while let Some(message) = batch.next().await {
                let message = message.map_err(|error| failed(&error))?;
                left = left.saturating_sub(1);
                let empty = HeaderMap::new();
                let headers = message.headers.as_ref().unwrap_or(&empty);
                let id = message.subject.rsplit('.').next().unwrap_or_default();
                found.extend(read(id, headers, &message.payload));
            }
            if left == before {
                break;
            }
        }
        drop(self.stream.delete_consumer(&consumer.cached_info().name).await);
        Ok(found)
    }
}

/// Returns the reason why a message was not stored.
pub(super) fn describe(fault: &PublishFault) -> String {
    match fault {
        PublishFault::Full => "it is full".to_owned(),
        PublishFault::Outdated => "it was changed meanwhile".to_owned(),
        PublishFault::TooLarge => "the message is too large for NATS".to_owned(),
        PublishFault::NoStream => "its streams are missing".to_owned(),
        PublishFault::Unknown(reason) => reason.clone(),
    }
}
