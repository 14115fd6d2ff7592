//! `trust import`: trusts the keys of a publisher's key set.

use std::path::Path;

use cofferdam_core::digest::Digest;
use cofferdam_core::document::InvalidValue;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::trust::{KEY_SET_BYTES, KeySet, KeySetChange, KeySetEffect, KeySetImport, SigningScope};
use jiff::Timestamp;
use serde::Serialize;

use super::{changed_meanwhile, refusal, scope, warn_of_thresholds};
use crate::layout::Page;
use crate::package_source::SourceOptions;
use crate::report::CommandError;
use crate::session::Session;
use crate::{files, package_source, prompt, runtime};

const EXAMPLES: &str = "\
A key set proves nothing about its publisher: compare its fingerprint (what `sha256sum` prints for the file) with one \
that you got by another way. On a terminal the command asks; elsewhere --fingerprint is needed. Keys are trusted \
within the scopes of --for, or else within all of the publisher's owner, and never for longer than before. A set that \
is older than the last one, or whose time is over, is refused. Keys that a new set no longer has are shown, and stay \
until you revoke them.

Examples:
  cofferdam trust import acme-keys.json
  cofferdam trust import https://acme.example/keys.json --for github://acme/slack
  cofferdam trust import oci://ghcr.io/acme/keys:latest
  cofferdam trust import keys.json --fingerprint \
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Trusts the keys of a publisher's key set, from a file, a URL or a registry.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A file, an https:// URL, or an oci:// reference.
    #[arg(value_name = "SOURCE")]
    source: String,

    /// The SHA-256 of the document, from its publisher. The command does not ask.
    #[arg(long, value_name = "SHA256", value_parser = digest)]
    fingerprint: Option<Digest>,

    /// The scope of the trust, whatever the set suggests; may be given several times [default: all of the publisher's].
    #[arg(long = "for", value_name = "SCOPE", value_parser = scope)]
    scopes: Vec<SigningScope>,

    #[command(flatten)]
    registry: SourceOptions,
}

fn digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text).ok_or_else(|| "write it as sha256: and 64 lower-case hexadecimal digits".to_owned())
}

/// The import, to be shown.
#[derive(Debug, Serialize)]
struct KeySetView {
    publisher: String,
    source: String,
    fingerprint: String,
    issued: String,
    valid_until: String,
    /// The ids of the keys that signed the set: its own, or keys that are trusted here.
    signers: Vec<String>,
    /// The set that was imported before.
    previous: Option<PreviousImport>,
    /// True if the keyring was changed.
    imported: bool,
    keys: Vec<ImportedKey>,
}

/// The set that was imported before.
#[derive(Debug, Serialize)]
struct PreviousImport {
    source: String,
    fingerprint: String,
    issued: String,
}

/// The effect on one key.
#[derive(Debug, Serialize)]
struct ImportedKey {
    id: String,
    key: String,
    change: &'static str,
    gains: Vec<String>,
    outside: Vec<String>,
    not_after: Option<String>,
    reason: Option<String>,
}

/// Shows the effects of the key set, asks, and imports it.
pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { source, fingerprint, scopes, registry } = args;
    let invalid = |refused: InvalidValue| refusal(&refused, HostErrorKind::Validation);
    let now = Timestamp::now();
    let set = KeySet::parse(&read(&source, &registry, session)?).map_err(invalid)?;
    if let Some(expected) = fingerprint.filter(|expected| expected != set.fingerprint()) {
        let message = format!(
            "The key set has the fingerprint sha256:{}, and not sha256:{expected}.",
            set.fingerprint()
        );
        let hint =
            "It is another document than the one that was confirmed. Get both again from its publisher.";
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint).into());
    }
    let mut preview = session.keyring()?.load()?;
    let previous = preview.imports().find(|import| import.publisher() == set.publisher()).cloned();
    let signers = set.signers(&preview, now).iter().map(ToString::to_string).collect();
    let changes = preview.import(&set, &scopes, &source, now).map_err(invalid)?;
    let is_same = previous.as_ref().is_some_and(|it| it.fingerprint() == set.fingerprint());
    let is_change = |it: &KeySetChange| matches!(it.effect, KeySetEffect::Added | KeySetEffect::Changed);
    let mut view = KeySetView {
        publisher: set.publisher().to_string(),
        source: source.clone(),
        fingerprint: format!("sha256:{}", set.fingerprint()),
        issued: set.issued().to_string(),
        valid_until: set.valid_until().to_string(),
        signers,
        previous: previous.as_ref().map(PreviousImport::from),
        imported: false,
        keys: changes.iter().map(ImportedKey::from).collect(),
    };
    let takes_none = changes.iter().all(|change| change.effect == KeySetEffect::Refused);
    if !takes_none && (!is_same || changes.iter().any(is_change)) {
        if fingerprint.is_none() {
            let mut page = Page::default();
            view.page(&mut page);
            // A part of the question, so that `--quiet` does not hide what is confirmed.
            let question = format!(
                "{}\nIs {} the fingerprint that the publisher gave you? [y/N] ",
                page.into_text(),
                view.fingerprint
            );
            let instead =
                "Add --fingerprint, with the fingerprint that the publisher gave you by another way.";
            if !prompt::confirm(&question, instead)? {
                session.ui.note("Nothing was changed.");
                return Ok(());
            }
        }
        session.change_keyring(|keyring| {
            match keyring.import(&set, &scopes, &source, now).map_err(invalid)? {
                done if done == changes => Ok(()),
                _ => Err(changed_meanwhile()),
            }
        })?;
        view.imported = true;
    }
    session.ui.result(&view, |page| view.page(page))?;
    if takes_none {
        session.ui.warn("no key of the set is trusted");
    }
    warn_of_thresholds(session)
}

