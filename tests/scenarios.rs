//! `cofferdam test`: scenarios through the real host, what their failures show, and recording.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use cofferdam_test_support::{Upstream, package};
use serde_json::Value;

use crate::contract::Bench;
use crate::dev::{Workplace, replace};

const MANIFEST: &str = "[connector]\nname = \"github://cofferdam/probe\"\nversion = \"0.1.0\"\n\
    [connector.effects]\ndefault = \"read_only\"\n\
    [capabilities.network]\nhosts = [\"api.tickets.example:443\", \"http://localhost:8080\"]\n\
    [[capabilities.credential]]\nkind = \"bearer\"\nservice = \"tickets\"\nhosts = [\"api.tickets.example:443\"]\n\
    [capabilities.runtime]\nimports = [\"wasi:http/outgoing-handler\", \"cofferdam:connector/call\", \
    \"cofferdam:connector/log\"]\n";

const URL: &str = "https://api.tickets.example/x";

/// A bench with the `probe` and these scenarios.
fn bench(scenarios: &str) -> Bench {
    let bench = Bench::new();
    bench.write("connector.wasm", package::pack(&package::guest("probe"), MANIFEST));
    bench.write("tests/probe.toml", scenarios);
    bench
}

fn get(more: &str) -> String {
    format!("[[scenario.service]]\nrequest = {{ method = \"GET\", url = \"{URL}\" }}\n{more}\n")
}

fn fetch(expect: &str) -> String {
    format!("[[scenario.call]]\noperation = \"fetch\"\nargs.url = \"{URL}\"\n{expect}\n")
}

fn scenario(name: &str, rest: &str) -> String {
    format!("[[scenario]]\nname = \"{name}\"\n{rest}\n")
}

#[test]
fn every_fault_reaches_the_caller_as_its_class() {
    let network = |code: &str| {
        format!("expect.failure = {{ class = \"network_error\", code = \"{code}\" }}\nexpect.attempts = 4")
    };
    let limit = "expect.failure = { class = \"resource_limit_exceeded\", code = \"wall_time\" }";
    let body = "response = { body = \"0123456789\" }\n";
    let mut text = String::new();
    for (name, more, expect) in [
        ("refuse", "fault = { kind = \"refuse\" }\ntimes = 4".to_owned(), network("refused")),
        ("reset", "fault = { kind = \"reset\" }\ntimes = 4".to_owned(), network("reset")),
        ("reset-late", format!("{body}fault = {{ kind = \"reset\", after_bytes = 3 }}\ntimes = 4"), network("reset")),
        ("malformed", "fault = { kind = \"malformed\" }\ntimes = 4".to_owned(), network("malformed_response")),
        ("tls", "fault = { kind = \"tls\" }\ntimes = 4".to_owned(), network("tls_unknown_issuer")),
        (
            "tls-expired",
            "fault = { kind = \"tls\", certificate = \"expired\" }\ntimes = 4".to_owned(),
            network("tls_expired"),
        ),
        (
            "tls-host",
            "fault = { kind = \"tls\", certificate = \"wrong_host\" }\ntimes = 4".to_owned(),
            network("tls_wrong_host"),
        ),
        ("timeout", "fault = { kind = \"timeout\" }".to_owned(), limit.to_owned()),
        ("drip", format!("{body}fault = {{ kind = \"drip\", bytes_per_second = 1 }}"), "expect.value = { status = 200, body = \"0123456789\" }".to_owned()),
        ("drip-late", "response = { body = \"0123456789012345678901234567890123456789\" }\nfault = { kind = \"drip\", bytes_per_second = 1 }".to_owned(), limit.to_owned()),
        (
            "busy",
            "response = { status = 429, headers = { retry-after = \"3\" } }\ntimes = 4".to_owned(),
            "expect.failure = { class = \"external_api_error\", code = \"rate_limited\", retriable = true }".to_owned(),
        ),
    ] {
        text += &scenario(name, &(get(&more) + &fetch(&expect)));
    }
    let bench = bench(&text);
    bench.test(&[]).ok();
}

