//! `audit verify`: verifies the audit log.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use cofferdam_audit::{AcknowledgedFinding, FINDINGS, Finding, NoteKey, VerifiedJournal, hex};
use cofferdam_core::error::HostErrorKind;
use cofferdam_runtime::host::{Audit, VerificationReport, verify_export};

use super::NOTHING;
use crate::exit_codes::kind_exit_code;
use crate::files;
use crate::layout::{Page, TextStyle};
use crate::progress::ProgressCounter;
use crate::report::{CommandError, exit_after};
use crate::runtime::block_on;
use crate::session::Session;

const EXAMPLES: &str = "\
Each writer of the audit log has a journal, in which an entry has the hash of the one before it, and the host signs the \
ends. So an entry that was edited, removed, inserted or moved is found, and so is an end that was cut off. A reader of \
host.key can sign another history: only a checkpoint kept elsewhere (`cofferdam audit checkpoint`) detects that.

Examples:
  cofferdam audit verify
  cofferdam audit verify --checkpoint 2026-11-22.checkpoint
  cofferdam audit verify --export calls.jsonl --key \"$(cat audit.key)\"
  cofferdam audit verify --format json";

/// Findings that are shown to people where nothing else is asked for.
const SHOWN: usize = 20;

/// Most that can be asked for: some 200 MiB.
const MOST: u64 = 1_000_000;

/// The most bytes of a statement, as a host writes it.
const NOTE_BYTES: u64 = 4 * 1024 * 1024;

/// Checks that nothing in the audit log was edited, removed, inserted or reordered.
///
/// Looks at every entry, every signed statement, what is sealed, and the idempotency keys that are derived from the
/// entries. The exit code is 0 where all of it holds together, and 86 where it does not.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A checkpoint that was kept elsewhere: the entries that it covers must be in the audit log, unchanged.
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,

    /// Checks this export instead of the audit log; `-` for standard input. It needs nothing else.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,

    /// The public key that must have signed the export, as `cofferdam audit key` prints it.
    ///
    /// Without it the key is the one that the export names itself: then it holds together, and whose it is you judge
    /// by the key that is shown.
    #[arg(long, value_name = "KEY", requires = "export", value_parser = note_key)]
    key: Option<NoteKey>,

    /// Records, signed, that you know the findings, and continues from there.
    ///
    /// A flaw that is still there stays in every later proof, as accepted; an accepted loss is an entry of the log. A
    /// change after that is a new finding.
    #[arg(long, conflicts_with = "export")]
    accept_loss: bool,

    /// Lists up to so many findings; of an export up to 1,000. Without it 20, and 1,000 in JSON.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    findings: Option<u64>,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let kept = args.checkpoint.iter().map(|path| files::bounded("The checkpoint", path, NOTE_BYTES));
    // Invalid UTF-8 is not a valid checkpoint either, and is reported as such.
    let kept = kept.map(|note| note.map(|note| String::from_utf8_lossy(&note).into_owned()));
    let kept = kept.collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = &args.export {
        let proof = verify_exported(path, args.key.as_ref(), &kept, session)?;
        return show_report(&proof, args.findings(), session);
    }
    let host = session.host()?;
    let audit = host.audit();
    if kept.is_empty() && audit.is_new()? {
        let empty = VerificationReport { holds: true, ..VerificationReport::default() };
        session.ui.result(&empty, |_| {})?;
        session.ui.note(NOTHING);
        return Ok(());
    }
    let mut proof = verify_log(audit, &kept, args, session)?;
    if args.accept_loss {
        let new: Vec<Finding> = proof.findings.iter().filter(|finding| !finding.accepted).cloned().collect();
        block_on(async { Ok(audit.accept(&new).await?) })?;
        if !new.is_empty() {
            session.ui.note(&format!("{} of the findings accepted: `cofferdam audit changes`.", new.len()));
        }
        proof = verify_log(audit, &kept, args, session)?;
    }
    show_report(&proof, args.findings(), session)
}

impl Args {
    fn findings(&self) -> Option<usize> {
        self.findings.map(|findings| usize::try_from(findings).unwrap_or(usize::MAX))
    }
}

