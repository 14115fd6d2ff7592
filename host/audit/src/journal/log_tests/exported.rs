//! Exports: verified with the public key alone, and every change of one is found.

use super::*;
use crate::export::{CheckedExport, ExportError, ExportRange, export, verify_export};
use crate::note::{NoteKey, NoteSigner};
use crate::verify::FindingKind;

fn exported(home: &Path, range: ExportRange) -> Vec<u8> {
    let mut out = Vec::new();
    let evidence = log(home).evidence().unwrap();
    let written = export(&*evidence, &signer(home), range, true, &mut out, &mut |_| ()).unwrap();
    let entries =
        out.split(|byte| *byte == b'\n').filter(|line| line.windows(4).any(|part| part == b"\"n\":"));
    assert!(written > 0 && entries.count() as u64 >= written);
    out
}

fn checked_with(
    bytes: &[u8],
    key: Option<&NoteKey>,
    pinned: &[String],
) -> Result<CheckedExport, ExportError> {
    verify_export(&mut &bytes[..], key, pinned, &mut |_| ())
}

/// Returns true if the export is refused, or something is found in it.
fn is_found(bytes: &[u8], key: &NoteKey, pinned: &[String]) -> bool {
    checked_with(bytes, Some(key), pinned).map_or(true, |checked| !checked.outcome.findings.is_empty())
}

/// A home with two journals, and a time in the middle of its calls.
fn home() -> (tempfile::TempDir, NoteKey, Timestamp) {
    let home = tempfile::tempdir().unwrap();
    let held = log(home.path());
    open(&held, &call_at(None, false, Timestamp::now()));
    fill_at(home.path(), 2, Timestamp::now());
    std::thread::sleep(Duration::from_millis(2));
    let middle = Timestamp::now();
    fill_at(home.path(), 2, Timestamp::now());
    run_call(&held, call_at(None, false, Timestamp::now()));
    sign(&held);
    drop(held);
    assert_eq!(journals(home.path()).len(), 2);
    let key = signer(home.path()).key();
    (home, key, middle)
}

fn since(middle: Timestamp) -> ExportRange {
    ExportRange { since: Some(middle), until: None }
}

#[test]
fn whole_and_partial_exports_verify() {
    let (home, key, middle) = home();
    let ranges = [
        ExportRange::default(),
        since(middle),
        ExportRange { since: None, until: Some(middle) },
        ExportRange { since: Some(Timestamp::UNIX_EPOCH), until: Some(middle) },
    ];
    for range in ranges {
        let bytes = exported(home.path(), range);
        for key in [None, Some(&key)] {
            let checked = checked_with(&bytes, key, &[]).unwrap();
            assert_eq!(checked.outcome.findings, [], "{range:?}");
            assert_eq!(checked.part, range.since.is_some() || range.until.is_some());
            assert!(checked.outcome.stats.calls >= 2, "{:?}", checked.outcome.stats);
        }
    }
    let bytes = exported(home.path(), ExportRange::default());
    assert_eq!(checked_with(&bytes, None, &[]).unwrap().outcome.stats.calls, 6);
}

#[test]
fn a_pruned_log_is_exported_from_its_beginning() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 24);
    assert!(wait_for(small_log(home.path()).prune(Timestamp::now(), false, "ada".into())).unwrap().calls > 5);
    let bytes = exported(home.path(), ExportRange::default());
    assert_eq!(checked_with(&bytes, None, &[]).unwrap().outcome.findings, []);
}

/// Every byte of a whole export, and one in seven of one of a part.
#[test]
fn each_changed_byte_of_an_export_is_found() {
    let (home, key, middle) = home();
    let mut rng = fastrand::Rng::with_seed(5);
    for (range, step) in [(ExportRange::default(), 1), (since(middle), 7)] {
        let bytes = exported(home.path(), range);
        for at in (0..bytes.len()).step_by(step) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << rng.u8(..8);
            assert!(is_found(&changed, &key, &[]), "byte {at}: {}", String::from_utf8_lossy(&changed));
        }
    }
}

#[test]
fn each_moved_or_removed_line_of_an_export_is_found() {
    let (home, key, middle) = home();
    for range in [ExportRange::default(), since(middle)] {
        let bytes = exported(home.path(), range);
        let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        for at in 0..lines.len() {
            let check =
                |what: &str, lines: &[&[u8]]| assert!(is_found(&lines.concat(), &key, &[]), "{what} {at}");
            let mut removed = lines.clone();
            removed.remove(at);
            check("removed", &removed);
            let mut doubled = lines.clone();
            doubled.insert(at, lines[at]);
            check("doubled", &doubled);
            let mut appended = lines.clone();
            appended.push(lines[at]);
            check("appended", &appended);
            check("cut off before", &lines[..at]);
            for other in at + 1..lines.len() {
                let mut swapped = lines.clone();
                swapped.swap(at, other);
                check("swapped", &swapped);
            }
            let half = lines[at].len() / 2;
            check("cut off within", &[&lines[..at], &[&lines[at][..half]]].concat());
            check(
                "cut off before the end of",
                &[&lines[..at], &[&lines[at][..lines[at].len() - 1]]].concat(),
            );
        }
    }
}

