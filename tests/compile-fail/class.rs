//! A class from a string: there is no way back from the name to the class.

use cofferdam::FailureClass;

fn main() {
    let class: FailureClass = "hash_mismatch".parse().unwrap();
    let class = FailureClass::try_from("hash_mismatch").unwrap();
    let class: FailureClass = serde_json::from_str("\"hash_mismatch\"").unwrap();
    let class = FailureClass::ApprovalDenied;
}
