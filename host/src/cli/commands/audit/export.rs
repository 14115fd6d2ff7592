//! `audit export`: the record as lines of JSON, to be kept and checked elsewhere.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use jiff::Timestamp;

use super::when::moment;
use crate::cli::files;
use crate::cli::page::{Page, Tone};
use crate::cli::progress::Counted;
use crate::cli::report::Stop;
use crate::cli::session::Session;
use crate::error::{HostError, HostErrorKind};

const EXAMPLES: &str = "\
Each line is an entry, with its hash and the hash of the one before it; signed statements stand between them and
at the end. `cofferdam audit verify --export` checks it on any machine, without the record. What is sealed
(whole requests and outcomes) stays at home. A record that does not hold together is not exported.

Examples:
  cofferdam audit export calls.jsonl
  cofferdam audit export --since 2026-11-01 --until 2026-12-01 november.jsonl
  cofferdam audit export - | zstd > calls.jsonl.zst";

/// Writes the record as lines of JSON that can be verified without it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The file to make; `-` for standard output.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Only what was written at this time or later, like `2026-11-01`, `2026-11-01T12:00Z` or `30d`.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,

    /// Only what was written before this time.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), Stop> {
    let host = session.host()?;
    let mut counted = Counted::start(session.ui, "entries exported");
    let mut progress = |done, of| counted.at(done, of);
    if args.file.as_os_str() == "-" {
        let mut out = BufWriter::new(std::io::stdout().lock());
        host.audit().export(args.since, args.until, &mut out, &mut progress)?;
        return out.flush().map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe => Stop::PipeClosed,
            _ => unwritable("Standard output", error).into(),
        });
    }
    let label = files::shown(&args.file);
    // Nobody else's to read, and never in the place of another file.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.file);
    let file = file.map_err(|error| unwritable(&label, error))?;
    let mut out = BufWriter::new(&file);
    let exported =
        host.audit().export(args.since, args.until, &mut out, &mut progress).and_then(|exported| {
            out.flush().and_then(|()| file.sync_all()).map_err(|error| unwritable(&label, error))?;
            Ok(exported)
        });
    let exported = exported.inspect_err(|_| {
        // Half an export is none.
        let _ = std::fs::remove_file(&args.file);
    })?;
    drop(counted);
    session.ui.result(&exported, || {
        let mut page = Page::default();
        page.toned_field("exported", Tone::Good, &label);
        page.field("entries", &format!("{} (number {} to {})", exported.entries, exported.from, exported.to));
        page
    })?;
    Ok(())
}

fn unwritable(what: &str, error: std::io::Error) -> HostError {
    let message = format!("{what} cannot be written: {}.", files::reason(&error));
    HostError::new(HostErrorKind::OutputUnwritable, message).because(error)
}
