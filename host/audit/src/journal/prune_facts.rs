//! The beginning of a journal that pruning removes, the facts in it that outlive it, and the entries about a pruning:
//! the same in every store.

use cofferdam_core::event::log_event::{KeptKey, KeysKept, PrunedEntries};
use cofferdam_core::event::operator::{OPERATOR_EVENT, OperatorAction, OperatorState};
use cofferdam_core::event::recorded::{RecordedEvent, UnknownEvent};
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use super::key_facts::ActionEnd;
use super::line::{ChainHead, EntryDraft, JournalLine, LogEvent};
use crate::command::{PruneBlocker, PruneStop, Pruned};
use crate::error::{AuditError, AuditErrorKind};
use crate::hex::{hex, unhex};

/// The names of entries that outlive the pruning of their segments.
const KEY_DECIDED: &str = "key_decided";
const LOSS_ACCEPTED: &str = "loss_accepted";

/// The times that decide which entries are old enough.
#[derive(Debug, Clone, Copy)]
pub struct PruneTimes {
    /// Calls that were received before it go.
    pub before: Timestamp,
    /// The [`removal_time`](crate::LogTime::removal_time), by which keys have expired.
    pub now: Timestamp,
}

/// An idempotency key by its SHA-256, with the call that holds it.
pub type HeldKey = ([u8; 32], [u8; 16]);

/// The beginning of a journal that can go, or a part of it.
///
/// It ends before the first entry that has to stay. So a call that was recorded by a clock that was behind stays at
/// least as long as the calls before it.
#[derive(Debug, Default)]
pub struct JournalCut {
    /// The last entry that goes.
    pub base: ChainHead,
    /// The number of calls that begin in it.
    pub calls: u64,
    /// The number of entries.
    pub entries: u64,
    /// The entry that stays, unless it only is not old enough.
    pub stopped: Option<PruneStop>,
    /// The facts that stay true.
    pub kept: KeptFacts,
    /// Keys of its calls whose outcomes stand no longer, each with its call: another one may have claimed it since.
    pub expired: Vec<HeldKey>,
    /// The ends of actions in it, in a store that makes its keys again from entries.
    pub(super) ended: Vec<ActionEnd>,
    /// When the first of its calls was received.
    since: Option<Timestamp>,
    /// When the last of its calls was received.
    until: Option<Timestamp>,
}

impl JournalCut {
    /// Creates an empty part of a journal, after this entry.
    #[must_use]
    pub fn after(base: ChainHead) -> Self {
        Self { base, ..Self::default() }
    }

    /// Adds the next line of the journal, after its chain is verified, and returns it; none if the entry has to stay.
    /// `signed` is the entry that was signed for. `blocker` returns the reason why a call that is old enough has to
    /// stay, or adds the call's keys.
    ///
    /// # Errors
    /// `Tampered`, or those of `blocker`.
    pub fn add<'l>(
        &mut self,
        text: &'l [u8],
        signed: ChainHead,
        times: PruneTimes,
        blocker: impl FnOnce(&AuditId, &mut Self) -> Result<Option<PruneBlocker>, AuditError>,
    ) -> Result<Option<JournalLine<'l>>, AuditError> {
        let head = self.base.after(text);
        let line = JournalLine::following(self.base, text);
        let line = line.ok().filter(|_| head.n != signed.n || head == signed);
        let line = line.ok_or_else(|| damaged_entry(head.n))?;
        if let Some(log) = &line.log {
            let at = log.at().unwrap_or_default();
            if !self.kept.read(log, at < times.before) {
                self.stopped = PruneStop::if_ahead(None, at, times.now);
                return Ok(None);
            }
        } else if let Some((id, at)) = received(&line) {
            if at >= times.before {
                self.stopped = PruneStop::if_ahead(Some(&id), at, times.now);
                return Ok(None);
            }
            if let Some(why) = blocker(&id, self)? {
                self.stopped = Some(PruneStop::new(Some(id), why));
                return Ok(None);
            }
            self.calls = self.calls.saturating_add(1);
            self.since = earlier(self.since, Some(at));
            self.until = self.until.max(Some(at));
        }
        self.base = head;
        self.entries = self.entries.saturating_add(1);
        Ok(Some(line))
    }

    /// Adds the part that follows.
    pub fn extend(&mut self, part: Self) {
        self.base = part.base;
        self.calls = self.calls.saturating_add(part.calls);
        self.entries = self.entries.saturating_add(part.entries);
        self.kept.extend(part.kept);
        self.expired.extend(part.expired);
        self.ended.extend(part.ended);
        self.since = earlier(self.since, part.since);
        self.until = self.until.max(part.until);
    }

    /// Has all entries stay.
    pub(super) fn clear(&mut self) {
        *self = Self { stopped: self.stopped.take(), ..Self::default() };
    }
}

/// Returns the error of an entry that does not hold: a damaged journal is evidence.
pub(super) fn damaged_entry(n: u64) -> AuditError {
    let what = format_args!("entry {n} is not as it was written, and nothing is removed");
    AuditError::new(AuditErrorKind::Tampered, what)
}

