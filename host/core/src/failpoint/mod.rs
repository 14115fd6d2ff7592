//! Named places at which a test may kill, stop or mislead the process. Without the cfg `cofferdam_failpoints`, nothing.
//!
//! What a crash leaves behind is only known where the process really ended: the tests of recovery run the real binary
//! and have it killed here, between two steps that must not be torn apart.

#[cfg(cofferdam_failpoints)]
mod armed;

#[cfg(cofferdam_failpoints)]
pub use armed::{NAMES, arm};

/// Passes the place `name`; a process that is to be killed there does not come back.
#[inline]
pub fn pass(name: &'static str) {
    #[cfg(cofferdam_failpoints)]
    armed::pass(name);
    #[cfg(not(cofferdam_failpoints))]
    let _ = name;
}

/// Passes it where `applies`; what that costs is only paid where places may be armed.
#[inline]
pub fn pass_if(name: &'static str, applies: impl FnOnce() -> bool) {
    if cfg!(cofferdam_failpoints) && applies() {
        pass(name);
    }
}

/// Whether what stands behind the place `name` is to be left out: a fault for a test to find.
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
