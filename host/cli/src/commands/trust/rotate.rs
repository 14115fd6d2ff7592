//! `trust rotate`: lets the successor of a key take its place.

use std::path::PathBuf;

use cofferdam_core::document::InvalidValue;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::trust::{KEY_SET_BYTES, KeyEnd, KeySuccession};
use jiff::Timestamp;
use serde::Serialize;

use super::{
    KeyView, check_unchanged, find, installed_before, keep_packages, moment, refusal, warn_of_thresholds,
};
use crate::layout::Page;
use crate::report::CommandError;
use crate::session::Session;
use crate::{files, prompt};

const EXAMPLES: &str = "\
The file is the statement that `cofferdam key rotate` writes. Both keys have to have signed it; the old key must be \
trusted here, and neither revoked, expired nor succeeded already. The new key gets exactly the scopes of the old one, \
and its last day unless you give another. The old key is revoked, or expires on the day that you give. A thief of \
the old key could have made such a statement too: compare the id of the new key with its owner.

Examples:
  cofferdam trust rotate succession.dsse.json
  cofferdam trust rotate succession.dsse.json --keep-installed
  cofferdam trust rotate succession.dsse.json --old-until 2027-01-31 --yes";

/// Trusts the successor of a key for what the key is trusted for, by a statement that both keys signed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The statement.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The last day of the old key [default: it is revoked now].
    #[arg(long, value_name = "DATE", value_parser = moment)]
    old_until: Option<Timestamp>,

    /// Keeps the packages that were installed in this home before now: they run as before.
    #[arg(long)]
    keep_installed: bool,

    /// The last day of the new key [default: that of the old one].
    #[arg(long, value_name = "DATE", value_parser = moment)]
    not_after: Option<Timestamp>,

    /// Does not ask.
    #[arg(short, long)]
    yes: bool,
}

/// The rotation.
#[derive(Debug, Serialize)]
struct Rotation {
    change: &'static str,
    old: KeyView,
    new: KeyView,
}

/// Checks the statement, shows it, asks, and changes the keyring.
pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let now = Timestamp::now();
    let invalid = |refused: InvalidValue| refusal(&refused, HostErrorKind::Validation);
    let bytes = files::bounded("The succession", &args.file, KEY_SET_BYTES as u64)?;
    let succession = KeySuccession::verify(&bytes, now).map_err(invalid)?;
    let keyring = session.keyring()?.load()?;
    let old = keyring.check_succession(&succession, now).map_err(invalid)?;
    let (old_id, new_id) = (*old.id(), succession.new_key().id());
    let scopes: Vec<_> = old.scopes().iter().map(ToString::to_string).collect();
    let ends = match args.old_until {
        Some(at) => format!("it expires at {at}"),
        None => "it is revoked".to_owned(),
    };
    let mut shown = Page::default();
    shown.field("old key", &succession.old().to_string()).field("  id", &format!("{old_id}, {ends}"));
    shown.field("new key", &succession.new_key().to_string()).field("  id", &new_id.to_string());
    shown.field("trusted for", &scopes.join(", "));
    shown.field("signed", &format!("{}, as both keys say", succession.signed_at()));
    let shown = shown.into_text();
    if args.yes {
        shown.lines().for_each(|line| session.ui.note(line));
    } else {
        // A part of the question, so that `--quiet` does not hide what is confirmed.
        let question = format!("{shown}\nLet the new key take the place of the old one? [y/N] ");
        if !prompt::confirm(&question, "Add --yes.")? {
            session.ui.note("Nothing was changed.");
            return Ok(());
        }
    }
    let kept = match args.keep_installed {
        true => installed_before(session, &old_id, now)?,
        false => Vec::new(),
    };
    let end = args.old_until.map_or(KeyEnd::Revoked, KeyEnd::At);
    let rotation = session.change_keyring(|keyring| {
        // The new key gets the scopes of the old one, which are to be those that were shown.
        check_unchanged(keyring, &old_id, Some(old))?;
        keyring.succeed(&succession, end, args.not_after, now).map_err(invalid)?;
        keep_packages(keyring, &old_id, &kept)?;
        let view = |id: &str| find(keyring, id).map(|entry| KeyView::new(entry, now));
        let (old, new) = (view(&old_id.to_string())?, view(&new_id.to_string())?);
        Ok::<_, HostError>(Rotation { change: "rotated", old, new })
    })?;
    session.ui.result(&rotation, |page| {
        rotation.new.page("trusted", page);
        rotation.old.page("before", page);
    })?;
    warn_of_thresholds(session)
}
