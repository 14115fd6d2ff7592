//! The keyring document: which public keys are trusted for which connectors, from when until when, how many of them
//! must sign, and which versions are too old.

use std::collections::BTreeSet;

use cofferdam_core::digest::Digest;
use cofferdam_core::document::{DocumentError, DocumentTable, InvalidValue, quoted, read};
use cofferdam_core::failure::sanitize_line;
use jiff::Timestamp;
use serde::Serialize;

use super::floor::VersionFloors;
use super::key::{KeyId, PublicKey};
use super::key_set::KeySetImports;
use super::scope::SigningScope;
use super::threshold::{SignatureThreshold, SignatureThresholds};
use crate::manifest::ConnectorName;

/// The most keys of one keyring: each is tried on each signature.
const MAX_KEYS: usize = 256;

/// Most scopes of one key.
const MAX_SCOPES: usize = 256;

/// Most packages that stay valid after the end of one key.
const MAX_KEPT: usize = 1_000;

/// Shortest beginning of an id that finds a key.
const MIN_PREFIX: usize = 6;

/// Longest comment or reason, in characters.
const MAX_NOTE: usize = 200;

/// The file's header comment.
const HEADER: &str = "# cofferdam keyring: the public keys that may sign connectors, and which ones.\n\
    # The commands of `cofferdam trust` rewrite this file; notes belong into `comment`.\n";

/// The trusted keys. Empty, nothing is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keyring {
    entries: Vec<KeyEntry>,
    floors: VersionFloors,
    thresholds: SignatureThresholds,
    pub(super) imports: KeySetImports,
}

/// A key and what it is trusted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEntry {
    key: PublicKey,
    id: KeyId,
    scopes: Vec<SigningScope>,
    comment: Option<String>,
    added: Option<Timestamp>,
    not_after: Option<Timestamp>,
    revoked: Option<Timestamp>,
    reason: Option<String>,
    kept: Vec<Digest>,
    successor_of: Option<KeyId>,
}

/// The status of a key at some moment, apart from its scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyStatus {
    /// It is trusted within its scopes.
    Trusted,
    /// Its last moment has passed.
    Expired,
    /// It was revoked, whatever it signed and when.
    Revoked,
}

/// The effect of [`Keyring::trust`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustChange {
    /// The key is new.
    Added,
    /// The key was trusted already, and is now trusted for more, or longer, or has another comment.
    Extended,
    /// Everything was so already.
    Unchanged,
}

impl KeyEntry {
    /// A key that is trusted for nothing yet.
    fn new(key: &PublicKey, now: Timestamp) -> Self {
        Self {
            key: key.clone(),
            id: key.id(),
            scopes: Vec::new(),
            comment: None,
            added: Some(whole_seconds(now)),
            not_after: None,
            revoked: None,
            reason: None,
            kept: Vec::new(),
            successor_of: None,
        }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// The key's id.
    #[must_use]
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// The connectors it is trusted for; empty only for a key that was revoked before it was ever trusted.
    #[must_use]
    pub fn scopes(&self) -> &[SigningScope] {
        &self.scopes
    }

    /// The operator's note.
    #[must_use]
    pub fn comment(&self) -> Option<&str> {
        self.comment.as_deref()
    }

    /// Returns the time at which it was added, if the file has it.
    #[must_use]
    pub fn added(&self) -> Option<Timestamp> {
        self.added
    }

    /// Returns the last moment at which it is trusted, if there is one.
    #[must_use]
    pub fn not_after(&self) -> Option<Timestamp> {
        self.not_after
    }

    /// Returns the date of its revocation.
    #[must_use]
    pub fn revoked(&self) -> Option<Timestamp> {
        self.revoked
    }

    /// Returns the packages that stay valid after its end: the operator chose to keep them, and this home had installed
    /// them before. The time in a statement cannot show that. It is a claim of the signer, and a thief of the key can
    /// claim any time.
    #[must_use]
    pub fn kept(&self) -> &[Digest] {
        &self.kept
    }

    /// Returns the key that it succeeded.
    #[must_use]
    pub fn successor_of(&self) -> Option<&KeyId> {
        self.successor_of.as_ref()
    }

    pub(super) fn set_successor_of(&mut self, old: KeyId) {
        self.successor_of = Some(old);
    }

    /// Ends the trust at `at`, unless it ends earlier already.
    pub(super) fn end(&mut self, at: Timestamp, reason: &str) {
        self.shorten(Some(at));
        self.reason = Some(reason.to_owned());
    }

    /// Takes `at` as the last moment, unless there is an earlier one.
    pub(super) fn shorten(&mut self, at: Option<Timestamp>) {
        self.not_after = self.not_after.into_iter().chain(at.map(whole_seconds)).min();
    }

    /// Returns the reason for its end, in the operator's words.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns the status of the key at `now`. A revocation is valid from the moment it is written, also for
    /// earlier signatures and also if its date is in the future: signing times are claims, and an attacker
    /// with a stolen key can claim any time.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> KeyStatus {
        if self.revoked.is_some() {
            KeyStatus::Revoked
        } else if self.not_after.is_some_and(|last| now > last) {
            KeyStatus::Expired
        } else {
            KeyStatus::Trusted
        }
    }

