//! Helpers of the tests of the log: calls, processes that are killed, and what is found in a home.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_core::clock::SystemClock;
use cofferdam_core::event::recorded::Received;
use cofferdam_core::failure::AuditId;
use cofferdam_core::host_key;
use jiff::Timestamp;

use super::super::*;
use crate::command::{CallTarget, KeyDisposition, KeyScope};
use crate::journal::writer_dir;
use crate::log::OperatorEventFilter;
pub(super) use crate::log_calls::{DateClock, claim, skipped};
use crate::log_calls::{ending, opening};
use crate::note::NoteSigner;
use crate::verify::{ExpectedState, Finding, VerifyOutcome, verify_log};

pub(super) fn log(home: &Path) -> JournalLog {
    JournalLog::new(home, LogSettings::default(), Arc::new(SystemClock))
}

pub(super) fn wait_for<T>(future: LogFuture<T>) -> Result<T, AuditError> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub(super) fn call(key: Option<&str>, idempotent: bool) -> OpenCall {
    call_at(key, idempotent, Timestamp::UNIX_EPOCH)
}

/// A call that was received then.
pub(super) fn call_at(key: Option<&str>, idempotent: bool, at: Timestamp) -> OpenCall {
    recorded_call(Received::default(), key, idempotent, at)
}

/// A call for the step `one` of the action `act`.
pub(super) fn step_call(key: &str) -> OpenCall {
    step_in(key, None, Timestamp::UNIX_EPOCH)
}

/// A step of a run of the action `act`, which is received with it.
pub(super) fn step_of(run: &OpenCall) -> OpenCall {
    let key = format!("{}/one", run.key.as_ref().unwrap().key);
    OpenCall { at: run.at, ..step_in(&key, Some(&run.audit_id), run.at) }
}

fn step_in(key: &str, run: Option<&AuditId>, at: Timestamp) -> OpenCall {
    let (action, step) = ("act@1.0.0", "one");
    let parent = run.map(|run| run.as_str().into());
    let received =
        Received { action: Some(action.into()), parent, step: Some(step.into()), ..Received::default() };
    let call = recorded_call(received, Some(key), false, at);
    let route = CallTarget { action: Some(action.into()), step: Some(step.into()), ..call.route };
    OpenCall { route, ..call }
}

/// A run of the action `act` under the key `k`, with the step `one`, that was received then.
pub(super) fn run_at(at: Timestamp) -> OpenCall {
    run_under("k", at)
}

/// Such a run under this key.
pub(super) fn run_under(key: &str, at: Timestamp) -> OpenCall {
    let received = Received { action: Some("act@1.0.0".into()), ..Received::default() };
    let of = KeyScope::Action { action: "act@1.0.0".into(), steps: vec![format!("{key}/one").into()] };
    let claim = KeyClaim { of, ..claim(key) };
    OpenCall { key: Some(claim), at, ..recorded_call(received, Some(key), true, at) }
}

fn recorded_call(received: Received<'_>, key: Option<&str>, idempotent: bool, at: Timestamp) -> OpenCall {
    let received = Received { actor: "ada".into(), op: "b".into(), ..received };
    OpenCall { at: Timestamp::now(), ..opening(received, key, idempotent, at) }
}

pub(super) fn resuming(before: &OpenCall) -> OpenCall {
    OpenCall { resumes: Some((before.audit_id.clone(), "bob".into())), ..call(None, before.idempotent) }
}

pub(super) fn end(call: &OpenCall, status: CallStatus, key: KeyDisposition) -> CloseCall {
    ending(call, status, key, Timestamp::UNIX_EPOCH)
}

pub(super) fn value(call: &OpenCall) -> CloseCall {
    end(
        call,
        CallStatus::Value,
        KeyDisposition::Retain(Timestamp::now() + jiff::SignedDuration::from_hours(1)),
    )
}

pub(super) fn open(log: &JournalLog, call: &OpenCall) -> OpenOutcome {
    wait_for(log.open(call.clone())).unwrap()
}

pub(super) fn close(log: &JournalLog, end: CloseCall) {
    wait_for(log.close(None, end)).unwrap();
}

/// Begins and ends a call, and returns its id.
#[track_caller]
pub(super) fn run_call(log: &JournalLog, call: OpenCall) -> AuditId {
    assert!(matches!(open(log, &call), OpenOutcome::Started));
    close(log, value(&call));
    call.audit_id
}

pub(super) fn state(log: &JournalLog, key: &str) -> KeyState {
    wait_for(log.key_state(claim(key))).unwrap()
}

pub(super) fn skip(log: &JournalLog, call: &OpenCall, frees_key: bool) -> bool {
    wait_for(log.resolve(&call.audit_id, skipped(frees_key))).unwrap()
}

