//! The MCP clients: where each keeps its configuration, and what it wants there.

use std::path::{Path, PathBuf};

use cofferdam_core::error::{HostError, HostErrorKind};
use serde_json::{Map, Value, json};

use super::config::pretty;

/// The name of the server in every client.
const NAME: &str = "cofferdam";

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum McpClient {
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

/// The entry for a client's configuration.
#[derive(Debug, Clone)]
pub(super) enum ServerEntry {
    /// To start the server.
    Local { command: String, args: Vec<String>, env: Vec<(String, String)> },
    /// To reach one that runs.
    Remote { url: String },
}

/// Why a server that is there stays.
pub(super) const ANOTHER: &str = "has another server of this name already";

/// The client's file with the entry in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MergedConfig {
    /// It has the very same already.
    AsItWas,
    /// It had none.
    Added(String),
    /// It had another.
    Replaced(String),
}

impl MergedConfig {
    /// Returns the new content; none if it is unchanged.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::AsItWas => None,
            Self::Added(text) | Self::Replaced(text) => Some(text),
        }
    }

    /// Returns the name of the change.
    pub(super) const fn done(&self) -> &'static str {
        match self {
            Self::AsItWas => "unchanged",
            Self::Added(_) => "added",
            Self::Replaced(_) => "replaced",
        }
    }
}

impl McpClient {
    /// Returns a description of the file that it reads.
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
    pub(super) fn snippet(self, entry: &ServerEntry) -> Result<String, HostError> {
        if self == Self::ClaudeDesktop && matches!(entry, ServerEntry::Remote { .. }) {
            let message = "Claude Desktop reaches servers over HTTP only as connectors in its own settings.";
            return Err(HostError::new(HostErrorKind::Validation, message)
                .with_hint("Let it start the server: leave out --url."));
        }
        if self == Self::Codex {
            return Ok(codex(entry));
        }
        let mut all = json!({self.key(): {NAME: self.value(entry)}});
        if let (Self::Vscode, ServerEntry::Remote { .. }, Some(all)) = (self, entry, all.as_object_mut()) {
            let input = json!([{"type": "promptString", "id": "cofferdam-token", "description": "Token of cofferdam", "password": true}]);
            all.insert("inputs".into(), input);
        }
        Ok(pretty(&all))
    }

