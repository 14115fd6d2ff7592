//! The server for agents, from outside: by clients that write bytes, and by clients that others wrote.

mod actions;
mod changes;
mod client;
mod conversation;
mod effects;
mod fixture;
mod flood;
mod flood_bytes;
mod foreign;
mod hostile;
mod http;
mod many;
mod names;
mod piped;
mod posting;
mod relay;
mod sessions;
mod values;
mod vanishing;
