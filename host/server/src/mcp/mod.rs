//! The agent's side: actions and operations as tools of the Model Context Protocol, over stdio and HTTP.
//!
//! Agents are not trusted. A tool runs something that the operator installed and offered, and nothing else:
//! none grants, binds, trusts or installs. The texts of a tool come from a signed package or the operator's
//! own file, without characters that hide or reorder text, and with bounded length. A pinned tool that
//! changed is not offered until it is pinned again. The result of a call is the rendering of
//! [`cofferdam_runtime::agent`], as one text and one structure. The protocol itself is the official SDK's;
//! the code in front of it here answers messages that the SDK ignores silently.

mod approval_form;
mod catalog;
mod catalog_cache;
mod elicitation;
mod error_response;
mod home_file;
mod http;
mod jsonrpc;
mod listing;
mod live_catalog;
mod notifications;
mod output;
mod pins;
mod progress;
mod replay_buffer;
mod selection;
mod server;
mod sessions;
mod stdio;
mod tool;
mod tool_names;

pub use catalog::{ToolCatalog, WithheldItem};
pub use http::DrainHandle;
pub use listing::{ListedTool, ToolListing, WithheldTool};
pub use live_catalog::LiveCatalog;
pub use notifications::CallNotes;
pub use pins::ToolPins;
pub use selection::ToolFilter;
pub use server::{McpServer, McpSettings};
pub use sessions::SessionLimits;
pub use tool_names::GivenNames;