#[test]
fn unordered_requests_and_queries_are_compared() {
    let text = scenario(
        "any order",
        "unordered = true\n\
         [[scenario.service]]\nrequest = { method = \"GET\", url = \"http://localhost:8080/b?x=1&x=2\" }\nresponse = { body = \"b\" }\n\
         [[scenario.service]]\nrequest = { method = \"GET\", url = \"http://localhost:8080/{{regex:[a]}}\", query = { \"...\" = \"{{any}}\" } }\nresponse = { body = \"a\" }\n\
         [[scenario.call]]\noperation = \"fetch_all\"\nargs.urls = [\"http://localhost:8080/a?y=z\", \"http://localhost:8080/b?x=1&x=2\"]\n\
         expect.value = { items = [{ status = 200, body = \"a\" }, { status = 200, body = \"b\" }], errors = [] }",
    );
    bench(&text).test(&[]).ok();
}

#[test]
fn failures_show_what_differs_and_where() {
    let text = [
        scenario("another path", &(get("").replace("/x", "/y") + &fetch(""))),
        scenario("never comes", &(get("response = { body = \"1\" }") + &get("") + &fetch(""))),
        scenario("one too many", &fetch("")),
        scenario(
            "another value",
            &(get("response = { body = \"1\" }")
                + &fetch("expect.value = { status = 201, body = \"{{number}}\" }")),
        ),
        scenario("a failure", &(get("response = { status = 404 }") + &fetch("expect.attempts = 2"))),
        scenario("passes", &(get("") + &fetch(""))),
    ]
    .concat();
    let bench = bench(&text);
    let result = bench.test(&["--format", "json", "--junit", "junit.xml"]).fails(88);
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!((&summary["passed"], &summary["failed"]), (&1.into(), &5.into()));
    let problems = |at: usize| summary["scenarios"][at]["problems"].as_array().unwrap();
    let [unexpected] = problems(0).as_slice() else { panic!("{summary:#}") };
    assert_eq!((&unexpected["kind"], &unexpected["line"]), (&"unexpected_request".into(), &3.into()));
    assert_eq!(unexpected["differences"][0]["path"], "path");
    assert_eq!(
        (&unexpected["differences"][0]["expected"], &unexpected["differences"][0]["actual"]),
        (&"/y".into(), &"/x".into())
    );
    assert_eq!(problems(1)[0]["kind"], "missing_request");
    assert!(problems(2)[0]["message"].as_str().unwrap().contains("no more requests are expected"));
    assert_eq!(problems(3)[0]["differences"][0]["path"], "value.status");
    let kinds: Vec<_> = problems(4).iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["outcome", "attempts"]);
    let page = bench.test(&[]).fails(88).stdout;
    for part in [
        "FAILED       another path (tests/probe.toml:1)",
        "expected  /y",
        "actual    /x",
        "ok           passes",
        "5 failed, 1 passed",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let xml = fs::read_to_string(bench.path("junit.xml")).unwrap();
    assert!(xml.contains("tests=\"6\" failures=\"5\"") && xml.contains("name=\"another path\""), "{xml}");
    let filtered = bench.test(&["--filter", "passes"]).ok();
    assert!(filtered.contains(": 1 passed"), "{filtered}");
    bench.test(&["--filter", "nothing has this name"]).fails(66).said("6 were read");
}

#[test]
fn invalid_scenarios_are_refused_with_line_and_fix() {
    let bench = bench(&scenario("x", "[[scenario.call]]\noperation = \"fetsch\""));
    let result = bench.test(&[]).fails(65);
    for part in ["tests/probe.toml:4", "no operation", "did you mean `fetch`?"] {
        assert!(result.stderr.contains(part), "{part}: {}", result.stderr);
    }
    bench.test(&["--tests", "nowhere"]).fails(66).said("There are no scenarios");
    bench.cli.run(&["test", "--jobs", "0"]).fails(2).said("1 to 256");
    bench.test(&["--junit", "no/such/dir.xml"]).fails(74).said("its directory does not exist");
}

