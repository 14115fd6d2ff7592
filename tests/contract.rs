//! `cofferdam test --contract`: the example connectors keep theirs, and each planted dishonesty is found, with the line.

use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_test_support::{Cli, CommandResult, package};
use serde_json::Value;
use tempfile::TempDir;

use crate::COFFERDAM;

/// A directory of an author's, with a package and its scenarios.
pub(crate) struct Bench {
    dir: TempDir,
    pub(crate) cli: Cli,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cli = Cli::new(COFFERDAM, dir.path());
        Self { dir, cli }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Runs `cofferdam test` on the package.
    pub(crate) fn test(&self, options: &[&str]) -> CommandResult {
        self.cli.run(&[&["test", "connector.wasm", "--jobs", "2"], options].concat())
    }

    /// The contract of the package, as a program reads it, and the whole result.
    fn contract(&self, code: u8, tests: &Path) -> Value {
        let tests = tests.to_str().unwrap();
        let result = self.test(&["--tests", tests, "--contract", "--format", "json"]);
        let result = if code == 0 {
            assert_eq!(result.code, Some(0), "{}\n{}", result.stdout, result.stderr);
            result
        } else {
            result.fails(code)
        };
        serde_json::from_str(&result.stdout).unwrap()
    }
}

/// The manifest of a `probe` that reaches one service.
fn manifest(tables: &str) -> String {
    format!(
        "[connector]\nname = \"github://cofferdam/probe\"\nversion = \"0.1.0\"\n{tables}\n\
         [capabilities.network]\nhosts = [\"api.tickets.example:443\"]\n\
         [capabilities.runtime]\nimports = [\n    \"wasi:http/outgoing-handler\",\n    \"cofferdam:connector/call\",\n    \
         \"cofferdam:connector/log\",\n    \"wasi:clocks/monotonic-clock\",\n    \"wasi:clocks/wall-clock\",\n    \
         \"wasi:random/random\",\n]\n"
    )
}

/// The contract of the `probe` with this manifest, in this scenario.
fn probed(code: u8, manifest: &str, scenario: &str) -> Value {
    let bench = Bench::new();
    bench.write("connector.wasm", package::pack(&package::guest("probe"), manifest));
    bench.write("tests/one.toml", format!("[[scenario]]\nname = \"one\"\n{scenario}"));
    bench.contract(code, &bench.path("tests"))["contract"].take()
}

/// The finding of this rule, which has to be there.
#[track_caller]
fn finding<'c>(contract: &'c Value, rule: &str) -> &'c Value {
    let findings = contract["findings"].as_array().unwrap();
    findings.iter().find(|it| it["rule"] == rule).unwrap_or_else(|| panic!("no {rule}: {findings:#?}"))
}

fn rules(contract: &Value) -> Vec<&str> {
    let mut rules: Vec<_> =
        contract["findings"].as_array().unwrap().iter().map(|it| it["rule"].as_str().unwrap()).collect();
    rules.dedup();
    rules
}

/// The number of the line of `text` that is `line`.
fn line_of(text: &str, line: &str) -> String {
    let at = text.lines().position(|it| it.trim() == line).unwrap();
    format!("connector.toml:{}", at + 1)
}

/// A step that answers with a text.
fn step(method: &str, path: &str) -> String {
    format!(
        "[[scenario.service]]\nrequest = {{ method = \"{method}\", url = \"https://api.tickets.example{path}\" }}\n\
         response = {{ body = \"hello\" }}\n"
    )
}

fn call(operation: &str, args: &str, expect: &str) -> String {
    format!("[[scenario.call]]\noperation = \"{operation}\"\nargs = {args}\n{expect}\n")
}

const URL: &str = "https://api.tickets.example/x";

#[test]
fn the_example_connectors_keep_their_contracts() {
    for name in ["hello", "conformance", "github-issues", "slack", "stripe", "s3"] {
        let bench = Bench::new();
        bench.write("connector.wasm", package::guest_package(name, &[]));
        let tests = package::repository().join("examples").join(name).join("tests");
        let result = bench.contract(0, &tests);
        let contract = &result["contract"];
        assert_eq!((&result["failed"], &contract["kept"]), (&0.into(), &true.into()), "{name}: {result:#}");
        for operation in contract["operations"].as_array().unwrap() {
            assert_ne!(operation["scenarios"], 0, "{name}: {operation}");
            // Those that only fail have nothing to be disturbed.
            let only_fails = ["fail", "test_error_handling"].iter().any(|it| operation["name"] == *it);
            assert_eq!(operation["runs"] == 0, only_fails, "{name}: {operation}");
        }
        assert!(contract["suggested_limits"]["fuel"].as_u64().unwrap() > 0);
        assert!(contract["badge"].as_str().unwrap().ends_with("-brightgreen)"), "{contract:#}");
    }
}

