//! The result of the last verification of the audit log from this home, which outlives the process.

use std::path::Path;

use cofferdam_audit::VerificationResult;
use cofferdam_core::private_file::{self, FilePolicy};

use super::audit::{Audit, VerificationReport};

/// The file in the home directory.
const FILE: &str = "audit.verified";
const POLICY: FilePolicy = FilePolicy::secret(4 * 1024);

impl Audit {
    /// Returns the result of the last verification from this home; none if there was none, or if its result was not stored.
    #[must_use]
    pub fn last_verification(&self) -> Option<VerificationResult> {
        let text = private_file::read(&self.home().join(FILE), &POLICY).ok().flatten()?;
        serde_json::from_slice(&text).ok()
    }

    /// Stores the result of a verification. A home that cannot be written can be verified all the same.
    pub(super) fn remember_verification(&self, report: &VerificationReport) {
        let last = VerificationResult {
            at: format!("{:.6}", self.clock.timestamp()),
            holds: report.holds,
            entries: report.stats.entries,
            findings: (report.findings.len() as u64).saturating_add(report.more_findings),
        };
        if let Err(error) = store(self.home(), &last) {
            tracing::warn!(target: "cofferdam::audit", %error, "the result of the verification is not stored");
        }
    }
}

fn store(home: &Path, last: &VerificationResult) -> Result<(), private_file::FileError> {
    let text = serde_json::to_vec(last).unwrap_or_default();
    private_file::replace(&home.join(FILE), &text, &POLICY)
}
