//! The identity of jobs and the authentication of messages, with keys that are derived from the host's.
//!
//! A program that can write to NATS could otherwise make workers run anything, report outcomes that never were, or cancel
//! the work of others. All hosts of a cluster have the same `host.key`, so every host checks what another one wrote.

use std::fmt;

use cofferdam_core::failure::sanitize_line;
use cofferdam_core::host_key;
use hmac::Mac as _;
use sha2::{Digest as _, Sha256};

/// The purpose of the key that is derived from the host's.
const PURPOSE: &[u8] = b"cofferdam jobs v1";

/// The version of the authentication, which a header begins with.
const VERSION: &str = "v1=";

/// The length of a cluster's name in subjects and streams, in hexadecimal digits.
const CLUSTER_DIGITS: usize = 12;

/// The id of a job, which is derived from its idempotency key: one key has one job. It cannot be guessed without the
/// key of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(String);

impl JobId {
    /// The prefix of every id.
    const PREFIX: &str = "job-";

    /// Parses an id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(Self::PREFIX)?;
        let is_hex =
            digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_hex.then(|| Self(text.to_owned()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of an authenticated message. A message of one kind is none of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// A job.
    Job,
    /// The record of a job.
    Record,
    /// The presence of a worker.
    Worker,
}

impl MessageKind {
    const fn label(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Record => "record",
            Self::Worker => "worker",
        }
    }
}

/// The key of a cluster's jobs.
#[derive(Clone)]
pub struct JobAuthenticator {
    key: [u8; 32],
    cluster: String,
}

impl fmt::Debug for JobAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobAuthenticator").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl JobAuthenticator {
    /// Derives the key from the host's. `identity` is that of the cluster: the text of the public key of its checkpoints.
    #[must_use]
    pub fn new(host_key: &[u8; 32], identity: &str) -> Self {
        let key = host_key::derived(host_key, PURPOSE);
        let mut cluster = hex(&Sha256::digest(identity.as_bytes()));
        cluster.truncate(CLUSTER_DIGITS);
        Self { key, cluster }
    }

    /// Returns the cluster's name in subjects and streams.
    pub(super) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns the id of the job with this idempotency key.
    #[must_use]
    pub fn job_id(&self, key: &str) -> JobId {
        let mut mac = host_key::hmac(&self.key);
        mac.update(b"cofferdam-job-id-v1\n");
        mac.update(key.as_bytes());
        let mut digits = hex(&mac.finalize().into_bytes());
        digits.truncate(32);
        JobId(format!("{}{digits}", JobId::PREFIX))
    }

    fn mac(&self, kind: MessageKind, id: &str, trace: &str, payload: &[u8]) -> hmac::Hmac<Sha256> {
        let mut mac = host_key::hmac(&self.key);
        // Every part has its length before it, so that no two messages have the same bytes here.
        for part in ["cofferdam-message-v1", kind.label(), &self.cluster, id, trace] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        mac.update(&(payload.len() as u64).to_be_bytes());
        mac.update(payload);
        mac
    }

    /// Returns the text that authenticates exactly these bytes under this id.
    pub(super) fn sign(&self, kind: MessageKind, id: &str, trace: &str, payload: &[u8]) -> String {
        format!("{VERSION}{}", hex(&self.mac(kind, id, trace, payload).finalize().into_bytes()))
    }

    /// Returns true if a host of this cluster wrote these bytes under this id.
    pub(super) fn verify(
        &self,
        kind: MessageKind,
        id: &str,
        trace: &str,
        payload: &[u8],
        signature: &str,
    ) -> bool {
        let given = signature.strip_prefix(VERSION).and_then(unhex);
        given.is_some_and(|given| self.mac(kind, id, trace, payload).verify_slice(&given).is_ok())
    }
}

/// Returns the bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// Returns a text of a message that is not trusted, for the log.
pub(super) fn shown(text: &str) -> String {
    sanitize_line(text, 60)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn authenticator(key: u8, identity: &str) -> JobAuthenticator {
        JobAuthenticator::new(&[key; 32], identity)
    }

    #[test]
    fn one_key_has_one_job_id() {
        let own = authenticator(1, "a");
        assert_eq!(own.job_id("order-17"), own.job_id("order-17"));
        assert_ne!(own.job_id("order-17"), own.job_id("order-18"));
        assert_ne!(own.job_id("order-17"), authenticator(2, "a").job_id("order-17"));
        assert_eq!(JobId::parse(own.job_id("x").as_str()), Some(own.job_id("x")));
        for wrong in ["", "job-", "job-12", "audit-x", "job-ABCDEF00000000000000000000000000"] {
            assert_eq!(JobId::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn any_change_to_a_message_is_detected() {
        let own = authenticator(1, "a");
        let trace = "00-aa-bb-01";
        let signature = own.sign(MessageKind::Job, "job-1", trace, b"{}");
        let verify = |with: &JobAuthenticator, kind, id: &str, trace: &str, bytes: &[u8], signature: &str| {
            with.verify(kind, id, trace, bytes, signature)
        };
        assert!(verify(&own, MessageKind::Job, "job-1", trace, b"{}", &signature));
        let cut = signature.strip_suffix(|_: char| true).unwrap();
        for (with, kind, id, trace, bytes, signature) in [
            (&own, MessageKind::Record, "job-1", trace, &b"{}"[..], signature.as_str()),
            (&own, MessageKind::Job, "job-2", trace, b"{}", &signature),
            (&own, MessageKind::Job, "job-1", "", b"{}", &signature),
            (&own, MessageKind::Job, "job-1", trace, b"{ }", &signature),
            (&own, MessageKind::Job, "job-1", trace, b"{}", cut),
            (&own, MessageKind::Job, "job-1", trace, b"{}", ""),
            (&own, MessageKind::Job, "job-1", trace, b"{}", "v1=zz"),
            (&authenticator(2, "a"), MessageKind::Job, "job-1", trace, b"{}", &signature),
            (&authenticator(1, "b"), MessageKind::Job, "job-1", trace, b"{}", &signature),
        ] {
            assert!(!verify(with, kind, id, trace, bytes, signature), "{id} {signature}");
        }
    }
}