#[test]
fn a_keyed_write_keeps_its_contract() {
    let text = manifest("[connector.idempotency.operations]\norder = \"idempotent\"");
    let steps = step("POST", "/x") + &step("POST", "/x");
    let args = format!("{{ url = \"{URL}\", body = \"b\", labels = [\"one\", \"two\"] }}");
    let contract = probed(
        0,
        &text,
        &(steps + &call("order", &args, "expect.value.body = \"hello\"\nexpect.value.status = 200")),
    );
    assert_eq!(rules(&contract), [""; 0], "{contract:#}");
    let order = contract["operations"].as_array().unwrap().iter().find(|it| it["name"] == "order").unwrap();
    assert!(order["runs"].as_u64().unwrap() > 25, "{order}");
    assert!(order["headroom"]["fuel"].as_u64().unwrap() > 1_000, "{order}");
}

#[test]
fn an_unkeyed_write_is_not_idempotent() {
    let text = manifest("[connector.idempotency.operations]\npost_bytes = \"idempotent\"");
    let scenario = step("POST", "/x") + &call("post_bytes", &format!("{{ url = \"{URL}\", bytes = 3 }}"), "");
    let contract = probed(89, &text, &scenario);
    assert_eq!(rules(&contract), ["unkeyed_write", "second_effect"], "{contract:#}");
    let line = line_of(&text, "post_bytes = \"idempotent\"");
    for rule in ["unkeyed_write", "second_effect"] {
        let found = finding(&contract, rule);
        assert_eq!((&found["manifest"], &found["operation"]), (&line.as_str().into(), &"post_bytes".into()));
        assert!(found["fix"].as_str().unwrap().contains("not_idempotent"), "{found}");
    }
    assert!(finding(&contract, "unkeyed_write")["message"].as_str().unwrap().contains(&line));
    // With a scenario that shows what the service makes of the second, it is.
    let twice = scenario.repeat(2);
    let steps = step("POST", "/x").repeat(2);
    let calls = twice.replace(&step("POST", "/x"), "");
    let contract = probed(0, &text, &(steps + &calls));
    assert_eq!(rules(&contract), [""; 0], "{contract:#}");
}

#[test]
fn a_read_only_operation_that_posts_is_found() {
    let text = manifest("[connector.effects.operations]\nask = \"read_only\"");
    let args = format!("{{ url = \"{URL}\", methods = [[\"POST\"]] }}");
    let denied = "expect.failure = { class = \"capability_denied\", code = \"method_not_granted\" }";
    // Also a passing scenario of another operation, so that the host is needed.
    let scenario = step("GET", "/x")
        + &call("fetch", &format!("{{ url = \"{URL}\" }}"), "")
        + &call("ask", &args, denied);
    let contract = probed(89, &text, &scenario);
    let found = finding(&contract, "read_only_writes");
    let line = line_of(&text, "ask = \"read_only\"");
    assert_eq!(found["manifest"], line);
    let message = found["message"].as_str().unwrap();
    assert!(message.contains("POST") && message.contains(&line), "{message}");
    assert_eq!(rules(&contract), ["read_only_writes"], "{contract:#}");
}

