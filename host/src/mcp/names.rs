//! Tool names: what clients accept, the same for the same tools, and never one that meant another tool a moment ago.

use std::collections::BTreeMap;

use crate::digest::Digest;

/// The longest name, in bytes.
const LONGEST: usize = 64;

/// How many digits tell two tools apart whose names would be the same.
const MARK: usize = 16;

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
/// comes later cannot take the name of who was there, and it does not matter who came first. What looks like a name with
/// a mark is marked as well: nobody can call a tool what another is called once it is marked.
///
/// Two marks may still be met by design: who uses these names has to look for equal ones.
pub(super) fn assigned<'w>(wanted: impl Iterator<Item = &'w Wanted> + Clone) -> Vec<String> {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for tool in wanted.clone() {
        *count.entry(&tool.base).or_default() += 1;
    }
    let plain = |tool: &Wanted| {
        let alone = count.get(tool.base.as_str()) == Some(&1);
        alone && (1..=LONGEST).contains(&tool.base.len()) && !is_marked(&tool.base)
    };
    wanted.map(|tool| if plain(tool) { tool.base.clone() } else { marked(tool) }).collect()
}

fn marked(tool: &Wanted) -> String {
    let digest = Digest::of(tool.identity.as_bytes()).to_string();
    let mark: String = digest.chars().take(MARK).collect();
    let base: String = tool.base.chars().take(LONGEST - MARK - 1).collect();
    format!("{base}_{mark}")
}

/// Whether the name has the form of one with a mark.
fn is_marked(name: &str) -> bool {
    let mark = name.rsplit_once('_').map(|(_, mark)| mark);
    mark.is_some_and(|mark| mark.len() == MARK && mark.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test")]
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
        assert!(both.iter().all(|name| name.starts_with("slack__post_") && name.len() == 28), "{both:?}");
        assert_eq!(names(&[theirs, ours]), [both[1].clone(), both[0].clone()]);
        let versions = names(&[ours, ("github://acme/slack", "2.0.0", "post")]);
        assert_ne!(versions[0], versions[1]);
        let long = "x".repeat(100);
        let long = names(&[("github://a/b", "1.0.0", &long), ("github://a/b", "1.0.0", &format!("{long}y"))]);
        assert!(long[0] != long[1] && long.iter().all(|name| name.len() == 64), "{long:?}");
    }

    #[test]
    fn attack_155_nobody_can_be_called_what_another_is_called_once_it_is_marked() {
        let (ours, theirs) =
            (("github://acme/slack", "1.0.0", "post"), ("github://evil/slack", "1.0.0", "post"));
        let both = names(&[ours, theirs]);
        // Whoever can compute the mark can export an operation of that name.
        let taken = both[0].strip_prefix("slack__").unwrap().replace('_', "-");
        let thief = ("github://thief/slack", "1.0.0", taken.as_str());
        let three = names(&[ours, theirs, thief]);
        assert_eq!(three[..2], both[..]);
        assert!(three[2].starts_with(&both[0]) && three[2].len() > both[0].len(), "{three:?}");
        assert_eq!(names(&[thief]), [three[2].clone()], "also where nobody is called that yet");
        let fewer = names(&[("github://a/b", "1.0.0", "x_233ce1cc")]);
        assert_eq!(fewer, ["b__x_233ce1cc"]);
    }
}
