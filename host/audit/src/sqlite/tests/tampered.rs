//! Changes by an attacker with write access to the file: each is found, and reported with the number of the
//! first entry.

use rusqlite::params;

use super::*;
use crate::Flaw;
use crate::sqlite::evidence::Evidence;

/// A record of 20 calls, and what is found in it after `change`.
fn after(change: &str) -> Vec<(u64, Flaw)> {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 20);
    file(home.path()).execute_batch(change).unwrap();
    findings(home.path()).iter().map(|finding| (finding.n, finding.flaw)).collect()
}

#[test]
fn edited_missing_moved_inserted_and_truncated() {
    let first = |change: &str| *after(change).first().unwrap();
    assert_eq!(after(""), []);
    assert_eq!(
        first("UPDATE entries SET body = replace(body, 'tester', 'nobody') WHERE n = 7"),
        (7, Flaw::Edited)
    );
    assert_eq!(first("UPDATE entries SET hash = zeroblob(32) WHERE n = 7"), (7, Flaw::Edited));
    assert_eq!(first("DELETE FROM entries WHERE n = 7"), (7, Flaw::Missing));
    let swap = "UPDATE entries SET n = 1000 WHERE n = 7; UPDATE entries SET n = 7 WHERE n = 9; \
                UPDATE entries SET n = 9 WHERE n = 1000";
    assert_eq!(first(swap), (7, Flaw::Edited));
    let insert = "UPDATE entries SET n = n + 1000 WHERE n > 7; INSERT INTO entries (n, prev, body, hash) SELECT 8, prev, \
                  body, hash FROM entries WHERE n = 3; UPDATE entries SET n = n - 999 WHERE n > 1000";
    assert_eq!(first(insert), (8, Flaw::Edited));
    assert_eq!(first("DELETE FROM entries WHERE n < 5"), (5, Flaw::Beginning));
    let cut = "DELETE FROM entries WHERE n > 36; DELETE FROM calls WHERE last > 36; DELETE FROM checkpoints";
    assert_eq!(after(cut), [(37, Flaw::Truncated), (36, Flaw::Signature)]);
    assert_eq!(
        first("DELETE FROM entries; DELETE FROM calls; DELETE FROM checkpoints"),
        (1, Flaw::Truncated)
    );
    let forged = "UPDATE checkpoints SET note = replace(note, 'time 2', 'time 3')";
    // It does not verify, and there is no other.
    assert_eq!(after(forged), [(40, Flaw::Signature), (40, Flaw::Signature)]);
    assert_eq!(first("UPDATE entries SET sealed = x'00' WHERE n = 7"), (7, Flaw::Sealed));
}

#[test]
fn a_recomputed_chain_fails_its_signature() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 20);
    // An attacker that knows the format needs no key for hashes.
    let connection = file(home.path());
    connection
        .execute_batch("UPDATE entries SET body = replace(body, 'tester', 'nobody') WHERE n = 7")
        .unwrap();
    connection.execute_batch("UPDATE calls SET actor = 'nobody' WHERE first = 7").unwrap();
    let mut hash = crate::GENESIS;
    for n in 1..=40_u64 {
        let select = "SELECT body FROM entries WHERE n = ?1";
        let body: String = connection.query_row(select, [n], |row| row.get(0)).unwrap();
        hash = crate::chained(&hash, n, cofferdam_core::digest::Digest::sha256(body.as_bytes()).as_bytes());
        connection.execute("UPDATE entries SET hash = ?2 WHERE n = ?1", params![n, hash]).unwrap();
    }
    drop(connection);
    let found = findings(home.path());
    assert_eq!(found.first().map(|finding| (finding.n, finding.flaw)), Some((40, Flaw::Rewritten)));
}

#[test]
fn derived_tables_match_the_chain() {
    for change in [
        "UPDATE calls SET at = at + 1 WHERE first = 7",
        "UPDATE calls SET actor = 'nobody' WHERE first = 7",
        "UPDATE calls SET idempotent = 0 WHERE first = 7",
        "UPDATE calls SET first = 5 WHERE first = 7",
        "UPDATE calls SET last = 10 WHERE first = 7",
        "UPDATE calls SET verdict = 0 WHERE first = 7",
        "UPDATE calls SET route = 99 WHERE first = 7",
        "UPDATE calls SET attempts = 9 WHERE first = 7",
        "DELETE FROM calls WHERE first = 7",
        "UPDATE calls SET id = randomblob(16) WHERE first = 7",
        "UPDATE entries SET prev = 5 WHERE n = 8",
        "INSERT INTO verdicts VALUES (2, 2, 'network_error', 'refused'); UPDATE calls SET verdict = 2 WHERE first = 7",
    ] {
        let found = after(change);
        assert_eq!(found.first(), Some(&(8, Flaw::Calls)), "{change}: {found:?}");
    }
    let more = "INSERT INTO calls SELECT randomblob(16), at, route, actor, idempotent, owner, first, last, verdict, \
                duration, attempts, key, sealed FROM calls WHERE first = 7";
    assert_eq!(after(more), [(7, Flaw::Calls)]);
    let key = "INSERT INTO keys SELECT 'mine', zeroblob(32), id, 1, 0 FROM calls WHERE first = 7";
    assert_eq!(after(key), [(8, Flaw::Keys)]);
}

