//! Tickets: the proof that a host asked about an approval through the client of the call, for clients that return what
//! they were asked instead of keeping a session.

use cofferdam_core::host_key::derived;
use hmac::Mac as _;

use super::ApprovalId;
use super::row::mac_of;
use crate::hex::{hex, unhex};

/// Issues and checks tickets. A ticket is an id with a MAC under a key of the host, for one asker.
#[derive(Clone)]
pub struct ApprovalTickets([u8; 32]);

impl ApprovalTickets {
    /// Creates the tickets of a host, with a key derived from the host's.
    #[must_use]
    pub fn new(host_key: &[u8; 32]) -> Self {
        Self(derived(host_key, b"cofferdam approval tickets 1"))
    }

    /// Returns a ticket for the approval, which only `asker` can return.
    #[must_use]
    pub fn issue(&self, id: &ApprovalId, asker: &str) -> String {
        let mac: [u8; 32] = mac_of(&self.0, id.as_str(), asker).finalize().into_bytes().into();
        format!("{id}.{}", hex(&mac))
    }

    /// Returns the approval of a ticket. None if no host with this key issued it for `asker`.
    #[must_use]
    pub fn check(&self, ticket: &str, asker: &str) -> Option<ApprovalId> {
        let (id, mac) = ticket.split_once('.')?;
        let (id, mac) = (ApprovalId::parse(id)?, unhex(mac)?);
        mac_of(&self.0, id.as_str(), asker).verify_slice(&mac).is_ok().then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_issued_tickets_are_accepted() {
        let (own, other) = (ApprovalTickets::new(&[1; 32]), ApprovalTickets::new(&[2; 32]));
        let (id, second) = (ApprovalId::mint(), ApprovalId::mint());
        let ticket = own.issue(&id, "mcp:a\ntool");
        assert_eq!(own.check(&ticket, "mcp:a\ntool"), Some(id.clone()));
        let of_second = ticket.replace(id.as_str(), second.as_str());
        for forged in [
            id.as_str(),
            &format!("{id}."),
            &format!("{id}.{}", "0".repeat(64)),
            &format!("{ticket}0"),
            &ticket.to_uppercase(),
            &of_second,
            &other.issue(&id, "mcp:a\ntool"),
            "",
        ] {
            assert_eq!(own.check(forged, "mcp:a\ntool"), None, "{forged}");
        }
        for asker in ["mcp:a\nother", "mcp:b\ntool", ""] {
            assert_eq!(own.check(&ticket, asker), None, "{asker}");
        }
    }
}
