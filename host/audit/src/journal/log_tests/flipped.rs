//! Single bits that change in any file of the log.

use std::time::Duration;

use super::*;
use crate::approvals::{
    Approval, ApprovalBinding, ApprovalFile, ApprovalStore as _, ApprovalVerdict, Decision, PersonAnswer,
    ShownArguments, StoredApproval,
};
use crate::command::LogTime;
use crate::log::wait;

/// The approvals in the home: one that waits for an answer, and those that have one.
const WAITING: u8 = 0;
const APPROVED: u8 = 1;
const USED: u8 = 2;
const DENIED: u8 = 3;

const HOUR: Duration = Duration::from_secs(3600);

fn now() -> LogTime {
    let time = "2026-11-22T12:00:00Z".parse().unwrap();
    LogTime { time, clock: time, is_believed: true }
}

fn ask(home: &Path, approval: u8) -> Result<ApprovalVerdict, AuditError> {
    let call = AuditId::mint();
    let binding = ApprovalBinding::new(&[approval; 32], &["p"], 0, None);
    let arguments = ShownArguments::new(2, "0".repeat(64), Some("{}".to_owned()));
    let approval = Approval { arguments, ..Approval::new("github://acme/a@1.0.0", "b", "ada", &call) };
    wait(ApprovalFile::new(home).request(StoredApproval::new(approval, binding, HOUR, now()), call, now()))
}

fn fill_approvals(home: &Path) {
    for approval in [WAITING, APPROVED, USED, DENIED] {
        let asked = ask(home, approval).unwrap();
        let ApprovalVerdict::Waiting(asked) = asked else { panic!("{asked:?}") };
        let decision = match approval {
            WAITING => continue,
            DENIED => Decision::Deny,
            _ => Decision::ApproveOnce(HOUR),
        };
        let answer = PersonAnswer { decision, by: "ada".to_owned(), reason: None };
        wait(ApprovalFile::new(home).answer(asked.id.clone(), answer, now())).unwrap();
    }
    assert!(matches!(ask(home, USED), Ok(ApprovalVerdict::Approved { .. })));
}

/// Returns the approvals with their arguments, those that can be read.
fn approvals(home: &Path) -> Vec<StoredApproval> {
    let store = ApprovalFile::new(home);
    let listed = wait(store.list()).unwrap_or_default();
    let found = listed.into_iter().map(|it| wait(store.get(it.approval.id)));
    found.filter_map(|found| found.ok().flatten()).collect()
}

fn is_of_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("index."))
}

/// Makes the files of the log those again, in their places. The index stays as a host left it: its stamp has the
/// number and the times of the file.
fn put_back_in_place(root: &Path, whole: &Files) {
    let now = files_below(root);
    for path in now.keys().filter(|path| !whole.contains_key(*path) && !is_of_index(path)) {
        fs::remove_file(path).unwrap();
    }
    for (path, bytes) in
        whole.iter().filter(|(path, bytes)| !is_of_index(path) && now.get(*path) != Some(bytes))
    {
        write_private(path, bytes);
    }
}

