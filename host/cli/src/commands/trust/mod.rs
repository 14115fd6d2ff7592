//! `trust`: whose connectors may run here, and which.

mod import;
mod publish;
mod rotate;
mod threshold;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::registry::RegistryEntry;
use cofferdam_model::trust::{KeyEntry, KeyId, KeyStatus, Keyring, PublicKey, SigningScope, TrustChange};
use jiff::civil::{Date, Time, time};
use jiff::{Timestamp, tz::TimeZone};
use serde::Serialize;

use super::key::refusal;
use crate::layout::{Page, TextStyle};
use crate::prompt;
use crate::report::CommandError;
use crate::session::Session;

/// Says whose connectors may run here, and which.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Add(AddArgs),
    List(ListArgs),
    Remove(RemoveArgs),
    Revoke(RevokeArgs),
    Keep(KeepArgs),
    Rotate(rotate::Args),
    Import(import::Args),
    Publish(publish::Args),
    Threshold(threshold::Args),
    Floor(super::minimum_version::Args),
}

const ADD_EXAMPLES: &str = "\
Get the key from its owner by a way that you trust. A key that is there already is trusted for more, or longer.

Examples:
  cofferdam trust add ed25519:Y29mZmVyZGFtIGV4YW1wbGUga2V5LCBub3QgcmVhbCE= --for 'github://acme/*'
  cofferdam trust add ed25519:... --for github://acme/slack --not-after 2027-12-31 --comment \"Acme release key\"";

/// Trusts a public key for the connectors that you name.
#[derive(Debug, clap::Args)]
#[command(after_help = ADD_EXAMPLES)]
pub(crate) struct AddArgs {
    /// The public key, as `cofferdam key generate` printed it.
    #[arg(value_name = "KEY")]
    key: String,

    /// The scope of the trust: a connector's name, or all of one owner's; may be given several times.
    #[arg(long = "for", value_name = "SCOPE", required = true, value_parser = scope)]
    scopes: Vec<SigningScope>,

    /// The last day on which it is trusted, like 2027-12-31 (UTC), or the last moment.
    #[arg(long, value_name = "DATE", value_parser = moment)]
    not_after: Option<Timestamp>,

    /// The reason for that date, for people.
    #[arg(long, value_name = "TEXT", requires = "not_after")]
    reason: Option<String>,

    /// A note for people: whose key it is.
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

const LIST_EXAMPLES: &str = "\
Examples:
  cofferdam trust list
  cofferdam trust list --format json";

/// Lists the keys, and what they are trusted for.
#[derive(Debug, clap::Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {}

const REMOVE_EXAMPLES: &str = "\
If the key may be in wrong hands, revoke it instead: a revocation is remembered. A key that took part in a rotation \
cannot be removed while the keyring needs it to know which keys have one owner.

Examples:
  cofferdam trust remove 3f9a1c0b77e2";

/// Forgets a key: what it signed is then by an unknown key, and does not run.
#[derive(Debug, clap::Args)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct RemoveArgs {
    /// The key's id, or at least six digits of its beginning, or the public key.
    #[arg(value_name = "ID")]
    id: String,
}

const REVOKE_EXAMPLES: &str = "\
A key that was never trusted is revoked by the whole public key, so that it is not trusted later. The time in a \
signature is a claim of its signer, who may be the thief of the key: --keep-installed goes by the audit log of this \
home instead, which has to be intact. A key that is revoked again keeps only what the new command keeps; the earlier \
date counts.

Examples:
  cofferdam trust revoke 3f9a1c0b77e2 --reason \"laptop stolen in May\"
  cofferdam trust revoke 3f9a1c0b77e2 --since 2026-05-03 --keep-installed --reason \"laptop stolen on May 3\"
  cofferdam trust revoke ed25519:Y29mZmVyZGFtIGV4YW1wbGUga2V5LCBub3QgcmVhbCE= --reason \"Acme's advisory 7\"";

/// Revokes a key, also one that was never trusted: nothing that it signed runs, and it cannot be trusted any more.
#[derive(Debug, clap::Args)]
#[command(after_help = REVOKE_EXAMPLES)]
pub(crate) struct RevokeArgs {
    /// The key's id, or at least six digits of its beginning, or the public key.
    #[arg(value_name = "ID")]
    id: String,

    /// The reason, for people. Later attempts to trust the key show it.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// The date since which the key may be in wrong hands [default: now].
    #[arg(long, value_name = "DATE", value_parser = past)]
    since: Option<Timestamp>,

    /// Keeps the packages that were installed in this home before that date: they run as before.
    #[arg(long)]
    keep_installed: bool,
}

const KEEP_EXAMPLES: &str = "\
What counts is the audit log of this home, which has to be intact: the packages that it had installed before the key \
expired or was revoked. Each is kept by its SHA-256, and no other package that the key signed, whatever its date.

