//! Tool names: accepted by all clients, stable for the same tools, and never reused for a different tool.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use cofferdam_core::private_file::FileLock;
use semver::Version;
use serde::{Deserialize, Serialize};

use super::home_file::{HomeFile, HomeFileTexts};

/// The longest name, in bytes.
const LONGEST: usize = 64;

/// The number of digits that distinguish two tools whose names would be the same.
const MARK: usize = 16;

/// A tool before it has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NameRequest {
    /// The name that it would have without rivals.
    pub(super) base: String,
    /// True if the operator chose it.
    pub(super) is_chosen: bool,
    /// Its identity in all versions: its connector and operation, or its action.
    pub(super) family: String,
    pub(super) version: Version,
}

impl NameRequest {
    /// Returns the request for an operation: the last part of the connector's name, and the operation's.
    pub(super) fn operation(connector: &str, version: &Version, op: &str) -> Self {
        let last = connector.rsplit('/').next().unwrap_or_default();
        Self {
            base: format!("{}__{}", plain(last), plain(op)),
            is_chosen: false,
            family: format!("{connector} {op}"),
            version: version.clone(),
        }
    }

    /// Returns the request for an action: its own name.
    pub(super) fn action(name: &str, version: &Version) -> Self {
        Self {
            base: plain(name),
            is_chosen: false,
            family: format!("action {name}"),
            version: version.clone(),
        }
    }

    /// Returns its identity among all tools.
    pub(super) fn identity(&self) -> String {
        format!("{}@{}", self.family, self.version)
    }

    /// Returns true if the name can be given unchanged.
    fn is_plain(&self) -> bool {
        (1..=LONGEST).contains(&self.base.len()) && !is_marked(&self.base)
    }
}

/// Returns `text` in the characters that every client accepts: small letters, digits and `_`.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

/// Returns a name for each.
///
/// A name that was given stays with its tool, or passes to another version of the same tool; other tools that
/// want it get a mark derived from their identity. If it was not given yet, all tools that want it get a
/// mark, so that the order of discovery does not matter. A name that the operator chose outranks all of that.
/// A name that looks like one with a mark is marked as well: no tool can have the marked name of another.
///
/// Two marks may still be equal by design: the caller has to check for equal names.
pub(super) fn assign(wanted: &[&NameRequest], given: &GivenNames) -> Vec<String> {
    let mut by_base: BTreeMap<&str, Vec<&NameRequest>> = BTreeMap::new();
    for tool in wanted {
        by_base.entry(&tool.base).or_default().push(tool);
    }
    let plain: BTreeMap<&str, &NameRequest> =
        by_base.iter().filter_map(|(base, rivals)| Some((*base, holder(rivals, given.get(base))?))).collect();
    let has_plain =
        |tool: &NameRequest| plain.get(tool.base.as_str()).is_some_and(|holder| **holder == *tool);
    wanted.iter().map(|tool| if has_plain(tool) { tool.base.clone() } else { marked(tool) }).collect()
}

/// Returns the tool that gets the name among the tools that want it.
fn holder<'w>(rivals: &[&'w NameRequest], given: Option<&NameOwner>) -> Option<&'w NameRequest> {
    let can = || rivals.iter().copied().filter(|tool| tool.is_plain());
    if can().any(|tool| tool.is_chosen) {
        return sole(can().filter(|tool| tool.is_chosen));
    }
    match given {
        None => sole(can()),
        Some(given) => {
            let family = || can().filter(|tool| tool.family == given.family);
            family()
                .find(|tool| tool.version == given.version)
                .or_else(|| family().max_by_key(|tool| &tool.version))
        }
    }
}

/// Returns the tool, if there is exactly one.
fn sole<'w>(mut tools: impl Iterator<Item = &'w NameRequest>) -> Option<&'w NameRequest> {
    tools.next().filter(|_| tools.next().is_none())
}

fn marked(tool: &NameRequest) -> String {
    let digest = Digest::sha256(tool.identity().as_bytes()).to_string();
    let mark: String = digest.chars().take(MARK).collect();
    let base: String = tool.base.chars().take(LONGEST - MARK - 1).collect();
    format!("{base}_{mark}")
}

