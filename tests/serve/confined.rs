//! The walls around the serving process, as the system reports them.

use serde_json::json;

use super::fixture::{Stage, probe};

/// The value of a field in `/proc/PID/status` of the server.
fn status(stage: &Stage, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{}/status", stage.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{text}")).trim().to_owned()
}

#[test]
fn a_confined_server_still_compiles_and_calls() {
    let stage = Stage::new();
    assert_eq!((status(&stage, "Seccomp"), status(&stage, "NoNewPrivs")), ("2".into(), "1".into()));
    // Without cached code the worker, which is confined too, has to compile under a confined parent.
    std::fs::remove_dir_all(stage.home.path().join("cache")).unwrap();
    let answer = stage.post(&probe("fetch", &json!({"url": stage.upstream.url("/text/hello")})));
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn no_confine_disables_the_confinement() {
    let stage = Stage::with(&["--token-file", "token", "--no-confine"]);
    assert_eq!(status(&stage, "Seccomp"), "0");
}

#[test]
fn inspect_host_probes_the_confinement() {
    let stage = Stage::new();
    let report = stage.cli().run(&["inspect", "--host", "--format", "json"]).json();
    for role in report["roles"].as_array().unwrap() {
        assert_eq!((&role["files"], &role["system_calls"]), (&json!("holds"), &json!("holds")), "{report}");
        let attempts = role["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 5);
        assert!(attempts.iter().all(|attempt| attempt["refused"] == true), "{report}");
    }
    assert_eq!(report["turned_off"], false);
    let page = stage.cli().run(&["inspect", "--host", "--no-confine"]);
    assert!(page.stdout.contains("turned off by --no-confine"), "{page:?}");
}
