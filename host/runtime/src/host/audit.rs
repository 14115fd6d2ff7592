//! The record of a host, as its operator reads, proves and prunes it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_audit::{
    Accepted, Anchor, AuditError, AuditLog, AuditReader, AuditTrouble, Expected, FINDINGS, Finding, Flaw,
    NoteKey, NoteSigner, Order, Outcome, Pruned, Sealer, hex, written,
};
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::home_state::{HomeState, Loss, StateError, Stored};
use cofferdam_core::host_key::{self, KeyError};
use jiff::Timestamp;
use serde::Serialize;

use super::Host;

/// The record of a host. Cheap to clone. What reads it blocks: not for an executor's threads.
#[derive(Clone)]
pub struct Audit {
    log: Arc<dyn AuditLog>,
    home: PathBuf,
}

/// What a proof of the record found.
#[derive(Debug, Clone, Serialize)]
pub struct Proof {
    /// Whether the record holds together, but for what the operator accepted.
    pub holds: bool,
    /// The number of the first entry that was looked at, and of the last. Those before the first were pruned, or are
    /// in no export.
    pub from: u64,
    /// The number of the last entry.
    pub to: u64,
    /// Whether there is more of the record than this: an export may be a part.
    pub part: bool,
    /// That entry's hash, in hexadecimal.
    pub head: String,
    /// How many entries were looked at,
    pub entries: u64,
    /// how many calls,
    pub calls: u64,
    /// and how many signed statements that hold.
    pub checkpoints: u64,
    /// When the first of the calls was received,
    pub since: Option<String>,
    /// and the last.
    pub until: Option<String>,
    /// The public key that signed, and its id.
    pub key: String,
    /// What is wrong: with the chain itself first, each by the number of its entry.
    pub findings: Vec<Finding>,
    /// How many more findings there are that are not listed.
    pub more_findings: u64,
    /// Findings that were accepted and are gone: what they were found in is again as the host wrote it.
    pub put_back: Vec<PutBack>,
}

/// A finding that was accepted, and is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PutBack {
    /// The number of the entry where it showed.
    pub n: u64,
    /// What was wrong.
    pub flaw: Flaw,
}

impl Host {
    /// The record of the host's calls.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.audit
    }
}

impl Audit {
    pub(super) fn new(log: Arc<dyn AuditLog>, home: PathBuf) -> Self {
        Self { log, home }
    }

    /// A reader of its own, which sees all that was durable when it was asked for.
    ///
    /// # Errors
    /// `audit_unavailable`: there is no record yet, or it cannot be read.
    pub fn reader(&self) -> Result<Box<dyn AuditReader>, HostError> {
        self.log.reader().map_err(unreadable)
    }

    /// As [`Audit::reader`]; none where nothing was recorded yet.
    ///
    /// # Errors
    /// `audit_unavailable`: it cannot be read.
    pub fn existing(&self) -> Result<Option<Box<dyn AuditReader>>, HostError> {
        match self.log.reader() {
            Ok(reader) => Ok(Some(reader)),
            Err(error) if error.trouble() == AuditTrouble::Absent => {
                self.check_complete()?;
                Ok(None)
            }
            Err(error) => Err(unreadable(error)),
        }
    }

    /// Refuses a log, a vault or a `home.state` that is missing, or older than the others remember: a call that was
    /// interrupted may be missing.
    ///
    /// # Errors
    /// `audit_unavailable`: one is, or that cannot be told.
    pub fn check_complete(&self) -> Result<(), HostError> {
        match self.log.loss().map_err(unreadable)? {
            Some(loss) => Err(unreadable(AuditError::new(AuditTrouble::Lost, loss))),
            None => Ok(()),
        }
    }

    /// Whether nothing was recorded yet: there is no record, and no statement about one.
    ///
    /// # Errors
    /// `audit_unavailable`: that cannot be told.
    pub fn is_new(&self) -> Result<bool, HostError> {
        let anchor = Anchor::of(&self.home).read().map_err(unreadable)?;
        let is_lost = self.log.loss().map_err(unreadable)?.is_some();
        Ok(!is_lost && anchor.is_none() && self.existing()?.is_none())
    }

