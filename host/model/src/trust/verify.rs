//! From an envelope to the proof that a trusted key vouches for a package, or to the one reason for the
//! rejection.

use std::fmt;

use cofferdam_core::digest::Digest;
use cofferdam_core::failure::{SignatureCode, sanitize_line};
use jiff::Timestamp;

use super::envelope::{Envelope, EnvelopeSignature};
use super::key::KeyId;
use super::keyring::{KeyEntry, KeyStatus, Keyring};
use super::scope::SigningScope;
use crate::manifest::ConnectorName;

/// The proof that the package `digest` is `version` of the connector `name`, or that the operator chose to
/// run it unsigned. Only this module creates one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    name: ConnectorName,
    version: semver::Version,
    digest: Digest,
    signers: Vec<KeyId>,
    not_after: Option<Timestamp>,
}

impl Verified {
    /// The connector's name.
    #[must_use]
    pub fn name(&self) -> &ConnectorName {
        &self.name
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> &semver::Version {
        &self.version
    }

    /// The hash of the package's bytes.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns true if no signer's key has expired at `now`. Once one has, the others may still suffice: verify again.
    #[must_use]
    pub fn in_date(&self, now: Timestamp) -> bool {
        self.not_after.is_none_or(|end| now <= end)
    }

    /// Returns the first key that vouches for it; none if it was allowed to run unsigned.
    #[must_use]
    pub fn signer(&self) -> Option<&KeyId> {
        self.signers.first()
    }

    /// Returns every trusted key that vouches for it, in the order of the signatures.
    #[must_use]
    pub fn signers(&self) -> &[KeyId] {
        &self.signers
    }
}

/// The reason why a package's signature was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustError {
    code: SignatureCode,
    reason: String,
    fix: String,
}

impl TrustError {
    fn new(code: SignatureCode, reason: impl AsRef<str>, fix: impl Into<String>) -> Self {
        Self { code, reason: sanitize_line(reason.as_ref(), 400), fix: fix.into() }
    }

    /// The package has no signature at all.
    pub fn unsigned(name: &ConnectorName) -> Self {
        let fix = format!(
            "If you publish {name}, sign it with `cofferdam sign`, or pass --allow-unsigned while you write it; otherwise \
             get its signature file (.dsse.json) from its publisher."
        );
        Self::new(SignatureCode::Unsigned, "the package has no signature", fix)
    }

    /// The reason as a value.
    #[must_use]
    pub fn code(&self) -> SignatureCode {
        self.code
    }

    /// The reason in words: the rest of a sentence, without a full stop.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the fix, with the command if there is one.
    #[must_use]
    pub fn fix(&self) -> &str {
        &self.fix
    }
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.reason, self.fix)
    }
}

impl std::error::Error for TrustError {}

/// Accepts the package `digest` as `version` of `name` without a signature: only for one that *has* none, and
/// by an explicit choice of the operator's that the audit log records.
pub fn allow_unsigned(name: ConnectorName, version: semver::Version, digest: Digest) -> Verified {
    Verified { name, version, digest, signers: Vec::new(), not_after: None }
}

/// Checks that keys which `keyring` trusts for `name` at `now` signed, in `envelope`, that `digest` is
/// `version` of `name`.
///
/// One valid signature suffices, or as many by different owners as the keyring's threshold for the name asks for,
/// regardless of the others in the envelope; its version must not be below the keyring's floor for the name. Without
/// one the most specific reason is reported: an invalid signature that names a known key, before a revoked key, an
/// expired key, a key for other names, an unknown key.
///
/// # Errors
/// The reason, with its fix.
pub fn verify(
    envelope: &[u8],
    keyring: &Keyring,
    name: &ConnectorName,
    version: &semver::Version,
    digest: &Digest,
    now: Timestamp,
) -> Result<Verified, TrustError> {
    let envelope = Envelope::parse(envelope).map_err(|error| {
        let reason = format!("its signature file is not a signature envelope: {error}");
        TrustError::new(SignatureCode::Malformed, reason, again(name))
    })?;
    let mut worst: Option<SignatureRejection<'_>> = None;
    let mut signers: Vec<&KeyEntry> = Vec::new();
    for signature in envelope.signatures() {
        match examine(&envelope, signature, keyring, (name, digest), now) {
            // A signature that occurs twice counts once.
            Ok(entry) if signers.iter().any(|known| known.id() == entry.id()) => {}
            Ok(entry) => signers.push(entry),
            Err(shortfall) => {
                if worst.as_ref().is_none_or(|worst| shortfall.rank > worst.rank) {
                    worst = Some(shortfall);
                }
            }
        }
    }
    let worst = worst.map(|shortfall| shortfall.explain(name));
    if signers.is_empty() {
        return Err(worst.unwrap_or_else(|| TrustError::unsigned(name)));
    }
    let verified = about(&envelope, &signers, (name, version, digest), now)?;
    check_threshold(keyring, name, &signers, worst.as_ref())?;
    check_floor(keyring, name, version).map(|()| verified)
}

