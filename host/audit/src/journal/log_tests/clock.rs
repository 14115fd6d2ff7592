//! A clock that jumps: it frees no key and removes no call, until the operator accepts it.

use std::sync::atomic::{AtomicI64, Ordering};

use cofferdam_core::event::operator::{OperatorAction, OperatorState};
use jiff::SignedDuration;

use super::support::*;
use super::*;
use crate::command::PruneBlocker;

struct Setup {
    home: tempfile::TempDir,
    /// The hours by which the clock is ahead.
    ahead: Arc<AtomicI64>,
}

impl Setup {
    fn empty() -> Self {
        Self { home: tempfile::tempdir().unwrap(), ahead: Arc::default() }
    }

    /// A home with a key whose outcome stands for an hour.
    fn new() -> (Self, OpenCall) {
        let setup = Self::empty();
        let log = setup.log();
        let first = setup.keyed();
        run_call(&log, first.clone());
        (setup, first)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        let ahead = Arc::clone(&self.ahead);
        let time = move || Timestamp::now() + SignedDuration::from_hours(ahead.load(Ordering::SeqCst));
        Arc::new(DateClock(time))
    }

    fn log(&self) -> JournalLog {
        JournalLog::new(self.home.path(), LogSettings::default(), self.clock())
    }

    fn hours(&self, hours: i64) {
        self.ahead.fetch_add(hours, Ordering::SeqCst);
    }

    fn keyed(&self) -> OpenCall {
        let at = self.clock().timestamp();
        OpenCall { at, key: Some(KeyClaim { at, ..claim("k") }), ..call_at(Some("k"), false, at) }
    }

    fn calls_without_a_key(&self) {
        run_call(&self.log(), call_at(None, true, self.clock().timestamp()));
    }

    fn accepts(&self) {
        let log = self.log();
        self.accepts_in(&log).unwrap();
        assert!(wait_for(log.time()).unwrap().is_believed);
    }

    fn accepts_in(&self, log: &JournalLog) -> Result<(), AuditError> {
        let time = self.clock().timestamp();
        let after = OperatorState { time: Some(time.to_string().into()), ..OperatorState::default() };
        let event = OperatorEvent {
            action: OperatorAction::Clock,
            after: Some(after),
            user: "ada".into(),
            ..OperatorEvent::default()
        };
        wait_for(log.record(time, event))
    }

    /// Applies the retention of so many days, as a host does once an hour.
    fn retains(&self, days: u64) {
        let retention = Some(Duration::from_secs(days * 86_400));
        let settings = LogSettings { retention, ..LogSettings::default() };
        let log = JournalLog::new(self.home.path(), settings, self.clock());
        fs::remove_file(self.home.path().join("audit/retained")).unwrap();
        log.0.retain().unwrap();
    }

    fn has(&self, call: &OpenCall) -> bool {
        text_of(self.home.path()).contains(call.audit_id.as_str())
    }

    fn loses_the_key_table(&self) {
        for ending in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(self.home.path().join(format!("audit/keys.db{ending}")));
        }
    }
}

#[test]
fn a_clock_a_year_ahead_frees_no_key() {
    let (setup, first) = Setup::new();
    setup.hours(365 * 24);
    for _ in 0..3 {
        let log = setup.log();
        let opened = open(&log, &setup.keyed());
        let OpenOutcome::KeyInUse(KeyState::Done { audit_id, .. }) = opened else { panic!("{opened:?}") };
        assert_eq!(audit_id, first.audit_id);
        assert!(!wait_for(log.time()).unwrap().is_believed);
        // Entries with the wrong time are no reason to believe it.
        drop(log);
        setup.calls_without_a_key();
        setup.loses_the_key_table();
    }
    setup.hours(-365 * 24);
    assert!(matches!(state(&setup.log(), "k"), KeyState::Done { .. }));
    assert!(wait_for(setup.log().time()).unwrap().is_believed);
}

#[test]
fn a_key_expires_after_a_leap_that_is_accepted() {
    let (setup, _) = Setup::new();
    setup.hours(30);
    assert!(matches!(open(&setup.log(), &setup.keyed()), OpenOutcome::KeyInUse(_)));
    setup.accepts();
    for _ in 0..2 {
        let claim = KeyClaim { at: setup.clock().timestamp(), ..claim("k") };
        assert!(matches!(wait_for(setup.log().key_state(claim)).unwrap(), KeyState::Free));
        // The entry is what counts.
        setup.loses_the_key_table();
    }
    assert!(matches!(open(&setup.log(), &setup.keyed()), OpenOutcome::Started));
}

#[test]
fn a_clock_whose_acceptance_fails_is_not_accepted() {
    let (setup, _) = Setup::new();
    setup.hours(30);
    let (log, lock) = (setup.log(), setup.home.path().join("audit/keys.lock"));
    make_dir(&lock);
    setup.accepts_in(&log).unwrap_err();
    drop(log);
    fs::remove_dir(&lock).unwrap();
    let failed: Vec<_> = changes(setup.home.path()).into_iter().map(|change| change.failed).collect();
    assert_eq!(failed, [true, false]);
    setup.loses_the_key_table();
    assert!(!wait_for(setup.log().time()).unwrap().is_believed);
}

