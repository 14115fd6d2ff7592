//! The server for agents, from outside: by clients that write bytes, and by clients that others wrote.

mod actions;
mod annotations;
mod approvals;
mod changes;
mod client;
mod conformance_connector;
mod conversation;
mod disconnects;
mod elicitation;
mod flood;
mod flood_bytes;
mod hostile;
mod http;
mod http_client;
mod input_required;
mod many_tools;
mod names;
mod relay;
mod sessions;
mod stdio_process;
mod third_party;
mod values;
