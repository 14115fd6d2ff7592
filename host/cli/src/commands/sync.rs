//! `sync` and `update`: make a home have the connectors of a set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::manifest::ConnectorName;
use cofferdam_model::registry::RegistryEntry;
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::host::{Consent, Host, InstallOptions, PackageReview};
use serde::Serialize;

use super::install;
use super::review::ReviewPage;
use crate::connector_set::resolve::PackageFinder;
use crate::connector_set::{ConnectorRequirement, ConnectorSet, LockFile, LockedConnector};
use crate::layout::{Page, TextStyle};
use crate::package_source::{SourceOptions, SourcePackage};
use crate::report::CommandError;
use crate::session::Session;
use crate::{files, progress, runtime};

const EXAMPLES: &str = "\
connectors.toml names the wanted connectors, with the versions that may be chosen and their sources:

  [[connector]]
  name = \"github://acme/slack\"
  version = \"1.2\"                       # 1.2.0 or a later 1.x; any version without it
  source = \"oci://registry.example/acme/slack\"

connectors.lock has the chosen packages with their hashes, and the access that was accepted. A connector that the lock \
file does not have, or whose line changed, gets the newest version that fits; the others stay as they are locked. \
Everything is fetched and accepted before anything is installed, and an interrupted run is finished by the next one.

Examples:
  cofferdam sync
  cofferdam sync --locked
  cofferdam sync --locked --vendored vendor";

/// Makes the home have the connectors of connectors.toml, in the versions of connectors.lock.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    set: SetOptions,

    /// Changes nothing in the lock file: installs exactly the packages in it, or fails if it does not fit
    /// connectors.toml.
    #[arg(long)]
    locked: bool,

    /// Takes the locked packages from this directory, which `cofferdam vendor` made, and uses no network.
    #[arg(long, value_name = "DIR", requires = "locked")]
    vendored: Option<PathBuf>,

    /// Removes installed connectors that connectors.toml does not name.
    #[arg(long)]
    prune: bool,

    #[command(flatten)]
    change: ChangeOptions,
}

/// The set of connectors that a command is about.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SetOptions {
    /// The set of connectors. The lock file is next to it.
    #[arg(long, value_name = "FILE", default_value = "connectors.toml")]
    pub(super) file: PathBuf,
}

/// The options of commands that install packages of a set.
#[derive(Debug, clap::Args)]
struct ChangeOptions {
    /// Accepts the access that the package with this SHA-256 asks for. May be given several times.
    #[arg(long, value_name = "SHA256", value_parser = install::digest)]
    accept: Vec<Digest>,

    /// Takes versions that are older than one that is installed or was.
    #[arg(long)]
    allow_downgrade: bool,

    #[command(flatten)]
    source: SourceOptions,
}

const UPDATE_EXAMPLES: &str = "\
`cofferdam outdated` shows what there is to update.

Examples:
  cofferdam update
  cofferdam update github://acme/slack";

/// Chooses the newest versions that connectors.toml allows, and makes the home have them.
#[derive(Debug, clap::Args)]
#[command(after_help = UPDATE_EXAMPLES)]
pub(crate) struct UpdateArgs {
    /// The connectors [default: all of the set].
    #[arg(value_name = "NAME", value_parser = connector_name)]
    names: Vec<ConnectorName>,

    #[command(flatten)]
    set: SetOptions,

    #[command(flatten)]
    change: ChangeOptions,
}

fn connector_name(text: &str) -> Result<ConnectorName, String> {
    ConnectorName::parse(text).map_err(|error| error.to_string())
}

/// The effect on one connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum SyncEffect {
    Unchanged,
    Installed,
    Activated,
    Removed,
}

#[derive(Debug, Serialize)]
struct SyncedConnector {
    name: ConnectorName,
    version: String,
    hash: String,
    effect: SyncEffect,
}

/// A connector of the set with the package that was chosen, and its bytes if they were needed for the choice.
struct Choice<'s> {
    requirement: &'s ConnectorRequirement,
    locked: LockedConnector,
    package: Option<SourcePackage>,
    /// True if an operator accepted it, now or with the lock file.
    is_accepted: bool,
}

