//! Pruning: the oldest segments of journals are removed, and a signed statement says where each journal begins now.
//!
//! A segment goes once all calls that begin in it have ended, are old enough, and hold no idempotency key, once the
//! changes by operators in it are old enough, and once all segments before it have gone. The end of an action stays while
//! an outcome of its steps stays in another journal: without it, the step would stand again once the key table is lost.
//! The newest segment goes as well, after a new one was begun, unless another process writes to it. What the journals say
//! decides, and their chains are verified on the way: a damaged journal is evidence, and nothing of it is removed. The
//! statement is signed before the files are removed, so that a crash leaves files that nothing reads, which the next
//! pruning removes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::sync::Arc;

use cofferdam_core::failpoint;
use cofferdam_core::failure::AuditId;
use cofferdam_core::private_file::{self, FileLock};
use jiff::Timestamp;

use super::key_facts::ActionEnd;
use super::keys::{KeyTable, KeysOf};
use super::line::ChainHead;
use super::log::LogWriter;
use super::log_checkpoint::SignedJournal;
use super::log_time::log_time_at;
use super::prune_facts::{JournalCut, PruneTimes, damaged_entry, prune_entries, prune_result};
use super::segment::{
    LINES, SEALED, SegmentReader, TORN, files_after, has_first_line, path_of, segments, sync_paths,
};
use super::stored_key::{StoredKey, StoredKeyState};
use super::writer_dir::WriterDir;
use super::{Journal, UnendedCalls, read_unended, writer_dir};
use crate::command::{PruneBlocker, PruneStop, Pruned};
use crate::error::{AuditError, AuditErrorKind};
use crate::log::wait;

/// The lock of the process that prunes.
const LOCK: &str = "prune.lock";

/// The state that decides about the calls of a journal.
struct PruneContext<'c> {
    times: PruneTimes,
    table: &'c KeyTable,
    /// By call, the keys that it held when all of them were checked.
    keys: &'c HashMap<[u8; 16], Vec<([u8; 32], StoredKey)>>,
    /// The keys of calls without an outcome: an action among them needs the outcomes of its steps.
    unfinished: &'c HashSet<[u8; 32]>,
    /// The ends of actions that have to stay.
    needed: &'c HashSet<ActionEnd>,
    unended: UnendedCalls,
    /// True if a process holds the journal.
    is_held: bool,
}

impl LogWriter {
    /// Removes the calls that were received before `before`, as far as none of them is needed.
    /// `user` is the operator who asks for it; none if it is retention.
    pub(super) fn prune(
        self: &Arc<Self>,
        before: Timestamp,
        dry_run: bool,
        user: Option<&str>,
    ) -> Result<Pruned, AuditError> {
        if !self.root().try_exists()? {
            return Ok(Pruned::default());
        }
        let lock = FileLock::try_acquire(&self.root().join(LOCK));
        let lock = lock.map_err(|error| AuditError::from_file(LOCK, error))?;
        let _lock =
            lock.ok_or_else(|| AuditError::new(AuditErrorKind::Locked, "it is being pruned already"))?;
        if let Some(loss) = self.checkpoints()?.reader.loss()? {
            return Err(AuditError::new(AuditErrorKind::Lost, loss));
        }
        let signed = self.checkpoints()?.journals()?;
        let signed = signed.ok_or_else(|| {
            AuditError::new(AuditErrorKind::Tampered, "audit/checkpoint is missing or was changed")
        })?;
        // All rows at once, which are checked as a whole: what is missing must not look as if no call needed it.
        let (held, stored) = self.with_sound_keys(|| {
            let keys = self.keys()?;
            let stored = keys.table.all()?;
            Ok((keys, stored))
        })?;
        let now = self.log_time()?.removal_time();
        let unfinished = stored.iter().filter(|(_, stored)| stored.is_unfinished()).map(|(key, _)| *key);
        let unfinished = unfinished.collect();
        let mut keys = HashMap::<_, Vec<_>>::new();
        for (key, stored) in stored {
            keys.entry(stored.call).or_default().push((key, stored));
        }
        // Ends of actions stay only for steps that stay: two journals may have steps that ended in the other one.
        let mut needed = HashSet::new();
        let mut cuts = loop {
            let mut cuts = BTreeMap::new();
            for writer in writer_dir::names(self.root())? {
                let Some(journal) = signed.get(&writer) else { continue };
                let context = PruneContext {
                    times: PruneTimes { before, now },
                    table: &held.table,
                    keys: &keys,
                    unfinished: &unfinished,
                    needed: &needed,
                    is_held: WriterDir::is_held(self.root(), &writer),
                    unended: UnendedCalls::default(),
                };
                let cut = self.cut(&writer, journal, context)?;
                cuts.insert(writer, cut);
            }
            let found = needed_ends(&held.table, &cuts)?;
            if found.is_empty() {
                break cuts;
            }
            needed.extend(found);
        };
        if !dry_run {
            for (writer, journal) in cuts.keys().filter_map(|writer| Some((writer, signed.get(writer)?))) {
                self.remove_leftovers(writer, journal.base)?;
            }
        }
        drop(held);
        if !dry_run {
            for (writer, cut) in &mut cuts {
                self.begin_next_segment(writer, cut)?;
            }
        }
        let pruned = prune_result(cuts.values());
        cuts.retain(|_, cut| cut.entries > 0);
        if !dry_run && !cuts.is_empty() {
            self.carry_out(&cuts, before, &pruned, user)?;
        }
        Ok(pruned)
    }

