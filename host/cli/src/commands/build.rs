//! `build`: from a connector's source to a package, with everything checked that an install would check.

use std::ffi::OsString;
use std::path::PathBuf;

use super::packaging::{self, DocsSource};
use crate::project::{BuildPurpose, Project};
use crate::report::CommandError;
use crate::runtime;
use crate::session::Session;

const EXAMPLES: &str = "\
The directory has connector.toml, wit/, and Cargo.toml, app.py or app.js, which decides the language. Comments in \
wit/*.wit become the operations' documentation.

Rust needs the target: `rustup target add wasm32-wasip2`. Connectors share the compiled dependencies, in \
$XDG_CACHE_HOME/cofferdam/build. Arguments for rustc belong in RUSTFLAGS, or under [target.wasm32-wasip2] in \
.cargo/config.toml; those under [build] are not used. For Python and JavaScript, the first build installs componentize-py or \
componentize-js in .cofferdam of the project.

<PACKAGE>.provenance.json, beside the package, has what it was made from, for `cofferdam sign`: git repository and \
commit, tools, and dependencies with their checksums.

Examples:
  cofferdam build
  cofferdam build connectors/slack -o slack.wasm
  cofferdam build -- --locked --features tracing";

/// Builds a connector from its source, in Rust, Python or JavaScript, and makes a package of it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory of the connector's source.
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// The file for the package [default: <target directory>/cofferdam/<name>-<version>.wasm].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Arguments for `cargo build`, after `--`.
    #[arg(last = true, value_name = "CARGO_ARGS")]
    cargo_args: Vec<OsString>,
}

/// Builds, packs, checks, writes.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { dir, output, cargo_args } = args;
    let project = Project::open(&dir)?;
    let output = match output {
        Some(output) => output,
        None => project.package_path()?,
    };
    packaging::check_output(&output)?;
    // Before the build, which may write to the project.
    let source = project.source();
    runtime::block_on(async {
        let built = project.build(session.ui, BuildPurpose::Package(&cargo_args)).await?;
        let component = built.read()?;
        let docs = DocsSource::Wit(project.wit().to_vec());
        let provenance = built.provenance(source).map_err(|error| {
            session.ui.warn(&format!("the package has no provenance: {error}"));
        });
        packaging::finish(session, &component, project.manifest(), docs, &output, provenance.ok()).await
    })
}