/// Checks a package that has no signature, and may run without one: the keyring must ask for none.
///
/// # Errors
/// The keyring has a threshold for the name, or the version is below its floor.
pub fn check_unsigned(
    keyring: &Keyring,
    name: &ConnectorName,
    version: &semver::Version,
) -> Result<(), TrustError> {
    check_threshold(keyring, name, &[], None)?;
    check_floor(keyring, name, version)
}

/// Refuses fewer signers than the keyring's threshold for `name`. A key and its successor are one signer: otherwise the
/// owner of one of several keys would have two votes after a rotation.
fn check_threshold(
    keyring: &Keyring,
    name: &ConnectorName,
    signers: &[&KeyEntry],
    rejected: Option<&TrustError>,
) -> Result<(), TrustError> {
    let Some((scope, threshold)) = keyring.threshold(name) else { return Ok(()) };
    let found = keyring.owners(signers.iter().map(|entry| entry.id()));
    if found >= threshold.get() {
        return Ok(());
    }
    let together = if signers.len() > found { "; a key and its successor count once" } else { "" };
    let also = rejected.map(|error| format!("; another signature does not count: {}", error.reason()));
    let reason = format!(
        "{threshold} different trusted keys must sign it, and {found} did{together}{}",
        also.unwrap_or_default()
    );
    let fix = format!(
        "Trust the other keys that signed it, if they are its publisher's (`cofferdam trust add`), or add signatures to \
         its file with `cofferdam sign` and install it again. `cofferdam trust threshold '{scope}' NUMBER` asks for \
         another number; with `--remove`, one suffices."
    );
    Err(TrustError::new(SignatureCode::TooFewSignatures, reason, fix))
}

/// Returns the claim of `envelope` about the bytes with this digest, before any of them is parsed. If a key
/// of `keyring` made one of its signatures, the claim must be true of these bytes; otherwise nothing is
/// decided yet.
///
/// # Errors
/// The name and version that the key signed, and the problem.
pub fn verify_bytes(
    envelope: &[u8],
    keyring: &Keyring,
    digest: &Digest,
    now: Timestamp,
) -> Result<(), (String, TrustError)> {
    let Ok(parsed) = Envelope::parse(envelope) else { return Ok(()) };
    let known = |signature: &EnvelopeSignature| {
        keyring.entries().iter().any(|entry| parsed.signed_by(entry.key(), signature))
    };
    if !parsed.signatures().any(known) {
        return Ok(());
    }
    let Ok(signed) = parsed.unverified_statement() else { return Ok(()) };
    match verify(envelope, keyring, signed.name(), signed.version(), digest, now) {
        // A statement about another connector: the package's own name decides what that is.
        Err(error) if error.code() == SignatureCode::KeyScope => Ok(()),
        verified => {
            verified.map(drop).map_err(|error| (format!("{}@{}", signed.name(), signed.version()), error))
        }
    }
}

/// Refuses a version below the floor that `keyring` holds for `name`, by the order of versions.
fn check_floor(keyring: &Keyring, name: &ConnectorName, version: &semver::Version) -> Result<(), TrustError> {
    match keyring.floor(name) {
        Some(floor) if version.cmp_precedence(floor).is_lt() => {
            let reason = format!("the keyring lets nothing below version {floor} of it run");
            let fix = format!(
                "Install {floor} or a later release; if the floor is a mistake, run `cofferdam trust floor {name} \
                 {version}`."
            );
            Err(TrustError::new(SignatureCode::BelowFloor, reason, fix))
        }
        _ => Ok(()),
    }
}

/// The closeness of a signature to being valid; a later variant is more specific.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RejectionSeverity {
    UnknownKey,
    KeyScope,
    Expired,
    Revoked,
    Bad,
}

/// An invalid signature: the reason, and its key or claimed key.
struct SignatureRejection<'a> {
    rank: RejectionSeverity,
    entry: Option<&'a KeyEntry>,
    key_id: &'a str,
}

/// Finds the key that made `signature`. The key id is only a hint to try first.
fn examine<'a>(
    envelope: &Envelope,
    signature: &'a EnvelopeSignature,
    keyring: &'a Keyring,
    (name, digest): (&ConnectorName, &Digest),
    now: Timestamp,
) -> Result<&'a KeyEntry, SignatureRejection<'a>> {
    let hinted = KeyId::parse(&signature.key_id);
    let named = keyring.entries().iter().find(|entry| Some(entry.id()) == hinted.as_ref());
    let others = keyring.entries().iter().filter(|entry| Some(entry.id()) != hinted.as_ref());
    let maker = named.into_iter().chain(others).find(|entry| envelope.signed_by(entry.key(), signature));
    let rank = match (maker, named) {
        (None, Some(_)) => RejectionSeverity::Bad,
        (None, None) => RejectionSeverity::UnknownKey,
        (Some(entry), _) => match entry.status(now) {
            _ if entry.vouches_for(digest, now) && entry.covers(name) => return Ok(entry),
            KeyStatus::Revoked => RejectionSeverity::Revoked,
            KeyStatus::Expired => RejectionSeverity::Expired,
            KeyStatus::Trusted => RejectionSeverity::KeyScope,
        },
    };
    Err(SignatureRejection { rank, entry: maker.or(named), key_id: &signature.key_id })
}

