//! Records the changes that operators make, before they take effect.

use std::borrow::Cow;
use std::sync::Arc;

use cofferdam_audit::wait;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use cofferdam_core::event::operator::{OperatorAction, OperatorEvent, OperatorState};
use cofferdam_core::secret::redact_likely_secrets;
use cofferdam_egress::vault::Binding;
use cofferdam_model::manifest::ConnectorName;
use cofferdam_model::trust::{KeyEntry, KeySetImport, KeyStatus, Keyring, SignatureThreshold, SigningScope};
use jiff::Timestamp;
use semver::Version;

use super::audit::Audit;
use super::{Host, bindings};
use crate::log_errors::unwritable;

/// A change that an operator is about to make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperatorChange {
    /// The kind of the change.
    pub action: OperatorAction,
    /// The connector, the key's id, or the name of the binding.
    pub subject: String,
    /// The state before.
    pub before: Option<OperatorState<'static>>,
    /// The state after.
    pub after: Option<OperatorState<'static>>,
    /// True if the change only takes permissions away. It must be possible with a full disk, so it is made even if it
    /// cannot be recorded.
    pub is_restriction: bool,
}

/// Records changes before they are made, and those that then failed.
pub(super) struct ChangeRecorder {
    audit: Audit,
    intended: Vec<OperatorEvent<'static>>,
}

impl ChangeRecorder {
    pub(super) fn new(audit: &Audit) -> Self {
        Self { audit: audit.clone(), intended: Vec::new() }
    }

    /// Records a change that is about to be made. It blocks.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be written, so the change must not be made.
    pub(super) fn intend(&mut self, change: OperatorChange) -> Result<(), HostError> {
        let user = Arc::clone(&self.audit.user);
        self.intend_by(&user, change)
    }

    /// Records a change that this user is about to make. It blocks.
    ///
    /// # Errors
    /// As [`intend`](Self::intend).
    pub(super) fn intend_by(&mut self, user: &str, change: OperatorChange) -> Result<(), HostError> {
        let OperatorChange { action, subject, before, after, is_restriction } = change;
        let user = Cow::Owned(user.to_owned());
        let event =
            OperatorEvent { action, after, before, failed: false, subject: subject.into(), user }.bounded();
        match self.write(event.clone()) {
            Ok(()) => self.intended.push(event),
            Err(error) if is_restriction => tracing::warn!(
                target: "cofferdam::audit", action = action.name(), subject = &*event.subject,
                "the change is made, and is not in the audit log: {error}"
            ),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Records that the changes failed, if they did. It blocks.
    pub(super) fn conclude<T, E>(self, outcome: Result<T, E>) -> Result<T, E> {
        if outcome.is_err() {
            for event in &self.intended {
                if let Err(error) = self.write(OperatorEvent { failed: true, ..event.clone() }) {
                    tracing::warn!(
                        target: "cofferdam::audit", action = event.action.name(), subject = &*event.subject, %error,
                        "the change was not made, and the audit log does not have that"
                    );
                }
            }
        }
        outcome
    }

    fn write(&self, event: OperatorEvent<'static>) -> Result<(), HostError> {
        wait(self.audit.log().record(self.audit.clock.timestamp(), event)).map_err(unwritable)
    }
}

impl Host {
    /// Changes the keyring. Every key, minimum version, threshold and imported key set that is different afterwards is
    /// recorded, with the user of the host, before the keyring is written.
    ///
    /// # Errors
    /// `keyring_invalid` if it cannot be read, `registry_unavailable` if it cannot be written, `audit_unavailable` if
    /// the change cannot be recorded and does not only take permissions away, and what `change` returns.
    pub fn change_keyring<T>(
        &self,
        change: impl FnOnce(&mut Keyring) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let mut recorder = ChangeRecorder::new(&self.audit);
        let now = self.pipeline.loader.clock.timestamp();
        let outcome = self.keyring().update(|keyring| {
            let before = keyring.clone();
            let done = change(keyring)?;
            keyring_changes(&before, keyring, now).into_iter().try_for_each(|it| recorder.intend(it))?;
            Ok(done)
        });
        recorder.conclude(outcome)
    }
}

/// Returns the differences between two states of a keyring.
#[must_use]
pub fn keyring_changes(before: &Keyring, after: &Keyring, now: Timestamp) -> Vec<OperatorChange> {
    fn entry<'k>(keyring: &'k Keyring, of: &KeyEntry) -> Option<&'k KeyEntry> {
        keyring.entries().iter().find(|entry| entry.id() == of.id())
    }
    let removed =
        before.entries().iter().filter(|old| entry(after, old).is_none()).map(|old| OperatorChange {
            action: OperatorAction::Distrust,
            subject: old.id().to_string(),
            before: Some(key_state(old, now)),
            after: None,
            // Without its revocation, the key could be trusted again.
            is_restriction: old.revoked().is_none(),
        });
    let changed = after.entries().iter().filter(|new| entry(before, new) != Some(new)).map(|new| {
        let old = entry(before, new);
        let is_revoked = new.status(now) == KeyStatus::Revoked;
        let has_ended = old.is_some_and(|old| old.status(now) != KeyStatus::Trusted);
        // Packages that stay valid although their key has ended already.
        let keeps_more =
            has_ended && new.kept().iter().any(|it| old.is_some_and(|old| !old.kept().contains(it)));
        let succeeds = old.and_then(KeyEntry::successor_of) != new.successor_of();
        let is_restriction = is_revoked && !keeps_more;
        OperatorChange {
            action: match (is_restriction, succeeds) {
                (true, _) => OperatorAction::Revoke,
                (false, true) => OperatorAction::Rotate,
                (false, false) => OperatorAction::Trust,
            },
            subject: new.id().to_string(),
            before: old.map(|old| key_state(old, now)),
            after: Some(key_state(new, now)),
            is_restriction,
        }
    });
    let floors = before.floors().chain(after.floors().filter(|(name, _)| before.floor(name).is_none()));
    let floors = floors.filter_map(|(name, _)| floor_change(name, before.floor(name), after.floor(name)));
    let is_new = |scope: &SigningScope| before.threshold_of(scope).is_none();
    let thresholds = before.thresholds().chain(after.thresholds().filter(|(scope, _)| is_new(scope)));
    let thresholds = thresholds.filter_map(|(scope, _)| {
        threshold_change(scope, before.threshold_of(scope), after.threshold_of(scope))
    });
    removed.chain(changed).chain(floors).chain(thresholds).chain(import_changes(before, after)).collect()
}

