//! The checks of the tools that connectors are built with.

use std::io;
use std::path::Path;
use std::process::Command;

use cofferdam_core::error::{HostError, HostErrorKind};
use semver::Version;

use super::Check;
use crate::layout::printable_line;
use crate::project::{Language, Project, is_node_new_enough, shared_build_root};
use crate::{files, toolchain};

/// Checks the tools, which the connector in `dir` may need.
pub(super) fn check(dir: &Path) -> Vec<Check> {
    let language = Language::of(dir);
    let needs = |wanted| matches!(language, Ok(Some(language)) if language == wanted);
    let (rust, python, javascript) =
        (needs(Language::Rust), needs(Language::Python), needs(Language::JavaScript));
    let python_found = python3();
    let has_python = python_found.is_ok();
    let mut checks = vec![
        Check::of("cargo", rust, cargo(dir)),
        Check::of("rustc", rust, rustc(dir)),
        Check::of("target", rust, toolchain::check_target(dir).map(|()| toolchain::TARGET.to_owned())),
        Check::of("python3", python, python_found),
        // With python3, a build gets both.
        Check::of("node", javascript && !has_python, node()),
        Check::of("npm", javascript && !has_python, version("npm", "--version", NODE)),
        build_directory(),
    ];
    checks.push(match language {
        Ok(None) => Check::good("connector", format!("none in {}", files::shown(dir))),
        Ok(Some(language)) => {
            let opened = Project::open(dir);
            Check::of(
                "connector",
                true,
                opened.map(|it| format!("{}, in {}", it.manifest().name(), language.name())),
            )
        }
        Err(error) => Check::of("connector", true, Err(error)),
    });
    checks
}

const RUST: &str = "Install Rust from https://rustup.rs, and see that it is on the PATH.";
const PYTHON: &str =
    "Install Python 3.10 or later with venv and pip (Debian: python3-venv), for connectors in Python.";
const NODE: &str = "For connectors in JavaScript, `cofferdam build` installs one in the project; or install Node.js 22.20, 24.12 or 25 with npm.";

fn cargo(dir: &Path) -> Result<String, HostError> {
    let mut command = Command::new(toolchain::cargo());
    first_line(command.arg("--version").current_dir(dir), "cargo", RUST)
}

fn rustc(dir: &Path) -> Result<String, HostError> {
    let mut command = Command::new(toolchain::rustc());
    let found = first_line(command.arg("--version").current_dir(dir), "rustc", RUST)?;
    let number = found.split(' ').nth(1).and_then(|text| Version::parse(text).ok());
    let oldest = Version::parse(&format!("{}.0", env!("CARGO_PKG_RUST_VERSION"))).ok();
    if number.zip(oldest).is_some_and(|(number, oldest)| number < oldest) {
        let message = format!("{found} is too old for the SDK.");
        let hint =
            format!("Connectors in Rust need {} or later: `rustup update`.", env!("CARGO_PKG_RUST_VERSION"));
        return Err(HostError::new(HostErrorKind::Tool, message).with_hint(hint));
    }
    Ok(found)
}

fn python3() -> Result<String, HostError> {
    let found = version("python3", "--version", PYTHON)?;
    let mut command = Command::new("python3");
    match command.args(["-c", "import venv, ensurepip"]).output() {
        Ok(output) if output.status.success() => Ok(found),
        _ => Err(HostError::new(HostErrorKind::Tool, format!("{found} has no venv.")).with_hint(PYTHON)),
    }
}

fn node() -> Result<String, HostError> {
    let found = version("node", "--version", NODE)?;
    match is_node_new_enough(&found) {
        true => Ok(found),
        false => {
            let message = format!("Node.js {found} does not run componentize-js.");
            Err(HostError::new(HostErrorKind::Tool, message).with_hint(NODE))
        }
    }
}

fn version(program: &str, argument: &str, fix: &str) -> Result<String, HostError> {
    first_line(Command::new(program).arg(argument), program, fix)
}

/// Returns the first line that a program prints.
fn first_line(command: &mut Command, program: &str, fix: &str) -> Result<String, HostError> {
    let wrong = |message: String| HostError::new(HostErrorKind::Tool, message).with_hint(fix);
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => wrong(format!("{program} was not found.")),
        _ => wrong(format!("{program} cannot be started: {}.", files::reason(&error))),
    })?;
    if !output.status.success() {
        return Err(wrong(format!("{program} does not work ({}).", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(printable_line(text.lines().next().unwrap_or_default(), 100))
}

fn build_directory() -> Check {
    const NAME: &str = "build cache";
    let Some(root) = shared_build_root() else {
        return Check::doubtful(
            NAME,
            "there is no cache directory",
            "Set HOME, so that connectors share their dependencies.",
        );
    };
    let shown = files::shown(&root);
    // The nearest directory that exists decides whether the rest can be made.
    let existing = root.ancestors().find(|path| path.exists()).unwrap_or(&root);
    match rustix::fs::access(existing, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Check::good(NAME, shown),
        Err(error) => Check::doubtful(
            NAME,
            format!("{shown} cannot be written ({})", files::reason(&error.into())),
            "Give this user the permission; until then each connector compiles its dependencies.",
        ),
    }
}