#[test]
fn a_thousand_random_changes_are_located() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 20);
    let mut lots = fastrand::Rng::with_seed(6);
    let mut connection = file(home.path());
    for round in 0..1_000 {
        let n = lots.u64(1..=40);
        connection.execute_batch("BEGIN").unwrap();
        let kind = lots.u8(0..6);
        let flip = |column: &str, lots: &mut fastrand::Rng| {
            let select = format!("SELECT CAST({column} AS BLOB) FROM entries WHERE n = ?1");
            let mut bytes: Vec<u8> = connection.query_row(&select, [n], |row| row.get(0)).unwrap();
            let at = lots.usize(..bytes.len());
            bytes[at] ^= 1 << lots.u8(0..8);
            bytes
        };
        match kind {
            0 | 1 => {
                let bytes = flip("body", &mut lots);
                let update = "UPDATE entries SET body = CAST(?2 AS TEXT) WHERE n = ?1";
                connection.execute(update, params![n, bytes]).unwrap();
            }
            2 => {
                let bytes = flip("hash", &mut lots);
                connection.execute("UPDATE entries SET hash = ?2 WHERE n = ?1", params![n, bytes]).unwrap();
            }
            3 => drop(connection.execute("DELETE FROM entries WHERE n = ?1", [n]).unwrap()),
            4 => drop(connection.execute("UPDATE entries SET n = n + 1000 WHERE n = ?1", [n]).unwrap()),
            _ => {
                let update = "UPDATE entries SET prev = prev + ?2 WHERE n = ?1";
                connection.execute(update, params![n, lots.u64(1..50)]).unwrap();
            }
        }
        let (evidence, outcome) = proof_of(home.path(), Evidence::of(connection).unwrap());
        connection = evidence.into_inner();
        let named: Vec<_> = outcome.findings.iter().map(|finding| finding.n).collect();
        // If the first entry is removed, nothing shows that there was one.
        let first = named.first().copied();
        let beginning = matches!(kind, 3 | 4) && n == 1;
        assert!(
            first == Some(n) || (beginning && first == Some(2)),
            "{round}: kind {kind} at {n}: {named:?}"
        );
        connection.execute_batch("ROLLBACK").unwrap();
    }
}

#[test]
fn a_changed_key_is_found() {
    let home = tempfile::tempdir().unwrap();
    let until = Timestamp::now().checked_add(std::time::Duration::from_secs(86_400)).unwrap();
    let (key, print) = ("order-17", [7; 32]);
    {
        let log = log(home.path());
        let id = AuditId::mint();
        let mut call = opening(&id, Timestamp::now());
        call.key = Some(crate::KeyClaim {
            key: key.into(),
            fingerprint: print,
            at: call.at,
            of: crate::KeyScope::Call,
        });
        let claim = json!({"key_sha256": cofferdam_core::digest::Digest::sha256(key.as_bytes()).to_string(),
            "fingerprint": cofferdam_core::digest::Digest::from_bytes(print).to_string()});
        let received = json!({"connector": "github://acme/hello@0.1.0", "op": "greet", "actor": "tester"});
        let lines = [
            line(1, "received", call.at, received),
            line(2, "admitted", call.at, json!({"idempotent": true, "claim": claim})),
            line(3, "attempt_started", call.at, json!({"attempt": 1})),
        ];
        call.entry = Entry::new(&id, &lines);
        done(log.open(call)).unwrap();
        let mut end = closing(&id, Timestamp::now());
        end.key = KeyDisposition::Retain(until);
        let key_end = json!({"state": "keeps", "until": until.to_string()});
        let last = json!({"status": "value", "class": null, "code": null, "key_end": key_end});
        let lines = [line(4, "attempt_ended", end.at, json!({})), line(5, "final", end.at, last)];
        end.entry = Entry::new(&id, &lines);
        done(log.close(None, end)).unwrap();
    }
    assert_eq!(findings(home.path()), []);
    for change in [
        "DELETE FROM keys",
        "UPDATE keys SET until = 0",
        "UPDATE keys SET fingerprint = zeroblob(32)",
        "UPDATE keys SET state = 2, until = NULL",
        "UPDATE keys SET key = 'other'; UPDATE calls SET key = 'other'",
        "UPDATE calls SET key = NULL",
    ] {
        let copy = tempfile::tempdir().unwrap();
        for name in ["audit.db", "audit.checkpoint", "host.key"] {
            std::fs::copy(home.path().join(name), copy.path().join(name)).unwrap();
        }
        file(copy.path()).execute_batch(change).unwrap();
        assert!(findings(copy.path()).iter().any(|found| found.flaw == Flaw::Keys), "{change}");
    }
}
