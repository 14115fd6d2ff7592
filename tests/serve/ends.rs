//! How calls and the server end before their time: clients that go away, and the signal to end.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::stage::{Stage, probe, read};

/// The one call on record; null before it is there.
fn only(stage: &Stage) -> Value {
    let list = stage.cli().run(&["audit", "list", "--format", "json"]).json();
    assert!(list.as_array().unwrap().len() <= 1, "{list}");
    list[0].clone()
}

/// Waits until the one call has this status.
fn becomes(stage: &Stage, status: &str) {
    let begun = Instant::now();
    while only(stage)["status"] != status {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", only(stage));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn hang(stage: &Stage, path: &str) -> TcpStream {
    let stream = stage.begin_post(&[], &probe("fetch", &json!({"url": stage.upstream.url(path)})));
    stage.reaches(path);
    stream
}

#[test]
fn a_client_that_goes_away_cancels_its_call_and_the_record_says_so() {
    let stage = Stage::new();
    let stream = hang(&stage, "/hang/gone");
    drop(stream);
    becomes(&stage, "cancelled");
    assert_eq!(stage.get("/healthz").status, 200, "nobody else notices");
    stage.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn told_to_end_it_takes_nothing_new_and_lets_what_runs_come_to_its_end() {
    let mut stage = Stage::new();
    let call = probe("sleep", &json!({"ms": 1_500}));
    let running = stage.begin_post(&[], &call);
    becomes(&stage, "running");
    stage.signal("-TERM");
    let answer = read(running);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(stage.ended().code(), Some(0));
    assert!(TcpStream::connect(stage.address).is_err());
    assert_eq!(only(&stage)["status"], "value");
}

#[test]
fn told_twice_it_cancels_what_runs_and_says_so_to_client_and_record() {
    let mut stage = Stage::new();
    let running = hang(&stage, "/hang/end");
    stage.signal("-INT");
    stage.signal("-TERM");
    let answer = read(running);
    assert_eq!((answer.status, answer.word().as_str()), (503, "cancelled"), "{answer:?}");
    assert_eq!(stage.ended().code(), Some(0));
    assert_eq!(only(&stage)["status"], "cancelled");
    stage.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn what_is_not_safe_is_not_served() {
    let stage = Stage::new();
    let cli = stage.cli();
    let fails = |args: &[&str], code: u8, said: &str| {
        cli.run(&[&["serve", "--format", "json"], args].concat()).fails(code).said(said);
    };
    fails(&["--listen", "0.0.0.0:0"], 64, "token");
    fails(&["--listen", "0.0.0.0:0", "--token-file", "token"], 64, "certificate");
    fails(&["--listen", &stage.address.to_string()], 64, "cannot listen");
    std::fs::write(stage.home.path().join("open"), super::stage::TOKEN).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(stage.home.path().join("open"), mode).unwrap();
    fails(&["--token-file", "open", "--listen", "127.0.0.1:0"], 65, "chmod 600");
    fails(&["--token-file", "nowhere", "--listen", "127.0.0.1:0"], 66, "nowhere");
}