    /// Returns true if its signature over the package `digest` counts at `now`.
    #[must_use]
    pub fn vouches_for(&self, digest: &Digest, now: Timestamp) -> bool {
        self.status(now) == KeyStatus::Trusted || self.kept.contains(digest)
    }

    /// Returns true if one of its scopes covers `name`.
    #[must_use]
    pub fn covers(&self, name: &ConnectorName) -> bool {
        self.scopes.iter().any(|scope| scope.covers(name))
    }
}

impl Keyring {
    /// Returns the keyring without any trusted key, which is the meaning of a missing file.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Reads the document `text`; `file_label` is what problems call the file.
    ///
    /// # Errors
    /// Every problem of the text at once, each with its place and fix.
    pub fn parse(file_label: &str, text: &str) -> Result<Self, DocumentError> {
        read(file_label, text, |root| {
            root.reject_unknown_keys(&["keys", "floor", "threshold", "import"]);
            let mut keyring = Self::empty();
            let tables = root.tables("keys");
            if let Some(beyond) = tables.get(MAX_KEYS) {
                let message = format!("the keyring has {} keys, more than {MAX_KEYS}", tables.len());
                beyond
                    .location()
                    .refuse(InvalidValue::new(message, "remove those that are no longer needed"));
            }
            for table in tables.iter().take(MAX_KEYS) {
                keyring.entries.extend(entry(table, &keyring.entries));
            }
            keyring.floors = VersionFloors::read(&root.tables("floor"));
            keyring.thresholds = SignatureThresholds::read(&root.tables("threshold"));
            keyring.imports = KeySetImports::read(&root.tables("import"));
            Some(keyring)
        })
    }

    /// The document.
    #[must_use]
    pub fn to_text(&self) -> String {
        let date = |moment: Option<Timestamp>| moment.and_then(|moment| moment.to_string().parse().ok());
        let keys = self.entries.iter().map(|entry| WireKeyEntry {
            key: entry.key.to_string(),
            scopes: entry.scopes.iter().map(SigningScope::to_string).collect(),
            comment: entry.comment.clone(),
            added: date(entry.added),
            not_after: date(entry.not_after),
            revoked: date(entry.revoked),
            reason: entry.reason.clone(),
            successor_of: entry.successor_of.map(|id| id.to_string()),
            kept: entry.kept.iter().map(|digest| format!("sha256:{digest}")).collect(),
        });
        // What restricts is before what trusts: a file without its end trusts less.
        let mut text = HEADER.to_owned() + &self.thresholds.to_text() + &self.floors.to_text();
        for key in keys {
            text.push_str("\n[[keys]]\n");
            // Strings, lists of strings and dates: the serialization cannot fail.
            text.push_str(&toml::to_string(&key).unwrap_or_default());
        }
        text + &self.imports.to_text()
    }