/// Returns true if the name has the form of one with a mark.
fn is_marked(name: &str) -> bool {
    let mark = name.rsplit_once('_').map(|(_, mark)| mark);
    mark.is_some_and(|mark| mark.len() == MARK && mark.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

const FORMAT_VERSION: u64 = 1;

const ABOUT: HomeFileTexts = HomeFileTexts {
    what: "a file of tool names",
    consequence: "no tool can keep its name",
    hint: "Repair it, or remove it: then names are given as if no tool had been offered before.",
};

/// The given names, stored in a file of the home directory that all servers of the home share.
#[derive(Debug, Clone, Default)]
pub struct GivenNames {
    /// None if they are not stored.
    file: Option<HomeFile>,
    tools: BTreeMap<String, NameOwner>,
}

/// The owner of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NameOwner {
    pub(super) family: String,
    pub(super) version: Version,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolNamesDocument {
    version: u64,
    names: BTreeMap<String, NameOwner>,
}

/// A lock against other processes, from the read of the names until the new ones are written.
#[derive(Debug)]
#[must_use = "without it two servers can give one name to two tools"]
pub(super) struct NamesLock {
    _lock: Option<FileLock>,
    /// The names in the file.
    kept: BTreeMap<String, NameOwner>,
}

impl GivenNames {
    /// Loads the names in the file at `path`, which may be missing.
    ///
    /// # Errors
    /// `configuration`: it exists and cannot be read.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, HostError> {
        let file = HomeFile::new(path, &ABOUT);
        let tools = read(&file)?;
        Ok(Self { file: Some(file), tools })
    }

    /// Locks the names, and loads those that other servers gave in the meantime. Blocks.
    ///
    /// # Errors
    /// `configuration`: the file cannot be locked or read.
    pub(super) fn lock(&mut self) -> Result<NamesLock, HostError> {
        let Some(file) = &self.file else { return Ok(NamesLock { _lock: None, kept: BTreeMap::new() }) };
        let lock = file.lock()?;
        let kept = read(file)?;
        // A name that was given here keeps its meaning as long as this server runs, regardless of the file.
        merge(&mut self.tools, &kept);
        Ok(NamesLock { _lock: Some(lock), kept })
    }

    pub(super) fn get(&self, name: &str) -> Option<&NameOwner> {
        self.tools.get(name)
    }

    /// Returns true if another tool was offered under the name, and the operator did not choose the name for
    /// `tool`.
    pub(super) fn is_taken(&self, name: &str, tool: &NameRequest) -> bool {
        !tool.is_chosen && self.get(name).is_some_and(|given| given.family != tool.family)
    }

    /// Records that these tools are offered under these names. Returns true if any of that is new.
    pub(super) fn give<'n>(&mut self, tools: impl Iterator<Item = (&'n str, &'n NameRequest)>) -> bool {
        let mut is_new = false;
        for (name, tool) in tools {
            let given = NameOwner { family: tool.family.clone(), version: tool.version.clone() };
            is_new |= self.tools.insert(name.to_owned(), given.clone()) != Some(given);
        }
        is_new
    }

    /// Writes the file. A name that another tool has in the file stays that tool's: a name that the operator
    /// chose is valid in this server alone.
    ///
    /// # Errors
    /// `configuration`: it cannot be written.
    pub(super) fn save(&self, lock: &NamesLock) -> Result<(), HostError> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut names = lock.kept.clone();
        merge(&mut names, &self.tools);
        file.write(&ToolNamesDocument { version: FORMAT_VERSION, names })
    }
}

/// Adds new names, and newer versions of tools that have their names.
fn merge(names: &mut BTreeMap<String, NameOwner>, more: &BTreeMap<String, NameOwner>) {
    for (name, given) in more {
        let own = names.entry(name.clone()).or_insert_with(|| given.clone());
        if own.family == given.family {
            own.version = given.version.clone();
        }
    }
}