Examples:
  cofferdam trust keep 3f9a1c0b77e2
  cofferdam trust keep 3f9a1c0b77e2 --yes";

/// Lets the packages stay valid that were installed here before a key expired or was revoked.
#[derive(Debug, clap::Args)]
#[command(after_help = KEEP_EXAMPLES)]
pub(crate) struct KeepArgs {
    /// The key's id, or at least six digits of its beginning, or the public key.
    #[arg(value_name = "ID")]
    id: String,

    /// Does not ask.
    #[arg(short, long)]
    yes: bool,
}

/// Reads or changes the keyring.
pub(crate) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    match command {
        Command::Add(args) => add(args, session),
        Command::List(ListArgs {}) => list(session),
        Command::Remove(args) => remove(&args.id, session),
        Command::Revoke(args) => revoke(&args, session),
        Command::Keep(args) => keep(&args, session),
        Command::Rotate(args) => rotate::run(&args, session),
        Command::Import(args) => import::run(args, session),
        Command::Publish(args) => publish::run(args, session),
        Command::Threshold(args) => threshold::run(args, session),
        Command::Floor(args) => super::minimum_version::run(args, session),
    }
}

/// Parses a scope.
pub(super) fn scope(text: &str) -> Result<SigningScope, String> {
    SigningScope::parse(text).map_err(|refused| refused.to_string())
}

/// Parses a moment; a day stands for its last second.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    moment_of_day(text, time(23, 59, 59, 0))
}

/// Parses a moment that is not ahead; a day stands for its first second.
fn past(text: &str) -> Result<Timestamp, String> {
    let moment = moment_of_day(text, time(0, 0, 0, 0))?;
    match moment <= Timestamp::now() {
        true => Ok(moment),
        false => {
            Err("it is ahead; `cofferdam trust add --not-after` sets the end of a key in advance".into())
        }
    }
}

fn moment_of_day(text: &str, time: Time) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    let day = text.parse::<Date>().map_err(|_| "write it like 2027-12-31 or 2027-12-31T12:00:00Z")?;
    let moment = day.to_datetime(time).to_zoned(TimeZone::UTC);
    moment.map(|moment| moment.timestamp()).map_err(|error| error.to_string())
}

fn add(args: AddArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let AddArgs { key, scopes, not_after, reason, comment } = args;
    let key = PublicKey::parse(&key).map_err(|refused| refusal(&refused, HostErrorKind::Validation))?;
    let now = Timestamp::now();
    let (change, view) = session.change_keyring(|keyring| {
        let change = keyring.trust(&key, &scopes, now, not_after, comment.as_deref());
        let change = change.map_err(|refused| refusal(&refused, HostErrorKind::Validation))?;
        if let Some(reason) = &reason {
            let explained = keyring.explain_end(&key.id(), reason);
            explained.map_err(|refused| refusal(&refused, HostErrorKind::Validation))?;
        }
        let view = find(keyring, &key.to_string()).map(|entry| KeyView::new(entry, now))?;
        Ok((change, view))
    })?;
    let did = match change {
        TrustChange::Added => "added",
        TrustChange::Extended => "changed",
        TrustChange::Unchanged => "unchanged",
    };
    changed(session, did, view)
}

fn list(session: &Session<'_>) -> Result<(), CommandError> {
    let now = Timestamp::now();
    let keyring = session.keyring()?.load()?;
    let keys: Vec<_> = keyring.entries().iter().map(|entry| KeyView::new(entry, now)).collect();
    session.ui.result(&keys, |page| {
        let rows = keys.iter().map(KeyView::row).collect();
        if !keys.is_empty() {
            page.table(["KEY ID", "STATUS", "TRUSTED FOR", "NOT AFTER", "COMMENT"], rows);
        }
    })?;
    if keys.is_empty() {
        session.ui.note("No key is trusted. `cofferdam trust add KEY --for 'github://OWNER/*'` trusts one.");
    }
    Ok(())
}

fn remove(id: &str, session: &Session<'_>) -> Result<(), CommandError> {
    let now = Timestamp::now();
    let view = session.change_keyring(|keyring| {
        let (id, view) = find(keyring, id).map(|entry| (*entry.id(), KeyView::new(entry, now)))?;
        keyring.remove(&id).map_err(|refused| refusal(&refused, HostErrorKind::Validation))?;
        Ok(view)
    })?;
    changed(session, "removed", view)?;
    warn_of_thresholds(session)
}

