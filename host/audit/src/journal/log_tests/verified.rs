//! Changes of the files by anything but a host: each is found, with the entry where it shows.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::hex::hex;
use crate::journal::segment::SegmentReader;
use crate::verify::FindingKind;

/// Replaces a file for as long as `check` runs.
fn with_content<T>(path: &Path, content: &[u8], check: impl FnOnce() -> T) -> T {
    let before = fs::read(path).unwrap();
    fs::write(path, content).unwrap();
    let checked = check();
    fs::write(path, before).unwrap();
    checked
}

/// Returns the number of the first finding, and its kind.
fn first(home: &Path) -> Option<(u64, FindingKind)> {
    findings(home).first().map(|finding| (finding.n, finding.flaw))
}

/// The lines of a segment with their breaks, and the number of the first one.
fn lines_of(path: &Path) -> (u64, Vec<Vec<u8>>) {
    let text = fs::read(path).unwrap();
    let first = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    (first, text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
}

fn joined(lines: &[Vec<u8>]) -> Vec<u8> {
    lines.concat()
}

/// A host writes the rest of a line just after its beginning was read.
#[test]
fn the_rest_of_a_line_is_no_line() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 4);
    let path = segment_files(home.path()).pop().unwrap();
    let (first, _) = lines_of(&path);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 20]).unwrap();
    let mut reader = SegmentReader::open(path.parent().unwrap(), first).unwrap().unwrap();
    while reader.next().unwrap().unwrap().is_whole {}
    fs::write(&path, &whole).unwrap();
    assert!(reader.next().unwrap().is_none());
}

#[test]
fn an_untouched_log_has_no_finding() {
    let home = tempfile::tempdir().unwrap();
    let ids = fill(home.path(), 20);
    let outcome = verified(home.path());
    assert_eq!((outcome.findings, outcome.more), (Vec::new(), 0));
    assert_eq!(outcome.stats.calls, ids.len() as u64);
    assert!(segment_files(home.path()).len() > 4);
    assert_eq!(outcome.journals.len(), 1);
}

/// Every byte of a journal of one call, and one in 31 of one with several segments.
#[test]
fn each_changed_byte_is_found_with_its_entry() {
    for (calls, step) in [(1, 1), (12, 31)] {
        let home = tempfile::tempdir().unwrap();
        fill(home.path(), calls);
        let mut rng = fastrand::Rng::with_seed(3);
        for path in segment_files(home.path()) {
            let (first_entry, lines) = lines_of(&path);
            let mut position = 0;
            for (line, entry) in lines.iter().zip(first_entry..) {
                for at in (0..line.len()).step_by(step) {
                    let mut bytes = joined(&lines);
                    bytes[position + at] ^= 1 << rng.u8(..8);
                    let found = with_content(&path, &bytes, || findings(home.path()));
                    let names = |n| found.first().is_some_and(|found| found.n == n);
                    // The hash in an entry may differ since either was changed.
                    assert!(names(entry) || names(entry - 1), "byte {at} of entry {entry}: {found:?}");
                }
                position += line.len();
            }
        }
        assert_eq!(findings(home.path()), []);
    }
}

