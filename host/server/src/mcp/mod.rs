//! The agent's side: actions and operations as tools of the Model Context Protocol, over stdio and HTTP.
//!
//! Agents are not trusted. A tool runs something that the operator installed and offered, and nothing else: none
//! grants, binds, trusts or installs. What a tool says of itself is from a signed package or the operator's own file,
//! without characters that hide or reorder text, and of bounded length; what was pinned and changed is not offered
//! before it is pinned anew. What comes of a call is what [`cofferdam_runtime::agent`] says of it, in one text and one structure.
//! The protocol itself is the official SDK's; what stands before it here answers what that passes over in silence.

mod catalog;
mod course;
mod cursor;
mod given_names;
mod greeting;
mod home_file;
mod http;
mod input;
mod jsonrpc;
mod listing;
mod names;
mod notes;
mod offer;
mod offered;
mod pins;
mod reading;
mod refusal;
mod reply;
mod room;
mod schema;
mod selection;
mod server;
mod sessions;
mod stdio;
mod tool;
mod words;

pub use catalog::{Catalog, Withheld};
pub use given_names::GivenNames;
pub use http::LastCalls;
pub use listing::{ListedTool, Listing, WithheldTool};
pub use notes::CallNotes;
pub use offer::Offer;
pub use offered::Offered;
pub use pins::Pins;
pub use server::{McpServer, McpSettings};
pub use sessions::SessionLimits;
