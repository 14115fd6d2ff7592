//! Power cuts: with `Power` nothing is lost that was acknowledged, and with `Process` nothing that was signed for,
//! whatever of the rest reached the disk.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use cofferdam_core::home_state::HomeState;

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
#[derive(Clone, Default)]
struct Acknowledged {
    files: Files,
    ended: Vec<AuditId>,
    begun: Vec<AuditId>,
    keys: Vec<String>,
}

/// Runs calls, and returns the state of the home after each acknowledged commit.
fn run(home: &Path, durability: Durability) -> Vec<Acknowledged> {
    let log = durable_log(home, durability);
    let (mut now, mut states) = (Acknowledged::default(), Vec::new());
    for round in 0..12 {
        let key = (round % 3 == 0).then(|| format!("key {round}"));
        let call = call(key.as_deref(), false);
        assert!(matches!(open(&log, &call), OpenOutcome::Started));
        now.begun.push(call.audit_id.clone());
        states.push(Acknowledged { files: files_below(home), ..now.clone() });
        // The last of each four calls has no end.
        if round % 4 != 3 {
            close(&log, value(&call));
            now.ended.push(call.audit_id);
            now.keys.extend(key);
            states.push(Acknowledged { files: files_below(home), ..now.clone() });
        }
        if round % 5 == 4 {
            sign(&log);
        }
    }
    kill(log);
    states
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

/// A file that the host replaces: it writes a temporary file, syncs and renames it, and syncs the directory.
struct Replacement {
    path: PathBuf,
    temporary: PathBuf,
    content: Vec<u8>,
}

/// The steps of a replacement after each of which a power cut leaves another state.
const STEPS: usize = 3;

/// Makes these replacements, one after the other, up to this step. `cut` returns what is left of a content that was not
/// synced.
fn replace(
    left: &mut Files,
    replacements: &[Replacement],
    step: usize,
    mut cut: impl FnMut(&[u8]) -> Vec<u8>,
) {
    for (place, Replacement { path, temporary, content }) in replacements.iter().enumerate() {
        match step.saturating_sub(STEPS * place) {
            0 => return,
            1 => left.insert(temporary.clone(), cut(content)),
            // The disk has the content, and not the new name.
            2 => left.insert(temporary.clone(), content.clone()),
            _ => left.insert(path.clone(), content.clone()),
        };
    }
}

/// The files with signed statements, in the order in which they are replaced, and their temporary files.
const CHECKPOINT: (&str, &str) = ("audit/checkpoint", "audit/.cofferdam-cut");
const HOME_STATE: (&str, &str) = ("home.state", "home.tmp");

/// Returns the replacements of signed statements between two states of a home.
fn statements(home: &Path, before: &Files, later: &Files) -> Vec<Replacement> {
    let mut replacements = Vec::new();
    for (name, temporary) in [CHECKPOINT, HOME_STATE] {
        let (path, temporary) = (home.join(name), home.join(temporary));
        if before.get(&path) != later.get(&path) {
            replacements.push(Replacement { content: later[&path].clone(), path, temporary });
        }
    }
    replacements
}

/// Returns what a power cut leaves of a home with these acknowledged files, while it changes to `later`. Its signed
/// statements are as they were.
fn left_by_cut(
    state: &Acknowledged,
    later: &Acknowledged,
    unwritten: Unwritten,
    rng: &mut fastrand::Rng,
) -> Files {
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
            left.insert(path.clone(), cut(before, bytes, unwritten, rng));
        } else if ending == "sealed" && has_sealed || has_keys && path.to_string_lossy().contains("keys.db") {
            left.insert(path.clone(), bytes.clone());
        }
    }
    left
}

/// Checks a home that is started again after a power cut.
fn check(home: &Path, state: &Acknowledged, what: &str) {
    assert_eq!(verified_if(home, !state.begun.is_empty()).findings, [], "{what}");
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
    sign(&next);
    assert!(!home.join(HOME_STATE.1).exists(), "{what}: a temporary file stays");
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
    let mut signed = 0;
    for (n, pair) in states.windows(2).enumerate() {
        let [state, later] = pair else { panic!() };
        // They are signed while other calls are written: any step goes with any part of the journal.
        let replacements = statements(home.path(), &state.files, &later.files);
        signed += usize::from(replacements.len() == 2);
        for step in 0..=STEPS * replacements.len() {
            for round in 0..4 {
                let unwritten = if round % 2 == 0 { Unwritten::Zeros } else { Unwritten::Garbage };
                let started = tempfile::tempdir().unwrap();
                let mut left = left_by_cut(state, later, unwritten, &mut rng);
                replace(&mut left, &replacements, step, |content| cut(&[], content, unwritten, &mut rng));
                copy_to(started.path(), home.path(), &left);
                let what = format!("state {n}, step {step} of signing, {unwritten:?}, round {round}");
                check(started.path(), state, &what);
            }
        }
    }
    assert_eq!(signed, 2, "checkpoint and home.state were not replaced");
}