fn revoke(args: &RevokeArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let now = Timestamp::now();
    let keyring = session.keyring()?.load()?;
    let key = match PublicKey::parse(&args.id) {
        Ok(key) => key,
        Err(_) => find(&keyring, &args.id)?.key().clone(),
    };
    let before = keyring.entry(&key.id());
    let since = args.since.unwrap_or(now);
    let kept = match args.keep_installed {
        true => {
            // An earlier date stays, also for the packages.
            let since = before.and_then(KeyEntry::revoked).map_or(since, |revoked| revoked.min(since));
            installed_before(session, &key.id(), since)?
        }
        false => Vec::new(),
    };
    let (view, dropped) = session.change_keyring(|keyring| {
        if args.keep_installed {
            check_unchanged(keyring, &key.id(), before)?;
        }
        let kept_before = keyring.entry(&key.id()).map(|entry| entry.kept().to_vec()).unwrap_or_default();
        let revoked = keyring.revoke(&key, since, args.reason.as_deref());
        revoked.map_err(|refused| refusal(&refused, HostErrorKind::Validation))?;
        keep_packages(keyring, &key.id(), &kept)?;
        let entry = find(keyring, &key.to_string())?;
        let dropped: Vec<_> =
            kept_before.into_iter().filter(|digest| !entry.kept().contains(digest)).collect();
        Ok((KeyView::new(entry, now), dropped))
    })?;
    KeyringChange { change: "revoked", key: view, no_longer_kept: named(session, &dropped) }.show(session)?;
    warn_of_thresholds(session)
}

fn keep(args: &KeepArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let now = Timestamp::now();
    let keyring = session.keyring()?.load()?;
    let entry = find(&keyring, &args.id)?;
    let id = *entry.id();
    let end = entry.revoked().into_iter().chain(entry.not_after()).chain([now]).min().unwrap_or(now);
    let packages = installed_before(session, &id, end)?;
    if packages.is_empty() {
        let error = HostError::new(HostErrorKind::Validation, "There is no package that the key could keep.");
        return Err(error.with_hint("Install a release that is signed by another key.").into());
    }
    let lines: String = packages.iter().map(|package| format!("  {}\n", shown(package))).collect();
    let question = format!("{lines}Keep these packages after the end of the key? [y/N] ");
    let is_known = |digest: &Digest| entry.kept().contains(digest);
    if packages.iter().any(|package| !is_known(&package.digest))
        && !args.yes
        && !prompt::confirm(&question, "Add --yes.")?
    {
        session.ui.note("Nothing was changed.");
        return Ok(());
    }
    let view = session.change_keyring(|keyring| {
        check_unchanged(keyring, &id, Some(entry))?;
        keep_packages(keyring, &id, &packages)?;
        find(keyring, &id.to_string()).map(|entry| KeyView::new(entry, now))
    })?;
    changed(session, "kept", view)
}

fn shown(RegistryEntry { name, version, digest, .. }: &RegistryEntry) -> String {
    format!("{name}@{version} (sha256:{digest})")
}

/// Finds the packages that were installed before `end` with a signature of the key, and names them.
fn installed_before(
    session: &Session<'_>,
    key: &KeyId,
    end: Timestamp,
) -> Result<Vec<RegistryEntry>, HostError> {
    let packages = session.host()?.installed_before(key, end)?;
    for package in &packages {
        session.ui.note(&format!("installed before {end}: {}", shown(package)));
    }
    if packages.is_empty() {
        session.ui.note(&format!("No package was installed before {end} with a signature of this key."));
    }
    Ok(packages)
}

fn keep_packages(keyring: &mut Keyring, key: &KeyId, packages: &[RegistryEntry]) -> Result<(), HostError> {
    let digests: Vec<_> = packages.iter().map(|package| package.digest).collect();
    let kept = keyring.keep(key, &digests);
    kept.map(drop).map_err(|refused| refusal(&refused, HostErrorKind::Validation))
}

/// Returns the packages with their names, as far as they are installed.
fn named(session: &Session<'_>, digests: &[Digest]) -> Vec<String> {
    if digests.is_empty() {
        return Vec::new();
    }
    // The names are a help only: without them, the hashes are shown.
    let installed = session.host().and_then(|host| host.list()).unwrap_or_default();
    let name = |digest: &Digest| {
        let package = installed.iter().find(|entry| entry.digest == *digest);
        package.map_or_else(|| format!("sha256:{digest}"), shown)
    };
    digests.iter().map(name).collect()
}

/// Checks that a key is as it was when the effects of the command were determined.
fn check_unchanged(keyring: &Keyring, key: &KeyId, before: Option<&KeyEntry>) -> Result<(), HostError> {
    match keyring.entry(key) == before {
        true => Ok(()),
        false => Err(changed_meanwhile()),
    }
}

/// Returns the error for a keyring that another command changed, so that this one would not do what was shown.
fn changed_meanwhile() -> HostError {
    let message = "The keyring was changed meanwhile, so the command would have another effect.";
    HostError::new(HostErrorKind::Conflict, message).with_hint("Run the command again.")
}

