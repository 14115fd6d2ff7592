//! Verification of an audit log: pure, over entries in sequence, from a database or from an export.
//!
//! Memory stays the same however long the audit log is: it contains the calls without an end, the last calls
//! that ended, and the signed statements ahead.

mod calls;
mod finding;
mod keys;
mod whole;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

pub(crate) use self::calls::CallFacts;
use self::calls::{Calls, Step};
pub use self::finding::{Accepted, Finding, Flaw};
use self::keys::SaidOfKeys;
pub use self::whole::{Expected, nothing, whole};
use super::checkpoint::{Checkpoint, Statement};
use super::entry::{Body, FORM, GENESIS, chained};
use super::log::StoredEntry;
use super::note::{NoteFlaw, NoteKey};

/// Most findings that are kept where nothing else is asked for; more are counted.
pub const FINDINGS: usize = 1_000;

/// Checks a chain, entry by entry.
pub struct Verifier<'k> {
    key: &'k NoteKey,
    /// The number and the hash of the last entry that went by.
    n: u64,
    hash: [u8; 32],
    from: u64,
    /// True if it is unknown where the chain begins.
    unknown: bool,
    calls: Calls,
    /// The signed hashes, by the number of the entry that each is about.
    ahead: BTreeMap<u64, Vec<([u8; 32], &'static str)>>,
    accepted: HashSet<Accepted>,
    /// The number of the entry that is looked at, and the SHA-256 of it as it is.
    row: (u64, [u8; 32]),
    keys: SaidOfKeys,
    findings: Vec<Finding>,
    most: usize,
    more: u64,
    tally: Tally,
}

/// The fact of the entry `loss_accepted`: a signed statement.
#[derive(Deserialize)]
struct LossAccepted {
    note: String,
}

/// The checked data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub entries: u64,
    pub calls: u64,
    pub checkpoints: u64,
    /// When the first call was received that has its beginning here,
    pub since: Option<Timestamp>,
    /// and the last.
    pub until: Option<Timestamp>,
}

/// A call that is over, and what the chain says of it.
pub(crate) type Over = (AuditId, Box<CallFacts>);

/// The outcome.
pub struct Outcome {
    /// The number of the first entry.
    pub from: u64,
    /// The number of the last entry.
    pub n: u64,
    /// The hash of the last entry.
    pub hash: [u8; 32],
    /// The counts of entries, calls and checkpoints.
    pub tally: Tally,
    /// Those of the chain first, each by its number.
    pub findings: Vec<Finding>,
    /// The number of further findings.
    pub more: u64,
    /// Flaws that were accepted and are gone: they were repaired.
    pub put_back: Vec<(u64, Flaw)>,
}

impl<'k> Verifier<'k> {
    /// Checks a chain whose statements `key` signed.
    pub fn new(key: &'k NoteKey) -> Self {
        Self {
            key,
            n: 0,
            hash: GENESIS,
            from: 1,
            unknown: false,
            calls: Calls::default(),
            ahead: BTreeMap::new(),
            accepted: HashSet::new(),
            row: (0, [0; 32]),
            keys: SaidOfKeys::default(),
            findings: Vec::new(),
            most: FINDINGS,
            more: 0,
            tally: Tally::default(),
        }
    }

    /// Keeps up to `most` findings.
    pub(crate) fn keep(&mut self, most: usize) {
        self.most = most;
    }

    /// Begins after this entry instead of at the beginning.
    pub fn begin_after(&mut self, n: u64, hash: [u8; 32]) {
        (self.n, self.hash, self.from) = (n, hash, n.saturating_add(1));
    }

    /// Begins with the first entry that comes. If that is not the very first, it is a finding.
    pub(crate) fn begin_anywhere(&mut self) {
        self.unknown = true;
    }

    /// Calls may have begun before it.
    pub(crate) fn is_a_part(&mut self) {
        self.calls.is_a_part = true;
    }

    /// Takes a signed statement. `from` says where it is kept, for findings; what it says of an entry is checked when
    /// that goes by. The statement, if it holds.
    pub(crate) fn note(&mut self, note: &str, n: u64, from: &'static str) -> Option<Checkpoint> {
        let checkpoint = match Checkpoint::read(note, self.key) {
            Ok(checkpoint) => checkpoint,
            Err(flaw) => {
                let own = self.key.id();
                let what = match flaw {
                    NoteFlaw::Foreign => format!("the statement in {from}: another key than {own} signed it"),
                    flaw => format!("the statement in {from}: {flaw}"),
                };
                self.find_in(n, None, None, Flaw::Signature, what, note.as_bytes());
                return None;
            }
        };
        self.tally.checkpoints += 1;
        self.expect(checkpoint.n, checkpoint.hash, from);
        Some(checkpoint)
    }

