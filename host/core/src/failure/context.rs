//! The identity of the failed call: its audit id and the names that every envelope carries.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::class::{FailureBoundary, FailureClass, RepeatRule, UnkeyedRequest, UnrepeatableRequest};
use super::envelope::Failure;
use super::text::sanitize_line;

const PREFIX: &str = "audit-";

/// The id of a call in the audit log: `audit-<uuid>`, with a time-ordered UUID (version 7). Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AuditId(Arc<str>);

impl AuditId {
    /// Creates a new, unique id.
    #[must_use]
    pub fn mint() -> Self {
        Self::from_uuid(uuid::Uuid::now_v7())
    }

    /// Parses `audit-<uuid>`; no other text is an id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let id = uuid::Uuid::try_parse(text.strip_prefix(PREFIX)?).ok()?;
        Some(Self::from_uuid(id)).filter(|own| own.as_str() == text)
    }

    /// Returns the id with these 16 bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self::from_uuid(uuid::Uuid::from_bytes(bytes))
    }

    /// Returns the UUID's 16 bytes, which are greater for later ids.
    #[must_use]
    pub fn bytes(&self) -> [u8; 16] {
        // It is always a UUID: no other text is accepted.
        let id = uuid::Uuid::try_parse(self.0.strip_prefix(PREFIX).unwrap_or_default());
        id.unwrap_or_default().into_bytes()
    }

    fn from_uuid(id: uuid::Uuid) -> Self {
        let mut buffer = uuid::Uuid::encode_buffer();
        Self([PREFIX, id.hyphenated().encode_lower(&mut buffer)].concat().into())
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id as shared text.
    pub fn text(&self) -> &Arc<str> {
        &self.0
    }
}

impl Serialize for AuditId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for AuditId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The facts about the call that a constructor needs in addition to the cause, for `audit_id` and `details`.
#[derive(Debug, Clone)]
pub struct FailureContext {
    audit_id: AuditId,
    connector: Option<Arc<str>>,
    connector_hash: Option<Arc<str>>,
    op: Option<Arc<str>>,
    repeat: RepeatRule,
    unkeyed: Option<UnkeyedRequest>,
}

impl FailureContext {
    /// Creates a context with only an audit id.
    #[must_use]
    pub fn new(audit_id: AuditId) -> Self {
        let repeat = RepeatRule::Always;
        Self { audit_id, connector: None, connector_hash: None, op: None, repeat, unkeyed: None }
    }

    /// Sets the connector, as `name@version`, and the SHA-256 it is pinned to.
    #[must_use]
    pub fn with_connector(mut self, connector: impl Into<Arc<str>>, hash: Option<Arc<str>>) -> Self {
        self.connector = Some(connector.into());
        self.connector_hash = hash;
        self
    }

    /// Sets the operation, and whether it may be repeated.
    #[must_use]
    pub fn with_op(mut self, op: impl Into<Arc<str>>, repeat: impl Into<RepeatRule>) -> Self {
        self.op = Some(op.into());
        self.repeat = repeat.into();
        self
    }

    /// Sets the unkeyed request that the operation sent, if any. It decides about repetition if the manifest
    /// leaves that open.
    #[must_use]
    pub fn with_unkeyed_request(mut self, unkeyed: Option<UnkeyedRequest>) -> Self {
        self.unkeyed = unkeyed;
        self
    }

    /// Returns the audit id.
    #[must_use]
    pub fn audit_id(&self) -> &AuditId {
        &self.audit_id
    }

    /// Returns the rule for repeating the operation.
    #[must_use]
    pub fn repeat_rule(&self) -> RepeatRule {
        self.repeat
    }

    /// Returns whether the operation may be repeated according to its manifest and its caller.
    #[must_use]
    pub fn idempotent(&self) -> bool {
        self.repeat != RepeatRule::Never
    }

    /// Returns the request because of which it is not repeated, although neither manifest nor caller forbids
    /// that.
    pub(super) fn unrepeatable(&self) -> Option<UnrepeatableRequest> {
        let unkeyed = self.unkeyed.as_ref().filter(|_| self.repeat == RepeatRule::UnlessUnkeyed)?;
        let op = sanitize_line(self.op.as_deref().unwrap_or_default(), 100);
        Some(UnrepeatableRequest { op, request: unkeyed.clone() })
    }

    /// Returns the operation, if it is known.
    #[must_use]
    pub fn op(&self) -> Option<&str> {
        self.op.as_deref()
    }

    /// Returns the start of `details`: the code, then the known names.
    pub(super) fn details(&self, code: &str) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("code".into(), code.into());
        let known =
            [("connector", &self.connector), ("connector_hash", &self.connector_hash), ("op", &self.op)];
        for (key, value) in known {
            if let Some(value) = value {
                details.insert(key.into(), (**value).into());
            }
        }
        details
    }
}

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
    /// Fewer different keys made it than the keyring's threshold asks for.
    TooFewSignatures,
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
            Self::TooFewSignatures => "too_few_signatures",
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::AuditId;

    #[test]
    fn audit_ids_round_trip() {
        let id = AuditId::mint();
        assert_eq!(AuditId::parse(id.as_str()).unwrap(), id);
        assert_eq!(AuditId::from_bytes(id.bytes()), id);
        let upper = id.as_str().to_uppercase();
        for text in ["", "audit-", "audit-1", &id.as_str()[6..], &upper, &format!("{id} ")] {
            assert_eq!(AuditId::parse(text), None, "{text}");
        }
    }
}
