//! The key set of a publisher: a document with its keys and what they sign, to be imported into a keyring at once.
//!
//! A key set proves nothing about its publisher. A person confirms its fingerprint, and the operator's scopes confine
//! it. Its signatures show that the publisher has the keys.

use cofferdam_core::digest::Digest;
use cofferdam_core::document::{DocumentTable, InvalidValue, quoted};
use cofferdam_core::failure::sanitize_line;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::envelope::{Envelope, KeySubject, STATEMENT_TYPE};
use super::key::{KeyId, PublicKey, SecretKey};
use super::keyring::{KeyStatus, Keyring, TrustChange, check_note, whole_seconds};
use super::scope::SigningScope;

/// The predicate's type of a key set: a name, and nothing is ever fetched from it.
const KEY_SET_PREDICATE_TYPE: &str = "https://cofferdam.dev/key-set/v1";

/// Longest document, in bytes, with the envelope around it if it is signed.
pub const KEY_SET_BYTES: usize = 64 * 1024;

/// Most keys of one set.
const MAX_KEYS: usize = 64;

/// Most scopes of one key.
const MAX_SCOPES: usize = 64;

/// Most publishers whose key sets one keyring remembers.
const MAX_IMPORTS: usize = 256;

/// Longest source of an import, in characters.
const SOURCE_CHARS: usize = 500;

/// Most keys of one import: those of the set, and those that went missing from earlier sets.
const MAX_IMPORTED: usize = 256;

/// Clocks differ. A set from further in the future would make every later one look older.
const MAX_AHEAD: SignedDuration = SignedDuration::from_hours(24);

/// A key set, with the fingerprint of the document that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySet {
    publisher: SigningScope,
    issued: Timestamp,
    valid_until: Timestamp,
    keys: Vec<PublishedKey>,
    fingerprint: Digest,
    envelope: Option<Envelope>,
}

/// One key of a set, and what its publisher suggests to trust it for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedKey {
    key: PublicKey,
    scopes: Vec<SigningScope>,
    not_after: Option<Timestamp>,
    comment: Option<String>,
}

/// The effect of an import on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySetChange {
    /// The key.
    pub key: PublicKey,
    /// The kind of the change.
    pub effect: KeySetEffect,
    /// The scopes that it is trusted for after the import, and was not before.
    pub gains: Vec<SigningScope>,
    /// The suggested scopes that are not taken, because they are outside of the allowed ones.
    pub outside: Vec<SigningScope>,
    /// The last moment at which it is trusted after the import.
    pub not_after: Option<Timestamp>,
    /// The reason, if the key is refused.
    pub reason: Option<String>,
}

/// The kind of the effect of an import on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySetEffect {
    /// The key is new.
    Added,
    /// It was trusted already, and is now trusted for more, or ends earlier.
    Changed,
    /// Everything was so already.
    Unchanged,
    /// The keyring does not take it.
    Refused,
    /// It came with an earlier set of the publisher, and this set does not have it. It stays as it is.
    Missing,
}

impl KeySetEffect {
    /// Returns the stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Missing => "missing",
        }
    }
}

impl PublishedKey {
    /// A key of a set.
    ///
    /// # Errors
    /// No scope, or too many; a comment that is not one readable line.
    pub fn new(
        key: PublicKey,
        scopes: Vec<SigningScope>,
        not_after: Option<Timestamp>,
        comment: Option<String>,
    ) -> Result<Self, InvalidValue> {
        if scopes.is_empty() || scopes.len() > MAX_SCOPES {
            let message = format!("the key {} does not have 1 to {MAX_SCOPES} scopes", key.id().short());
            return Err(InvalidValue::new(message, "name its scopes, like github://acme/*"));
        }
        comment.as_deref().map(|comment| check_note("comment", comment)).transpose()?;
        Ok(Self { key, scopes, not_after, comment })
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &PublicKey {
        &self.key
    }
}

impl KeySet {
    /// Writes a key set as JSON, signed with `signers` if there are any: they should be keys of the set.
    ///
    /// # Errors
    /// The publisher is not all of one owner; no key, too many, or one of them twice; `valid_until` is not after
    /// `issued`.
    pub fn write(
        publisher: &SigningScope,
        (issued, valid_until): (Timestamp, Timestamp),
        keys: &[PublishedKey],
        signers: &[&SecretKey],
    ) -> Result<String, InvalidValue> {
        let document = WireKeySet {
            publisher: publisher.to_string(),
            issued: whole_seconds(issued).to_string(),
            valid_until: whole_seconds(valid_until).to_string(),
            keys: keys.iter().map(WirePublishedKey::from).collect(),
        };
        document.check()?;
        // Strings and lists alone: the serialization cannot fail.
        if signers.is_empty() {
            return Ok(serde_json::to_string_pretty(&document).unwrap_or_default() + "\n");
        }
        let subject = keys.iter().map(|key| KeySubject::from(&key.key));
        let statement = WireStatement {
            kind: STATEMENT_TYPE.into(),
            subject: subject.collect(),
            predicate_type: KEY_SET_PREDICATE_TYPE.into(),
            predicate: document,
        };
        let payload = serde_json::to_vec(&statement).unwrap_or_default();
        Ok(Envelope::sign_payload(payload, signers).to_json())
    }

