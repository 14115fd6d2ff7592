//! Pruning: the oldest segments of journals are removed, and a signed statement says where each journal begins now.
//!
//! A segment goes once all calls that begin in it have ended, are old enough, and hold no idempotency key, once the
//! changes by operators in it are old enough, and once all segments before it have gone. The newest segment goes as well,
//! after a new one was begun, unless another process writes to it. What the journals say decides, and their chains are
//! verified on the way: a damaged journal is evidence, and nothing of it is removed. The statement is signed before the
//! files are removed, so that a crash leaves files that nothing reads, which the next pruning removes.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::Arc;

use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::failpoint;
use cofferdam_core::failure::AuditId;
use cofferdam_core::private_file::{self, FileLock};
use jiff::Timestamp;

use super::keys::{KeyTable, StoredKey, StoredKeyState};
use super::line::{ChainHead, JournalLine};
use super::log::LogWriter;
use super::log_checkpoint::SignedJournal;
use super::log_time::believed_time;
use super::prune_facts::{KeptFacts, earlier, prune_entries};
use super::segment::{LINES, SEALED, SegmentReader, TORN, path_of, segments};
use super::writer_dir::WriterDir;
use super::{Journal, UnendedCalls, read_unended, writer_dir};
use crate::command::{PruneBlocker, PruneStop, Pruned};
use crate::error::{AuditError, AuditErrorKind};
use crate::log::wait;

/// The lock of the process that prunes.
const LOCK: &str = "prune.lock";

/// The segments of a journal that can go.
#[derive(Default)]
struct JournalCut {
    segments: Vec<u64>,
    /// The end of the last of them.
    base: ChainHead,
    calls: u64,
    entries: u64,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    stopped: Option<PruneStop>,
    /// The facts in them that stay true.
    kept: KeptFacts,
    /// Keys of calls in them whose outcomes stand no longer.
    expired: Vec<[u8; 32]>,
    /// True if the newest segment is among them.
    has_newest: bool,
}

/// One segment, as pruning looks at it.
#[derive(Default)]
struct SegmentFacts {
    end: ChainHead,
    entries: u64,
    calls: u64,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    /// The first entry that must stay.
    blocker: Option<Blocker>,
    kept: KeptFacts,
    expired: Vec<[u8; 32]>,
}

/// The reason why a segment stays.
enum Blocker {
    /// A call or a change by an operator that is not old enough.
    Young,
    Stop(PruneStop),
}

