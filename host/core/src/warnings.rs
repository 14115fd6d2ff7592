//! One cause, one warning: what goes wrong again and again for the same reason is told to the operator once, until it is
//! over.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Subjects that are remembered; beyond that a warning may be repeated.
const KEPT: usize = 256;

/// Remembers what the operator was warned of.
#[derive(Debug, Default)]
pub struct Warnings {
    causes: Mutex<HashMap<String, String>>,
}

impl Warnings {
    /// Whether `subject` was not in trouble for this cause when this was last asked; from now on it is.
    pub fn is_news(&self, subject: &str, cause: &(impl ToString + ?Sized)) -> bool {
        let cause = cause.to_string();
        let mut causes = self.lock();
        if causes.get(subject) == Some(&cause) {
            return false;
        }
        if causes.len() >= KEPT {
            causes.clear();
        }
        causes.insert(subject.to_owned(), cause);
        true
    }

    /// Whether `subject` was in trouble; from now on it is not.
    pub fn is_over(&self, subject: &str) -> bool {
        self.lock().remove(subject).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Warnings;

    #[test]
    fn a_cause_is_news_once_until_it_is_over() {
        let warnings = Warnings::default();
        let news = |subject, cause: &str| warnings.is_news(subject, cause);
        assert_eq!([news("a", "full"), news("a", "full"), news("b", "full")], [true, false, true]);
        assert!(news("a", "gone") && news("a", "full"), "another cause");
        assert!(warnings.is_over("a") && !warnings.is_over("a"));
        assert!(news("a", "full"));
    }
}
