//! What goes out about calls: spans to collectors and metrics, and what does not go out with them.

mod gone;
mod metrics;
mod received;
mod rotel;
mod secure;
mod silent;
mod spans;
mod stage;
