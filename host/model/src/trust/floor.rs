//! Floors: the lowest version of a connector that may run here, whatever is signed.
//!
//! A signature says who made a release, not that it still is a good one. A floor is how an operator says
//! "nothing below 1.4.2": it holds at install and at every load, for packages that are installed already
//! too, and no flag of a command goes below it.

use std::collections::BTreeMap;

use cofferdam_core::document::{Refused, Table};
use semver::Version;

use crate::manifest::{ConnectorName, exact_version};

/// Most floors of one keyring.
const MAX_FLOORS: usize = 1_000;

/// The lowest versions by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Floors {
    by_name: BTreeMap<ConnectorName, Version>,
}

impl Floors {
    /// Reads every `[[floor]]`.
    pub(super) fn read(tables: &[Table<'_>]) -> Self {
        let mut floors = Self::default();
        if let Some(beyond) = tables.get(MAX_FLOORS) {
            beyond.here().refuse(full(tables.len()));
        }
        for table in tables.iter().take(MAX_FLOORS) {
            table.only(&["name", "version"]);
            let text = table.required_text("name", "name = \"github://acme/slack\"");
            let name = text.and_then(|text| {
                let name = text.parse(|text| ConnectorName::parse(text))?;
                if floors.by_name.contains_key(&name) {
                    text.refuse(Refused::new(
                        "this connector has a floor above already",
                        "keep one of the two",
                    ));
                }
                Some(name)
            });
            let version = table.required_text("version", "version = \"1.2.0\"");
            let version = version.and_then(|text| text.parse(|text| exact_version(text)));
            floors.by_name.extend(name.zip(version));
        }
        floors
    }

    /// The tables, as text.
    pub(super) fn to_text(&self) -> String {
        let table = |(name, version): (&ConnectorName, &Version)| {
            format!("\n[[floor]]\nname = \"{name}\"\nversion = \"{version}\"\n")
        };
        self.by_name.iter().map(table).collect()
    }

    /// Each name with its floor.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ConnectorName, &Version)> {
        self.by_name.iter()
    }

    /// The floor of `name`.
    pub(super) fn get(&self, name: &ConnectorName) -> Option<&Version> {
        self.by_name.get(name)
    }

    /// Sets the floor of `name`; returns the one before.
    pub(super) fn set(
        &mut self,
        name: &ConnectorName,
        version: &Version,
    ) -> Result<Option<Version>, Refused> {
        if self.by_name.len() >= MAX_FLOORS && !self.by_name.contains_key(name) {
            return Err(full(self.by_name.len() + 1));
        }
        Ok(self.by_name.insert(name.clone(), version.clone()))
    }

    /// Takes the floor of `name` away; returns it.
    pub(super) fn remove(&mut self, name: &ConnectorName) -> Option<Version> {
        self.by_name.remove(name)
    }
}

fn full(found: usize) -> Refused {
    let message = format!("the keyring would have {found} floors, more than {MAX_FLOORS}");
    Refused::new(message, "remove those that are no longer needed")
}
