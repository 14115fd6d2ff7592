//! Resuming a killed call is cancelled, and killed as well: the call stays open, and is resolved once.

use serde_json::{Value, json};

use super::checker::KillChecker;
use super::fixture::{Job, Load, Op, Stage};

fn listed(stage: &Stage) -> Vec<Value> {
    let list = stage.cli().run(&["recover", "list", "--format", "json"]).json();
    list.as_array().unwrap().clone()
}

fn status(stage: &Stage, call: &Value) -> Value {
    let shown = stage.cli().run(&["audit", "show", call.as_str().unwrap(), "--format", "json"]).json();
    shown["status"].clone()
}

fn requests(stage: &Stage, job: &str) -> usize {
    stage.upstream.seen(&format!("/text/{job}")).len()
}

#[test]
fn a_cancelled_resume_can_still_be_resolved() {
    // After the commit that resolves the first call, and before the guest; then the process ends normally, or
    // is killed before or after its end is logged.
    for (n, then) in ["", "before.commit=kill", "close.committed=kill"].into_iter().enumerate() {
        for keyed in [false, true] {
            let stage = Stage::new();
            let job = Job { name: format!("cancelled-{n}-{keyed}"), op: Op::Order, keyed };
            let left = stage.start(vec![job.clone()], 1, "request.answered=kill").end();
            assert!(left.was_killed());
            let first = listed(&stage).remove(0)["audit_id"].clone();
            let points = format!("open.unheard=skip,{}", then.replace("before.commit", "before.commit:2"));
            // By its id, or by its key.
            let load = match keyed {
                true => stage.start(vec![job.clone()], 1, &points),
                false => {
                    let mut command = stage.cli().command(&["recover", "resume", first.as_str().unwrap()]);
                    command.env("COFFERDAM_FAILPOINTS", points);
                    Load::of(command, Vec::new())
                }
            };
            // Its own status, not the list: under load that was empty once while the other host had only started.
            let begun = std::time::Instant::now();
            while status(&stage, &first) != "resumed" {
                assert!(begun.elapsed().as_secs() < 60, "{then} {keyed}: it is never settled");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let left = load.interrupt();
            assert_eq!(left.was_killed(), !then.is_empty(), "{then}: {:?}", left.status);
            assert_eq!(requests(&stage, &job.name), 1, "it never ran");
            let list = listed(&stage);
            assert_eq!(list.len(), 1, "{then}: {list:?}");
            assert_ne!(list[0]["audit_id"], first);
            assert_eq!((&list[0]["resumable"], &list[0]["may_have_sent"]), (&json!(true), &json!(true)));
            if then != "before.commit=kill" {
                assert_eq!(list[0]["reason"], "cancelled");
            }
            stage.cli().run(&["audit", "verify"]).ok();
            // It is resumed once, however often that is requested.
            let done: Value =
                serde_json::from_str(&stage.cli().run(&["recover", "resume", "--all"]).ok()).unwrap();
            assert_eq!(done["value"]["body"], *job.name);
            assert_eq!(stage.cli().run(&["recover", "resume", "--all"]).ok(), "");
            assert_eq!((requests(&stage, &job.name), listed(&stage)), (2, Vec::new()));
            assert_eq!(KillChecker::new().finds(&stage), Vec::<String>::new());
            stage.cli().run(&["audit", "verify"]).ok();
        }
    }
}