    /// The client's file with the entry in it, and all else as it was. Another server of its name is there to stay,
    /// unless it is to be replaced.
    pub(super) fn merged(
        self,
        before: Option<&str>,
        entry: &ServerEntry,
        replace: bool,
    ) -> Result<MergedConfig, &'static str> {
        let snippet = self.snippet(entry).map_err(|_| "cannot hold that")?;
        let Some(before) = before.filter(|text| !text.trim().is_empty()) else {
            return Ok(MergedConfig::Added(snippet));
        };
        if self == Self::Codex {
            return toml_merged(before, &snippet, replace);
        }
        let mut all: Map<String, Value> = serde_json::from_str(before).map_err(|_| "is not plain JSON")?;
        let servers = all.entry(self.key()).or_insert_with(|| json!({}));
        let servers = servers.as_object_mut().ok_or("has something else in the place of its servers")?;
        let value = self.value(entry);
        let there = servers.get(NAME).map(|own| *own == value);
        match there {
            Some(true) => return Ok(MergedConfig::AsItWas),
            Some(false) if !replace => return Err(ANOTHER),
            _ => servers.insert(NAME.into(), value),
        };
        let snippet: Value = serde_json::from_str(&snippet).map_err(|_| "cannot hold that")?;
        if let Some(inputs) = snippet.get("inputs") {
            all.entry("inputs").or_insert_with(|| inputs.clone());
        }
        let text = pretty(&Value::Object(all));
        Ok(if there.is_some() { MergedConfig::Replaced(text) } else { MergedConfig::Added(text) })
    }

    const fn key(self) -> &'static str {
        match self {
            Self::Vscode => "servers",
            Self::Zed => "context_servers",
            _ => "mcpServers",
        }
    }

    fn value(self, entry: &ServerEntry) -> Value {
        match entry {
            ServerEntry::Local { command, args, env } => {
                let env: Map<_, _> =
                    env.iter().map(|(name, text)| (name.clone(), Value::from(&**text))).collect();
                match self {
                    Self::Vscode => json!({"type": "stdio", "command": command, "args": args, "env": env}),
                    Self::Zed => json!({"source": "custom", "command": command, "args": args, "env": env}),
                    _ => json!({"command": command, "args": args, "env": env}),
                }
            }
            ServerEntry::Remote { url } => {
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
fn codex(entry: &ServerEntry) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    match entry {
        ServerEntry::Local { command, args, env } => {
            let env: Vec<_> = env.iter().map(|(name, text)| format!("{name} = {}", quoted(text))).collect();
            let args: Vec<_> = args.iter().map(|arg| quoted(arg)).collect();
            format!(
                "[mcp_servers.{NAME}]\ncommand = {}\nargs = [{}]\nenv = {{ {} }}\n",
                quoted(command),
                args.join(", "),
                env.join(", ")
            )
        }
        ServerEntry::Remote { url } => format!(
            "[mcp_servers.{NAME}]\nurl = {}\nbearer_token_env_var = \"COFFERDAM_MCP_TOKEN\"\n",
            quoted(url)
        ),
    }
}

/// Returns the file of Codex with the table in it. A replacement is parsed again and accepted only if everything but the
/// server is unchanged.
fn toml_merged(before: &str, snippet: &str, replace: bool) -> Result<MergedConfig, &'static str> {
    const SERVERS: &str = "mcp_servers";
    let read = |text: &str| text.parse::<toml::Table>().map_err(|_| "is not TOML");
    let server = |table: &toml::Table| table.get(SERVERS).and_then(|servers| servers.get(NAME)).cloned();
    let (table, own) = (read(before)?, server(&read(snippet)?));
    let there = server(&table);
    if there.is_none() {
        return Ok(MergedConfig::Added(format!("{}\n\n{snippet}", before.trim_end())));
    }
    if there == own {
        return Ok(MergedConfig::AsItWas);
    }
    if !replace {
        return Err(ANOTHER);
    }
    let (mut kept, mut is_ours) = (String::new(), false);
    for line in before.split_inclusive('\n') {
        let header = line.trim_start().strip_prefix('[').map(|rest| rest.trim_start_matches('['));
        if let Some(header) = header {
            let ours = format!("{SERVERS}.{NAME}");
            let rest = header.trim_start().strip_prefix(&ours).map(str::trim_start);
            is_ours = rest.is_some_and(|rest| rest.starts_with([']', '.']));
        }
        if !is_ours {
            kept.push_str(line);
        }
    }
    let after = format!("{}\n\n{snippet}", kept.trim_end());
    let after = after.trim_start().to_owned();
    let mut wanted = table;
    if let (Some(servers), Some(own)) = (wanted.get_mut(SERVERS).and_then(toml::Value::as_table_mut), own) {
        servers.insert(NAME.to_owned(), own);
    }
    match read(&after) {
        Ok(table) if table == wanted => Ok(MergedConfig::Replaced(after)),
        _ => Err("has that server in a form in which it cannot be replaced"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]
    use clap::ValueEnum as _;
    use serde_json::{Value, json};

    use super::{ANOTHER, McpClient, MergedConfig, ServerEntry};

    fn local() -> ServerEntry {
        let args = ["mcp", "--operations", "a \"b\"\\"].map(str::to_owned).to_vec();
        ServerEntry::Local {
            command: "/usr/bin/cofferdam".into(),
            args,
            env: vec![("COFFERDAM_HOME".into(), "/home/ada/c".into())],
        }
    }

    #[test]
    fn every_client_gets_its_own_format() {
        for client in McpClient::value_variants() {
            let text = client.snippet(&local()).unwrap();
            let (entry, args) = match client {
                McpClient::Codex => {
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
        let remote = ServerEntry::Remote { url: "http://127.0.0.1:4100/mcp".into() };
        for client in McpClient::value_variants().iter().filter(|client| **client != McpClient::ClaudeDesktop)
        {
            assert!(client.snippet(&remote).unwrap().contains("http://127.0.0.1:4100/mcp"), "{client:?}");
        }
        assert!(McpClient::ClaudeDesktop.snippet(&remote).is_err());
    }

    #[test]
    fn other_configuration_is_kept() {
        let before =
            json!({"x": 1, "mcpServers": {"other": {"command": "y"}, "cofferdam": {"command": "old"}}});
        let before = before.to_string();
        assert_eq!(McpClient::ClaudeCode.merged(Some(&before), &local(), false), Err(ANOTHER));
        let after = McpClient::ClaudeCode.merged(Some(&before), &local(), true).unwrap();
        let MergedConfig::Replaced(text) = after else { panic!("{after:?}") };
        assert_eq!(McpClient::ClaudeCode.merged(Some(&text), &local(), false), Ok(MergedConfig::AsItWas));
        let after: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&after["x"], &after["mcpServers"]["other"]["command"]), (&json!(1), &json!("y")));
        assert_eq!(after["mcpServers"]["cofferdam"]["command"], "/usr/bin/cofferdam");
        for bad in ["{", "[]", "// a comment\n{}", "{\"mcpServers\": []}"] {
            assert!(McpClient::ClaudeCode.merged(Some(bad), &local(), true).is_err(), "{bad}");
        }
        let toml = "model = \"x\"\n\n[mcp_servers.other]\ncommand = \"y\"\n";
        let after = McpClient::Codex.merged(Some(toml), &local(), false).unwrap();
        let MergedConfig::Added(text) = after else { panic!("{after:?}") };
        assert!(text.starts_with(toml.trim_end()));
        assert!(text.parse::<toml::Table>().unwrap()["mcp_servers"].get("cofferdam").is_some());
        assert_eq!(McpClient::Codex.merged(Some(&text), &local(), false), Ok(MergedConfig::AsItWas));
        // Another, with a table of its own and others around it.
        let other = "# mine\nmodel = \"x\"\n[mcp_servers.cofferdam]\ncommand = \"old\"\n\
                     [mcp_servers.cofferdam.env]\nA = \"1\"\n[mcp_servers.cofferdam2]\ncommand = \"y\"\n";
        assert_eq!(McpClient::Codex.merged(Some(other), &local(), false), Err(ANOTHER));
        let after = McpClient::Codex.merged(Some(other), &local(), true).unwrap();
        let MergedConfig::Replaced(text) = after else { panic!("{after:?}") };
        assert!(
            text.starts_with("# mine\nmodel = \"x\"\n[mcp_servers.cofferdam2]\ncommand = \"y\""),
            "{text}"
        );
        assert!(!text.contains("old") && text.contains("/usr/bin/cofferdam"), "{text}");
        let inline = "mcp_servers = { cofferdam = { command = \"old\" } }\n";
        assert!(
            McpClient::Codex.merged(Some(inline), &local(), true).is_err(),
            "what cannot be replaced is not"
        );
    }
}