/// The state that decides about the calls of a journal.
struct PruneContext<'c> {
    before: Timestamp,
    now: Timestamp,
    table: &'c KeyTable,
    /// By call, the keys that it held when all of them were checked.
    keys: &'c HashMap<[u8; 16], Vec<([u8; 32], StoredKey)>>,
    /// True if an old call under a key has no outcome: it may be an action that needs those of its steps.
    has_unfinished: bool,
    unended: UnendedCalls,
    /// True if a process holds the journal.
    is_held: bool,
    /// The newest time that the calls of the journal have reached so far, other than by a clock that was ahead.
    reached: Cell<Timestamp>,
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
        if !self.root().try_exists().map_err(AuditError::from_io)? {
            return Ok(Pruned::default());
        }
        let lock = FileLock::try_acquire(&self.root().join(LOCK));
        let lock = lock.map_err(|error| AuditError::from_file(LOCK, error))?;
        let _lock =
            lock.ok_or_else(|| AuditError::new(AuditErrorKind::Locked, "it is being pruned already"))?;
        if let Some(loss) = self.checkpoints()?.reader().loss()? {
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
        let now = self.log_time()?.time;
        let has_unfinished = stored.values().any(|stored| {
            let is_open = [StoredKeyState::Claimed, StoredKeyState::Undetermined].contains(&stored.state);
            is_open && stored.step_of.is_none() && stored.at < before.as_microsecond()
        });
        let mut keys = HashMap::<_, Vec<_>>::new();
        for (key, stored) in stored {
            keys.entry(stored.call).or_default().push((key, stored));
        }
        let mut cuts = BTreeMap::new();
        for writer in writer_dir::names(self.root())? {
            let Some(journal) = signed.get(&writer) else { continue };
            let context = PruneContext {
                before,
                now,
                table: &held.table,
                keys: &keys,
                has_unfinished,
                is_held: self.is_held(&writer),
                unended: UnendedCalls::default(),
                reached: Cell::new(Timestamp::MIN),
            };
            let cut = self.cut(&writer, journal, context)?;
            if !dry_run {
                self.remove_leftovers(&writer, journal.base)?;
            }
            cuts.insert(writer, cut);
        }
        drop(held);
        if !dry_run {
            for (writer, cut) in &mut cuts {
                self.begin_next_segment(writer, cut)?;
            }
        }
        let mut pruned = Pruned::default();
        for cut in cuts.values_mut() {
            pruned.entries = pruned.entries.saturating_add(cut.entries);
            pruned.calls = pruned.calls.saturating_add(cut.calls);
            pruned.since = earlier(pruned.since, cut.since);
            pruned.until = pruned.until.max(cut.until);
            pruned.stopped = PruneStop::first_to_decide([pruned.stopped.take(), cut.stopped.take()]);
        }
        cuts.retain(|_, cut| !cut.segments.is_empty());
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
        let mut cut = JournalCut { base: journal.base, ..JournalCut::default() };
        let Some(newest) = old.last().copied() else { return Ok(cut) };
        context.unended = read_unended(&dir, newest)?;
        let is_own = self.state().own.as_ref().is_some_and(|own| own.writer == writer);
        for first in &old {
            // Another process writes to it.
            if *first == newest && context.is_held && !is_own {
                break;
            }
            let facts = segment_facts(&dir, *first, cut.base, journal, &context)?;
            match facts.blocker {
                Some(Blocker::Young) => break,
                Some(Blocker::Stop(stop)) => {
                    cut.stopped = Some(stop);
                    break;
                }
                // Removing it would gain nothing.
                None if *first == newest && facts.calls == 0 => break,
                None => {}
            }
            cut.has_newest |= *first == newest;
            cut.segments.push(*first);
            cut.base = facts.end;
            cut.entries = cut.entries.saturating_add(facts.entries);
            cut.calls = cut.calls.saturating_add(facts.calls);
            cut.since = earlier(cut.since, facts.since);
            cut.until = cut.until.max(facts.until);
            cut.kept.extend(facts.kept);
            cut.expired.extend(facts.expired);
        }
        Ok(cut)
    }

    /// Begins a segment after one that is to be removed. Nothing is removed if a process took the journal meanwhile: the
    /// next pruning does.
    fn begin_next_segment(self: &Arc<Self>, writer: &str, cut: &mut JournalCut) -> Result<(), AuditError> {
        if !cut.has_newest {
            return Ok(());
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
            None => *cut = JournalCut { stopped: cut.stopped.take(), ..JournalCut::default() },
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
        let journals = cuts.iter().map(|(writer, cut)| (writer.clone(), cut.base.n)).collect();
        let kept = cuts.values().map(|cut| &cut.kept);
        let entries = prune_entries(kept, journals, before, pruned, user, now);
        wait(self.write(&own, entries, Box::new(|_| ()), None))?;
        // Every signed statement is about a larger log than the one before it.
        self.sign()?;
        let bases = cuts.iter().map(|(writer, cut)| (writer.clone(), cut.base)).collect();
        self.checkpoints()?.prune(&bases, now)?;
        failpoint::pass("prune.signed");
        for (writer, cut) in cuts {
            self.remove_leftovers(writer, cut.base)?;
        }
        let (expired, clock) = (cuts.values().flat_map(|cut| &cut.expired), now.as_microsecond());
        self.keys()?.table.change(|keys| {
            let now = believed_time(keys.seen(), clock);
            for key in expired {
                if keys.get(key)?.is_some_and(|stored| stored.has_expired(now)) {
                    keys.remove(key)?;
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Removes the segments of a journal that end with `base` or before it.
    fn remove_leftovers(&self, writer: &str, base: ChainHead) -> Result<(), AuditError> {
        let dir = self.root().join(writer);
        let old: Vec<_> = segments(&dir)?.into_iter().filter(|first| *first <= base.n).collect();
        for first in &old {
            for ending in [SEALED, TORN, LINES] {
                match fs::remove_file(path_of(&dir, *first, ending)) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(AuditError::from_io(error));
                    }
                    _ => {}
                }
            }
        }
        if !old.is_empty() {
            private_file::sync_dir(&dir).map_err(AuditError::from_io)?;
        }
        Ok(())
    }
}

/// Reads a segment that follows `before`, and verifies its chain.
fn segment_facts(
    dir: &std::path::Path,
    first: u64,
    before: ChainHead,
    journal: &SignedJournal,
    context: &PruneContext<'_>,
) -> Result<SegmentFacts, AuditError> {
    let damaged = |n: u64| {
        let what = format_args!("entry {n} is not as it was written, and nothing is removed");
        AuditError::new(AuditErrorKind::Tampered, what)
    };
    let mut facts = SegmentFacts::default();
    let reader = SegmentReader::open(dir, first, before)?;
    let mut reader = reader.ok_or_else(|| damaged(first))?;
    loop {
        let n = reader.head().n.saturating_add(1);
        let Some(read) = reader.next()? else { break };
        let line = read.line.map_err(|_| damaged(n))?;
        facts.entries = facts.entries.saturating_add(1);
        line_facts(&line, context, &mut facts)?;
        let head = reader.head();
        if head.n == journal.head.n && head.hash != journal.head.hash {
            return Err(damaged(n));
        }
        if facts.blocker.is_some() {
            break;
        }
    }
    facts.end = reader.head();
    Ok(facts)
}

fn line_facts(
    line: &JournalLine<'_>,
    context: &PruneContext<'_>,
    facts: &mut SegmentFacts,
) -> Result<(), AuditError> {
    if let Some(log) = &line.log {
        let at = log.at().unwrap_or_default().max(context.reached.get());
        if !facts.kept.read(log, at < context.before) {
            facts.blocker = Some(context.young(None, at));
        }
        return Ok(());
    }
    let Some(id) = line.audit_id.as_deref().and_then(AuditId::parse) else { return Ok(()) };
    let begun = line.events().unwrap_or_default().into_iter().next();
    let begun = begun.filter(|event| matches!(event.event(), RecordedEvent::Received(_)));
    let Some(at) = begun.map(|event| event.at.parse::<Timestamp>().unwrap_or_default()) else {
        return Ok(());
    };
    let at = context.received_at(at);
    facts.blocker = match context.blocker(&id, at, &mut facts.kept, &mut facts.expired)? {
        None => {
            facts.calls = facts.calls.saturating_add(1);
            facts.since = earlier(facts.since, Some(at));
            facts.until = facts.until.max(Some(at));
            return Ok(());
        }
        blocker => blocker,
    };
    Ok(())
}

impl PruneContext<'_> {
    /// Returns the time of a call that was received at this one: not before the calls before it, whose clock may have been
    /// right where its own was behind.
    fn received_at(&self, at: Timestamp) -> Timestamp {
        let received = self.reached.get().max(at);
        if at <= self.now {
            self.reached.set(received);
        }
        received
    }

    /// Returns the reason why a call, or a change by an operator, stays that is not old enough.
    fn young(&self, id: Option<&AuditId>, at: Timestamp) -> Blocker {
        PruneStop::if_ahead(id, at, self.now).map_or(Blocker::Young, Blocker::Stop)
    }

    /// Returns the reason why a call stays. A key that stays taken without the call is added to `kept`, one that does not
    /// to `expired`.
    fn blocker(
        &self,
        id: &AuditId,
        at: Timestamp,
        kept: &mut KeptFacts,
        expired: &mut Vec<[u8; 32]>,
    ) -> Result<Option<Blocker>, AuditError> {
        if at >= self.before {
            return Ok(Some(self.young(Some(id), at)));
        }
        let call = |why| Ok(Some(Blocker::Stop(PruneStop::new(Some(id.clone()), why))));
        if self.unended.first_entry(id).is_some() {
            return call(if self.is_held { PruneBlocker::Running } else { PruneBlocker::Incomplete });
        }
        // The call may hold keys since then. A row that is gone since then was not removed by a host, as far as is known.
        let now = self.table.rows_of(&id.bytes())?;
        let before = self.keys.get(&id.bytes()).into_iter().flatten();
        let gone = before.filter(|(key, _)| now.iter().all(|(held, _)| held != key));
        for (key, stored) in now.iter().chain(gone) {
            match stored.state {
                StoredKeyState::Retained
                    if !stored.has_expired(self.now.as_microsecond())
                        || self.has_unfinished && stored.outlives_its_time() =>
                {
                    return call(PruneBlocker::KeyStands);
                }
                StoredKeyState::Retained => expired.push(*key),
                StoredKeyState::Blocked => kept.keep_key(id, &stored.fingerprint, key),
                StoredKeyState::Claimed | StoredKeyState::Undetermined => {
                    return call(PruneBlocker::KeyUndecided);
                }
            }
        }
        Ok(None)
    }
}