#[test]
fn yaml_files_are_run_and_refused_with_their_lines() {
    let bench = bench(&scenario("in TOML", &(get("") + &fetch(""))));
    let yaml = format!(
        "scenario:\n  - name: in YAML\n    service:\n      - request: {{ method: GET, url: \"{URL}\" }}\n        \
         response: {{ body: \"1\" }}\n    call:\n      - operation: fetch\n        args: {{ url: \"{URL}\" }}\n        \
         expect: {{ value: {{ status: 200, body: \"{{{{string}}}}\" }} }}\n"
    );
    bench.write("tests/probe.yaml", &yaml);
    let page = bench.test(&[]).ok();
    assert!(page.contains("in YAML") && page.contains(": 2 passed"), "{page}");
    bench.write("tests/probe.yaml", yaml.replace("operation", "operatoin"));
    let result = bench.test(&[]).fails(65);
    for part in ["tests/probe.yaml:7", "scenario[0].call[0].operatoin", "did you mean `operation`?"] {
        assert!(result.stderr.contains(part), "{part}: {}", result.stderr);
    }
}

#[test]
fn a_guest_that_spins_ends_by_its_limits() {
    let bench = Bench::new();
    let manifest =
        MANIFEST.replace("[capabilities.runtime]", "[limits]\nfuel = 50_000_000\n[capabilities.runtime]");
    bench.write("connector.wasm", package::pack(&package::guest("probe"), &manifest));
    let call = "[[scenario.call]]\noperation = \"spin\"\nexpect.failure = { class = \"resource_limit_exceeded\", code = \"fuel\" }";
    bench.write("tests/spin.toml", scenario("spin", call));
    bench.test(&[]).ok();
}

#[test]
fn the_clock_and_the_key_are_those_of_the_scenario() {
    let text = scenario(
        "clock and key",
        "clock = \"2026-01-02T03:04:05Z\"\n\
         [[scenario.call]]\noperation = \"clock\"\nexpect.value = { wall_ms = 1767323045000, monotonic_ns = \"{{number}}\" }\n\
         [[scenario.call]]\noperation = \"call_info\"\nkey = \"K1\"\nexpect.value = { idempotency_key = \"{{key}}\", attempt = 1, deadline_ms = \"{{number}}\" }\n\
         [[scenario.call]]\noperation = \"call_info\"\nexpect.value = { idempotency_key = \"{{key}}\", \"...\" = \"{{any}}\" }",
    );
    bench(&text).test(&[]).ok();
}

#[test]
fn three_hundred_scenarios_run() {
    let text: String = (0..300).map(|n| scenario(&n.to_string(), &(get("") + &fetch("")))).collect();
    let page = bench(&text).test(&[]).ok();
    assert!(page.contains(": 300 passed"), "{page}");
}

