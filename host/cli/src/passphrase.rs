//! The vault's passphrase: from a file, the environment or the terminal.

use std::path::Path;
use std::sync::Arc;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use cofferdam_egress::vault::{PassphraseFor, PassphraseSource, VaultError};
use zeroize::Zeroizing;

use super::files;
use super::prompt;
use super::ui::Ui;

/// The variable with the passphrase itself.
pub(super) const VARIABLE: &str = "COFFERDAM_VAULT_PASSPHRASE";

/// Below this many characters a passphrase is guessed sooner than typed.
const SHORT: usize = 12;

/// The passphrase in a file: its first and only line.
pub(super) fn from_file(path: &Path) -> Result<Secret, HostError> {
    validated(files::read_private("The passphrase file", path)?, &files::shown(path))
}

/// The passphrase in the environment; none if it is not there or empty.
pub(super) fn from_environment() -> Result<Option<Secret>, HostError> {
    match std::env::var_os(VARIABLE) {
        None => Ok(None),
        Some(text) if text.is_empty() => Ok(None),
        Some(text) => match text.into_string() {
            Ok(text) => validated(Zeroizing::new(text), VARIABLE).map(Some),
            Err(_) => Err(unusable(VARIABLE, "is not UTF-8 text")),
        },
    }
}

/// Asks at the terminal whenever a vault turns out to need it.
pub(super) fn prompting_source() -> PassphraseSource {
    Arc::new(|wanted| {
        let question = match wanted {
            PassphraseFor::OpeningAgain => "That does not open it. Passphrase of the vault: ",
            PassphraseFor::Opening | PassphraseFor::Locking => "Passphrase of the vault: ",
        };
        match prompt::ask_hidden(question) {
            Some(text) => Ok(Arc::new(Secret::new(text))),
            None => Err(VaultError::Locked {
                message: "The vault is locked with a passphrase, and there is no terminal to ask for it."
                    .into(),
                hint: REMEDY.into(),
            }),
        }
    })
}

const REMEDY: &str = "Give it with --passphrase-file FILE, or in COFFERDAM_VAULT_PASSPHRASE_FILE or COFFERDAM_VAULT_PASSPHRASE.";

/// Asks for a new passphrase, twice.
pub(super) fn ask_new() -> Result<Secret, HostError> {
    let unasked = || {
        let message =
            "A new passphrase is needed, and there is no terminal to ask for it; nothing was changed.";
        HostError::new(HostErrorKind::Validation, message).with_hint("Add --new-passphrase-file FILE.")
    };
    let first = Zeroizing::new(prompt::ask_hidden("New passphrase of the vault: ").ok_or_else(unasked)?);
    let second = Zeroizing::new(prompt::ask_hidden("The same again: ").ok_or_else(unasked)?);
    if *first != *second {
        let message = "The two passphrases are not the same; nothing was changed.";
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint("Run the command again."));
    }
    validated(first, "What was typed")
}

/// Says that a passphrase is soon guessed.
pub(super) fn warn_if_short(passphrase: &Secret, ui: &Ui) {
    if passphrase.expose().chars().count() < SHORT {
        ui.warn(&format!("The passphrase has fewer than {SHORT} characters: who has the file can guess it."));
    }
}

fn validated(mut text: Zeroizing<String>, place: &str) -> Result<Secret, HostError> {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() {
        return Err(unusable(place, "is empty"));
    }
    if text.contains(['\n', '\r', '\0']) {
        return Err(unusable(place, "has more than one line"));
    }
    Ok(Secret::new(std::mem::take(&mut *text)))
}

fn unusable(place: &str, how: &str) -> HostError {
    let message = format!("The passphrase cannot be used: {place} {how}.");
    HostError::new(HostErrorKind::Validation, message).with_hint("A passphrase is one line of text.")
}
