//! What an operation does to its service, as `[connector.effects]` declares it.

use std::collections::BTreeMap;
use std::fmt;

use cofferdam_core::document::{Located, Refused, Table, quoted};
use serde::Serialize;

use super::parse::operation_name;

/// What an operation does to the service that it talks to.
///
/// Only [`ReadOnly`](Self::ReadOnly) is held by the host, to the methods that HTTP calls safe; the others are the
/// publisher's word, signed with the package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It changes nothing. The host lets it send GET, HEAD and OPTIONS and nothing else.
    ReadOnly,
    /// It adds, and neither overwrites nor removes.
    Additive,
    /// It sets what its arguments say, and may overwrite or remove for that; asked again with the same arguments it
    /// changes nothing more.
    Convergent,
    /// It may overwrite or remove.
    Destructive,
}

impl Effect {
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

    /// What several operations do together, of some of which nothing may be known: destructive where one of them is,
    /// read-only where all are, additive where all are known and none is destructive. Of nothing at all, read-only.
    /// Only an operation alone is convergent: of several, one may depend on what another left behind, and together
    /// they may change more each time.
    #[must_use]
    pub fn together(all: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
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

    fn parse(word: &str) -> Result<Self, Refused> {
        Self::ALL.into_iter().find(|effect| effect.name() == word).ok_or_else(|| {
            let message = format!("{} is not an effect", quoted(word));
            let near = cofferdam_core::spelling::nearest(word, Self::ALL.map(Self::name));
            let near = near.map(|near| format!("did you mean \"{near}\"? ")).unwrap_or_default();
            Refused::new(
                message,
                format!("{near}write \"read_only\", \"additive\", \"convergent\" or \"destructive\""),
            )
        })
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The effects of one connector's operations, as far as its manifest says them.
#[derive(Debug, Clone, Default)]
pub(super) struct Effects {
    default: Option<Effect>,
    operations: BTreeMap<String, Effect>,
}

impl Effects {
    /// Reads the table, and holds it against `idempotent_by_default` and what `idempotent` says of single operations:
    /// what changes nothing can be repeated, and what changes nothing more when it is repeated is declared idempotent by
    /// name, too.
    pub(super) fn read(
        table: &Table<'_>,
        idempotent_by_default: bool,
        idempotent: &BTreeMap<String, bool>,
    ) -> Self {
        table.only(&["default", "operations"]);
        let mut read = Self::default();
        let default = table.text("default");
        read.default = default.as_ref().and_then(|word| word.parse(|word| Effect::parse(word)));
        for (name, word) in table.table("operations").iter().flat_map(Table::each_text) {
            let name = name.parse(|name| operation_name(name));
            let effect = word.parse(|word| Effect::parse(word));
            let Some((name, effect)) = name.zip(effect) else { continue };
            let named = idempotent.get(&name).copied();
            if effect == Effect::ReadOnly && !named.unwrap_or(idempotent_by_default) {
                word.refuse(contradiction(&name, named.is_some()));
            }
            if effect == Effect::Convergent && named != Some(true) {
                word.refuse(convergent_undeclared(&name));
            }
            read.operations.insert(name, effect);
        }
        match (read.default, &default) {
            (Some(Effect::ReadOnly), Some(default)) => {
                read.hold_default(default, idempotent_by_default, idempotent);
            }
            (Some(Effect::Convergent), Some(default)) => default.refuse(Refused::new(
                "\"convergent\" is said of operations by name, and is no default",
                "name each such operation under [connector.effects.operations]",
            )),
            _ => {}
        }
        read
    }

    /// Refuses a default of `read_only` that falls on what must not be repeated.
    fn hold_default(
        &self,
        default: &Located<'_, &str>,
        idempotent_by_default: bool,
        idempotent: &BTreeMap<String, bool>,
    ) {
        if !idempotent_by_default {
            default.refuse(Refused::new(
                "[connector.idempotency] has the default \"not_idempotent\", and what changes nothing can be repeated",
                "write default = \"idempotent\" there, or another effect here",
            ));
        }
        let once = idempotent.iter().filter(|(_, idempotent)| !**idempotent).map(|(name, _)| name);
        if let Some(name) = once.into_iter().find(|name| !self.operations.contains_key(*name)) {
            let shown = quoted(name);
            default.refuse(Refused::new(
                format!("it falls on {shown}, which is \"not_idempotent\", and what changes nothing can be repeated"),
                format!("give {name} an effect of its own under [connector.effects.operations]"),
            ));
        }
    }

    /// What is said of `operation`, if anything is.
    pub(super) fn of(&self, operation: &str) -> Option<Effect> {
        self.operations.get(operation).copied().or(self.default)
    }

    /// The operations that are named.
    pub(super) fn named(&self) -> impl Iterator<Item = &String> {
        self.operations.keys()
    }
}

/// That `operation` is said to change nothing, and not to be repeated.
fn contradiction(operation: &str, named: bool) -> Refused {
    let shown = quoted(operation);
    let fix = match named {
        true => "write another effect, or take its line out of [connector.idempotency.operations]".to_owned(),
        false => format!(
            "write another effect, or {operation} = \"idempotent\" under [connector.idempotency.operations]"
        ),
    };
    Refused::new(format!("{shown} is \"not_idempotent\", and what changes nothing can be repeated"), fix)
}

/// That `operation` is said to change nothing more when it is repeated, and is not declared idempotent.
fn convergent_undeclared(operation: &str) -> Refused {
    let shown = quoted(operation);
    let message = format!("{shown} is not declared idempotent, and what is convergent can be repeated");
    let fix = format!(
        "write {operation} = \"idempotent\" under [connector.idempotency.operations], or another effect here"
    );
    Refused::new(message, fix)
}

#[cfg(test)]
mod tests {
    use super::Effect;

    #[test]
    fn several_operations_are_what_the_worst_of_them_is_as_far_as_it_is_known() {
        let [read, add, converge, destroy] = Effect::ALL.map(Some);
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
            assert_eq!(Effect::together(all.clone()), whole, "{all:?}");
        }
    }
}
