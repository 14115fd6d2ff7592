//! The source of a secret: the terminal without echo, standard input, a file, a variable.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_egress::vault::BindingName;
use zeroize::Zeroizing;

use super::files;
use super::prompt;

/// The most that is read: a document with two of the longest secrets.
const MAX_BYTES: usize = 64 * 1024;

/// The source of the secret; without any of them, the command prompts for it.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Where the secret is read from")]
#[group(multiple = false)]
pub(super) struct SecretSourceArgs {
    /// Standard input, to its end; a line end after it is left out.
    #[arg(long)]
    stdin: bool,

    /// A file that its owner alone can read.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// An environment variable.
    #[arg(long, value_name = "VARIABLE")]
    from_env: Option<String>,
}

/// The text that was found.
pub(super) enum SecretInput {
    /// A text.
    Text(Zeroizing<String>),
    /// Nothing: it is to be asked for.
    Ask,
}

impl SecretSourceArgs {
    /// A file that its owner alone can read.
    pub(super) fn from_file(path: &Path) -> Self {
        Self { file: Some(path.to_owned()), stdin: false, from_env: None }
    }

    /// Reads it.
    pub(super) fn read_secret(&self) -> Result<SecretInput, HostError> {
        if let Some(path) = &self.file {
            return files::read_private("The file with the secret", path).map(SecretInput::Text);
        }
        if let Some(variable) = &self.from_env {
            return match std::env::var(variable) {
                Ok(text) => Ok(SecretInput::Text(Zeroizing::new(text))),
                Err(_) => {
                    let message = format!("The variable {variable} is not set, or is not UTF-8 text.");
                    Err(HostError::new(HostErrorKind::Validation, message)
                        .with_hint("Name a variable that is set, or use --stdin or --file."))
                }
            };
        }
        if !self.stdin {
            return Ok(SecretInput::Ask);
        }
        let wrong = |error| files::unreadable("Standard input", &PathBuf::from("(stdin)"), error);
        // Bypasses the buffer of the standard library, which is never cleared. The full capacity avoids copies by growing.
        let stdin = std::io::stdin().as_fd().try_clone_to_owned().map_err(wrong)?;
        let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES + 2));
        File::from(stdin).take(MAX_BYTES as u64 + 1).read_to_string(&mut text).map_err(wrong)?;
        if text.len() > MAX_BYTES {
            let message = "Standard input has more than 64 KiB: that is no secret; nothing was bound.";
            return Err(HostError::new(HostErrorKind::Validation, message)
                .with_hint("Is it the input that was meant?"));
        }
        Ok(SecretInput::Text(text))
    }
}

/// Prompts for a secret. Without a terminal, the error names the other sources.
pub(super) fn ask(question: &str, name: &BindingName) -> Result<Zeroizing<String>, HostError> {
    prompt::ask_hidden(question).map(Zeroizing::new).ok_or_else(|| {
        let message = format!("The secret of {name} is to be typed at a terminal, and this is none.");
        HostError::new(HostErrorKind::Validation, message)
            .with_hint("Add --stdin and pipe it, --file PATH, or --from-env VARIABLE.")
    })
}
