//! Named places at which a test may kill, stop or mislead the process. Without the feature `failpoints`, nothing.
//!
//! What a crash leaves behind is only known where the process really ended: the tests of recovery run the real binary
//! and have it killed here, between two steps that must not be torn apart.

#[cfg(feature = "failpoints")]
mod armed;

#[cfg(feature = "failpoints")]
pub(crate) use armed::{NAMES, arm};

/// Passes the place `name`; a process that is to be killed there does not come back.
#[inline]
pub(crate) fn pass(name: &'static str) {
    #[cfg(feature = "failpoints")]
    armed::pass(name);
    #[cfg(not(feature = "failpoints"))]
    let _ = name;
}

/// Passes it where `applies`; what that costs is only paid where places may be armed.
#[inline]
pub(crate) fn pass_if(name: &'static str, applies: impl FnOnce() -> bool) {
    if cfg!(feature = "failpoints") && applies() {
        pass(name);
    }
}

/// Whether what stands behind the place `name` is to be left out: a fault for a test to find.
#[inline]
pub(crate) fn skips(name: &'static str) -> bool {
    #[cfg(feature = "failpoints")]
    return armed::pass(name);
    #[cfg(not(feature = "failpoints"))]
    {
        let _ = name;
        false
    }
}
