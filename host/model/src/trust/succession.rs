//! The succession of keys: a statement that one key is replaced by another, which both keys sign.
//!
//! The old key's signature says that its owner wants the new one. The new key's signature shows that the owner has it:
//! otherwise an owner could name another owner's key, and releases of that owner would pass for its own.

use cofferdam_core::document::InvalidValue;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::envelope::{Envelope, KeySubject, STATEMENT_TYPE};
use super::key::{KeyId, PublicKey, SecretKey};
use super::keyring::{KeyEntry, KeyStatus, Keyring, whole_seconds};
use super::scope::SigningScope;

/// The predicate's type of a succession: a name, and nothing is ever fetched from it.
const SUCCESSION_PREDICATE_TYPE: &str = "https://cofferdam.dev/key-succession/v1";

/// A verified statement that a key is succeeded by another. Only [`KeySuccession::verify`] creates one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySuccession {
    old: PublicKey,
    new: PublicKey,
    signed_at: Timestamp,
    valid_until: Timestamp,
}

/// The end of a key that was succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEnd {
    /// It is revoked at once.
    Revoked,
    /// It expires at this moment, unless it expires earlier already.
    At(Timestamp),
}

impl KeySuccession {
    /// Signs, with both keys, that `new` succeeds `old`. The statement is not accepted after `valid_until`.
    ///
    /// # Errors
    /// Both are the same key, or `valid_until` is not after `signed_at`.
    pub fn sign(
        old: &SecretKey,
        new: &SecretKey,
        signed_at: Timestamp,
        valid_until: Timestamp,
    ) -> Result<Envelope, InvalidValue> {
        let (old_key, new_key) = (old.public(), new.public());
        if old_key == new_key {
            return Err(itself());
        }
        if valid_until <= signed_at {
            return Err(InvalidValue::new("the statement would never be valid", "give a date ahead"));
        }
        let wire = WireSuccession {
            kind: STATEMENT_TYPE.into(),
            subject: vec![KeySubject::from(&new_key)],
            predicate_type: SUCCESSION_PREDICATE_TYPE.into(),
            predicate: WirePredicate {
                old: old_key.to_string(),
                new: new_key.to_string(),
                signed_at: whole_seconds(signed_at).to_string(),
                valid_until: whole_seconds(valid_until).to_string(),
            },
        };
        // Strings and lists alone: the serialization cannot fail.
        let payload = serde_json::to_vec(&wire).unwrap_or_default();
        Ok(Envelope::sign_payload(payload, &[old, new]))
    }

    /// Reads a statement and checks both of its signatures, and that it is still valid at `now`. Whether the old key
    /// may be succeeded is for [`Keyring::check_succession`].
    ///
    /// # Errors
    /// It is no such statement, a signature is missing or does not hold, or it is stale.
    pub fn verify(bytes: &[u8], now: Timestamp) -> Result<Self, InvalidValue> {
        const AGAIN: &str =
            "get the file again from the owner of the key, who makes it with `cofferdam key rotate`";
        let refused = |why: String| InvalidValue::new(format!("this is not a succession: {why}"), AGAIN);
        let envelope = Envelope::parse(bytes).map_err(|error| refused(error.to_string()))?;
        let wire: WireSuccession =
            serde_json::from_slice(envelope.payload()).map_err(|error| refused(error.to_string()))?;
        if wire.kind != STATEMENT_TYPE || wire.predicate_type != SUCCESSION_PREDICATE_TYPE {
            return Err(refused(format!("its predicateType is not {SUCCESSION_PREDICATE_TYPE}")));
        }
        let key = |text: &str| PublicKey::parse(text).map_err(|error| refused(error.message().to_owned()));
        let (old, new) = (key(&wire.predicate.old)?, key(&wire.predicate.new)?);
        if wire.subject != [KeySubject::from(&new)] {
            return Err(refused("its subject is not the new key".into()));
        }
        if old == new {
            return Err(itself());
        }
        let moment =
            |text: &str| text.parse::<Timestamp>().map_err(|_| refused("it has no valid dates".into()));
        let (signed_at, valid_until) =
            (moment(&wire.predicate.signed_at)?, moment(&wire.predicate.valid_until)?);
        for (key, which) in [(&old, "old"), (&new, "new")] {
            if !envelope.signatures().any(|signature| envelope.signed_by(key, signature)) {
                return Err(refused(format!("the {which} key ({}) did not sign it", key.id().short())));
            }
        }
        if now > valid_until {
            let message = format!("this succession is stale: it was valid until {valid_until}");
            return Err(InvalidValue::new(message, "ask the owner of the key for a new one"));
        }
        Ok(Self { old, new, signed_at, valid_until })
    }

    /// The key that is succeeded.
    #[must_use]
    pub fn old(&self) -> &PublicKey {
        &self.old
    }

    /// The key that succeeds it.
    #[must_use]
    pub fn new_key(&self) -> &PublicKey {
        &self.new
    }

    /// Returns the time of the signatures, as the signer claims it.
    #[must_use]
    pub fn signed_at(&self) -> Timestamp {
        self.signed_at
    }

    /// Returns the last moment at which it is accepted.
    #[must_use]
    pub fn valid_until(&self) -> Timestamp {
        self.valid_until
    }
}

fn itself() -> InvalidValue {
    InvalidValue::new("a key cannot succeed itself", "make a new key with `cofferdam key generate`")
}

impl Keyring {
    /// Returns true if `new` succeeded `old`, directly or through other keys. No key is its own successor.
    #[must_use]
    pub fn is_successor(&self, old: &KeyId, new: &KeyId) -> bool {
        old != new && self.predecessors(new).any(|id| id == *old)
    }