/// Changes a bit of one in 997 bytes of a journal of 200 calls, or of one in as many as are asked for.
#[test]
fn changed_bytes_of_a_long_journal_are_found() {
    let home = tempfile::tempdir().unwrap();
    {
        let log = log(home.path());
        for _ in 0..200 {
            run_call(&log, call(None, true));
        }
    }
    let path = segment_files(home.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    let mut rng = fastrand::Rng::with_seed(4);
    for at in (0..whole.len()).step_by(sample_size("COFFERDAM_FLIPPED_BYTES", 997)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << rng.u8(..8);
        let entry = 1 + whole[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
        let found = with_content(&path, &bytes, || first(home.path()));
        assert!(found.is_some_and(|(n, _)| n == entry || n == entry - 1), "byte {at}: {found:?}");
    }
}

#[test]
fn an_edited_entry_is_found_with_its_call() {
    let home = tempfile::tempdir().unwrap();
    let ids = fill(home.path(), 12);
    let path = &segment_files(home.path())[1];
    let (first_entry, lines) = lines_of(path);
    let edited = lines.iter().position(|line| line.windows(8).any(|part| part == b"received")).unwrap();
    let id = ids.iter().find(|id| String::from_utf8_lossy(&lines[edited]).contains(id.as_str())).unwrap();
    let mut changed = lines.clone();
    changed[edited] =
        String::from_utf8(lines[edited].clone()).unwrap().replace("\"op\":\"b\"", "\"op\":\"x\"").into();
    assert_ne!(changed, lines);
    let found = with_content(path, &joined(&changed), || findings(home.path()));
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found.n, found.flaw), (first_entry + edited as u64, FindingKind::Edited));
    assert_eq!((found.audit_id.as_ref(), found.seq), (Some(id), Some(1)));
    assert_eq!(found.writer.as_deref(), journals(home.path())[0].file_name().unwrap().to_str());
}

#[test]
fn each_removed_doubled_or_moved_line_is_found() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), sample_size("COFFERDAM_LINE_CALLS", 10));
    for path in segment_files(home.path()) {
        let (first_entry, lines) = lines_of(&path);
        for at in 0..lines.len() {
            let entry = first_entry + at as u64;
            let check = |what: &str, lines: &[Vec<u8>]| {
                let found = with_content(&path, &joined(lines), || findings(home.path()));
                let is_named = found.iter().any(|found| (entry..=entry + 2).contains(&found.n));
                assert!(is_named, "{what} entry {entry}: {found:?}");
            };
            let mut removed = lines.clone();
            removed.remove(at);
            check("removed", &removed);
            let mut doubled = lines.clone();
            doubled.insert(at, lines[at].clone());
            check("doubled", &doubled);
            let mut replayed = lines.clone();
            replayed.push(lines[at].clone());
            assert_ne!(with_content(&path, &joined(&replayed), || first(home.path())), None);
            if at + 1 < lines.len() {
                let mut swapped = lines.clone();
                swapped.swap(at, at + 1);
                check("swapped", &swapped);
            }
            check("cut off before", &lines[..at]);
            let mut inserted = lines.clone();
            inserted.insert(at, b"{}\n".to_vec());
            check("inserted before", &inserted);
        }
    }
}

/// An attacker that knows the format needs no key for hashes.
#[test]
fn a_recomputed_chain_fails_its_signature() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 12);
    let (mut hash, mut last) = ([0_u8; 32], 0);
    for path in segment_files(home.path()) {
        let (first_entry, lines) = lines_of(&path);
        let mut text = Vec::new();
        for (line, n) in lines.iter().zip(first_entry..) {
            let line = std::str::from_utf8(line).unwrap().trim_end();
            let value: Value = serde_json::from_str(line).unwrap();
            let line = line
                .replace(value["prev"].as_str().unwrap(), &hex(&hash))
                .replace("\"op\":\"b\"", "\"op\":\"x\"");
            hash = Sha256::digest(&line).into();
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
            last = n;
        }
        fs::write(&path, text).unwrap();
    }
    assert_eq!(first(home.path()), Some((last, FindingKind::Rewritten)));
    assert!(log(home.path()).loss().unwrap().is_some());
}