fn read(file: &HomeFile) -> Result<BTreeMap<String, NameOwner>, HostError> {
    let names = |document: ToolNamesDocument| (document.version == FORMAT_VERSION).then_some(document.names);
    Ok(file.read(names)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test")]

    use super::{GivenNames, NameRequest, assign};

    fn wanted(all: &[(&str, &str, &str)]) -> Vec<NameRequest> {
        all.iter()
            .map(|(name, version, op)| NameRequest::operation(name, &version.parse().unwrap(), op))
            .collect()
    }

    fn names_given(all: &[(&str, &str, &str)], given: &GivenNames) -> Vec<String> {
        assign(&wanted(all).iter().collect::<Vec<_>>(), given)
    }

    fn names(all: &[(&str, &str, &str)]) -> Vec<String> {
        names_given(all, &GivenNames::default())
    }

    #[test]
    fn a_given_name_is_stable() {
        let (ours, theirs) =
            (("github://acme/slack", "1.0.0", "post"), ("github://evil/slack", "0.0.1", "post"));
        let mut given = GivenNames::default();
        let first = wanted(&[ours]);
        given.give(first.iter().map(|tool| ("slack__post", tool)));
        let both = names_given(&[theirs, ours], &given);
        assert_eq!((both[1].as_str(), both[0].len()), ("slack__post", 28), "{both:?}");
        assert_eq!(names_given(&[theirs], &given), [both[0].clone()], "also where its holder is gone");
        // Another version of the same tool takes it over once the first is gone, and not before.
        let newer = ("github://acme/slack", "2.0.0", "post");
        assert_eq!(names_given(&[newer, ours], &given)[1], "slack__post");
        let newest = ("github://acme/slack", "10.0.0", "post");
        assert_eq!(names_given(&[newest, newer, theirs], &given)[0], "slack__post");
        // An operator's choice outranks it; two equal choices do not.
        let mut chosen = wanted(&[theirs, ours]);
        chosen[0].is_chosen = true;
        assert_eq!(assign(&chosen.iter().collect::<Vec<_>>(), &given)[0], "slack__post");
        chosen[1].is_chosen = true;
        assert!(assign(&chosen.iter().collect::<Vec<_>>(), &given).iter().all(|name| name.len() == 28));
    }

    #[test]
    fn a_tool_name_joins_connector_and_operation() {
        let github = ("github://acme/github-issues", "1.0.0", "list_issues");
        assert_eq!(names(&[github]), ["github_issues__list_issues"]);
        assert_eq!(names(&[("github://a/My.Repo", "1.0.0", "x")]), ["my_repo__x"]);
    }

    #[test]
    fn equal_tool_names_are_marked_in_any_order() {
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
    fn a_marked_name_cannot_be_taken_by_another() {
        let (ours, theirs) =
            (("github://acme/slack", "1.0.0", "post"), ("github://evil/slack", "1.0.0", "post"));
        let both = names(&[ours, theirs]);
        // An attacker that can compute the mark can export an operation of that name.
        let taken = both[0].strip_prefix("slack__").unwrap().replace('_', "-");
        let thief = ("github://thief/slack", "1.0.0", taken.as_str());
        let three = names(&[ours, theirs, thief]);
        assert_eq!(three[..2], both[..]);
        assert!(three[2].starts_with(&both[0]) && three[2].len() > both[0].len(), "{three:?}");
        assert_eq!(names(&[thief]), [three[2].clone()], "also where nobody is called that yet");
        let fewer = names(&[("github://a/b", "1.0.0", "x_233ce1cc")]);
        assert_eq!(fewer, ["b__x_233ce1cc"]);
    }
    #[test]
    fn two_servers_keep_each_others_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp-names.json");
        let tool = |of: &str| NameRequest::operation(of, &"1.0.0".parse().unwrap(), "post");
        let (ours, theirs) = (tool("github://acme/slack"), tool("github://acme/teams"));
        let [mut one, mut other] = [(); 2].map(|()| GivenNames::load(&path).unwrap());
        for (names, name, tool) in [(&mut one, "slack__post", &ours), (&mut other, "teams__post", &theirs)] {
            let lock = names.lock().unwrap();
            assert!(names.give([(name, tool)].into_iter()));
            names.save(&lock).unwrap();
        }
        assert!(other.get("slack__post").is_some());
        // A name that belongs to another tool in the file, because an operator chose it or it was lost,
        // changes neither.
        let chosen = tool("github://acme/chat");
        assert!(other.give([("slack__post", &chosen)].into_iter()));
        let lock = other.lock().unwrap();
        other.save(&lock).unwrap();
        drop(lock);
        let family = |names: &GivenNames| names.get("slack__post").map(|given| given.family.clone());
        assert_eq!(family(&other), Some(chosen.family));
        drop(one.lock().unwrap());
        assert_eq!(family(&one), Some(ours.family.clone()));
        let kept = GivenNames::load(&path).unwrap();
        assert!(kept.get("slack__post").is_some() && kept.get("teams__post").is_some());
    }

    #[test]
    fn names_are_kept_and_only_a_good_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp-names.json");
        let mut names = GivenNames::load(&path).unwrap();
        let tool = NameRequest::operation("github://acme/slack", &"1.0.0".parse().unwrap(), "post");
        assert!(names.give([("slack__post", &tool)].into_iter()));
        assert!(!names.give([("slack__post", &tool)].into_iter()), "it has it already");
        let lock = names.lock().unwrap();
        names.save(&lock).unwrap();
        drop(lock);
        assert_eq!(GivenNames::load(&path).unwrap().get("slack__post"), names.get("slack__post"));
        let good = std::fs::read_to_string(&path).unwrap();
        for bad in
            ["", "{}", "[]", &good.replace("\"version\": 1,", "\"version\": 2,"), &good.replace("1.0.0", "1")]
        {
            std::fs::write(&path, bad).unwrap();
            assert!(GivenNames::load(&path).is_err(), "{bad}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(GivenNames::load(&path).unwrap().get("slack__post"), None);
    }
}
