//! `binding lock`: locks the vault again, with a passphrase or a key file.

use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_core::error::HostError;
use cofferdam_egress::vault::{LockKind, NewLock};
use serde::Serialize;

use crate::files;
use crate::layout::TextStyle;
use crate::passphrase;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
All that is bound is sealed again in one step. Copies of the vault from before still open with \
what locked it then.

A new passphrase is asked for, or read from --new-passphrase-file. If a passphrase was given for \
this command and the vault is not locked with one yet, it is that one.

Examples:
  cofferdam binding lock --passphrase
  cofferdam binding lock --passphrase --new-passphrase-file new.txt --passphrase-file old.txt
  cofferdam binding lock --key-file";

/// Locks the vault again: with a passphrase, or with its key file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// With a passphrase, which has to be given whenever the vault is opened.
    #[arg(long, required_unless_present = "key_file", conflicts_with = "key_file")]
    passphrase: bool,

    /// With the key file (`vault.key`, unless config.toml names another), made if it is not there.
    #[arg(long)]
    key_file: bool,

    /// Reads the new passphrase from this file, which its owner alone may be able to read.
    #[arg(long, value_name = "FILE", requires = "passphrase")]
    new_passphrase_file: Option<PathBuf>,
}

/// Locks.
pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct LockedVault<'l> {
        change: &'static str,
        lock: &'static str,
        vault: &'l str,
    }
    let (_, vault) = session.host_and_vault()?;
    let vault = vault.file()?;
    let before = vault.status().map_err(HostError::from)?;
    let (lock, with) = if args.passphrase {
        let given = match (&args.new_passphrase_file, before.lock) {
            (Some(path), _) => Some(passphrase::from_file(path)?),
            (None, Some(LockKind::Passphrase)) => None,
            (None, _) => session.supplied_passphrase()?,
        };
        let passphrase = given.map_or_else(passphrase::ask_new, Ok)?;
        passphrase::warn_if_short(&passphrase, session.ui);
        (NewLock::Passphrase(Arc::new(passphrase)), "passphrase")
    } else {
        (NewLock::KeyFile, "key_file")
    };
    vault.relock(&lock).map_err(HostError::from)?;
    let path = files::shown(vault.path());
    session.ui.result(&LockedVault { change: "locked", lock: with, vault: &path }, |page| {
        page.styled_field("locked", TextStyle::Good, &path);
        page.field("with", &with.replace('_', " "));
    })?;
    let key = files::shown(vault.key_file_path());
    if args.passphrase {
        session.ui.note("There is no way to open the vault without the passphrase.");
        if vault.key_file_path().exists() {
            session.ui.note(&format!(
                "The key file is not needed any more; it opens old copies of the vault: {key}"
            ));
        }
    } else {
        session.ui.note(&format!("Whoever can read both the vault and {key} has every secret in it."));
    }
    Ok(())
}
