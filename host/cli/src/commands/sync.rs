//! `sync` and `update`: make a home have the connectors of a set.

use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_distribution::PackageRef;
use cofferdam_model::manifest::ConnectorName;
use cofferdam_model::registry::RegistryEntry;
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::host::{Consent, Host, InstallOptions, PackageReview};
use semver::Version;
use serde::Serialize;

use super::install;
use super::review::ReviewPage;
use crate::connector_set::resolve::{PackageFinder, vendored_path, write_vendored};
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
file does not have, or whose locked version or source no longer fits, gets the newest version that fits; the others stay \
as they are locked. Everything is fetched, checked and accepted before anything is installed, and the next run finishes \
one that was interrupted.

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

    /// Changes nothing in the lock file, and accepts the access in it: installs exactly its packages, or fails if it does
    /// not fit connectors.toml.
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

/// A connector of the set with the package that was chosen.
struct Choice<'s> {
    requirement: &'s ConnectorRequirement,
    locked: LockedConnector,
    plan: SyncPlan,
}

/// The work for one connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncPlan {
    Keep,
    Activate,
    /// The package is staged and passed every check of an install.
    Install {
        /// True if the install accepts what the package asks for.
        accepts: bool,
    },
}

/// Makes the home have the connectors of the set.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let set = ConnectorSet::load(&args.set.file)?;
    let old = LockFile::load(&set.lock_path())?;
    if args.locked {
        let Some(lock) = &old else {
            let message = format!("There is no {}.", files::shown(&set.lock_path()));
            return Err(HostError::new(HostErrorKind::Conflict, message)
                .with_hint("`cofferdam sync` without --locked makes it.")
                .into());
        };
        locked_connectors(&set, lock)?;
    }
    let sync = Sync::new(session, &args.change, args.vendored.as_deref(), args.locked)?;
    let choices = sync.choose(&set, &old.clone().unwrap_or_default())?;
    sync.apply(&set, old, choices, args.prune)
}

/// Chooses newer versions for the named connectors.
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
    let sync = Sync::new(session, &args.change, None, false)?;
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

fn stale(set: &ConnectorSet, how: &str) -> HostError {
    let path = set.lock_path();
    HostError::new(
        HostErrorKind::Conflict,
        format!("{} does not fit the set of connectors: {how}.", files::shown(&path)),
    )
    .with_hint("`cofferdam sync` without --locked brings it up to date.")
}

struct Sync<'s> {
    session: &'s Session<'s>,
    options: &'s ChangeOptions,
    finder: PackageFinder<'s>,
    host: Host,
    installed: Vec<RegistryEntry>,
    /// True if the access in the lock file is accepted.
    accepts_lock: bool,
    /// The packages that are about to be installed.
    staging: tempfile::TempDir,
}

impl<'s> Sync<'s> {
    fn new(
        session: &'s Session<'s>,
        options: &'s ChangeOptions,
        vendored: Option<&'s Path>,
        accepts_lock: bool,
    ) -> Result<Self, HostError> {
        let finder = PackageFinder { session, options: &options.source, vendored };
        let host = session.host()?;
        let installed = host.list()?;
        let staging = tempfile::Builder::new().prefix("cofferdam-sync-").tempdir();
        let staging = staging.map_err(|error| files::unwritable(&std::env::temp_dir(), error))?;
        Ok(Self { session, options, finder, host, installed, accepts_lock, staging })
    }

