//! The operator's settings in `config.toml`: three independent blocks, each with exceptions for single
//! connectors.

use std::sync::Arc;

use cofferdam_core::document::{DocumentError, DocumentTable, InvalidValue, SpannedItem, read};
use cofferdam_model::manifest::ConnectorName;

use super::breaker::BreakerPolicy;
use super::parse::own_name;
use super::profile::RetryProfile;
use super::profiles;
use super::rate::RateLimit;
use super::settings::{ResilienceSettings, SettingsOverride, SettingsToggle};

/// The key of a block's exceptions.
const CONNECTORS: &str = "connectors";

impl ResilienceSettings {
    /// The blocks that a document may have.
    pub const BLOCKS: [&'static str; 3] = ["retry", "breaker", "rate_limit"];

    /// Parses settings from `text`, called `label` in problems: the blocks `[retry]`, `[breaker]` and
    /// `[rate_limit]` as in `config.toml`.
    ///
    /// # Errors
    /// All problems of the text, each with its place and its fix.
    pub fn parse(label: &str, text: &str) -> Result<Self, DocumentError> {
        read(label, text, |root| {
            root.reject_unknown_keys(&Self::BLOCKS);
            Some(Self::read(root))
        })
    }

    /// Reads the settings in the blocks of `root`; problems are reported.
    pub fn read(root: &DocumentTable<'_>) -> Self {
        let mut settings = Self::default();
        if let Some(retry) = root.table("retry") {
            settings.read_retry(&retry);
        }
        if let Some(block) = root.table("breaker") {
            let policy =
                |table: &DocumentTable<'_>| SettingsToggle::from(BreakerPolicy::read(table).map(Arc::new));
            settings.breaker = said(&block, policy);
            settings.exceptions(&block, policy, |own, breaker| own.breaker = breaker);
        }
        if let Some(block) = root.table("rate_limit") {
            settings.rate = said(&block, rate_limit);
            settings.exceptions(&block, rate_limit, |own, rate| own.rate = rate);
        }
        settings
    }

    fn read_retry(&mut self, retry: &DocumentTable<'_>) {
        retry.reject_unknown_keys(&["profile", CONNECTORS, "profiles"]);
        for (name, table) in retry.table("profiles").iter().flat_map(DocumentTable::each_table) {
            let named = name.parse(|name| own_name(name)).is_some();
            let profile = RetryProfile::read(name.value, &table);
            // A profile that cannot be read still counts as defined: a reference to it is not a second
            // problem.
            let profile = profile.map_or_else(profiles::default, Arc::new);
            if named {
                self.profiles.insert(name.value.to_owned(), profile);
            }
        }
        if let Some(chosen) = retry.text("profile").and_then(|name| name.parse(|name| self.chosen(name))) {
            self.profile = chosen;
        }
        for (connector, name) in retry.table(CONNECTORS).iter().flat_map(DocumentTable::each_text) {
            let connector = connector_name(&connector);
            let profile = name.parse(|name| self.chosen(name));
            if let Some((connector, profile)) = connector.zip(profile) {
                self.own(connector).profile = Some(profile);
            }
        }
    }

    fn chosen(&self, name: &str) -> Result<Arc<RetryProfile>, InvalidValue> {
        self.profile(name).ok_or_else(|| self.unknown(name))
    }

    /// Reads the value of each of the block's exceptions.
    fn exceptions<T>(
        &mut self,
        block: &DocumentTable<'_>,
        value: impl Fn(&DocumentTable<'_>) -> T,
        set: impl Fn(&mut SettingsOverride, T),
    ) {
        for (name, table) in block.table(CONNECTORS).iter().flat_map(DocumentTable::each_table) {
            let value = value(&table);
            if let Some(connector) = connector_name(&name) {
                set(self.own(connector), value);
            }
        }
    }
}

/// Reads the rate limit in a table, or that it is off.
fn rate_limit(table: &DocumentTable<'_>) -> SettingsToggle<RateLimit> {
    let keys: Vec<_> = RateLimit::KEYS.into_iter().chain(["enabled"]).collect();
    table.reject_unknown_keys(&keys);
    match table.flag("enabled") {
        Some(false) => SettingsToggle::Off,
        _ => RateLimit::read(table).into(),
    }
}

/// Reads the block's value for all connectors; unset if it has only exceptions.
fn said<T>(
    block: &DocumentTable<'_>,
    value: impl Fn(&DocumentTable<'_>) -> SettingsToggle<T>,
) -> SettingsToggle<T> {
    match block.has_only(CONNECTORS) {
        true => SettingsToggle::Unsaid,
        false => value(&block.ignoring(CONNECTORS)),
    }
}

/// Reads a connector's name without a version: a setting applies to all installed versions.
fn connector_name(name: &SpannedItem<'_, &str>) -> Option<ConnectorName> {
    name.parse(|text| ConnectorName::unversioned(text))
}
