//! The operations of @title_line@ as a connector.
//!
//! The code between the interface and the service is in `generated`, which `cofferdam new --update` writes again. This
//! file is yours.

mod generated;

use cofferdam_guest::Failure;
use cofferdam_guest::http::{Request, Response};

struct @Type@;

/// Completes every request before it is sent: the place for header fields that the service wants and its description
/// does not have.
fn prepare(request: Request) -> Request {
    request.header("user-agent", "cofferdam-@name@")
}

/// Makes a failure of an error response, with its status, the service's own code and the wait that it asks for. A code in
/// an unusual place of the body is found here.
fn failure_of(response: Response) -> Failure {
    match response.error_for_status() {
        Ok(response) => Failure::upstream(response.status(), "unexpected_status"),
        Err(error) => error.into(),
    }
}
