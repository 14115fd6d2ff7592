//! The command is killed between the steps of an action, and given the same key again: nothing is done twice that must
//! not be.

use std::os::unix::process::ExitStatusExt as _;

use serde_json::Value;

use super::fixture::{ActionHome, step};

/// The failpoint of the kill, and how often it is passed before. For failpoints of calls, the second and later
/// passes are in later steps.
const POINTS: [(&str, u32); 13] = [
    ("open.durable", 1),
    ("step.begins", 1),
    ("attempt.begins", 1),
    ("step.ended", 1),
    ("step.begins", 2),
    ("attempt.begins", 2),
    ("request.answered", 2),
    ("attempt.ended", 2),
    ("close.durable", 2),
    ("step.ended", 2),
    ("attempt.begins", 3),
    ("step.ended", 3),
    ("close.durable", 4),
];

#[test]
fn the_same_key_repeats_no_step_after_a_kill() {
    let ground = ActionHome::own();
    let cli = ground.cli();
    for (point, count) in POINTS {
        let name = format!("kill-{}-{count}", point.replace('.', "-"));
        let path = |step: &str| format!("/text/{name}-{step}");
        let url = |step: &str| ground.upstream.url(&path(step));
        let rest = [
            step("find", "fetch", &format!("url = \"{}\"", url("find")), ""),
            step("pay", "post", &format!("url = \"{}\", body = \"${{steps.find.body}}\"", url("pay")), ""),
            step("note", "order", &format!("url = \"{}\", body = \"n\", labels = [\"a\"]", url("note")), ""),
        ];
        ground.action(&name, &rest.concat());
        let args = ["run", &name, "--key", &name, "--format", "json"];
        let mut command = cli.command(&args);
        command.env("COFFERDAM_FAILPOINTS", format!("{point}:{count}=kill"));
        let killed = command.output().unwrap();
        assert_eq!(killed.status.signal(), Some(9), "{point}:{count} was not passed: {killed:?}");
        assert!(killed.stdout.is_empty(), "{point}:{count}: nothing is told that is not whole");
        let listed = cli.run(&["recover", "list", "--format", "json"]).json();
        let own = |call: &&Value| call["action"] == format!("{name}@1.0.0");
        let cut: Vec<_> = listed.as_array().unwrap().iter().filter(own).collect();
        let whole: Vec<_> = cut.iter().filter(|call| call["op"] == "run").collect();
        let is_over = (point, count) == ("close.durable", 4);
        assert_eq!(whole.len(), usize::from(!is_over), "{point}:{count}: {listed:#}");
        if let [whole] = whole[..] {
            assert_eq!((&whole["resumable"], &whole["replayable"]), (&false.into(), &false.into()));
            assert!(whole["hint"].as_str().unwrap().contains("under the same key"), "{whole}");
            assert_eq!((&whole["idempotency_key"], whole.get("arguments")), (&name.clone().into(), None));
            let id = whole["audit_id"].as_str().unwrap();
            let refused = cli.run(&["recover", "resume", id]).fails(87).envelope();
            assert_eq!(refused["error"]["details"]["reason"], "an_action");
        }
        let in_doubt = cut.iter().any(|call| call["step"] == "pay");
        let again = cli.run(&args);
        let pays = ground.asked(&path("pay"));
        assert!(pays <= 1, "{point}:{count}: paid {pays} times");
        match in_doubt {
            // Only the service knows, so nothing is done until the operator has checked.
            true => {
                let again = again.fails(85);
                let error = &again.envelope()["error"];
                assert_eq!(
                    (&error["code"], &error["details"]["step"]),
                    (&"outcome_unknown".into(), &"pay".into())
                );
                let details = &error["details"];
                assert_eq!(details["done"], serde_json::json!(["find"]));
                assert_eq!(
                    (&details["not_again"][0], &details["again"]),
                    (&"pay".into(), &"under_key".into())
                );
                assert_eq!(ground.asked(&path("note")), 0);
            }
            false => {
                let value = again.json();
                assert_eq!(value["steps"]["note"]["status"], 200, "{point}:{count}: {value}");
                assert_eq!(pays, 1, "{point}:{count}");
                // A repeatable step is repeated only where it was interrupted.
                assert!(ground.asked(&path("note")) <= 2 && ground.asked(&path("find")) <= 2);
            }
        }
        cli.run(&["audit", "verify"]).ok();
    }
    let listed = cli.run(&["recover", "list", "--format", "json"]).json();
    for call in listed.as_array().unwrap() {
        assert_eq!(call["step"], "pay", "the actions themselves are decided about: {call}");
    }
}

#[test]
fn a_killed_action_without_a_key_can_be_skipped() {
    let ground = ActionHome::own();
    let cli = ground.cli();
    ground.action(
        "keyless",
        &step(
            "pay",
            "post",
            &format!("url = \"{}\", body = \"x\"", ground.upstream.url("/text/keyless")),
            "",
        ),
    );
    let mut command = cli.command(&["run", "keyless"]);
    command.env("COFFERDAM_FAILPOINTS", "request.answered=kill");
    assert_eq!(command.status().unwrap().signal(), Some(9));
    let listed = cli.run(&["recover", "list", "--format", "json"]).json();
    let whole = listed.as_array().unwrap().iter().find(|call| call["op"] == "run").unwrap();
    assert_eq!((&whole["may_have_sent"], &whole["attempts"]), (&true.into(), &1.into()));
    assert!(whole["hint"].as_str().unwrap().contains("it had no key"), "{whole}");
    let id = whole["audit_id"].as_str().unwrap();
    cli.run(&["replay", id]).fails(87).said("cut short");
    cli.run(&["recover", "skip", id, "--reason", "paid, I looked"]).ok();
    let left = cli.run(&["recover", "list", "--format", "json"]).json();
    assert!(!left.to_string().contains(id), "{left}");
    cli.run(&["audit", "verify"]).ok();
}
