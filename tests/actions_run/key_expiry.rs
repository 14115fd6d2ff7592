//! Step keys that expire before the action is done, and step keys that are taken.

use std::time::Duration;

use super::fixture::{ActionHome, step};

/// A home whose keys are valid for a second.
fn ground() -> ActionHome {
    let ground = ActionHome::own();
    let config = ground.home.path().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[audit]\nkey_ttl = \"1s\"\n")).unwrap();
    ground
}

/// Waits until earlier outcomes have expired.
fn outlive() {
    std::thread::sleep(Duration::from_millis(1_100));
}

fn post(ground: &ActionHome, id: &str, path: &str) -> String {
    step(id, "post", &format!("url = \"{}\", body = \"b\"", ground.upstream.url(path)), "")
}

fn fetch(ground: &ActionHome, id: &str, path: &str) -> String {
    step(id, "fetch", &format!("url = \"{}\"", ground.upstream.url(path)), "retry = \"none\"")
}

#[test]
fn step_keys_outlive_their_ttl_within_the_action() {
    let ground = ground();
    let steps = [
        post(&ground, "one", "/text/outlived-1"),
        fetch(&ground, "two", "/flaky/3/outlived-2"),
        post(&ground, "three", "/text/outlived-3"),
    ];
    ground.action("outlived", &steps.concat());
    let asked =
        || ["/text/outlived-1", "/flaky/3/outlived-2", "/text/outlived-3"].map(|path| ground.asked(path));
    let run = || ground.cli().run(&["run", "outlived", "--key", "nightly"]);
    for tried in 1..=3 {
        let _ = run().fails(76);
        assert_eq!(asked(), [1, tried, 0], "step one is done, however long ago");
        outlive();
    }
    run().ok();
    assert_eq!(asked(), [1, 4, 1]);
    // Now it is done and valid like any outcome: after that the key starts a new run of all steps.
    outlive();
    run().ok();
    assert_eq!(asked(), [2, 5, 2]);
    ground.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn a_new_run_does_not_reuse_old_results() {
    let ground = ground();
    let steps = [
        post(&ground, "one", "/text/anew-1"),
        fetch(&ground, "two", "/text/anew-2"),
        post(&ground, "three", "/text/anew-3"),
    ];
    let good = steps.concat();
    ground.action("anew", &good);
    let asked = || ["/text/anew-1", "/text/anew-3"].map(|path| ground.asked(path));
    let run = || ground.cli().run(&["run", "anew", "--key", "daily"]);
    run().ok();
    outlive();
    // It starts again, and ends after its first step: no server listens at the second one's address.
    let url = ground.upstream.url("/text/anew-2");
    ground.action("anew", &good.replace(&url, &format!("http://{}/", ground.closed)));
    let _ = run().fails(69);
    assert_eq!(asked(), [2, 1]);
    // The third is done, and not taken from the run before.
    ground.action("anew", &good);
    outlive();
    run().ok();
    assert_eq!(asked(), [2, 2]);
    ground.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn a_taken_step_key_is_reported_before_the_first_step() {
    let ground = ActionHome::own();
    let steps = [post(&ground, "one", "/text/taken-1"), fetch(&ground, "two", "/text/taken-2")];
    ground.action("taken", &steps.concat());
    let args = format!("{{\"url\": \"{}\"}}", ground.upstream.url("/text/elsewhere"));
    let call = ["call", "github://cofferdam/probe", "fetch", &args, "--key", "k4/two"];
    ground.cli().run(&call).ok();
    ground.cli().run(&["run", "taken", "--key", "k4"]).fails(67).said("idempotency key");
    assert_eq!((ground.asked("/text/taken-1"), ground.asked("/text/taken-2")), (0, 0));
    ground.cli().run(&["run", "taken", "--key", "k5"]).ok();
    assert_eq!((ground.asked("/text/taken-1"), ground.asked("/text/taken-2")), (1, 1));
}

#[test]
fn a_replayed_failure_is_marked() {
    let ground = ActionHome::own();
    let steps = [post(&ground, "one", "/text/given-1"), fetch(&ground, "two", "/status/404/given")];
    ground.action("given", &steps.concat());
    let command = ["run", "given", "--key", "given-1"];
    let first = ground.cli().run(&command).fails(76);
    assert!(!first.stderr.contains("earlier failure under this key"), "{}", first.stderr);
    let again = ground.cli().run(&command).fails(76);
    assert!(again.stderr.contains("under this key: nothing was asked again"), "{}", again.stderr);
    let told = ground.cli().run(&[&command[..], &["--as-tool-result"]].concat());
    assert!(told.stdout.contains("replayed: the failure of audit-"), "{}", told.stdout);
    for text in [again.stderr, told.stdout] {
        assert!(text.contains("Another key runs all steps again"), "{text}");
    }
    assert_eq!(ground.asked("/status/404/given"), 1);
    // With other inputs, the key of the step is another call's.
    ground.action("given", &steps.concat().replace("/status/404/given", "/text/given-2"));
    ground.cli().run(&command).fails(67).said("one. Another key runs them again.");
    assert_eq!((ground.asked("/text/given-1"), ground.asked("/text/given-2")), (1, 0));
}