#[test]
fn a_recording_is_a_scenario_without_secrets() {
    let upstream = Upstream::start();
    let bench = Bench::new();
    let manifest = MANIFEST.replace("http://localhost:8080", &upstream.grant()).replace(
        "hosts = [\"api.tickets.example:443\"]\n[cap",
        &format!("hosts = [{:?}]\n[cap", upstream.grant()),
    );
    bench.write("connector.wasm", package::pack(&package::guest("probe"), &manifest));
    bench.write("config.toml", format!("[network]\nallow_private = [{:?}]\n", upstream.host_port()));
    let (token, secret) = (bench.path("token"), "tok-0123456789abcdef");
    bench.write("token", format!("{secret}\n"));
    fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let record = |file: &str, path: &str| {
        let call = format!("fetch {{\"url\": \"{}\"}}", upstream.url(path));
        bench.test(&["--record", file, "--call", &call, "--bind", "bearer/tickets=@token"])
    };
    record("recorded.toml", "/text/hello?page=2").ok();
    let text = fs::read_to_string(bench.path("recorded.toml")).unwrap();
    assert!(!text.contains(secret), "{text}");
    for part in [
        "authorization = \"{{any}}\"",
        "query = { page = \"2\" }",
        "body = \"hello\"",
        "operation = \"fetch\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(upstream.seen("/text/hello")[0].header("authorization"), Some("Bearer tok-0123456789abcdef"));
    // It passes as it is, and nothing is overwritten.
    bench.test(&["--tests", "recorded.toml"]).ok();
    record("recorded.toml", "/text/hello").fails(67).said("overwrites nothing");
    record("dropped.toml", "/drop").fails(71).said("got no response");
    assert!(!bench.path("dropped.toml").exists());
}

/// A project without a network, and a scenario of it.
fn weather(place: &Workplace) -> std::path::PathBuf {
    let dir = place.weather();
    fs::create_dir(dir.join("tests")).unwrap();
    let call = "[[scenario.call]]\noperation = \"feels\"\nargs.celsius = 21.5\nexpect.value = \"warm\"";
    fs::write(dir.join("tests/feels.toml"), scenario("it is warm", call)).unwrap();
    dir
}

#[test]
fn the_built_package_is_tested_and_compiled_once() {
    let place = Workplace::new();
    let dir = weather(&place);
    let run = |command: &str, more: &[&str]| {
        let args = [&[command, dir.to_str().unwrap(), "--format", "json"], more].concat();
        let output = place.command(&args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let tested = run("test", &[]);
    assert_eq!((&tested["connector"], &tested["passed"]), (&"github://acme/weather@0.1.0".into(), &1.into()));
    // Nothing was compiled for the user's own home.
    let cached = fs::read_dir(place.path("cache")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(cached.collect::<Vec<_>>(), ["cofferdam"]);
    assert!(!place.path("host.key").exists());
    let homes = fs::read_dir(place.path("cache/cofferdam/test")).unwrap();
    let [home] = homes.map(|home| home.unwrap().path()).collect::<Vec<_>>().try_into().unwrap();
    let compiled = fs::read_dir(home.join("cache")).unwrap().map(|entry| entry.unwrap().file_name());
    let [compiled] = compiled.collect::<Vec<_>>().try_into().unwrap();
    let package = place.path("weather.wasm");
    let built = run("build", &["--output", package.to_str().unwrap()]);
    let digest = built["hash"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    assert!(compiled.to_str().unwrap().starts_with(digest), "{compiled:?} {digest}");
}

#[test]
fn compile_errors_leave_standard_output_empty() {
    let place = Workplace::new();
    let dir = weather(&place);
    replace(&dir.join("src/lib.rs"), "\"warm\".into()", "celsius");
    let output = place.command(&["test", dir.to_str().unwrap(), "--format", "json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(71), b"".as_slice()), "{said}");
    assert!(said.contains("mismatched types") && said.contains("src/lib.rs:"), "{said}");
    assert!(said.contains("\"code\":\"tool\""), "{said}");
}

#[test]
fn a_changed_scenario_is_run_again_until_a_signal() {
    let bench = bench(&scenario("it is asked", &(get("") + &fetch(""))));
    let mut command =
        bench.cli.command(&["test", "connector.wasm", "--watch", "--format", "json", "--jobs", "1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut passed = || {
        let summary: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        (summary["scenarios"][0]["name"].clone(), summary["passed"].clone(), summary["failed"].clone())
    };
    assert_eq!(passed(), ("it is asked".into(), 1.into(), 0.into()));
    // A scenario that fails, and one that is not valid, are to be corrected.
    let (path, failing) = ("tests/probe.toml", scenario("it is not", &fetch("")));
    bench.write(path, &failing);
    assert_eq!(passed(), ("it is not".into(), 0.into(), 1.into()));
    bench.write(path, failing.replace("operation", "operatoin"));
    std::thread::sleep(Duration::from_secs(1));
    bench.write(path, scenario("it is asked again", &(get("") + &fetch(""))));
    assert_eq!(passed(), ("it is asked again".into(), 1.into(), 0.into()));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
