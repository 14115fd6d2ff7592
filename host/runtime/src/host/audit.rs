//! The audit log of a host: the API with which its operator reads, verifies and prunes it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_audit::{
    AcknowledgedFinding, AuditError, AuditErrorKind, AuditLog, AuditReader, ExpectedState, Finding,
    FindingKind, LogPosition, LogTime, NoteKey, NoteSigner, Pruned, VerificationResult, VerifiedJournal,
    VerifyOutcome, VerifyStats, verify_log, wait,
};
use cofferdam_core::clock::Clock;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::event::operator::{OperatorAction, OperatorState};
use cofferdam_core::home_state::{HomeState, StateError, StoredState};
use cofferdam_core::host_key::{self, HostKeyError};
use cofferdam_core::private_file::{self, FilePolicy};
use jiff::Timestamp;
use serde::Serialize;

use super::Host;
use super::operator::{ChangeRecorder, OperatorChange};
use crate::log_errors::{unreadable, unwritable};

/// The file in the home directory with the result of the last verification, which outlives the process.
const VERIFIED: &str = "audit.verified";
const VERIFIED_POLICY: FilePolicy = FilePolicy::secret(4 * 1024);

/// The audit log of a host. Cheap to clone. Its readers block: not for an executor's threads.
#[derive(Clone)]
pub struct Audit {
    log: Arc<dyn AuditLog>,
    home: PathBuf,
    /// The user that changes of operators are recorded with.
    pub(super) user: Arc<str>,
    pub(super) clock: Arc<dyn Clock>,
}

/// The result of verifying the audit log.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VerificationReport {
    /// True if the audit log is intact, except for findings that the operator accepted.
    pub holds: bool,
    /// The verified journals, one for each writer.
    pub journals: Vec<VerifiedJournal>,
    /// True if the audit log has more than this: an export may be a part.
    pub part: bool,
    /// The amount of verified data.
    #[serde(flatten)]
    pub stats: VerifyStats,
    /// The public key of the signatures, with its id.
    pub key: String,
    /// The findings: those of the chains first, each with the number of its entry.
    pub findings: Vec<Finding>,
    /// The number of further findings that are not listed.
    pub more_findings: u64,
    /// Accepted findings that are gone: the entry is again as the host wrote it.
    pub put_back: Vec<AcknowledgedFinding>,
}

impl Host {
    /// Returns the audit log of the host.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.audit
    }
}

impl Audit {
    pub(super) fn new(log: Arc<dyn AuditLog>, home: PathBuf, user: Arc<str>, clock: Arc<dyn Clock>) -> Self {
        Self { log, home, user, clock }
    }

    /// Returns a new reader, which sees everything that was durable at the time of this call.
    ///
    /// # Errors
    /// `audit_unavailable`: there is no audit log yet, or it cannot be read.
    pub fn reader(&self) -> Result<Box<dyn AuditReader>, HostError> {
        self.log.reader().map_err(unreadable)
    }

    /// Returns a reader as [`Audit::reader`] does, or none if nothing was recorded yet.
    ///
    /// # Errors
    /// `audit_unavailable`: it cannot be read.
    pub fn existing(&self) -> Result<Option<Box<dyn AuditReader>>, HostError> {
        match self.log.reader() {
            Ok(reader) => Ok(Some(reader)),
            Err(error) if error.kind() == AuditErrorKind::Absent => {
                self.check_complete()?;
                Ok(None)
            }
            Err(error) => Err(unreadable(error)),
        }
    }

    /// Returns the end of the audit log as it is now, to notice new entries. It blocks: not for an executor's threads.
    ///
    /// # Errors
    /// `audit_unavailable`: it cannot be read.
    pub fn end(&self) -> Result<LogPosition, HostError> {
        self.log.end().map_err(unreadable)
    }

