//! The servers of cofferdam: MCP for agents, and an HTTP API for programs.

mod author_text;
pub mod http_api;
mod json_schema;
pub mod mcp;
pub mod server;