/// Warns of thresholds that the trusted keys cannot meet.
fn warn_of_thresholds(session: &Session<'_>) -> Result<(), CommandError> {
    let (keyring, now) = (session.keyring()?.load()?, Timestamp::now());
    for (scope, threshold) in keyring.thresholds() {
        let owners = keyring.owners_for(scope, now);
        if owners < threshold.get() {
            session.ui.warn(&format!(
                "{threshold} different keys must sign {scope}, and only {owners} may: nothing of it runs"
            ));
        }
    }
    Ok(())
}

fn find<'k>(keyring: &'k Keyring, text: &str) -> Result<&'k KeyEntry, HostError> {
    keyring.find(text).map_err(|refused| refusal(&refused, HostErrorKind::Validation))
}

fn changed(session: &Session<'_>, did: &'static str, key: KeyView) -> Result<(), CommandError> {
    KeyringChange { change: did, key, no_longer_kept: Vec::new() }.show(session)
}

/// The effect of a command on a key.
#[derive(Debug, Serialize)]
struct KeyringChange {
    change: &'static str,
    key: KeyView,
    /// The packages that were kept before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    no_longer_kept: Vec<String>,
}

impl KeyringChange {
    fn show(&self, session: &Session<'_>) -> Result<(), CommandError> {
        session.ui.result(self, |page| {
            self.key.page(self.change, page);
            for package in &self.no_longer_kept {
                page.field("no longer keeps", package);
            }
        })
    }
}

/// A key of the keyring, to be shown.
#[derive(Debug, Serialize)]
struct KeyView {
    id: String,
    key: String,
    status: &'static str,
    #[serde(skip)]
    tone: TextStyle,
    scopes: Vec<String>,
    comment: Option<String>,
    added: Option<String>,
    not_after: Option<String>,
    revoked: Option<String>,
    reason: Option<String>,
    successor_of: Option<String>,
    /// The packages that stay valid after its end.
    kept: Vec<String>,
}

impl KeyView {
    fn new(entry: &KeyEntry, now: Timestamp) -> Self {
        let (status, tone) = match entry.status(now) {
            KeyStatus::Trusted => ("trusted", TextStyle::Good),
            KeyStatus::Expired => ("expired", TextStyle::Doubtful),
            KeyStatus::Revoked => ("revoked", TextStyle::Bad),
        };
        let date = |moment: Option<Timestamp>| moment.map(|moment| moment.to_string());
        Self {
            id: entry.id().to_string(),
            key: entry.key().to_string(),
            status,
            tone,
            scopes: entry.scopes().iter().map(ToString::to_string).collect(),
            comment: entry.comment().map(ToOwned::to_owned),
            added: date(entry.added()),
            not_after: date(entry.not_after()),
            revoked: date(entry.revoked()),
            reason: entry.reason().map(ToOwned::to_owned),
            successor_of: entry.successor_of().map(ToString::to_string),
            kept: entry.kept().iter().map(|digest| format!("sha256:{digest}")).collect(),
        }
    }

    fn page(&self, label: &str, page: &mut Page) {
        page.styled_field(label, self.tone, &self.id);
        page.field("key", &self.key);
        page.field("status", self.status);
        if !self.scopes.is_empty() {
            page.field("trusted for", &self.scopes.join(", "));
        }
        for (label, value) in [
            ("not after", &self.not_after),
            ("revoked", &self.revoked),
            ("comment", &self.comment),
            ("reason", &self.reason),
            ("successor of", &self.successor_of),
        ] {
            if let Some(value) = value {
                page.field(label, value);
            }
        }
        for package in &self.kept {
            page.field("keeps", package);
        }
    }

    fn row(&self) -> [String; 5] {
        let id = self.id.chars().take(12).collect();
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let mut status = match &self.reason {
            Some(reason) => format!("{} ({reason})", self.status),
            None => self.status.to_owned(),
        };
        if !self.kept.is_empty() {
            status += &format!(", keeps {} packages", self.kept.len());
        }
        [id, status, self.scopes.join(", "), text(&self.not_after), text(&self.comment)]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{moment, past};

    #[test]
    fn a_day_lasts_until_its_end() {
        assert_eq!(moment("2027-12-31").unwrap().to_string(), "2027-12-31T23:59:59Z");
        assert_eq!(moment("2027-12-31T12:00:00+02:00").unwrap().to_string(), "2027-12-31T10:00:00Z");
        for wrong in ["", "tomorrow", "31.12.2027", "2027-13-01", "2027-02-29"] {
            assert!(moment(wrong).is_err() && past(wrong).is_err(), "{wrong}");
        }
        assert_eq!(past("2026-05-03").unwrap().to_string(), "2026-05-03T00:00:00Z");
        assert!(past("2999-05-03").unwrap_err().contains("--not-after"));
    }
}
