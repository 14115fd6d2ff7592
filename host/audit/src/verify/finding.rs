//! The findings of a verification, and their positions.

use cofferdam_core::failure::AuditId;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::evidence::DerivedFinding;
use crate::named_enum::named_enum;

named_enum! {
    /// The kind of a finding.
    #[derive(Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum FindingKind {
        /// The entry, or the hash beside it, was changed, or it does not belong where it stands.
        Edited = "edited",
        /// Entries are missing.
        Missing = "missing",
        /// An entry stands out of its order, or twice.
        Disordered = "disordered",
        /// An entry has another form than the host writes.
        Unreadable = "unreadable",
        /// Events of a call are not numbered from 1 without gaps.
        Sequence = "sequence",
        /// A call has events after its end, or two ends.
        AfterTheEnd = "after_the_end",
        /// The end is missing: entries that the host signed for are gone.
        Truncated = "truncated",
        /// The chain has another hash than the host signed for.
        Rewritten = "rewritten",
        /// A signed statement does not hold, or another key signed it.
        Signature = "signature",
        /// The table of idempotency keys has a key in another state than the journals.
        Keys = "keys",
        /// The sealed part of a call differs from the chain.
        Sealed = "sealed",
        /// A lock or a derived file is something else than a regular file.
        FileType = "file_type",
        /// The home remembers more of the log or the vault than is there, or what it remembered was changed.
        HomeState = "home_state",
        /// A line of an export is not as it was written.
        Line = "line",
    }
}

impl FindingKind {
    /// Returns true if an entry itself or its position is wrong, rather than a statement about it.
    pub(super) const fn is_of_the_chain(self) -> bool {
        matches!(
            self,
            Self::Edited
                | Self::Missing
                | Self::Disordered
                | Self::Unreadable
                | Self::Sequence
                | Self::AfterTheEnd
                | Self::Truncated
                | Self::Line
        )
    }

    /// Returns whether it goes away only if the text that it was found in is restored. Others go away as the
    /// log goes on from an accepted loss.
    pub(super) const fn can_be_put_back(self) -> bool {
        matches!(self, Self::Edited | Self::Unreadable | Self::Keys | Self::Sealed | Self::FileType)
    }
}

/// Something that is wrong with an audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The writer of the journal that it is in; none if it is in no journal.
    pub writer: Option<String>,
    /// The number of the entry where it shows; 0 for none.
    pub n: u64,
    /// The call whose entry it is, where that is known.
    pub audit_id: Option<AuditId>,
    /// The number of the event within that call.
    pub seq: Option<u32>,
    /// The problem.
    pub flaw: FindingKind,
    /// The same in a sentence.
    pub what: String,
    /// True if the operator has accepted it, in a signed statement in the audit log.
    pub accepted: bool,
    /// The SHA-256 of what it is found in, as that is now: where that is changed once more, it is another finding.
    #[serde(skip)]
    pub of: [u8; 32],
}

/// A finding that the operator knows of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct AcknowledgedFinding {
    /// The writer of the journal that it is in; none if it is in no journal.
    pub writer: Option<String>,
    /// The number of the entry where it shows; 0 for none.
    pub n: u64,
    /// The problem.
    pub flaw: FindingKind,
    /// The SHA-256 of what it is found in.
    #[serde(skip)]
    pub of: [u8; 32],
}

impl From<&DerivedFinding> for AcknowledgedFinding {
    fn from(finding: &DerivedFinding) -> Self {
        let of = finding_hash(finding.thing().as_bytes());
        Self { writer: None, n: 0, flaw: finding.flaw, of }
    }
}

/// Returns the hash of what a finding is found in.
pub(super) fn finding_hash(thing: &[u8]) -> [u8; 32] {
    let mut of = Sha256::new();
    of.update(b"cofferdam-finding-v2\n");
    of.update(thing);
    of.finalize().into()
}

impl From<&Finding> for AcknowledgedFinding {
    fn from(finding: &Finding) -> Self {
        let Finding { writer, n, flaw, of, .. } = finding;
        Self { writer: writer.clone(), n: *n, flaw: *flaw, of: *of }
    }
}
