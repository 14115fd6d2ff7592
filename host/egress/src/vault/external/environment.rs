//! Environment variables, one for each secret.

use std::ffi::OsString;

use cofferdam_core::document::InvalidValue;
use zeroize::Zeroizing;

use super::material::SecretProblem;
use super::{SecretResults, SecretSource};
use crate::vault::error::VaultError;

/// Looks up a variable of the environment.
pub type VariableLookup = Box<dyn Fn(&str) -> Option<OsString> + Send + Sync>;

/// The environment of the process. It does not change while the process runs: to rotate a secret, start it again.
pub struct SecretVariables {
    lookup: VariableLookup,
}

impl SecretVariables {
    /// Creates the source of the secrets that `lookup` finds: this library does not read the environment itself.
    #[must_use]
    pub fn new(lookup: VariableLookup) -> Self {
        Self { lookup }
    }
}

impl SecretSource for SecretVariables {
    fn check_name(&self, secret: &str) -> Result<(), InvalidValue> {
        let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_rest = |byte: u8| is_first(byte) || byte.is_ascii_digit();
        match secret.bytes().next().is_some_and(is_first) && secret.bytes().all(is_rest) {
            true => Ok(()),
            false => Err(InvalidValue::new(
                "not the name of an environment variable",
                "write letters, digits and `_`, like \"SLACK_TOKEN\"",
            )),
        }
    }

    fn read(&self, secrets: &[&str]) -> Result<SecretResults, VaultError> {
        let read = |secret: &str| match (self.lookup)(secret).map(OsString::into_string) {
            Some(Ok(text)) => Ok(Zeroizing::new(text)),
            Some(Err(text)) => {
                drop(Zeroizing::new(text.into_encoded_bytes()));
                Err(SecretProblem::new("is not UTF-8 text", "Set it to the secret as its issuer shows it."))
            }
            None => Err(SecretProblem::new("is not set", "Set it, and start the process again.")),
        };
        Ok(secrets.iter().map(|secret| ((*secret).to_owned(), read(secret))).collect())
    }

    fn is_current(&self) -> bool {
        true
    }

    fn describe(&self, secret: &str) -> String {
        format!("the variable {secret}")
    }

    fn rotation(&self) -> &'static str {
        "set its variable to the new secret and start the process again"
    }
}
