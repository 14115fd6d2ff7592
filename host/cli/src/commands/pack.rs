//! `pack`: makes a package of a component that another toolchain built.

use std::path::PathBuf;

use cofferdam_core::error::HostError;
use cofferdam_model::package;

use super::packaging::{self, DocsSource};
use crate::report::CommandError;
use crate::session::Session;
use crate::{files, runtime};

const EXAMPLES: &str = "\
Examples:
  cofferdam pack slack.component.wasm --manifest connector.toml
  cofferdam pack slack.component.wasm --manifest connector.toml --wit wit/slack.wit -o slack.wasm
  cofferdam pack slack.wasm --manifest connector.toml --replace -o slack.wasm";

/// Makes a package of a component that another toolchain built.
///
/// The component may come from any tool: componentize-py, componentize-js, TinyGo, C.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The component.
    #[arg(value_name = "COMPONENT")]
    component: PathBuf,

    /// The manifest.
    #[arg(long, value_name = "FILE")]
    manifest: PathBuf,

    /// An author's WIT file: the comments in it document the operations; may be given several times.
    #[arg(long, value_name = "FILE")]
    wit: Vec<PathBuf>,

    /// The file for the package [default: <name>-<version>.wasm in this directory].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Takes a component that already is a package, and replaces its manifest; its documentation, too, if
    /// WIT files are given.
    #[arg(long)]
    replace: bool,
}

/// Packs, checks, writes.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { component, manifest, wit, output, replace } = args;
    let manifest = packaging::read_manifest(&manifest)?;
    let output = output.unwrap_or_else(|| packaging::file_name(manifest.name(), manifest.version()).into());
    packaging::check_output(&output)?;
    let mut docs = DocsSource::Wit(packaging::read_wit(&wit)?);
    let mut component = files::read_package(&component)?;
    if replace {
        // Unverified bytes: the worker parses them before this process looks for their sections.
        runtime::block_on(async { Ok(session.parser()?.operations(component.clone()).await?) })?;
        if wit.is_empty() {
            docs = DocsSource::Kept(package::extract(&component).map_err(HostError::from)?.docs);
        }
        component = package::strip(&component).map_err(HostError::from)?;
    }
    runtime::block_on(packaging::finish(session, &component, &manifest, docs, &output, None))
}
