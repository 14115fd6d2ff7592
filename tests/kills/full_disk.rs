//! A disk that is full under load: reported outcomes persist, every run is logged, and with space again all
//! calls are resolved.

use std::process::Command;

use super::checker::KillChecker;
use super::fixture::{Job, Load, Op, Stage};

/// The command with a limit on the size of files, as a full disk is one; in blocks of 512 bytes.
fn limited(command: &Command, blocks: u32) -> Command {
    let mut limited = Command::new("sh");
    // The default action of the signal that comes with it is to end the process: the command itself has to
    // handle it.
    let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\" <\"$LINES\"");
    limited.arg("-c").arg(script).arg(command.get_program()).args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            limited.env(name, value);
        }
    }
    limited
}

#[test]
fn a_full_disk_loses_nothing_reported() {
    let (stage, mut checker) = (Stage::new(), KillChecker::new());
    for op in Op::BOTH {
        let jobs = |name: &str, n: usize| -> Vec<Job> {
            (0..n).map(|n| Job { name: format!("{}-{name}-{n}", op.name()), op, keyed: n % 2 == 0 }).collect()
        };
        // The compiled connector is stored before the disk is full.
        let room = stage.start(jobs("room", 4), 2, "").end();
        assert!(room.status.success());
        checker.hears(&room);
        let full = jobs("full", 400);
        let mut command = limited(&stage.command(&full, 8), 2 * 400);
        command.env("LINES", stage.lines(&full));
        let mut load = Load::of(command, full);
        load.fails();
        let left = load.kill();
        let told = |word: &str| left.lines.iter().filter(|line| line.contains(word)).count();
        assert!(told("\"value\"") > 0, "there was room for some: {:?}", left.lines);
        assert!(told("audit_unavailable") + told("outcome_unknown") > 0, "{:?}", left.lines);
        checker.hears(&left);
        let findings = checker.finds(&stage);
        assert!(findings.is_empty(), "{op:?}: {findings:#?}");
    }
    checker.replays(&stage, checker.told.keys().filter(|id| checker.told[*id].1.get("value").is_some()));
    stage.is_recovered(&mut checker);
}