/// Ends the process of a log as a kill does: nothing more is written, and its locks are released.
pub(super) fn kill(log: JournalLog) {
    let mut state = log.0.state();
    *state = WriterState::default();
    *log.0.keys.write().unwrap() = None;
}

/// Begins these calls in a process that is killed.
pub(super) fn interrupted(home: &Path, calls: &[&OpenCall]) {
    let killed = log(home);
    calls.iter().for_each(|call| assert!(matches!(open(&killed, call), OpenOutcome::Started)));
    assert!(!skip(&killed, calls[0], false), "its own process lives");
    assert!(!skip(&log(home), calls[0], false), "another process sees that it lives");
    kill(killed);
}

pub(super) fn text_of(home: &Path) -> String {
    let mut text = String::new();
    for writer in writer_dir::names(&home.join(DIRECTORY)).unwrap() {
        for file in fs::read_dir(home.join(DIRECTORY).join(writer)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "jsonl") {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    text
}

/// Returns the changes that operators made, the newest first.
pub(super) fn changes(home: &Path) -> Vec<OperatorEvent<'static>> {
    let changes = log(home).reader().unwrap().operator_events(&OperatorEventFilter::default()).unwrap();
    changes.into_iter().map(|change| change.event).collect()
}

/// Opens a log whose segments have some ten entries.
pub(super) fn small_log(home: &Path) -> JournalLog {
    log(home).with_segment_bytes(4_000)
}

pub(super) fn sign(log: &JournalLog) -> String {
    wait_for(log.sign()).unwrap()
}

/// Returns how much of something is tried: as much as this variable asks for.
pub(super) fn sample_size(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |asked| asked.parse().unwrap())
}

/// Runs calls that were received then, in small segments, and returns their ids.
pub(super) fn fill_at(home: &Path, calls: usize, at: Timestamp) -> Vec<AuditId> {
    let log = small_log(home);
    (0..calls).map(|_| run_call(&log, call_at(None, true, at))).collect()
}

pub(super) fn fill(home: &Path, calls: usize) -> Vec<AuditId> {
    fill_at(home, calls, Timestamp::UNIX_EPOCH)
}

pub(super) fn signer(home: &Path) -> NoteSigner {
    NoteSigner::new(&host_key::load_or_create(&home.join("host.key")).unwrap())
}

/// Verifies the log of a home.
pub(super) fn verified(home: &Path) -> VerifyOutcome {
    verified_if(home, true)
}

/// Verifies the log of a home, which has one as far as is known, or may have none.
pub(super) fn verified_if(home: &Path, is_log_expected: bool) -> VerifyOutcome {
    let mut evidence = log(home).evidence().unwrap();
    let expected = ExpectedState { is_log_expected, ..ExpectedState::default() };
    verify_log(&mut *evidence, &signer(home).key(), &expected, &mut |_, _| ()).unwrap()
}

pub(super) fn findings(home: &Path) -> Vec<Finding> {
    verified(home).findings
}

/// Returns the directories of the journals.
pub(super) fn journals(home: &Path) -> Vec<PathBuf> {
    let root = home.join(DIRECTORY);
    writer_dir::names(&root).unwrap().into_iter().map(|name| root.join(name)).collect()
}

/// Returns the segments of all journals, in order.
pub(super) fn segment_files(home: &Path) -> Vec<PathBuf> {
    let of = |dir: PathBuf| {
        let firsts = crate::journal::segment::segments(&dir).unwrap();
        firsts.into_iter().map(move |first| dir.join(format!("{first:012}.jsonl")))
    };
    journals(home).into_iter().flat_map(of).collect()
}

/// Removes the last lines of a file.
pub(super) fn cut_lines(path: &Path, lines: usize) {
    let text = fs::read_to_string(path).unwrap();
    let kept = text.lines().count() - lines;
    fs::write(path, text.split_inclusive('\n').take(kept).collect::<String>()).unwrap();
}

/// Puts a directory in the place of a file.
pub(super) fn make_dir(path: &Path) {
    drop(fs::remove_file(path));
    fs::create_dir(path).unwrap();
}

/// The files below a directory, with their contents.
pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Returns the files below a directory.
pub(super) fn files_below(dir: &Path) -> Files {
    let mut files = Files::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => drop(files.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    files
}

/// Writes a file that is its owner's alone.
pub(super) fn write_private(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Makes the files of a directory those, and no others.
pub(super) fn put_back(dir: &Path, files: &Files) {
    if dir.exists() {
        fs::remove_dir_all(dir).unwrap();
    }
    files.iter().for_each(|(path, bytes)| write_private(path, bytes));
}

/// Writes the files of one home to another one.
pub(super) fn copy_to(home: &Path, from: &Path, files: &Files) {
    for (path, bytes) in files {
        write_private(&home.join(path.strip_prefix(from).unwrap()), bytes);
    }
}
