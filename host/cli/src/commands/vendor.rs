//! `vendor`: copies the locked packages of a set to a directory, for machines without a network.

use std::path::PathBuf;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_runtime::call::ConnectorRef;
use serde::Serialize;

use super::sync::{SetOptions, locked_connectors};
use crate::connector_set::resolve::{PackageFinder, vendored_path, write_vendored};
use crate::connector_set::{ConnectorSet, LockFile};
use crate::files;
use crate::package_source::{SourceOptions, SourcePackage};
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Take connectors.toml, connectors.lock and the directory to the other machine.

Examples:
  cofferdam vendor vendor
  cofferdam sync --locked --vendored vendor";

/// Copies the packages of connectors.lock, with their signatures, to a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory; it is made if it does not exist.
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    #[command(flatten)]
    set: SetOptions,

    #[command(flatten)]
    source: SourceOptions,
}

#[derive(Debug, Serialize)]
struct VendoredPackage {
    connector: String,
    package: PathBuf,
}

/// Copies each package from the home if it is installed there, or else from its source.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let set = ConnectorSet::load(&args.set.file)?;
    let lock = LockFile::load(&set.lock_path())?.unwrap_or_default();
    let host = session.host()?;
    let finder = PackageFinder { session, options: &args.source, vendored: None };
    std::fs::create_dir_all(&args.dir).map_err(|error| files::unwritable(&args.dir, error))?;
    let mut vendored = Vec::new();
    for (requirement, locked) in locked_connectors(&set, &lock)? {
        let connector = ConnectorRef::new(requirement.name.clone(), locked.version.clone());
        let installed = host.stored_package(&connector).ok().map(|stored| SourcePackage {
            bytes: stored.bytes,
            signature: stored.signature,
            pinned: None,
        });
        let package = match installed.filter(|it| Digest::sha256(&it.bytes) == locked.hash) {
            Some(package) => package,
            None => finder.locked(requirement, &locked)?,
        };
        let found = Digest::sha256(&package.bytes);
        if found != locked.hash {
            let message =
                format!("The source of {connector} has sha256:{found}, and not the locked package.");
            return Err(HostError::new(HostErrorKind::Conflict, message)
                .with_hint("`cofferdam update` chooses again.")
                .into());
        }
        write_vendored(&args.dir, &locked.hash, &package)?;
        let path = vendored_path(&args.dir, &locked.hash);
        vendored.push(VendoredPackage { connector: connector.to_string(), package: path });
    }
    session.ui.result(&vendored, |page| {
        for package in &vendored {
            page.field("vendored", &format!("{} as {}", package.connector, files::shown(&package.package)));
        }
    })
}
