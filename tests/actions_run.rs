//! Actions that run, by the library and by the command: their steps against servers that count.

mod audit;
mod command;
mod dry_run;
mod ends;
pub(crate) mod fixture;
mod hostile_values;
mod key_expiry;
mod keys;
mod kills;
mod large;
mod positions;
mod terminal;
mod three_steps;
