//! Actions from outside: checked against real connectors, kept on the shelf, and the command that does both.

#[path = "actions/checks.rs"]
mod checks;
#[path = "actions/command.rs"]
mod command;
#[path = "actions/shelf.rs"]
mod shelf;