    /// Refuses an audit log, a vault or a `home.state` that is missing, or older than the others record: an
    /// interrupted call may be missing.
    ///
    /// # Errors
    /// `audit_unavailable`: one of them is, or that cannot be determined.
    pub fn check_complete(&self) -> Result<(), HostError> {
        match self.log.loss().map_err(unreadable)? {
            Some(loss) => Err(unreadable(AuditError::new(AuditErrorKind::Lost, loss))),
            None => Ok(()),
        }
    }

    /// True if nothing was recorded yet: there is no audit log, and no checkpoint of one.
    ///
    /// # Errors
    /// `audit_unavailable`: that cannot be determined.
    pub fn is_new(&self) -> Result<bool, HostError> {
        let is_lost = self.log.loss().map_err(unreadable)?.is_some();
        let checkpoint =
            self.log.evidence().and_then(|evidence| evidence.checkpoint()).map_err(unreadable)?;
        Ok(!is_lost && checkpoint.is_none() && self.existing()?.is_none())
    }

    /// Returns the public key of the checkpoints, which an operator can pin elsewhere.
    ///
    /// # Errors
    /// `audit_unavailable`: `host.key` cannot be used.
    pub fn key(&self) -> Result<NoteKey, HostError> {
        let key = host_key::load_or_create(&self.home.join("host.key"));
        let key = key.map_err(|error| unreadable(error.into()))?;
        Ok(NoteSigner::new(&key).key())
    }

    /// Signs a checkpoint: of this host's journals as they are now, and of the others as their processes signed
    /// them. The operator stores it elsewhere. It shows later whether an entry that it covers was changed or
    /// removed.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be written.
    pub async fn checkpoint(&self) -> Result<String, HostError> {
        self.log.sign().await.map_err(unwritable)
    }

