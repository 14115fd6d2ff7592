//! Thresholds: the number of different keys that must sign the packages of a connector, or of an owner.
//!
//! With a threshold, one stolen key is not enough to release a package. It applies at install and at every load, and no
//! flag of a command overrides it.

use std::collections::BTreeMap;
use std::fmt;

use cofferdam_core::document::{DocumentTable, InvalidValue};

use super::envelope::MAX_SIGNATURES;
use super::scope::SigningScope;
use crate::manifest::ConnectorName;

/// Most thresholds of one keyring.
const MAX_THRESHOLDS: usize = 1_000;

/// A number of different keys: at least 2, and no more than an envelope can have signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SignatureThreshold(usize);

impl SignatureThreshold {
    /// Checks the number.
    ///
    /// # Errors
    /// It is below 2, which every package needs anyway, or above the most signatures of an envelope.
    pub fn new(number: u64) -> Result<Self, InvalidValue> {
        let fit = usize::try_from(number).ok().filter(|number| (2..=MAX_SIGNATURES).contains(number));
        fit.map(Self).ok_or_else(|| {
            let fix = format!("write 2 to {MAX_SIGNATURES}; without a threshold one signature suffices");
            InvalidValue::new(format!("{number} is not a threshold"), fix)
        })
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> usize {
        self.0
    }
}

impl fmt::Display for SignatureThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The thresholds by scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SignatureThresholds {
    by_scope: BTreeMap<SigningScope, SignatureThreshold>,
}

impl SignatureThresholds {
    /// Reads every `[[threshold]]`.
    pub(super) fn read(tables: &[DocumentTable<'_>]) -> Self {
        let mut thresholds = Self::default();
        if let Some(beyond) = tables.get(MAX_THRESHOLDS) {
            beyond.location().refuse(full(tables.len()));
        }
        for table in tables.iter().take(MAX_THRESHOLDS) {
            table.reject_unknown_keys(&["scope", "signatures"]);
            let text = table.required_text("scope", "scope = \"github://acme/slack\"");
            let scope = text.and_then(|text| {
                let scope = text.parse(|text| SigningScope::parse(text))?;
                if thresholds.by_scope.contains_key(&scope) {
                    text.refuse(InvalidValue::new(
                        "this scope has a threshold above already",
                        "keep one of the two",
                    ));
                }
                Some(scope)
            });
            if !table.has("signatures") {
                table.missing("signatures", "signatures = 2");
            }
            let number = table.integer("signatures");
            let number = number.and_then(|number| number.parse(|number| SignatureThreshold::new(*number)));
            thresholds.by_scope.extend(scope.zip(number));
        }
        thresholds
    }

    /// The tables, as text.
    pub(super) fn to_text(&self) -> String {
        let table = |(scope, number): (&SigningScope, &SignatureThreshold)| {
            format!("\n[[threshold]]\nscope = \"{scope}\"\nsignatures = {number}\n")
        };
        self.by_scope.iter().map(table).collect()
    }

    /// Each scope with its threshold.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&SigningScope, SignatureThreshold)> {
        self.by_scope.iter().map(|(scope, number)| (scope, *number))
    }

    /// The threshold of exactly `scope`.
    pub(super) fn get(&self, scope: &SigningScope) -> Option<SignatureThreshold> {
        self.by_scope.get(scope).copied()
    }

    /// The highest threshold whose scope covers `name`, with that scope. The higher one applies, so that an entry for
    /// one connector cannot weaken that of its owner by mistake.
    pub(super) fn covering(&self, name: &ConnectorName) -> Option<(&SigningScope, SignatureThreshold)> {
        self.iter().filter(|(scope, _)| scope.covers(name)).max_by_key(|(_, number)| *number)
    }

    /// Sets the threshold of `scope`; returns the one before.
    pub(super) fn set(
        &mut self,
        scope: &SigningScope,
        number: SignatureThreshold,
    ) -> Result<Option<SignatureThreshold>, InvalidValue> {
        if self.by_scope.len() >= MAX_THRESHOLDS && !self.by_scope.contains_key(scope) {
            return Err(full(self.by_scope.len() + 1));
        }
        Ok(self.by_scope.insert(scope.clone(), number))
    }

    /// Takes the threshold of `scope` away; returns it.
    pub(super) fn remove(&mut self, scope: &SigningScope) -> Option<SignatureThreshold> {
        self.by_scope.remove(scope)
    }
}

fn full(found: usize) -> InvalidValue {
    let message = format!("the keyring would have {found} thresholds, more than {MAX_THRESHOLDS}");
    InvalidValue::new(message, "remove those that are no longer needed")
}