/// The calls that wait for the log may take up all threads for blocking work.
#[test]
fn power_durability_needs_one_blocking_thread() {
    let (done, is_done) = std::sync::mpsc::channel();
    // It would wait for ever.
    std::thread::spawn(move || {
        let home = tempfile::tempdir().unwrap();
        let log = Arc::new(durable_log(home.path(), Durability::Power));
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).max_blocking_threads(1).enable_all().build().unwrap();
        let run = |n: u32| {
            let (log, call) = (Arc::clone(&log), call(n.is_multiple_of(2).then_some(&*n.to_string()), false));
            runtime.spawn(async move {
                let opened = log.open(call.clone()).await.unwrap();
                assert!(matches!(opened, OpenOutcome::Started), "{opened:?}");
                log.close(None, value(&call)).await.unwrap();
            })
        };
        let calls: Vec<_> = (0..32).map(run).collect();
        calls.into_iter().for_each(|call| runtime.block_on(call).unwrap());
        let ends = text_of(home.path()).matches("\"type\":\"final\"").count();
        drop((runtime, log, home));
        done.send(ends).unwrap();
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok(32));
}

/// The key, `home.state`, the checkpoint and `home.state` once more are written before the first entry of a home.
#[test]
fn the_first_statements_survive_a_power_cut() {
    let home = tempfile::tempdir().unwrap();
    let later = run(home.path(), Durability::Power).swap_remove(0);
    let path = |name: &str| home.path().join(name);
    let content = |name: &str| later.files[&path(name)].clone();
    // Until a checkpoint is on the disk, the home remembers no log.
    let first_state = {
        let other = tempfile::tempdir().unwrap();
        write_private(&other.path().join("host.key"), &content("host.key"));
        HomeState::new(other.path()).create(None).unwrap();
        fs::read(other.path().join(HOME_STATE.0)).unwrap()
    };
    assert_ne!(first_state, content(HOME_STATE.0));
    let replacements = [
        (("host.key", ".cofferdam-cut"), content("host.key")),
        (HOME_STATE, first_state),
        (CHECKPOINT, content(CHECKPOINT.0)),
        (HOME_STATE, content(HOME_STATE.0)),
    ];
    let replacements = replacements.map(|((name, temporary), content)| Replacement {
        path: path(name),
        temporary: path(temporary),
        content,
    });
    let empty = Acknowledged::default();
    let mut rng = fastrand::Rng::with_seed(13);
    let steps = STEPS * replacements.len();
    for step in 0..=steps {
        for round in 0..4 {
            let unwritten = if round % 2 == 0 { Unwritten::Zeros } else { Unwritten::Garbage };
            // The journal is begun after the statements.
            let mut left = match step == steps {
                true => left_by_cut(&empty, &later, unwritten, &mut rng),
                false => Files::new(),
            };
            replace(&mut left, &replacements, step, |content| cut(&[], content, unwritten, &mut rng));
            // The locks of a journal are older than its entries.
            let is_of_journal = |path: &PathBuf| {
                path.extension().is_some_and(|ending| ending == "jsonl" || ending == "sealed")
            };
            let has_locks = left.keys().any(is_of_journal) || rng.bool();
            let is_lock = |path: &Path| ["lock", "owner"].iter().any(|name| path.ends_with(name));
            let locks = later.files.iter().filter(|(path, _)| has_locks && is_lock(path));
            left.extend(locks.map(|(path, bytes)| (path.clone(), bytes.clone())));
            let started = tempfile::tempdir().unwrap();
            copy_to(started.path(), home.path(), &left);
            check(started.path(), &empty, &format!("step {step}, {unwritten:?}, round {round}"));
        }
    }
}