    /// Returns the segments of a journal that can go.
    fn cut(
        &self,
        writer: &str,
        journal: &SignedJournal,
        mut context: PruneContext<'_>,
    ) -> Result<JournalCut, AuditError> {
        let dir = self.root().join(writer);
        let firsts = segments(&dir)?;
        let old: Vec<_> = firsts.iter().copied().filter(|first| *first > journal.base.n).collect();
        let mut cut = JournalCut::after(journal.base);
        let Some(newest) = old.last().copied() else { return Ok(cut) };
        context.unended = read_unended(&dir)?;
        let is_own = self.state().own.as_ref().is_some_and(|own| own.writer == writer);
        for first in old {
            // Another process writes to it.
            if first == newest && context.is_held && !is_own {
                break;
            }
            let mut part = JournalCut::after(cut.base);
            if !add_segment((writer, &dir), first, first == newest, &mut part, journal, &context)? {
                cut.stopped = part.stopped;
                break;
            }
            // Removing it would gain nothing.
            if first == newest && part.calls == 0 {
                break;
            }
            cut.extend(part);
        }
        cut.kept.leave_out_freed(|call, key| context.is_blocked(call, key))?;
        Ok(cut)
    }

    /// Begins a segment after one that is to be removed. Nothing is removed if a process took the journal meanwhile: the
    /// next pruning does.
    pub(super) fn begin_next_segment(
        self: &Arc<Self>,
        writer: &str,
        cut: &mut JournalCut,
    ) -> Result<(), AuditError> {
        // Any later segment is not enough: before it was begun, entries may have been appended to one that is to be removed.
        // Nor is a file without a line: the process that takes the journal removes it, and appends to the one before.
        let (dir, next) = (self.root().join(writer), cut.base.n.saturating_add(1));
        if cut.entries == 0 {
            return Ok(());
        }
        if has_first_line(&dir, next)? {
            // Once the files before it are gone, a power cut must not take it.
            return sync_paths(&files_after(&dir, cut.base.n, u64::MAX)?);
        }
        let now = self.clock.timestamp();
        let own = self.state().own.clone().filter(|own| own.writer == writer);
        let is_unchanged = |journal: &mut Journal| match journal.head() == cut.base {
            true => {
                journal.begin_segment(now)?;
                // It is signed for, and a power cut may come before the system writes it to the disk.
                journal.sync()?;
                Ok::<_, AuditError>(Some(journal.head()))
            }
            false => Ok(None),
        };
        let begun = match own {
            Some(own) => own.committer.with_journal(is_unchanged)?,
            None => match WriterDir::try_take_regular(self.root(), writer)? {
                Some(dir) => {
                    let signed = self.signed_heads()?.get(writer).copied();
                    let opened = Journal::open(dir, self.journal_settings, signed)?;
                    opened.map_or(Ok(None), |mut journal| is_unchanged(&mut journal))?
                }
                None => None,
            },
        };
        match begun {
            // Signed for, so that a process goes on with the journal.
            Some(head) => drop(self.checkpoints()?.sign(&[(writer, head)], now)?),
            None => cut.clear(),
        }
        Ok(())
    }

