//! The log's writer: it panics, and it is killed while it signs or records a resolution.

use super::checker::KillChecker;
use super::fixture::{Job, Load, Op, Stage};

fn jobs(name: &str) -> Vec<Job> {
    (0..4).map(|n| Job { name: format!("{name}-{n}"), op: Op::Order, keyed: n % 2 == 0 }).collect()
}

#[test]
fn a_writer_recovers_from_a_panic_without_loss() {
    let (stage, mut checker) = (Stage::new(), KillChecker::new());
    // As it begins calls, as it ends them, and as it signs; with one call at a time, no other one wakes the writer.
    for (point, at_once) in [
        ("before.commit:1", 1),
        ("before.commit:1", 2),
        ("before.commit:3", 2),
        ("after.commit:1", 1),
        ("after.commit:2", 2),
        ("before.commit:1=panic,before.commit:2", 1),
        ("checkpoint.before", 2),
        ("checkpoint.after", 2),
    ] {
        let name = format!("{}-{at_once}", point.replace([':', '=', ',', '.'], "-"));
        let left = stage.start(jobs(&name), at_once, &format!("{point}=panic")).end();
        assert!(left.status.success(), "{point}: {:?}", left.lines);
        checker.hears(&left);
        assert_eq!(checker.finds(&stage), Vec::<String>::new(), "{point}");
    }
    assert!(checker.without_end().is_empty());
    stage.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn accepting_a_loss_survives_a_kill() {
    for point in ["accept.committed", "checkpoint.written"] {
        let stage = Stage::new();
        assert!(stage.start(jobs("lost"), 1, "").end().status.success());
        stage.home.edit_segment(|lines| lines.truncate(4));
        let _ = stage.cli().run(&["audit", "verify"]).fails(86);
        let accept = ["audit", "verify", "--accept-loss"];
        let mut command = stage.cli().command(&accept);
        command.env("COFFERDAM_FAILPOINTS", format!("{point}=kill"));
        assert!(Load::of(command, Vec::new()).end().was_killed(), "{point}");
        // Nothing is acknowledged that the checkpoint file contradicts.
        let _ = stage.cli().run(&["audit", "verify"]).fails(86);
        stage.cli().run(&accept).ok();
        stage.cli().run(&["audit", "verify"]).ok();
        assert!(stage.start(jobs("after"), 1, "").end().status.success());
        stage.cli().run(&["audit", "verify"]).ok();
    }
}
