//! Schemathesis, a third-party tool, against the schema and the server: it sends requests of every kind.

use std::path::Path;

use cofferdam_test_support::services::Tools;
use serde_json::{Value, json};

use super::fixture::{PROBE, Stage, TOKEN};

/// Statuses of the 5xx range are outcomes here, so they are not faults of the server.
const CHECKS: &str = "status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,positive_data_acceptance,\
                      missing_required_header,unsupported_method,use_after_free,ensure_resource_availability,ignored_auth";

/// The tools, and a server; none where they are not there.
fn stage() -> Option<(Tools, Stage)> {
    crate::tools("the API with generated requests").map(|tools| (tools, Stage::new()))
}

/// Has requests generated from `description` (a URL or a file); it finds no violation.
#[track_caller]
fn finds_nothing(tools: &Tools, stage: &Stage, description: &str, more: &[&str]) {
    let output = std::process::Command::new(tools.python("schemathesis"))
        .args(["run", description, "--checks", CHECKS, "--max-examples", "50", "--seed", "1", "--no-color"])
        // A stream of events never ends.
        .args(["--exclude-operation-id", "live"])
        .args(["--generation-database", "none", "-H", &format!("Authorization: Bearer {TOKEN}")])
        .args(more)
        .current_dir(stage.home.path())
        .env("HYPOTHESIS_STORAGE_DIRECTORY", stage.home.path().join("hypothesis"))
        .output()
        .unwrap();
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    // It is 0 if nothing is found, and also if nothing could be tested: the output has to confirm the requests.
    assert!(output.status.success() && said.contains(" generated, "), "{said}");
    // It made calls, and their log verifies.
    stage.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn schemathesis_finds_no_schema_violation() {
    let Some((tools, stage)) = stage() else { return };
    let url = format!("http://{}/openapi.json", stage.address);
    finds_nothing(&tools, &stage, &url, &["--phases", "examples,coverage,fuzzing"]);
}

#[test]
fn schemathesis_finds_no_violation_by_operation() {
    let Some((tools, stage)) = stage() else { return };
    let mut description = stage.get("/openapi.json?connector=github://cofferdam/hello").json();
    // Ceilings of times are no pattern: a limit above one is refused.
    let request = "/paths/~1v1~1connectors~1github~1cofferdam~1hello~1operations~1greet/post/requestBody/content/application~1json/schema/properties";
    description.pointer_mut(request).unwrap().as_object_mut().unwrap().remove("limits").unwrap();
    let file = stage.home.path().join("described.json");
    std::fs::write(&file, description.to_string()).unwrap();
    let url = format!("http://{}", stage.address);
    let more = ["--url", &url, "--phases", "coverage,fuzzing", "--include-operation-id", "greet"];
    finds_nothing(&tools, &stage, &file.to_string_lossy(), &more);
    let list = stage.cli().run(&["audit", "list", "--limit", "0", "--format", "json"]).json();
    let ran = |row: &&Value| row["op"] == "greet" && row["status"] == "value";
    assert!(list.as_array().unwrap().iter().any(|row| ran(&row)), "greet was never called");
}

#[test]
fn schemathesis_finds_no_violation_in_real_calls() {
    let Some((tools, stage)) = stage() else { return };
    // Two existing operations, so that generated requests are executed and logged.
    let mut description = stage.get("/openapi.json").json();
    let call = |connector: &str, op: &str, argument: &str| {
        json!({"type": "object", "required": ["connector", "op", "args"], "additionalProperties": false, "properties": {
            "connector": {"const": connector}, "op": {"const": op},
            "args": {"type": "object", "required": [argument], "additionalProperties": false,
                     "properties": {argument: {"type": "string"}}},
            "not_idempotent": {"type": "boolean"}}})
    };
    let calls = [call(PROBE, "panic", "message"), call("github://cofferdam/hello", "greet", "name")];
    description["components"]["schemas"]["CallRequest"] = json!({"oneOf": calls});
    let file = stage.home.path().join("described.json");
    std::fs::write(&file, description.to_string()).unwrap();
    let url = format!("http://{}", stage.address);
    let more = ["--url", &url, "--phases", "coverage,fuzzing,stateful"];
    finds_nothing(&tools, &stage, &Path::new(&file).to_string_lossy(), &more);
    let list: Value = stage.cli().run(&["audit", "list", "--limit", "0", "--format", "json"]).json();
    for (op, status) in [("panic", "failure"), ("greet", "value")] {
        let ran = |row: &&Value| row["op"] == op && row["status"] == status;
        assert!(list.as_array().unwrap().iter().any(|row| ran(&row)), "{op} was never called");
    }
}
