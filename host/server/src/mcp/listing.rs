//! The tools for the operator: by name, with the target of each, its text for agents, and the withheld ones.

use std::collections::BTreeMap;

use cofferdam_core::error::{HostError, HostErrorKind};
use serde::Serialize;
use serde_json::Value;

use super::catalog::ToolCatalog;
use super::given_names::GivenNames;
use super::pins::ToolPins;

/// All tools.
#[derive(Debug, Clone, Serialize)]
pub struct ToolListing {
    /// The offered tools.
    pub tools: Vec<ListedTool>,
    /// The requested items that are not offered, and the items that filters leave out.
    pub withheld: Vec<WithheldTool>,
}

/// A tool that is offered.
#[derive(Debug, Clone, Serialize)]
pub struct ListedTool {
    /// Its name.
    pub name: String,
    /// The operation or action that it runs.
    pub runs: String,
    /// The pinned hash of everything that agents read of it.
    pub pin: String,
    /// Everything that agents read of it, in the form of `tools/list`.
    pub tool: Value,
}

/// A tool that is not offered.
#[derive(Debug, Clone, Serialize)]
pub struct WithheldTool {
    /// Its name, or its connector's.
    pub name: String,
    /// The reason.
    pub why: String,
}

impl ToolCatalog {
    /// The tools for the operator to read.
    #[must_use]
    pub fn listing(&self) -> ToolListing {
        let tools = self.tools().iter().map(|named| ListedTool {
            name: named.tool.name.to_string(),
            runs: named.runs().shown(),
            pin: format!("sha256:{}", named.pin),
            tool: serde_json::to_value(&named.tool).unwrap_or_default(),
        });
        let withheld = self.withheld().iter().chain(self.left_out());
        let withheld = withheld.map(|one| WithheldTool { name: one.name.clone(), why: one.why.clone() });
        ToolListing { tools: tools.collect(), withheld: withheld.collect() }
    }

    /// Pins exactly these tools, under their present names.
    ///
    /// # Errors
    /// `configuration`: the file cannot be written. `conflict`: another server gave one of the names to
    /// another tool since they were read.
    pub fn pin(&self, pins: &ToolPins, mut names: GivenNames) -> Result<ToolPins, HostError> {
        let lock = names.lock()?;
        if self.tools().iter().any(|tool| names.is_taken(&tool.tool.name, &tool.draft.wanted)) {
            let message = "Another server gave one of these names to another tool in the meantime.";
            return Err(HostError::new(HostErrorKind::Conflict, message).with_hint("Pin again."));
        }
        if self.give(&mut names) {
            names.save(&lock)?;
        }
        let hashes: BTreeMap<_, _> = self.hashes();
        pins.written(hashes)
    }
}