/// The statement that a journal begins later is on the disk before anything of its beginning is removed.
#[test]
fn a_power_cut_while_pruning_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let log = durable_log(home.path(), Durability::Power);
    for _ in 0..30 {
        run_call(&log, call(None, false));
    }
    let young = call_at(None, false, Timestamp::now());
    run_call(&log, young.clone());
    sign(&log);
    let before = files_below(home.path());
    let hour = jiff::SignedDuration::from_hours(1);
    let pruned = wait_for(log.prune(Timestamp::now() - hour, false, "ada".into())).unwrap();
    assert!(pruned.calls > 10, "{pruned:?}");
    let later = files_below(home.path());
    kill(log);
    let replacements = statements(home.path(), &before, &later);
    assert_eq!(replacements.len(), 2);
    let mut rng = fastrand::Rng::with_seed(14);
    let steps = STEPS * replacements.len();
    for step in 0..=steps {
        for round in 0..6 {
            let unwritten = if round % 2 == 0 { Unwritten::Zeros } else { Unwritten::Garbage };
            let what = format!("step {step}, {unwritten:?}, round {round}");
            // The entries about the pruning are on the disk before it is signed for.
            let is_statement =
                |path: &Path| [CHECKPOINT, HOME_STATE].iter().any(|(name, _)| path == home.path().join(name));
            let mut left = before.clone();
            left.extend(
                later
                    .iter()
                    .filter(|(path, _)| !is_statement(path))
                    .map(|(path, bytes)| (path.clone(), bytes.clone())),
            );
            replace(&mut left, &replacements, step, |content| cut(&[], content, unwritten, &mut rng));
            // The oldest segment is removed first, with all its files.
            let gone = before.keys().filter(|path| !later.contains_key(*path));
            let gone: BTreeSet<_> = gone.filter_map(|path| path.file_stem()).collect();
            let first = gone.iter().nth(rng.usize(..=gone.len())).copied();
            let mut is_left = |path: &Path| match path.file_stem().cmp(&first) {
                Ordering::Less => false,
                Ordering::Equal => rng.bool(),
                Ordering::Greater => first.is_some(),
            };
            left.retain(|path, _| step < steps || later.contains_key(path) || is_left(path));
            let started = tempfile::tempdir().unwrap();
            copy_to(started.path(), home.path(), &left);
            assert_eq!(findings(started.path()), [], "{what}");
            let next = super::log(started.path());
            assert_eq!(next.loss().unwrap(), None, "{what}");
            let keyed = call(Some("after the cut"), false);
            assert!(matches!(open(&next, &keyed), OpenOutcome::Started), "{what}");
            close(&next, value(&keyed));
            assert!(text_of(started.path()).contains(young.audit_id.as_str()), "{what}");
            drop(next);
            assert_eq!(findings(started.path()), [], "{what}");
        }
    }
}

/// Returns what a power cut leaves of a home with one journal, of whose files `on_disk` was synced. The system writes
/// older segments first, and what is sealed before the lines.
fn left_unsynced(on_disk: &Files, later: &Files, unwritten: Unwritten, rng: &mut fastrand::Rng) -> Files {
    let mut left = on_disk.clone();
    let segments: Vec<_> =
        later.iter().filter(|(path, _)| path.extension().is_some_and(|ending| ending == "jsonl")).collect();
    let reached = rng.usize(..segments.len());
    for (place, (path, bytes)) in segments.into_iter().enumerate().take(reached + 1) {
        let before = on_disk.get(path).map_or(&[][..], Vec::as_slice);
        let is_written = place < reached;
        left.insert(
            path.clone(),
            if is_written { bytes.clone() } else { cut(before, bytes, unwritten, rng) },
        );
        let sealed = path.with_extension("sealed");
        left.extend(later.get(&sealed).map(|bytes| (sealed.clone(), bytes.clone())));
    }
    left
}

/// The checkpoint covers entries of segments that ended since the one before it as well.
#[test]
fn signed_entries_survive_a_power_cut() {
    let home = tempfile::tempdir().unwrap();
    let log = durable_log(home.path(), Durability::Process).with_segment_bytes(2_000);
    let (mut now, mut on_disk) = (Acknowledged::default(), Files::new());
    let (mut signed, mut rng) = (None, fastrand::Rng::with_seed(12));
    for round in 0..24 {
        let key = (round % 4 == 0).then(|| format!("key {round}"));
        let call = call(key.as_deref(), false);
        assert!(matches!(open(&log, &call), OpenOutcome::Started));
        now.begun.push(call.audit_id.clone());
        if round % 6 != 5 {
            close(&log, value(&call));
            now.ended.push(call.audit_id);
            now.keys.extend(key);
        }
        if round % 5 == 4 {
            let journal = log.0.own_journal().unwrap();
            let newest = segment_files(home.path()).pop().unwrap();
            let mut synced = journal.committer.with_journal(|journal| journal.ended_files()).unwrap();
            synced.extend([newest.with_extension("sealed"), newest]);
            sign(&log);
            let is_of_journal =
                |path: &Path| path.extension().is_some_and(|ending| ending == "jsonl" || ending == "sealed");
            let files = files_below(home.path()).into_iter();
            on_disk.extend(files.filter(|(path, _)| !is_of_journal(path) || synced.contains(path)));
            signed = Some(Acknowledged { files: on_disk.clone(), ..now.clone() });
        }
        let Some(signed) = &signed else { continue };
        let later = files_below(home.path());
        for unwritten in [Unwritten::Zeros, Unwritten::Garbage] {
            let started = tempfile::tempdir().unwrap();
            let left = left_unsynced(&signed.files, &later, unwritten, &mut rng);
            copy_to(started.path(), home.path(), &left);
            check(started.path(), signed, &format!("round {round}, {unwritten:?}"));
        }
    }
    assert!(segment_files(home.path()).len() > 5);
    kill(log);
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
