//! Lists the stored actions and determines which of them can run here. No package is read twice.

use std::collections::HashMap;
use std::sync::Arc;

use cofferdam_core::error::HostError;
use cofferdam_model::action::Action;
use serde::Serialize;

use super::check::fitting;
use super::packages::{self, PackageLookup};
use super::shelf::{ActionStore, StoredAction};
use crate::call::CallPipeline;

/// A stored action with its readiness.
#[derive(Debug)]
#[non_exhaustive]
pub struct ListedAction {
    /// The name of its file, without `.md`.
    pub name: String,
    /// The action. None if its file cannot be parsed.
    pub action: Option<Arc<Action>>,
    /// Its readiness.
    pub readiness: Readiness,
    /// The problems if it cannot run: all of them, each with its line.
    pub problem: Option<HostError>,
}

/// The readiness of an action to run here, as far as its files show. Bindings and circuits are checked by each
/// call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Readiness {
    /// It can run.
    Ready,
    /// Its file cannot be parsed as an action.
    Unreadable,
    /// A required connector is not installed in that version.
    NotInstalled,
    /// The installed package of a required connector does not have the hash that the action names.
    OtherPackage,
    /// A required connector may not run here: its signature, its bytes, its imports or its limits.
    Refused,
    /// Its declarations or inputs do not fit its connectors.
    DoesNotFit,
    /// An installed package cannot be read.
    Unknown,
}

impl Readiness {
    /// Returns the stable word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Unreadable => "unreadable",
            Self::NotInstalled => "not_installed",
            Self::OtherPackage => "other_package",
            Self::Refused => "refused",
            Self::DoesNotFit => "does_not_fit",
            Self::Unknown => "unknown",
        }
    }
}

/// Lists all stored actions. Connectors are read and verified, and neither compiled nor run. It reads files: not
/// for an executor's threads.
///
/// # Errors
/// The directory of actions cannot be read, or others could have written it.
pub(crate) fn list(pipeline: &CallPipeline, shelf: &ActionStore) -> Result<Vec<ListedAction>, HostError> {
    let mut seen = HashMap::new();
    let each = |StoredAction { name, action }: StoredAction| match action {
        Err(error) => {
            ListedAction { name, action: None, readiness: Readiness::Unreadable, problem: Some(error) }
        }
        Ok(action) => {
            let (readiness, problem) = match ready(pipeline, &action, &mut seen) {
                Ok(()) => (Readiness::Ready, None),
                Err((word, error)) => (word, Some(error)),
            };
            ListedAction { name, action: Some(action), readiness, problem }
        }
    };
    Ok(shelf.list()?.into_iter().map(each).collect())
}

/// The lookup results of connectors, by `name@version`.
type Seen = HashMap<String, PackageLookup>;

fn ready(
    pipeline: &CallPipeline,
    action: &Arc<Action>,
    seen: &mut Seen,
) -> Result<(), (Readiness, HostError)> {
    let mut found = Vec::with_capacity(action.requires().len());
    for required in action.requires() {
        let key = format!("{}@{}", required.connector(), required.version());
        let one = match seen.get(&key) {
            Some(one) => one.clone(),
            None => {
                let one = packages::verified(pipeline, required);
                let one = one.map_err(|error| (Readiness::Unknown, error))?;
                seen.insert(key, one.clone());
                one
            }
        };
        found.push(one);
    }
    let words = action.requires().iter().zip(&found).filter_map(|(required, found)| match found {
        PackageLookup::Not { word, .. } => Some(*word),
        PackageLookup::Package(package) => {
            (!packages::is_the_one(required, package)).then_some(Readiness::OtherPackage)
        }
    });
    // A problem of a package explains the other problems.
    let word = words.into_iter().next().unwrap_or(Readiness::DoesNotFit);
    fitting(pipeline, Arc::clone(action), &found).map(drop).map_err(|error| (word, error))
}
