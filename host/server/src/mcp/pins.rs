//! Pins: the tools that the operator has read, by the hash of what agents are told of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use serde::{Deserialize, Serialize};

use super::home_file::{About, HomeFile};

const VERSION: u64 = 1;

const ABOUT: About = About {
    what: "a file of pins",
    consequence: "no tool can be held against its pin",
    hint: "Look at `cofferdam mcp --list-tools`, and pin the tools anew with `cofferdam mcp --pin`; or remove the file.",
};

/// The file of pins. Where there is none, nothing is pinned, and all that is offered is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins {
    file: HomeFile,
    /// None where there is no file.
    tools: Option<BTreeMap<String, Digest>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u64,
    /// By name, `sha256:` and 64 digits.
    tools: BTreeMap<String, String>,
}

/// What a pin says of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// It is as it was, or nothing is pinned.
    Fine,
    /// It is not what was pinned.
    Changed,
    /// It was not there.
    New,
}

impl Pins {
    /// The pins in the file at `path`, which need not be there.
    ///
    /// # Errors
    /// `configuration`: it is there and cannot be read.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, HostError> {
        let file = HomeFile::new(path, &ABOUT);
        let tools = file.read(parse)?;
        Ok(Self { file, tools })
    }

    /// No pins, whatever is in the file at `path`.
    #[must_use]
    pub fn none(path: impl Into<PathBuf>) -> Self {
        Self { file: HomeFile::new(path, &ABOUT), tools: None }
    }

    /// Where the file is, or would be.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The same file as if it were not there.
    #[must_use]
    pub fn forgotten(&self) -> Self {
        Self { file: self.file.clone(), tools: None }
    }

    /// How many tools are pinned; none where there is no file.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        self.tools.as_ref().map(BTreeMap::len)
    }

    /// The same file with these tools and no others, written whole or not at all.
    pub(super) fn written(&self, tools: BTreeMap<String, Digest>) -> Result<Self, HostError> {
        let texts = tools.iter().map(|(name, pin)| (name.clone(), format!("sha256:{pin}"))).collect();
        self.file.write(&Document { version: VERSION, tools: texts })?;
        Ok(Self { file: self.file.clone(), tools: Some(tools) })
    }

    /// What is said of the tool `name` with the hash `pin`.
    pub(super) fn say(&self, name: &str, pin: &Digest) -> Said {
        let Some(tools) = &self.tools else { return Said::Fine };
        match tools.get(name) {
            None => Said::New,
            Some(pinned) if pinned == pin => Said::Fine,
            Some(_) => Said::Changed,
        }
    }
}

fn parse(document: Document) -> Option<BTreeMap<String, Digest>> {
    let tools = document.tools.into_iter().map(|(name, pin)| Digest::parse(&pin).map(|pin| (name, pin)));
    tools.collect::<Option<_>>().filter(|_| document.version == VERSION)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::collections::BTreeMap;

    use std::os::unix::fs::PermissionsExt as _;

    use super::{Digest, Pins, Said};

    #[test]
    fn pins_that_others_could_have_written_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp-pins.json");
        Pins::none(&path).written(BTreeMap::new()).unwrap();
        let mode = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let refused = |what: &str| {
            let error = Pins::load(&path).unwrap_err();
            assert!(error.message().contains(what), "{error}");
        };
        mode(&path, 0o666);
        refused("can be written by others");
        mode(&path, 0o600);
        mode(dir.path(), 0o777);
        refused("another user can change");
        mode(dir.path(), 0o700);
        let other = dir.path().join("other");
        std::fs::rename(&path, &other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        refused("is a symbolic link");
    }

    #[test]
    fn a_pin_holds_what_a_tool_is_and_nothing_but_a_good_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp-pins.json");
        let none = Pins::load(&path).unwrap();
        let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
        assert_eq!((none.count(), none.say("a", &one)), (None, Said::Fine));
        none.written(BTreeMap::from([("a".to_owned(), one)])).unwrap();
        let pins = Pins::load(&path).unwrap();
        assert_eq!((pins.count(), pins.say("a", &one)), (Some(1), Said::Fine));
        assert_eq!((pins.say("a", &two), pins.say("b", &one)), (Said::Changed, Said::New));
        pins.written(BTreeMap::new()).unwrap();
        assert_eq!(
            Pins::load(&path).unwrap().say("a", &one),
            Said::New,
            "none are pinned, which is not no pins"
        );
        let good = std::fs::read_to_string(&path).unwrap();
        for bad in ["", "{}", "[]", &good.replace('1', "2"), &good.replace("{}", "{\"a\": \"sha256:0\"}")] {
            std::fs::write(&path, bad).unwrap();
            assert!(Pins::load(&path).is_err(), "{bad}");
        }
    }
}
