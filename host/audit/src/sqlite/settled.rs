//! Resolution of calls that never ended: each is resumed, or skipped.

use cofferdam_core::event::recorded::{EventLine, RecordedEvent, Resolution};
use cofferdam_core::failure::AuditId;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::orders::At;
use super::owners;
use super::rollup::Ended;
use crate::command::{CallOutcome, CallStatus, OpenCall, ResolveCall};
use crate::entry::{Entry, events};

/// That this call does another again, as `actor` says.
pub(super) fn resumed_by(call: &OpenCall, actor: &str) -> ResolveCall {
    let by = Some(call.audit_id.to_string().into());
    let facts = Resolution { actor: actor.to_owned().into(), by, ..Resolution::default() };
    ResolveCall { status: CallStatus::Resumed, at: call.at, facts, frees_key: true }
}

impl At<'_> {
    /// Decides about a call that never ended, or that ended without anybody knowing what was done under its key; false
    /// where that was done, or there is nothing to decide, or its host lives.
    pub(super) fn settle(
        &mut self,
        connection: &Connection,
        id: [u8; 16],
        decision: &ResolveCall,
    ) -> rusqlite::Result<bool> {
        if !self.is_incomplete(connection, id)? {
            return self.settle_key(connection, id, decision);
        }
        let prev = self.last(connection, id)?.unwrap_or(0);
        let line = EventLine {
            at: decision.at,
            seq: last_event(connection, prev)?.saturating_add(1),
            event: match decision.status {
                CallStatus::Resumed => RecordedEvent::Resumed(decision.facts.clone()),
                _ => RecordedEvent::Skipped(decision.facts.clone()),
            },
        };
        let entry = Entry::new(&AuditId::from_bytes(id), &[line.to_text()]);
        let n = self.entry(connection, prev, &entry, None)?;
        let verdict = CallOutcome { status: decision.status, class: None, code: None };
        let verdict = self.names.verdict(connection, &verdict)?;
        let (at, route) = connection
            .prepare_cached("UPDATE calls SET last = ?2, verdict = ?3 WHERE id = ?1 RETURNING at, route")?
            .query_row(params![id, n, verdict], |row| Ok((row.get(0)?, row.get(1)?)))?;
        self.ended(connection, Ended { id, at, route, verdict, duration: None })?;
        let key = match decision.frees_key {
            true => "DELETE FROM keys WHERE call = ?1",
            // The result of what was done under the key is still unknown.
            false => "UPDATE keys SET state = 3, until = NULL WHERE call = ?1",
        };
        connection.prepare_cached(key)?.execute([id])?;
        Ok(true)
    }

    /// Decides about the key of a call that was cancelled, or whose end was not recorded in time: the call has an end,
    /// so that what is decided is an entry of the audit log itself.
    fn settle_key(
        &mut self,
        connection: &Connection,
        id: [u8; 16],
        decision: &ResolveCall,
    ) -> rusqlite::Result<bool> {
        let change = match decision.frees_key {
            // Includes a key that an earlier decision blocked: a second review may know better.
            true => "DELETE FROM keys WHERE call = ?1 AND state IN (2, 3)",
            false => "UPDATE keys SET state = 3 WHERE call = ?1 AND state = 2",
        };
        if decision.status != CallStatus::Skipped || connection.prepare_cached(change)?.execute([id])? == 0 {
            return Ok(false);
        }
        let mut facts = RecordedEvent::Skipped(decision.facts.clone()).facts();
        facts.insert("call".into(), AuditId::from_bytes(id).as_str().into());
        let entry = Entry::of_the_log("key_decided", decision.at, &facts);
        self.entry(connection, 0, &entry, None)?;
        Ok(true)
    }

    /// Returns true if this call, which has no end yet, resumes an incomplete one: that one was resolved in the
    /// entry just before it.
    pub(super) fn does_again(&self, connection: &Connection, id: [u8; 16]) -> rusqlite::Result<bool> {
        let select =
            "SELECT entries.body FROM calls JOIN entries ON entries.n = calls.first - 1 WHERE calls.id = ?1";
        let mut select = connection.prepare_cached(select)?;
        let before: Option<String> = select.query_row([id], |row| row.get(0)).optional()?;
        let before = before.and_then(|before| events(&before).ok()).unwrap_or_default();
        let id = AuditId::from_bytes(id);
        Ok(before.iter().any(|event| match event.event() {
            RecordedEvent::Resumed(decision) => decision.by.as_deref() == Some(id.as_str()),
            _ => false,
        }))
    }

    /// Leaves a call without an end that was to resume another one and did nothing or was cancelled. The
    /// unknown result of the other call is unknown for this one as well, so an operator decides about it. It
    /// has no owner from now on, so that it counts as incomplete although its host is alive.
    pub(super) fn cut_short(
        &mut self,
        connection: &Connection,
        id: [u8; 16],
        prev: u64,
        entry: &Entry,
    ) -> rusqlite::Result<()> {
        let entry = entry.without_its_end(&AuditId::from_bytes(id));
        // A commit that failed may have been durable all the same.
        let n = match self.stands(connection, prev, &entry)? {
            true => prev,
            false => self.entry(connection, prev, &entry, None)?,
        };
        let insert = "INSERT INTO owners (name) VALUES (?1) ON CONFLICT DO NOTHING";
        connection.prepare_cached(insert)?.execute([owners::NOBODY])?;
        let update =
            "UPDATE calls SET last = ?2, owner = (SELECT id FROM owners WHERE name = ?3) WHERE id = ?1";
        connection.prepare_cached(update)?.execute(params![id, n, owners::NOBODY])?;
        self.open.remove(&id);
        Ok(())
    }

    /// The call without an end that has this key.
    pub(super) fn holder(&self, connection: &Connection, key: &str) -> rusqlite::Result<Option<[u8; 16]>> {
        let mut select = connection.prepare_cached("SELECT call FROM keys WHERE key = ?1 AND state = 0")?;
        select.query_row([key], |row| row.get(0)).optional()
    }
}

