//! `audit export`: the audit log as lines of JSON, to be stored and verified elsewhere.

use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::private_file::{FilePolicy, StagedFile};
use jiff::Timestamp;

use crate::commands::time_format::parse_timestamp;
use crate::files;
use crate::layout::TextStyle;
use crate::progress::ProgressCounter;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
The lines of the journals are exported as they are: each is an entry, with the hash of the one before it; a signed \
statement is at the end. `cofferdam audit verify --export` verifies it on any machine, without the audit log. What is sealed \
(whole requests and outcomes) is not exported. An audit log that does not verify is not exported.

Examples:
  cofferdam audit export calls.jsonl
  cofferdam audit export --since 2026-11-01 --until 2026-12-01 -o november.jsonl
  cofferdam audit export -o calls.jsonl --force
  cofferdam audit export - | zstd > calls.jsonl.zst";

/// Writes the audit log as lines of JSON that can be verified without it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file to make; `-` for standard output.
    #[arg(value_name = "FILE", required_unless_present = "output", conflicts_with = "output")]
    file: Option<PathBuf>,

    /// The same.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replaces the file if it is there; it stays what it was until all of the new one is written.
    #[arg(long)]
    force: bool,

    /// Only what was written at this time or later, like `2026-11-01`, `2026-11-01T12:00Z` or `30d`.
    #[arg(long, value_name = "TIME", value_parser = parse_timestamp)]
    since: Option<Timestamp>,

    /// Only what was written before this time.
    #[arg(long, value_name = "TIME", value_parser = parse_timestamp)]
    until: Option<Timestamp>,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let mut counted = ProgressCounter::start(session.ui, "entries exported");
    let mut progress = |done, of| counted.update(done, of);
    // One of the two is there.
    let path = args.file.as_ref().or(args.output.as_ref()).map_or(Path::new("-"), PathBuf::as_path);
    if path.as_os_str() == "-" {
        let mut out = BufWriter::new(std::io::stdout().lock());
        host.audit().export(args.since, args.until, &mut out, &mut progress)?;
        return out.flush().map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe => CommandError::PipeClosed,
            _ => unwritable("Standard output", error).into(),
        });
    }
    check_place(path, args.force)?;
    let wrong = |error| files::unwritable(path, error);
    // The file is private, and gets its name only when it is complete.
    let staged =
        StagedFile::begin(path, &FilePolicy::private_output()).map_err(|error| wrong(error.into()))?;
    let mut out = BufWriter::new(staged);
    let exported = host.audit().export(args.since, args.until, &mut out, &mut progress)?;
    let staged = out.into_inner().map_err(|error| wrong(error.into_error()))?;
    let placed = if args.force { staged.replace() } else { staged.create_new() };
    placed.map_err(|error| match io::Error::from(error) {
        error if error.kind() == ErrorKind::AlreadyExists => there_already(path),
        error => wrong(error),
    })?;
    drop(counted);
    session.ui.result(&exported, |page| {
        page.styled_field("exported", TextStyle::Good, &files::shown(path));
        page.field("entries", &exported.entries.to_string());
    })?;
    Ok(())
}

/// Refuses what is there, before anything is read; with `force`, what is no file: `/dev/null` is nothing to replace.
fn check_place(path: &Path, force: bool) -> Result<(), HostError> {
    match path.symlink_metadata() {
        Ok(there) if force && there.is_file() => Ok(()),
        Ok(_) if force => {
            let message =
                format!("{} is not a file that could be replaced; nothing was changed.", files::shown(path));
            let hint = "Name a file, or `-` for standard output.";
            Err(HostError::new(HostErrorKind::OutputUnwritable, message).with_hint(hint))
        }
        Ok(_) => Err(there_already(path)),
        // Creating the file reports the fault.
        Err(_) => Ok(()),
    }
}

fn there_already(path: &Path) -> HostError {
    let message = format!("{} is there already; nothing was changed.", files::shown(path));
    HostError::new(HostErrorKind::Conflict, message)
        .with_hint("Name another file, or replace it with --force.")
}

fn unwritable(what: &str, error: std::io::Error) -> HostError {
    let message = format!("{what} cannot be written: {}.", files::reason(&error));
    HostError::new(HostErrorKind::OutputUnwritable, message).with_source(error)
}
