//! Disks that are full or read-only, and files that others can read or that are something else than files.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::*;
use crate::verify::{ExpectedState, verify_log};

/// The directory with a small file system, in the process that a test starts for itself.
const SMALL_DISK: &str = "COFFERDAM_TEST_SMALL_DISK";

/// Runs a test in a process with a small file system of its own. Where none can be mounted, the test is skipped,
/// visibly; with `$COFFERDAM_REQUIRE_SERVICES`, as in CI, that is a failure.
fn on_small_disk(test: &str, bytes: usize, run: impl FnOnce(&Path)) {
    if let Some(dir) = std::env::var_os(SMALL_DISK) {
        return run(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let start = |script: String| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-ec"]).arg(script).arg("sh");
        command.arg(std::env::current_exe().unwrap()).env(SMALL_DISK, dir.path());
        command.args(["--exact", "--nocapture", test]).output()
    };
    let mount = format!("mount -t tmpfs -o size={bytes},mode=700 none \"${SMALL_DISK}\"");
    if !start(mount.clone()).is_ok_and(|output| output.status.success()) {
        let required = std::env::var_os("COFFERDAM_REQUIRE_SERVICES");
        let is_required = required.is_some_and(|value| !value.is_empty() && value != "0");
        assert!(!is_required, "COFFERDAM_REQUIRE_SERVICES is set, and no file system can be mounted here");
        let why = "no file system can be mounted here; a full or read-only disk is not tried";
        // Past the capture of a test's output.
        let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why}");
        return;
    }
    let output = start(format!("{mount}; exec \"$@\"")).unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Uses up the disk, but for the last bytes of a block.
fn fill_disk(dir: &Path) -> PathBuf {
    let path = dir.join("ballast");
    let mut file = fs::File::create(&path).unwrap();
    while file.write_all(&[7; 512]).is_ok() {}
    path
}

fn ends_with_a_line(home: &Path) -> bool {
    segment_files(home).iter().all(|path| {
        let bytes = fs::read(path).unwrap();
        bytes.is_empty() || bytes.ends_with(b"\n")
    })
}

#[test]
fn a_full_disk_undoes_writes_and_recovers() {
    on_small_disk("journal::log::tests::disk::a_full_disk_undoes_writes_and_recovers", 256 * 1024, |home| {
        let log = log(home);
        let (mut open_calls, mut refused) = (Vec::new(), 0);
        for _ in 0..4 {
            let call = call(None, false);
            open(&log, &call);
            open_calls.push(call);
        }
        let keyed = call(Some("k"), false);
        open(&log, &keyed);
        let ballast = fill_disk(home);
        // The last block of the segment takes some entries, and a part of another one.
        let error = loop {
            let call = call(None, false);
            match wait_for(log.open(call.clone())) {
                Ok(_) => open_calls.push(call),
                Err(error) => break error,
            }
            assert!(ends_with_a_line(home));
        };
        assert_eq!(error.kind(), AuditErrorKind::Full, "{error}");
        assert!(ends_with_a_line(home));
        for call in &open_calls {
            let closed = wait_for(log.close(None, value(call)));
            assert!(closed.is_ok() || closed.unwrap_err().kind() == AuditErrorKind::Full);
            assert!(ends_with_a_line(home));
            refused += 1;
        }
        assert!(refused > 0);
        let end = value(&keyed);
        assert_eq!(wait_for(log.close(None, end.clone())).unwrap_err().kind(), AuditErrorKind::Full);
        let fails = wait_for(log.open(call(Some("other"), false))).unwrap_err();
        assert!(matches!(fails.kind(), AuditErrorKind::Full | AuditErrorKind::Io), "{fails}");
        fs::remove_file(ballast).unwrap();
        // Ends that could not be written are written before the next entry.
        assert!(matches!(open(&log, &call(Some("other"), false)), OpenOutcome::Started));
        wait_for(log.flush()).unwrap();
        let text = text_of(home);
        for call in open_calls.iter().chain([&keyed]) {
            let is_of_call = |line: &&str| line.starts_with(&format!("{{\"audit_id\":\"{}", call.audit_id));
            let ends = text.lines().filter(is_of_call).filter(|line| line.contains("\"final\"")).count();
            assert_eq!(ends, 1, "{}", call.audit_id);
        }
        close(&log, end);
        let mut tries = 0..100;
        while !matches!(state(&log, "k"), KeyState::Done { outcome: Some(_), .. }) {
            assert!(tries.next().is_some(), "its end was not noted");
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(log);
        assert_eq!(findings(home), []);
        assert_eq!(super::log(home).loss().unwrap(), None);
    });
}

/// On a full disk every call is refused, for as long as that takes.
#[test]
fn refused_calls_leave_room_for_outcomes() {
    on_small_disk("journal::log::tests::disk::refused_calls_leave_room_for_outcomes", 256 * 1024, |home| {
        let log = log(home);
        let running: Vec<_> = (0..20).map(|_| call(None, false)).collect();
        running.iter().for_each(|call| drop(open(&log, call)));
        let ballast = fill_disk(home);
        // The last block of the segment takes some entries, and also some ends.
        while wait_for(log.open(call(None, false))).is_ok() {}
        for _ in 0..2 * LATE_ENDS {
            let refused = call(None, false);
            let end = end(&refused, CallStatus::Refused, KeyDisposition::Release);
            let closed = wait_for(log.close(Some(Box::new(refused)), CloseCall { attempts: 0, ..end }));
            assert_eq!(closed.unwrap_err().kind(), AuditErrorKind::Full);
        }
        assert_eq!(log.0.state().late_ends.len(), LATE_REFUSALS);
        let unwritten = running.iter().find(|call| wait_for(log.close(None, value(call))).is_err()).unwrap();
        assert_eq!(log.0.state().late_ends.len(), LATE_REFUSALS + 1);
        fs::remove_file(ballast).unwrap();
        assert!(matches!(open(&log, &call(None, false)), OpenOutcome::Started));
        wait_for(log.flush()).unwrap();
        let text = text_of(home);
        let is_end = |line: &&str| line.contains(unwritten.audit_id.as_str()) && line.contains("\"final\"");
        assert_eq!(text.lines().filter(is_end).count(), 1);
        assert_eq!(text.matches("\"status\":\"refused\"").count(), LATE_REFUSALS);
    });
}

#[test]
fn a_log_begun_on_a_full_disk_recovers() {
    on_small_disk("journal::log::tests::disk::a_log_begun_on_a_full_disk_recovers", 1024 * 1024, |home| {
        let ballast = fill_disk(home);
        for key in [None, Some("k")] {
            let refused = wait_for(log(home).open(call(key, false))).unwrap_err();
            let kinds = [AuditErrorKind::Full, AuditErrorKind::Key, AuditErrorKind::Io];
            assert!(kinds.contains(&refused.kind()), "{refused}");
        }
        fs::remove_file(ballast).unwrap();
        for key in [None, Some("k")] {
            assert!(matches!(open(&log(home), &call(key, false)), OpenOutcome::Started), "{key:?}");
        }
        assert_eq!(findings(home), []);
    });
}

#[test]
fn a_read_only_disk_accepts_no_call() {
    on_small_disk("journal::log::tests::disk::a_read_only_disk_accepts_no_call", 1024 * 1024, |home| {
        let remount = |how: &str| {
            let done =
                Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(home).status().unwrap();
            assert!(done.success());
        };
        fill(home, 3);
        assert!(matches!(open(&log(home), &call(Some("k"), true)), OpenOutcome::Started));
        remount("ro");
        for key in [None, Some("k")] {
            let refused = wait_for(log(home).open(call(key, true))).unwrap_err();
            assert_eq!(refused.kind(), AuditErrorKind::ReadOnly, "{refused}");
        }
        // It can still be verified.
        assert_eq!(findings(home), []);
        remount("rw");
        fill(home, 1);
        assert_eq!(findings(home), []);
    });
}

#[test]
fn files_that_others_can_read_are_refused() {
    let home = tempfile::tempdir().unwrap();
    assert!(matches!(open(&log(home.path()), &call(Some("k"), true)), OpenOutcome::Started));
    fill(home.path(), 1);
    let mut refused = 0;
    for path in files_below(&home.path().join("audit")).into_keys() {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
        // Locks have no content, this process takes no journal with an interrupted call, and no call needs the index or the
        // time of the last retention.
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if ["lock", "owner", "index", "retained"].iter().any(|part| name.contains(part)) {
            continue;
        }
        for exposed in [0o644, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(exposed)).unwrap();
            // A key of its own: the journal of no earlier call is gone on with.
            let key = format!("{} {exposed:o}", path.display());
            let result = wait_for(log(home.path()).open(call(Some(&key), true)));
            // A statement may be read by others.
            if path.ends_with("checkpoint") && exposed == 0o644 {
                assert!(result.is_ok());
            } else {
                let Err(error) = result else { panic!("{}", path.display()) };
                assert_eq!(error.kind(), AuditErrorKind::Exposed, "{}: {error}", path.display());
                assert!(error.kind().fix().contains("chmod 600"));
                refused += 1;
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
    assert!(refused >= 5, "{refused}");
    assert_eq!(findings(home.path()), []);
    let path = segment_files(home.path()).remove(0);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let mut evidence = log(home.path()).evidence().unwrap();
    let key = signer(home.path()).key();
    let verified = verify_log(&mut *evidence, &key, &ExpectedState::default(), &mut |_, _| ());
    assert_eq!(verified.unwrap_err().kind(), AuditErrorKind::Exposed);
}

#[test]
fn an_exposed_host_key_writes_nothing() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 1);
    fs::set_permissions(home.path().join("host.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let before = segment_files(home.path()).iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
    for key in [None, Some("k")] {
        let refused = wait_for(log(home.path()).open(call(key, true))).unwrap_err();
        assert_eq!(refused.kind(), AuditErrorKind::Key, "{refused}");
    }
    let after = segment_files(home.path()).iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
    assert_eq!(after, before);
}

/// Links are not followed, and pipes do not block.
#[test]
fn links_directories_and_pipes_are_not_used() {
    let elsewhere = tempfile::tempdir().unwrap();
    for name in ["keys.db", "keys.lock", "checkpoint.lock", "checkpoint"] {
        for kind in ["link", "directory", "pipe"] {
            let home = tempfile::tempdir().unwrap();
            assert!(matches!(open(&log(home.path()), &call(None, true)), OpenOutcome::Started));
            let path = home.path().join("audit").join(name);
            drop(fs::remove_file(&path));
            match kind {
                "link" => std::os::unix::fs::symlink(elsewhere.path().join("there"), &path).unwrap(),
                "directory" => fs::create_dir(&path).unwrap(),
                _ => super::verified::pipe(&path),
            }
            let opened = wait_for(log(home.path()).open(call(Some("k"), true)));
            match (name, opened) {
                // It is made again.
                ("keys.db", Ok(OpenOutcome::Started)) => {}
                ("keys.lock" | "checkpoint.lock", Err(error)) => {
                    assert_eq!(error.kind(), AuditErrorKind::Corrupt)
                }
                ("checkpoint", Err(error)) => assert_eq!(error.kind(), AuditErrorKind::Lost),
                (_, opened) => panic!("{name}, {kind}: {opened:?}"),
            }
            assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0, "a link is not followed");
        }
    }
}
