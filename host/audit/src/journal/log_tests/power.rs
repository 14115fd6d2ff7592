//! Power cuts: with `Power` nothing is lost that was acknowledged, whatever of the rest reached the disk.

use super::*;
use crate::settings::Durability;

/// The unit that a disk writes atomically, in bytes.
const SECTOR: usize = 512;

/// The content of a sector that was not written.
#[derive(Debug, Clone, Copy)]
enum Unwritten {
    Zeros,
    Garbage,
}

fn durable_log(home: &Path, durability: Durability) -> JournalLog {
    JournalLog::new(home, LogSettings { durability, ..LogSettings::default() }, Arc::new(SystemClock))
        .with_segment_bytes(6_000)
}

/// A home while calls run: what was acknowledged, and the files of the journals at that time.
struct Acknowledged {
    files: Files,
    ended: Vec<AuditId>,
    begun: Vec<AuditId>,
    keys: Vec<String>,
}

/// Runs calls, and returns the state of the home after each acknowledged commit.
fn run(home: &Path, durability: Durability) -> Vec<Acknowledged> {
    let log = durable_log(home, durability);
    let (mut ended, mut begun, mut keys, mut states) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..12 {
        let key = (round % 3 == 0).then(|| format!("key {round}"));
        let call = call(key.as_deref(), false);
        assert!(matches!(open(&log, &call), OpenOutcome::Started));
        begun.push(call.audit_id.clone());
        states.push((begun.clone(), ended.clone(), keys.clone(), files_below(home)));
        // The last of each four calls has no end.
        if round % 4 != 3 {
            close(&log, value(&call));
            ended.push(call.audit_id.clone());
            keys.extend(key);
            states.push((begun.clone(), ended.clone(), keys.clone(), files_below(home)));
        }
        if round % 5 == 4 {
            sign(&log);
        }
    }
    kill(log);
    let state = |(begun, ended, keys, files)| Acknowledged { files, ended, begun, keys };
    states.into_iter().map(state).collect()
}

/// Returns what of a file is left by a power cut: all that was acknowledged, and of what was written later some sectors.
fn cut(acknowledged: &[u8], later: &[u8], unwritten: Unwritten, rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut left = later.to_vec();
    let mut at = acknowledged.len();
    // A sector that has acknowledged bytes is written again with them, or not at all.
    while at < left.len() {
        let end = (at / SECTOR + 1) * SECTOR;
        let sector = at..end.min(left.len());
        if rng.bool() {
            match unwritten {
                Unwritten::Zeros => left[sector].fill(0),
                Unwritten::Garbage => left[sector].iter_mut().for_each(|byte| *byte = rng.u8(..)),
            }
        }
        at = end;
    }
    let sectors = (left.len() - acknowledged.len()) / SECTOR + 1;
    let length = match rng.usize(..4) {
        0 => left.len(),
        _ => (acknowledged.len() / SECTOR + rng.usize(..=sectors)) * SECTOR,
    };
    left.truncate(length.max(acknowledged.len()));
    left
}

/// Checks a home that is started again after a power cut.
fn check(home: &Path, state: &Acknowledged, what: &str) {
    assert_eq!(findings(home), [], "{what}");
    let next = log(home);
    assert_eq!(next.loss().unwrap(), None, "{what}");
    for key in &state.keys {
        let found = super::state(&next, key);
        assert!(matches!(found, KeyState::Done { outcome: Some(_), .. }), "{what}: {key}: {found:?}");
    }
    let run = call(Some("after the cut"), false);
    assert!(matches!(open(&next, &run), OpenOutcome::Started), "{what}");
    close(&next, value(&run));
    let text = text_of(home);
    for call in &state.begun {
        assert!(text.contains(call.as_str()), "{what}: the call {call} is lost");
        let (is_ended, ends) = (state.ended.contains(call), ends_of(&text, call));
        assert!(ends == 1 || !is_ended, "{what}: the call {call} has {ends} ends");
        // An interrupted call can be resolved, once.
        if ends == 0 {
            let interrupted = OpenCall { audit_id: call.clone(), ..super::call(None, false) };
            assert!(skip(&next, &interrupted, false), "{what}: the call {call} cannot be resolved");
            assert!(!skip(&next, &interrupted, false), "{what}");
        }
    }
    drop(next);
    assert_eq!(findings(home), [], "{what}");
    assert_eq!(log(home).loss().unwrap(), None, "{what}");
}

