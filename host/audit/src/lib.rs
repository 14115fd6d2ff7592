//! The audit log of calls: journals of chained entries, their index, their signed checkpoints and their verification.
//!
//! A call is in the audit log before any part of it runs, and its outcome is in the audit log before it is
//! reported. Each process writes a journal, a chain of entries, each with the hash of the one before it, so that every
//! edit is detected.

#[cfg(test)]
extern crate self as cofferdam_audit;

pub mod approvals;
mod call_facts;
mod command;
mod entry;
mod error;
mod evidence;
mod export;
mod hex;
mod histogram;
mod home_memory;
mod index;
mod journal;
mod log;
#[cfg(test)]
#[path = "../../../tests/support/src/log_calls.rs"]
#[allow(clippy::unwrap_used, unreachable_pub, reason = "shared with the tests' support")]
mod log_calls;
mod named_enum;
mod note;
mod request_stats;
mod seal;
mod settings;
mod sqlite_file;
mod stats;
mod stats_report;
pub mod store;
mod upkeep;
mod verify;

pub use call_facts::{difference_from_attempt, remove_repeated};
pub use command::{
    CallOutcome, CallStatus, CallTarget, CloseCall, KeyClaim, KeyDisposition, KeyScope, KeyState, LogTime,
    OpenCall, OpenOutcome, PruneBlocker, PruneStop, Pruned, ResolveCall,
};
pub use entry::{Entry, LoggedEvent};
pub use error::{AuditError, AuditErrorKind};
pub use evidence::{AuditEvidence, DerivedFinding, EvidenceLine, SealedState};
pub use export::{CheckedExport, ExportError, ExportRange, export, verify_export};
pub use hex::{hex, unhex};
pub use histogram::Histogram;
pub use journal::{ChainHead, JournalLog, LogCheckpoint, SealedPlace, SignedJournal};
pub use log::{
    ActionSet, AuditLog, AuditReader, CallRow, Filter, KEY_BYTES, LogFuture, LogPosition, OperatorChange,
    OperatorEventFilter, StoredEntry, wait,
};
pub use note::{NoteFlaw, NoteKey, NoteSigner};
pub use request_stats::{RequestKind, RequestResult, RequestSum};
pub use seal::{Part, Sealed, Sealer};
pub use settings::{Durability, LogSettings, SealedQuota};
pub use stats::{
    HistoryPart, HistoryQuery, HistoryStep, LogStorage, SealedUsage, Stats, StatsGroup, StatsGrouping,
    StatsQuery, UsageStats,
};
pub use stats_report::{
    CallsByClass, DurationPercentiles, HistogramStep, NamedCalls, OutcomeGroup, ResourceUsage, SealedBytes,
    StatsReport, UsageRange, UsageReport, histogram_ranges, range_starts,
};
pub use verify::{
    AcknowledgedFinding, ExpectedState, FINDINGS, Finding, FindingKind, VerificationResult, VerifiedJournal,
    VerifyOutcome, VerifyStats, verify_log,
};
