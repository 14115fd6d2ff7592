//! `tags`: the tags of a repository.

use cofferdam_distribution::RegistryRef;
use semver::Version;
use serde::Serialize;

use crate::package_source::SourceOptions;
use crate::report::CommandError;
use crate::runtime;
use crate::session::Session;

const EXAMPLES: &str = "\
Examples:
  cofferdam tags oci://ghcr.io/acme/slack
  cofferdam tags oci://ghcr.io/acme/slack --format json";

/// Lists the tags of a repository: by convention, the versions of a connector.
///
/// A tag is a claim of the registry. Nothing is downloaded or verified.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The repository: oci://HOST/REPOSITORY.
    #[arg(value_name = "REFERENCE")]
    reference: RegistryRef,

    #[command(flatten)]
    source: SourceOptions,
}

#[derive(Debug, Serialize)]
struct TagList {
    repository: String,
    tags: Vec<String>,
}

/// Lists the tags of the repository.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { reference, source } = args;
    let client = source.client(session)?;
    let mut tags = runtime::block_on(async { Ok(client.tags(&reference).await?) })?;
    // Versions in their order, after tags that are none.
    tags.sort_by_cached_key(|tag| Version::parse(tag).ok());
    let repository = format!("oci://{}/{}", reference.registry(), reference.repository());
    let list = TagList { repository, tags };
    session.ui.result(&list, |page| {
        for tag in &list.tags {
            page.line(tag);
        }
    })?;
    if list.tags.is_empty() {
        session.ui.note("The repository has no tags.");
    }
    Ok(())
}