    /// Returns the first key of the succession that `id` belongs to: the same for all keys of one owner.
    #[must_use]
    pub fn first_of_succession(&self, id: &KeyId) -> KeyId {
        self.predecessors(id).last().unwrap_or(*id)
    }

    /// The keys that `id` succeeded, the last one first. The bound ends a circle, which no keyring should have.
    fn predecessors(&self, id: &KeyId) -> impl Iterator<Item = KeyId> {
        let before = |id: &KeyId| self.entry(id).and_then(KeyEntry::successor_of).copied();
        std::iter::successors(before(id), move |id| before(id)).take(self.entries().len())
    }

    /// Returns the key that succeeded `id`.
    #[must_use]
    pub fn successor(&self, id: &KeyId) -> Option<&KeyEntry> {
        self.entries().iter().find(|entry| entry.successor_of() == Some(id))
    }

    /// Checks that `succession` may take place here at `now`, and returns the old key.
    ///
    /// # Errors
    /// The old key is unknown, revoked, expired or succeeded already; the new key is revoked, succeeded another key, is
    /// one that the old key succeeded, or is trusted for more than the old key.
    pub fn check_succession(
        &self,
        succession: &KeySuccession,
        now: Timestamp,
    ) -> Result<&KeyEntry, InvalidValue> {
        let (old, new) = (succession.old.id(), succession.new.id());
        let refused = |message: String, fix: &str| Err(InvalidValue::new(message, fix));
        let Some(entry) = self.entry(&old) else {
            let message =
                format!("the key {} is not in the keyring, so it has nothing to pass on", old.short());
            return refused(message, "trust the new key with `cofferdam trust add`, if you trust its owner");
        };
        if let Some(other) = self.successor(&old) {
            let message = match *other.id() == new {
                true => format!("the key {} is succeeded by {} already", old.short(), new.short()),
                false => format!(
                    "the key {} is succeeded by another key already, {}",
                    old.short(),
                    other.id().short()
                ),
            };
            let fix =
                "a key has one successor; if two statements exist, ask the owner of the key which is right";
            return refused(message, fix);
        }
        // Before the status of the old key, because in a circle it has usually ended.
        if self.is_successor(&new, &old) {
            let message = format!("the key {} was itself succeeded by {}", new.short(), old.short());
            return refused(
                message,
                "succession does not go in a circle; ask the owner of the keys for a new key",
            );
        }
        match entry.status(now) {
            KeyStatus::Trusted => {}
            KeyStatus::Revoked => {
                let message = format!("the key {} was revoked, so it cannot name another", old.short());
                return refused(
                    message,
                    "get the new key from its owner by another way, and use `cofferdam trust add`",
                );
            }
            KeyStatus::Expired => {
                let message = format!("the last day of the key {} has passed", old.short());
                return refused(
                    message,
                    "get the new key from its owner by another way, and use `cofferdam trust add`",
                );
            }
        }
        let Some(known) = self.entry(&new) else { return Ok(entry) };
        if known.successor_of().is_some() {
            let fix = "a key succeeds one other key; ask the owner of the keys for a new key";
            return refused(format!("the new key {} succeeded another key", new.short()), fix);
        }
        let fix = "if you trust it all the same, remove it first with `cofferdam trust remove`";
        if known.revoked().is_some() {
            return refused(format!("the new key {} was revoked here", new.short()), fix);
        }
        let within = |scope: &SigningScope| entry.scopes().iter().any(|own| own.contains(scope));
        if let Some(more) = known.scopes().iter().find(|scope| !within(scope)) {
            let message =
                format!("the new key {} is trusted for {more} here, and the old one is not", new.short());
            return refused(message, fix);
        }
        Ok(entry)
    }

    /// Trusts the new key for exactly the scopes of the old one, and ends the old one. The new key is trusted until
    /// `not_after`, or else as long as the old one was.
    ///
    /// # Errors
    /// As [`check_succession`](Self::check_succession); a full keyring; a date that has passed.
    pub fn succeed(
        &mut self,
        succession: &KeySuccession,
        end: KeyEnd,
        not_after: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), InvalidValue> {
        let old = self.check_succession(succession, now)?;
        let new = &succession.new;
        let known = self.entry(&new.id()).and_then(KeyEntry::not_after);
        // Without the operator's word, no key is trusted for longer than before.
        let earliest = [old.not_after(), known].into_iter().flatten().min();
        let (old, scopes, last) = (*old.id(), old.scopes().to_vec(), not_after.or(earliest));
        let ahead = |last: Option<Timestamp>| last.is_none_or(|last| last >= now);
        if !ahead(last) || matches!(end, KeyEnd::At(at) if !ahead(Some(at))) {
            return Err(InvalidValue::new("the date has passed", "give a date ahead"));
        }
        self.trust(new, &scopes, now, last, None)?;
        let reason = format!("succeeded by the key {}", new.id().short());
        if let Some(entry) = self.entry_mut(&new.id()) {
            entry.set_successor_of(old);
        }
        match end {
            KeyEnd::Revoked => {
                let kept = self.entry(&old).map(|entry| entry.kept().to_vec()).unwrap_or_default();
                self.revoke(&succession.old, now, Some(&reason))?;
                // A rotation is no sign of a theft: the operator's earlier choice stays.
                self.keep(&old, &kept)?;
            }
            KeyEnd::At(at) => {
                if let Some(entry) = self.entry_mut(&old) {
                    entry.end(at, &reason);
                }
            }
        }
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct WireSuccession {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<KeySubject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: WirePredicate,
}

#[derive(Serialize, Deserialize)]
struct WirePredicate {
    old: String,
    new: String,
    #[serde(rename = "signedAt")]
    signed_at: String,
    #[serde(rename = "validUntil")]
    valid_until: String,
}