#[test]
fn segments_out_of_their_place_are_found() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 16);
    let segments = segment_files(home.path());
    let whole = files_below(home.path());
    let other = tempfile::tempdir().unwrap();
    fill(other.path(), 16);
    let foreign = fs::read(&segment_files(other.path())[1]).unwrap();
    let named = |n: u64| segments[0].with_file_name(format!("{n:012}.jsonl"));
    type Change<'c> = (&'c str, Box<dyn Fn() + 'c>);
    let changes: Vec<Change<'_>> = vec![
        ("the first is missing", Box::new(|| fs::remove_file(&segments[0]).unwrap())),
        ("one is missing", Box::new(|| fs::remove_file(&segments[1]).unwrap())),
        ("the newest is missing", Box::new(|| fs::remove_file(segments.last().unwrap()).unwrap())),
        ("renamed", Box::new(|| fs::rename(&segments[1], named(9_999)).unwrap())),
        ("renamed to an earlier one", Box::new(|| fs::rename(&segments[2], named(2)).unwrap())),
        ("doubled", Box::new(|| assert!(fs::copy(&segments[1], named(9_999)).unwrap() > 0))),
        (
            "merged",
            Box::new(|| {
                let [one, two] = [0, 1].map(|at| fs::read(&segments[at]).unwrap());
                fs::remove_file(&segments[1]).unwrap();
                fs::write(&segments[0], [one, two].concat()).unwrap();
            }),
        ),
        (
            "swapped",
            Box::new(|| {
                let [one, two] = [0, 1].map(|at| fs::read(&segments[at]).unwrap());
                fs::write(&segments[0], two).unwrap();
                fs::write(&segments[1], one).unwrap();
            }),
        ),
        ("of another home", Box::new(|| fs::write(&segments[1], &foreign).unwrap())),
        ("empty", Box::new(|| fs::write(&segments[1], "").unwrap())),
        ("an empty one between others", Box::new(|| write_private(&named(2), b""))),
        ("the newest is empty", Box::new(|| fs::write(segments.last().unwrap(), "").unwrap())),
        ("invalid UTF-8", Box::new(|| fs::write(&segments[1], [0xff_u8, b'\n'].repeat(50)).unwrap())),
        ("zeros", Box::new(|| fs::write(&segments[1], vec![0; 4_096]).unwrap())),
        (
            "a line of 70 MiB",
            Box::new(|| {
                let file = fs::File::options().write(true).open(segments.last().unwrap()).unwrap();
                file.set_len(70 << 20).unwrap();
                fs::File::options().append(true).open(&segments[1]).unwrap().set_len(70 << 20).unwrap();
            }),
        ),
        ("a directory", Box::new(|| make_dir(&segments[1]))),
        ("the newest is a directory", Box::new(|| make_dir(segments.last().unwrap()))),
        (
            "a link",
            Box::new(|| {
                fs::rename(&segments[1], home.path().join("elsewhere")).unwrap();
                std::os::unix::fs::symlink(home.path().join("elsewhere"), &segments[1]).unwrap();
            }),
        ),
        (
            "a pipe",
            Box::new(|| {
                fs::remove_file(&segments[1]).unwrap();
                pipe(&segments[1]);
            }),
        ),
        (
            "the journal is a file",
            Box::new(|| {
                let dir = segments[0].parent().unwrap();
                fs::remove_dir_all(dir).unwrap();
                fs::write(dir, "").unwrap();
            }),
        ),
    ];
    for (what, change) in changes {
        change();
        let found = findings(home.path());
        assert!(found.iter().any(|found| found.n > 0), "{what}: {found:?}");
        assert!(log(home.path()).loss().is_ok(), "{what}");
        // Calls without a key go on.
        let next = log(home.path());
        assert!(matches!(open(&next, &call(None, false)), OpenOutcome::Started), "{what}");
        drop(next);
        assert_ne!(findings(home.path()), [], "{what}");
        // The operator can accept what is there, and keys are used again.
        let found = findings(home.path()).iter().map(Into::into).collect();
        wait_for(log(home.path()).accept(found, "ada".into())).unwrap();
        assert_eq!(findings(home.path()).iter().find(|found| !found.accepted), None, "{what}");
        assert_eq!(log(home.path()).loss().unwrap(), None, "{what}");
        assert!(matches!(open(&log(home.path()), &call(Some("k"), false)), OpenOutcome::Started), "{what}");
        put_back(home.path(), &whole);
        assert_eq!(findings(home.path()), []);
    }
}

