//! The power goes: with `power` nothing is lost that was answered, with `process` the end is; the rest holds in both.

use std::path::Path;

use super::disk::{Act, Disk, Files};
use super::{close, done, file, findings, log, open, opening};
use crate::sqlite::{Durability, FILE, LogSettings, SqliteLog};
use crate::{AuditLog as _, CallStatus, Flaw};
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

/// Calls of one run: enough that the write-ahead log is merged into the file and restarted.
const CALLS: usize = 400;

/// Of what was not synced, how much reaches the disk all the same.
const KEPT: [f64; 3] = [0.0, 0.5, 0.9];

/// An answer, and the number of acts of the disk before it.
struct Answer {
    acts: usize,
    id: AuditId,
    ended: bool,
}

/// An audit log whose disk records everything, and the outcomes reported to its callers.
struct Run {
    disk: Disk,
    answers: Vec<Answer>,
    host_key: Vec<u8>,
    /// The signed checkpoints in the checkpoint file, and their times.
    anchors: Vec<(usize, Vec<u8>)>,
}

/// Puts calls on record, one after the other and sometimes many in one commit.
fn run(name: &'static str, durability: Durability) -> Run {
    let home = tempfile::tempdir().unwrap();
    let disk = Disk::mounted(name);
    let settings = LogSettings { durability, vfs: Some(name), ..LogSettings::default() };
    let log = SqliteLog::new(home.path(), settings).unwrap();
    let mut answers = Vec::new();
    let mut heard = |id: &AuditId, ended| answers.push(Answer { acts: disk.acts(), id: id.clone(), ended });
    let mut anchors = Vec::new();
    for round in 0..CALLS / 4 {
        let id = AuditId::mint();
        open(&log, &id).unwrap();
        heard(&id, false);
        close(&log, &id).unwrap();
        heard(&id, true);
        let together: Vec<_> = (0..3).map(|_| AuditId::mint()).collect();
        let opened = together.iter().map(|id| log.open(opening(id, Timestamp::now())));
        for (id, opened) in together.iter().zip(opened.collect::<Vec<_>>()) {
            done(opened).unwrap();
            heard(id, false);
        }
        for id in &together {
            // The last of each round never ends.
            if id != &together[2] {
                close(&log, id).unwrap();
                heard(id, true);
            }
        }
        if round % 16 == 8 {
            super::sign(&log).unwrap();
            anchors.push((disk.acts(), std::fs::read(home.path().join("audit.checkpoint")).unwrap()));
        }
    }
    drop(log);
    let host_key = std::fs::read(home.path().join("host.key")).unwrap();
    Run { disk, answers, host_key, anchors }
}

impl Run {
    /// A machine that starts again with what is left.
    fn started_again(&self, files: &Files, anchor: Option<&[u8]>) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| {
            std::fs::write(home.path().join(name), bytes).unwrap();
            let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(home.path().join(name), own).unwrap();
        };
        files.iter().for_each(|(name, bytes)| put(name, bytes));
        put("host.key", &self.host_key);
        anchor.into_iter().for_each(|anchor| put("audit.checkpoint", anchor));
        home
    }

    /// Says so if any answer is not true any more after the power went. The audit log itself holds, and goes on.
    fn lost(&self, after: usize, kept: f64, seed: u64) -> Option<String> {
        let cut = format!("cut after {after}, {kept} kept, drawn from {seed}");
        let lots = &mut fastrand::Rng::with_seed(seed);
        let files = self.disk.cut(after, kept, lots);
        let home = self.started_again(&files, None);
        let next = AuditId::mint();
        let log = log(home.path());
        open(&log, &next).unwrap();
        let mut reader = log.reader().unwrap();
        let heard = self.answers.iter().filter(|answer| answer.acts <= after);
        let lost = heard.filter(|answer| match reader.call(&answer.id).unwrap() {
            Some(row) => answer.ended && row.status != CallStatus::Value,
            None => true,
        });
        let lost = lost.count();
        drop(reader);
        close(&log, &next).unwrap();
        drop(log);
        assert_eq!(integrity(home.path()), "ok", "{cut}");
        // The checkpoint file is of another home here: that it is missing is found, and nothing else.
        let found = findings(home.path()).into_iter().filter(|found| !found.what.contains("is missing"));
        assert_eq!(found.collect::<Vec<_>>(), [], "{cut}");
        (lost > 0).then(|| format!("{lost} answers lost: {cut}"))
    }

    /// Moments at which the power goes: while the file is made, around what is synced, while the log is copied into
    /// the file, after answers, and at any time.
    fn moments(&self, lots: &mut fastrand::Rng) -> Vec<usize> {
        let all = self.disk.acts();
        let synced = self.disk.when(|_, act| *act == Act::Synced);
        let copied = self.disk.when(|file, _| file == FILE);
        let begun =
            |file: &str, act: &Act| file.ends_with("-wal") && matches!(act, Act::Written { at: 0, .. });
        let begun = self.disk.when(begun).len();
        assert!(begun > 2, "the log was copied into the file and begun anew {begun} times");
        let mut moments: Vec<usize> = (0..copied[0] + 20).step_by(4).collect();
        for _ in 0..8 {
            moments.push(synced[lots.usize(..synced.len())] + lots.usize(..2));
            moments.push(copied[lots.usize(..copied.len())] + lots.usize(..2));
            moments.push(self.answers[lots.usize(..self.answers.len())].acts);
            moments.push(lots.usize(..all));
        }
        moments.push(all);
        moments
    }

    /// Cuts the power at many moments; those at which answers were lost.
    fn losses(&self) -> Vec<String> {
        let mut lots = fastrand::Rng::new();
        let moments = self.moments(&mut lots);
        let moments = moments.into_iter().enumerate();
        moments.filter_map(|(n, after)| self.lost(after, KEPT[n % KEPT.len()], lots.u64(..))).collect()
    }
}

fn integrity(home: &Path) -> String {
    file(home).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

#[test]
fn power_durability_loses_nothing_reported() {
    let run = run("cut-power", Durability::Power);
    assert_eq!(run.losses(), [""; 0]);
    for (after, anchor) in &run.anchors {
        let files = run.disk.cut(*after, 0.0, &mut fastrand::Rng::new());
        assert_eq!(findings(run.started_again(&files, Some(anchor)).path()), []);
    }
}

#[test]
fn process_durability_loses_only_the_end() {
    let run = run("cut-process", Durability::Process);
    assert!(run.losses().len() > 10, "this disk loses nothing: the other test says nothing");
    // A statement that survived for what did not: the proof says so.
    let cut_short = run.anchors.iter().filter(|(after, anchor)| {
        let files = run.disk.cut(*after, 0.0, &mut fastrand::Rng::new());
        let home = run.started_again(&files, Some(anchor));
        // Even a log that is lost entirely is started again.
        open(&log(home.path()), &AuditId::mint()).unwrap();
        findings(home.path()).iter().any(|finding| finding.flaw == Flaw::Truncated)
    });
    assert!(cut_short.count() > 0);
}
