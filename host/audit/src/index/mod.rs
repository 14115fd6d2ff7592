//! The index of the journals: a SQLite file from which calls are found, and which can be rebuilt at any moment.

mod find;
mod reader;
mod rollup;
mod sealed_quota;
