//! The readiness of a host: the parts without which its calls would be refused.

use cofferdam_audit::AuditErrorKind;

use super::Host;

impl Host {
    /// Returns the names of the parts that cannot be used now, so that calls would be refused: `audit log`, `keyring`,
    /// `packages` and `vault`. It blocks: not for an executor's threads.
    #[must_use]
    pub fn missing_parts(&self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        let is_readable = match self.audit.log().reader() {
            Ok(_) => true,
            // Nothing was recorded yet.
            Err(error) => error.kind() == AuditErrorKind::Absent,
        };
        let is_complete = || self.audit.check_complete().is_ok();
        if !is_readable || !is_complete() || cofferdam_audit::wait(self.audit.log().ready()).is_err() {
            missing.push("audit log");
        }
        if self.keyring().load().is_err() {
            missing.push("keyring");
        }
        if self.has_lost_its_index() || self.list().is_err() {
            missing.push("packages");
        }
        let has_vault = match self.vault.bindings() {
            // None of them: the place of the secrets is gone.
            Ok(bindings) => bindings.iter().next().is_some() || bindings.iter_unavailable().next().is_none(),
            Err(_) => false,
        };
        if !has_vault {
            missing.push("vault");
        }
        missing
    }
}