fn verify_log(
    audit: &Audit,
    kept: &[String],
    args: &Args,
    session: &Session<'_>,
) -> Result<VerificationReport, CommandError> {
    let mut counted = ProgressCounter::start(session.ui, "entries verified");
    // For programs, and kept in memory.
    let listed = args.findings().map_or(FINDINGS, |most| most.max(FINDINGS));
    Ok(audit.verify(kept, listed, &mut |done, of| counted.update(done, of))?)
}

fn verify_exported(
    path: &Path,
    key: Option<&NoteKey>,
    kept: &[String],
    session: &Session<'_>,
) -> Result<VerificationReport, CommandError> {
    let mut counted = ProgressCounter::start(session.ui, "entries verified");
    let mut progress = |done| counted.update(done, done);
    if path.as_os_str() == "-" {
        return Ok(verify_export(&mut std::io::stdin().lock(), key, kept, &mut progress)?);
    }
    let file = File::open(path).map_err(|error| files::unreadable("The export", path, error))?;
    Ok(verify_export(&mut BufReader::new(file), key, kept, &mut progress)?)
}

fn note_key(text: &str) -> Result<NoteKey, String> {
    NoteKey::parse(text).ok_or_else(|| "it is not a key as `cofferdam audit key` prints it".to_owned())
}

/// Shows a proof; one that fails ends the command.
fn show_report(
    proof: &VerificationReport,
    findings: Option<usize>,
    session: &Session<'_>,
) -> Result<(), CommandError> {
    let printed = session.ui.result(proof, |it| page(proof, findings.unwrap_or(SHOWN), it));
    exit_after(printed, (!proof.holds).then(|| kind_exit_code(HostErrorKind::AuditTampered)))
}

fn page(proof: &VerificationReport, most: usize, page: &mut Page) {
    match proof.holds {
        true => page.styled_field("verified", TextStyle::Good, "the audit log holds together"),
        false => page.styled_field("changed", TextStyle::Bad, "the audit log does not hold together"),
    };
    let stats = &proof.stats;
    let entries = match stats.entries {
        0 => "none".to_owned(),
        some => some.to_string(),
    };
    page.field("entries", &entries);
    if proof.part {
        page.styled_field("part", TextStyle::Doubtful, "the audit log has more than this export");
    }
    let times = match (stats.since, stats.until) {
        (Some(since), Some(until)) => format!(", received {since:.6} to {until:.6}"),
        _ => String::new(),
    };
    page.field("calls", &format!("{}{times}", stats.calls));
    let checkpoints = match stats.checkpoints {
        0 => "none: nothing signed says where the audit log ends".to_owned(),
        some => format!("{some} that hold"),
    };
    page.field("checkpoints", &checkpoints);
    page.field("signed by", &proof.key);
    for VerifiedJournal { writer, from, to, hash } in &proof.journals {
        page.field("journal", &format!("{writer}: entries {from} to {to}, head {}", hex(hash)));
    }
    for finding in proof.findings.iter().take(most) {
        let call = finding.audit_id.as_ref().map(|id| match finding.seq {
            Some(seq) => format!(" ({}, event {seq})", id.as_str()),
            None => format!(" ({})", id.as_str()),
        });
        let journal = finding.writer.as_ref().map(|writer| format!("journal {writer}: ")).unwrap_or_default();
        let text = format!("{journal}{}{}", finding.what, call.unwrap_or_default());
        match finding.accepted {
            true => page.styled_field("accepted", TextStyle::Doubtful, &text),
            false => page.styled_field(finding.flaw.name(), TextStyle::Bad, &text),
        };
    }
    let more = (proof.findings.len().saturating_sub(most) as u64).saturating_add(proof.more_findings);
    if more > 0 {
        page.line(&format!("and {more} more: `--findings N` lists up to N"));
    }
    for AcknowledgedFinding { writer, n, flaw, .. } in proof.put_back.iter().take(most) {
        let journal = writer.as_ref().map(|writer| format!("journal {writer}, ")).unwrap_or_default();
        let what =
            format!("{journal}entry {n}: {} was accepted, and is again as the host wrote it", flaw.name());
        page.styled_field("put back", TextStyle::Doubtful, &what);
    }
}
