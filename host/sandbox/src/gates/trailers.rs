//! The gate in front of the fields after a request's body.

use std::sync::Arc;

use cofferdam_core::failure::{LimitHit, LimitKind};
use cofferdam_core::limits::HEADER_BYTES;
use cofferdam_egress::egress::{Authorize, EgressClient, ReadOnly, header_bytes};
use http::HeaderMap;

use super::ledger::{AttemptLog, Termination};

/// The rules for one request's trailers: those of the fields before its body.
pub(super) struct TrailersRule {
    pub(super) read_only: Option<Arc<ReadOnly>>,
    pub(super) client: EgressClient,
    pub(super) credentials: Option<Arc<dyn Authorize>>,
    pub(super) ledger: Arc<AttemptLog>,
    /// The bytes of the fields before the body, which count as well.
    pub(super) head_bytes: usize,
}

impl TrailersRule {
    /// Returns whether `fields` may go out. A refusal with a verdict ends the attempt.
    pub(super) fn admits(&self, fields: &HeaderMap) -> bool {
        match self.judge(fields) {
            Ok(()) => !self
                .credentials
                .as_ref()
                .is_some_and(|credentials| fields.keys().any(|name| credentials.writes_header(name))),
            Err(verdict) => {
                self.ledger.end(verdict);
                false
            }
        }
    }

    fn judge(&self, fields: &HeaderMap) -> Result<(), Termination> {
        if let Some(read_only) = &self.read_only {
            read_only.admit_fields(fields).map_err(Termination::Denied)?;
        }
        self.client.policy().admit_fields(fields).map_err(Termination::Denied)?;
        let used = self.head_bytes.saturating_add(header_bytes(fields));
        if used > HEADER_BYTES {
            let hit = LimitHit::new(LimitKind::RequestHeaders, HEADER_BYTES as u64, used as u64);
            return Err(Termination::Limit(hit));
        }
        // Handles are not replaced in trailers.
        let credentials = self.credentials.as_ref().filter(|credentials| credentials.has_handles());
        let handle = credentials.and_then(|credentials| {
            fields.values().find_map(|value| credentials.handle_in_body(value.as_bytes()))
        });
        handle.map_or(Ok(()), |denial| Err(Termination::Denied(denial)))
    }
}
