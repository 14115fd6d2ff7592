//! Actions from outside: checked against real connectors, stored, and the command that does both.

#[path = "actions/checks.rs"]
mod checks;
#[path = "actions/command.rs"]
mod command;
#[path = "actions/store.rs"]
mod store;
