//! Verification of an audit log: pure, over the lines of its journals in order, from a home or from an export.
//!
//! Memory stays the same however long the audit log is: it contains the calls without an end, and the last calls that
//! ended.

mod calls;
mod finding;
mod log;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use self::calls::JournalCalls;
use self::finding::finding_hash;
pub use self::finding::{AcknowledgedFinding, Finding, FindingKind};
pub use self::log::{ExpectedState, verify_log};
use crate::command::serialize_time;
use crate::hex::hex;
use crate::journal::{
    ChainHead, JournalLine, LogCheckpoint, LogEvent, SEGMENT_BEGUN, SignedJournal, read_accepted,
};
use crate::note::{NoteFlaw, NoteKey};

/// Most findings that are kept where nothing else is asked for; more are counted.
pub const FINDINGS: usize = 1_000;

/// The name of the entry with the findings that the operator accepts.
const LOSS_ACCEPTED: &str = "loss_accepted";

/// By entry, the hashes that were signed, and where.
type SignedHashes = BTreeMap<u64, Vec<([u8; 32], &'static str)>>;

/// Checks journals, line by line.
pub(crate) struct Verifier<'k> {
    key: &'k NoteKey,
    journal: JournalProgress,
    /// By writer.
    signed: BTreeMap<String, SignedHashes>,
    accepted: HashSet<AcknowledgedFinding>,
    findings: Vec<Finding>,
    most: usize,
    more: u64,
    stats: VerifyStats,
    verified: Vec<VerifiedJournal>,
    /// True if no more than a part of the log is expected: what was signed of the rest is not missing.
    pub(crate) is_part: bool,
}

/// The journal that is being checked.
#[derive(Default)]
struct JournalProgress {
    writer: Option<String>,
    /// The entry after which the journal begins.
    base: ChainHead,
    head: ChainHead,
    calls: JournalCalls,
    /// The text of the last line, and the call in it.
    last: Option<(Vec<u8>, Option<AuditId>, Option<u32>)>,
    ahead: SignedHashes,
}

/// The amount of checked data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct VerifyStats {
    /// The number of entries.
    pub entries: u64,
    /// The number of calls that begin in them.
    pub calls: u64,
    /// The number of valid signed statements.
    pub checkpoints: u64,
    /// The time at which the first of the calls was received.
    #[serde(serialize_with = "serialize_time")]
    pub since: Option<Timestamp>,
    /// The time at which the last of the calls was received.
    #[serde(serialize_with = "serialize_time")]
    pub until: Option<Timestamp>,
}

/// A journal that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifiedJournal {
    /// The name of its writer.
    pub writer: String,
    /// The number of the first verified entry. Entries before it were pruned, or are not in the export.
    pub from: u64,
    /// The number of the last verified entry.
    pub to: u64,
    /// The SHA-256 of the last verified entry.
    #[serde(rename = "head", serialize_with = "serialize_hash")]
    pub hash: [u8; 32],
}

fn serialize_hash<S: Serializer>(hash: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex(hash))
}

/// The outcome of a verification.
#[derive(Debug)]
pub struct VerifyOutcome {
    /// The journals, in the order of their writers' names.
    pub journals: Vec<VerifiedJournal>,
    /// The amount of checked data.
    pub stats: VerifyStats,
    /// The findings: those of the chains first, each by its journal and number.
    pub findings: Vec<Finding>,
    /// The number of further findings.
    pub more: u64,
    /// Findings that were accepted and are gone: they were repaired.
    pub put_back: Vec<AcknowledgedFinding>,
}

/// The result of a verification of the whole audit log. It says nothing about what was recorded later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct VerificationResult {
    /// The time, as RFC 3339.
    pub at: String,
    /// True if the audit log was intact, except for findings that the operator had accepted.
    pub holds: bool,
    /// The number of verified entries.
    pub entries: u64,
    /// The number of findings, with accepted ones.
    pub findings: u64,
}

/// A line that was checked, for those that look at more of it.
pub(crate) struct CheckedLine<'l> {
    pub(crate) line: JournalLine<'l>,
    pub(crate) audit_id: Option<AuditId>,
}

