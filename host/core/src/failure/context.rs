//! Whose failure it is: the call's audit id and the names every envelope carries.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::repeat::{RepeatRule, UnkeyedRequest, Unrepeatable};
use super::text::safe_line;

const PREFIX: &str = "audit-";

/// The key of a call's record: `audit-<uuid>`, with a time-ordered UUID (version 7). Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AuditId(Arc<str>);

impl AuditId {
    /// A new id, never seen before.
    #[must_use]
    pub fn mint() -> Self {
        Self::of(uuid::Uuid::now_v7())
    }

    /// Reads `audit-<uuid>`; nothing else is an id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let id = uuid::Uuid::try_parse(text.strip_prefix(PREFIX)?).ok()?;
        Some(Self::of(id)).filter(|own| own.as_str() == text)
    }

    /// The id with these 16 bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self::of(uuid::Uuid::from_bytes(bytes))
    }

    /// The UUID's 16 bytes; those of later ids are greater.
    #[must_use]
    pub fn bytes(&self) -> [u8; 16] {
        // Always a UUID: nothing else gets in.
        let id = uuid::Uuid::try_parse(self.0.strip_prefix(PREFIX).unwrap_or_default());
        id.unwrap_or_default().into_bytes()
    }

    fn of(id: uuid::Uuid) -> Self {
        Self(format!("{PREFIX}{id}").into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id as text that others may keep.
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

/// What a constructor needs to know of the call beside the cause: it goes into `audit_id` and `details`.
#[derive(Debug, Clone)]
pub struct Context {
    audit_id: AuditId,
    connector: Option<Arc<str>>,
    connector_hash: Option<Arc<str>>,
    op: Option<Arc<str>>,
    repeat: RepeatRule,
    unkeyed: Option<UnkeyedRequest>,
}

impl Context {
    /// A context that knows its record and nothing else yet.
    #[must_use]
    pub fn new(audit_id: AuditId) -> Self {
        let repeat = RepeatRule::Always;
        Self { audit_id, connector: None, connector_hash: None, op: None, repeat, unkeyed: None }
    }

    /// Names the connector, as `name@version`, and the SHA-256 it is pinned to.
    #[must_use]
    pub fn with_connector(mut self, connector: impl Into<Arc<str>>, hash: Option<Arc<str>>) -> Self {
        self.connector = Some(connector.into());
        self.connector_hash = hash;
        self
    }

    /// Names the operation, and says whether it may be repeated.
    #[must_use]
    pub fn with_op(mut self, op: impl Into<Arc<str>>, repeat: impl Into<RepeatRule>) -> Self {
        self.op = Some(op.into());
        self.repeat = repeat.into();
        self
    }

    /// The same after the operation sent this request, if it sent one: what its manifest leaves open is decided by that.
    #[must_use]
    pub fn having_sent(mut self, unkeyed: Option<UnkeyedRequest>) -> Self {
        self.unkeyed = unkeyed;
        self
    }

    /// The record's id.
    #[must_use]
    pub fn audit_id(&self) -> &AuditId {
        &self.audit_id
    }

    /// Whether the operation may be repeated.
    #[must_use]
    pub fn repeat_rule(&self) -> RepeatRule {
        self.repeat
    }

    /// Whether the operation may be repeated, as far as its manifest and its caller say.
    #[must_use]
    pub fn idempotent(&self) -> bool {
        self.repeat != RepeatRule::Never
    }

    /// The request for which it is not repeated, although nobody says that it must not be.
    pub(super) fn unrepeatable(&self) -> Option<Unrepeatable> {
        let unkeyed = self.unkeyed.as_ref().filter(|_| self.repeat == RepeatRule::UnlessUnkeyed)?;
        let op = safe_line(self.op.as_deref().unwrap_or_default(), 100);
        Some(Unrepeatable { op, request: unkeyed.clone() })
    }

    /// The operation, where one is known.
    #[must_use]
    pub fn op(&self) -> Option<&str> {
        self.op.as_deref()
    }

    /// The start of `details`: the code, then the names that are known.
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
