//! `key`: makes signing keys, and shows the public half of one.

use std::path::{Path, PathBuf};

use cofferdam_core::document::InvalidValue;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::trust::{KeyId, PublicKey, SecretKey};
use serde::Serialize;

use crate::author_key::{self, AuthorKey};
use crate::files;
use crate::report::CommandError;
use crate::session::Session;

/// Makes signing keys.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Generate(GenerateArgs),
    Public(PublicArgs),
}

const GENERATE_EXAMPLES: &str = "\
Keep the file out of version control and back it up: anyone who has it can release connectors in your name.

Examples:
  cofferdam key generate
  cofferdam key generate --out ~/.config/acme.key";

/// Makes a new signing key: a file that its owner alone can read.
#[derive(Debug, clap::Args)]
#[command(after_help = GENERATE_EXAMPLES)]
pub(crate) struct GenerateArgs {
    /// The new file; an existing file is never overwritten.
    #[arg(short, long, value_name = "FILE", default_value = "cofferdam.key")]
    out: PathBuf,
}

const PUBLIC_EXAMPLES: &str = "\
Examples:
  cofferdam key public
  cofferdam key public cofferdam.key
  cofferdam trust add \"$(cofferdam key public)\" --for 'github://acme/*'";

/// Prints the public key of a key file: what others need to trust what it signs.
#[derive(Debug, clap::Args)]
#[command(after_help = PUBLIC_EXAMPLES)]
pub(crate) struct PublicArgs {
    /// The key file [default: the author's key, made by `cofferdam new`].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Of a key, what everybody may know.
#[derive(Debug, Serialize)]
struct PublicKeyView {
    file: PathBuf,
    public_key: PublicKey,
    key_id: KeyId,
}

/// Makes or shows a key.
pub(crate) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    match command {
        Command::Generate(args) => generate(args.out, session),
        Command::Public(args) => public(args.file, session),
    }
}

fn generate(file: PathBuf, session: &Session<'_>) -> Result<(), CommandError> {
    let key = SecretKey::generate().map_err(|refused| refusal(&refused, HostErrorKind::Internal))?;
    files::write_new_secret(&file, &key.to_text())?;
    let shown = PublicKeyView { public_key: key.public(), key_id: key.public().id(), file };
    session.ui.result(&shown, |page| {
        page.field("key file", &files::shown(&shown.file));
        page.field("public key", &shown.public_key.to_string());
        page.field("key id", &shown.key_id.to_string());
    })?;
    session
        .ui
        .note("Keep the key file secret. Give the public key to those who are to trust your connectors:");
    session.ui.note(&format!("  cofferdam trust add {} --for 'github://OWNER/*'", shown.public_key));
    Ok(())
}

fn public(file: Option<PathBuf>, session: &Session<'_>) -> Result<(), CommandError> {
    let (file, key) = match file {
        Some(file) => {
            let key = read(&file)?;
            (file, key)
        }
        None => {
            let AuthorKey { path, key, .. } = author_key::load()?;
            (path, key)
        }
    };
    let public_key = key.public();
    let shown = PublicKeyView { key_id: public_key.id(), public_key, file };
    session.ui.result(&shown, |page| {
        page.line(&shown.public_key.to_string());
    })
}

/// Reads a key file.
pub(crate) fn read(path: &Path) -> Result<SecretKey, HostError> {
    let text = files::read_key(path)?;
    SecretKey::parse(&text).map_err(|refused| {
        let message = format!("The key file {} cannot be used: {}.", files::shown(path), refused.message());
        HostError::new(HostErrorKind::Validation, message)
            .with_hint(format!("{}.", files::capitalised(refused.fix())))
    })
}

/// Returns the error for an invalid value.
pub(crate) fn refusal(refused: &InvalidValue, kind: HostErrorKind) -> HostError {
    HostError::new(kind, format!("{}.", files::capitalised(refused.message())))
        .with_hint(format!("{}.", files::capitalised(refused.fix())))
}
