//! What the tests and the tour share.
