//! The parts that the stores of an audit log share: the form of its lines, of its signed statement, and of the facts in them.

pub use crate::home_memory::HomeMemory;
pub use crate::index::{AttemptUsage, EndFacts, LineFacts, LineRequest, ReceivedFacts};
pub use crate::journal::{
    ChainHead, ClockState, EntryDraft, JournalCut, JournalLine, KeptFacts, LineFault, LogCheckpoint,
    LogEvent, PruneTimes, SealedPlace, SignedJournal, StoredCheckpoint, accepted_entry, accepted_time_in,
    action_name, believed_time, clock_state, decision, first_entry, key_decided, prune_entries, prune_result,
    writer_taken,
};