fn ends_of(text: &str, call: &AuditId) -> usize {
    let is_end = |line: &&str| line.contains(call.as_str()) && line.contains("\"type\":\"final\"");
    text.lines().filter(|line| line.starts_with("{\"audit_id\"")).filter(is_end).count()
}

#[test]
fn power_durability_loses_nothing_acknowledged() {
    let home = tempfile::tempdir().unwrap();
    let states = run(home.path(), Durability::Power);
    let mut rng = fastrand::Rng::with_seed(11);
    for (n, pair) in states.windows(2).enumerate() {
        let [state, later] = pair else { panic!() };
        for round in 0..4 {
            let unwritten = if round % 2 == 0 { Unwritten::Zeros } else { Unwritten::Garbage };
            let started = tempfile::tempdir().unwrap();
            let mut left = state.files.clone();
            // What is sealed is on the disk before the lines are written.
            // A key is claimed before the first entry, and changed after the last one.
            let has_sealed = rng.bool();
            let has_keys = rng.bool() && later.begun.len() > state.begun.len();
            for (path, bytes) in &later.files {
                let before = state.files.get(path).map_or(&[][..], Vec::as_slice);
                let ending = path.extension().unwrap_or_default();
                let is_cut = match ending.to_str().unwrap() {
                    "jsonl" => has_sealed,
                    "sealed" => !has_sealed,
                    _ => false,
                };
                // A file whose name did not reach the disk is not there.
                if is_cut && bytes.len() > before.len() && (!before.is_empty() || rng.bool()) {
                    left.insert(path.clone(), cut(before, bytes, unwritten, &mut rng));
                } else if ending == "sealed" && has_sealed
                    || has_keys && path.to_string_lossy().contains("keys.db")
                {
                    left.insert(path.clone(), bytes.clone());
                }
            }
            copy_to(started.path(), home.path(), &left);
            check(started.path(), state, &format!("state {n}, {unwritten:?}, round {round}"));
        }
    }
}

/// A part that is cut off is kept beside the segment, unless it is no more than a line without its end.
#[test]
fn a_torn_tail_is_cut_off_and_kept() {
    type Tail = fn(&[u8]) -> Vec<u8>;
    let hole: Tail = |line| [&line[..100], &[0; 300], &line[400..]].concat();
    let garbage: Tail = |_| [&[0xfe_u8; 600][..], b"\n{\n"].concat();
    let zeros: Tail = |_| vec![0; 5_000];
    for tail in [hole, garbage, zeros] {
        let home = tempfile::tempdir().unwrap();
        let (signed, unsigned) = (call(None, false), call(None, false));
        let killed = log(home.path());
        open(&killed, &signed);
        sign(&killed);
        open(&killed, &unsigned);
        kill(killed);
        let path = segment_files(home.path()).remove(0);
        let whole = fs::read(&path).unwrap();
        let tail = tail(whole.split_inclusive(|byte| *byte == b'\n').next_back().unwrap());
        write_private(&path, &[&whole, &tail[..]].concat());
        assert_eq!(findings(home.path()), []);
        let next = log(home.path());
        assert!(skip(&next, &signed, false) && skip(&next, &unsigned, false));
        assert_eq!(fs::read(path.with_extension("torn")).unwrap(), tail);
        assert!(fs::read_to_string(&path).unwrap().contains(&format!("\"cut_bytes\":{}", tail.len())));
        drop(next);
        assert_eq!(findings(home.path()), []);
    }
}

/// A changed line is no torn one: nothing is cut off, and the log goes on in another journal.
#[test]
fn a_changed_line_is_not_cut_off() {
    for at in [20, 300] {
        let home = tempfile::tempdir().unwrap();
        let [first, second] = [(); 2].map(|()| call(Some("k"), false));
        let killed = log(home.path());
        open(&killed, &first);
        open(&killed, &call(None, false));
        kill(killed);
        let path = segment_files(home.path()).remove(0);
        let mut bytes = fs::read(&path).unwrap();
        let position = bytes.windows(10).position(|bytes| bytes == b"{\"audit_id").unwrap();
        bytes[position + at] ^= 0x80;
        write_private(&path, &bytes);
        assert_ne!(findings(home.path()), []);
        let next = log(home.path());
        let opened = open(&next, &second);
        assert!(!matches!(opened, OpenOutcome::Started), "its key is free: {opened:?}");
        assert!(matches!(open(&next, &call(None, false)), OpenOutcome::Started));
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(journals(home.path()).len(), 2);
    }
}

