//! Jobs on a real NATS server, run by real worker processes that are killed, stopped and cut off.

mod control;
mod delivery;
mod fixture;
mod foreign;
mod http;
mod operations;
mod outage;
mod runs;
