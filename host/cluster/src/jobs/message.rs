//! The message of a job: its bytes, its headers, and what they have to be before anything of them is used.

use async_nats::HeaderMap;
use bytes::Bytes;
use cofferdam_core::failure::sanitize_line;
use cofferdam_server::http_api::{JobRequest, is_traceparent};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::authentication::{JobAuthenticator, JobId, MessageKind, hex};
use super::settings::JOB_BYTES;

/// The header with the id of a job.
const ID: &str = "Cofferdam-Job";

/// The header with the cluster's name.
const CLUSTER: &str = "Cofferdam-Cluster";

/// The header with the authentication.
const MAC: &str = "Cofferdam-Mac";

/// The header with the trace.
const TRACE: &str = "traceparent";

/// The header by which JetStream finds duplicates.
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// The version of the form of jobs.
const VERSION: u8 = 1;

/// The longest actor, in bytes.
const ACTOR: usize = 800;

/// A job as it is in the queue.
#[derive(Debug, Clone)]
pub(super) struct JobMessage {
    pub(super) id: JobId,
    pub(super) key: String,
    pub(super) actor: String,
    pub(super) submitted_at: Timestamp,
    pub(super) request: JobRequest,
    pub(super) traceparent: Option<String>,
    /// Identifies the request and its actor.
    pub(super) fingerprint: String,
}

/// The form of a job's bytes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobBody {
    v: u8,
    key: String,
    actor: String,
    submitted_at: String,
    work: Box<RawValue>,
}

/// The reason why a message is not a job of this cluster. It is removed and never run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ForeignMessage {
    /// It has no authentication at all.
    Unsigned,
    /// It is of another cluster.
    OtherCluster,
    /// Its authentication does not hold.
    Forged,
    /// It is larger than any job may be.
    TooLarge,
}

impl ForeignMessage {
    /// Returns the stable word for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::OtherCluster => "other_cluster",
            Self::Forged => "forged",
            Self::TooLarge => "too_large",
        }
    }
}

/// A message that a host of this cluster wrote.
pub(super) struct OwnMessage {
    pub(super) id: JobId,
    payload: Bytes,
    traceparent: Option<String>,
}

impl OwnMessage {
    /// Checks that a host of this cluster wrote the message. Nothing of it is parsed before.
    pub(super) fn verify(
        authenticator: &JobAuthenticator,
        headers: Option<&HeaderMap>,
        payload: &Bytes,
    ) -> Result<Self, ForeignMessage> {
        if payload.len() > JOB_BYTES {
            return Err(ForeignMessage::TooLarge);
        }
        let header = |name: &str| headers.and_then(|headers| headers.get(name)).map(|value| value.as_str());
        let (Some(id), Some(mac)) = (header(ID), header(MAC)) else { return Err(ForeignMessage::Unsigned) };
        if header(CLUSTER) != Some(authenticator.cluster()) {
            return Err(ForeignMessage::OtherCluster);
        }
        let trace = header(TRACE).unwrap_or_default();
        match JobId::parse(id) {
            Some(id) if authenticator.verify(MessageKind::Job, id.as_str(), trace, payload, mac) => {
                let traceparent = Some(trace).filter(|trace| is_traceparent(trace)).map(str::to_owned);
                Ok(Self { id, payload: payload.clone(), traceparent })
            }
            _ => Err(ForeignMessage::Forged),
        }
    }

    /// Decodes the job.
    ///
    /// # Errors
    /// The reason why it cannot be: a host of another version wrote it.
    pub(super) fn decode(&self, authenticator: &JobAuthenticator) -> Result<JobMessage, String> {
        let body: JobBody = serde_json::from_slice(&self.payload)
            .map_err(|error| format!("it is not a job: {}", sanitize_line(&error.to_string(), 200)))?;
        if body.v != VERSION {
            return Err(format!("it has the form {}, which this version does not know", body.v));
        }
        if authenticator.job_id(&body.key) != self.id {
            return Err("its id is not that of its key".to_owned());
        }
        let submitted_at = body.submitted_at.parse().map_err(|_| "its time is not one".to_owned())?;
        let request =
            JobRequest::read(body.work.get().as_bytes()).map_err(|error| error.message().to_owned())?;
        let fingerprint = fingerprint(&body.actor, &request);
        Ok(JobMessage {
            id: self.id.clone(),
            key: body.key,
            actor: body.actor,
            submitted_at,
            request,
            traceparent: self.traceparent.clone(),
            fingerprint,
        })
    }
}

impl JobMessage {
    /// Creates a job.
    pub(super) fn new(
        authenticator: &JobAuthenticator,
        key: String,
        actor: &str,
        request: JobRequest,
        traceparent: Option<String>,
        now: Timestamp,
    ) -> Self {
        let actor = sanitize_line(actor, ACTOR / 4);
        let fingerprint = fingerprint(&actor, &request);
        let id = authenticator.job_id(&key);
        Self { id, key, actor, submitted_at: now, request, traceparent, fingerprint }
    }