    /// The public key of the signed statements, as an operator pins it elsewhere.
    ///
    /// # Errors
    /// `audit_unavailable`: `host.key` cannot be used.
    pub fn key(&self) -> Result<NoteKey, HostError> {
        let key = host_key::read_or_make(&self.home.join("host.key"));
        let key = key.map_err(|error| unreadable(AuditError::from_key(error)))?;
        Ok(NoteSigner::new(&key).key())
    }

    /// Signs for the record as it is now: a note to keep elsewhere, by which it is known later whether any of what is
    /// on record today was changed or cut off.
    ///
    /// # Errors
    /// `audit_unavailable`: the record cannot be written.
    pub async fn checkpoint(&self) -> Result<String, HostError> {
        let (reply, note) = written();
        self.log.submit(Order::Sign { reply });
        note.done().await.map_err(unwritable)
    }

    /// Checks the whole record: its chain, its signed statements, those in `pinned` that were kept elsewhere, and that
    /// the lists that are derived from it say the same. `progress` is told how many entries of how many were looked at.
    ///
    /// # Errors
    /// `audit_unavailable`: the record cannot be read. What is wrong with it is no error, but in the proof.
    pub fn verify(&self, pinned: &[String], progress: &mut dyn FnMut(u64, u64)) -> Result<Proof, HostError> {
        self.verify_listing(pinned, FINDINGS, progress)
    }

    /// As [`verify`](Self::verify), and lists up to so many findings instead of 1,000.
    ///
    /// # Errors
    /// As there.
    pub fn verify_listing(
        &self,
        pinned: &[String],
        findings: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Proof, HostError> {
        // Before the view is taken: hosts that go on sign for more.
        let state = HomeState::of(&self.home);
        let log = match state.read().map_err(no_state)? {
            Stored::Valid(progress) => progress.log.filter(|log| log.n > 0).map(|log| (log.n, log.hash)),
            Stored::Missing | Stored::Invalid => None,
        };
        let anchor = || Anchor::of(&self.home).read().map_err(unreadable);
        let mut file = anchor()?;
        let mut evidence = self.log.evidence();
        if file.is_none() && evidence.is_ok() {
            // A record that was just made: its file is older than its first entry, and so than any view with one.
            file = anchor()?;
            evidence = self.log.evidence();
        }
        let loss = self.log.loss().map_err(unreadable)?;
        // Nothing is there: of that, no key is missing.
        let is_expected = file.is_some() || !pinned.is_empty() || log.is_some() || loss.is_some();
        if let (Err(error), false) = (&evidence, is_expected)
            && error.trouble() == AuditTrouble::Absent
        {
            return Err(unreadable(error.clone()));
        }
        let host_key = self.host_key()?;
        let (key, sealer) = (NoteSigner::new(&host_key).key(), Sealer::new(&host_key));
        let expected = Expected { file: file.as_deref(), pinned, log, findings };
        let mut outcome = match evidence {
            Ok(mut evidence) => cofferdam_audit::whole(&mut *evidence, &key, &sealer, &expected, progress)
                .map_err(unreadable)?,
            // A record that is gone is a record that was cut off at its beginning.
            Err(error) if error.trouble() == AuditTrouble::Absent && is_expected => {
                cofferdam_audit::nothing(&key, &expected)
            }
            Err(error) => return Err(unreadable(error)),
        };
        // A loss of the log shows in the chain, unless its flaws were accepted and the home does not know of that.
        let is_known =
            loss.is_some_and(Loss::is_of_the_log) && outcome.findings.iter().any(|it| !it.accepted);
        if let Some(loss) = loss.filter(|_| !is_known) {
            let (n, what) = (outcome.n, loss.to_string());
            let of = *Digest::of(what.as_bytes()).as_bytes();
            let flaw = Flaw::HomeState;
            outcome.findings.push(Finding { n, audit_id: None, seq: None, flaw, what, accepted: false, of });
        }
        Ok(proof(outcome, &key))
    }

    /// Puts on record, signed, that the operator knows of these findings, and goes on from there.
    ///
    /// # Errors
    /// `audit_unavailable`: the record cannot be written.
    pub async fn accept(&self, findings: &[Finding]) -> Result<(), HostError> {
        let (reply, note) = written();
        let flaws = findings.iter().map(Accepted::from).collect();
        self.log.submit(Order::Accept { flaws, reply });
        note.done().await.map(drop).map_err(unwritable)
    }

    /// Removes the calls that were received before, from the oldest on, up to the first that has no end or holds an
    /// idempotency key that is not free yet. A signed statement takes their place, so that the rest can be proved
    /// still. With `dry_run` nothing is removed.
    ///
    /// # Errors
    /// `audit_unavailable`: the record cannot be written, or what would go does not hold together.
    pub async fn prune(&self, before: Timestamp, dry_run: bool) -> Result<Pruned, HostError> {
        let (reply, pruned) = written();
        self.log.submit(Order::Prune { before, dry_run, reply });
        pruned.done().await.map_err(unwritable)
    }

    pub(super) fn log(&self) -> &Arc<dyn AuditLog> {
        &self.log
    }

    /// The key that signed, and never a new one.
    pub(super) fn host_key(&self) -> Result<[u8; 32], HostError> {
        host_key::read(&self.home.join("host.key")).map_err(|error| match error {
            KeyError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = "The record cannot be proved: host.key is missing, whose signature is to be checked.";
                HostError::new(HostErrorKind::AuditUnavailable, message).hint(
                    "Put it back from a backup. Without it nothing is called, written or pruned: where it is lost, move \
                     audit.db, those beside it, audit.checkpoint and home.state away as evidence, and a new key is made.",
                )
            }
            error => unreadable(AuditError::from_key(error)),
        })
    }
}