    fn carry_out(
        self: &Arc<Self>,
        cuts: &BTreeMap<String, JournalCut>,
        before: Timestamp,
        pruned: &Pruned,
        user: Option<&str>,
    ) -> Result<(), AuditError> {
        let (now, own) = (self.clock.timestamp(), self.own_journal()?);
        let removed = cuts.iter().map(|(writer, cut)| (writer.clone(), cut));
        let entries = prune_entries(removed, before, pruned, user, now);
        wait(self.write(&own, entries, Box::new(|_| ()), None))?;
        // Every signed statement is about a larger log than the one before it.
        self.sign()?;
        let bases = cuts.iter().map(|(writer, cut)| (writer.clone(), cut.base)).collect();
        self.checkpoints()?.prune(&bases, now)?;
        failpoint::pass("prune.signed");
        for (writer, cut) in cuts {
            self.remove_leftovers(writer, cut.base)?;
        }
        self.keys()?.table.change(|keys| {
            let now = log_time_at(keys.seen(), now).removal_time().as_microsecond();
            for (key, call) in cuts.values().flat_map(|cut| &cut.expired) {
                let stored = keys.get(key)?.filter(|stored| stored.call == *call && stored.has_expired(now));
                let Some(stored) = stored else { continue };
                // Its action may have begun again meanwhile.
                let action = stored.needed_by().map(|action| keys.get(&action)).transpose()?.flatten();
                if !action.is_some_and(|action| action.is_unfinished()) {
                    keys.remove(key)?;
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Removes the segments of a journal that end with `base` or before it: the oldest first, so that those that a
    /// crash or a power cut leaves still lead to `base`.
    fn remove_leftovers(&self, writer: &str, base: ChainHead) -> Result<(), AuditError> {
        let dir = self.root().join(writer);
        let old: Vec<_> = segments(&dir)?.into_iter().filter(|first| *first <= base.n).collect();
        for first in &old {
            for ending in [SEALED, TORN, LINES] {
                match fs::remove_file(path_of(&dir, *first, ending)) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
            private_file::sync_dir(&dir)?;
        }
        Ok(())
    }
}

/// Adds a segment to the part of its journal that it follows, and verifies its chain. Returns false if an entry of it
/// has to stay, or has no end yet.
fn add_segment(
    (writer, dir): (&str, &std::path::Path),
    first: u64,
    is_newest: bool,
    part: &mut JournalCut,
    journal: &SignedJournal,
    context: &PruneContext<'_>,
) -> Result<bool, AuditError> {
    let mut reader = SegmentReader::open(dir, first)?.ok_or_else(|| damaged_entry(first))?;
    while let Some(read) = reader.next()? {
        // A host may be writing the rest. Or it was killed meanwhile, and the next process cuts off what there is.
        if is_newest && !read.is_whole {
            return Ok(false);
        }
        let blocker = |id: &AuditId, part: &mut JournalCut| context.blocker(id, part);
        let Some(line) = part.add(read.bytes, journal.head, context.times, blocker)? else {
            return Ok(false);
        };
        for end in ActionEnd::read_all(writer, &line) {
            if context.needed.contains(&end) {
                let call = line.audit_id.as_deref().and_then(AuditId::parse);
                part.stopped = Some(PruneStop::new(call, PruneBlocker::KeyStands));
                return Ok(false);
            }
            part.ended.push(end);
        }
    }
    Ok(true)
}

/// Returns the ends of actions in these cuts for which an outcome of a step stays in another journal.
fn needed_ends(table: &KeyTable, cuts: &BTreeMap<String, JournalCut>) -> Result<Vec<ActionEnd>, AuditError> {
    let goes: HashSet<_> = cuts.values().flat_map(|cut| cut.expired.iter().copied()).collect();
    let mut needed = Vec::new();
    for end in cuts.values().flat_map(|cut| &cut.ended) {
        let mut steps = table.rows(KeysOf::Action(end.key))?.into_iter();
        if steps.any(|(key, step)| end.ends_in_another_journal(&step) && !goes.contains(&(key, step.call))) {
            needed.push(end.clone());
        }
    }
    Ok(needed)
}

impl PruneContext<'_> {
    /// Returns true if a key is taken for good by this call, now or when all keys were checked: as far as is known, no
    /// host removed a row that is gone since then.
    fn is_blocked(&self, call: &[u8; 16], key: &[u8; 32]) -> Result<bool, AuditError> {
        let is_blocked = |stored: &StoredKey| stored.call == *call && stored.state == StoredKeyState::Blocked;
        let mut before = self.keys.get(call).into_iter().flatten();
        let was_blocked = before.any(|(held, stored)| held == key && is_blocked(stored));
        Ok(was_blocked || self.table.get(key)?.as_ref().is_some_and(is_blocked))
    }

    /// Returns the reason why a call stays. Otherwise its keys that stay taken, and those whose outcomes stand no
    /// longer, are added to `part`.
    fn blocker(&self, id: &AuditId, part: &mut JournalCut) -> Result<Option<PruneBlocker>, AuditError> {
        if self.unended.first_entry(id).is_some() {
            return Ok(Some(if self.is_held { PruneBlocker::Running } else { PruneBlocker::Incomplete }));
        }
        // The call may hold keys since then. A row that is gone since then was not removed by a host, as far as is known.
        let now = self.table.rows(KeysOf::Call(id.bytes()))?;
        let before = self.keys.get(&id.bytes()).into_iter().flatten();
        let gone = before.filter(|(key, _)| now.iter().all(|(held, _)| held != key));
        let blocked_by = |(key, stored): &_| part.blocked_by(key, stored, self.times.now, self.unfinished);
        Ok(now.iter().chain(gone).find_map(blocked_by))
    }
}