impl<'k> Verifier<'k> {
    /// Checks journals whose statements `key` signed. Up to `most` findings are kept.
    pub(crate) fn new(key: &'k NoteKey, most: usize) -> Self {
        Self {
            key,
            journal: JournalProgress::default(),
            signed: BTreeMap::new(),
            accepted: HashSet::new(),
            findings: Vec::new(),
            most,
            more: 0,
            stats: VerifyStats::default(),
            verified: Vec::new(),
            is_part: false,
        }
    }

    /// Takes a signed statement, before the journals. `from` says where it is stored. Returns it, if it holds.
    pub(crate) fn note(&mut self, note: &str, from: &'static str) -> Option<LogCheckpoint> {
        let checkpoint = self.signed(note, from)?;
        for (writer, SignedJournal { head, base }) in &checkpoint.journals {
            // A statement may be older than the removal of what it is about.
            for signed in [head, base].into_iter().filter(|signed| signed.n > 0) {
                self.expect(writer, *signed, from);
            }
        }
        Some(checkpoint)
    }

    /// Reads a signed statement, and returns it, if it holds.
    pub(crate) fn signed(&mut self, note: &str, from: &'static str) -> Option<LogCheckpoint> {
        let checkpoint = match LogCheckpoint::read(note, self.key) {
            Ok(checkpoint) => checkpoint,
            Err(flaw) => {
                let what = match flaw {
                    NoteFlaw::Foreign => {
                        format!("the statement in {from}: another key than {} signed it", self.key.id())
                    }
                    flaw => format!("the statement in {from}: {flaw}"),
                };
                self.find_in(None, 0, None, FindingKind::Signature, what, note.as_bytes());
                return None;
            }
        };
        self.stats.checkpoints = self.stats.checkpoints.saturating_add(1);
        Some(checkpoint)
    }

    /// Notes that an entry of a journal has this hash, according to `from`.
    fn expect(&mut self, writer: &str, head: ChainHead, from: &'static str) {
        let signed = self.signed.entry(writer.to_owned()).or_default().entry(head.n).or_default();
        if !signed.iter().any(|(hash, _)| *hash == head.hash) {
            signed.push((head.hash, from));
        }
    }

    /// Begins with a journal, whose entries up to `base` are not there.
    pub(crate) fn begin_journal(&mut self, writer: &str, base: ChainHead) {
        let ahead = self.signed.remove(writer).unwrap_or_default();
        let calls = JournalCalls::new(base.n > 0);
        let writer = Some(writer.to_owned());
        self.journal = JournalProgress { writer, base, head: base, calls, last: None, ahead };
        self.compare();
    }

