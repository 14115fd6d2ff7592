//! The names under which tools were offered, so that a later installation cannot take one of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cofferdam_core::error::HostError;
use cofferdam_core::private_file::FileLock;
use semver::Version;
use serde::{Deserialize, Serialize};

use super::home_file::{HomeFile, HomeFileTexts};
use super::tool_names::NameRequest;

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
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{GivenNames, NameRequest};

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
