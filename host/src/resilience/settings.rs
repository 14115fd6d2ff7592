//! What the operator decides about failures, for all calls and for single connectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::breaker::BreakerPolicy;
use super::profile::Profile;
use super::profiles;
use super::rate::RateLimit;
use crate::manifest::ConnectorName;

/// The operator's settings. Without any, every call has the profile `standard`, no breaker and no rate limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub(super) profile: Arc<Profile>,
    pub(super) profiles: BTreeMap<String, Arc<Profile>>,
    pub(super) connectors: BTreeMap<ConnectorName, Own>,
    pub(super) breaker: Option<Arc<BreakerPolicy>>,
    pub(super) rate: Option<RateLimit>,
}

/// What one connector has for itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Own {
    pub(super) profile: Option<Arc<Profile>>,
    pub(super) breaker: Option<Arc<BreakerPolicy>>,
    pub(super) rate: Option<RateLimit>,
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
            breaker: None,
            rate: None,
        }
    }
}

impl Settings {
    /// The profile of this name: the operator's own, or a built-in one.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<Arc<Profile>> {
        self.profiles.get(name).cloned().or_else(|| Profile::named(name))
    }

    /// What holds for a call of `connector` for which its caller wishes for a profile or not.
    #[must_use]
    pub fn plan(&self, connector: &ConnectorName, wished: Option<&Arc<Profile>>) -> Plan {
        let own = if self.connectors.is_empty() { None } else { self.connectors.get(connector) };
        let profile = wished.or_else(|| own?.profile.as_ref()).unwrap_or(&self.profile);
        let breaker = own.and_then(|own| own.breaker.as_ref()).or(self.breaker.as_ref());
        Plan {
            profile: Arc::clone(profile),
            breaker: breaker.or(profile.breaker()).cloned(),
            rate: own.and_then(|own| own.rate).or(self.rate),
        }
    }
}