    /// Verifies the whole audit log: its journals, its checkpoint, the checkpoints in `pinned` that were stored
    /// elsewhere, and the idempotency keys. Lists up to `findings` findings. `progress` gets the number of verified
    /// entries and their total.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be read. Its flaws are not an error, but findings of the report.
    pub fn verify(
        &self,
        pinned: &[String],
        findings: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<VerificationReport, HostError> {
        let is_remembered = match HomeState::new(&self.home).read().map_err(no_state)? {
            StoredState::Valid(progress) => progress.log.is_some_and(|log| log.n > 0),
            StoredState::Missing | StoredState::Invalid => false,
        };
        let loss = self.log.loss().map_err(unreadable)?;
        let mut evidence = self.log.evidence().map_err(unreadable)?;
        let is_log_expected = is_remembered || !pinned.is_empty() || loss.is_some();
        // Nothing is there, so no key is missing either.
        if !is_log_expected
            && evidence.checkpoint().map_err(unreadable)?.is_none()
            && evidence.writers().map_err(unreadable)?.is_empty()
        {
            return Err(unreadable(AuditError::new(AuditErrorKind::Absent, "nothing was recorded yet")));
        }
        let key = NoteSigner::new(&self.host_key()?).key();
        let expected = ExpectedState { pinned, is_log_expected, findings };
        let mut outcome = verify_log(&mut *evidence, &key, &expected, progress).map_err(unreadable)?;
        if let Some(loss) = loss {
            let (what, flaw) = (loss.to_string(), FindingKind::HomeState);
            let of = *Digest::sha256(what.as_bytes()).as_bytes();
            let (writer, audit_id, seq, n, accepted) = (None, None, None, 0, false);
            outcome.findings.push(Finding { writer, n, audit_id, seq, flaw, what, accepted, of });
        }
        let report = verification_report(outcome, &key);
        self.remember_verification(&report);
        Ok(report)
    }

    /// Returns the result of the last verification from this home; none if there was none, or if its result was not
    /// stored.
    #[must_use]
    pub fn last_verification(&self) -> Option<VerificationResult> {
        let text = private_file::read(&self.home.join(VERIFIED), &VERIFIED_POLICY).ok().flatten()?;
        serde_json::from_slice(&text).ok()
    }

    /// Stores the result of a verification. A home that cannot be written can be verified all the same.
    fn remember_verification(&self, report: &VerificationReport) {
        let last = VerificationResult {
            at: format!("{:.6}", self.clock.timestamp()),
            holds: report.holds,
            entries: report.stats.entries,
            findings: (report.findings.len() as u64).saturating_add(report.more_findings),
        };
        let text = serde_json::to_vec(&last).unwrap_or_default();
        if let Err(error) = private_file::replace(&self.home.join(VERIFIED), &text, &VERIFIED_POLICY) {
            tracing::warn!(target: "cofferdam::audit", %error, "the result of the verification is not stored");
        }
    }

    /// Records in a signed checkpoint that the operator accepts these findings, and continues from there.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be written.
    pub async fn accept(&self, findings: &[Finding]) -> Result<(), HostError> {
        let findings = findings.iter().map(AcknowledgedFinding::from).collect();
        self.log.accept(findings, Arc::clone(&self.user)).await.map(drop).map_err(unwritable)
    }

    /// Removes the calls that were received before `before`, from the oldest on, up to the first that has no end or
    /// whose idempotency key is not released yet. A signed checkpoint replaces them, so that the rest can still be
    /// verified. With `dry_run` nothing is removed.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be written, or the part to be removed is not intact.
    pub async fn prune(&self, before: Timestamp, dry_run: bool) -> Result<Pruned, HostError> {
        self.log.prune(before, dry_run, Arc::clone(&self.user)).await.map_err(unwritable)
    }

    /// Returns the time that the audit log goes by: idempotency keys expire by it, and old calls are removed by it.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be read.
    pub async fn time(&self) -> Result<LogTime, HostError> {
        self.log.time().await.map_err(unreadable)
    }

    /// Records that the operator accepts the clock, by which the audit log goes from then on. It blocks: not for an
    /// executor's threads.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be written.
    pub fn accept_clock(&self) -> Result<(), HostError> {
        let LogTime { time, clock, .. } = wait(self.log.time()).map_err(unreadable)?;
        let state = |time: Timestamp| {
            Some(OperatorState { time: Some(format!("{time:.6}").into()), ..OperatorState::default() })
        };
        let (before, after) = (state(time), state(clock));
        let (action, subject) = (OperatorAction::Clock, "audit".to_owned());
        ChangeRecorder::new(self).intend(OperatorChange {
            action,
            subject,
            before,
            after,
            is_restriction: false,
        })
    }

    /// Makes the index of the audit log again, from which calls are found. `progress` gets the bytes that were read, and
    /// those of the whole log. Returns the number of entries. It blocks: not for an executor's threads.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be read, or its index not be written.
    pub fn reindex(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<u64, HostError> {
        self.log.reindex(progress).map_err(unwritable)
    }

    /// Returns the time for which calls are kept; none if they are kept until an operator removes them.
    #[must_use]
    pub fn retention(&self) -> Option<Duration> {
        self.log.retention()
    }

    pub(super) fn log(&self) -> &Arc<dyn AuditLog> {
        &self.log
    }

    /// Returns the key of the signatures, and never creates a new one.
    pub(super) fn host_key(&self) -> Result<[u8; 32], HostError> {
        host_key::read(&self.home.join("host.key")).map_err(|error| match error {
            HostKeyError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = "The audit log cannot be verified: host.key is missing, and it signed the log.";
                HostError::new(HostErrorKind::AuditUnavailable, message).with_hint(
                    "Put it back from a backup. Without it nothing is called, written or pruned: where it is lost, move \
                     the directory audit and home.state away as evidence, and a new key is made.",
                )
            }
            error => unreadable(error.into()),
        })
    }
}

/// Converts a verification outcome to a report with this key.
pub(super) fn verification_report(outcome: VerifyOutcome, key: &NoteKey) -> VerificationReport {
    VerificationReport {
        holds: outcome.more == 0 && outcome.findings.iter().all(|finding| finding.accepted),
        journals: outcome.journals,
        part: false,
        stats: outcome.stats,
        key: key.to_string(),
        findings: outcome.findings,
        more_findings: outcome.more,
        put_back: outcome.put_back,
    }
}

fn no_state(error: StateError) -> HostError {
    unreadable(error.into())
}
