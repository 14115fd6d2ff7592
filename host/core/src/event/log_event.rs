//! The schema of the events about the log itself, which belong to no call.
//!
//! An event serializes straight to canonical JSON (RFC 8785): fields are declared in the order of their names, and have no
//! fractions. An event that lacks a fact is kept as unknown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

// Its facts decide which calls have no end, so none of them has a default.
/// The first entry of a segment of a journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SegmentBegun {
    /// The calls without an end, by audit id, and the number of the first entry of each.
    pub calls: BTreeMap<String, u64>,
    /// The name of the journal.
    pub writer: String,
}

/// A process that takes a journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WriterTaken {
    /// The bytes of a last line without an end, which were removed.
    pub cut_bytes: u64,
    /// The version of the host.
    pub version: String,
}

/// A process that is done with a journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WriterReleased {}

/// The decision about the key of a call that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyDecided {
    /// The operator.
    pub actor: String,
    /// The audit id of the call.
    pub call: String,
    /// True if the key may be used again.
    pub frees_key: bool,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The keys of pruned calls that stay taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeysKept {
    /// The keys.
    pub keys: Vec<KeptKey>,
}

/// A key of a pruned call that stays taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeptKey {
    /// The audit id of the call that held it.
    pub call: String,
    /// The SHA-256 of everything that it stands for, in hexadecimal.
    pub fingerprint: String,
    /// Its own SHA-256, in hexadecimal.
    pub key_sha256: String,
}

/// The findings that an operator accepts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LossAccepted {
    /// The signed statement with the findings.
    pub accepted: String,
    /// The statement about all journals that was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// The entries that were pruned.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PrunedEntries {
    /// The time before which the pruned calls were received, as RFC 3339.
    pub before: String,
    /// The number of calls.
    pub calls: u64,
    /// The number of entries.
    pub entries: u64,
    /// The number of the last removed entry of each journal, by its name.
    pub journals: BTreeMap<String, u64>,
}
