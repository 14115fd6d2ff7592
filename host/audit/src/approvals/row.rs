//! The row of an approval in a store, which is not trusted: each has a MAC under a key of the host.

use cofferdam_core::host_key::{derived, hmac};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use super::approval::{ApprovalState, StoredApproval};
use crate::error::{AuditError, AuditErrorKind};

/// An approval as a store has it, without its arguments.
#[derive(Debug, Clone)]
pub struct ApprovalRow {
    /// The id.
    pub id: String,
    /// The binding with the idempotency key.
    pub exact: Vec<u8>,
    /// The binding without it.
    pub same_arguments: Vec<u8>,
    /// The approval as JSON.
    pub value: String,
    /// The MAC of id and value.
    pub mac: Vec<u8>,
}

/// Makes and checks the MACs of rows.
#[derive(Clone)]
pub struct ApprovalSeal([u8; 32]);

impl ApprovalSeal {
    /// Creates a seal with a key derived from the host's.
    #[must_use]
    pub fn new(host_key: &[u8; 32]) -> Self {
        Self(derived(host_key, b"cofferdam approvals 1"))
    }

    /// Returns the row of an approval.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn row(&self, stored: &StoredApproval) -> Result<ApprovalRow, AuditError> {
        let mut stored = stored.clone();
        let arguments = &mut stored.approval.arguments;
        (arguments.text, arguments.cut) = (None, false);
        let value =
            serde_json::to_string(&stored).map_err(|error| AuditError::new(AuditErrorKind::Other, error))?;
        let (id, binding) = (stored.approval.id.to_string(), stored.binding);
        let mac = mac_of(&self.0, &id, &value).finalize().into_bytes().to_vec();
        let (exact, same_arguments) = (binding.exact.to_vec(), binding.same_arguments.to_vec());
        Ok(ApprovalRow { id, exact, same_arguments, value, mac })
    }

    /// Reads a row; none if it is not one that a host with this key wrote.
    #[must_use]
    pub fn open(&self, row: &ApprovalRow) -> Option<StoredApproval> {
        let is_own = mac_of(&self.0, &row.id, &row.value).verify_slice(&row.mac).is_ok();
        let stored = is_own.then(|| serde_json::from_str(&row.value).ok()).flatten();
        let stored = stored.filter(|stored: &StoredApproval| {
            let binding = &stored.binding;
            stored.approval.id.as_str() == row.id
                && binding.exact == *row.exact
                && binding.same_arguments == *row.same_arguments
        });
        if stored.is_none() {
            tracing::warn!(target: "cofferdam::audit", "an approval is ignored: its row was changed by something else than a host");
        }
        stored
    }
}

/// Returns the MAC of an approval's id and a text. No id contains a line break.
pub(super) fn mac_of(key: &[u8; 32], id: &str, text: &str) -> Hmac<Sha256> {
    let mut mac = hmac(key);
    mac.update(id.as_bytes());
    mac.update(b"\n");
    mac.update(text.as_bytes());
    mac
}

/// Returns true if the approval waits for an answer, as it was stored.
#[must_use]
pub fn is_approval_waiting(stored: &StoredApproval) -> bool {
    stored.approval.state == ApprovalState::Waiting
}

/// Returns the length of the shown arguments in bytes.
#[must_use]
pub fn shown_bytes(stored: &StoredApproval) -> i64 {
    let bytes = stored.approval.arguments.text.as_ref().map_or(0, String::len);
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Returns true if there is room for a further request, with this many that wait, and this many bytes of arguments.
#[must_use]
pub fn has_approval_room(waiting: i64, bytes: i64, request: &StoredApproval) -> bool {
    let bytes = bytes.saturating_add(shown_bytes(request)).unsigned_abs();
    waiting.unsigned_abs() < super::MAX_WAITING && bytes <= super::MAX_WAITING_BYTES
}
