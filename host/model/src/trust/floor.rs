//! Floors: the lowest version of a connector that may run here, even with a valid signature.
//!
//! A signature identifies the maker of a release; it does not show that the release is still good. With a
//! floor, an operator says "nothing below 1.4.2": it applies at install and at every load, also to packages
//! that are installed already, and no flag of a command overrides it.

use std::collections::BTreeMap;

use cofferdam_core::document::{DocumentTable, InvalidValue};
use semver::Version;

use crate::manifest::{ConnectorName, exact_version};

/// Most floors of one keyring.
const MAX_FLOORS: usize = 1_000;

/// The lowest versions by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct VersionFloors {
    by_name: BTreeMap<ConnectorName, Version>,
}

impl VersionFloors {
    /// Reads every `[[floor]]`.
    pub(super) fn read(tables: &[DocumentTable<'_>]) -> Self {
        let mut floors = Self::default();
        if let Some(beyond) = tables.get(MAX_FLOORS) {
            beyond.location().refuse(full(tables.len()));
        }
        for table in tables.iter().take(MAX_FLOORS) {
            table.reject_unknown_keys(&["name", "version"]);
            let text = table.required_text("name", "name = \"github://acme/slack\"");
            let name = text.and_then(|text| {
                let name = text.parse(|text| ConnectorName::parse(text))?;
                if floors.by_name.contains_key(&name) {
                    text.refuse(InvalidValue::new(
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
    ) -> Result<Option<Version>, InvalidValue> {
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

fn full(found: usize) -> InvalidValue {
    let message = format!("the keyring would have {found} floors, more than {MAX_FLOORS}");
    InvalidValue::new(message, "remove those that are no longer needed")
}
