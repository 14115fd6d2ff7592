//! Deduplicates warnings: a repeated problem with the same cause is reported to the operator once, until it
//! is resolved.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of subjects that are remembered; above that a warning may be repeated.
const MAX_SUBJECTS: usize = 256;

/// Remembers the problems that the operator was warned of.
#[derive(Debug, Default)]
pub struct WarningLog {
    causes: Mutex<HashMap<String, String>>,
}

impl WarningLog {
    /// Records that `subject` has a problem with this cause, and returns whether that is new.
    pub fn is_new(&self, subject: &str, cause: &(impl ToString + ?Sized)) -> bool {
        let cause = cause.to_string();
        let mut causes = self.lock();
        if causes.get(subject) == Some(&cause) {
            return false;
        }
        if causes.len() >= MAX_SUBJECTS {
            causes.clear();
        }
        causes.insert(subject.to_owned(), cause);
        true
    }

    /// Records that `subject` has no problem any more, and returns whether it had one.
    pub fn resolve(&self, subject: &str) -> bool {
        self.lock().remove(subject).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::WarningLog;

    #[test]
    fn a_warning_is_repeated_only_after_recovery() {
        let warnings = WarningLog::default();
        let news = |subject, cause: &str| warnings.is_new(subject, cause);
        assert_eq!([news("a", "full"), news("a", "full"), news("b", "full")], [true, false, true]);
        assert!(news("a", "gone") && news("a", "full"), "another cause");
        assert!(warnings.resolve("a") && !warnings.resolve("a"));
        assert!(news("a", "full"));
    }
}
