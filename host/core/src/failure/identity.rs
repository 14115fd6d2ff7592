//! Constructors of the identity classes: changed bytes, invalid signatures.

use super::class::{FailureBoundary, FailureClass};
use super::context::FailureContext;
use super::envelope::Failure;

/// The reason why a signature was not accepted (`details.code`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureCode {
    /// There is no signature.
    Unsigned,
    /// The signature file cannot be read as a DSSE envelope with an in-toto statement.
    Malformed,
    /// No key in the keyring made any of the signatures.
    UnknownKey,
    /// A known key made it, but is not trusted for this connector's name.
    KeyScope,
    /// The key that made it was revoked.
    RevokedKey,
    /// The key that made it has expired.
    ExpiredKey,
    /// The signature does not verify over these bytes.
    BadSignature,
    /// The statement is about another connector, version or hash.
    IdentityMismatch,
    /// The version is below the keyring's minimum version for the connector.
    BelowFloor,
}

impl SignatureCode {
    /// Returns the stable name in `details.code`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::Malformed => "malformed_signature",
            Self::UnknownKey => "unknown_key",
            Self::KeyScope => "key_scope",
            Self::RevokedKey => "revoked_key",
            Self::ExpiredKey => "expired_key",
            Self::BadSignature => "bad_signature",
            Self::IdentityMismatch => "identity_mismatch",
            Self::BelowFloor => "below_floor",
        }
    }
}

impl Failure {
    /// The bytes on disk have the hash `got`, and were verified as `expected`.
    pub(crate) fn hash_mismatch(
        context: &FailureContext,
        connector: &str,
        expected: &str,
        got: &str,
    ) -> Self {
        let mut details = context.details("hash");
        details.insert("connector".into(), connector.into());
        details.insert("expected".into(), expected.into());
        details.insert("got".into(), got.into());
        details.insert(
            "suggestion".into(),
            format!("cofferdam remove {connector}, then install it again").into(),
        );
        let message = format!(
            "The installed package of {connector} was changed after it was verified; it was not run. \
             Remove it and install it again from its source."
        );
        Self::new(context, FailureClass::HashMismatch, FailureBoundary::Runtime, false, message, details)
    }

    /// The package's hash is `got`, and the caller pinned `expected`. The package was not changed.
    pub(crate) fn pin_mismatch(context: &FailureContext, what: &str, expected: &str, got: &str) -> Self {
        let mut details = context.details("hash");
        // The package's name is unknown before it is read.
        details.entry("connector").or_insert_with(|| "the package".into());
        details.insert("expected".into(), expected.into());
        details.insert("got".into(), got.into());
        let fix = "If that is the one you mean, name its hash instead.";
        details.insert("suggestion".into(), fix.into());
        let message = format!("{what} is {got}, and {expected} was asked for; it was not taken. {fix}");
        Self::new(context, FailureClass::HashMismatch, FailureBoundary::Runtime, false, message, details)
    }

    /// The signature of `connector` is invalid, for the reason in `code`; `fix` names the next step.
    pub(crate) fn signature_failure(
        context: &FailureContext,
        connector: &str,
        code: SignatureCode,
        reason: &str,
        fix: &str,
    ) -> Self {
        let mut details = context.details(code.name());
        details.insert("connector".into(), connector.into());
        details.insert("suggestion".into(), fix.into());
        let message = format!("{connector} was refused: {reason}. {fix}");
        Self::new(context, FailureClass::SignatureFailure, FailureBoundary::Runtime, false, message, details)
    }
}
