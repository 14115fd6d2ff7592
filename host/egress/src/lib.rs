//! Sends the requests of connectors: egress policy, connections, credentials and their vault, circuit
//! breakers, rate limits and retry decisions.

pub mod credentials;
pub mod egress;
pub mod resilience;
pub mod vault;