    /// Returns the bytes and the headers of its message. JetStream stores one message with this id, and takes a further
    /// one for a duplicate.
    ///
    /// # Errors
    /// The number of its bytes, if it is too large.
    pub(super) fn encode(
        &self,
        authenticator: &JobAuthenticator,
        message_id: &str,
    ) -> Result<(HeaderMap, Bytes), usize> {
        // Texts and JSON: the serialization cannot fail.
        let work = serde_json::value::to_raw_value(&self.request).unwrap_or_default();
        let body = JobBody {
            v: VERSION,
            key: self.key.clone(),
            actor: self.actor.clone(),
            submitted_at: self.submitted_at.to_string(),
            work,
        };
        let payload = Bytes::from(serde_json::to_vec(&body).unwrap_or_default());
        if payload.len() > JOB_BYTES {
            return Err(payload.len());
        }
        let trace = self.traceparent.as_deref().unwrap_or_default();
        let mac = authenticator.sign(MessageKind::Job, self.id.as_str(), trace, &payload);
        let mut headers = HeaderMap::new();
        headers.insert(ID, self.id.as_str());
        headers.insert(CLUSTER, authenticator.cluster());
        headers.insert(MAC, mac.as_str());
        if !trace.is_empty() {
            headers.insert(TRACE, trace);
        }
        headers.insert(MESSAGE_ID, message_id);
        Ok((headers, payload))
    }
}

/// Returns the SHA-256 of everything that makes two jobs with one key the same: the actor and the request, without
/// regard to the order of fields and the notation of numbers.
fn fingerprint(actor: &str, request: &JobRequest) -> String {
    // The canonical form is of values: it copies raw texts as they are.
    let value = serde_json::to_value((actor, request)).unwrap_or_default();
    let canonical = serde_json_canonicalizer::to_vec(&value).unwrap_or_default();
    hex(&Sha256::digest(&canonical))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    const CALL: &str =
        r#"{"call":{"connector":"github://acme/a@1.0.0","op":"run","args":{"n":1.10,"b":[1]}}}"#;
    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn own() -> JobAuthenticator {
        JobAuthenticator::new(&[1; 32], "identity")
    }

    fn job(request: &str, actor: &str) -> JobMessage {
        let request = JobRequest::read(request.as_bytes()).unwrap();
        let trace = Some(TRACEPARENT.to_owned());
        JobMessage::new(&own(), "order-17".into(), actor, request, trace, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_job_round_trips_through_its_message() {
        let job = job(CALL, "http");
        let (headers, payload) = job.encode(&own(), "one").unwrap();
        let message = OwnMessage::verify(&own(), Some(&headers), &payload).unwrap();
        let read = message.decode(&own()).unwrap();
        assert_eq!((&read.id, &read.key, &read.actor), (&job.id, &job.key, &job.actor));
        assert_eq!(read.traceparent.as_deref(), Some(TRACEPARENT));
        assert_eq!(serde_json::to_string(&read.request).unwrap(), CALL);
        assert_eq!(read.fingerprint, job.fingerprint);
    }

    #[test]
    fn foreign_messages_are_told_apart() {
        let (headers, payload) = job(CALL, "http").encode(&own(), "one").unwrap();
        let verify = |headers: Option<&HeaderMap>, payload: &[u8]| {
            OwnMessage::verify(&own(), headers, &Bytes::copy_from_slice(payload))
                .map(|own| own.id)
                .unwrap_err()
        };
        assert_eq!(verify(None, &payload), ForeignMessage::Unsigned);
        assert_eq!(verify(Some(&HeaderMap::new()), &payload), ForeignMessage::Unsigned);
        assert_eq!(verify(Some(&headers), b"{}"), ForeignMessage::Forged);
        assert_eq!(verify(Some(&headers), &vec![0; JOB_BYTES + 1]), ForeignMessage::TooLarge);
        let other = JobAuthenticator::new(&[2; 32], "other");
        let (headers, payload) = job(CALL, "http").encode(&other, "one").unwrap();
        assert_eq!(verify(Some(&headers), &payload), ForeignMessage::OtherCluster);
        let mut changed = headers.clone();
        changed.insert(CLUSTER, own().cluster());
        assert_eq!(verify(Some(&changed), &payload), ForeignMessage::Forged);
    }

    #[test]
    fn equal_requests_have_equal_fingerprints() {
        let one = job(CALL, "http").fingerprint;
        let same = r#"{"call":{"op":"run","args":{"b":[1.0],"n":1.1},"connector":"github://acme/a@1.0.0"}}"#;
        assert_eq!(job(same, "http").fingerprint, one);
        assert_ne!(job(CALL, "cli:ada").fingerprint, one);
        assert_ne!(job(&CALL.replace("[1]", "[2]"), "http").fingerprint, one);
    }

    #[test]
    fn a_job_of_another_version_is_not_decoded() {
        let signed = |payload: &str| {
            let id = own().job_id("order-17");
            let mut headers = HeaderMap::new();
            headers.insert(ID, id.as_str());
            headers.insert(CLUSTER, own().cluster());
            let mac = own().sign(MessageKind::Job, id.as_str(), "", payload.as_bytes());
            headers.insert(MAC, mac.as_str());
            let payload = Bytes::copy_from_slice(payload.as_bytes());
            OwnMessage::verify(&own(), Some(&headers), &payload)
                .unwrap()
                .decode(&own())
                .map(|_| ())
                .unwrap_err()
        };
        let body = |v: u8, key: &str| {
            format!(
                r#"{{"v":{v},"key":"{key}","actor":"a","submitted_at":"1970-01-01T00:00:00Z","work":{CALL}}}"#
            )
        };
        assert!(signed(&body(2, "order-17")).contains("form 2"));
        assert!(signed(&body(1, "order-18")).contains("id"));
        assert!(signed("{}").contains("not a job"));
    }
}