#[test]
fn a_swallowed_error_is_found() {
    let text = manifest("[connector.effects]\ndefault = \"read_only\"");
    let scenario = step("GET", "/x") + &call("swallow_denial", &format!("{{ url = \"{URL}\" }}"), "");
    let contract = probed(89, &text, &scenario);
    let found = finding(&contract, "swallowed");
    let faults: Vec<_> = found["faults"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    for fault in ["connection refused", "reset before the response", "truncated response", "not HTTP"] {
        assert!(faults.contains(&fault), "{fault}: {faults:?}");
    }
    assert!(found["message"].as_str().unwrap().contains("GET https://api.tickets.example/x"), "{found}");
    assert!(found["fix"].as_str().unwrap().contains("log::suppressed"), "{found}");
    assert!(found["scenario"].as_str().unwrap().ends_with("one.toml:1"), "{found}");
}

#[test]
fn a_quoted_answer_is_found() {
    let text = manifest("[connector.effects]\ndefault = \"read_only\"");
    let scenario = step("GET", "/x") + &call("quote_answer", &format!("{{ url = \"{URL}\" }}"), "");
    let contract = probed(89, &text, &scenario);
    let found = finding(&contract, "payload_in_failure");
    assert_eq!(found["operation"], "quote_answer");
    assert!(found["fix"].as_str().unwrap().contains("with_detail"), "{found}");
    let found = finding(&contract, "wrong_class");
    let message = found["message"].as_str().unwrap();
    assert!(
        message.contains("connector_runtime_error (op_failed) instead of external_api_error"),
        "{message}"
    );
    assert_eq!(rules(&contract), ["not_recovered", "wrong_class", "payload_in_failure"], "{contract:#}");
}

#[test]
fn an_empty_message_is_found() {
    let text = manifest("[connector.effects]\ndefault = \"read_only\"");
    let fails = call("fail", "{ kind = \"failed\", message = \"\" }", "expect.failure.code = \"op_failed\"");
    let scenario = step("GET", "/x") + &call("fetch", &format!("{{ url = \"{URL}\" }}"), "") + &fails;
    let contract = probed(89, &text, &scenario);
    assert_eq!(finding(&contract, "empty_message")["operation"], "fail");
}

#[test]
fn attempts_that_differ_are_found() {
    let text = manifest("[connector.idempotency.operations]\nask = \"idempotent\"");
    let args = format!("{{ url = \"{URL}\", methods = [[\"PUT\"], [\"DELETE\"]] }}");
    let contract = probed(89, &text, &(step("PUT", "/x") + &call("ask", &args, "expect.value = 200")));
    let found = finding(&contract, "changed_request");
    assert_eq!(found["manifest"], line_of(&text, "ask = \"idempotent\""));
    let message = found["message"].as_str().unwrap();
    assert!(message.contains("DELETE") && message.contains("method"), "{message}");
}

#[test]
fn a_crash_is_found_with_the_place_of_its_panic() {
    let text = manifest("[connector.effects]\ndefault = \"read_only\"");
    let scenario = step("GET", "/x") + &call("trust_answer", &format!("{{ url = \"{URL}\" }}"), "");
    let contract = probed(89, &text, &scenario);
    let found = finding(&contract, "crash");
    let message = found["message"].as_str().unwrap();
    let source = fs::read_to_string(package::repository().join("examples/probe/src/talk.rs")).unwrap();
    let line = source.lines().position(|line| line.contains("fetch(url).unwrap()")).unwrap() + 1;
    assert!(message.contains("`trust_answer` crashed") && message.contains("GET"), "{message}");
    assert!(message.contains(&format!("src/talk.rs:{line}:")), "{message}");
    let faults = found["faults"].as_array().unwrap();
    assert!(faults.contains(&"status 500".into()) && faults.contains(&"not HTTP".into()), "{found}");
    assert!(found["scenario"].as_str().unwrap().ends_with("tests/one.toml:1"), "{found}");
    assert!(!rules(&contract).contains(&"wrong_class"), "{contract:#}");
}

#[test]
fn one_key_for_two_requests_is_found() {
    let text = manifest("[connector.idempotency.operations]\nask = \"idempotent\"");
    // The SDK refuses to. This operation writes its field by hand, with a value that is the call's key here.
    let args =
        format!("{{ url = \"{URL}\", methods = [[\"POST\", \"PATCH\"]], field = \"idempotency-key\" }}");
    let scenario = step("POST", "/x") + &step("PATCH", "/x") + &call("ask", &args, "key = \"POST\"");
    let contract = probed(89, &text, &scenario);
    let (found, line) = (finding(&contract, "shared_key"), line_of(&text, "ask = \"idempotent\""));
    assert_eq!((&found["manifest"], &found["operation"]), (&line.as_str().into(), &"ask".into()));
    let message = found["message"].as_str().unwrap();
    for part in [line.as_str(), "POST https://api.tickets.example/x", "PATCH https://api.tickets.example/x"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(found["fix"].as_str().unwrap().contains("label"), "{found}");
}

#[test]
fn a_secret_in_a_failure_is_found() {
    let text = manifest("[connector.effects]\ndefault = \"read_only\"").replace(
        "[capabilities.runtime]",
        "[[capabilities.credential]]\nkind = \"bearer\"\nservice = \"tickets\"\n\
         hosts = [\"api.tickets.example:443\"]\n[capabilities.runtime]",
    );
    // The connector knows it only if its caller or a service tells it.
    let denied = "expect.failure.code = \"secret_reflected\"";
    let scenario = "bind = { \"bearer/tickets\" = \"tok-0123456789abcdef\" }\n".to_owned()
        + &step("GET", "/x")
        + &call("fetch", &format!("{{ url = \"{URL}\" }}"), "")
        + &call("fail", "{ kind = \"failed\", message = \"not with tok-0123456789abcdef\" }", denied);
    let contract = probed(89, &text, &scenario);
    let found = finding(&contract, "secret_in_failure");
    assert_eq!(found["operation"], "fail");
    assert!(found["scenario"].as_str().unwrap().ends_with("tests/one.toml:1"), "{found}");
    assert!(!contract.to_string().contains("tok-0123456789abcdef"), "{contract:#}");
    assert_eq!(rules(&contract), ["secret_in_failure"], "{contract:#}");
}

#[test]
fn a_call_is_cancelled_at_each_point() {
    let text = manifest("[connector.effects]\ndefault = \"read_only\"");
    let runs = |code: u8, operation: &str, args: &str| {
        let contract = probed(code, &text, &(step("GET", "/x") + &call(operation, args, "")));
        let mut operations = contract["operations"].as_array().unwrap().iter();
        (operations.find(|it| it["name"] == operation).unwrap()["runs"].clone(), contract)
    };
    let (count, contract) = runs(0, "fetch", &format!("{{ url = \"{URL}\" }}"));
    assert_eq!(rules(&contract), [""; 0], "{contract:#}");
    // 9 faults that last, 3 that pass, 3 cancellations; without its host; with less fuel and memory, two of each.
    assert_eq!(count, 20, "{contract:#}");
    // This one goes on after an error status, so that there is no next attempt to wait for.
    let (_, contract) = runs(89, "fetch_many", &format!("{{ url = \"{URL}\", times = 1 }}"));
    let found = finding(&contract, "swallowed");
    let faults = ["status 429", "status 500", "cancelled before the next attempt"];
    assert_eq!(found["faults"], serde_json::json!(faults), "{found}");
}

#[test]
fn unused_grants_are_found_with_their_lines() {
    let text = manifest("[connector.effects]\ndefault = \"read_only\"").replace(
        "hosts = [\"api.tickets.example:443\"]",
        "hosts = [\n    \"api.tickets.example:443\",\n    \"spare.tickets.example:443\",\n]\n\
         [[capabilities.credential]]\nkind = \"bearer\"\nservice = \"spare\"\nhosts = [\"spare.tickets.example:443\"]\noptional = true",
    );
    let scenario = step("GET", "/x") + &call("fetch", &format!("{{ url = \"{URL}\" }}"), "");
    let contract = probed(89, &text, &scenario);
    assert_eq!(rules(&contract), ["unused_grant"], "{contract:#}");
    let lines: Vec<_> =
        contract["findings"].as_array().unwrap().iter().map(|it| it["manifest"].as_str().unwrap()).collect();
    let host = line_of(&text, "\"spare.tickets.example:443\",");
    let credential = line_of(&text, "service = \"spare\"");
    assert!(lines.contains(&host.as_str()) && lines.contains(&credential.as_str()), "{lines:?}");
    for found in contract["findings"].as_array().unwrap() {
        assert!(found["message"].as_str().unwrap().contains(found["manifest"].as_str().unwrap()), "{found}");
    }
}

#[test]
fn people_read_the_findings_with_their_fixes() {
    let bench = Bench::new();
    let text = manifest("[connector.idempotency.operations]\npost_bytes = \"idempotent\"");
    bench.write("connector.wasm", package::pack(&package::guest("probe"), &text));
    let scenario = step("POST", "/x") + &call("post_bytes", &format!("{{ url = \"{URL}\", bytes = 3 }}"), "");
    bench.write("tests/one.toml", format!("[[scenario]]\nname = \"bytes are posted\"\n{scenario}"));
    let page = bench.test(&["--contract"]).fails(89).stdout;
    for part in [
        "ok           bytes are posted",
        "unkeyed_write",
        "connector.toml:5",
        "fix: ",
        "broken: 2 findings",
        "badge",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}
