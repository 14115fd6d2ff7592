//! The operator's settings about failures, for all calls and for single connectors. In `config.toml` they are
//! three independent blocks, each with exceptions for single connectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_core::document::{DocumentError, DocumentTable, InvalidValue, SpannedItem, read};
use cofferdam_model::manifest::ConnectorName;

use super::breaker::BreakerPolicy;
use super::profile::{self, PROFILES, ProfileError, RetryProfile};
use super::profile::{own_name, unknown};
use super::rate_limit::RateLimit;

/// The key of a block's exceptions.
const CONNECTORS: &str = "connectors";

/// A setting that is on with a value (`Some(Some(_))`), off (`Some(None)`), or left to a more general setting.
type SettingsChoice<T> = Option<Option<T>>;

/// The operator's settings. By default every call has the profile `standard`, no breaker and no rate limit.
#[derive(Debug, Clone, PartialEq)]
pub struct ResilienceSettings {
    pub(super) profile: Arc<RetryProfile>,
    profiles: BTreeMap<String, Arc<RetryProfile>>,
    connectors: BTreeMap<ConnectorName, SettingsOverride>,
    breaker: SettingsChoice<Arc<BreakerPolicy>>,
    rate: SettingsChoice<RateLimit>,
}

/// The settings of one connector.
#[derive(Debug, Clone, Default, PartialEq)]
struct SettingsOverride {
    profile: Option<Arc<RetryProfile>>,
    breaker: SettingsChoice<Arc<BreakerPolicy>>,
    rate: SettingsChoice<RateLimit>,
}

/// The settings that apply to one candidate of a call.
#[derive(Debug, Clone)]
pub struct RetryPlan {
    /// Its retry policy.
    pub profile: Arc<RetryProfile>,
    /// Its breaker, if it has one.
    pub breaker: Option<Arc<BreakerPolicy>>,
    /// Its rate limit, if it has one.
    pub rate: Option<RateLimit>,
}

impl Default for ResilienceSettings {
    fn default() -> Self {
        Self {
            profile: profile::standard(),
            profiles: BTreeMap::new(),
            connectors: BTreeMap::new(),
            breaker: None,
            rate: None,
        }
    }
}

impl ResilienceSettings {
    /// Returns the settings with the default profile `profile`, for calls whose connector and caller choose
    /// none.
    #[must_use]
    pub fn with_profile(mut self, profile: Arc<RetryProfile>) -> Self {
        self.profile = profile;
        self
    }

    /// Returns the settings with the profile `profile` for calls of any version of `connector` whose caller
    /// chooses none.
    #[must_use]
    pub fn with_profile_for(mut self, connector: ConnectorName, profile: Arc<RetryProfile>) -> Self {
        self.own(connector).profile = Some(profile);
        self
    }

    /// Adds `profile` to those that callers can name.
    ///
    /// # Errors
    /// It has the name of a built-in profile, or of one that was added already.
    pub fn with_own_profile(mut self, profile: Arc<RetryProfile>) -> Result<Self, ProfileError> {
        let name = profile.name().to_string();
        if self.profile(&name).is_some() {
            return Err(ProfileError(format!("there is a profile `{name}` already")));
        }
        self.profiles.insert(name, profile);
        Ok(self)
    }

    /// Returns the settings with this breaker, or none, for all calls. It overrides the breaker of their
    /// profile.
    #[must_use]
    pub fn with_breaker(mut self, policy: impl Into<Option<BreakerPolicy>>) -> Self {
        self.breaker = Some(policy.into().map(Arc::new));
        self
    }

    /// Returns the settings with this breaker, or none, for calls of `connector`.
    #[must_use]
    pub fn with_breaker_for(
        mut self,
        connector: ConnectorName,
        policy: impl Into<Option<BreakerPolicy>>,
    ) -> Self {
        self.own(connector).breaker = Some(policy.into().map(Arc::new));
        self
    }

    /// Returns the settings with this rate limit for each host, or none, for the requests of every connector.
    #[must_use]
    pub fn with_rate(mut self, limit: impl Into<Option<RateLimit>>) -> Self {
        self.rate = Some(limit.into());
        self
    }

    /// Returns the settings with this rate limit for each host, or none, for the requests of `connector`.
    #[must_use]
    pub fn with_rate_for(mut self, connector: ConnectorName, limit: impl Into<Option<RateLimit>>) -> Self {
        self.own(connector).rate = Some(limit.into());
        self
    }

    /// Returns the profile of this name: the operator's own, or a built-in one.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<Arc<RetryProfile>> {
        self.profiles.get(name).cloned().or_else(|| RetryProfile::named(name))
    }

    /// Returns the names of all profiles: the built-in ones, then the operator's own.
    pub fn profile_names(&self) -> impl Iterator<Item = &str> {
        PROFILES.into_iter().chain(self.profiles.keys().map(String::as_str))
    }

    /// Returns the error that there is no profile of this name, with the existing names.
    pub fn unknown(&self, name: &str) -> InvalidValue {
        unknown(name, self.profile_names())
    }

    /// Returns the settings for a call of `connector`; `wished` is the caller's profile, if it chose one.
    #[must_use]
    pub fn plan(&self, connector: &ConnectorName, wished: Option<&Arc<RetryProfile>>) -> RetryPlan {
        let own = self.connectors.get(connector);
        let profile = wished.or_else(|| own?.profile.as_ref()).unwrap_or(&self.profile);
        let breaker = own.and_then(|own| own.breaker.as_ref()).or(self.breaker.as_ref());
        let rate = own.and_then(|own| own.rate).or(self.rate);
        RetryPlan {
            profile: Arc::clone(profile),
            breaker: breaker.map_or(profile.breaker(), Option::as_ref).cloned(),
            rate: rate.flatten(),
        }
    }

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
            let policy = |table: &DocumentTable<'_>| Some(BreakerPolicy::read(table).map(Arc::new));
            settings.breaker = block_value(&block, policy);
            settings.exceptions(&block, policy, |own, breaker| own.breaker = breaker);
        }
        if let Some(block) = root.table("rate_limit") {
            settings.rate = block_value(&block, rate_limit);
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
            let profile = profile.map_or_else(profile::standard, Arc::new);
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

    fn own(&mut self, connector: ConnectorName) -> &mut SettingsOverride {
        self.connectors.entry(connector).or_default()
    }
}

/// Reads the rate limit in a table, or that it is off.
fn rate_limit(table: &DocumentTable<'_>) -> SettingsChoice<RateLimit> {
    let keys: Vec<_> = RateLimit::KEYS.into_iter().chain(["enabled"]).collect();
    table.reject_unknown_keys(&keys);
    match table.flag("enabled") {
        Some(false) => Some(None),
        _ => Some(RateLimit::read(table)),
    }
}

/// Reads the block's value for all connectors; unset if it has only exceptions.
fn block_value<T>(
    block: &DocumentTable<'_>,
    value: impl Fn(&DocumentTable<'_>) -> SettingsChoice<T>,
) -> SettingsChoice<T> {
    match block.has_only(CONNECTORS) {
        true => None,
        false => value(&block.ignoring(CONNECTORS)),
    }
}

/// Reads a connector's name without a version: a setting applies to all installed versions.
fn connector_name(name: &SpannedItem<'_, &str>) -> Option<ConnectorName> {
    name.parse(|text| ConnectorName::unversioned(text))
}
