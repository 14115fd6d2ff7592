//! Schemathesis, which nobody here wrote, against the description and the server: it makes requests of every kind.

use cofferdam_test_support::services::Tools;

use super::stage::{Stage, TOKEN};

/// Statuses of the fifties are outcomes here (W42), so that they are no fault of the server's.
const CHECKS: &str = "status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,positive_data_acceptance,\
                      missing_required_header,unsupported_method,use_after_free,ensure_resource_availability,ignored_auth";

#[test]
fn schemathesis_finds_nothing() {
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(why) => {
            assert!(!Tools::required(), "{why}");
            return crate::skipped(&why);
        }
    };
    let stage = Stage::new();
    let url = format!("http://{}/openapi.json", stage.address);
    let output = std::process::Command::new(tools.python("schemathesis"))
        .args(["run", &url, "--checks", CHECKS, "--max-examples", "60", "--seed", "1", "--no-color"])
        .args(["--phases", "examples,coverage,fuzzing", "--generation-database", "none"])
        .args(["-H", &format!("Authorization: Bearer {TOKEN}")])
        .current_dir(stage.home.path())
        .env("HYPOTHESIS_STORAGE_DIRECTORY", stage.home.path().join("hypothesis"))
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("No issues found"), "{said}");
    // It made calls, and the record of them holds.
    stage.cli().run(&["audit", "verify"]).ok();
}
