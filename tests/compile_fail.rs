//! Nobody outside the crate can make a failure, a class or an audit id of their choice, or change one.

#[test]
fn a_failure_cannot_be_made_or_changed_outside() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("../tests/compile-fail/*.rs");
}
