//! The effect of an operation on its service, as `[connector.effects]` declares it.

use std::collections::BTreeMap;
use std::fmt;

use cofferdam_core::document::{DocumentTable, InvalidValue, SpannedItem, quoted};
use serde::Serialize;

use super::parse::operation_name;

/// The effect of an operation on its service.
///
/// The host only enforces [`ReadOnly`](Self::ReadOnly), by the methods that HTTP calls safe; the others are
/// the publisher's claim, signed with the package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationEffect {
    /// It changes nothing. The host lets it send GET, HEAD and OPTIONS and nothing else.
    ReadOnly,
    /// It adds, and neither overwrites nor removes.
    Additive,
    /// It sets the state that its arguments describe, and may overwrite or remove for that; repeated with the
    /// same arguments it changes nothing more.
    Convergent,
    /// It may overwrite or remove.
    Destructive,
}

impl OperationEffect {
    /// Every effect.
    pub const ALL: [Self; 4] = [Self::ReadOnly, Self::Additive, Self::Convergent, Self::Destructive];

    /// The word in a manifest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::Additive => "additive",
            Self::Convergent => "convergent",
            Self::Destructive => "destructive",
        }
    }

    /// Returns the combined effect of several operations, some of them possibly unknown: destructive if one
    /// of them is, read-only if all are, additive if all are known and none is destructive. The combination
    /// of none is read-only. Only a single operation is convergent: of several, one may depend on the result
    /// of another, and together they may change more each time.
    #[must_use]
    pub fn combine(all: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        let mut all = all.into_iter().peekable();
        let first = all.next();
        if let Some(alone) = first.filter(|_| all.peek().is_none()) {
            return alone;
        }
        let mut whole = Some(Self::ReadOnly);
        for one in first.into_iter().chain(all) {
            whole = match (whole, one) {
                (_, Some(Self::Destructive | Self::Convergent)) => return Some(Self::Destructive),
                (None, _) | (_, None) => None,
                (Some(Self::ReadOnly), Some(other)) => Some(other),
                (Some(known), Some(_)) => Some(known),
            };
        }
        whole
    }

    fn parse(word: &str) -> Result<Self, InvalidValue> {
        Self::ALL.into_iter().find(|effect| effect.name() == word).ok_or_else(|| {
            let message = format!("{} is not an effect", quoted(word));
            let near = cofferdam_core::suggest::nearest(word, Self::ALL.map(Self::name));
            let near = near.map(|near| format!("did you mean \"{near}\"? ")).unwrap_or_default();
            InvalidValue::new(
                message,
                format!("{near}write \"read_only\", \"additive\", \"convergent\" or \"destructive\""),
            )
        })
    }
}

impl fmt::Display for OperationEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The effects of one connector's operations, as far as its manifest declares them.
#[derive(Debug, Clone, Default)]
pub(super) struct DeclaredEffects {
    default: Option<OperationEffect>,
    operations: BTreeMap<String, OperationEffect>,
}

impl DeclaredEffects {
    /// Reads the table, and checks it against `idempotent_by_default` and the declarations of `idempotent`
    /// for single operations: a read-only operation is repeatable, and a convergent one must be declared
    /// idempotent by name, too.
    pub(super) fn read(
        table: &DocumentTable<'_>,
        idempotent_by_default: bool,
        idempotent: &BTreeMap<String, bool>,
    ) -> Self {
        table.reject_unknown_keys(&["default", "operations"]);
        let mut read = Self::default();
        let default = table.text("default");
        read.default = default.as_ref().and_then(|word| word.parse(|word| OperationEffect::parse(word)));
        for (name, word) in table.table("operations").iter().flat_map(DocumentTable::each_text) {
            let name = name.parse(|name| operation_name(name));
            let effect = word.parse(|word| OperationEffect::parse(word));
            let Some((name, effect)) = name.zip(effect) else { continue };
            let named = idempotent.get(&name).copied();
            if effect == OperationEffect::ReadOnly && !named.unwrap_or(idempotent_by_default) {
                word.refuse(contradiction(&name, named.is_some()));
            }
            if effect == OperationEffect::Convergent && named != Some(true) {
                word.refuse(convergent_undeclared(&name));
            }
            read.operations.insert(name, effect);
        }
        match (read.default, &default) {
            (Some(OperationEffect::ReadOnly), Some(default)) => {
                read.hold_default(default, idempotent_by_default, idempotent);
            }
            (Some(OperationEffect::Convergent), Some(default)) => default.refuse(InvalidValue::new(
                "\"convergent\" is said of operations by name, and is no default",
                "name each such operation under [connector.effects.operations]",
            )),
            _ => {}
        }
        read
    }