    /// Returns the number of different keys that must sign `name`, with the scope that asks for it. None if one
    /// suffices.
    #[must_use]
    pub fn threshold(&self, name: &ConnectorName) -> Option<(&SigningScope, SignatureThreshold)> {
        self.thresholds.covering(name)
    }

    /// Returns the threshold of exactly this scope.
    #[must_use]
    pub fn threshold_of(&self, scope: &SigningScope) -> Option<SignatureThreshold> {
        self.thresholds.get(scope)
    }

    /// Every threshold, by scope.
    pub fn thresholds(&self) -> impl Iterator<Item = (&SigningScope, SignatureThreshold)> {
        self.thresholds.iter()
    }

    /// Sets the threshold of `scope`; returns the previous one.
    ///
    /// # Errors
    /// The keyring has its maximum of thresholds.
    pub fn set_threshold(
        &mut self,
        scope: &SigningScope,
        number: SignatureThreshold,
    ) -> Result<Option<SignatureThreshold>, InvalidValue> {
        self.thresholds.set(scope, number)
    }

    /// Takes the threshold of `scope` away; returns it.
    pub fn remove_threshold(&mut self, scope: &SigningScope) -> Option<SignatureThreshold> {
        self.thresholds.remove(scope)
    }

    /// Returns the number of different owners of these keys. A key and its successors have one owner.
    pub(super) fn owners<'k>(&self, keys: impl Iterator<Item = &'k KeyId>) -> usize {
        keys.map(|id| self.first_of_succession(id)).collect::<BTreeSet<_>>().len()
    }

    /// Returns the number of different owners whose keys may sign everything in `scope` at `now`. A threshold above it
    /// cannot be met.
    #[must_use]
    pub fn owners_for(&self, scope: &SigningScope, now: Timestamp) -> usize {
        let may_sign = |entry: &&KeyEntry| {
            entry.status(now) == KeyStatus::Trusted && entry.scopes.iter().any(|own| own.contains(scope))
        };
        self.owners(self.entries.iter().filter(may_sign).map(KeyEntry::id))
    }

    /// Returns the lowest version of `name` that may run, if there is a floor.
    #[must_use]
    pub fn floor(&self, name: &ConnectorName) -> Option<&semver::Version> {
        self.floors.get(name)
    }

    /// Every floor, by name.
    pub fn floors(&self) -> impl Iterator<Item = (&ConnectorName, &semver::Version)> {
        self.floors.iter()
    }

    /// Sets the floor of `name` to `version`; returns the previous one.
    ///
    /// # Errors
    /// The keyring has its maximum of floors.
    pub fn set_floor(
        &mut self,
        name: &ConnectorName,
        version: &semver::Version,
    ) -> Result<Option<semver::Version>, InvalidValue> {
        self.floors.set(name, version)
    }

    /// Takes the floor of `name` away; returns it.
    pub fn remove_floor(&mut self, name: &ConnectorName) -> Option<semver::Version> {
        self.floors.remove(name)
    }

    /// The keys, in the order of the file.
    #[must_use]
    pub fn entries(&self) -> &[KeyEntry] {
        &self.entries
    }

    /// Returns the key with exactly this id.
    #[must_use]
    pub fn entry(&self, id: &KeyId) -> Option<&KeyEntry> {
        self.entries.iter().find(|entry| entry.id == *id)
    }

    pub(super) fn entry_mut(&mut self, id: &KeyId) -> Option<&mut KeyEntry> {
        self.entries.iter_mut().find(|entry| entry.id == *id)
    }

    /// The one key that `text` names: a whole public key, an id, or the beginning of one id.
    ///
    /// # Errors
    /// No key, or several.
    pub fn find(&self, text: &str) -> Result<&KeyEntry, InvalidValue> {
        let text = text.trim();
        let list = "see `cofferdam trust list` for the keys there are";
        if let Ok(key) = PublicKey::parse(text) {
            let found = self.entries.iter().find(|entry| entry.key == key);
            return found.ok_or_else(|| InvalidValue::new(format!("the keyring has no key {key}"), list));
        }
        let hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !hex || text.len() < MIN_PREFIX {
            let message = format!("{} is neither a public key nor the beginning of a key's id", quoted(text));
            return Err(InvalidValue::new(
                message,
                format!("give at least {MIN_PREFIX} digits of the id; {list}"),
            ));
        }
        let mut found = self.entries.iter().filter(|entry| entry.id.to_string().starts_with(text));
        match (found.next(), found.next()) {
            (Some(entry), None) => Ok(entry),
            (None, _) => Err(InvalidValue::new(format!("the keyring has no key with the id {text}"), list)),
            (Some(_), Some(_)) => Err(InvalidValue::new(
                format!("several keys have ids that start with {text}"),
                "give more digits",
            )),
        }
    }

    /// Trusts `key` for `scopes`, in addition to what it is trusted for already; `not_after` and
    /// `comment` replace what was there when given.
    ///
    /// # Errors
    /// No scope; a key that was revoked, or whose time is over and is not extended; a full keyring.
    pub fn trust(
        &mut self,
        key: &PublicKey,
        scopes: &[SigningScope],
        now: Timestamp,
        not_after: Option<Timestamp>,
        comment: Option<&str>,
    ) -> Result<TrustChange, InvalidValue> {
        if scopes.is_empty() {
            let fix = "name what it is trusted for, with --for 'github://acme/*'";
            return Err(InvalidValue::new("a key is not trusted for everything", fix));
        }
        if let Some(comment) = comment {
            check_note("comment", comment)?;
        }
        let id = key.id();
        let known = self.entries.iter().position(|entry| entry.id == id);
        let mut changed = match known.and_then(|at| self.entries.get(at)) {
            Some(entry) => entry.clone(),
            None => KeyEntry::new(key, now),
        };
        for scope in scopes {
            if !changed.scopes.contains(scope) {
                changed.scopes.push(scope.clone());
            }
        }
        if changed.scopes.len() > MAX_SCOPES {
            let message = format!("the key {} would have more than {MAX_SCOPES} scopes", id.short());
            return Err(InvalidValue::new(message, "use an owner's scope, like github://acme/*"));
        }
        changed.not_after = not_after.or(changed.not_after);
        changed.comment = comment.map(str::to_owned).or(changed.comment);
        match changed.status(now) {
            KeyStatus::Trusted => {}
            KeyStatus::Revoked => {
                let reason = changed.reason.as_ref().map(|reason| format!(" ({reason})"));
                let message =
                    format!("the key {} was revoked{} and stays so", id.short(), reason.unwrap_or_default());
                let fix = format!("if that was a mistake, run `cofferdam trust remove {}` first", id.short());
                return Err(InvalidValue::new(message, fix));
            }
            KeyStatus::Expired => {
                let message = format!("the last day of the key {} has passed", id.short());
                return Err(InvalidValue::new(message, "give a date ahead with --not-after"));
            }
        }
        if let Some(entry) = known.and_then(|at| self.entries.get_mut(at)) {
            let same = *entry == changed;
            *entry = changed;
            return Ok(if same { TrustChange::Unchanged } else { TrustChange::Extended });
        }
        self.push(changed)?;
        Ok(TrustChange::Added)
    }

    fn push(&mut self, entry: KeyEntry) -> Result<(), InvalidValue> {
        if self.entries.len() >= MAX_KEYS {
            let fix = "remove those that are no longer needed with `cofferdam trust remove`";
            return Err(InvalidValue::new(format!("the keyring has {MAX_KEYS} keys already"), fix));
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Removes the key `id`; its signatures are then by an unknown key. Returns the removed entry.
    ///
    /// # Errors
    /// It succeeded another key, and its predecessor or its successor is in the keyring. Its entry shows that they have
    /// one owner: added again without it, it would count as another owner for a threshold.
    pub fn remove(&mut self, id: &KeyId) -> Result<Option<KeyEntry>, InvalidValue> {
        let Some(at) = self.entries.iter().position(|entry| entry.id == *id) else { return Ok(None) };
        let before = self.entries.get(at).and_then(|entry| entry.successor_of);
        let predecessor = before.as_ref().and_then(|before| self.entry(before));
        if let Some(relative) = predecessor.or_else(|| before.and_then(|_| self.successor(id))) {
            let message = format!(
                "the key {} and the key {} have one owner, which the keyring would forget",
                id.short(),
                relative.id.short()
            );
            return Err(InvalidValue::new(message, "revoke it instead, with `cofferdam trust revoke`"));
        }
        Ok(Some(self.entries.remove(at)))
    }

    /// Revokes `key` as of `since`, whether or not it was ever trusted: nothing it signed is accepted, and it cannot be
    /// trusted any more. Packages that were kept are no longer kept, because they may have been installed after the new
    /// date; [`keep`](Self::keep) keeps those that were installed before. The earlier of two dates counts, and the
    /// reason stays unless there is a new one.
    ///
    /// # Errors
    /// A reason that is not one readable line; a full keyring.
    pub fn revoke(
        &mut self,
        key: &PublicKey,
        since: Timestamp,
        reason: Option<&str>,
    ) -> Result<(), InvalidValue> {
        reason.map(|reason| check_note("reason", reason)).transpose()?;
        if !self.entries.iter().any(|entry| entry.key == *key) {
            self.push(KeyEntry::new(key, since))?;
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.key == *key) {
            entry.revoked = entry.revoked.into_iter().chain([whole_seconds(since)]).min();
            entry.kept.clear();
            entry.reason = reason.map(str::to_owned).or(entry.reason.take());
        }
        Ok(())
    }

    /// Notes the reason for the date after which the key `id` is not trusted.
    ///
    /// # Errors
    /// The key has no such date, or the reason is not one readable line.
    pub fn explain_end(&mut self, id: &KeyId, reason: &str) -> Result<(), InvalidValue> {
        check_note("reason", reason)?;
        match self.entry_mut(id).filter(|entry| entry.not_after.or(entry.revoked).is_some()) {
            Some(entry) => {
                entry.reason = Some(reason.to_owned());
                Ok(())
            }
            None => {
                Err(InvalidValue::new("a reason is for the end of a key", "give the date with --not-after"))
            }
        }
    }

    /// Lets these packages stay valid after the end of the key `id`. The caller has made sure that they were installed
    /// before. Returns how many are new.
    ///
    /// # Errors
    /// There are too many.
    pub fn keep(&mut self, id: &KeyId, packages: &[Digest]) -> Result<usize, InvalidValue> {
        let Some(entry) = self.entry_mut(id) else { return Ok(0) };
        let before = entry.kept.len();
        for digest in packages {
            if !entry.kept.contains(digest) {
                entry.kept.push(*digest);
            }
        }
        if entry.kept.len() > MAX_KEPT {
            return Err(too_many_kept(entry.kept.len()));
        }
        Ok(entry.kept.len() - before)
    }
}

fn too_many_kept(found: usize) -> InvalidValue {
    let message = format!("the key would keep {found} packages, more than {MAX_KEPT}");
    InvalidValue::new(
        message,
        "remove connectors that are no longer needed, or have them signed by another key",
    )
}

/// Reads one `[[keys]]`; `before` are those above it.
fn entry(table: &DocumentTable<'_>, before: &[KeyEntry]) -> Option<KeyEntry> {
    table.reject_unknown_keys(&[
        "key",
        "scopes",
        "comment",
        "added",
        "not_after",
        "revoked",
        "reason",
        "successor_of",
        "kept",
    ]);
    let text = table.required_text("key", "key = \"ed25519:...\"");
    let key = text.and_then(|text| {
        let key = text.parse(|text| PublicKey::parse(text))?;
        if before.iter().any(|entry| entry.key == key) {
            text.refuse(InvalidValue::new(
                "this key stands above already",
                "put its scopes there and remove this one",
            ));
        }
        Some(key)
    });
    let texts = table.texts("scopes");
    if table.has("revoked") {
        // It may have been revoked before it was ever trusted.
    } else if !table.has("scopes") {
        table.missing("scopes", "scopes = [\"github://acme/*\"]");
    } else if texts.is_empty() {
        table
            .location()
            .refuse(InvalidValue::new("the key is trusted for nothing", "name its scopes, or remove it"));
    }
    if let Some(beyond) = texts.get(MAX_SCOPES) {
        let message = format!("the key has {} scopes, more than {MAX_SCOPES}", texts.len());
        beyond.refuse(InvalidValue::new(message, "use an owner's scope, like github://acme/*"));
    }
    let mut scopes = Vec::new();
    for text in texts.iter().take(MAX_SCOPES) {
        let Some(scope) = text.parse(|text| SigningScope::parse(text)) else { continue };
        if scopes.contains(&scope) {
            text.refuse(InvalidValue::new("this scope stands here twice", "remove one of the two"));
        }
        scopes.push(scope);
    }
    let note = |key| {
        let text = table.text(key)?;
        text.parse(|text| check_note(key, text).map(|()| (*text).to_owned()))
    };
    let (comment, reason) = (note("comment"), note("reason"));
    if table.has("reason") && !table.has("revoked") && !table.has("not_after") {
        let message = "the key has a reason for its end and no end";
        table.location().refuse(InvalidValue::new(
            message,
            "write since when it is revoked, like revoked = 2026-12-31T00:00:00Z",
        ));
    }
    let moment = |key| table.moment(key).map(|moment| moment.value);
    let (added, not_after, revoked) = (moment("added"), moment("not_after"), moment("revoked"));
    let successor_of = table.text("successor_of").and_then(|text| {
        let old = text.parse(|text| {
            let wrong = || InvalidValue::new("this is not a key's id", "write its 64 digits");
            KeyId::parse(text).ok_or_else(wrong)
        })?;
        if before.iter().any(|entry| entry.successor_of == Some(old)) {
            let message = "this key has a successor above already";
            text.refuse(InvalidValue::new(message, "keep one of the two"));
        }
        // The last key of a circle finds itself among those before it.
        let of =
            |id: &KeyId| before.iter().find(|entry| entry.id == *id).and_then(|entry| entry.successor_of);
        let mut chain = std::iter::successors(Some(old), of).take(before.len() + 1);
        let is_circle = key.as_ref().is_some_and(|key| chain.any(|id| id == key.id()));
        if is_circle {
            let message = "the key would succeed itself, directly or in a circle";
            text.refuse(InvalidValue::new(message, "remove this line from the key that was first"));
        }
        (!is_circle).then_some(old)
    });
    let kept_texts = table.texts("kept");
    if let Some(beyond) = kept_texts.get(MAX_KEPT) {
        beyond.refuse(too_many_kept(kept_texts.len()));
    }
    let kept = kept_texts.iter().take(MAX_KEPT).filter_map(|text| {
        text.parse(|text| {
            let wrong =
                || InvalidValue::new("this is not a package's hash", "write sha256: and its 64 digits");
            Digest::parse(text).ok_or_else(wrong)
        })
    });
    let kept = kept.collect();
    let key = key?;
    Some(KeyEntry {
        id: key.id(),
        key,
        scopes,
        comment,
        added,
        not_after,
        revoked,
        reason,
        kept,
        successor_of,
    })
}

/// Checks a note for people, which is called `what`.
pub(super) fn check_note(what: &str, text: &str) -> Result<(), InvalidValue> {
    if sanitize_line(text, MAX_NOTE) == text {
        return Ok(());
    }
    let fix = format!("write at most {MAX_NOTE} characters without control characters");
    Err(InvalidValue::new(format!("the {what} is not one line of readable text"), fix))
}

/// As precise as the document.
pub(super) fn whole_seconds(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

#[derive(Serialize)]
struct WireKeyEntry {
    key: String,
    scopes: Vec<String>,
    comment: Option<String>,
    added: Option<toml::value::Datetime>,
    not_after: Option<toml::value::Datetime>,
    revoked: Option<toml::value::Datetime>,
    reason: Option<String>,
    successor_of: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept: Vec<String>,
}
