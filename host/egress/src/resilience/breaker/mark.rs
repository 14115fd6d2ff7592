//! The stored mark of a credential: one line for each of its bindings, with its name and when it was bound;
//! nothing of the secret.

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

/// The longest mark that is stored verbatim, in bytes: enough for a few bindings.
const BYTES: usize = 1024;

/// The longest name of a binding that is shown, in bytes.
const NAME_BYTES: usize = 160;

/// Returns the mark, or a hash of it if the bindings are many.
pub(super) fn bounded(mark: String) -> String {
    if mark.len() <= BYTES {
        return mark;
    }
    let digits = Sha256::digest(mark.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("sha256:{digits}")
}

/// Returns the names of the bindings; none if only a hash was stored.
pub(super) fn bindings(mark: &str) -> Vec<String> {
    mark.lines().filter_map(line).map(|(name, _)| name.to_owned()).collect()
}

/// Returns whether `new` has the same bindings as `old`, and one of them was replaced since. After a clock
/// was set back this is false: a version that is not known to be newer closes nothing.
pub(super) fn supersedes(new: &str, old: &str) -> bool {
    if new.lines().count() != old.lines().count() {
        return false;
    }
    let pairs: Option<Vec<_>> =
        new.lines().zip(old.lines()).map(|(new, old)| line(new).zip(line(old))).collect();
    pairs.is_some_and(|pairs| {
        pairs.iter().all(|(new, old)| new.0 == old.0 && new.1 >= old.1)
            && pairs.iter().any(|(new, old)| new.1 > old.1)
    })
}

/// Parses a binding's name and the time at which it was bound. The name is copied into failures and commands,
/// so nothing else is accepted.
fn line(text: &str) -> Option<(&str, Timestamp)> {
    let (name, at) = text.split_once(' ')?;
    let is_name = name.len() <= NAME_BYTES
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-'));
    Some((name, at.parse().ok()?)).filter(|_| is_name)
}

#[cfg(test)]
mod tests {
    use super::{bindings, bounded, supersedes};

    const OLD: &str = "bearer/acme/work 2026-11-21T10:00:00Z";
    const NEW: &str = "bearer/acme/work 2026-11-21T10:00:00.5Z";
    const OTHER: &str = "bearer/acme/home 2026-11-22T10:00:00Z";

    #[test]
    fn only_the_same_bindings_bound_later_supersede() {
        assert!(supersedes(NEW, OLD));
        for (new, old) in
            [(OLD, NEW), (OLD, OLD), (OTHER, OLD), ("", OLD), (NEW, ""), ("sha256:1", "sha256:2")]
        {
            assert!(!supersedes(new, old), "{new:?} {old:?}");
        }
        let two = |one: &str| format!("{one}\n{OTHER}");
        assert!(supersedes(&two(NEW), &two(OLD)) && !supersedes(&two(NEW), OLD));
    }

    #[test]
    fn names_are_shown_and_nothing_else() {
        assert_eq!(bindings(OLD), ["bearer/acme/work"]);
        assert_eq!(bindings(&format!("{OLD}\n{OTHER}")), ["bearer/acme/work", "bearer/acme/home"]);
        let many = OLD.repeat(100);
        for none in ["", "$(reboot) 2026-11-21T10:00:00Z", "bearer/acme/work", &bounded(many)] {
            assert!(bindings(none).is_empty(), "{none}");
        }
    }
}