    /// Refuses a default of `read_only` for operations that must not be repeated.
    fn hold_default(
        &self,
        default: &SpannedItem<'_, &str>,
        idempotent_by_default: bool,
        idempotent: &BTreeMap<String, bool>,
    ) {
        if !idempotent_by_default {
            default.refuse(InvalidValue::new(
                "[connector.idempotency] has the default \"not_idempotent\", and what changes nothing can be repeated",
                "write default = \"idempotent\" there, or another effect here",
            ));
        }
        let once = idempotent.iter().filter(|(_, idempotent)| !**idempotent).map(|(name, _)| name);
        if let Some(name) = once.into_iter().find(|name| !self.operations.contains_key(*name)) {
            let shown = quoted(name);
            default.refuse(InvalidValue::new(
                format!("it falls on {shown}, which is \"not_idempotent\", and what changes nothing can be repeated"),
                format!("give {name} an effect of its own under [connector.effects.operations]"),
            ));
        }
    }

    /// Returns the declared effect of `operation`, if there is one.
    pub(super) fn get(&self, operation: &str) -> Option<OperationEffect> {
        self.operations.get(operation).copied().or(self.default)
    }

    /// The operations that are named.
    pub(super) fn named(&self) -> impl Iterator<Item = &String> {
        self.operations.keys()
    }
}

/// Returns the error for an operation that is declared read-only, and not repeatable.
fn contradiction(operation: &str, named: bool) -> InvalidValue {
    let shown = quoted(operation);
    let fix = match named {
        true => "write another effect, or take its line out of [connector.idempotency.operations]".to_owned(),
        false => format!(
            "write another effect, or {operation} = \"idempotent\" under [connector.idempotency.operations]"
        ),
    };
    InvalidValue::new(format!("{shown} is \"not_idempotent\", and what changes nothing can be repeated"), fix)
}

/// Returns the error for an operation that is declared convergent, and not idempotent.
fn convergent_undeclared(operation: &str) -> InvalidValue {
    let shown = quoted(operation);
    let message = format!("{shown} is not declared idempotent, and what is convergent can be repeated");
    let fix = format!(
        "write {operation} = \"idempotent\" under [connector.idempotency.operations], or another effect here"
    );
    InvalidValue::new(message, fix)
}

/// A manifest's declaration about repeating an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredIdempotency {
    /// The manifest names the operation and declares it `idempotent`.
    Declared,
    /// The manifest does not name the operation. The host repeats it only where it saw that no request could
    /// have taken effect twice.
    Undeclared,
    /// The manifest says that the operation must not be repeated, by name or by default.
    NotIdempotent,
}

impl DeclaredIdempotency {
    /// The stable word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::Undeclared => "undeclared",
            Self::NotIdempotent => "not_idempotent",
        }
    }
}

impl fmt::Display for DeclaredIdempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {

    use super::OperationEffect;

    #[test]
    fn combined_effects_are_the_worst_known_one() {
        let [read, add, converge, destroy] = OperationEffect::ALL.map(Some);
        for (all, whole) in [
            (vec![], read),
            (vec![read, read], read),
            (vec![read, add], add),
            (vec![add, read, add], add),
            (vec![read, None], None),
            (vec![None, add], None),
            (vec![None, destroy], destroy),
            (vec![destroy, None, read], destroy),
            (vec![add, destroy, add], destroy),
            (vec![converge], converge),
            (vec![None], None),
            (vec![converge, converge], destroy),
            (vec![read, converge], destroy),
            (vec![converge, None], destroy),
        ] {
            assert_eq!(OperationEffect::combine(all.clone()), whole, "{all:?}");
        }
    }
}
