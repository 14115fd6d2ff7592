//! The MCP clients: where each keeps its configuration, and what it wants there.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::config::pretty;
use crate::error::{HostError, HostErrorKind};

/// The name of the server in every client.
const NAME: &str = "cofferdam";

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Client {
    /// `.mcp.json` in the project.
    ClaudeCode,
    /// `claude_desktop_config.json` of the user.
    ClaudeDesktop,
    /// `.cursor/mcp.json` in the project.
    Cursor,
    /// `.vscode/mcp.json` in the project.
    Vscode,
    /// `~/.codex/config.toml`.
    Codex,
    /// `settings.json` of the user.
    Zed,
    /// `~/.codeium/windsurf/mcp_config.json`.
    Windsurf,
}

/// What a client is told.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    /// To start the server.
    Local { command: String, args: Vec<String>, home: String },
    /// To reach one that runs.
    Remote { url: String },
}

impl Client {
    /// Where it reads its configuration, in words.
    pub(super) fn place(self) -> &'static str {
        match self {
            Self::ClaudeCode => ".mcp.json in the project's directory",
            Self::ClaudeDesktop => "claude_desktop_config.json (Settings, Developer, Edit Config)",
            Self::Cursor => ".cursor/mcp.json in the project's directory, or ~/.cursor/mcp.json",
            Self::Vscode => ".vscode/mcp.json in the project's directory",
            Self::Codex => "~/.codex/config.toml",
            Self::Zed => "settings.json of Zed",
            Self::Windsurf => "~/.codeium/windsurf/mcp_config.json",
        }
    }

    /// The file, of the project in the working directory or of the user whose home is `home`.
    pub(super) fn path(self, home: Option<&Path>) -> Result<PathBuf, HostError> {
        let of_user = |path: &str| {
            home.map(|home| home.join(path)).ok_or_else(|| {
                HostError::new(HostErrorKind::Configuration, "HOME does not say where your files are.")
            })
        };
        match self {
            Self::ClaudeCode => Ok(".mcp.json".into()),
            Self::Cursor => Ok(".cursor/mcp.json".into()),
            Self::Vscode => Ok(".vscode/mcp.json".into()),
            Self::ClaudeDesktop if cfg!(target_os = "macos") => {
                of_user("Library/Application Support/Claude/claude_desktop_config.json")
            }
            Self::ClaudeDesktop => of_user(".config/Claude/claude_desktop_config.json"),
            Self::Codex => of_user(".codex/config.toml"),
            Self::Zed => of_user(".config/zed/settings.json"),
            Self::Windsurf => of_user(".codeium/windsurf/mcp_config.json"),
        }
    }

    /// The whole snippet.
    pub(super) fn snippet(self, entry: &Entry) -> Result<String, HostError> {
        if self == Self::ClaudeDesktop && matches!(entry, Entry::Remote { .. }) {
            let message = "Claude Desktop reaches servers over HTTP only as connectors in its own settings.";
            return Err(HostError::new(HostErrorKind::Validation, message)
                .hint("Let it start the server: leave out --url."));
        }
        if self == Self::Codex {
            return Ok(codex(entry));
        }
        let mut all = json!({self.key(): {NAME: self.value(entry)}});
        if let (Self::Vscode, Entry::Remote { .. }, Some(all)) = (self, entry, all.as_object_mut()) {
            let input = json!([{"type": "promptString", "id": "cofferdam-token", "description": "Token of cofferdam", "password": true}]);
            all.insert("inputs".into(), input);
        }
        Ok(pretty(&all))
    }

    /// The client's file with the entry in it, and all else as it was.
    pub(super) fn merged(self, before: Option<&str>, entry: &Entry) -> Result<String, &'static str> {
        let snippet = self.snippet(entry).map_err(|_| "cannot hold that")?;
        let Some(before) = before.filter(|text| !text.trim().is_empty()) else { return Ok(snippet) };
        if self == Self::Codex {
            let table: toml::Table = before.parse().map_err(|_| "is not TOML")?;
            let there = table.get("mcp_servers").and_then(|servers| servers.get(NAME)).is_some();
            return if there {
                Err("has a server of this name already")
            } else {
                Ok(format!("{}\n\n{snippet}", before.trim_end()))
            };
        }
        let mut all: Map<String, Value> = serde_json::from_str(before).map_err(|_| "is not plain JSON")?;
        let servers = all.entry(self.key()).or_insert_with(|| json!({}));
        let servers = servers.as_object_mut().ok_or("has something else where servers stand")?;
        servers.insert(NAME.into(), self.value(entry));
        let snippet: Value = serde_json::from_str(&snippet).map_err(|_| "cannot hold that")?;
        if let Some(inputs) = snippet.get("inputs") {
            all.entry("inputs").or_insert_with(|| inputs.clone());
        }
        Ok(pretty(&Value::Object(all)))
    }

    const fn key(self) -> &'static str {
        match self {
            Self::Vscode => "servers",
            Self::Zed => "context_servers",
            _ => "mcpServers",
        }
    }

    fn value(self, entry: &Entry) -> Value {
        match entry {
            Entry::Local { command, args, home } => {
                let env = json!({"COFFERDAM_HOME": home});
                match self {
                    Self::Vscode => json!({"type": "stdio", "command": command, "args": args, "env": env}),
                    Self::Zed => json!({"source": "custom", "command": command, "args": args, "env": env}),
                    _ => json!({"command": command, "args": args, "env": env}),
                }
            }
            Entry::Remote { url } => {
                let bearer = |token: &str| json!({"Authorization": format!("Bearer {token}")});
                match self {
                    Self::ClaudeCode => {
                        json!({"type": "http", "url": url, "headers": bearer("${COFFERDAM_MCP_TOKEN}")})
                    }
                    Self::Vscode => {
                        json!({"type": "http", "url": url, "headers": bearer("${input:cofferdam-token}")})
                    }
                    Self::Windsurf => {
                        json!({"serverUrl": url, "headers": bearer("${env:COFFERDAM_MCP_TOKEN}")})
                    }
                    Self::Zed => json!({"url": url, "headers": bearer("TOKEN")}),
                    _ => json!({"type": "http", "url": url, "headers": bearer("${env:COFFERDAM_MCP_TOKEN}")}),
                }
            }
        }
    }
}

