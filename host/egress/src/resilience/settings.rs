//! What the operator decides about failures, for all calls and for single connectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_core::document::Refused;
use cofferdam_model::manifest::ConnectorName;

use super::breaker::BreakerPolicy;
use super::parse::unknown;
use super::profile::{Profile, ProfileError};
use super::profiles::{self, PROFILES};
use super::rate::RateLimit;

/// The operator's settings. Without any, every call has the profile `standard`, no breaker and no rate limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub(super) profile: Arc<Profile>,
    pub(super) profiles: BTreeMap<String, Arc<Profile>>,
    pub(super) connectors: BTreeMap<ConnectorName, Own>,
    pub(super) breaker: Switch<Arc<BreakerPolicy>>,
    pub(super) rate: Switch<RateLimit>,
}

/// What one connector has for itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Own {
    pub(super) profile: Option<Arc<Profile>>,
    pub(super) breaker: Switch<Arc<BreakerPolicy>>,
    pub(super) rate: Switch<RateLimit>,
}

/// Something that may be on or off, or left to whoever says it less exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum Switch<T> {
    /// Nothing is said about it.
    #[default]
    Unsaid,
    /// It is off.
    Off,
    /// It is on, like this.
    On(T),
}

impl<T> From<Option<T>> for Switch<T> {
    fn from(said: Option<T>) -> Self {
        said.map_or(Self::Off, Self::On)
    }
}

impl<T> Switch<T> {
    /// What is said here; none: nothing is.
    fn said(&self) -> Option<Option<&T>> {
        match self {
            Self::Unsaid => None,
            Self::Off => Some(None),
            Self::On(value) => Some(Some(value)),
        }
    }
}

/// What holds for one candidate of a call.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its policy.
    pub profile: Arc<Profile>,
    /// Its breaker, if it has one.
    pub breaker: Option<Arc<BreakerPolicy>>,
    /// Its rate limit, if it has one.
    pub rate: Option<RateLimit>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            profile: profiles::default(),
            profiles: BTreeMap::new(),
            connectors: BTreeMap::new(),
            breaker: Switch::Unsaid,
            rate: Switch::Unsaid,
        }
    }
}

impl Settings {
    /// Calls have `profile` where neither their connector nor their caller says otherwise.
    #[must_use]
    pub fn with_profile(mut self, profile: Arc<Profile>) -> Self {
        self.profile = profile;
        self
    }

    /// Calls of `connector`, whatever its version, have `profile` where their caller does not say otherwise.
    #[must_use]
    pub fn with_profile_for(mut self, connector: ConnectorName, profile: Arc<Profile>) -> Self {
        self.own(connector).profile = Some(profile);
        self
    }

    /// Lets callers name `profile`.
    ///
    /// # Errors
    /// It has the name of a built-in profile, or of one that is there already.
    pub fn with_own_profile(mut self, profile: Arc<Profile>) -> Result<Self, ProfileError> {
        let name = profile.name().to_string();
        if self.profile(&name).is_some() {
            return Err(ProfileError(format!("there is a profile `{name}` already")));
        }
        self.profiles.insert(name, profile);
        Ok(self)
    }

    /// Calls have this breaker, or none, whatever their profile brings.
    #[must_use]
    pub fn with_breaker(mut self, policy: impl Into<Option<BreakerPolicy>>) -> Self {
        self.breaker = policy.into().map(Arc::new).into();
        self
    }

    /// Calls of `connector` have this breaker, or none.
    #[must_use]
    pub fn with_breaker_for(
        mut self,
        connector: ConnectorName,
        policy: impl Into<Option<BreakerPolicy>>,
    ) -> Self {
        self.own(connector).breaker = policy.into().map(Arc::new).into();
        self
    }

    /// The requests of every connector have this rate limit for each host, or none.
    #[must_use]
    pub fn with_rate(mut self, limit: impl Into<Option<RateLimit>>) -> Self {
        self.rate = limit.into().into();
        self
    }

    /// The requests of `connector` have this rate limit for each host, or none.
    #[must_use]
    pub fn with_rate_for(mut self, connector: ConnectorName, limit: impl Into<Option<RateLimit>>) -> Self {
        self.own(connector).rate = limit.into().into();
        self
    }

    /// The profile of this name: the operator's own, or a built-in one.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<Arc<Profile>> {
        self.profiles.get(name).cloned().or_else(|| Profile::named(name))
    }

    /// The names of all profiles: the built-in ones, then the operator's own.
    pub fn profile_names(&self) -> impl Iterator<Item = &str> {
        PROFILES.into_iter().chain(self.profiles.keys().map(String::as_str))
    }

    /// Why there is no profile of this name, and which there are.
    pub fn unknown(&self, name: &str) -> Refused {
        unknown(name, self.profile_names())
    }

    /// What holds for a call of `connector` for which its caller wishes for a profile or not.
    #[must_use]
    pub fn plan(&self, connector: &ConnectorName, wished: Option<&Arc<Profile>>) -> Plan {
        let own = if self.connectors.is_empty() { None } else { self.connectors.get(connector) };
        let profile = wished.or_else(|| own?.profile.as_ref()).unwrap_or(&self.profile);
        let breaker = own.and_then(|own| own.breaker.said()).or(self.breaker.said());
        let rate = own.and_then(|own| own.rate.said()).or(self.rate.said());
        Plan {
            profile: Arc::clone(profile),
            breaker: breaker.unwrap_or(profile.breaker()).cloned(),
            rate: rate.flatten().copied(),
        }
    }

    pub(super) fn own(&mut self, connector: ConnectorName) -> &mut Own {
        self.connectors.entry(connector).or_default()
    }
}
