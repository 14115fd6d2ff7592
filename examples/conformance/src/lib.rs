//! The tools that the conformance suite of the Model Context Protocol calls, each as little as it may be.

use cofferdam_guest::{Failure, connector};

connector!("wit/conformance.wit", Conformance);

struct Conformance;

impl Guest for Conformance {
    fn test_simple_text() -> Result<String, Failure> {
        Ok("This is a simple text response for testing.".to_owned())
    }

    fn test_error_handling() -> Result<String, Failure> {
        Err(Failure::failed("as_asked", "This tool intentionally returns an error for testing"))
    }

    fn test_tool_with_progress() -> Result<String, Failure> {
        Ok("done".to_owned())
    }

    fn test_logging_tool() -> Result<String, Failure> {
        Ok("done".to_owned())
    }

    fn test_tool_with_logging() -> Result<String, Failure> {
        Ok("done".to_owned())
    }

    fn test_elicitation(_message: String) -> Result<String, Failure> {
        Ok("done".to_owned())
    }

    fn test_streaming_elicitation() -> Result<String, Failure> {
        Ok("done".to_owned())
    }

    fn test_input_required_result_elicitation() -> Result<String, Failure> {
        Ok("done".to_owned())
    }

    fn test_input_required_result_request_state() -> Result<String, Failure> {
        Ok("done".to_owned())
    }

    fn test_input_required_result_tampered_state() -> Result<String, Failure> {
        Ok("done".to_owned())
    }
}