/// The table of Codex, whose texts TOML quotes as JSON does.
fn codex(entry: &Entry) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    match entry {
        Entry::Local { command, args, home } => {
            let args: Vec<_> = args.iter().map(|arg| quoted(arg)).collect();
            format!(
                "[mcp_servers.{NAME}]\ncommand = {}\nargs = [{}]\nenv = {{ COFFERDAM_HOME = {} }}\n",
                quoted(command),
                args.join(", "),
                quoted(home)
            )
        }
        Entry::Remote { url } => format!(
            "[mcp_servers.{NAME}]\nurl = {}\nbearer_token_env_var = \"COFFERDAM_MCP_TOKEN\"\n",
            quoted(url)
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use clap::ValueEnum as _;
    use serde_json::{Value, json};

    use super::{Client, Entry};

    fn local() -> Entry {
        let args = ["mcp", "--operations", "a \"b\"\\"].map(str::to_owned).to_vec();
        Entry::Local { command: "/usr/bin/cofferdam".into(), args, home: "/home/ada/c".into() }
    }

    #[test]
    fn every_client_gets_what_it_reads() {
        for client in Client::value_variants() {
            let text = client.snippet(&local()).unwrap();
            let (entry, args) = match client {
                Client::Codex => {
                    let table: toml::Table = text.parse().unwrap();
                    let entry = serde_json::to_value(&table["mcp_servers"]["cofferdam"]).unwrap();
                    (entry.clone(), entry["args"].clone())
                }
                client => {
                    let all: Value = serde_json::from_str(&text).unwrap();
                    let entry = all[client.key()]["cofferdam"].clone();
                    (entry.clone(), entry["args"].clone())
                }
            };
            assert_eq!(args, json!(["mcp", "--operations", "a \"b\"\\"]), "{client:?}");
            assert_eq!(entry["command"], "/usr/bin/cofferdam");
            assert_eq!(entry["env"]["COFFERDAM_HOME"], "/home/ada/c");
        }
        let remote = Entry::Remote { url: "http://127.0.0.1:4100/mcp".into() };
        for client in Client::value_variants().iter().filter(|client| **client != Client::ClaudeDesktop) {
            assert!(client.snippet(&remote).unwrap().contains("http://127.0.0.1:4100/mcp"), "{client:?}");
        }
        assert!(Client::ClaudeDesktop.snippet(&remote).is_err());
    }

    #[test]
    fn what_else_is_configured_stays() {
        let before =
            json!({"x": 1, "mcpServers": {"other": {"command": "y"}, "cofferdam": {"command": "old"}}});
        let after = Client::ClaudeCode.merged(Some(&before.to_string()), &local()).unwrap();
        let after: Value = serde_json::from_str(&after).unwrap();
        assert_eq!((&after["x"], &after["mcpServers"]["other"]["command"]), (&json!(1), &json!("y")));
        assert_eq!(after["mcpServers"]["cofferdam"]["command"], "/usr/bin/cofferdam");
        for bad in ["{", "[]", "// a comment\n{}", "{\"mcpServers\": []}"] {
            assert!(Client::ClaudeCode.merged(Some(bad), &local()).is_err(), "{bad}");
        }
        let toml = "model = \"x\"\n\n[mcp_servers.other]\ncommand = \"y\"\n";
        let after = Client::Codex.merged(Some(toml), &local()).unwrap();
        assert!(after.starts_with(toml.trim_end()));
        assert!(after.parse::<toml::Table>().unwrap()["mcp_servers"].get("cofferdam").is_some());
        assert!(Client::Codex.merged(Some(&after), &local()).is_err(), "twice");
    }
}
