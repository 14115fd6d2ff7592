//! Third-party clients: the official conformance suite, the Python SDK and the inspector's command line.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use cofferdam_test_support::Home;
use cofferdam_test_support::package::repository;
use cofferdam_test_support::services::Tools;
use serde_json::Value;

use super::client::{cli, home};
use super::elicitation::desk;
use super::http_client::Server;
use super::relay::Relay;
use crate::COFFERDAM;
use crate::services::tools;
use crate::shared_host::shared_host;

/// The tools under the names that the suite calls.
const SUITE: &str = "test_simple_text=conformance.test_simple_text,test_error_handling=conformance.test_error_handling,\
                     test_tool_with_progress=conformance.test_tool_with_progress,\
                     test_tool_with_logging=conformance.test_tool_with_logging,\
                     test_logging_tool=conformance.test_logging_tool,\
                     test_elicitation=conformance.test_elicitation,\
                     test_streaming_elicitation=conformance.test_streaming_elicitation,\
                     test_input_required_result_elicitation=conformance.test_input_required_result_elicitation,\
                     test_input_required_result_request_state=conformance.test_input_required_result_request_state,\
                     test_input_required_result_tampered_state=conformance.test_input_required_result_tampered_state";

/// A home with the connector of the suite, whose operator believes the answers of clients.
fn suite_home() -> Home {
    let home = home(&["conformance"]);
    std::fs::write(home.path().join("config.toml"), "[approvals]\nelicit = true\n").unwrap();
    home
}

/// A program of the tools, with its own Node in the path.
fn program(tools: &Tools, path: &Path) -> Command {
    let mut command = Command::new(path);
    let node = tools.python("node");
    let path = std::env::join_paths(
        [node.parent().unwrap().to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    command.env("PATH", path.unwrap());
    command
}

#[track_caller]
fn output(mut command: Command) -> String {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Runs the suite for each version, whose failures must be the expected ones.
fn suite(tools: &Tools, home: &Home, address: SocketAddr, expected: &str) {
    let url = format!("http://localhost:{}/mcp", address.port());
    for version in ["2025-11-25", "2026-07-28"] {
        let mut suite = program(tools, &tools.npm("conformance"));
        let expected = repository().join("tests/mcp/expected").join(format!("{version}{expected}.yml"));
        suite.args(["server", "--url", &url, "--requirements", version, "--expected-failures"]).arg(expected);
        suite.current_dir(home.path());
        output(suite);
    }
}

#[test]
fn the_conformance_suite_passes_over_http() {
    let Some(tools) = tools() else { return };
    let home = suite_home();
    let server = Server::start(&home, &["--operations", SUITE]);
    suite(&tools, &home, server.address, "");
    server.end();
}

#[test]
fn the_conformance_suite_passes_over_stdio() {
    let Some(tools) = tools() else { return };
    let home = suite_home();
    let relay = Relay::start(&home, &["--operations", SUITE]);
    suite(&tools, &home, relay.address, "-stdio");
    relay.end();
}

#[test]
fn the_python_sdk_holds_a_conversation() {
    let Some(tools) = tools() else { return };
    let home = home(&["conformance", "hello"]);
    let server = Server::start(&home, &["--operations", "hello,conformance"]);
    let mut client = program(&tools, &tools.python("python"));
    let url = format!("http://127.0.0.1:{}/mcp", server.address.port());
    client.arg(repository().join("tests/mcp/client.py")).arg(COFFERDAM).arg(home.path()).arg(url);
    let said = output(client);
    assert!(said.ends_with("both transports: 20 tools, a value, a failure, a refusal\n"), "{said}");
    server.end();
}

#[test]
fn a_person_answers_in_the_python_sdk() {
    let Some(tools) = tools() else { return };
    let desk = desk();
    let server = Server::start(&desk.home, &["--operations", "probe.post"]);
    let mut client = program(&tools, &tools.python("python"));
    let url = format!("http://127.0.0.1:{}/mcp", server.address.port());
    let prefix = "/text/form-python-";
    client.arg(repository().join("tests/mcp/elicitation.py")).arg(COFFERDAM).arg(desk.home.path()).arg(url);
    client.arg(shared_host().upstream.url(prefix));
    let said = output(client);
    assert!(said.ends_with("approved, denied, declined, cancelled, not asked\n"), "{said}");
    server.end();
    let mut ran: Vec<_> =
        shared_host().upstream.seen(prefix).into_iter().map(|request| request.path).collect();
    ran.sort();
    let expected = ["http-auto", "http-legacy", "stdio-auto", "stdio-legacy"]
        .map(|way| format!("{prefix}{way}-approve?form"));
    assert_eq!(ran, expected);
    let all = cli(&desk.home).run(&["approvals", "list", "--all", "--format", "json"]).json();
    let count = |state: &str| all.as_array().unwrap().iter().filter(|it| it["state"] == state).count();
    assert_eq!([count("used"), count("denied"), count("waiting")], [4, 8, 8], "{all}");
    let changes = cli(&desk.home).run(&["audit", "changes", "--format", "json"]).ok();
    assert_eq!(changes.matches("mcp:mcp elicitation").count(), 12, "{changes}");
}

#[test]
fn the_inspector_lists_and_calls() {
    let Some(tools) = tools() else { return };
    let home = home(&["hello"]);
    let server = Server::start(&home, &["--operations", "hello.greet"]);
    let url = format!("http://127.0.0.1:{}/mcp", server.address.port());
    let stdio = [
        "-e",
        &format!("COFFERDAM_HOME={}", home.path().display()),
        COFFERDAM,
        "mcp",
        "--operations",
        "hello.greet",
    ]
    .map(str::to_owned)
    .to_vec();
    let http = [url, "--transport".into(), "http".into()].to_vec();
    for target in [stdio, http] {
        let inspect = |args: &[&str]| -> Value {
            let mut inspector = program(&tools, &tools.npm("mcp-inspector"));
            inspector.arg("--cli").args(&target).args(args);
            let out = output(inspector);
            serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
        };
        assert_eq!(inspect(&["--method", "tools/list"])["tools"][0]["name"], "hello__greet");
        let call = ["--method", "tools/call", "--tool-name", "hello__greet", "--tool-arg", "name=Ada"];
        assert_eq!(inspect(&call)["structuredContent"]["value"]["text"], "Good day, Ada.");
    }
    server.end();
}