/// Returns the call that begins with this entry, and when it was received.
fn received(line: &JournalLine<'_>) -> Option<(AuditId, Timestamp)> {
    let id = line.audit_id.as_deref().and_then(AuditId::parse)?;
    let first = line.events().unwrap_or_default().into_iter().next()?;
    matches!(first.event(), RecordedEvent::Received(_)).then(|| (id, first.at.parse().unwrap_or_default()))
}

/// Returns the result of a pruning that removes these beginnings of journals.
#[must_use]
pub fn prune_result<'c>(cuts: impl Iterator<Item = &'c JournalCut>) -> Pruned {
    cuts.fold(Pruned::default(), |all, cut| Pruned {
        entries: all.entries.saturating_add(cut.entries),
        calls: all.calls.saturating_add(cut.calls),
        since: earlier(all.since, cut.since),
        until: all.until.max(cut.until),
        stopped: PruneStop::first_to_decide([all.stopped, cut.stopped.clone()]),
    })
}

/// The facts of pruned entries that stay true: entries about the log, and keys that stay taken.
#[derive(Debug, Default, Clone)]
pub struct KeptFacts {
    entries: Vec<RecordedEvent<'static>>,
    keys: Vec<KeptKey>,
}

impl KeptFacts {
    /// Reads an entry about the log that is to be pruned. Returns false if it has to stay where it is: it is a change by an
    /// operator, and not old enough.
    fn read(&mut self, log: &LogEvent<'_>, is_old: bool) -> bool {
        match log.event() {
            RecordedEvent::KeysKept(kept) => self.keys.extend(kept.keys),
            event if [KEY_DECIDED, LOSS_ACCEPTED].contains(&event.name()) => {
                // As it is: it may be of a newer version.
                let (name, payload) = (log.name.to_string(), log.payload.to_owned());
                self.entries.push(RecordedEvent::Unknown(UnknownEvent { name, payload }));
            }
            _ => {}
        }
        log.name != OPERATOR_EVENT || is_old
    }

    /// Returns the number of facts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.len().saturating_add(self.keys.len())
    }

    /// Adds a key that stays taken without its call.
    pub fn keep_key(&mut self, call: &AuditId, fingerprint: &[u8; 32], key: &[u8; 32]) {
        let (fingerprint, key_sha256) = (hex(fingerprint), hex(key));
        self.keys.push(KeptKey { call: call.to_string(), fingerprint, key_sha256 });
    }

    /// Leaves out the keys that an operator has freed since they were kept: written again, they would be taken again.
    /// `is_taken` gets a call and its key.
    ///
    /// # Errors
    /// Those of `is_taken`.
    pub fn leave_out_freed(
        &mut self,
        mut is_taken: impl FnMut(&[u8; 16], &[u8; 32]) -> Result<bool, AuditError>,
    ) -> Result<(), AuditError> {
        let mut keys = Vec::with_capacity(self.keys.len());
        for kept in std::mem::take(&mut self.keys) {
            let (call, key) = (AuditId::parse(&kept.call), unhex(&kept.key_sha256));
            if call.zip(key).map_or(Ok(true), |(call, key)| is_taken(&call.bytes(), &key))? {
                keys.push(kept);
            }
        }
        self.keys = keys;
        Ok(())
    }

    /// Adds the facts of entries that follow.
    fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.keys.extend(other.keys);
    }
}

/// Returns the earlier of two times, as far as there are any.
fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// Returns the entries about a pruning of the calls that were received before `before`: what was kept of each journal,
/// what was removed, and the operator who asked for it. `cuts` has the removed beginnings of journals by their names.
#[must_use]
pub fn prune_entries<'c>(
    cuts: impl Iterator<Item = (String, &'c JournalCut)> + Clone,
    before: Timestamp,
    pruned: &Pruned,
    user: Option<&str>,
    now: Timestamp,
) -> Vec<EntryDraft> {
    let kept = cuts.clone().map(|(_, cut)| &cut.kept);
    let facts = kept.clone().flat_map(|kept| &kept.entries);
    let mut entries: Vec<_> = facts.map(|event| EntryDraft::of_log(now, event)).collect();
    let keys: Vec<_> = kept.flat_map(|kept| kept.keys.iter().cloned()).collect();
    if !keys.is_empty() {
        entries.push(EntryDraft::of_log(now, &RecordedEvent::KeysKept(KeysKept { keys })));
    }
    let journals = cuts.map(|(writer, cut)| (writer, cut.base.n)).collect();
    let (calls, removed) = (pruned.calls, pruned.entries);
    let facts = PrunedEntries { before: format!("{before:.6}"), calls, entries: removed, journals };
    entries.push(EntryDraft::of_log(now, &RecordedEvent::Pruned(facts)));
    entries.extend(user.map(|user| {
        let until = Some(format!("{before:.6}").into());
        let after =
            OperatorState { calls: Some(calls), entries: Some(removed), until, ..OperatorState::default() };
        let before = pruned.since.map(|since| OperatorState {
            until: Some(format!("{since:.6}").into()),
            ..OperatorState::default()
        });
        EntryDraft::of_operator(now, OperatorAction::Prune, before, after, user)
    }));
    entries
}