    /// Reads a key set: the JSON document, or a DSSE envelope with an in-toto statement about it.
    ///
    /// # Errors
    /// Anything else, and an envelope that none of the set's own keys signed.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidValue> {
        let refused = |why: String| {
            InvalidValue::new(
                format!("this is not a key set: {}", sanitize_line(&why, 300)),
                "use a file that `cofferdam key export` wrote",
            )
        };
        if bytes.len() > KEY_SET_BYTES {
            return Err(refused("it has more than 64 KiB".into()));
        }
        let json = |error: serde_json::Error| refused(error.to_string());
        let is_envelope = serde_json::from_slice::<PayloadOnly>(bytes).is_ok_and(|it| it.payload.is_some());
        let (document, envelope) = match is_envelope {
            false => (serde_json::from_slice::<WireKeySet>(bytes).map_err(json)?, None),
            true => {
                let envelope = Envelope::parse(bytes).map_err(|error| refused(error.to_string()))?;
                let wire: WireStatement = serde_json::from_slice(envelope.payload()).map_err(json)?;
                if wire.kind != STATEMENT_TYPE || wire.predicate_type != KEY_SET_PREDICATE_TYPE {
                    return Err(refused(format!("its predicateType is not {KEY_SET_PREDICATE_TYPE}")));
                }
                (wire.predicate, Some(envelope))
            }
        };
        let (publisher, issued, valid_until) = document.check()?;
        let mut keys: Vec<PublishedKey> = Vec::new();
        for wire in document.keys {
            let key = wire.parse()?;
            if keys.iter().any(|other| other.key == key.key) {
                return Err(refused(format!("it has the key {} twice", key.key.id().short())));
            }
            keys.push(key);
        }
        let fingerprint = Digest::sha256(bytes);
        let set = Self { publisher, issued, valid_until, keys, fingerprint, envelope };
        if set.envelope.is_some() && !set.keys.iter().any(|key| set.is_signed_by(&key.key)) {
            return Err(refused("none of its keys signed it".into()));
        }
        Ok(set)
    }

