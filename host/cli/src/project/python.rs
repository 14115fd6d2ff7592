//! Python: componentize-py in a virtual environment of the project.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::package::WitOutline;
use cofferdam_model::trust::{DependencyRecord, ToolRecord};
use serde::Deserialize;
use tokio::process::Command;

use super::tool::{ToolDirectory, ToolRun};
use super::{BuiltComponent, wit_dir};
use crate::files;
use crate::ui::Ui;

/// The tool, by the version that this program was tested with.
const TOOL: &str = "componentize-py==0.25.1";

/// The virtual environment in the directory of tools.
const ENVIRONMENT: &str = "python";

/// The author's file with the packages that the connector uses.
const REQUIREMENTS: &str = "requirements.txt";

/// Runs componentize-py: its own script has the path of an interpreter inside, and so cannot be moved. An error is
/// reported once, and without the frames of the tool.
const RUN: &str = "\
import sys
from componentize_py import script
try:
    sys.exit(script())
except AssertionError as error:
    sys.exit(str(error).split('\\n\\nCaused by:')[0].replace('\"/0/', '\"'))
";

/// Prints the interpreter's version and the installed packages, each with its name, version and whether it came from
/// another place than an index.
const LIST: &str = "\
import json, platform
from importlib.metadata import distributions
found = [[it.metadata['Name'], it.version, it.read_text('direct_url.json') is not None] for it in distributions()]
print(json.dumps([platform.python_version(), sorted(found)]))
";

/// Packages that install others, and are not a part of a component.
const INSTALLERS: [&str; 3] = ["pip", "setuptools", "wheel"];

const NO_PYTHON: &str = "Install Python 3.10 or later with venv and pip (on Debian and Ubuntu: the packages python3 and \
                         python3-venv), and see that python3 is on the PATH.";

/// Builds the component, unless its sources are those of the last one.
pub(super) async fn build(
    ui: &Ui,
    tools: &ToolDirectory,
    outline: &WitOutline,
) -> Result<BuiltComponent, HostError> {
    let python = install(ui, tools).await?;
    let (version, dependencies) = list_packages(ui, &python).await?;
    let tool = |name: &str, version: &str| ToolRecord { name: name.into(), version: version.into() };
    let (name, tool_version) = TOOL.split_once("==").unwrap_or((TOOL, "unknown"));
    let used = vec![tool(name, tool_version), tool("python", &version)];
    let built = |path| BuiltComponent { path, tools: used, dependencies };
    let world = outline.world();
    let digest = tools.sources_digest(&[TOOL, &world, env!("CARGO_PKG_VERSION")])?;
    let component = tools.component();
    if component.is_file() && tools.has("component", &digest) {
        return Ok(built(component));
    }
    tools.record("component", None)?;
    let wit = wit_dir::write(tools, outline)?;
    let command = |arguments: &[&str]| {
        let mut command = Command::new(&python);
        command
            .args(["-c", RUN, "--quiet", "--wit-path"])
            .arg(&wit)
            .args(["--world", &world])
            .args(arguments);
        command.current_dir(tools.project()).env("PYTHONDONTWRITEBYTECODE", "1");
        // Where the packages of requirements.txt are.
        command.env("VIRTUAL_ENV", tools.path(ENVIRONMENT));
        command
    };
    let run = ToolRun {
        tool: "componentize-py",
        doing: "building the component from app.py",
        missing: "Build again.",
        failed: "Correct what it says, and build again:",
    };
    // For editors; see .vscode/settings.json of a new project.
    let mut bindings = command(&["bindings"]);
    bindings.arg(tools.fresh("bindings")?);
    run.run(ui, bindings).await?;
    let mut componentize = command(&["componentize", "app", "--python-path", ".", "--output"]);
    componentize.arg(&component);
    run.run(ui, componentize).await?;
    tools.record("component", Some(&digest))?;
    Ok(built(component))
}

#[derive(Deserialize)]
struct InstalledPackage(String, String, bool);

/// Returns the version of the interpreter, and the packages of its environment.
async fn list_packages(ui: &Ui, python: &Path) -> Result<(String, Vec<DependencyRecord>), HostError> {
    let mut command = Command::new(python);
    command.args(["-c", LIST]);
    let run = ToolRun {
        tool: "python3",
        doing: "listing the installed packages",
        missing: "Build again.",
        failed: "Remove .cofferdam of the project, and build again:",
    };
    let listed = run.run(ui, command).await?;
    let (version, packages): (String, Vec<InstalledPackage>) =
        serde_json::from_str(&listed).map_err(|error| {
            HostError::new(HostErrorKind::Tool, "The list of the installed packages cannot be read.")
                .with_hint("Remove .cofferdam of the project, and build again.")
                .with_source(error)
        })?;
    let record = |InstalledPackage(name, version, direct)| DependencyRecord {
        build: INSTALLERS.contains(&&*name),
        source: (!direct).then(|| "pypi".to_owned()),
        checksum: None,
        name,
        version,
    };
    Ok((version, packages.into_iter().map(record).collect()))
}

/// Installs the tool and the author's packages, unless they are there; the interpreter.
async fn install(ui: &Ui, tools: &ToolDirectory) -> Result<PathBuf, HostError> {
    let requirements = tools.project().join(REQUIREMENTS);
    let required = files::read_if_there("The file", &requirements)?;
    let wanted = format!("{TOOL}\n{}", String::from_utf8_lossy(required.as_deref().unwrap_or_default()));
    let python = tools.path(ENVIRONMENT).join("bin/python3");
    if python.exists() && tools.has(ENVIRONMENT, &wanted) {
        return Ok(python);
    }
    tools.record(ENVIRONMENT, None)?;
    let mut packages = vec![OsString::from(TOOL)];
    if required.is_some() {
        packages.extend(["--requirement".into(), requirements.into_os_string()]);
    }
    install_packages(ui, tools, ENVIRONMENT, &packages, &format!("installing {TOOL} in the project")).await?;
    // A leftover of a build with other packages.
    fs::remove_file(tools.component()).ok();
    tools.record(ENVIRONMENT, Some(&wanted))?;
    Ok(python)
}

/// Makes a virtual environment in the directory of tools, and installs `packages` in it.
pub(super) async fn install_packages(
    ui: &Ui,
    tools: &ToolDirectory,
    environment: &str,
    packages: &[OsString],
    doing: &str,
) -> Result<(), HostError> {
    let dir = tools.fresh(environment)?;
    let mut command = Command::new("python3");
    command.args(["-m", "venv"]).arg(&dir);
    let run = ToolRun {
        tool: "python3",
        doing: "making a virtual environment",
        missing: NO_PYTHON,
        failed: NO_PYTHON,
    };
    run.run(ui, command).await?;
    let mut command = Command::new(dir.join("bin/python3"));
    command
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"])
        .args(packages);
    let run = ToolRun {
        tool: "pip",
        doing,
        missing: NO_PYTHON,
        failed: "It needs PyPI once: check the network, or name a mirror with PIP_INDEX_URL. It said:",
    };
    run.run(ui, command).await.map(drop)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tests_use_the_same_tools() {
        let list = include_str!("../../../../tests/languages/tools/requirements.txt");
        for tool in [super::TOOL, super::super::javascript::NODE_PACKAGE] {
            assert!(list.lines().any(|line| line == tool), "{list}");
        }
    }
}
