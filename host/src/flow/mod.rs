//! Many calls, in order: those that a crash cut short, done again or left; and outcomes given again.

mod found;
mod recover;
mod replay;

pub use recover::{Incomplete, Skip};
pub(crate) use recover::{incomplete, look, resume, skip};
pub(crate) use replay::replay;
