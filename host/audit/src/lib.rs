//! The audit log of calls: the commands that write it, its hash chain and sealed parts, and its storage.
//!
//! A call is in the audit log before any part of it runs, and its outcome is in the audit log before it is
//! reported. The audit log is a chain of entries, each with the hash of the one before it, so that every edit
//! is detected.

mod anchor;
mod checkpoint;
mod command;
mod entry;
mod error;
mod evidence;
mod export;
mod histogram;
mod journal;
mod log;
mod note;
mod seal;
mod sqlite;
mod stats;
mod verify;

pub use anchor::Anchor;
pub use checkpoint::{Checkpoint, ORIGIN, Statement};
pub use command::{
    CallOutcome, CallStatus, CallTarget, CloseCall, KeyClaim, KeyDisposition, KeyScope, KeyState, OpenCall,
    OpenOutcome, PruneBlocker, PruneStop, Pruned, ResolveCall,
};
pub use entry::{Entry, GENESIS, LoggedEvent, chained};
pub use error::{AuditError, AuditErrorKind};
pub use evidence::{AuditEvidence, HeldKey, KeptCall, KeptEntry, KeptKey, KeptNote, KeyOfPruned};
pub use export::{ExportError, Exporter, check, hex};
pub use histogram::Histogram;
pub use journal::JournalLog;
pub use log::{AuditLog, AuditReader, CallRow, Filter, LogFuture, StoredEntry};
pub use note::NoteSigner;
pub use note::{NoteFlaw, NoteKey};
pub use seal::Part;
pub use seal::{Sealed, Sealer};
pub use sqlite::{Durability, LogSettings, SealedQuota, SqliteLog};
pub use stats::{SealedUsage, Stats, StatsGroup};
pub use verify::{Accepted, Finding, Flaw};
pub use verify::{Expected, FINDINGS, Outcome, Verifier, nothing, whole};