impl Proof {
    /// That nothing was recorded yet.
    pub fn nothing() -> Self {
        Self {
            holds: true,
            from: 1,
            to: 0,
            part: false,
            head: hex(&[0; 32]),
            entries: 0,
            calls: 0,
            checkpoints: 0,
            since: None,
            until: None,
            key: String::new(),
            findings: Vec::new(),
            more_findings: 0,
            put_back: Vec::new(),
        }
    }
}

/// The proof that this outcome is, by this key.
pub(super) fn proof(outcome: Outcome, key: &NoteKey) -> Proof {
    let findings = outcome.findings;
    Proof {
        holds: outcome.more == 0 && findings.iter().all(|finding| finding.accepted),
        from: outcome.from,
        to: outcome.n,
        part: false,
        head: hex(&outcome.hash),
        entries: outcome.tally.entries,
        calls: outcome.tally.calls,
        checkpoints: outcome.tally.checkpoints,
        since: outcome.tally.since.map(|at| format!("{at:.6}")),
        until: outcome.tally.until.map(|at| format!("{at:.6}")),
        key: key.to_string(),
        findings,
        more_findings: outcome.more,
        put_back: outcome.put_back.into_iter().map(|(n, flaw)| PutBack { n, flaw }).collect(),
    }
}

fn no_state(error: StateError) -> HostError {
    unreadable(AuditError::from_state(error))
}

/// The record cannot be read.
pub fn unreadable(error: AuditError) -> HostError {
    trouble("read", error)
}

fn unwritable(error: AuditError) -> HostError {
    trouble("written", error)
}

fn trouble(what: &str, error: AuditError) -> HostError {
    let message = format!("The record cannot be {what}: {}.", error.says());
    let kind = match error.trouble() {
        AuditTrouble::Tampered => HostErrorKind::AuditTampered,
        _ => HostErrorKind::AuditUnavailable,
    };
    HostError::new(kind, message).hint(error.trouble().fix()).because(error)
}
