//! The identity of the failed call: its audit id and the names that every envelope carries.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::repeat::{RepeatRule, UnkeyedRequest, UnrepeatableRequest};
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
        Self(format!("{PREFIX}{id}").into())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::AuditId;

    #[test]
    fn an_id_is_read_back_as_it_was_written_and_nothing_else_is_one() {
        let id = AuditId::mint();
        assert_eq!(AuditId::parse(id.as_str()).unwrap(), id);
        assert_eq!(AuditId::from_bytes(id.bytes()), id);
        let upper = id.as_str().to_uppercase();
        for text in ["", "audit-", "audit-1", &id.as_str()[6..], &upper, &format!("{id} ")] {
            assert_eq!(AuditId::parse(text), None, "{text}");
        }
    }
}