/// The number of the last event of a call whose last entry is the `n`-th.
fn last_event(connection: &Connection, n: u64) -> rusqlite::Result<u32> {
    let mut select = connection.prepare_cached("SELECT body, prev FROM entries WHERE n = ?1")?;
    let mut next = n;
    while next > 0 {
        let found: Option<(String, u64)> =
            select.query_row([next], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((body, prev)) = found else { break };
        if let Some(last) = events(&body).unwrap_or_default().iter().map(|event| event.seq).max() {
            return Ok(last);
        }
        // Backwards and nowhere else: a record that was tampered with has no loops either.
        next = prev.min(next.saturating_sub(1));
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]
    use std::path::Path;
    use std::sync::Arc;

    use cofferdam_core::event::recorded::{AttemptStarted, Ended, Received};

    use super::*;
    use crate::{
        AuditLog, CallTarget, CloseCall, Filter, KeyClaim, KeyDisposition, KeyState, LogFuture, LogSettings,
        OpenOutcome, SqliteLog,
    };

    fn log(home: &Path) -> SqliteLog {
        SqliteLog::new(home, LogSettings::default()).unwrap()
    }

    fn call(key: Option<&str>, resumes: Option<&AuditId>) -> OpenCall {
        let audit_id = AuditId::mint();
        let text = |text: &str| Arc::from(text);
        let line = |seq, event| EventLine { at: jiff::Timestamp::UNIX_EPOCH, seq, event }.to_text();
        let received = line(
            1,
            RecordedEvent::Received(Received {
                actor: "ada".into(),
                connector: "github://acme/a@1.0.0".into(),
                op: "b".into(),
                ..Received::default()
            }),
        );
        let started = line(2, RecordedEvent::AttemptStarted(AttemptStarted::default()));
        OpenCall {
            entry: Entry::new(&audit_id, &[received, started]),
            at: jiff::Timestamp::UNIX_EPOCH,
            route: CallTarget {
                connector: text("github://acme/a@1.0.0"),
                op: text("b"),
                action: None,
                step: None,
            },
            actor: text("ada"),
            idempotent: true,
            key: key.map(|key| KeyClaim {
                key: text(key),
                fingerprint: [7; 32],
                at: jiff::Timestamp::UNIX_EPOCH,
                of: crate::KeyScope::Call,
            }),
            resumes: resumes.map(|before| (before.clone(), text("bob"))),
            request: None,
            audit_id,
        }
    }

    fn done<T>(answer: LogFuture<T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(answer).unwrap()
    }

    fn opened(log: &SqliteLog, call: &OpenCall) -> OpenOutcome {
        done(log.open(call.clone()))
    }

    fn skip(log: &SqliteLog, audit_id: &AuditId, frees_key: bool) -> bool {
        let decision = ResolveCall {
            status: CallStatus::Skipped,
            at: jiff::Timestamp::UNIX_EPOCH,
            facts: Resolution { reason: Some("it is there".into()), ..Resolution::default() },
            frees_key,
        };
        done(log.resolve(audit_id, decision))
    }

    fn status(log: &SqliteLog, audit_id: &AuditId) -> (CallStatus, String) {
        let mut reader = log.reader().unwrap();
        let events: String =
            reader.entries_of(audit_id).unwrap().into_iter().map(|entry| entry.body).collect();
        (reader.call(audit_id).unwrap().unwrap().status, events)
    }

    /// Simulates a killed host: calls without an end, and a lock that is not held.
    fn left_behind(home: &Path, calls: &[&OpenCall]) {
        let gone = log(home);
        for call in calls {
            assert!(matches!(opened(&gone, call), OpenOutcome::Started));
        }
        assert!(!skip(&gone, &calls[0].audit_id, false), "its own host lives");
        assert!(!skip(&log(home), &calls[0].audit_id, false), "another host sees that it lives");
    }

    #[test]
    fn a_call_is_resumed_by_one_other_call() {
        let home = tempfile::tempdir().unwrap();
        let before = call(None, None);
        left_behind(home.path(), &[&before]);
        let log = log(home.path());
        let incomplete = Filter { incomplete: true, ..Filter::default() };
        assert_eq!(log.reader().unwrap().list(&incomplete).unwrap().len(), 1);
        let (first, second) = (call(None, Some(&before.audit_id)), call(None, Some(&before.audit_id)));
        assert!(matches!(opened(&log, &first), OpenOutcome::Started));
        assert!(matches!(opened(&log, &second), OpenOutcome::AlreadyResolved));
        assert_eq!(log.reader().unwrap().call(&second.audit_id).unwrap(), None);
        let (now, events) = status(&log, &before.audit_id);
        assert_eq!(now, CallStatus::Resumed);
        let said =
            format!("{{\"actor\":\"bob\",\"by\":\"{}\"}},\"seq\":3,\"type\":\"resumed\"", first.audit_id);
        assert!(events.contains(&said), "{events}");
        assert!(!skip(&log, &before.audit_id, true), "it is decided");
        assert_eq!(log.reader().unwrap().list(&incomplete).unwrap(), []);
    }

    #[test]
    fn the_key_of_an_interrupted_call_resumes_it() {
        let home = tempfile::tempdir().unwrap();
        let before = call(Some("k"), None);
        left_behind(home.path(), &[&before]);
        let log = log(home.path());
        let (by_key, resumption) = (call(Some("k"), None), call(Some("k"), Some(&before.audit_id)));
        assert!(matches!(opened(&log, &by_key), OpenOutcome::Started));
        assert_eq!(status(&log, &before.audit_id).0, CallStatus::Resumed);
        match opened(&log, &resumption) {
            OpenOutcome::KeyInUse(KeyState::Running { audit_id }) => assert_eq!(audit_id, by_key.audit_id),
            other => panic!("{other:?}"),
        }
    }

    /// The call ends without having done anything, as one that is cancelled does.
    fn cancelled(log: &SqliteLog, call: &OpenCall) {
        let end = Ended { attempts: Some(0), status: "cancelled".into(), ..Ended::default() };
        let line =
            EventLine { at: jiff::Timestamp::UNIX_EPOCH, seq: 3, event: RecordedEvent::Final(end) }.to_text();
        for _ in 0..2 {
            let end = CloseCall {
                audit_id: call.audit_id.clone(),
                at: jiff::Timestamp::UNIX_EPOCH,
                duration_us: 1,
                attempts: 0,
                verdict: CallOutcome { status: CallStatus::Cancelled, class: None, code: None },
                key: KeyDisposition::Release,
                entry: Entry::new(&call.audit_id, std::slice::from_ref(&line)),
                outcome: None,
            };
            let open = Some(Box::new(OpenCall { key: None, resumes: None, ..call.clone() }));
            done(log.close(open, end));
        }
    }

    #[test]
    fn a_call_without_effect_leaves_its_original_open() {
        // By its id, and by its key.
        for key in [None, Some("k")] {
            let home = tempfile::tempdir().unwrap();
            let mut before = call(key, None);
            left_behind(home.path(), &[&before]);
            let log = log(home.path());
            let incomplete = Filter { incomplete: true, ..Filter::default() };
            // As often as it is cancelled.
            for _ in 0..3 {
                let again = call(key, key.is_none().then_some(&before.audit_id));
                assert!(matches!(opened(&log, &again), OpenOutcome::Started));
                assert_eq!(log.reader().unwrap().list(&incomplete).unwrap(), []);
                cancelled(&log, &again);
                assert_eq!(status(&log, &before.audit_id).0, CallStatus::Resumed);
                let listed = log.reader().unwrap().list(&incomplete).unwrap();
                let listed: Vec<_> = listed.into_iter().map(|row| row.audit_id).collect();
                assert_eq!(listed, std::slice::from_ref(&again.audit_id));
                let (_, events) = status(&log, &again.audit_id);
                assert!(events.contains("cut_short") && !events.contains("final"), "{events}");
                assert_eq!(events.matches("cut_short").count(), 1, "{events}");
                before = again;
            }
            // One that had nothing to do again has its end.
            let other = call(None, None);
            assert!(matches!(opened(&log, &other), OpenOutcome::Started));
            cancelled(&log, &other);
            assert_eq!(status(&log, &other.audit_id).0, CallStatus::Cancelled);
            assert!(skip(&log, &before.audit_id, true));
            assert_eq!(log.reader().unwrap().list(&incomplete).unwrap(), []);
            drop(log);
            assert_eq!(crate::sqlite::tests::findings(home.path()), []);
        }
    }

    #[test]
    fn a_cancelled_calls_key_is_resolved_once() {
        for frees_key in [false, true] {
            let home = tempfile::tempdir().unwrap();
            let log = log(home.path());
            let before = call(Some("k"), None);
            assert!(matches!(opened(&log, &before), OpenOutcome::Started));
            let end = CloseCall {
                audit_id: before.audit_id.clone(),
                at: jiff::Timestamp::UNIX_EPOCH,
                duration_us: 1,
                attempts: 1,
                verdict: CallOutcome { status: CallStatus::Cancelled, class: None, code: None },
                key: KeyDisposition::Undetermined,
                entry: Entry::new(&before.audit_id, &[]),
                outcome: None,
            };
            done(log.close(None, end));
            let mut reader = log.reader().unwrap();
            assert_eq!(reader.undecided_keys(None).unwrap(), std::slice::from_ref(&before.audit_id));
            assert!(matches!(
                opened(&log, &call(None, Some(&before.audit_id))),
                OpenOutcome::AlreadyResolved
            ));
            assert!(skip(&log, &before.audit_id, frees_key));
            assert!(!skip(&log, &before.audit_id, false));
            assert_eq!(reader.undecided_keys(Some(&before.audit_id)).unwrap(), []);
            let last = reader.length().unwrap();
            let last = reader.entries(last, 1).unwrap().remove(0).body;
            assert!(last.contains("key_decided") && last.contains(before.audit_id.as_str()), "{last}");
            assert_eq!(status(&log, &before.audit_id).0, CallStatus::Cancelled);
            let again = opened(&log, &call(Some("k"), None));
            assert_eq!(frees_key, matches!(again, OpenOutcome::Started), "{again:?}");
        }
    }

    #[test]
    fn a_skipped_call_keeps_its_key_unless_freed() {
        for frees_key in [false, true] {
            let home = tempfile::tempdir().unwrap();
            let before = call(Some("k"), None);
            left_behind(home.path(), &[&before]);
            let log = log(home.path());
            assert!(skip(&log, &before.audit_id, frees_key));
            let (now, events) = status(&log, &before.audit_id);
            assert_eq!(now, CallStatus::Skipped);
            assert!(events.contains("it is there") && events.contains("\"seq\":3"), "{events}");
            match (frees_key, opened(&log, &call(Some("k"), None))) {
                (true, OpenOutcome::Started) => {}
                (false, OpenOutcome::KeyInUse(KeyState::Unknown { audit_id })) => {
                    assert_eq!(audit_id, before.audit_id);
                    assert!(!skip(&log, &before.audit_id, false), "that was decided");
                    assert!(skip(&log, &before.audit_id, true), "and may be freed");
                    assert!(!skip(&log, &before.audit_id, true), "once");
                    assert!(matches!(opened(&log, &call(Some("k"), None)), OpenOutcome::Started));
                    drop(log);
                    assert_eq!(crate::sqlite::tests::findings(home.path()), []);
                }
                (_, other) => panic!("{other:?}"),
            }
        }
    }
}
