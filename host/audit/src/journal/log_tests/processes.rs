//! Journals of real processes: written by many at once, and by some that are killed.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::support::*;
use super::*;
use crate::hex::hex;

const HOME: &str = "COFFERDAM_TEST_HOME";
const CALLS: &str = "COFFERDAM_TEST_CALLS";

/// Prints each call once its beginning, and once its end, is acknowledged.
#[test]
#[ignore = "a process that other tests start"]
fn calls_of_a_process() {
    let home = PathBuf::from(std::env::var_os(HOME).unwrap());
    let count: usize = std::env::var(CALLS).unwrap().parse().unwrap();
    let log = log(&home);
    for n in 0..count {
        let key = n.is_multiple_of(3).then(|| format!("{}-{n}", std::process::id()));
        let call = call(key.as_deref(), false);
        // As a host does, which tries again: the other processes may have the key table for longer than one waits.
        let is_locked = |error: &AuditError| error.kind() == AuditErrorKind::Locked;
        let mut opened = wait_for(log.open(call.clone()));
        while opened.as_ref().is_err_and(is_locked) {
            opened = wait_for(log.open(call.clone()));
        }
        assert!(matches!(opened, Ok(OpenOutcome::Started)), "{opened:?}");
        println!("\nreceived {}", call.audit_id);
        close(&log, value(&call));
        println!("\nfinal {} {}", call.audit_id, key.as_deref().unwrap_or_default());
    }
}

/// Starts a process with calls of its own in this home.
fn process(home: &Path, calls: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "journal::log::tests::processes::calls_of_a_process", "--ignored", "--nocapture"])
        .env(HOME, home)
        .env(CALLS, calls.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads all journals without any code of the host, and checks their chains. Returns how often each call has each event.
fn events_of(home: &Path) -> HashMap<(String, String), usize> {
    let mut events = HashMap::new();
    for writer in fs::read_dir(home.join("audit")).unwrap().map(|writer| writer.unwrap().path()) {
        if !writer.is_dir() {
            continue;
        }
        let segments = fs::read_dir(&writer).unwrap().map(|file| file.unwrap().path());
        let mut segments: Vec<_> =
            segments.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl")).collect();
        segments.sort();
        let (mut n, mut hash) = (0, [0; 32]);
        for (place, path) in segments.iter().enumerate() {
            let text = fs::read_to_string(path).unwrap();
            assert!(text.ends_with('\n') || place + 1 == segments.len(), "{}", path.display());
            for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
                let entry: Value = serde_json::from_str(line).unwrap();
                n += 1;
                assert_eq!((entry["n"].as_u64(), entry["prev"].as_str()), (Some(n), Some(&*hex(&hash))));
                hash = Sha256::digest(line.as_bytes()).into();
                for event in entry["events"].as_array().into_iter().flatten() {
                    let text = |value: &Value| value.as_str().unwrap().to_owned();
                    *events.entry((text(&entry["audit_id"]), text(&event["type"]))).or_default() += 1;
                }
            }
        }
    }
    events
}

/// Checks that all that was acknowledged is in the journals once, and that keys have their outcomes.
fn check(home: &Path, printed: &str) {
    let events = events_of(home);
    let log = log(home);
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    for line in printed.lines() {
        let mut words = line.split(' ');
        let Some(event) = words.next().filter(|word| ["received", "final"].contains(word)) else { continue };
        let id = words.next().unwrap().to_owned();
        assert_eq!(events.get(&(id, event.to_owned())), Some(&1), "{line}");
        if let Some(key) = words.next().filter(|key| !key.is_empty()) {
            let state = runtime.block_on(log.key_state(claim(key))).unwrap();
            assert!(matches!(state, KeyState::Done { outcome: Some(_), .. }), "{line}");
        }
    }
    assert!(events.values().all(|count| *count == 1));
    assert_eq!(log.loss().unwrap(), None);
}

fn output_of(child: Child) -> String {
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled_by_kills() {
    let home = tempfile::tempdir().unwrap();
    let mut printed = String::new();
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..12 {
        let processes: Vec<_> = (0..3).map(|_| process(home.path(), 100_000)).collect();
        for mut child in processes {
            std::thread::sleep(Duration::from_millis(rng.u64(20..120)));
            child.kill().unwrap();
            printed.push_str(&output_of(child));
        }
    }
    assert!(printed.matches("final").count() > 100, "the processes did nothing");
    check(home.path(), &printed);
}

#[test]
fn many_processes_write_every_call_once() {
    let home = tempfile::tempdir().unwrap();
    let processes: Vec<_> = (0..50).map(|_| process(home.path(), 200)).collect();
    let printed: String = processes.into_iter().map(output_of).collect();
    assert_eq!(printed.matches("final").count(), 50 * 200);
    check(home.path(), &printed);
}
