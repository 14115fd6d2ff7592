//! Sends the requests of connectors: policy, connections, credentials and their vault, breakers, rate limits and the decision to repeat.

pub mod credentials;
pub mod egress;
pub mod resilience;
pub mod vault;
