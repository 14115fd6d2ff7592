//! The trait by which an audit log shows everything that a verification looks at.

use cofferdam_core::failure::AuditId;

use crate::error::AuditError;
use crate::journal::{ChainHead, JournalLine, SealedPlace};
use crate::verify::FindingKind;

/// One view of an audit log. Its methods block, and fail if the audit log cannot be read.
pub trait AuditEvidence: Send {
    /// Returns the names of the writers that have a journal, in order.
    fn writers(&self) -> Result<Vec<String>, AuditError>;

    /// Returns the signed statement about all journals, if there is one.
    fn checkpoint(&self) -> Result<Option<String>, AuditError>;

    /// Reads the lines of a journal from the segment on that has the entry after `after`.
    fn read(
        &self,
        writer: &str,
        after: u64,
        visit: &mut dyn FnMut(EvidenceLine<'_>) -> Result<(), AuditError>,
    ) -> Result<(), AuditError>;

    /// Returns whether the lines of the newest segment from this position on are what a killed process or a power cut
    /// left: a line without its end, or bytes that never were a line.
    fn is_torn(&self, writer: &str, segment: u64, position: u64) -> Result<bool, AuditError>;

    /// Compares the sealed part at this place with what the entry says of it.
    fn sealed(&self, writer: &str, segment: u64, place: &SealedPlace) -> Result<SealedState, AuditError>;

    /// Compares what is derived from the journals with them, and corrects what can be.
    fn derived(&mut self) -> Result<Vec<DerivedFinding>, AuditError>;
}

/// The end of a journal that a power cut left after the last entry that was on the disk. The next process cuts it off.
#[derive(Debug, Default)]
pub(crate) struct LeftOver {
    /// The answer about the first line that does not follow. What is not torn there is not torn later either, and each
    /// answer reads the rest of the segment.
    is_torn: Option<bool>,
}

impl LeftOver {
    /// Returns true if it has the next line, which should follow `head`. The entry with the number `signed` was on the
    /// disk.
    pub(crate) fn has(
        &mut self,
        line: &EvidenceLine<'_>,
        head: ChainHead,
        signed: u64,
        is_torn: impl FnOnce() -> Result<bool, AuditError>,
    ) -> Result<bool, AuditError> {
        if self.is_torn.is_none()
            && line.is_newest
            && head.n >= signed
            && JournalLine::following(head, line.text).is_err()
        {
            self.is_torn = Some(is_torn()?);
        }
        Ok(self.is_torn == Some(true))
    }
}

/// A line of a journal, without its line break.
#[derive(Debug, Clone, Copy)]
pub struct EvidenceLine<'l> {
    /// The number of the first entry of its segment, according to the segment's name.
    pub segment: u64,
    /// The position of its first byte in the segment.
    pub position: u64,
    /// False if the segment ends before the line does.
    pub is_whole: bool,
    /// True if the segment is the newest one, to which a host may be writing.
    pub is_newest: bool,
    /// The text.
    pub text: &'l [u8],
}

/// The state of a sealed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedState {
    /// It is as it was written, or was dropped.
    Intact,
    /// The file ends before it does. A power cut may leave this of an entry that was not signed for yet.
    Short,
    /// It was changed.
    Changed,
}

/// A key that is not in the state that the journals have, or a file beside them that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedFinding {
    /// The call that holds the key.
    pub audit_id: Option<AuditId>,
    /// The kind of the problem.
    pub flaw: FindingKind,
    /// The problem.
    pub what: String,
}

impl DerivedFinding {
    /// Returns what the finding is about, so that another call is another finding.
    pub(crate) fn thing(&self) -> String {
        let audit_id = self.audit_id.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("{} {audit_id}", self.what)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn the_rest_of_a_segment_is_read_once() {
        let (mut left_over, mut read) = (LeftOver::default(), 0);
        let line = EvidenceLine { segment: 1, position: 9, is_whole: true, is_newest: true, text: b"{}" };
        for _ in 0..3 {
            let is_torn = || {
                read += 1;
                Ok(false)
            };
            assert!(!left_over.has(&line, ChainHead::EMPTY, 0, is_torn).unwrap());
        }
        assert_eq!(read, 1);
    }
}