#[test]
fn segments_that_are_added_are_found() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 16);
    let segments = segment_files(home.path());
    let before = segments[0].with_file_name("000000000000.jsonl");
    for bytes in [fs::read(&segments[0]).unwrap(), fs::read(&segments[1]).unwrap(), Vec::new()] {
        write_private(&before, &bytes);
        assert_ne!(findings(home.path()), []);
    }
    fs::remove_file(&before).unwrap();
    assert_eq!(findings(home.path()), []);
    // An empty one in the place of an entry, also as the newest one.
    let (newest, _) = lines_of(segments.last().unwrap());
    write_private(&before.with_file_name(format!("{:012}.jsonl", newest + 1)), b"");
    assert_ne!(findings(home.path()), []);
}

pub(super) fn pipe(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
}

#[test]
fn journals_that_are_swapped_or_foreign_are_found() {
    let home = tempfile::tempdir().unwrap();
    two_journals(home.path());
    let whole = files_below(home.path());
    let [one, two]: [PathBuf; 2] = journals(home.path()).try_into().unwrap();
    let other = tempfile::tempdir().unwrap();
    fill(other.path(), 2);
    let foreign = journals(other.path()).remove(0);
    let between = home.path().join("between");
    type Change<'c> = (&'c str, Box<dyn Fn() + 'c>);
    let changes: [Change<'_>; 4] = [
        (
            "swapped",
            Box::new(|| {
                fs::rename(&one, &between).unwrap();
                fs::rename(&two, &one).unwrap();
                fs::rename(&between, &two).unwrap();
            }),
        ),
        ("removed", Box::new(|| fs::remove_dir_all(&two).unwrap())),
        (
            "added",
            Box::new(|| {
                copy_to(&one.with_file_name(foreign.file_name().unwrap()), &foreign, &files_below(&foreign))
            }),
        ),
        (
            "doubled",
            Box::new(|| {
                copy_to(&one.with_file_name(uuid::Uuid::now_v7().to_string()), &one, &files_below(&one))
            }),
        ),
    ];
    for (what, change) in changes {
        change();
        assert_ne!(findings(home.path()), [], "{what}");
        put_back(home.path(), &whole);
    }
    assert_eq!(findings(home.path()), []);
}

#[test]
fn other_spellings_of_a_name_are_no_journals() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 2);
    let dir = journals(home.path()).remove(0);
    let name = dir.file_name().unwrap().to_str().unwrap();
    for other in [name.replace('-', ""), name.to_uppercase(), format!("{{{name}}}")] {
        copy_to(&dir.with_file_name(other), &dir, &files_below(&dir));
    }
    assert_eq!(journals(home.path()), std::slice::from_ref(&dir));
    assert_eq!(findings(home.path()), []);
}

#[test]
fn checkpoints_that_do_not_fit_are_found() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 2);
    let path = home.path().join("audit/checkpoint");
    let (older, old) = (fs::read(&path).unwrap(), files_below(home.path()));
    fill(home.path(), 2);
    let (newer, whole) = (fs::read(&path).unwrap(), files_below(home.path()));
    let other = tempfile::tempdir().unwrap();
    fill(other.path(), 4);
    // An older statement holds: the home remembers the newer one.
    with_content(&path, &older, || assert!(log(home.path()).loss().unwrap().is_some()));
    let foreign = fs::read(other.path().join("audit/checkpoint")).unwrap();
    with_content(&path, &foreign, || assert_eq!(first(home.path()), Some((0, FindingKind::Signature))));
    with_content(&path, &[0xff, 0xfe], || assert_eq!(first(home.path()), Some((0, FindingKind::Signature))));
    fs::remove_file(&path).unwrap();
    assert_eq!(first(home.path()), Some((0, FindingKind::Signature)));
    fs::create_dir(&path).unwrap();
    assert_eq!(first(home.path()), Some((0, FindingKind::Signature)));
    put_back(home.path(), &old);
    assert_eq!(findings(home.path()), []);
    with_content(&path, &newer, || {
        assert!(findings(home.path()).iter().any(|found| found.flaw == FindingKind::Truncated));
    });
    put_back(home.path(), &whole);
    for at in 0..newer.len() {
        let mut bytes = newer.clone();
        bytes[at] ^= 1 << (at % 8);
        with_content(&path, &bytes, || {
            assert_eq!(first(home.path()), Some((0, FindingKind::Signature)), "{at}")
        });
    }
    assert_eq!(findings(home.path()), []);
}

