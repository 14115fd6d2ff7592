//! Failpoints: named places at which a test may kill, pause or mislead the process. Without the cfg
//! `cofferdam_failpoints` they do nothing.
//!
//! The state after a crash is only realistic if the process really ended. The recovery tests run the real
//! binary and kill it here, between two steps that must not be separated.

#[cfg(cofferdam_failpoints)]
mod armed;

#[cfg(cofferdam_failpoints)]
pub use armed::{NAMES, arm};

/// Passes the failpoint `name`. If the process is to be killed there, this does not return.
#[inline]
pub fn pass(name: &'static str) {
    #[cfg(cofferdam_failpoints)]
    armed::pass(name);
    #[cfg(not(cofferdam_failpoints))]
    let _ = name;
}

/// Passes the failpoint if `applies` returns true; the condition is evaluated only if failpoints may be
/// armed.
#[inline]
pub fn pass_if(name: &'static str, applies: impl FnOnce() -> bool) {
    if cfg!(cofferdam_failpoints) && applies() {
        pass(name);
    }
}

/// Returns whether the code behind the failpoint `name` is to be skipped: a fault for a test to detect.
#[inline]
pub fn skips(name: &'static str) -> bool {
    #[cfg(cofferdam_failpoints)]
    return armed::pass(name);
    #[cfg(not(cofferdam_failpoints))]
    {
        let _ = name;
        false
    }
}