/// Flips bits in all files of the log. Each flip is found, mended or without any consequence for keys, lists,
/// statistics and operators' changes, and none frees a key. An approval may be lost, which counts as found, since its
/// call waits for a person again; none is given.
fn flip_bits(flips: usize, seed: u64) -> [usize; 3] {
    let home = tempfile::tempdir().unwrap();
    let keys = ["value", "unknown", "free", "interrupted", "skipped", "other", "unused"];
    let calls = keys.map(|key| call(Some(key), false));
    {
        let (one, other) = (small_log(home.path()), small_log(home.path()));
        calls[..5].iter().for_each(|call| drop(open(&one, call)));
        close(&one, value(&calls[0]));
        close(&one, end(&calls[1], CallStatus::Cancelled, KeyDisposition::Undetermined));
        close(&one, end(&calls[2], CallStatus::Failure, KeyDisposition::Release));
        open(&other, &calls[5]);
        close(&other, value(&calls[5]));
        sign(&one);
        kill(one);
        assert!(skip(&other, &calls[4], false));
        let change = OperatorEvent { action: OperatorAction::Trust, ..OperatorEvent::default() };
        wait_for(other.record(Timestamp::now(), change)).unwrap();
        sign(&other);
    }
    fill(home.path(), 6);
    fill_approvals(home.path());
    assert_eq!(findings(home.path()), []);
    let states = |home: &Path| {
        let log = log(home);
        let state = |key| wait_for(log.key_state(claim(key))).map(|state| format!("{state:?}"));
        keys.map(state).into_iter().collect::<Result<Vec<_>, _>>()
    };
    let before = states(home.path()).unwrap();
    let listed = |home: &Path| {
        let mut reader = log(home).reader()?;
        let all = crate::Filter::default();
        let incomplete = crate::Filter { status: Some(crate::CallStatus::Incomplete), ..all.clone() };
        let rows = [reader.list(&all)?, reader.list(&incomplete)?];
        let stats = reader.stats(&all, crate::StatsQuery { usage: true, ..crate::StatsQuery::default() })?;
        let changes = reader.operator_events(&OperatorEventFilter::default())?;
        let changes: Vec<_> = changes.into_iter().map(|change| (change.place, change.event)).collect();
        Ok::<_, AuditError>((rows, stats, changes))
    };
    let contents = listed(home.path()).unwrap();
    let (rows, _, changes) = &contents;
    assert!(!rows[1].is_empty() && rows[1].len() < rows[0].len() && changes.len() == 1, "{contents:?}");
    let approved = approvals(home.path());
    assert_eq!(approved.len(), 4);
    let root = home.path().join("audit");
    let (stamp, mut whole) = (root.join("index.stamp"), files_below(&root));
    for name in ["approvals.db", "index.db", "index.db-wal", "index.stamp", "keys.db", "checkpoint"] {
        assert!(whole.get(&root.join(name)).is_some_and(|bytes| !bytes.is_empty()), "{name}");
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    // Found, mended, without consequence.
    let mut counts = [0; 3];
    for flip in 0..flips {
        let targets: Vec<_> = whole.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
        let (path, bytes) = targets[rng.usize(..targets.len())];
        let (path, bytes) = (path.clone(), bytes.clone());
        let (at, bit) = (rng.usize(..bytes.len()), rng.u8(..8));
        let mut changed = bytes.clone();
        changed[at] ^= 1 << bit;
        let what = format!("flip {flip}: bit {bit} of byte {at} of {}", path.display());
        if path.ends_with("index.db") {
            // The file system's clock goes on, so that the change shows.
            std::thread::sleep(Duration::from_millis(20));
        }
        fs::write(&path, &changed).unwrap();
        // A host comes first, or a verification.
        let early = (flip % 2 == 0).then(|| states(home.path()));
        let loss = log(home.path()).loss().unwrap();
        let found = findings(home.path());
        let late = early.unwrap_or_else(|| states(home.path()));
        match late {
            Ok(after) => {
                for ((key, before), after) in keys.iter().zip(&before).zip(&after) {
                    assert!(before == "Free" || after != "Free", "{what}: the key {key} is free");
                }
                assert!(loss.is_some() || !found.is_empty() || after == before, "{what}: {after:?}");
            }
            Err(error) => assert!(loss.is_some() || !found.is_empty(), "{what}: {error}"),
        }
        let is_found = loss.is_some() || !found.is_empty();
        let now = listed(home.path());
        if !is_found {
            assert_eq!(findings(home.path()), [], "{what}");
            assert_eq!(now.as_ref().ok(), Some(&contents), "{what}: {:?}", now.as_ref().err());
            // The index of these journals is not made again, unless it was flipped.
            assert!(is_of_index(&path) || fs::read(&stamp).unwrap() == whole[&stamp], "{what}");
        }
        let is_mended = fs::read(&path).ok().as_deref() != Some(&changed[..]);
        assert!(is_mended || !path.ends_with("index.db"), "{what}");
        let left = approvals(home.path());
        let is_lost = left != approved;
        assert!(!is_lost || path.ends_with("approvals.db"), "{what}: {left:?}");
        assert!(left.iter().all(|it| approved.contains(it)), "{what}: {left:?}");
        if path.ends_with("approvals.db") {
            for approval in [WAITING, USED, DENIED, 4] {
                let verdict = ask(home.path(), approval);
                assert!(!matches!(verdict, Ok(ApprovalVerdict::Approved { .. })), "{what}: {verdict:?}");
            }
        }
        counts[if is_found || is_lost {
            0
        } else if is_mended {
            1
        } else {
            2
        }] += 1;
        if fs::read(&path).ok().as_deref() == Some(&changed[..]) {
            fs::write(&path, &bytes).unwrap();
        }
        put_back_in_place(&root, &whole);
        // An index that was made again meanwhile is one of changed journals.
        if !is_of_index(&path) && fs::read(&stamp).ok().as_ref() != whole.get(&stamp) {
            files_below(&root)
                .keys()
                .filter(|path| is_of_index(path))
                .for_each(|path| fs::remove_file(path).unwrap());
        }
        assert_eq!(listed(home.path()).unwrap(), contents, "{what}: put back");
        whole.retain(|path, _| !is_of_index(path));
        whole.extend(files_below(&root).into_iter().filter(|(path, _)| is_of_index(path)));
    }
    counts
}

#[test]
fn no_flipped_bit_frees_a_key_unseen() {
    let flips = sample_size("COFFERDAM_FLIPS", 200);
    let counts = flip_bits(flips, 8);
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), flips);
    eprintln!("found, mended, without consequence: {counts:?}");
}