    /// The owner whose keys they are.
    #[must_use]
    pub fn publisher(&self) -> &SigningScope {
        &self.publisher
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &[PublishedKey] {
        &self.keys
    }

    /// Returns the time at which it was written, as its publisher claims it.
    #[must_use]
    pub fn issued(&self) -> Timestamp {
        self.issued
    }

    /// Returns the last moment at which it can be imported.
    #[must_use]
    pub fn valid_until(&self) -> Timestamp {
        self.valid_until
    }

    /// The SHA-256 of the document, as `sha256sum` prints it.
    #[must_use]
    pub fn fingerprint(&self) -> &Digest {
        &self.fingerprint
    }

    /// Returns the keys that signed it: those of the set, and those that `keyring` trusts for the publisher at `now`.
    #[must_use]
    pub fn signers(&self, keyring: &Keyring, now: Timestamp) -> Vec<KeyId> {
        let trusted = keyring.entries().iter().filter(|entry| {
            entry.status(now) == KeyStatus::Trusted && entry.scopes().contains(&self.publisher)
        });
        let own = self.keys.iter().map(|key| &key.key);
        let mut signers = Vec::new();
        for key in own.chain(trusted.map(|entry| entry.key())) {
            if self.is_signed_by(key) && !signers.contains(&key.id()) {
                signers.push(key.id());
            }
        }
        signers
    }

    fn is_signed_by(&self, key: &PublicKey) -> bool {
        let Some(envelope) = &self.envelope else { return false };
        envelope.signatures().any(|signature| envelope.signed_by(key, signature))
    }
}

/// Returns the part of `suggested` that is within `allowed`, and what is not.
fn confine(suggested: &[SigningScope], allowed: &[SigningScope]) -> (Vec<SigningScope>, Vec<SigningScope>) {
    let (mut taken, mut outside) = (Vec::new(), Vec::new());
    for scope in suggested {
        if allowed.iter().any(|allowed| allowed.contains(scope)) {
            taken.push(scope.clone());
            continue;
        }
        // All of an owner was suggested, and some of its connectors are allowed.
        let before = taken.len();
        taken.extend(allowed.iter().filter(|allowed| scope.contains(allowed)).cloned());
        if taken.len() == before {
            outside.push(scope.clone());
        }
    }
    taken.sort();
    taken.dedup();
    (taken, outside)
}

impl Keyring {
    /// Trusts the keys of `set` within the scopes `allowed`, or within its publisher's owner if there are none, and
    /// remembers the import. A key that is trusted already is trusted for more, and never for longer. Keys of an
    /// earlier set that this one does not have stay as they are. Returns the effect on each key.
    ///
    /// # Errors
    /// The set is stale, from the future, or older than the one that was imported last; the keyring is full.
    pub fn import(
        &mut self,
        set: &KeySet,
        allowed: &[SigningScope],
        source: &str,
        now: Timestamp,
    ) -> Result<Vec<KeySetChange>, InvalidValue> {
        if now > set.valid_until {
            let message = format!("this key set is stale: it was valid until {}", set.valid_until);
            return Err(InvalidValue::new(message, "get the present one from its publisher"));
        }
        if set.issued.duration_since(now) > MAX_AHEAD {
            let message = format!("this key set is from the future: it was issued at {}", set.issued);
            return Err(InvalidValue::new(
                message,
                "check this machine's clock, or ask its publisher for another",
            ));
        }
        let earlier = self.imports.get(&set.publisher).cloned();
        if let Some(earlier) = earlier.as_ref().filter(|earlier| set.issued < earlier.issued) {
            let message = format!(
                "this key set is older ({}) than the one of {} that was imported last ({})",
                set.issued, set.publisher, earlier.issued
            );
            return Err(InvalidValue::new(message, "get the present one from its publisher"));
        }
        let owner = [set.publisher.clone()];
        let allowed = if allowed.is_empty() { &owner } else { allowed };
        let mut changes = Vec::new();
        for published in &set.keys {
            changes.push(self.import_key(published, allowed, now)?);
        }
        let is_listed = |id: &KeyId| set.keys.iter().any(|published| published.key.id() == *id);
        let gone = earlier.iter().flat_map(|earlier| &earlier.keys).filter(|id| !is_listed(id));
        let gone =
            gone.filter_map(|id| self.entry(id)).filter(|entry| entry.status(now) == KeyStatus::Trusted);
        changes.extend(gone.map(|entry| KeySetChange {
            key: entry.key().clone(),
            effect: KeySetEffect::Missing,
            gains: Vec::new(),
            outside: Vec::new(),
            not_after: entry.not_after(),
            reason: None,
        }));
        let taken = changes.iter().filter(|change| change.effect != KeySetEffect::Refused);
        // A key that is missing now is missing again next time, until the operator ends it.
        let keys: Vec<_> = taken.map(|change| change.key.id()).take(MAX_IMPORTED).collect();
        if !keys.is_empty() {
            self.imports.remember(KeySetImport {
                publisher: set.publisher.clone(),
                source: sanitize_line(source, SOURCE_CHARS),
                fingerprint: set.fingerprint,
                issued: set.issued,
                imported: whole_seconds(now),
                keys,
            })?;
        }
        Ok(changes)
    }

    fn import_key(
        &mut self,
        published: &PublishedKey,
        allowed: &[SigningScope],
        now: Timestamp,
    ) -> Result<KeySetChange, InvalidValue> {
        let (key, id) = (&published.key, published.key.id());
        let (scopes, outside) = confine(&published.scopes, allowed);
        let before = self.entry(&id).cloned();
        let refused = |reason: String| KeySetChange {
            key: key.clone(),
            effect: KeySetEffect::Refused,
            gains: Vec::new(),
            outside: outside.clone(),
            not_after: published.not_after,
            reason: Some(reason),
        };
        if scopes.is_empty() {
            let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
            return Ok(refused(format!("nothing that it would sign is within {}", allowed.join(", "))));
        }
        let (not_after, comment) = match &before {
            None => (published.not_after, published.comment.as_deref()),
            Some(_) => (None, None),
        };
        let change = match self.trust(key, &scopes, now, not_after, comment) {
            Ok(change) => change,
            // The other keys of the set are not at fault; a full keyring refuses all of them.
            Err(error) => return Ok(refused(error.message().to_owned())),
        };
        let mut shortened = false;
        if let Some(entry) = self.entry_mut(&id) {
            let last = entry.not_after();
            entry.shorten(published.not_after);
            shortened = before.is_some() && entry.not_after() != last;
        }
        let had = before.as_ref().map(|entry| entry.scopes()).unwrap_or_default();
        Ok(KeySetChange {
            key: key.clone(),
            effect: match change {
                TrustChange::Added => KeySetEffect::Added,
                TrustChange::Extended => KeySetEffect::Changed,
                TrustChange::Unchanged if shortened => KeySetEffect::Changed,
                TrustChange::Unchanged => KeySetEffect::Unchanged,
            },
            gains: scopes.into_iter().filter(|scope| !had.contains(scope)).collect(),
            outside,
            not_after: self.entry(&id).and_then(|entry| entry.not_after()),
            reason: None,
        })
    }

