//! The result of the last verification of the audit log from this home, which outlives the process.

use std::path::Path;

use cofferdam_core::private_file::{self, FilePolicy};
use serde::{Deserialize, Serialize};

use super::audit::{Audit, VerificationReport};

/// The file in the home directory.
const FILE: &str = "audit.verified";
const POLICY: FilePolicy = FilePolicy::secret(4 * 1024);

/// The result of a verification of the whole audit log. It says nothing about what was recorded later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastVerification {
    /// The time, as RFC 3339.
    pub at: String,
    /// True if the audit log was intact, except for findings that the operator had accepted.
    pub holds: bool,
    /// The number of verified entries.
    pub entries: u64,
    /// The number of findings, with accepted ones.
    pub findings: u64,
}

impl Audit {
    /// Returns the result of the last verification from this home; none if there was none, or if its result was not stored.
    #[must_use]
    pub fn last_verification(&self) -> Option<LastVerification> {
        let text = private_file::read(&self.home().join(FILE), &POLICY).ok().flatten()?;
        serde_json::from_slice(&text).ok()
    }

    /// Stores the result of a verification. A home that cannot be written can be verified all the same.
    pub(super) fn remember_verification(&self, report: &VerificationReport) {
        let last = LastVerification {
            at: format!("{:.6}", self.clock.timestamp()),
            holds: report.holds,
            entries: report.entries,
            findings: (report.findings.len() as u64).saturating_add(report.more_findings),
        };
        if let Err(error) = store(self.home(), &last) {
            tracing::warn!(target: "cofferdam::audit", %error, "the result of the verification is not stored");
        }
    }
}

fn store(home: &Path, last: &LastVerification) -> Result<(), private_file::FileError> {
    let text = serde_json::to_vec(last).unwrap_or_default();
    private_file::replace(&home.join(FILE), &text, &POLICY)
}
