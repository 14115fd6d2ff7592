//! `trust floor`: the lowest version of a connector that may run here.

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::manifest::{ConnectorName, exact_version};
use semver::Version;
use serde::Serialize;

use super::key::refusal;
use crate::layout::TextStyle;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
A signature says who made a release, not that it still is a good one. A floor holds at install and at every \
call, for what is installed already too, and neither --allow-downgrade nor --allow-unsigned goes below it.

Examples:
  cofferdam trust floor github://acme/slack 1.4.2
  cofferdam trust floor github://acme/slack --remove
  cofferdam trust floor";

/// Sets the lowest version of a connector that may run; without arguments, lists those that are set.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The connector.
    #[arg(value_name = "NAME", value_parser = name)]
    name: Option<ConnectorName>,

    /// The lowest version that may run, all three numbers.
    #[arg(value_name = "VERSION", requires = "name", value_parser = version)]
    version: Option<Version>,

    /// Takes the connector's floor away.
    #[arg(long, requires = "name", conflicts_with = "version")]
    remove: bool,
}

/// A floor, as it is now.
#[derive(Debug, Serialize)]
struct MinimumVersion {
    name: String,
    version: Option<String>,
}

/// The change.
#[derive(Debug, Serialize)]
struct MinimumVersionChange {
    change: &'static str,
    floor: MinimumVersion,
    previous: Option<String>,
}

fn name(text: &str) -> Result<ConnectorName, String> {
    ConnectorName::parse(text).map_err(|refused| refused.to_string())
}

fn version(text: &str) -> Result<Version, String> {
    exact_version(text).map_err(|refused| refused.to_string())
}

/// Lists, sets or removes.
pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { name, version, remove } = args;
    let Some(name) = name else { return list(session) };
    if version.is_none() && !remove {
        let error = HostError::new(HostErrorKind::Validation, "Neither a version nor --remove was given.");
        return Err(error.with_hint(format!("Write `cofferdam trust floor {name} VERSION`.")).into());
    }
    let previous = session.change_keyring(|keyring| match &version {
        Some(version) => {
            keyring.set_floor(&name, version).map_err(|refused| refusal(&refused, HostErrorKind::Validation))
        }
        None => Ok(keyring.remove_floor(&name)),
    })?;
    let change = match (&previous, &version) {
        (None, None) => "unchanged",
        (Some(_), None) => "removed",
        (None, Some(_)) => "set",
        (Some(old), Some(new)) if new < old => "lowered",
        (Some(old), Some(new)) if new > old => "raised",
        (Some(_), Some(_)) => "unchanged",
    };
    let text = |version: Option<Version>| version.map(|version| version.to_string());
    let floor = MinimumVersion { name: name.to_string(), version: text(version) };
    let changed = MinimumVersionChange { change, floor, previous: text(previous) };
    session.ui.result(&changed, |page| {
        page.styled_field(changed.change, TextStyle::Good, &changed.floor.name);
        page.field("floor", changed.floor.version.as_deref().unwrap_or("none"));
        if let Some(previous) = &changed.previous {
            page.field("before", previous);
        }
    })
}

fn list(session: &Session<'_>) -> Result<(), CommandError> {
    let keyring = session.keyring()?.load()?;
    let floor = |(name, version): (&ConnectorName, &Version)| MinimumVersion {
        name: name.to_string(),
        version: Some(version.to_string()),
    };
    let floors: Vec<_> = keyring.floors().map(floor).collect();
    session.ui.result(&floors, |page| {
        let row = |floor: &MinimumVersion| [floor.name.clone(), floor.version.clone().unwrap_or_default()];
        if !floors.is_empty() {
            page.table(["CONNECTOR", "FLOOR"], floors.iter().map(row).collect());
        }
    })?;
    if floors.is_empty() {
        session.ui.note("No connector has a floor. `cofferdam trust floor NAME VERSION` sets one.");
    }
    Ok(())
}