/// Syncs.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let set = ConnectorSet::load(&args.set.file)?;
    let old = LockFile::load(&set.lock_path())?;
    let sync = Sync::new(session, &args.change, args.vendored.as_deref())?;
    let choices = match (args.locked, &old) {
        (true, None) => return Err(stale(&set, "it does not exist").into()),
        (true, Some(old)) => locked_choices(&set, old)?,
        (false, old) => sync.choose(&set, &old.clone().unwrap_or_default())?,
    };
    sync.apply(&set, old, choices, args.prune)
}

/// Updates.
pub(crate) fn run_update(args: UpdateArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let set = ConnectorSet::load(&args.set.file)?;
    let wanted = |name: &ConnectorName| set.connectors().iter().any(|it| it.name == *name);
    if let Some(unknown) = args.names.iter().find(|name| !wanted(name)) {
        let message = format!("{} does not name {unknown}.", files::shown(&args.set.file));
        return Err(HostError::new(HostErrorKind::ConnectorNotFound, message)
            .with_hint("Add it there, then `cofferdam sync`.")
            .into());
    }
    let old = LockFile::load(&set.lock_path())?;
    let mut kept = old.clone().unwrap_or_default();
    kept.connectors.retain(|name, _| !args.names.is_empty() && !args.names.contains(name));
    let sync = Sync::new(session, &args.change, None)?;
    let choices = sync.choose(&set, &kept)?;
    sync.apply(&set, old, choices, false)
}

/// Returns the locked packages of the set.
pub(super) fn locked_connectors<'s>(
    set: &'s ConnectorSet,
    lock: &LockFile,
) -> Result<Vec<(&'s ConnectorRequirement, LockedConnector)>, HostError> {
    let wanted = |name: &ConnectorName| set.connectors().iter().any(|it| it.name == *name);
    if let Some(extra) = lock.connectors.keys().find(|name| !wanted(name)) {
        return Err(stale(set, &format!("{extra} is not in the set")));
    }
    let locked = set.connectors().iter().map(|requirement| {
        let locked = lock.connectors.get(&requirement.name).filter(|locked| locked.fits(requirement));
        let locked = locked.cloned().ok_or_else(|| {
            stale(set, &format!("it has no package of {} as the set asks for it", requirement.name))
        })?;
        Ok((requirement, locked))
    });
    locked.collect()
}

fn locked_choices<'s>(set: &'s ConnectorSet, lock: &LockFile) -> Result<Vec<Choice<'s>>, HostError> {
    let locked = locked_connectors(set, lock)?.into_iter();
    Ok(locked.map(|(requirement, locked)| Choice::locked(requirement, locked)).collect())
}

fn stale(set: &ConnectorSet, how: &str) -> HostError {
    let path = set.lock_path();
    HostError::new(
        HostErrorKind::Conflict,
        format!("{} does not fit the set of connectors: {how}.", files::shown(&path)),
    )
    .with_hint("`cofferdam sync` without --locked brings it up to date.")
}

impl<'s> Choice<'s> {
    /// The access of a locked package was accepted with the lock file.
    fn locked(requirement: &'s ConnectorRequirement, locked: LockedConnector) -> Self {
        Self { requirement, locked, package: None, is_accepted: true }
    }
}

struct Sync<'s> {
    session: &'s Session<'s>,
    options: &'s ChangeOptions,
    finder: PackageFinder<'s>,
    host: Host,
}

impl<'s> Sync<'s> {
    fn new(
        session: &'s Session<'s>,
        options: &'s ChangeOptions,
        vendored: Option<&'s Path>,
    ) -> Result<Self, HostError> {
        let finder = PackageFinder { session, options: &options.source, vendored };
        Ok(Self { session, options, finder, host: session.host()? })
    }

