//! `key`: makes signing keys, shows the public half of one, names the successor of one, and writes the key set of a
//! publisher.

use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::document::InvalidValue;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::trust::{
    KeyId, KeySet, KeySuccession, PublicKey, PublishedKey, SecretKey, SigningScope,
};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::trust::{moment, scope};
use crate::author_key::{self, AuthorKey};
use crate::files;
use crate::report::CommandError;
use crate::session::Session;

/// The time for which statements about keys are accepted, unless there is another date.
const VALIDITY: SignedDuration = SignedDuration::from_hours(24 * 365);

/// Makes signing keys, and statements about them.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Generate(GenerateArgs),
    Public(PublicArgs),
    Rotate(RotateArgs),
    Export(ExportArgs),
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

const ROTATE_EXAMPLES: &str = "\
Both keys sign: the old one to name its successor, the new one to show that you have it. Give the file to those who \
trust the old key, and the id of the new key by another way; they run `cofferdam trust rotate`. Afterwards sign \
releases with the new key, and for a while with both.

Examples:
  cofferdam key generate --out new.key
  cofferdam key rotate --key cofferdam.key --to new.key
  cofferdam key rotate --key cofferdam.key --to new.key --valid-until 2027-06-30 --output acme-2027.dsse.json";

/// Writes a statement that a key is succeeded by another, signed by both.
#[derive(Debug, clap::Args)]
#[command(after_help = ROTATE_EXAMPLES)]
pub(crate) struct RotateArgs {
    /// The file of the old key [default: the author's key, made by `cofferdam new`].
    #[arg(short, long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// The file of the new key: the secret key, which signs too.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// The last day on which the statement is accepted [default: in a year].
    #[arg(long, value_name = "DATE", value_parser = moment)]
    valid_until: Option<Timestamp>,

    /// The file for the statement; an existing file is never overwritten.
    #[arg(short, long, value_name = "FILE", default_value = "succession.dsse.json")]
    output: PathBuf,
}

const EXPORT_EXAMPLES: &str = "\
Those who are to trust the keys run `cofferdam trust import` with the file or its URL, and compare its fingerprint \
with the one that this command prints: give it out by another way than the file. Keys whose files you name sign the \
set; of the others, give the public key.

Examples:
  cofferdam key export --publisher 'github://acme/*'
  cofferdam key export first.key second.key --publisher 'github://acme/*' --output acme-keys.json
  cofferdam key export first.key ed25519:Y29mZmVyZGFtIGV4YW1wbGUga2V5LCBub3QgcmVhbCE= --publisher 'github://acme/*'
  cofferdam key export cofferdam.key --publisher 'github://acme/*' --for github://acme/slack --not-after 2027-12-31";

/// Writes the key set of a publisher: its public keys, and what they sign.
#[derive(Debug, clap::Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub(crate) struct ExportArgs {
    /// Key files, or public keys [default: the author's key, made by `cofferdam new`].
    #[arg(value_name = "KEY")]
    keys: Vec<String>,

    /// The owner whose keys they are, like github://acme/*.
    #[arg(long, value_name = "OWNER", value_parser = scope)]
    publisher: SigningScope,

    /// The connectors that the keys sign; may be given several times [default: all of the publisher's].
    #[arg(long = "for", value_name = "SCOPE", value_parser = scope)]
    scopes: Vec<SigningScope>,

    /// The last day of the keys.
    #[arg(long, value_name = "DATE", value_parser = moment)]
    not_after: Option<Timestamp>,

    /// The last day on which the set can be imported [default: in a year].
    #[arg(long, value_name = "DATE", value_parser = moment)]
    valid_until: Option<Timestamp>,

    /// The file for the set; an existing file is never overwritten.
    #[arg(short, long, value_name = "FILE", default_value = "keys.json")]
    output: PathBuf,
}

/// The public part of a key, and the file that has the key.
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
        Command::Rotate(args) => rotate(args, session),
        Command::Export(args) => export(args, session),
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

fn rotate(args: RotateArgs, session: &Session<'_>) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct WrittenSuccession {
        statement: PathBuf,
        old: KeyId,
        new: KeyId,
        new_key: PublicKey,
        valid_until: String,
    }
    let RotateArgs { key, to, valid_until, output } = args;
    let old = match key {
        Some(file) => read(&file)?,
        None => author_key::load()?.key,
    };
    let (new, now) = (read(&to)?, this_second());
    let valid_until = valid_until.unwrap_or(now + VALIDITY);
    let envelope = KeySuccession::sign(&old, &new, now, valid_until)
        .map_err(|refused| refusal(&refused, HostErrorKind::Validation))?;
    files::write_new(&output, envelope.to_json().as_bytes())?;
    let written = WrittenSuccession {
        statement: output,
        old: old.public().id(),
        new: new.public().id(),
        new_key: new.public(),
        valid_until: valid_until.to_string(),
    };
    session.ui.result(&written, |page| {
        page.field("statement", &files::shown(&written.statement));
        page.field("old key id", &written.old.to_string());
        page.field("new key id", &written.new.to_string());
        page.field("new key", &written.new_key.to_string());
        page.field("valid until", &written.valid_until);
    })?;
    session.ui.note("Those who trust the old key run `cofferdam trust rotate` with this file.");
    Ok(())
}

fn export(args: ExportArgs, session: &Session<'_>) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct WrittenKeySet {
        key_set: PathBuf,
        fingerprint: String,
        publisher: String,
        keys: Vec<KeyId>,
        signatures: usize,
        valid_until: String,
    }
    let invalid = |refused: InvalidValue| refusal(&refused, HostErrorKind::Validation);
    let ExportArgs { keys, publisher, scopes, not_after, valid_until, output } = args;
    let (mut public, mut secret) = (Vec::new(), Vec::new());
    for text in &keys {
        match text.starts_with("ed25519:") {
            true => public.push(PublicKey::parse(text).map_err(invalid)?),
            false => secret.push(read(Path::new(text))?),
        }
    }
    if keys.is_empty() {
        secret.push(author_key::load()?.key);
    }
    let scopes = if scopes.is_empty() { vec![publisher.clone()] } else { scopes };
    let publish = |key| PublishedKey::new(key, scopes.clone(), not_after, None);
    let published = secret.iter().map(SecretKey::public).chain(public).map(publish);
    let published = published.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
    let signers: Vec<_> = secret.iter().collect();
    let now = this_second();
    let valid_until = valid_until.unwrap_or(now + VALIDITY);
    let text = KeySet::write(&publisher, (now, valid_until), &published, &signers).map_err(invalid)?;
    // It must be one that others can read: a key twice is not.
    let set = KeySet::parse(text.as_bytes()).map_err(invalid)?;
    files::write_new(&output, text.as_bytes())?;
    let written = WrittenKeySet {
        key_set: output,
        fingerprint: format!("sha256:{}", Digest::sha256(text.as_bytes())),
        publisher: publisher.to_string(),
        keys: set.keys().iter().map(|key| key.key().id()).collect(),
        signatures: signers.len(),
        valid_until: valid_until.to_string(),
    };
    session.ui.result(&written, |page| {
        page.field("key set", &files::shown(&written.key_set));
        page.field("fingerprint", &written.fingerprint);
        page.field("publisher", &written.publisher);
        for id in &written.keys {
            page.field("key id", &id.to_string());
        }
        page.field("signatures", &written.signatures.to_string());
        page.field("valid until", &written.valid_until);
    })?;
    session.ui.note("Give the fingerprint out by another way than the file.");
    Ok(())
}

/// Returns the time, as precise as statements are.
fn this_second() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
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