    /// Chooses a package for each connector: the locked one if it fits, or else the newest. Packages that are not installed
    /// are staged after every check of an install, so that what follows changes all or nothing but for the disk.
    fn choose<'c>(&self, set: &'c ConnectorSet, lock: &LockFile) -> Result<Vec<Choice<'c>>, CommandError> {
        let mut choices = Vec::new();
        let mut unaccepted = Vec::new();
        for requirement in set.connectors() {
            let locked = lock.connectors.get(&requirement.name).filter(|locked| locked.fits(requirement));
            if let Some(locked) = locked
                && let Some(plan) = self.installed_plan(requirement, locked)?
            {
                choices.push(Choice { requirement, locked: locked.clone(), plan });
                continue;
            }
            let package = match locked {
                Some(locked) => self.locked_package(requirement, locked)?,
                None => self.finder.newest(requirement)?,
            };
            let (found, review) = self.examine(requirement, &package)?;
            match locked {
                Some(locked) => check_lock(requirement, locked, &found)?,
                None => {
                    self.check_order(requirement, &found.version)?;
                    if let Some(plan) = self.installed_plan(requirement, &found)? {
                        choices.push(Choice { requirement, locked: found, plan });
                        continue;
                    }
                }
            }
            match self.consent(requirement, &found, review, locked.is_some())? {
                Some(accepts) => {
                    self.stage(requirement, &found, package, accepts)?;
                    let locked = locked.cloned().unwrap_or(found);
                    choices.push(Choice { requirement, locked, plan: SyncPlan::Install { accepts } });
                }
                None => unaccepted.push((&requirement.name, found.hash)),
            }
        }
        match unaccepted.is_empty() {
            true => Ok(choices),
            false => Err(not_accepted(&unaccepted).into()),
        }
    }

    /// Returns the plan for a package that is installed and was accepted as it is locked. Its files are not verified: each
    /// call does that. None if it has to be installed.
    fn installed_plan(
        &self,
        requirement: &ConnectorRequirement,
        locked: &LockedConnector,
    ) -> Result<Option<SyncPlan>, HostError> {
        let is_it = |entry: &&RegistryEntry| entry.name == requirement.name && entry.digest == locked.hash;
        let Some(entry) = self.installed.iter().find(is_it) else { return Ok(None) };
        if entry.version != locked.version
            || !self.host.is_accepted_as(&locked.hash, &locked.signers, &locked.grants)
        {
            return Ok(None);
        }
        if entry.is_active {
            return Ok(Some(SyncPlan::Keep));
        }
        self.check_order(requirement, &locked.version)?;
        Ok(Some(SyncPlan::Activate))
    }

    /// Gets a locked package, and compares its hash.
    fn locked_package(
        &self,
        requirement: &ConnectorRequirement,
        locked: &LockedConnector,
    ) -> Result<SourcePackage, CommandError> {
        let package = self.finder.locked(requirement, locked)?;
        if Digest::sha256(&package.bytes) != locked.hash {
            // It ends with the failure that names both hashes.
            let options = InstallOptions::default().expect_hash(locked.hash);
            let checking = self.host.check_install(package.bytes.clone(), None, &options);
            runtime::block_on(async { Ok(checking.await?) })?;
        }
        Ok(package)
    }

    /// Opens a package: its identity, its signers, and the access that it asks for.
    fn examine(
        &self,
        requirement: &ConnectorRequirement,
        package: &SourcePackage,
    ) -> Result<(LockedConnector, PackageReview), CommandError> {
        let signature = package.signature.as_deref();
        let reviewing = async { Ok(self.host.review(package.bytes.clone(), signature).await?) };
        let review = runtime::block_on(reviewing)?;
        let version = check_identity(requirement, &review)?;
        let signers = review.package.signature.owners.clone();
        if signers.is_empty() {
            // It ends with the failure of the signature.
            let options = InstallOptions::default();
            let checking = self.host.check_install(package.bytes.clone(), signature, &options);
            runtime::block_on(async { Ok(checking.await?) })?;
        }
        let found = LockedConnector {
            version,
            source: requirement.source.clone(),
            resolved: package.pinned.as_ref().map(ToString::to_string),
            hash: Digest::sha256(&package.bytes),
            signers,
            grants: review.grants.clone(),
        };
        Ok((found, review))
    }

    /// Refuses a version below the active one: a source that hides its newest version must not bring back an old one.
    fn check_order(&self, requirement: &ConnectorRequirement, version: &Version) -> Result<(), HostError> {
        let active = self.installed.iter().find(|entry| entry.name == requirement.name && entry.is_active);
        match active {
            Some(active)
                if version.cmp_precedence(&active.version).is_lt() && !self.options.allow_downgrade =>
            {
                let (name, active) = (&requirement.name, &active.version);
                let message = format!("{name}@{version} is older than the active version {active}.");
                Err(HostError::new(HostErrorKind::Downgrade, message)
                    .with_hint("If that is meant, repeat the command with --allow-downgrade."))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the install accepts the access of the package; false if it needs no acceptance. None if an operator
    /// has to accept it and there is no terminal.
    fn consent(
        &self,
        requirement: &ConnectorRequirement,
        found: &LockedConnector,
        review: PackageReview,
        is_locked: bool,
    ) -> Result<Option<bool>, CommandError> {
        if self.options.accept.contains(&found.hash) || (is_locked && self.accepts_lock) {
            return Ok(Some(true));
        }
        match &review.consent {
            Consent::Accepted { .. } => Ok(Some(false)),
            Consent::NoWider { than } => {
                let (name, version) = (&requirement.name, &found.version);
                let note =
                    format!("{name} {than} -> {version}: it asks for no more, and has the same signer");
                self.session.ui.note(&note);
                Ok(Some(false))
            }
            Consent::Required { .. } => {
                let page = ReviewPage::new(&self.host, review);
                self.session.ui.note_page(|it| page.show(it));
                Ok(install::ask(self.session)?.then_some(true))
            }
        }
    }

    fn stage(
        &self,
        requirement: &ConnectorRequirement,
        found: &LockedConnector,
        package: SourcePackage,
        accepts: bool,
    ) -> Result<(), CommandError> {
        write_vendored(self.staging.path(), &found.hash, &package)?;
        let what = format!("verifying and compiling {}@{}", requirement.name, found.version);
        let options = self.install_options(found, accepts);
        let checking = self.host.check_install(package.bytes, package.signature.as_deref(), &options);
        runtime::block_on(async { Ok(progress::during(self.session.ui, &what, checking).await?) })
    }

    fn install_options(&self, locked: &LockedConnector, accepts: bool) -> InstallOptions {
        let options = InstallOptions::default().expect_hash(locked.hash);
        let options = if accepts { options.accept(locked.hash) } else { options };
        if self.options.allow_downgrade { options.allow_downgrade() } else { options }
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
        let new = LockFile { connectors: chosen.collect() };
        if old.as_ref() != Some(&new) {
            new.write(&set.lock_path())?;
        }
        let mut synced = Vec::new();
        for Choice { requirement, locked, plan } in choices {
            let connector = ConnectorRef::new(requirement.name.clone(), locked.version.clone());
            let effect = match plan {
                SyncPlan::Keep => SyncEffect::Unchanged,
                SyncPlan::Activate => {
                    self.host.activate(&connector)?;
                    SyncEffect::Activated
                }
                SyncPlan::Install { accepts } => self.install(&connector, &locked, accepts)?,
            };
            synced.push(SyncedConnector::new(&requirement.name, &locked.version, &locked.hash, effect));
        }
        for entry in self.installed.iter().filter(|entry| !new.connectors.contains_key(&entry.name)) {
            let RegistryEntry { name, version, digest, .. } = entry;
            if prune {
                self.host.remove(&ConnectorRef::new(name.clone(), version.clone()))?;
                synced.push(SyncedConnector::new(name, version, digest, SyncEffect::Removed));
            } else {
                self.session.ui.note(&format!("{name}@{version} is installed, and not in the set"));
            }
        }
        self.session.ui.result(&synced, |it| page(&synced, it))
    }

    /// Installs a staged package, and makes it the active version.
    fn install(
        &self,
        connector: &ConnectorRef,
        locked: &LockedConnector,
        accepts: bool,
    ) -> Result<SyncEffect, CommandError> {
        let staged = PackageRef::File(vendored_path(self.staging.path(), &locked.hash));
        let SourcePackage { bytes, signature, .. } = self.options.source.load(self.session, &staged, None)?;
        let installing = self.host.install(bytes, signature, self.install_options(locked, accepts));
        let installed = runtime::block_on(async { Ok(installing.await?) })?;
        if !installed.active {
            self.host.activate(connector)?;
        }
        Ok(SyncEffect::Installed)
    }
}

impl SyncedConnector {
    fn new(name: &ConnectorName, version: &Version, hash: &Digest, effect: SyncEffect) -> Self {
        let (version, hash) = (version.to_string(), format!("sha256:{hash}"));
        Self { name: name.clone(), version, hash, effect }
    }
}

/// Checks that a package is the one in the lock file, with its signers and its access.
fn check_lock(
    requirement: &ConnectorRequirement,
    locked: &LockedConnector,
    found: &LockedConnector,
) -> Result<(), HostError> {
    let what = match () {
        () if found.version != locked.version => "version",
        () if !found.signers.iter().any(|signer| locked.signers.contains(signer)) => "signer",
        () if found.grants != locked.grants => "access",
        () => return Ok(()),
    };
    let message = format!("The lock file has another {what} for {} than its package.", requirement.name);
    Err(HostError::new(HostErrorKind::ConsentRequired, message).with_hint(
        "Restore the lock file, or `cofferdam update` the connector, which shows its access and asks.",
    ))
}

/// Checks that a package is of the connector, in a version that is allowed, and returns the version.
fn check_identity(requirement: &ConnectorRequirement, review: &PackageReview) -> Result<Version, HostError> {
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

/// Returns the error for packages that an operator has to accept, with the options that accept all of them.
fn not_accepted(packages: &[(&ConnectorName, Digest)]) -> HostError {
    let names: Vec<_> = packages.iter().map(|(name, _)| name.to_string()).collect();
    let accept: Vec<_> = packages.iter().map(|(_, hash)| format!("--accept sha256:{hash}")).collect();
    let message = format!("The access that these connectors ask for is not accepted: {}.", names.join(", "));
    HostError::new(HostErrorKind::ConsentRequired, message).with_hint(format!(
        "Nothing was changed. Review them (`cofferdam review`), then add to the command: {}",
        accept.join(" ")
    ))
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
