//! The exit codes that are the command line's own; the others are in the tables of failures and errors.

/// The arguments are wrong.
pub(super) const USAGE: u8 = 2;

/// Ended by Ctrl-C: 128 and the signal's number, as shells have it.
pub(super) const INTERRUPTED: u8 = 130;

/// Ended by a polite kill.
pub(super) const TERMINATED: u8 = 143;

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::error::HostErrorKind;
    use cofferdam_core::failure::FailureClass;

    #[test]
    fn no_error_of_the_host_looks_like_a_calls_outcome_or_like_success() {
        for kind in HostErrorKind::ALL {
            let code = kind.exit_code();
            let cancelled = kind == &HostErrorKind::Cancelled;
            assert_eq!(code == INTERRUPTED, cancelled, "{}", kind.code());
            assert!(![0, USAGE, TERMINATED].contains(&code), "{}", kind.code());
            assert!(FailureClass::ALL.iter().all(|class| class.exit_code() != code), "{}", kind.code());
        }
    }
}