impl SignatureRejection<'_> {
    /// The reason for the end of the key, in brackets.
    fn why(&self) -> String {
        let reason = self.entry.and_then(KeyEntry::reason);
        reason.map(|reason| format!(" ({reason})")).unwrap_or_default()
    }

    /// The way to keep what was installed before the key `id` ended. It does nothing for any other package.
    fn keep_advice(&self, id: &str) -> String {
        let end = self.entry.and_then(|entry| entry.revoked().into_iter().chain(entry.not_after()).min());
        let id = id.get(..12).unwrap_or_default();
        end.map(|end| {
            format!(" If it was installed here before {end}, `cofferdam trust keep {id}` keeps it.")
        })
        .unwrap_or_default()
    }

    fn explain(&self, name: &ConnectorName) -> TrustError {
        let id = self.entry.map_or_else(|| sanitize_line(self.key_id, 64), |entry| entry.id().to_string());
        let key = self.entry.map_or_else(|| "KEY".to_owned(), |entry| entry.key().to_string());
        let (code, reason, fix) = match self.rank {
            RejectionSeverity::UnknownKey => (
                SignatureCode::UnknownKey,
                match id.as_str() {
                    "" => "no key in the keyring made its signature".to_owned(),
                    id => {
                        format!("its signature is by a key that is not in the keyring (it says to be {id})")
                    }
                },
                format!(
                    "If the key is yours, or you trust the publisher whose it is, run `cofferdam trust add {key} --for \
                     '{}'` with the public key as its publisher gives it out (for a key of your own, `cofferdam key public`).",
                    SigningScope::for_owner(name)
                ),
            ),
            RejectionSeverity::KeyScope => (
                SignatureCode::KeyScope,
                format!("it is signed by the key {id}, which is not trusted for {name}"),
                format!("If that key may sign it, run `cofferdam trust add {key} --for '{name}'`."),
            ),
            RejectionSeverity::Expired => (
                SignatureCode::ExpiredKey,
                format!("it is signed by the key {id}, whose last day has passed{}", self.why()),
                format!(
                    "Get a release that is signed by a current key. To trust this one for longer, run \
                     `cofferdam trust add {key} --for '{name}' --not-after DATE`.{}",
                    self.keep_advice(&id)
                ),
            ),
            RejectionSeverity::Revoked => (
                SignatureCode::RevokedKey,
                format!("it is signed by the key {id}, which was revoked{}", self.why()),
                format!(
                    "Get a release that is signed by another key; `cofferdam trust list` shows those there are.{}",
                    self.keep_advice(&id)
                ),
            ),
            RejectionSeverity::Bad => (
                SignatureCode::BadSignature,
                format!("its signature says to be by the key {id} and does not hold"),
                again(name),
            ),
        };
        TrustError::new(code, reason, fix)
    }
}

/// Checks that the content signed by a trusted key is the requested one. The payload is read here for the
/// first time: after its signature was verified.
fn about(
    envelope: &Envelope,
    signers: &[&KeyEntry],
    (name, version, digest): (&ConnectorName, &semver::Version, &Digest),
    now: Timestamp,
) -> Result<Verified, TrustError> {
    let statement = envelope.unverified_statement().map_err(|error| {
        let by = signers.first().map(|entry| entry.id().short()).unwrap_or_default();
        let reason = format!("what the key {by} signed is not a release statement: {error}");
        TrustError::new(SignatureCode::Malformed, reason, again(name))
    })?;
    let difference = if statement.name() != name {
        Some(format!("for {}, not for {name}", statement.name()))
    } else if statement.version() != version {
        Some(format!("for version {}, not for {version}", statement.version()))
    } else if statement.digest() != digest {
        Some(format!("for a file with the hash {}, and this one has {digest}", statement.digest()))
    } else {
        None
    };
    // A key that ended already vouches for this package without an end.
    let current = signers.iter().filter(|entry| entry.status(now) == KeyStatus::Trusted);
    match difference {
        None => Ok(Verified {
            name: name.clone(),
            version: version.clone(),
            digest: *digest,
            signers: signers.iter().map(|entry| *entry.id()).collect(),
            not_after: current.filter_map(|entry| entry.not_after()).min(),
        }),
        Some(difference) => {
            let reason = format!("its signature is {difference}");
            Err(TrustError::new(SignatureCode::IdentityMismatch, reason, again(name)))
        }
    }
}

fn again(name: &ConnectorName) -> String {
    format!(
        "If you publish {name}, sign it again with `cofferdam sign`; otherwise get the package and its signature file \
         (.dsse.json) again from its publisher."
    )
}
