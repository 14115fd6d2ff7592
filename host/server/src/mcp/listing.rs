//! The tools as the operator sees them: by name, what each runs, what agents read of it, and what is withheld.

use std::collections::BTreeMap;

use cofferdam_core::error::{HostError, HostErrorKind};
use serde::Serialize;
use serde_json::Value;

use super::catalog::Catalog;
use super::given_names::GivenNames;
use super::pins::Pins;

/// All tools.
#[derive(Debug, Clone, Serialize)]
pub struct Listing {
    /// What agents are offered.
    pub tools: Vec<ListedTool>,
    /// What was asked for and is not offered, and what filters leave out.
    pub withheld: Vec<WithheldTool>,
}

/// A tool that is offered.
#[derive(Debug, Clone, Serialize)]
pub struct ListedTool {
    /// Its name.
    pub name: String,
    /// What it runs.
    pub runs: String,
    /// The hash of all that agents read of it, as it is pinned.
    pub pin: String,
    /// All that agents read of it, as `tools/list` has it.
    pub tool: Value,
}

/// A tool that is not.
#[derive(Debug, Clone, Serialize)]
pub struct WithheldTool {
    /// Its name, or its connector's.
    pub name: String,
    /// Why.
    pub why: String,
}

impl Catalog {
    /// The tools for the operator to read.
    #[must_use]
    pub fn listing(&self) -> Listing {
        let tools = self.tools().iter().map(|named| ListedTool {
            name: named.tool.name.to_string(),
            runs: named.runs().shown(),
            pin: format!("sha256:{}", named.pin),
            tool: serde_json::to_value(&named.tool).unwrap_or_default(),
        });
        let withheld = self.withheld().iter().chain(self.left_out());
        let withheld = withheld.map(|one| WithheldTool { name: one.name.clone(), why: one.why.clone() });
        Listing { tools: tools.collect(), withheld: withheld.collect() }
    }

    /// Pins these tools, and no others, under the names that they have.
    ///
    /// # Errors
    /// `configuration`: the file cannot be written. `conflict`: another server gave one of the names to another tool
    /// since they were read.
    pub fn pin(&self, pins: &Pins, mut names: GivenNames) -> Result<Pins, HostError> {
        let lock = names.lock()?;
        if self.tools().iter().any(|tool| names.is_taken(&tool.tool.name, &tool.of.wanted)) {
            let message = "Another server gave one of these names to another tool in the meantime.";
            return Err(HostError::new(HostErrorKind::Conflict, message).hint("Pin again."));
        }
        if self.give(&mut names) {
            names.save(&lock)?;
        }
        let hashes: BTreeMap<_, _> = self.hashes();
        pins.written(hashes)
    }
}