/// A journal cannot be left out, nor the statement of another export be used.
#[test]
fn parts_of_other_exports_are_found() {
    let (home, key, middle) = home();
    let before = exported(home.path(), ExportRange::default());
    fill(home.path(), 1);
    let after = exported(home.path(), ExportRange::default());
    let of_part = exported(home.path(), since(middle));
    let lines =
        |bytes: &[u8]| bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    for (body, end) in [(&before, &after), (&after, &before), (&after, &of_part), (&of_part, &after)] {
        let (mut mixed, end) = (lines(body), lines(end));
        *mixed.last_mut().unwrap() = end.last().unwrap().clone();
        assert!(is_found(&mixed.concat(), &key, &[]));
    }
    let whole = lines(&after);
    let is_header = |line: &Vec<u8>| line.starts_with(b"{\"journal\"");
    let starts: Vec<_> = (0..whole.len()).filter(|at| is_header(&whole[*at])).collect();
    let [one, two] = starts[..] else { panic!("{starts:?}") };
    for left_out in [one..two, two..whole.len() - 1] {
        let mut lines = whole.clone();
        lines.drain(left_out);
        assert!(is_found(&lines.concat(), &key, &[]));
    }
}

#[test]
fn a_foreign_key_is_found() {
    let (home, key, _) = home();
    let bytes = exported(home.path(), ExportRange::default());
    let foreign = NoteSigner::new(&[9; 32]);
    let checked = checked_with(&bytes, Some(&foreign.key()), &[]).unwrap();
    assert!(checked.outcome.findings.iter().any(|found| found.flaw == FindingKind::Signature));
    // Signed again as a whole by another key: who knows the right one sees it.
    let mut out = Vec::new();
    let evidence = log(home.path()).evidence().unwrap();
    export(&*evidence, &foreign, ExportRange::default(), false, &mut out, &mut |_| ()).unwrap();
    assert_eq!(checked_with(&out, None, &[]).unwrap().outcome.findings, []);
    assert!(is_found(&out, &key, &[]));
}

#[test]
fn pinned_checkpoints_are_compared() {
    let (home, key, middle) = home();
    let older = wait_for(log(home.path()).sign()).unwrap();
    let early = exported(home.path(), ExportRange::default());
    fill(home.path(), 2);
    let newer = wait_for(log(home.path()).sign()).unwrap();
    let bytes = exported(home.path(), ExportRange::default());
    assert_eq!(
        checked_with(&bytes, Some(&key), &[older.clone(), newer.clone()]).unwrap().outcome.findings,
        []
    );
    assert!(is_found(&early, &key, std::slice::from_ref(&newer)), "it ends before what was signed");
    assert!(
        !is_found(&exported(home.path(), since(middle)), &key, std::slice::from_ref(&newer)),
        "a part may end before"
    );
    assert!(is_found(&bytes, &key, &[older.replace("writer", "Writer")]));
    // Another log under the same key.
    let other = tempfile::tempdir().unwrap();
    let host_key = fs::read(home.path().join("host.key")).unwrap();
    write_private(&other.path().join("host.key"), &host_key);
    fill(other.path(), 2);
    let foreign = exported(other.path(), ExportRange::default());
    assert!(!is_found(&foreign, &key, &[]));
    assert!(is_found(&foreign, &key, &[newer]));
}

#[test]
fn a_damaged_log_is_exported_only_on_request() {
    let (home, key, _) = home();
    let path = segment_files(home.path()).remove(0);
    let text = fs::read_to_string(&path).unwrap().replacen("\"op\":\"b\"", "\"op\":\"c\"", 1);
    fs::write(&path, text).unwrap();
    let evidence = log(home.path()).evidence().unwrap();
    let mut out = Vec::new();
    let strict =
        export(&*evidence, &signer(home.path()), ExportRange::default(), true, &mut out, &mut |_| ());
    assert!(matches!(strict, Err(ExportError::Tampered { .. })), "{strict:?}");
    out.clear();
    export(&*evidence, &signer(home.path()), ExportRange::default(), false, &mut out, &mut |_| ()).unwrap();
    let checked = checked_with(&out, Some(&key), &[]).unwrap();
    assert!(checked.outcome.findings.iter().any(|found| found.flaw == FindingKind::Edited));
}

#[test]
fn an_export_without_entries_has_no_header() {
    let (home, _key, _middle) = home();
    let range = ExportRange { until: Some(Timestamp::UNIX_EPOCH), ..ExportRange::default() };
    let (evidence, mut out) = (log(home.path()).evidence().unwrap(), Vec::new());
    let written = export(&*evidence, &signer(home.path()), range, true, &mut out, &mut |_| ()).unwrap();
    assert_eq!((written, out.len()), (0, 0));
}

#[test]
fn other_files_are_no_export() {
    for bytes in [&b""[..], b"\n", b"{}\n", b"{\"export\":3,\"key\":\"\",\"part\":false}\n", &[0xff, b'\n']] {
        assert!(matches!(checked_with(bytes, None, &[]), Err(ExportError::NoExport(_))));
    }
}
