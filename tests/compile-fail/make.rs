//! A failure of one's own making: every way to a value is private.

use cofferdam::{AuditId, Boundary, Failure, FailureClass};

fn main() {
    let made = Failure { inner: todo!() };
    let made = Failure::new(todo!(), FailureClass::HashMismatch, Boundary::Runtime, true, todo!(), todo!());
    let made = Failure::network_error(todo!(), todo!());
    let made: Failure = Default::default();
    let made: Failure = serde_json::from_str("{}").unwrap();
    let id = AuditId(String::new());
}