    /// Chooses a package for each connector: the locked one if it fits, or else the newest.
    fn choose<'c>(&self, set: &'c ConnectorSet, lock: &LockFile) -> Result<Vec<Choice<'c>>, CommandError> {
        let choices = set.connectors().iter().map(|requirement| {
            let locked = lock.connectors.get(&requirement.name).filter(|locked| locked.fits(requirement));
            match locked {
                Some(locked) => Ok(Choice::locked(requirement, locked.clone())),
                None => self.newest(requirement),
            }
        });
        choices.collect()
    }

    /// Gets the newest package that fits, and has its access accepted.
    fn newest<'c>(&self, requirement: &'c ConnectorRequirement) -> Result<Choice<'c>, CommandError> {
        let package = self.finder.newest(requirement)?;
        let review = self.review(&package)?;
        let version = check_identity(requirement, &review)?;
        let hash = Digest::sha256(&package.bytes);
        let signers = review.package.signature.owners.clone();
        if signers.is_empty() {
            return Err(untrusted(requirement, &review).into());
        }
        let is_accepted = self.options.accept.contains(&hash);
        let is_accepted = match &review.consent {
            Consent::Required { reasons } if !is_accepted => {
                let reasons = reasons.join("; ");
                let page = ReviewPage::new(&self.host, review.clone());
                self.session.ui.note_page(|it| page.show(it));
                if !install::ask(self.session)? {
                    return Err(not_accepted(requirement, &hash, &reasons).into());
                }
                true
            }
            Consent::NoWider { than } => {
                let name = &requirement.name;
                self.session.ui.note(&format!(
                    "{name} {than} -> {version}: it asks for no more, and has the same signer"
                ));
                is_accepted
            }
            _ => is_accepted,
        };
        let locked = LockedConnector {
            version,
            source: requirement.source.clone(),
            resolved: package.pinned.as_ref().map(ToString::to_string),
            hash,
            signers,
            grants: review.grants,
        };
        Ok(Choice { requirement, locked, package: Some(package), is_accepted })
    }

    fn review(&self, package: &SourcePackage) -> Result<PackageReview, CommandError> {
        let signature = package.signature.as_deref();
        runtime::block_on(async { Ok(self.host.review(package.bytes.clone(), signature).await?) })
    }

    /// Writes the lock file, and installs and activates what is missing.
    fn apply(
        &self,
        set: &ConnectorSet,
        old: Option<LockFile>,
        choices: Vec<Choice<'_>>,
        prune: bool,
    ) -> Result<(), CommandError> {
        let chosen = choices.iter().map(|it| (it.requirement.name.clone(), it.locked.clone()));
        let new = LockFile { connectors: chosen.collect::<BTreeMap<_, _>>() };
        if old.as_ref() != Some(&new) {
            new.write(&set.lock_path())?;
        }
        let installed = self.host.list()?;
        let mut synced = Vec::new();
        for choice in choices {
            synced.push(self.install(choice, &installed)?);
        }
        for entry in installed.iter().filter(|entry| !new.connectors.contains_key(&entry.name)) {
            if prune {
                self.host.remove(&ConnectorRef::new(entry.name.clone(), entry.version.clone()))?;
                synced.push(SyncedConnector {
                    name: entry.name.clone(),
                    version: entry.version.to_string(),
                    hash: format!("sha256:{}", entry.digest),
                    effect: SyncEffect::Removed,
                });
            } else {
                let note = format!(
                    "{}@{} is installed, and not in the set (--prune removes it)",
                    entry.name, entry.version
                );
                self.session.ui.note(&note);
            }
        }
        self.session.ui.result(&synced, |it| page(&synced, it))
    }

    fn install(
        &self,
        choice: Choice<'_>,
        installed: &[RegistryEntry],
    ) -> Result<SyncedConnector, CommandError> {
        let Choice { requirement, locked, package, is_accepted } = choice;
        let (name, version) = (&requirement.name, &locked.version);
        let effect = match installed.iter().find(|it| it.name == *name && it.version == *version) {
            Some(entry) if entry.digest == locked.hash && entry.is_active => SyncEffect::Unchanged,
            Some(entry) if entry.digest == locked.hash => {
                self.host.activate(&ConnectorRef::new(name.clone(), version.clone()))?;
                SyncEffect::Activated
            }
            // The install names the conflict of another package with the same version.
            _ => {
                let package = match package {
                    Some(package) => package,
                    None => self.locked_package(requirement, &locked)?,
                };
                let mut options = InstallOptions::default().expect_hash(locked.hash);
                if is_accepted {
                    options = options.accept(locked.hash);
                }
                if self.options.allow_downgrade {
                    options = options.allow_downgrade();
                }
                let what = format!("verifying and compiling {name}@{version}");
                let installing = self.host.install(package.bytes, package.signature, options);
                runtime::block_on(async { Ok(progress::during(self.session.ui, &what, installing).await?) })?;
                SyncEffect::Installed
            }
        };
        let hash = format!("sha256:{}", locked.hash);
        Ok(SyncedConnector { name: name.clone(), version: version.to_string(), hash, effect })
    }

    /// Gets a locked package, and checks that its signer and its access are those that were accepted. An install checks
    /// its hash.
    fn locked_package(
        &self,
        requirement: &ConnectorRequirement,
        locked: &LockedConnector,
    ) -> Result<SourcePackage, CommandError> {
        let package = self.finder.locked(requirement, locked)?;
        if Digest::sha256(&package.bytes) != locked.hash {
            return Ok(package);
        }
        let review = self.review(&package)?;
        check_identity(requirement, &review)?;
        let signers = &review.package.signature.owners;
        if signers.is_empty() {
            return Err(untrusted(requirement, &review).into());
        }
        if *signers != locked.signers || review.grants != locked.grants {
            let what = if *signers == locked.signers { "access" } else { "signer" };
            let message =
                format!("The lock file has another {what} for {} than its package.", requirement.name);
            return Err(HostError::new(HostErrorKind::ConsentRequired, message)
                .with_hint("Restore the lock file, or `cofferdam update` the connector, which shows its access and asks.")
                .into());
        }
        Ok(package)
    }
}

