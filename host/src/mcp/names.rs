//! Tool names: what clients accept, the same for the same tools, and never one that meant another tool a moment ago.

use std::collections::BTreeMap;

use crate::digest::Digest;

/// The longest name, in bytes.
const LONGEST: usize = 64;

/// How many digits tell two tools apart whose names would be the same.
const MARK: usize = 8;

/// A tool before it has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The name that it would have alone.
    pub(super) base: String,
    /// What no other tool is.
    pub(super) identity: String,
}

impl Wanted {
    /// An operation's: the last part of the connector's name, and the operation's.
    pub(super) fn operation(connector: &str, version: &str, op: &str) -> Self {
        let last = connector.rsplit('/').next().unwrap_or_default();
        Self {
            base: format!("{}__{}", plain(last), plain(op)),
            identity: format!("{connector}@{version} {op}"),
        }
    }
}

/// `text` in what every client accepts: small letters, digits and `_`.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

/// A name for each. Tools whose names would be the same all get a mark of what they are, and none the plain name: who
/// comes later cannot take the name of who was there, and it does not matter who came first.
pub(super) fn assigned<'w>(wanted: impl Iterator<Item = &'w Wanted> + Clone) -> Vec<String> {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for tool in wanted.clone() {
        *count.entry(&tool.base).or_default() += 1;
    }
    let alone = |tool: &Wanted| count.get(tool.base.as_str()) == Some(&1) && tool.base.len() <= LONGEST;
    wanted.map(|tool| if alone(tool) { tool.base.clone() } else { marked(tool) }).collect()
}

fn marked(tool: &Wanted) -> String {
    let digest = Digest::of(tool.identity.as_bytes()).to_string();
    let mark: String = digest.chars().take(MARK).collect();
    let base: String = tool.base.chars().take(LONGEST - MARK - 1).collect();
    format!("{base}_{mark}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test")]
    use super::{Wanted, assigned};

    fn names(wanted: &[(&str, &str, &str)]) -> Vec<String> {
        let wanted: Vec<_> =
            wanted.iter().map(|(name, version, op)| Wanted::operation(name, version, op)).collect();
        assigned(wanted.iter())
    }

    #[test]
    fn w41_a_name_is_the_connectors_and_the_operations() {
        let github = ("github://acme/github-issues", "1.0.0", "list_issues");
        assert_eq!(names(&[github]), ["github_issues__list_issues"]);
        assert_eq!(names(&[("github://a/My.Repo", "1.0.0", "x")]), ["my_repo__x"]);
    }

    #[test]
    fn attack_155_tools_of_one_name_are_told_apart_whoever_came_first() {
        let (ours, theirs) =
            (("github://acme/slack", "1.0.0", "post"), ("github://evil/slack", "1.0.0", "post"));
        let both = names(&[ours, theirs]);
        assert_ne!(both[0], both[1]);
        assert!(both.iter().all(|name| name.starts_with("slack__post_") && name.len() == 20), "{both:?}");
        assert_eq!(names(&[theirs, ours]), [both[1].clone(), both[0].clone()]);
        let versions = names(&[ours, ("github://acme/slack", "2.0.0", "post")]);
        assert_ne!(versions[0], versions[1]);
        let long = "x".repeat(100);
        let long = names(&[("github://a/b", "1.0.0", &long), ("github://a/b", "1.0.0", &format!("{long}y"))]);
        assert!(long[0] != long[1] && long.iter().all(|name| name.len() == 64), "{long:?}");
    }
}
