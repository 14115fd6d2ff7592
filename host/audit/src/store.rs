//! The parts that the stores of an audit log share: the form of its lines, of its signed statement, and of the facts in
//! them, the rules of its keys, and the choice of the ends that are written later.

pub use crate::home_memory::HomeMemory;
pub use crate::index::{AttemptUsage, EndFacts, LineFacts, LineRequest};
pub use crate::journal::{
    ChainHead, ClockState, EntryDraft, HeldKey, JournalCut, JournalLine, KeptFacts, KeyFact, LATE_ENDS,
    LineFault, LogCheckpoint, LogEvent, PruneTimes, SealedPlace, SignedJournal, StepOf, StoredCheckpoint,
    StoredKey, StoredKeyState, accepted_entry, accepted_time_in, begin_journals, believed_time, check_clock,
    clock_state, decision, end_journals, first_entry, indexed_line, keeps_late_end, key_decided,
    key_differences, key_digest, key_state, log_time_at, prune_entries, prune_result, writer_taken,
};
pub use crate::upkeep::{QuotaOutcome, below_quota, retained, warn_once};