fn threshold_change(
    scope: &SigningScope,
    before: Option<SignatureThreshold>,
    after: Option<SignatureThreshold>,
) -> Option<OperatorChange> {
    let state = |number: SignatureThreshold| OperatorState {
        signatures: u64::try_from(number.get()).ok(),
        ..OperatorState::default()
    };
    (before != after).then(|| OperatorChange {
        action: OperatorAction::Threshold,
        subject: scope.to_string(),
        before: before.map(state),
        after: after.map(state),
        is_restriction: after > before,
    })
}

fn import_changes(before: &Keyring, after: &Keyring) -> Vec<OperatorChange> {
    let state = |import: &KeySetImport| OperatorState {
        hash: Some(format!("sha256:{}", import.fingerprint()).into()),
        source: Some(note(import.source())),
        ..OperatorState::default()
    };
    let mut changes = Vec::new();
    for import in after.imports() {
        let old = before.imports().find(|old| old.publisher() == import.publisher());
        let same =
            |old: &KeySetImport| (old.fingerprint(), old.source()) == (import.fingerprint(), import.source());
        if !old.is_some_and(same) {
            changes.push(OperatorChange {
                action: OperatorAction::Import,
                subject: import.publisher().to_string(),
                before: old.map(state),
                after: Some(state(import)),
                is_restriction: false,
            });
        }
    }
    changes
}

fn floor_change(
    name: &ConnectorName,
    before: Option<&Version>,
    after: Option<&Version>,
) -> Option<OperatorChange> {
    (before != after).then(|| OperatorChange {
        action: OperatorAction::Floor,
        subject: name.to_string(),
        before: before.map(version_state),
        after: after.map(version_state),
        is_restriction: after > before,
    })
}

fn key_state(entry: &KeyEntry, now: Timestamp) -> OperatorState<'static> {
    OperatorState {
        comment: entry.comment().map(note),
        kept: entry.kept().iter().map(|digest| format!("sha256:{digest}").into()).collect(),
        not_after: entry.not_after().map(|moment| moment.to_string().into()),
        public_key: Some(entry.key().to_string().into()),
        reason: entry.reason().map(note),
        scopes: entry.scopes().iter().map(|scope| scope.to_string().into()).collect(),
        since: entry.revoked().map(|moment| moment.to_string().into()),
        successor_of: entry.successor_of().map(|id| id.to_string().into()),
        status: Some(
            match entry.status(now) {
                KeyStatus::Trusted => "trusted",
                KeyStatus::Expired => "expired",
                KeyStatus::Revoked => "revoked",
            }
            .into(),
        ),
        ..OperatorState::default()
    }
}

/// Returns the change of the active version of a connector.
pub(super) fn activation(name: &ConnectorName, before: &Version, after: &Version) -> OperatorChange {
    OperatorChange {
        action: OperatorAction::Activate,
        subject: name.to_string(),
        before: Some(version_state(before)),
        after: Some(version_state(after)),
        is_restriction: false,
    }
}

fn version_state(version: &Version) -> OperatorState<'static> {
    OperatorState { version: Some(version.to_string().into()), ..OperatorState::default() }
}

/// Returns the state of an installed package.
pub(super) fn package_state(
    version: &Version,
    digest: &Digest,
    signers: &[String],
) -> OperatorState<'static> {
    let several = signers.iter().filter(|_| signers.len() > 1);
    OperatorState {
        hash: Some(format!("sha256:{digest}").into()),
        signer: signers.first().cloned().map(Cow::Owned),
        signers: several.cloned().map(Cow::Owned).collect(),
        version: Some(version.to_string().into()),
        ..OperatorState::default()
    }
}

/// Returns the state of a binding, without its secret.
pub(super) fn binding_state(binding: &Binding, now: Timestamp) -> OperatorState<'static> {
    let view = bindings::view(binding, now);
    // Some services take a token as the user name. The expiry of a token changes without an operator.
    let details = view.details.into_iter().filter(|(name, _)| !matches!(*name, "username" | "token_expires"));
    let details = details.map(|(name, text)| (name.into(), note(&text)));
    let texts = |texts: Vec<String>| texts.into_iter().map(Cow::Owned).collect();
    OperatorState {
        // More exactly than the view: a secret may be replaced twice in a second.
        changed: Some(format!("{:.6}", binding.changed).into()),
        connectors: texts(view.connectors),
        details: details.collect(),
        hosts: texts(view.hosts),
        status: Some(view.status.into()),
        ..OperatorState::default()
    }
}

/// Returns a text that an operator wrote, without anything that looks like a secret.
fn note(text: &str) -> Cow<'static, str> {
    redact_likely_secrets(text, false).into_owned().into()
}