/// Zeros in the place of entries that were signed for are a loss, and not a torn tail.
#[test]
fn signed_entries_are_never_cut_off() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 1);
    let path = segment_files(home.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    let mut zeros = whole.clone();
    zeros[whole.len() - 300..].fill(0);
    for bytes in [zeros, whole[..whole.len() - 10].to_vec(), vec![0; 4_096]] {
        write_private(&path, &bytes);
        assert_ne!(findings(home.path()), []);
        assert!(log(home.path()).loss().unwrap().is_some());
        assert!(matches!(open(&log(home.path()), &call(None, false)), OpenOutcome::Started));
        assert_eq!(fs::read(&path).unwrap(), bytes);
        fs::remove_dir_all(&journals(home.path())[1]).unwrap();
    }
}

#[test]
fn process_durability_survives_a_kill_at_any_write() {
    let home = tempfile::tempdir().unwrap();
    let states = run(home.path(), Durability::Process);
    for (n, state) in states.iter().enumerate() {
        let started = tempfile::tempdir().unwrap();
        copy_to(started.path(), home.path(), &state.files);
        check(started.path(), state, &format!("state {n}"));
    }
}

/// More of the key table than of the journal may survive, which then goes on with the same numbers.
#[test]
fn a_key_table_ahead_of_its_journal_misses_no_key() {
    let home = tempfile::tempdir().unwrap();
    let killed = log(home.path());
    open(&killed, &call(None, false));
    sign(&killed);
    let before = files_below(home.path());
    let run = |log: &JournalLog, key: &str| {
        let call = call(Some(key), false);
        assert!(matches!(open(log, &call), OpenOutcome::Started));
        call
    };
    for key in 0..6 {
        let call = run(&killed, &key.to_string());
        close(&killed, value(&call));
    }
    killed.0.read_own_keys(&killed.0.own_journal().unwrap());
    kill(killed);
    for (path, bytes) in before {
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            write_private(&path, &bytes);
        }
    }
    let next = log(home.path());
    assert!(skip(&next, &call(None, false), false) || matches!(state(&next, "0"), KeyState::Done { .. }));
    let last = run(&next, "k");
    // Its end is in the journal, and not yet in the table.
    wait_for(next.0.end(None, &value(&last), None).unwrap()).unwrap();
    kill(next);
    assert!(matches!(state(&log(home.path()), "k"), KeyState::Done { .. }));
}

#[test]
fn a_panic_in_a_write_loses_and_doubles_no_entry() {
    for failpoint in ["before.commit", "after.commit"] {
        let home = tempfile::tempdir().unwrap();
        let log = small_log(home.path());
        let panic_next =
            || log.0.own_journal().unwrap().committer.with_journal(|journal| journal.panic_at(failpoint));
        // Also in the first write of a journal, and of a segment.
        for round in 0..12 {
            let call = call((round % 2 == 0).then(|| round.to_string()).as_deref(), false);
            panic_next();
            let refused = wait_for(log.open(call.clone())).unwrap_err();
            assert_eq!(refused.kind(), AuditErrorKind::Other, "{failpoint}: {refused}");
            assert!(matches!(open(&log, &call), OpenOutcome::Started));
            panic_next();
            let end = value(&call);
            assert!(wait_for(log.close(None, end.clone())).is_err());
            close(&log, end);
        }
        sign(&log);
        drop(log);
        assert_eq!(findings(home.path()), [], "{failpoint}");
        let text = text_of(home.path());
        let count = |name: &str| text.matches(&format!("\"type\":\"{name}\"")).count();
        assert_eq!((count("received"), count("final")), (12, 12), "{failpoint}");
        assert!(segment_files(home.path()).len() > 3);
    }
}
