//! The id of an approval.

use std::fmt;
use std::sync::Arc;

use cofferdam_core::failure::AuditId;
use serde::{Deserialize, Deserializer, Serialize, de};

/// The text before the UUID.
const PREFIX: &str = "approval-";

/// The id of an approval, which it has from the request on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ApprovalId(Arc<str>);

impl ApprovalId {
    /// Creates a new, unique id. Later ids are greater.
    #[must_use]
    pub fn mint() -> Self {
        let of_call = AuditId::mint();
        let uuid = of_call.as_str().split_once('-').map_or(of_call.as_str(), |(_, uuid)| uuid);
        Self(format!("{PREFIX}{uuid}").into())
    }

    /// Parses `approval-<uuid>`; no other text is an id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        AuditId::parse(&format!("audit-{}", text.strip_prefix(PREFIX)?))?;
        Some(Self(text.into()))
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the id begins so; `approval-` and the hyphens may be left out.
    #[must_use]
    pub fn begins_with(&self, text: &str) -> bool {
        let text = text.strip_prefix(PREFIX).unwrap_or(text);
        let digits = |text: &str| text.chars().filter(|c| *c != '-').collect::<String>();
        let (own, wanted) = (digits(self.0.strip_prefix(PREFIX).unwrap_or_default()), digits(text));
        own.starts_with(&wanted.to_ascii_lowercase())
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ApprovalId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("not the id of an approval"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn ids_are_parsed_whole_and_found_by_prefix() {
        let id = ApprovalId::mint();
        assert_eq!(ApprovalId::parse(id.as_str()), Some(id.clone()));
        let uuid = id.as_str().strip_prefix(PREFIX).unwrap();
        for text in [id.as_str(), uuid, &uuid[..8], &uuid[..10].to_uppercase(), &uuid.replace('-', "")] {
            assert!(id.begins_with(text), "{text}");
        }
        for text in [uuid, "approval-", "audit-", "", &id.as_str()[..40]] {
            assert!(ApprovalId::parse(text).is_none(), "{text}");
        }
        assert!(ApprovalId::mint() > id && !ApprovalId::mint().begins_with(uuid));
    }
}
