//! A failure that is changed on its way: there is nothing to write to.

use cofferdam::Failure;

fn soften(failure: &mut Failure) {
    failure.inner.retriable = true;
    failure.details_mut().clear();
    failure.details().clear();
    *failure.message() = String::new();
}

fn main() {}
