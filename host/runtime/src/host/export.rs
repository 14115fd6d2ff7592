//! Exports of the audit log: made from one snapshot of it, verified on the way, and verifiable without it.

use std::io::{BufRead, Write};

use cofferdam_audit::{
    Checkpoint, ExportError, Exporter, NoteKey, NoteSigner, Statement, StoredEntry, Verifier, check,
};
use cofferdam_core::error::{HostError, HostErrorKind};
use jiff::Timestamp;

use super::audit::{Audit, VerificationReport, unreadable};

/// The number of entries that are read at once.
const EXPORT_BATCH: usize = 1_000;

/// The result of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct ExportSummary {
    /// The number of the first entry.
    pub from: u64,
    /// The number of the last entry.
    pub to: u64,
    /// The number of exported entries.
    pub entries: u64,
}

impl Audit {
    /// Writes the entries from `since` on and before `until` to `out`, as lines of JSON. They are a contiguous part
    /// of the chain: from the first entry of the first call that was received in that time to the last entry
    /// written in it.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be read. `audit_tampered`: it is not intact, and nothing is
    /// signed. `output_unwritable`: `out` fails.
    pub fn export(
        &self,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ExportSummary, HostError> {
        let signer = NoteSigner::new(&self.host_key()?);
        let key = signer.key();
        // A checkpoint must not be signed for a damaged log. So verify the whole log first, and later entries
        // during the export.
        let proof = self.verify(&[], progress)?;
        if let Some(finding) = proof.findings.iter().find(|finding| !finding.accepted) {
            return Err(tampered(&finding.what));
        }
        let mut evidence = self.log().evidence().map_err(unreadable)?;
        let last = evidence.last().map_err(unreadable)?;
        let base = evidence.base().map_err(unreadable)?;
        let mut verifier = Verifier::new(&key);
        match base.as_deref().map(|note| Checkpoint::read(note, &key)) {
            Some(Ok(Checkpoint { n, hash, statement: Statement::Pruned, .. })) => {
                verifier.begin_after(n, hash)
            }
            Some(_) => return Err(tampered("the statement about its beginning does not hold")),
            None => {}
        }
        let mut notes =
            evidence.notes().map_err(unreadable)?.into_iter().filter(|note| !note.is_base).peekable();
        let mut exporter: Option<Exporter<'_>> = None;
        let mut exported = ExportSummary { from: 0, to: 0, entries: 0 };
        let mut is_part = false;
        let mut out = Some(out);
        'all: loop {
            let entries = evidence.chain(verifier.n().saturating_add(1), EXPORT_BATCH).map_err(unreadable)?;
            if entries.is_empty() {
                break;
            }
            for kept in entries {
                let (n, hash) = (verifier.n(), verifier.hash());
                let at = time_of(&kept.entry);
                if exporter.is_none() && since.is_none_or(|since| at.is_none_or(|at| at >= since)) {
                    is_part = since.is_some() && n > base_n(base.as_deref(), &key) || until.is_some();
                    let begins = match (&base, n) {
                        (_, 0) => None,
                        (Some(note), n) if n == base_n(Some(note), &key) => Some((note.clone(), hash)),
                        _ => {
                            let at = Timestamp::now();
                            let note = Checkpoint { n, hash, at, vault: None, statement: Statement::Head }
                                .sign(&signer);
                            Some((note, hash))
                        }
                    };
                    if let Some(out) = out.take() {
                        exporter = Some(Exporter::begin(out, &key, is_part, begins).map_err(unwritable)?);
                        exported.from = n.saturating_add(1);
                    }
                }
                if until.is_some_and(|until| at.is_some_and(|at| at >= until)) {
                    break 'all;
                }
                drop(verifier.entry(&kept.entry, None));
                if let Some(finding) = verifier.finding_after(proof.to) {
                    return Err(tampered(&finding.what));
                }
                if let Some(exporter) = &mut exporter {
                    exporter.entry(&kept.entry).map_err(unwritable)?;
                    exported.to = kept.entry.n;
                    exported.entries += 1;
                }
                while let Some(note) = notes.next_if(|note| note.n <= kept.entry.n) {
                    let signed = Checkpoint::read(&note.note, &key);
                    if let (Some(exporter), Ok(signed)) = (&mut exporter, signed)
                        && signed.n == kept.entry.n
                        && signed.n < last
                    {
                        if signed.hash != kept.entry.hash {
                            return Err(tampered("it is not the log that was signed"));
                        }
                        exporter.checkpoint(&note.note).map_err(unwritable)?;
                    }
                }
            }
            progress(verifier.n(), last);
        }
        let Some(exporter) = &mut exporter else {
            let message = "Nothing was recorded in that time.";
            return Err(HostError::new(HostErrorKind::AuditNotFound, message));
        };
        let (n, hash, at) = (verifier.n(), verifier.hash(), Timestamp::now());
        let statement = Statement::Exported { part: is_part };
        let note = Checkpoint { n, hash, at, vault: None, statement }.sign(&signer);
        exporter.checkpoint(&note).map_err(unwritable)?;
        Ok(exported)
    }
}

/// Verifies an export, with `key` or with the key that it names itself. No audit log is needed. `pinned` are
/// checkpoints that were stored elsewhere.
///
/// # Errors
/// `input_unreadable`: it cannot be read; `validation`: it is not an export. Its flaws are not an error, but
/// findings of the report.
pub fn verify_export(
    export: &mut dyn BufRead,
    key: Option<&NoteKey>,
    pinned: &[String],
    progress: &mut dyn FnMut(u64),
) -> Result<VerificationReport, HostError> {
    let checked = check(export, key, pinned, progress).map_err(|error| match error {
        ExportError::Io(error) => {
            HostError::new(HostErrorKind::InputUnreadable, "The export cannot be read.").with_source(error)
        }
        ExportError::NoExport(why) => {
            HostError::new(HostErrorKind::Validation, format!("This is no export of an audit log: {why}."))
                .with_hint("`cofferdam audit export FILE` makes one.")
        }
    })?;
    Ok(VerificationReport {
        part: checked.part,
        ..super::audit::verification_report(checked.outcome, &checked.key)
    })
}

fn base_n(base: Option<&str>, key: &NoteKey) -> u64 {
    base.and_then(|note| Checkpoint::read(note, key).ok()).map_or(0, |base| base.n)
}

/// Returns the time of the entry's first event.
fn time_of(entry: &StoredEntry) -> Option<Timestamp> {
    let (_, rest) = entry.body.split_once("\"at\":\"")?;
    rest.split('"').next()?.parse().ok()
}

fn tampered(what: &str) -> HostError {
    let message = format!("The audit log does not verify, and the export is not signed: {what}.");
    HostError::new(HostErrorKind::AuditTampered, message)
        .with_hint("`cofferdam audit verify` says all that is wrong.")
}

fn unwritable(error: std::io::Error) -> HostError {
    HostError::new(HostErrorKind::OutputUnwritable, "The export cannot be written.").with_source(error)
}
