//! The connector of the conformance suite, called without a server: the suite's values come from it.

use serde_json::json;

use crate::shared_host::shared_host;

#[test]
fn each_conformance_tool_returns_the_expected_value() {
    let text = shared_host().value("conformance", "test_simple_text", json!({}));
    assert_eq!(text, "This is a simple text response for testing.");
    for op in [
        "test_tool_with_progress",
        "test_tool_with_logging",
        "test_logging_tool",
        "test_streaming_elicitation",
        "test_input_required_result_elicitation",
        "test_input_required_result_request_state",
        "test_input_required_result_tampered_state",
    ] {
        assert_eq!(shared_host().value("conformance", op, json!({})), "done", "{op}");
    }
    assert_eq!(shared_host().value("conformance", "test_elicitation", json!({"message": "m"})), "done");
    let failure = shared_host().failure("conformance", "test_error_handling", json!({}));
    assert_eq!(failure.details()["connector_code"], "as_asked", "{failure:?}");
}
