//! The connector that the conformance suite calls, called without a server: what the suite reads comes from it.

use serde_json::json;

use crate::world::world;

#[test]
fn each_tool_of_the_suite_answers_as_the_suite_expects() {
    let text = world().value("conformance", "test_simple_text", json!({}));
    assert_eq!(text, "This is a simple text response for testing.");
    for op in ["test_tool_with_progress", "test_tool_with_logging", "test_logging_tool"] {
        assert_eq!(world().value("conformance", op, json!({})), "done", "{op}");
    }
    let failure = world().failure("conformance", "test_error_handling", json!({}));
    assert_eq!(failure.details()["connector_code"], "as_asked", "{failure:?}");
}
