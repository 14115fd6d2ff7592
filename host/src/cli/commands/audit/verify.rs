//! `audit verify`: whether the record holds together.

use serde::Serialize;

use crate::audit::{GENESIS, chained};
use crate::cli::page::{Page, Tone};
use crate::cli::report::Stop;
use crate::cli::session::Session;
use crate::error::{HostError, HostErrorKind};

const EXAMPLES: &str = "\
Examples:
  cofferdam audit verify
  cofferdam audit verify --format json";

/// Checks that nothing in the record was edited, removed, inserted or put in another order.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {}

#[derive(Debug, Serialize)]
struct Verified {
    entries: u64,
}

pub(super) fn run(_args: &Args, session: &Session<'_>) -> Result<(), Stop> {
    let host = session.host()?;
    let mut reader = host.audit().reader()?;
    let (mut n, mut hash) = (0, GENESIS);
    loop {
        let entries = reader.entries(n + 1, 1000).map_err(|error| {
            HostError::new(HostErrorKind::AuditUnavailable, "The record cannot be read.").because(error)
        })?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            n += 1;
            hash = chained(&hash, n, crate::digest::Digest::of(entry.body.as_bytes()).as_bytes());
            if entry.n != n || entry.hash != hash {
                let message = format!("Entry {n} of the record was changed.");
                return Err(HostError::new(HostErrorKind::AuditTampered, message).into());
            }
        }
    }
    let verified = Verified { entries: n };
    session.ui.result(&verified, || {
        let mut page = Page::default();
        page.toned_field("verified", Tone::Good, &format!("{n} entries"));
        page
    })
}
