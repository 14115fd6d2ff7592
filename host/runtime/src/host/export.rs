//! Exports of the audit log: its journals as they are, verifiable without it.

use std::io::{BufRead, Write};

use cofferdam_audit::{
    ExportError, ExportRange, FINDINGS, NoteKey, NoteSigner, export, verify_export as check,
};
use cofferdam_core::error::{HostError, HostErrorKind};
use jiff::Timestamp;

use super::audit::{Audit, VerificationReport};
use crate::log_errors::unreadable;

/// The result of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct ExportSummary {
    /// The number of exported entries.
    pub entries: u64,
}

impl Audit {
    /// Writes the entries from `since` on and before `until` to `out`, as lines of JSON. They are a contiguous part
    /// of each journal: from the first entry at or after `since` to the last one before the first at or after
    /// `until`.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be read. `audit_tampered`: it is not intact, and nothing is
    /// signed. `output_unwritable`: `out` fails. `audit_not_found`: nothing was recorded, or not in that time;
    /// nothing is written then.
    pub fn export(
        &self,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ExportSummary, HostError> {
        if self.is_new()? {
            return Err(nothing_yet());
        }
        let signer = NoteSigner::new(&self.host_key()?);
        // A statement must not be signed about a damaged log. So verify the whole log first, and later entries
        // during the export.
        let proof = self.verify(&[], FINDINGS, progress)?;
        if let Some(finding) = proof.findings.iter().find(|finding| !finding.accepted) {
            return Err(tampered(&finding.what));
        }
        let evidence = self.log().evidence().map_err(unreadable)?;
        let (range, is_strict, total) =
            (ExportRange { since, until }, proof.findings.is_empty(), proof.stats.entries);
        let exported =
            export(&*evidence, &signer, range, is_strict, out, &mut |done| progress(done, total.max(done)));
        match exported {
            Ok(0) if since.is_none() && until.is_none() => Err(nothing_yet()),
            Ok(0) => {
                let message = "Nothing was recorded in that time.";
                Err(HostError::new(HostErrorKind::AuditNotFound, message))
            }
            Ok(entries) => Ok(ExportSummary { entries }),
            Err(error) => Err(match error {
                ExportError::Io(error) => unwritable(error),
                ExportError::Log(error) => unreadable(error),
                ExportError::Tampered { .. } | ExportError::NoExport(_) => tampered(&error.to_string()),
            }),
        }
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
        ExportError::NoExport(why) => {
            HostError::new(HostErrorKind::Validation, format!("This is no export of an audit log: {why}."))
                .with_hint("`cofferdam audit export FILE` makes one.")
        }
        error => {
            HostError::new(HostErrorKind::InputUnreadable, "The export cannot be read.").with_source(error)
        }
    })?;
    Ok(VerificationReport {
        part: checked.part,
        ..super::audit::verification_report(checked.outcome, &checked.key)
    })
}

fn nothing_yet() -> HostError {
    HostError::new(HostErrorKind::AuditNotFound, "Nothing was recorded yet.")
        .with_hint("The first call or change by an operator begins the audit log.")
}

fn tampered(what: &str) -> HostError {
    let message = format!("The audit log does not verify, and the export is not signed: {what}.");
    HostError::new(HostErrorKind::AuditTampered, message)
        .with_hint("`cofferdam audit verify` says all that is wrong.")
}

fn unwritable(error: std::io::Error) -> HostError {
    HostError::new(HostErrorKind::OutputUnwritable, "The export cannot be written.").with_source(error)
}
