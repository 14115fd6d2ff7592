//! The audit log in real files: shared by the tests of this folder.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod disk;
mod lost;
mod opened;
mod power;
mod pruned;
mod quota;
mod replaced;
mod signed;
mod tampered;
mod written;

use cofferdam_core::event::recorded::{EventLine, EventText, RecordedEvent, Resolution};
use std::path::Path;
use std::sync::Arc;

use cofferdam_core::failure::AuditId;
use cofferdam_core::host_key;
use jiff::Timestamp;
use rusqlite::Connection;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{LogSettings, SqliteLog};
use crate::anchor::Anchor;
use crate::entry::{GENESIS, chained};
use crate::note::NoteSigner;
use crate::{
    AuditError, AuditLog as _, CallOutcome, CallStatus, CallTarget, CloseCall, Entry, Expected, FINDINGS,
    Finding, KeyDisposition, LogFuture, OpenCall, OpenOutcome, Outcome, Sealer, whole,
};

/// Opens the audit log of this home with a short busy timeout.
pub(crate) fn log(home: &Path) -> SqliteLog {
    let busy_timeout = std::time::Duration::from_millis(50);
    SqliteLog::new(home, LogSettings { busy_timeout, ..LogSettings::default() }).unwrap()
}

/// Waits for the result of a command.
pub(crate) fn done<T>(answer: LogFuture<T>) -> Result<T, AuditError> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(answer)
}

fn line(seq: u32, name: &str, at: Timestamp, payload: Value) -> EventText {
    let payload = serde_json::value::to_raw_value(&payload).unwrap();
    EventLine { at, seq, event: RecordedEvent::read(name, &payload) }.to_text()
}

/// The beginning of a call.
pub(crate) fn opening(id: &AuditId, at: Timestamp) -> OpenCall {
    let (connector, op) = ("github://acme/hello@0.1.0", "greet");
    let received = json!({"connector": connector, "op": op, "actor": "tester"});
    let admitted =
        json!({"connector": connector, "idempotent": true, "arguments": {"bytes": 2, "sha256": "x"}});
    let lines = [
        line(1, "received", at, received),
        line(2, "admitted", at, admitted),
        line(3, "attempt_started", at, json!({"attempt": 1})),
    ];
    OpenCall {
        audit_id: id.clone(),
        at,
        route: CallTarget { connector: connector.into(), op: op.into(), action: None, step: None },
        actor: Arc::from("tester"),
        idempotent: true,
        key: None,
        resumes: None,
        entry: Entry::new(id, &lines),
        request: None,
    }
}

/// Its end, with a value.
pub(crate) fn closing(id: &AuditId, at: Timestamp) -> CloseCall {
    let outcome = json!({"status": "value", "class": null, "code": null});
    let lines = [line(4, "attempt_ended", at, json!({"attempt": 1})), line(5, "final", at, outcome)];
    CloseCall {
        audit_id: id.clone(),
        at,
        duration_us: 1_000,
        attempts: 1,
        verdict: CallOutcome { status: CallStatus::Value, class: None, code: None },
        key: KeyDisposition::Release,
        entry: Entry::new(id, &lines),
        outcome: None,
    }
}

/// Has a call begun.
pub(crate) fn open(log: &SqliteLog, id: &AuditId) -> Result<OpenOutcome, AuditError> {
    done(log.open(opening(id, Timestamp::now())))
}

/// Has a call ended.
pub(crate) fn close(log: &SqliteLog, id: &AuditId) -> Result<(), AuditError> {
    done(log.close(None, closing(id, Timestamp::now())))
}

/// Puts so many calls on record, and ends.
pub(crate) fn fill(home: &Path, calls: usize) -> Vec<AuditId> {
    fill_at(home, calls, Timestamp::now())
}

/// Has it signed for, as it is.
pub(crate) fn sign(log: &SqliteLog) -> Result<String, AuditError> {
    done(log.sign())
}

/// Puts so many calls on record that were received then, and ends.
pub(crate) fn fill_at(home: &Path, calls: usize, at: Timestamp) -> Vec<AuditId> {
    let log = log(home);
    let ids: Vec<_> = (0..calls).map(|_| AuditId::mint()).collect();
    for id in &ids {
        done(log.open(opening(id, at))).unwrap();
        done(log.close(None, closing(id, at))).unwrap();
    }
    ids
}

/// The proof of the audit log in this home.
pub(crate) fn proof(home: &Path) -> Outcome {
    let evidence = super::evidence::Evidence::open(&home.join(super::FILE)).unwrap();
    proof_of(home, evidence).1
}

/// The proof of this view.
fn proof_of(home: &Path, mut evidence: super::evidence::Evidence) -> (super::evidence::Evidence, Outcome) {
    let host_key = host_key::load_or_create(&home.join("host.key")).unwrap();
    let (key, sealer) = (NoteSigner::new(&host_key).key(), Sealer::new(&host_key));
    let file = Anchor::of(home).read().unwrap();
    let expected = Expected { file: file.as_deref(), pinned: &[], log: None, findings: FINDINGS };
    let outcome = whole(&mut evidence, &key, &sealer, &expected, &mut |_, _| ()).unwrap();
    (evidence, outcome)
}

/// Returns the findings in this home.
pub(crate) fn findings(home: &Path) -> Vec<Finding> {
    proof(home).findings
}

/// Changes the text of every entry and rebuilds the chain, as an attacker without a key can.
pub(crate) fn rewritten(home: &Path, from: &str, to: &str, and: &str) {
    let connection = file(home);
    let mut select = connection.prepare("SELECT n, body FROM entries ORDER BY n").unwrap();
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let entries: Vec<(u64, String)> = rows.collect::<Result<_, _>>().unwrap();
    let mut hash = GENESIS;
    for (n, body) in entries {
        let body = body.replace(from, to);
        hash = chained(&hash, n, &Sha256::digest(&body).into());
        let update = "UPDATE entries SET body = ?2, hash = ?3 WHERE n = ?1";
        connection.execute(update, rusqlite::params![n, body, hash]).unwrap();
    }
    connection.execute_batch(and).unwrap();
}

/// Opens the file as a process that is not a host.
pub(crate) fn file(home: &Path) -> Connection {
    Connection::open(home.join(super::FILE)).unwrap()
}

pub(crate) fn count(home: &Path, table: &str) -> u64 {
    file(home).query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}