    /// Checks the next line of the journal. Returns it if it is in its place.
    pub(crate) fn line<'l>(&mut self, text: &'l [u8]) -> Option<CheckedLine<'l>> {
        let due = self.journal.head.n.saturating_add(1);
        let line = match JournalLine::read(text) {
            Ok(line) => line,
            Err(_) => {
                let what = format!("entry {due} has another form than a host writes");
                self.find_in(None, due, None, FindingKind::Unreadable, what, text);
                self.advance(due, text, None, None);
                return None;
            }
        };
        let n = line.n;
        match n.cmp(&due) {
            Ordering::Less => {
                let what = format!("entry {n} stands where entry {due} is due");
                self.find_in(None, due, None, FindingKind::Disordered, what, text);
                return None;
            }
            Ordering::Greater => {
                let last = n.saturating_sub(1);
                let what = match last == due {
                    true => format!("entry {due} is missing"),
                    false => format!("entries {due} to {last} are missing"),
                };
                self.find(due, FindingKind::Missing, what);
                // Statements about missing entries apply to no other entry.
                self.journal.ahead = self.journal.ahead.split_off(&n);
            }
            Ordering::Equal if line.prev() != Ok(self.journal.head.hash) => self.edited(due, text),
            Ordering::Equal => {}
        }
        let audit_id = line.audit_id.as_deref().and_then(AuditId::parse);
        let events = line.events();
        let is_understood = events.is_ok() && audit_id.is_some() == line.audit_id.is_some();
        let seq = events.as_ref().ok().and_then(|events| events.first()).map(|event| event.seq);
        self.advance(n, text, audit_id.clone(), seq);
        let events = match events {
            Ok(events) if is_understood => events,
            _ => {
                let what = format!("entry {n} has another form than a host writes");
                self.find_in(audit_id, n, seq, FindingKind::Unreadable, what, text);
                return None;
            }
        };
        if let Some(id) = &audit_id {
            let (is_first, wrong) = self.journal.calls.entry(id, &events);
            if let Some((flaw, seq, what)) = wrong {
                let thing = what.clone();
                let what = format!("entry {n}: {what}");
                self.find_in(Some(id.clone()), n, seq, flaw, what, thing.as_bytes());
            }
            if is_first {
                let received =
                    events.first().filter(|event| matches!(event.event(), RecordedEvent::Received(_)));
                self.count(received.and_then(|event| event.at.parse().ok()));
            }
        }
        if let Some(log) = &line.log {
            self.log_event(log);
        }
        Some(CheckedLine { line, audit_id })
    }

    /// Checks the place of a line in its segment, before the line itself: the first line, and no other one, begins a
    /// segment of this writer.
    pub(crate) fn place(&mut self, segment: u64, is_first: bool, text: &[u8]) {
        let Ok(line) = JournalLine::read(text) else { return };
        let begun = line.log.as_ref().map(LogEvent::event).filter(|event| event.name() == SEGMENT_BEGUN);
        let is_in_place = match (is_first, begun) {
            (true, Some(RecordedEvent::SegmentBegun(begun))) => {
                line.n == segment && Some(begun.writer) == self.journal.writer
            }
            (true, _) => false,
            (false, begun) => begun.is_none(),
        };
        if !is_in_place {
            let n = line.n;
            let what = format!("entry {n} is not in the segment that it was written to");
            self.find_in(None, n, None, FindingKind::Disordered, what, text);
        }
    }

    fn advance(&mut self, n: u64, text: &[u8], audit_id: Option<AuditId>, seq: Option<u32>) {
        self.journal.head = ChainHead::at(n, text);
        let last = self.journal.last.get_or_insert_default();
        last.0.clear();
        last.0.extend_from_slice(text);
        (last.1, last.2) = (audit_id, seq);
        self.stats.entries = self.stats.entries.saturating_add(1);
        self.compare();
    }

    /// Notes that the line before this one has another hash than this one names: either was changed.
    fn edited(&mut self, due: u64, text: &[u8]) {
        let last = self.journal.last.take();
        let what = match &last {
            Some(_) => format!(
                "entry {} was changed, or entry {due} does not belong after it: their hashes do not fit",
                due.saturating_sub(1)
            ),
            None => format!("entry {due} was changed, or does not belong there: its hash does not fit"),
        };
        let n = if last.is_some() { due.saturating_sub(1) } else { due };
        let (before, id, seq) = last.unwrap_or_default();
        self.find_in(id, n, seq, FindingKind::Edited, what, &[&before, text].concat());
    }

    fn log_event(&mut self, log: &LogEvent<'_>) {
        if log.name != LOSS_ACCEPTED {
            return;
        }
        let accepted = match log.event() {
            RecordedEvent::LossAccepted(facts) => read_accepted(&facts.accepted, self.key).ok(),
            _ => None,
        };
        match accepted {
            Some(accepted) => self.accepted.extend(accepted),
            None => {
                let (n, what) =
                    (self.journal.head.n, "the accepted findings in the entry are not signed".to_owned());
                self.find_in(None, n, None, FindingKind::Signature, what, log.payload.get().as_bytes());
            }
        }
    }

    fn count(&mut self, at: Option<Timestamp>) {
        let stats = &mut self.stats;
        stats.calls = stats.calls.saturating_add(1);
        let Some(at) = at else { return };
        stats.since = Some(stats.since.map_or(at, |since| since.min(at)));
        stats.until = Some(stats.until.map_or(at, |until| until.max(at)));
    }

    /// Compares the head with what was signed of it.
    fn compare(&mut self) {
        let ChainHead { n, hash } = self.journal.head;
        // What was signed of entries before the base, which are not there, is covered by the base.
        let later = self.journal.ahead.split_off(&n);
        self.journal.ahead = later;
        for (signed, from) in self.journal.ahead.remove(&n).unwrap_or_default() {
            if signed != hash {
                let what = format!("the journal up to entry {n} is not the one that was signed in {from}");
                // Wherever what was signed is stored, it is the same finding.
                self.find_in(None, n, None, FindingKind::Rewritten, what, &signed);
            }
        }
    }

    /// Ends the journal that was begun, if there is one, and returns it: what was signed must be there.
    pub(crate) fn end_journal(&mut self) -> Option<(String, SignedJournal)> {
        self.journal.writer.as_ref()?;
        let (head @ ChainHead { n, hash }, base) = (self.journal.head, self.journal.base);
        if let Some((signed, notes)) = self.journal.ahead.pop_last().filter(|_| !self.is_part) {
            let from = notes.first().map_or("a statement", |(_, from)| from);
            let what = format!(
                "the journal ends with entry {n}, and {from} signs for entry {signed}: its end is missing"
            );
            self.find(n.saturating_add(1), FindingKind::Truncated, what);
        }
        let (writer, from) = (self.journal.writer.take()?, base.n.saturating_add(1));
        self.verified.push(VerifiedJournal { writer: writer.clone(), from, to: n, hash });
        Some((writer, SignedJournal { head, base }))
    }

    /// Notes a finding at an entry of the journal.
    pub(crate) fn find(&mut self, n: u64, flaw: FindingKind, what: String) {
        let thing = what.clone();
        self.find_in(None, n, None, flaw, what, thing.as_bytes());
    }

    /// Notes a finding at an entry of a journal that was checked.
    pub(crate) fn find_of(&mut self, writer: &str, n: u64, flaw: FindingKind, what: String) {
        self.journal.writer = Some(writer.to_owned());
        self.find(n, flaw, what);
        self.journal.writer = None;
    }

    /// Notes a finding at an entry of the journal, in this text.
    pub(crate) fn find_in(
        &mut self,
        audit_id: Option<AuditId>,
        n: u64,
        seq: Option<u32>,
        flaw: FindingKind,
        what: String,
        thing: &[u8],
    ) {
        if self.findings.len() >= self.most {
            self.more = self.more.saturating_add(1);
            return;
        }
        let (of, writer) = (finding_hash(thing), self.journal.writer.clone());
        self.findings.push(Finding { writer, n, audit_id, seq, flaw, what, accepted: false, of });
    }

    /// Returns the end of the journal so far.
    pub(crate) fn head(&self) -> ChainHead {
        self.journal.head
    }

    /// Notes the journals that were signed for and not checked as missing.
    pub(crate) fn miss_unchecked(&mut self) {
        for writer in self.unchecked_writers() {
            self.begin_journal(&writer, ChainHead::EMPTY);
            self.end_journal();
        }
    }

    /// Returns the writers of journals that were signed for and not checked.
    pub(crate) fn unchecked_writers(&self) -> Vec<String> {
        self.signed.keys().cloned().collect()
    }

    /// Returns all that was found.
    pub(crate) fn end(mut self) -> VerifyOutcome {
        for finding in &mut self.findings {
            finding.accepted = self.accepted.contains(&AcknowledgedFinding::from(&*finding));
        }
        let place = |writer: &Option<String>, n, flaw| (writer.clone(), n, flaw);
        let found: BTreeSet<_> =
            self.findings.iter().map(|finding| place(&finding.writer, finding.n, finding.flaw)).collect();
        let is_gone = |it: &AcknowledgedFinding| {
            it.flaw.can_be_put_back() && !found.contains(&place(&it.writer, it.n, it.flaw))
        };
        // One for each, however often it was accepted; none where not all findings are known.
        let mut put_back = BTreeMap::new();
        for gone in self.accepted.iter().filter(|it| self.more == 0 && is_gone(it)) {
            put_back.insert(place(&gone.writer, gone.n, gone.flaw), gone.clone());
        }
        // Findings about the chains come first: the others may only follow from them.
        self.findings.sort_by_key(|it| (!it.flaw.is_of_the_chain(), it.writer.clone(), it.n));
        let Self { verified, stats, findings, more, .. } = self;
        VerifyOutcome {
            journals: verified,
            stats,
            findings,
            more,
            put_back: put_back.into_values().collect(),
        }
    }
}