    /// Notes that the `n`-th entry has this hash, as `from` says; checked when it goes by.
    pub(crate) fn expect(&mut self, n: u64, hash: [u8; 32], from: &'static str) {
        match n.cmp(&self.n) {
            std::cmp::Ordering::Greater => {
                let ahead = self.ahead.entry(n).or_default();
                if !ahead.iter().any(|(known, _)| *known == hash) {
                    ahead.push((hash, from));
                }
            }
            std::cmp::Ordering::Equal => self.compare(hash, from),
            // The entry that the statement is about was pruned, or is before this part.
            std::cmp::Ordering::Less => {}
        }
    }

    /// Checks the next entry. `prev` is the number of its call's previous entry, if that is stored outside the
    /// chain. Returns the facts about a call that ends with this entry.
    pub fn entry(&mut self, entry: &StoredEntry, prev: Option<u64>) -> Option<Over> {
        let due = self.n.saturating_add(1);
        if entry.n < due {
            let what = format!("entry {} stands where entry {due} is due", entry.n);
            self.find_in(due, None, None, Flaw::Disordered, what, entry.body.as_bytes());
            return None;
        }
        let digest: [u8; 32] = Sha256::digest(entry.body.as_bytes()).into();
        // Beside what is hashed, the hash: both are there to be changed.
        self.row = (entry.n, chained(&entry.hash, entry.n, &digest));
        let body = serde_json::from_str::<Body>(&entry.body);
        let id = body.as_ref().ok().and_then(|body| AuditId::parse(body.audit_id.as_deref()?));
        let seq = body.as_ref().ok().and_then(|body| body.events.first()).map(|event| event.seq);
        // Of a beginning that is not there nothing can be told but that.
        let unknown = std::mem::take(&mut self.unknown);
        if unknown && entry.n > 1 {
            let what = format!(
                "the record begins with entry {}, and nothing signed says that those before it were pruned",
                entry.n
            );
            self.find(entry.n, None, None, Flaw::Beginning, what);
        } else if entry.n != due {
            let last = entry.n - 1;
            let what = match last - due {
                0 => format!("entry {due} is missing"),
                _ => format!("entries {due} to {last} are missing"),
            };
            self.find(due, None, None, Flaw::Missing, what);
        } else if entry.hash != chained(&self.hash, entry.n, &digest) {
            let what = format!("entry {due} was changed, or does not belong there: its hash does not fit");
            self.find(due, id.clone(), seq, Flaw::Edited, what);
        }
        // Statements about missing entries apply to no other entry.
        self.ahead = self.ahead.split_off(&entry.n);
        if unknown {
            self.from = entry.n;
        }
        (self.n, self.hash) = (entry.n, entry.hash);
        self.tally.entries += 1;
        for (hash, from) in self.ahead.remove(&self.n).unwrap_or_default() {
            self.compare(hash, from);
        }
        match body {
            Ok(body) if body.v == FORM => self.body(body, id, prev),
            _ => {
                let what = format!("entry {due} has another form than a host writes");
                self.find(entry.n, None, None, Flaw::Unreadable, what);
                None
            }
        }
    }

    fn body(&mut self, body: Body, id: Option<AuditId>, prev: Option<u64>) -> Option<Over> {
        let (n, seq) = (self.n, body.events.first().map(|event| event.seq));
        match (id, body.log, body.audit_id) {
            (Some(id), None, Some(_)) => {
                let (step, wrong) = self.calls.entry(n, &id, body.events, prev);
                if let Some((flaw, seq, what)) = wrong {
                    self.find(n, Some(id.clone()), seq, flaw, format!("entry {n}: {what}"));
                }
                if let Step::Ended(call) = step {
                    self.count(call.at);
                    return Some((id, call));
                }
            }
            (None, Some(log), None) if body.events.is_empty() => {
                if log.name != "loss_accepted" {
                    self.keys.entry(&log.name, &log.payload);
                } else if let Ok(LossAccepted { note }) = serde_json::from_str(log.payload.get())
                    && let Some(checkpoint) = self.note(&note, n, "an entry")
                    && let Statement::Accepts(flaws) = checkpoint.statement
                {
                    self.accepted.extend(flaws);
                }
            }
            (id, ..) => {
                let what = format!("entry {n} has another form than a host writes");
                self.find(n, id, seq, Flaw::Unreadable, what);
            }
        }
        None
    }

