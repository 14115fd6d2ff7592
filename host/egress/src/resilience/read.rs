//! The operator's settings as `config.toml` has them: three independent blocks, each with exceptions for single
//! connectors.

use std::sync::Arc;

use cofferdam_core::document::{DocumentError, Located, Refused, Table, read};
use cofferdam_model::manifest::ConnectorName;

use super::breaker::BreakerPolicy;
use super::parse::own_name;
use super::profile::Profile;
use super::profiles;
use super::rate::RateLimit;
use super::settings::{Own, Settings, Switch};

/// The key of a block's exceptions.
const CONNECTORS: &str = "connectors";

impl Settings {
    /// The blocks that a document may have.
    pub const BLOCKS: [&'static str; 3] = ["retry", "breaker", "rate_limit"];

    /// Reads settings from `text`, called `label` in problems: the blocks `[retry]`, `[breaker]` and `[rate_limit]`
    /// as in `config.toml`.
    ///
    /// # Errors
    /// Everything that is wrong with it, each problem with its place and its fix.
    pub fn parse(label: &str, text: &str) -> Result<Self, DocumentError> {
        read(label, text, |root| {
            root.only(&Self::BLOCKS);
            Some(Self::read(root))
        })
    }

    /// The settings in the blocks of `root`; what is wrong with them was reported.
    pub fn read(root: &Table<'_>) -> Self {
        let mut settings = Self::default();
        if let Some(retry) = root.table("retry") {
            settings.read_retry(&retry);
        }
        if let Some(block) = root.table("breaker") {
            let policy = |table: &Table<'_>| Switch::from(BreakerPolicy::read(table).map(Arc::new));
            settings.breaker = said(&block, policy);
            settings.exceptions(&block, policy, |own, breaker| own.breaker = breaker);
        }
        if let Some(block) = root.table("rate_limit") {
            settings.rate = said(&block, rate_limit);
            settings.exceptions(&block, rate_limit, |own, rate| own.rate = rate);
        }
        settings
    }

    fn read_retry(&mut self, retry: &Table<'_>) {
        retry.only(&["profile", CONNECTORS, "profiles"]);
        for (name, table) in retry.table("profiles").iter().flat_map(Table::each_table) {
            let named = name.parse(|name| own_name(name)).is_some();
            let profile = Profile::read(name.value, &table);
            // One that cannot be read is there all the same: who names it is not wrong as well.
            let profile = profile.map_or_else(profiles::default, Arc::new);
            if named {
                self.profiles.insert(name.value.to_owned(), profile);
            }
        }
        if let Some(chosen) = retry.text("profile").and_then(|name| name.parse(|name| self.chosen(name))) {
            self.profile = chosen;
        }
        for (connector, name) in retry.table(CONNECTORS).iter().flat_map(Table::each_text) {
            let connector = connector_name(&connector);
            let profile = name.parse(|name| self.chosen(name));
            if let Some((connector, profile)) = connector.zip(profile) {
                self.own(connector).profile = Some(profile);
            }
        }
    }

    fn chosen(&self, name: &str) -> Result<Arc<Profile>, Refused> {
        self.profile(name).ok_or_else(|| self.unknown(name))
    }

    /// What each of the block's exceptions says.
    fn exceptions<T>(
        &mut self,
        block: &Table<'_>,
        value: impl Fn(&Table<'_>) -> T,
        set: impl Fn(&mut Own, T),
    ) {
        for (name, table) in block.table(CONNECTORS).iter().flat_map(Table::each_table) {
            let value = value(&table);
            if let Some(connector) = connector_name(&name) {
                set(self.own(connector), value);
            }
        }
    }
}

/// The rate limit in a table, or that there is none.
fn rate_limit(table: &Table<'_>) -> Switch<RateLimit> {
    let keys: Vec<_> = RateLimit::KEYS.into_iter().chain(["enabled"]).collect();
    table.only(&keys);
    match table.flag("enabled") {
        Some(false) => Switch::Off,
        _ => RateLimit::read(table).into(),
    }
}

/// What the block says for all connectors; nothing, where it has exceptions alone.
fn said<T>(block: &Table<'_>, value: impl Fn(&Table<'_>) -> Switch<T>) -> Switch<T> {
    match block.has_only(CONNECTORS) {
        true => Switch::Unsaid,
        false => value(&block.without(CONNECTORS)),
    }
}

/// A connector's name without a version: what is set holds for all that are installed of it.
fn connector_name(name: &Located<'_, &str>) -> Option<ConnectorName> {
    name.parse(|text| ConnectorName::unversioned(text))
}
