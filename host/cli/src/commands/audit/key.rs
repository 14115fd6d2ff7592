//! `audit key` and `audit checkpoint`: print the key and the checkpoint that an operator keeps elsewhere, to detect
//! changes later.

use serde_json::json;

use crate::report::CommandError;
use crate::runtime::block_on;
use crate::session::Session;

const KEY_EXAMPLES: &str = "\
The key is derived from host.key, and is in the form that tools for signed notes read. Keep it out of reach of \
users who can write the audit log: an export is verified with it on any machine.

Examples:
  cofferdam audit key
  cofferdam audit verify --export calls.jsonl --key \"$(cat audit.key)\"";

const CHECKPOINT_EXAMPLES: &str = "\
Mail it, print it, or write it to another machine. `cofferdam audit verify --checkpoint FILE` checks later \
that every entry that it covers is still there, unchanged. It does not cover what another process has not signed yet.

Examples:
  cofferdam audit checkpoint > 2026-11-22.checkpoint";

/// Prints the public key that the audit log is signed with.
#[derive(Debug, clap::Args)]
#[command(after_help = KEY_EXAMPLES)]
pub(crate) struct KeyArgs {}

/// Prints a checkpoint of the audit log: the signed end of each journal.
#[derive(Debug, clap::Args)]
#[command(after_help = CHECKPOINT_EXAMPLES)]
pub(crate) struct CheckpointArgs {}

pub(super) fn key(session: &Session<'_>) -> Result<(), CommandError> {
    let key = session.host()?.audit().key()?;
    session.ui.result(&json!({"key": key.to_string(), "id": key.id()}), |page| {
        page.line(&key.to_string());
    })
}

pub(super) fn checkpoint(session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let checkpoint = block_on(async { Ok(host.audit().checkpoint().await?) })?;
    if session.ui.json() {
        return session.ui.line_of_json(&json!({"checkpoint": checkpoint}));
    }
    // To the byte: the signature is over it.
    session.ui.raw(checkpoint.as_bytes())
}