    /// The imported key sets, by publisher.
    pub fn imports(&self) -> impl Iterator<Item = &KeySetImport> {
        self.imports.0.iter()
    }
}

/// The key set of a publisher that was imported last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySetImport {
    publisher: SigningScope,
    source: String,
    fingerprint: Digest,
    issued: Timestamp,
    imported: Timestamp,
    keys: Vec<KeyId>,
}

impl KeySetImport {
    /// The owner whose keys they are.
    #[must_use]
    pub fn publisher(&self) -> &SigningScope {
        &self.publisher
    }

    /// The file or URL.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The SHA-256 of the document.
    #[must_use]
    pub fn fingerprint(&self) -> &Digest {
        &self.fingerprint
    }

    /// Returns the time at which the set was written, as its publisher claims it. Older sets are refused.
    #[must_use]
    pub fn issued(&self) -> Timestamp {
        self.issued
    }
}

/// The imports of a keyring, one for each publisher.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeySetImports(Vec<KeySetImport>);

impl KeySetImports {
    fn get(&self, publisher: &SigningScope) -> Option<&KeySetImport> {
        self.0.iter().find(|import| import.publisher == *publisher)
    }

    fn remember(&mut self, import: KeySetImport) -> Result<(), InvalidValue> {
        self.0.retain(|other| other.publisher != import.publisher);
        if self.0.len() >= MAX_IMPORTS {
            return Err(full(self.0.len() + 1));
        }
        self.0.push(import);
        Ok(())
    }

