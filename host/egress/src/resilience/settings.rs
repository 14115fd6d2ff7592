//! The operator's settings about failures, for all calls and for single connectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_core::document::InvalidValue;
use cofferdam_model::manifest::ConnectorName;

use super::breaker::BreakerPolicy;
use super::parse::unknown;
use super::profile::{ProfileError, RetryProfile};
use super::profiles::{self, PROFILES};
use super::rate::RateLimit;

/// The operator's settings. By default every call has the profile `standard`, no breaker and no rate limit.
#[derive(Debug, Clone, PartialEq)]
pub struct ResilienceSettings {
    pub(super) profile: Arc<RetryProfile>,
    pub(super) profiles: BTreeMap<String, Arc<RetryProfile>>,
    pub(super) connectors: BTreeMap<ConnectorName, SettingsOverride>,
    pub(super) breaker: SettingsToggle<Arc<BreakerPolicy>>,
    pub(super) rate: SettingsToggle<RateLimit>,
}

/// The settings of one connector.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SettingsOverride {
    pub(super) profile: Option<Arc<RetryProfile>>,
    pub(super) breaker: SettingsToggle<Arc<BreakerPolicy>>,
    pub(super) rate: SettingsToggle<RateLimit>,
}

/// A setting that is on, off, or left to a more general setting.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum SettingsToggle<T> {
    /// It is not set.
    #[default]
    Unsaid,
    /// It is off.
    Off,
    /// It is on, with this value.
    On(T),
}

impl<T> From<Option<T>> for SettingsToggle<T> {
    fn from(said: Option<T>) -> Self {
        said.map_or(Self::Off, Self::On)
    }
}

impl<T> SettingsToggle<T> {
    /// Returns the value that is set here; `None` if it is not set.
    fn said(&self) -> Option<Option<&T>> {
        match self {
            Self::Unsaid => None,
            Self::Off => Some(None),
            Self::On(value) => Some(Some(value)),
        }
    }
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
            profile: profiles::default(),
            profiles: BTreeMap::new(),
            connectors: BTreeMap::new(),
            breaker: SettingsToggle::Unsaid,
            rate: SettingsToggle::Unsaid,
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
        self.breaker = policy.into().map(Arc::new).into();
        self
    }

    /// Returns the settings with this breaker, or none, for calls of `connector`.
    #[must_use]
    pub fn with_breaker_for(
        mut self,
        connector: ConnectorName,
        policy: impl Into<Option<BreakerPolicy>>,
    ) -> Self {
        self.own(connector).breaker = policy.into().map(Arc::new).into();
        self
    }

    /// Returns the settings with this rate limit for each host, or none, for the requests of every connector.
    #[must_use]
    pub fn with_rate(mut self, limit: impl Into<Option<RateLimit>>) -> Self {
        self.rate = limit.into().into();
        self
    }

    /// Returns the settings with this rate limit for each host, or none, for the requests of `connector`.
    #[must_use]
    pub fn with_rate_for(mut self, connector: ConnectorName, limit: impl Into<Option<RateLimit>>) -> Self {
        self.own(connector).rate = limit.into().into();
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
        let own = if self.connectors.is_empty() { None } else { self.connectors.get(connector) };
        let profile = wished.or_else(|| own?.profile.as_ref()).unwrap_or(&self.profile);
        let breaker = own.and_then(|own| own.breaker.said()).or(self.breaker.said());
        let rate = own.and_then(|own| own.rate.said()).or(self.rate.said());
        RetryPlan {
            profile: Arc::clone(profile),
            breaker: breaker.unwrap_or(profile.breaker()).cloned(),
            rate: rate.flatten().copied(),
        }
    }

    pub(super) fn own(&mut self, connector: ConnectorName) -> &mut SettingsOverride {
        self.connectors.entry(connector).or_default()
    }
}