/// Of the journals, the one with the earlier word has the later name.
#[test]
fn a_time_that_was_replaced_does_not_come_back() {
    let (setup, _) = Setup::new();
    let host = setup.log();
    run_call(&host, call_at(None, true, setup.clock().timestamp()));
    setup.hours(365 * 24);
    setup.accepts();
    setup.hours(-365 * 24);
    drop(host);
    setup.accepts();
    let log = setup.log();
    let keys = log.0.keys().unwrap();
    log.0.read_journal_keys(&keys.table, &writer_dir::names(log.0.root()).unwrap()).unwrap();
    drop(keys);
    assert!(wait_for(log.time()).unwrap().is_believed);
    drop(log);
    setup.loses_the_key_table();
    assert!(wait_for(setup.log().time()).unwrap().is_believed);
    assert!(matches!(state(&setup.log(), "k"), KeyState::Done { .. }));
}

#[test]
fn a_key_expires_by_steps_of_less_than_a_day() {
    let (setup, _) = Setup::new();
    for _ in 0..4 {
        setup.hours(20);
        setup.calls_without_a_key();
    }
    let log = setup.log();
    assert!(matches!(open(&log, &setup.keyed()), OpenOutcome::Started));
    assert!(wait_for(log.time()).unwrap().is_believed);
}

/// The entries after it are not in the segment that was begun by it.
#[test]
fn a_key_expires_also_after_a_leap_that_is_set_back() {
    let (setup, _) = Setup::new();
    setup.hours(365 * 24);
    setup.calls_without_a_key();
    setup.hours(-365 * 24);
    for _ in 0..4 {
        setup.hours(20);
        setup.calls_without_a_key();
    }
    assert!(matches!(open(&setup.log(), &setup.keyed()), OpenOutcome::Started));
}

#[test]
fn nothing_runs_under_a_key_by_a_clock_that_is_behind() {
    let (setup, _) = Setup::new();
    setup.hours(-48);
    let (log, call) = (setup.log(), setup.keyed());
    let refused = wait_for(log.open(call.clone())).unwrap_err();
    assert_eq!(refused.kind(), AuditErrorKind::ClockBehind);
    // Also if the time of the log changes after it was looked at.
    let (keys, journal) = (log.0.keys().unwrap(), log.0.own_journal().unwrap());
    let claimed = log.0.claim(&keys, &call, call.key.as_ref().unwrap(), &journal);
    assert_eq!(claimed.err().map(|error| error.kind()), Some(AuditErrorKind::ClockBehind));
    drop((journal, keys, log));
    setup.calls_without_a_key();
    setup.accepts();
    let opened = open(&setup.log(), &setup.keyed());
    assert!(matches!(opened, OpenOutcome::KeyInUse(KeyState::Done { .. })), "{opened:?}");
}

#[test]
fn changes_are_in_the_order_of_their_journal() {
    let home = tempfile::tempdir().unwrap();
    let hours = |hours| Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours);
    {
        let log = log(home.path());
        for (at, user) in [(5, "first"), (1, "second"), (3, "third")] {
            let change = OperatorEvent { user: user.into(), ..OperatorEvent::default() };
            wait_for(log.record(hours(at), change)).unwrap();
        }
    }
    let read = |filter| log(home.path()).reader().unwrap().operator_events(&filter).unwrap();
    let mut filter = OperatorEventFilter { limit: 1, ..OperatorEventFilter::default() };
    // Also page by page.
    for (user, at) in [("third", 3), ("second", 1), ("first", 5)] {
        let change = read(filter.clone()).remove(0);
        assert_eq!((&*change.event.user, change.at), (user, hours(at)));
        filter.before = Some(change.place);
    }
    assert!(read(filter).is_empty());
}

#[tokio::test]
async fn retention_removes_nothing_by_a_clock_that_leaps() {
    let test = || {
        let (setup, first) = Setup::new();
        setup.hours(90 * 24);
        setup.retains(1);
        assert!(setup.has(&first));
    };
    tokio::task::spawn_blocking(test).await.unwrap();
}

/// The time of the log begins with the first entry, whatever the clock was then.
#[tokio::test]
async fn retention_removes_nothing_after_a_first_leap() {
    let test = || {
        let setup = Setup::empty();
        setup.hours(365 * 24);
        let leapt = setup.log();
        run_call(&leapt, call_at(None, true, setup.clock().timestamp()));
        assert!(wait_for(leapt.time()).unwrap().is_believed);
        setup.hours(-365 * 24);
        let young = call_at(None, true, setup.clock().timestamp());
        run_call(&setup.log(), young.clone());
        assert!(!wait_for(leapt.time()).unwrap().is_believed);
        setup.retains(90);
        assert!(setup.has(&young));
    };
    tokio::task::spawn_blocking(test).await.unwrap();
}

#[test]
fn a_leap_that_was_set_back_lets_no_outcome_go() {
    let (setup, first) = Setup::new();
    setup.hours(365 * 24);
    setup.accepts();
    setup.hours(-365 * 24);
    let before = setup.clock().timestamp() + SignedDuration::from_mins(1);
    let pruned = wait_for(setup.log().prune(before, false, "ada".into())).unwrap();
    let stop = pruned.stopped.unwrap();
    assert_eq!((stop.why, stop.audit_id), (PruneBlocker::KeyStands, Some(first.audit_id)));
}