#[test]
fn changed_sealed_parts_are_found() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 1);
    let path = segment_files(home.path())[0].with_extension("sealed");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        with_content(&path, &bytes, || assert_eq!(findings(home.path())[0].flaw, FindingKind::Sealed));
        with_content(&path, &whole[..at], || assert_eq!(findings(home.path())[0].flaw, FindingKind::Sealed));
    }
    // The quota drops parts: their place has zeros, or the file is gone.
    with_content(&path, &vec![0; whole.len()], || assert_eq!(findings(home.path()), []));
    fs::remove_file(&path).unwrap();
    assert_eq!(findings(home.path()), []);
    fs::create_dir(&path).unwrap();
    assert_eq!(findings(home.path())[0].flaw, FindingKind::Sealed);
}

#[test]
fn files_of_the_wrong_type_are_found() {
    for name in ["keys.lock", "keys.db-wal", "checkpoint.lock", "index.db"] {
        let home = tempfile::tempdir().unwrap();
        fill(home.path(), 2);
        run_call(&log(home.path()), call(Some("k"), false));
        let path = home.path().join("audit").join(name);
        make_dir(&path);
        let found = findings(home.path());
        assert!(matches!(&found[..], [one] if one.flaw == FindingKind::FileType), "{name}: {found:?}");
        assert!(found[0].what.contains(&format!("audit/{name} ")), "{found:?}");
        // Others are found as well.
        let segment = segment_files(home.path()).remove(0);
        let edited = fs::read_to_string(&segment).unwrap().replace("\"op\":\"b\"", "\"op\":\"x\"");
        let found = with_content(&segment, edited.as_bytes(), || findings(home.path()));
        let has = |kind: FindingKind| found.iter().any(|found| found.flaw == kind);
        assert!(has(FindingKind::Edited) && has(FindingKind::FileType), "{name}: {found:?}");
        fs::remove_dir(&path).unwrap();
        assert_eq!(findings(home.path()), [], "{name}");
        assert!(matches!(state(&log(home.path()), "k"), KeyState::Done { .. }), "{name}");
    }
}

#[test]
fn files_of_dead_processes_are_no_finding() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 2);
    let dir = journals(home.path()).remove(0);
    for name in [".cofferdam-x1", "000000000001.torn", "notes.txt", "1.jsonl"] {
        fs::write(dir.join(name), "leftover").unwrap();
        fs::write(home.path().join("audit").join(name), "leftover").unwrap();
    }
    fs::create_dir(dir.with_file_name(uuid::Uuid::now_v7().to_string())).unwrap();
    fs::write(dir.with_file_name(uuid::Uuid::now_v7().to_string()), "").unwrap();
    assert_eq!(findings(home.path()), []);
    let next = log(home.path());
    assert!(matches!(open(&next, &call(Some("k"), false)), OpenOutcome::Started));
    assert_eq!(next.loss().unwrap(), None);
    drop(next);
    assert_eq!(findings(home.path()), []);
    // A journal whose lock cannot be taken is left.
    make_dir(&dir.join("lock"));
    assert!(matches!(open(&log(home.path()), &call(None, false)), OpenOutcome::Started));
    assert_eq!(findings(home.path()), []);
}

#[test]
fn a_clock_that_jumps_leaves_no_finding() {
    let home = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let round = std::sync::atomic::AtomicI64::new(1);
        // An hour earlier or later each time.
        let time = move || {
            let round = round.fetch_add(1, Ordering::Relaxed);
            let hours = if round % 2 == 0 { round } else { -round };
            Timestamp::from_second(1_700_000_000 + hours * 3_600).unwrap()
        };
        let clock = Arc::new(DateClock(time));
        let log = JournalLog::new(home.path(), LogSettings::default(), clock).with_segment_bytes(4_000);
        for _ in 0..8 {
            run_call(&log, call(None, false));
        }
        sign(&log);
    }
    assert_eq!(findings(home.path()), []);
    assert_eq!(log(home.path()).loss().unwrap(), None);
}