    fn count(&mut self, at: Timestamp) {
        self.tally.calls += 1;
        // A part of the log may have the end of a call without its beginning, which says when it was received.
        if at == Timestamp::default() {
            return;
        }
        let tally = &mut self.tally;
        tally.since = Some(tally.since.map_or(at, |since| since.min(at)));
        tally.until = Some(tally.until.map_or(at, |until| until.max(at)));
    }

    fn compare(&mut self, hash: [u8; 32], from: &'static str) {
        if hash != self.hash {
            let n = self.n;
            let what = format!("the chain up to entry {n} is not the one that was signed in {from}");
            // Wherever what was signed is kept, it is the same finding.
            self.find_in(n, None, None, Flaw::Rewritten, what, &hash);
        }
    }

    /// Notes what is wrong, as the sentence says.
    pub(crate) fn find(
        &mut self,
        n: u64,
        audit_id: Option<AuditId>,
        seq: Option<u32>,
        flaw: Flaw,
        what: String,
    ) {
        let thing = what.clone();
        self.find_in(n, audit_id, seq, flaw, what, thing.as_bytes());
    }

    /// Notes what is wrong, and in what thing beside the entry that is looked at.
    pub(crate) fn find_in(
        &mut self,
        n: u64,
        audit_id: Option<AuditId>,
        seq: Option<u32>,
        flaw: Flaw,
        what: String,
        thing: &[u8],
    ) {
        if self.findings.len() < self.most {
            let mut of = Sha256::new();
            of.update(b"cofferdam-finding-v1\n");
            of.update(Sha256::digest(thing));
            if self.row.0 == n {
                of.update(self.row.1);
            }
            let of = of.finalize().into();
            self.findings.push(Finding { n, audit_id, seq, flaw, what, accepted: false, of });
        } else {
            self.more += 1;
        }
    }

    /// The calls that have no end so far. Once all entries went by.
    pub(crate) fn without_an_end(&mut self) -> Vec<([u8; 16], CallFacts)> {
        let mut open: Vec<_> = std::mem::take(&mut self.calls.open).into_iter().collect();
        open.sort_by_key(|(_, call)| call.first);
        open.iter().for_each(|(_, call)| self.count(call.at));
        open
    }

    /// Returns the facts so far about a call without an end.
    pub(crate) fn open(&self, id: &AuditId) -> Option<&CallFacts> {
        self.calls.open.get(&id.bytes())
    }

    /// Returns true if all calls so far have an end.
    pub(crate) fn has_none_open(&self) -> bool {
        self.calls.open.is_empty()
    }

    /// Returns the number of calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.tally.calls
    }

    /// The first finding after this entry.
    pub fn finding_after(&self, n: u64) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.n > n)
    }

    /// The hash of the last entry that went by.
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// The number of the last entry that went by.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Once all entries went by: what was signed and is not there, and all that was found.
    pub(crate) fn end(mut self) -> Outcome {
        let last = self.n;
        if let Some((signed, notes)) = self.ahead.pop_last() {
            let from = notes.first().map_or("a statement", |(_, from)| from);
            let what = format!(
                "the record ends with entry {last}, and {from} signs for entry {signed}: its end is missing"
            );
            self.find(last.saturating_add(1), None, None, Flaw::Truncated, what);
        }
        for finding in &mut self.findings {
            let own = Accepted::from(&*finding);
            finding.accepted =
                self.accepted.contains(&own) || self.accepted.contains(&Accepted { of: None, ..own });
        }
        let found: HashSet<(u64, Flaw)> = findings_of(&self.findings);
        let is_gone = |accepted: &&Accepted| {
            accepted.flaw.can_be_put_back() && !found.contains(&(accepted.n, accepted.flaw))
        };
        let gone = self.accepted.iter().filter(is_gone).map(|accepted| (accepted.n, accepted.flaw));
        // One for each, however often it was accepted; none where not all findings are known.
        let put_back: BTreeSet<_> = if self.more == 0 { gone.collect() } else { BTreeSet::new() };
        // Findings about the chain itself come first: the others may only follow from them.
        self.findings.sort_by_key(|finding| (!finding.flaw.is_of_the_chain(), finding.n));
        let Self { from, n, hash, tally, findings, more, .. } = self;
        Outcome { from, n, hash, tally, findings, more, put_back: put_back.into_iter().collect() }
    }
}

fn findings_of(findings: &[Finding]) -> HashSet<(u64, Flaw)> {
    findings.iter().map(|finding| (finding.n, finding.flaw)).collect()
}
