//! What the tests and the tour share.

pub mod guests;
