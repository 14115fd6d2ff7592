//! Which of the actions on the shelf can run here: each held against what is installed, and no package looked at twice.

use std::collections::HashMap;
use std::sync::Arc;

use cofferdam_core::error::HostError;
use cofferdam_model::action::Action;
use serde::Serialize;

use super::check::fitting;
use super::packages::{self, Found};
use super::shelf::{Shelf, ShelvedAction};
use crate::call::Pipeline;

/// An action on the shelf, and whether it can run here.
#[derive(Debug)]
#[non_exhaustive]
pub struct ListedAction {
    /// The name of its file, without `.md`.
    pub name: String,
    /// The action; none where its file cannot be read as one.
    pub action: Option<Arc<Action>>,
    /// Whether it can run.
    pub readiness: Readiness,
    /// What is wrong where it cannot: all of it, each problem with its line.
    pub problem: Option<HostError>,
}

/// Whether an action can run here, as far as files say: bindings and circuits are the call's to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Readiness {
    /// It can.
    Ready,
    /// Its file cannot be read as an action.
    Unreadable,
    /// A connector that it requires is not installed in that version.
    NotInstalled,
    /// What is installed of a connector is another package than the one whose hash it names.
    OtherPackage,
    /// A connector that it requires may not run here: its signature, its bytes, its imports or its limits.
    Refused,
    /// What it declares or asks for is not what its connectors have.
    DoesNotFit,
    /// What is installed cannot be read.
    Unknown,
}

impl Readiness {
    /// The stable word.
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

/// All actions on the shelf. Connectors are read and verified, and neither compiled nor run. It reads files: not for an
/// executor's threads.
///
/// # Errors
/// The directory of actions cannot be read, or others could have written it.
pub(crate) fn list(pipeline: &Pipeline, shelf: &Shelf) -> Result<Vec<ListedAction>, HostError> {
    let mut seen = HashMap::new();
    let each = |ShelvedAction { name, action }: ShelvedAction| match action {
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

/// What was found of connectors, by `name@version`.
type Seen = HashMap<String, Found>;

fn ready(pipeline: &Pipeline, action: &Arc<Action>, seen: &mut Seen) -> Result<(), (Readiness, HostError)> {
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
        Found::Not { word, .. } => Some(*word),
        Found::Package(package) => {
            (!packages::is_the_one(required, package)).then_some(Readiness::OtherPackage)
        }
    });
    // What lies with a package explains the rest.
    let word = words.into_iter().next().unwrap_or(Readiness::DoesNotFit);
    fitting(pipeline, Arc::clone(action), &found).map(drop).map_err(|error| (word, error))
}
