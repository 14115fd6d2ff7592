//! The contents of an entry, parsed from its text as far as they can be checked.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// An entry's text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body {
    /// The call; none for what is of no call.
    pub(super) audit_id: Option<String>,
    #[serde(default)]
    pub(super) events: Vec<EventOf>,
    /// The event about the audit log itself.
    pub(super) log: Option<LogEvent>,
    pub(super) v: u8,
}

/// An event of a call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventOf {
    pub(super) at: String,
    pub(super) seq: u32,
    #[serde(rename = "type")]
    pub(super) name: String,
    pub(super) payload: Facts,
}

/// The facts of an event that other places of the audit log repeat. Facts of other kinds are passed over.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Facts {
    pub(super) connector: Fact,
    pub(super) op: Fact,
    pub(super) actor: Fact,
    pub(super) action: Fact,
    pub(super) step: Fact,
    pub(super) idempotent: Truth,
    pub(super) status: Fact,
    pub(super) class: Fact,
    pub(super) code: Fact,
    pub(super) arguments: Sum,
    pub(super) result: Sum,
    pub(super) attempts: Number,
    pub(super) claim: Claim,
    pub(super) key_end: KeyFact,
    pub(super) frees_key: Truth,
}

/// The key that a call runs under, or something else.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Claim {
    Of {
        #[serde(default)]
        key_sha256: Fact,
        #[serde(default)]
        fingerprint: Fact,
    },
    Other(IgnoredAny),
}

impl Default for Claim {
    fn default() -> Self {
        Self::Other(IgnoredAny)
    }
}

/// The state of a key at a call's end, or another value.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum KeyFact {
    Of {
        #[serde(default)]
        state: Fact,
        #[serde(default)]
        until: Fact,
    },
    Other(IgnoredAny),
}

impl Default for KeyFact {
    fn default() -> Self {
        Self::Other(IgnoredAny)
    }
}

/// A text, or something else.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Fact {
    Text(String),
    Other(IgnoredAny),
}

impl Default for Fact {
    fn default() -> Self {
        Self::Other(IgnoredAny)
    }
}

impl Fact {
    pub(super) fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Other(IgnoredAny) => None,
        }
    }
}

/// Yes or no, or something else.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Truth {
    Is(bool),
    Other(IgnoredAny),
}

impl Default for Truth {
    fn default() -> Self {
        Self::Other(IgnoredAny)
    }
}

impl Truth {
    pub(super) fn is(&self) -> Option<bool> {
        match self {
            Self::Is(is) => Some(*is),
            Self::Other(IgnoredAny) => None,
        }
    }
}

/// A count, or something else.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Number {
    Is(u32),
    Other(IgnoredAny),
}

impl Default for Number {
    fn default() -> Self {
        Self::Other(IgnoredAny)
    }
}

impl Number {
    pub(super) fn number(&self) -> Option<u32> {
        match self {
            Self::Is(number) => Some(*number),
            Self::Other(IgnoredAny) => None,
        }
    }
}

/// A SHA-256 of something that is sealed, or something else.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Sum {
    Of {
        #[serde(default)]
        sha256: Fact,
    },
    Other(IgnoredAny),
}

impl Default for Sum {
    fn default() -> Self {
        Self::Other(IgnoredAny)
    }
}

impl Sum {
    pub(super) fn sha256(self) -> Option<String> {
        match self {
            Self::Of { sha256 } => sha256.text(),
            Self::Other(IgnoredAny) => None,
        }
    }
}

/// An event about the audit log itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogEvent {
    #[serde(rename = "at")]
    _at: IgnoredAny,
    #[serde(rename = "type")]
    pub(super) name: String,
    pub(super) payload: LogFacts,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct LogFacts {
    /// A signed statement.
    pub(super) note: Fact,
    /// A call.
    pub(super) call: Fact,
    /// True if its key may be used again.
    pub(super) frees_key: Truth,
    /// Keys of calls that were pruned.
    pub(super) keys: Vec<KeyOfPruned>,
}

/// A key of a pruned call that stays blocked forever.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct KeyOfPruned {
    pub(super) call: Fact,
    pub(super) key_sha256: Fact,
    pub(super) fingerprint: Fact,
}