/// Reads the document from a file, a URL or a registry.
fn read(source: &str, registry: &SourceOptions, session: &Session<'_>) -> Result<Vec<u8>, CommandError> {
    if source.starts_with("oci://") {
        let (reference, client) = (package_source::parse(source)?, registry.client(session)?);
        return runtime::block_on(async { Ok(client.fetch_key_set(&reference).await?) });
    }
    if registry.has_registry_options() {
        let message = "The options for registries have no effect on a file or a URL.";
        let hint = "Leave them out. For an https:// URL, set them under [network] in config.toml.";
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint).into());
    }
    if source.starts_with("https://") || source.starts_with("http://") {
        let host = session.host()?;
        let bytes = runtime::block_on(async { Ok(host.download_key_set(source).await?) })?;
        return Ok(bytes.to_vec());
    }
    Ok(files::bounded("The key set", Path::new(source), KEY_SET_BYTES as u64)?)
}

impl From<&KeySetImport> for PreviousImport {
    fn from(import: &KeySetImport) -> Self {
        Self {
            source: import.source().to_owned(),
            fingerprint: format!("sha256:{}", import.fingerprint()),
            issued: import.issued().to_string(),
        }
    }
}

impl From<&KeySetChange> for ImportedKey {
    fn from(change: &KeySetChange) -> Self {
        let texts = |scopes: &[SigningScope]| scopes.iter().map(ToString::to_string).collect();
        Self {
            id: change.key.id().to_string(),
            key: change.key.to_string(),
            change: change.effect.name(),
            gains: texts(&change.gains),
            outside: texts(&change.outside),
            not_after: change.not_after.map(|moment| moment.to_string()),
            reason: change.reason.clone(),
        }
    }
}

impl KeySetView {
    fn page(&self, page: &mut Page) {
        page.field("publisher", &self.publisher);
        page.field("source", &self.source);
        page.field("fingerprint", &self.fingerprint);
        page.field("issued", &format!("{}, valid until {}", self.issued, self.valid_until));
        let signers: Vec<_> = self.signers.iter().map(|id| id.chars().take(12).collect::<String>()).collect();
        let signers = if signers.is_empty() { "no key".to_owned() } else { signers.join(", ") };
        page.field("signed by", &signers);
        if let Some(previous) = &self.previous {
            page.field(
                "before",
                &format!("{} of {}, from {}", previous.fingerprint, previous.issued, previous.source),
            );
        }
        page.table(
            ["KEY ID", "CHANGE", "NOW ALSO FOR", "NOT AFTER", "NOTE"],
            self.keys.iter().map(ImportedKey::row).collect(),
        );
    }
}

impl ImportedKey {
    fn row(&self) -> [String; 5] {
        let outside = (!self.outside.is_empty()).then(|| format!("not for {}", self.outside.join(", ")));
        let missing = (self.change == KeySetEffect::Missing.name())
            .then(|| "the set has it no longer; `cofferdam trust revoke` ends it".to_owned());
        let notes: Vec<_> = self.reason.clone().into_iter().chain(outside).chain(missing).collect();
        [
            self.id.chars().take(12).collect(),
            self.change.to_owned(),
            self.gains.join(", "),
            self.not_after.clone().unwrap_or_default(),
            notes.join("; "),
        ]
    }
}