/// Checks that a package is of the connector, in a version that is allowed, and returns the version.
fn check_identity(
    requirement: &ConnectorRequirement,
    review: &PackageReview,
) -> Result<semver::Version, HostError> {
    let (wanted, package) = (&requirement.name, &review.package);
    let version = package.version.parse().ok().filter(|version| requirement.version.matches(version));
    match version {
        Some(version) if package.name == wanted.as_str() => Ok(version),
        _ => {
            let (name, range) = (&package.name, &requirement.version);
            let message = format!(
                "The source of {wanted} has {name}@{}, and the set asks for {wanted} `{range}`.",
                package.version
            );
            Err(HostError::new(HostErrorKind::Conflict, message)
                .with_hint("Correct `name`, `version` or `source` in connectors.toml."))
        }
    }
}

fn untrusted(requirement: &ConnectorRequirement, review: &PackageReview) -> HostError {
    let reason = review.package.signature.reason.as_deref().unwrap_or("It has no signature.");
    let message = format!("No trusted key signed the package of {}: {reason}", requirement.name);
    HostError::new(HostErrorKind::ConsentRequired, message)
        .with_hint("`cofferdam trust add` trusts the key of its publisher.")
}

fn not_accepted(requirement: &ConnectorRequirement, hash: &Digest, reasons: &str) -> HostError {
    let message = format!("The access that {} asks for is not accepted: {reasons}.", requirement.name);
    HostError::new(HostErrorKind::ConsentRequired, message)
        .with_hint(format!("Nothing was changed. --accept sha256:{hash} accepts exactly this package."))
}

fn page(synced: &[SyncedConnector], page: &mut Page) {
    for connector in synced {
        let (tone, did) = match connector.effect {
            SyncEffect::Unchanged => (None, "unchanged"),
            SyncEffect::Installed => (Some(TextStyle::Good), "installed"),
            SyncEffect::Activated => (Some(TextStyle::Good), "activated"),
            SyncEffect::Removed => (Some(TextStyle::Doubtful), "removed"),
        };
        let connector = format!("{}@{}", connector.name, connector.version);
        match tone {
            Some(tone) => page.styled_field(did, tone, &connector),
            None => page.field(did, &connector),
        };
    }
}
