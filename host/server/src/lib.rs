//! The servers of cofferdam: MCP for agents, and an HTTP API for programs.

pub mod http_api;
pub mod mcp;
pub mod server;
