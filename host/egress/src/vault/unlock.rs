//! Finds the key of a vault: from a key file, from a passphrase that was given, or from one that is prompted
//! for.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;

use super::error::VaultError;
use super::file;
use super::seal::{ARGON2ID, KeyDerivation, SALT_BYTES, VaultHeader};
use super::seal::{KeyProblem, VaultKey, new_salt};

/// The number of answers to the prompt for the passphrase.
const MAX_PROMPTS: usize = 3;

/// The purpose of a passphrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassphraseFor {
    /// To open a vault.
    Opening,
    /// To open it, after a wrong answer.
    OpeningAgain,
    /// To lock a new vault.
    Locking,
}

/// Supplies a passphrase when it is needed. May block, and may prompt the operator.
pub type PassphraseSource = Arc<dyn Fn(PassphraseFor) -> Result<Arc<Secret>, VaultError> + Send + Sync>;

/// The required passphrase of the vault.
pub(super) enum SuppliedPassphrase {
    /// This one.
    Fixed(Arc<Secret>),
    /// The source that supplies it when it is needed.
    From(PassphraseSource),
}

impl SuppliedPassphrase {
    fn get(&self, wanted: PassphraseFor) -> Result<Arc<Secret>, VaultError> {
        match self {
            Self::Fixed(passphrase) => Ok(Arc::clone(passphrase)),
            Self::From(source) => source(wanted),
        }
    }
}

/// The sources of keys.
pub(super) struct KeySources {
    /// The name of the vault in messages.
    vault: String,
    pub(super) key_file: PathBuf,
    /// The required passphrase, if there is one.
    pub(super) passphrase: Option<SuppliedPassphrase>,
    /// The source of a passphrase if none is required.
    pub(super) prompt: Option<PassphraseSource>,
    /// The passphrase that was tried last and did not fit: deriving from it again would take as long.
    wrong: Mutex<Option<WrongPassphrases>>,
}

/// A passphrase that does not open vaults with these lock parameters.
struct WrongPassphrases {
    kdf: KeyDerivation,
    salt: [u8; SALT_BYTES],
    passphrase: Arc<Secret>,
}

impl KeySources {
    pub(super) fn new(vault: String, key_file: PathBuf) -> Self {
        Self { vault, key_file, passphrase: None, prompt: None, wrong: Mutex::default() }
    }

    /// Finds the key for this header, or reports why there is none.
    pub(super) fn unlock(
        &self,
        opened: &mut Option<VaultKey>,
        header: &VaultHeader,
    ) -> Result<(), VaultError> {
        if opened.as_ref().is_some_and(|key| key.matches(header)) {
            return Ok(());
        }
        if header.kdf == KeyDerivation::KeyFile {
            let key = self.file_key(header.salt, false)?;
            if !key.matches(header) {
                return Err(VaultError::Locked {
                    message: format!(
                        "The key file ({}) is not the one that the vault ({}) is locked with.",
                        file::name(&self.key_file),
                        self.vault
                    ),
                    hint: "Put the right key file back from a copy of it, or name it with `[vault] key_file` in config.toml.".into(),
                });
            }
            *opened = Some(key);
            return Ok(());
        }
        if let Some(passphrase) = &self.passphrase {
            let passphrase = passphrase.get(PassphraseFor::Opening)?;
            let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            let (kdf, salt) = (header.kdf, header.salt);
            let tried = |it: &WrongPassphrases| {
                (it.kdf, it.salt) == (kdf, salt) && it.passphrase.expose() == passphrase.expose()
            };
            if wrong.as_ref().is_some_and(tried) {
                return Err(self.wrong_passphrase());
            }
            let key = self.passphrase_key(&passphrase, kdf, salt)?;
            if !key.matches(header) {
                *wrong = Some(WrongPassphrases { kdf, salt, passphrase });
                return Err(self.wrong_passphrase());
            }
            *opened = Some(key);
            return Ok(());
        }
        let Some(ask) = &self.prompt else {
            return Err(VaultError::Locked {
                message: format!("The vault ({}) is locked with a passphrase, and none was given.", self.vault),
                hint: "Give it with --passphrase-file FILE, or in COFFERDAM_VAULT_PASSPHRASE_FILE or COFFERDAM_VAULT_PASSPHRASE.".into(),
            });
        };
        for answer in 0..MAX_PROMPTS {
            let asked = if answer == 0 { PassphraseFor::Opening } else { PassphraseFor::OpeningAgain };
            let key = self.passphrase_key(&*ask(asked)?, header.kdf, header.salt)?;
            if key.matches(header) {
                *opened = Some(key);
                return Ok(());
            }
        }
        Err(self.wrong_passphrase())
    }

    /// Creates the key of a vault that does not exist yet.
    pub(super) fn new_key(&self) -> Result<VaultKey, VaultError> {
        match &self.passphrase {
            Some(given) => self.new_by_passphrase(&*given.get(PassphraseFor::Locking)?),
            None => self.new_by_file(),
        }
    }

    /// Creates a key from this passphrase, for a new lock.
    pub(super) fn new_by_passphrase(&self, passphrase: &Secret) -> Result<VaultKey, VaultError> {
        self.passphrase_key(passphrase, ARGON2ID, new_salt().map_err(|problem| self.none(&problem))?)
    }

    /// Creates a key from the key file, for a new lock; the file is created if it does not exist.
    pub(super) fn new_by_file(&self) -> Result<VaultKey, VaultError> {
        self.file_key(new_salt().map_err(|problem| self.none(&problem))?, true)
    }

    fn file_key(&self, salt: [u8; 32], make: bool) -> Result<VaultKey, VaultError> {
        let bytes = match file::read_key(&self.key_file)? {
            Some(bytes) => bytes,
            None if make => file::make_key(&self.key_file)?,
            None => {
                let (key, vault) = (file::name(&self.key_file), &self.vault);
                return Err(VaultError::Locked {
                    message: format!("The vault ({vault}) is locked with a key file ({key}), which is not there."),
                    hint: "Put the key file back from a copy of it, or name it with `[vault] key_file` in config.toml. Without it, the vault cannot be opened: move it away and bind anew.".into(),
                });
            }
        };
        Ok(VaultKey::from_key_file(&bytes, salt))
    }

    fn passphrase_key(
        &self,
        passphrase: &Secret,
        kdf: KeyDerivation,
        salt: [u8; 32],
    ) -> Result<VaultKey, VaultError> {
        VaultKey::from_passphrase(passphrase.expose(), kdf, salt).map_err(|problem| self.none(&problem))
    }

    fn wrong_passphrase(&self) -> VaultError {
        VaultError::Locked {
            message: format!("The passphrase does not open the vault ({}).", self.vault),
            hint: "Give the passphrase that it was locked with; there is no way to open it without.".into(),
        }
    }

    /// Reports why there is no key.
    pub(super) fn none(&self, problem: &KeyProblem) -> VaultError {
        VaultError::Unusable {
            message: format!("The vault ({}) cannot be used: {problem}.", self.vault),
            hint: "Try again on a machine, or at a time, with more to give.".into(),
        }
    }
}