    /// Reads every `[[import]]`.
    pub(super) fn read(tables: &[DocumentTable<'_>]) -> Self {
        let mut imports = Self::default();
        if let Some(beyond) = tables.get(MAX_IMPORTS) {
            beyond.location().refuse(full(tables.len()));
        }
        for table in tables.iter().take(MAX_IMPORTS) {
            table.reject_unknown_keys(&["publisher", "source", "fingerprint", "issued", "imported", "keys"]);
            let publisher =
                table.required_text("publisher", "publisher = \"github://acme/*\"").and_then(|text| {
                    let publisher = text.parse(|text| owner(text))?;
                    if imports.get(&publisher).is_some() {
                        let message = "this publisher has an import above already";
                        text.refuse(InvalidValue::new(message, "keep the later one"));
                    }
                    Some(publisher)
                });
            let source = table.required_text("source", "source = \"keys.json\"").and_then(|text| {
                text.parse(|text| match sanitize_line(text, SOURCE_CHARS) == **text {
                    true => Ok((*text).to_owned()),
                    false => {
                        Err(InvalidValue::new("the source is not one readable line", "write a file or a URL"))
                    }
                })
            });
            let fingerprint = table.required_text("fingerprint", "fingerprint = \"sha256:...\"");
            let fingerprint = fingerprint.and_then(|text| {
                text.parse(|text| {
                    let wrong =
                        || InvalidValue::new("this is not a fingerprint", "write sha256: and its 64 digits");
                    Digest::parse(text).ok_or_else(wrong)
                })
            });
            for key in ["issued", "imported"].into_iter().filter(|key| !table.has(key)) {
                table.missing(key, &format!("{key} = 2027-01-31T00:00:00Z"));
            }
            let moment = |key| table.moment(key).map(|moment| moment.value);
            let (issued, imported) = (moment("issued"), moment("imported"));
            let ids = table.texts("keys");
            if let Some(beyond) = ids.get(MAX_IMPORTED) {
                let message = format!("the import has {} keys, more than {MAX_IMPORTED}", ids.len());
                beyond.refuse(InvalidValue::new(message, "remove those that are revoked"));
            }
            let keys = ids.iter().take(MAX_IMPORTED).filter_map(|text| {
                text.parse(|text| {
                    let wrong = || InvalidValue::new("this is not a key's id", "write its 64 digits");
                    KeyId::parse(text).ok_or_else(wrong)
                })
            });
            let keys = keys.collect();
            if let (Some(publisher), Some(source), Some(fingerprint), Some(issued), Some(imported)) =
                (publisher, source, fingerprint, issued, imported)
            {
                imports.0.push(KeySetImport { publisher, source, fingerprint, issued, imported, keys });
            }
        }
        imports
    }

    /// The tables, as text.
    pub(super) fn to_text(&self) -> String {
        let date = |moment: Timestamp| moment.to_string().parse::<toml::value::Datetime>().ok();
        let table = |import: &KeySetImport| {
            let wire = WireImport {
                publisher: import.publisher.to_string(),
                source: import.source.clone(),
                fingerprint: format!("sha256:{}", import.fingerprint),
                issued: date(import.issued),
                imported: date(import.imported),
                keys: import.keys.iter().map(ToString::to_string).collect(),
            };
            // Strings, lists of strings and dates: the serialization cannot fail.
            format!("\n[[import]]\n{}", toml::to_string(&wire).unwrap_or_default())
        };
        self.0.iter().map(table).collect()
    }
}

fn full(found: usize) -> InvalidValue {
    let message = format!("the keyring would have {found} imports, more than {MAX_IMPORTS}");
    InvalidValue::new(message, "remove the [[import]] tables that are no longer needed")
}

/// Reads the scope of a publisher.
fn owner(text: &str) -> Result<SigningScope, InvalidValue> {
    SigningScope::parse(text).ok().filter(SigningScope::is_owner).ok_or_else(|| {
        InvalidValue::new(
            format!("{} is not all of one owner", quoted(text)),
            "write it like github://acme/*",
        )
    })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireKeySet {
    publisher: String,
    issued: String,
    #[serde(rename = "validUntil")]
    valid_until: String,
    keys: Vec<WirePublishedKey>,
}

impl WireKeySet {
    /// Checks everything except the single keys.
    fn check(&self) -> Result<(SigningScope, Timestamp, Timestamp), InvalidValue> {
        let publisher = owner(&self.publisher)?;
        let moment = |name: &str, text: &str| {
            text.parse::<Timestamp>().map_err(|_| {
                let message = format!("its {name} ({}) is not a date and time with an offset", quoted(text));
                InvalidValue::new(message, "write it like 2027-01-31T00:00:00Z")
            })
        };
        let (issued, until) = (moment("issued", &self.issued)?, moment("validUntil", &self.valid_until)?);
        if until <= issued {
            return Err(InvalidValue::new("the key set would never be valid", "give a date ahead"));
        }
        if self.keys.is_empty() || self.keys.len() > MAX_KEYS {
            let message = format!("the key set does not have 1 to {MAX_KEYS} keys");
            return Err(InvalidValue::new(message, "name the keys of its publisher"));
        }
        Ok((publisher, issued, until))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePublishedKey {
    key: String,
    scopes: Vec<String>,
    #[serde(rename = "notAfter", default, skip_serializing_if = "Option::is_none")]
    not_after: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
}

impl From<&PublishedKey> for WirePublishedKey {
    fn from(key: &PublishedKey) -> Self {
        Self {
            key: key.key.to_string(),
            scopes: key.scopes.iter().map(ToString::to_string).collect(),
            not_after: key.not_after.map(|moment| whole_seconds(moment).to_string()),
            comment: key.comment.clone(),
        }
    }
}

impl WirePublishedKey {
    fn parse(self) -> Result<PublishedKey, InvalidValue> {
        let scopes = self.scopes.iter().map(|text| SigningScope::parse(text)).collect::<Result<_, _>>()?;
        let not_after = self.not_after.map(|text| {
            text.parse::<Timestamp>().map_err(|_| {
                let message =
                    format!("its notAfter ({}) is not a date and time with an offset", quoted(&text));
                InvalidValue::new(message, "write it like 2027-01-31T00:00:00Z")
            })
        });
        PublishedKey::new(PublicKey::parse(&self.key)?, scopes, not_after.transpose()?, self.comment)
    }
}

/// The one field that tells an envelope from a document.
#[derive(Deserialize)]
struct PayloadOnly {
    payload: Option<serde::de::IgnoredAny>,
}

#[derive(Serialize, Deserialize)]
struct WireStatement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<KeySubject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: WireKeySet,
}

#[derive(Serialize)]
struct WireImport {
    publisher: String,
    source: String,
    fingerprint: String,
    issued: Option<toml::value::Datetime>,
    imported: Option<toml::value::Datetime>,
    keys: Vec<String>,
}
