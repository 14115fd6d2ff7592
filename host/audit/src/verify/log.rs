//! The verification of a whole audit log: its journals, what was signed of them, and what is derived from them.

use std::collections::BTreeSet;

use super::{CheckedLine, FINDINGS, FindingKind, Verifier, VerifyOutcome};
use crate::error::AuditError;
use crate::evidence::{AuditEvidence, EvidenceLine, LeftOver, SealedState};
use crate::journal::{ChainHead, LogCheckpoint, SignedJournal};
use crate::note::NoteKey;

/// Reports the progress of a verification, in entries: those done, and the total as far as it is known.
pub(crate) type VerifyProgress<'p> = &'p mut dyn FnMut(u64, u64);

/// The name of the statement beside the journals, in findings.
const CHECKPOINT: &str = "audit/checkpoint";

/// A verification is repeated while pruning removes what it reads.
const TRIES: u32 = 4;

/// The inputs of a verification beside the log.
pub struct ExpectedState<'p> {
    /// Statements that are stored elsewhere.
    pub pinned: &'p [String],
    /// True if there must be a log, since the home remembers one.
    pub is_log_expected: bool,
    /// The most findings that are kept.
    pub findings: usize,
}

impl Default for ExpectedState<'_> {
    fn default() -> Self {
        Self { pinned: &[], is_log_expected: false, findings: FINDINGS }
    }
}

/// Verifies the log.
///
/// # Errors
/// The audit log cannot be read.
pub fn verify_log(
    evidence: &mut dyn AuditEvidence,
    key: &NoteKey,
    expected: &ExpectedState<'_>,
    progress: VerifyProgress<'_>,
) -> Result<VerifyOutcome, AuditError> {
    for _ in 1..TRIES {
        let (outcome, checkpoint) = verify_once(evidence, key, expected, progress)?;
        let is_pruned = || {
            let now = evidence.checkpoint()?.and_then(|note| LogCheckpoint::read(&note, key).ok());
            let bases = |of: &Option<LogCheckpoint>| {
                let journals = of.iter().flat_map(|it| &it.journals);
                journals.map(|(writer, journal)| (writer.clone(), journal.base.n)).collect::<BTreeSet<_>>()
            };
            Ok::<_, AuditError>(!bases(&now).is_subset(&bases(&checkpoint)) && now.is_some())
        };
        if outcome.findings.is_empty() || !is_pruned()? {
            return Ok(outcome);
        }
    }
    verify_once(evidence, key, expected, progress).map(|(outcome, _)| outcome)
}

fn verify_once(
    evidence: &mut dyn AuditEvidence,
    key: &NoteKey,
    expected: &ExpectedState<'_>,
    progress: VerifyProgress<'_>,
) -> Result<(VerifyOutcome, Option<LogCheckpoint>), AuditError> {
    // In this order: a writer is in the statement before its first entry, and the statement is about entries that are
    // there.
    let writers = evidence.writers()?;
    let note = evidence.checkpoint()?;
    let mut verifier = Verifier::new(key, expected.findings);
    let checkpoint = match &note {
        Some(note) => verifier.note(note, CHECKPOINT).filter(|checkpoint| {
            // The statement at the end of an export is about a part of the log.
            let is_of_log = checkpoint.export.is_none();
            if !is_of_log {
                let what = format!("the statement in {CHECKPOINT} is that of an export");
                verifier.find(0, FindingKind::Signature, what);
            }
            is_of_log
        }),
        None => {
            if !writers.is_empty() || expected.is_log_expected {
                let what = format!(
                    "{CHECKPOINT} is missing: whether a journal or its end was removed cannot be told"
                );
                verifier.find(0, FindingKind::Signature, what);
            }
            None
        }
    };
    expected.pinned.iter().for_each(|note| drop(verifier.note(note, "a checkpoint kept elsewhere")));
    let journals = checkpoint.iter().flat_map(|checkpoint| &checkpoint.journals);
    let total = journals.fold(0, |sum: u64, (_, it)| sum.saturating_add(it.head.n.saturating_sub(it.base.n)));
    for writer in &writers {
        journal(evidence, &mut verifier, writer, checkpoint.as_ref(), total, progress)?;
    }
    // A writer may have begun since.
    let (known, now): (BTreeSet<_>, _) = (writers.into_iter().collect(), evidence.writers()?);
    let now: BTreeSet<_> = now.into_iter().collect();
    for writer in verifier.unchecked_writers() {
        match now.contains(&writer) && !known.contains(&writer) {
            true => journal(evidence, &mut verifier, &writer, checkpoint.as_ref(), total, progress)?,
            false => {
                let signed = checkpoint.as_ref().and_then(|it| it.journals.get(&writer));
                verifier.begin_journal(&writer, signed.copied().unwrap_or_default().base);
                verifier.end_journal();
            }
        }
    }
    for derived in evidence.derived()? {
        let thing = derived.thing();
        verifier.find_in(derived.audit_id, 0, None, derived.flaw, derived.what, thing.as_bytes());
    }
    Ok((verifier.end(), checkpoint))
}

fn journal(
    evidence: &dyn AuditEvidence,
    verifier: &mut Verifier<'_>,
    writer: &str,
    checkpoint: Option<&LogCheckpoint>,
    total: u64,
    progress: VerifyProgress<'_>,
) -> Result<(), AuditError> {
    let signed = checkpoint.and_then(|it| it.journals.get(writer)).copied();
    let SignedJournal { base, head: ChainHead { n: signed_end, .. } } = signed.unwrap_or_default();
    verifier.begin_journal(writer, base);
    let (mut is_empty, mut left_over) = (true, LeftOver::default());
    evidence.read(writer, base.n, &mut |read: EvidenceLine<'_>| {
        if std::mem::take(&mut is_empty) && signed.is_none() && checkpoint.is_some() {
            let what = "no signed statement is about the journal".to_owned();
            verifier.find(0, FindingKind::Signature, what);
        }
        let is_torn = || evidence.is_torn(writer, read.segment, read.position);
        if left_over.has(&read, verifier.head(), signed_end, is_torn)? {
            return Ok(());
        }
        if !read.is_whole {
            // The next process cuts off what was written of a line when its process was killed.
            if !read.is_newest {
                let n = verifier.head().n.saturating_add(1);
                let what = format!("the segment ends within entry {n}");
                verifier.find_in(None, n, None, FindingKind::Unreadable, what, read.text);
            }
            return Ok(());
        }
        verifier.place(read.segment, read.position == 0, read.text);
        if let Some(CheckedLine { line, audit_id }) = verifier.line(read.text)
            && let Some(place) = &line.sealed
            && match evidence.sealed(writer, read.segment, place)? {
                SealedState::Intact => false,
                // What is signed for was on the disk.
                SealedState::Short => line.n <= signed_end,
                SealedState::Changed => true,
            }
        {
            let what = format!("what is sealed of entry {} was changed", line.n);
            verifier.find_in(audit_id, line.n, None, FindingKind::Sealed, what, place.sha256.as_bytes());
        }
        let done = verifier.stats.entries;
        progress(done, total.max(done));
        Ok(())
    })?;
    verifier.end_journal();
    Ok(())
}
