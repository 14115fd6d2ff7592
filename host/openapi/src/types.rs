//! The types of a connector's interface, and their form on the wire.

use std::fmt;

/// The direction of a value: a service returns other fields than it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Direction {
    /// From the caller to the service.
    Input,
    /// From the service to the caller.
    Output,
}

/// The reason why a value is JSON text: WIT has no type for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum JsonReason {
    /// The schema contains itself.
    Recursive,
    /// The schema allows any fields or any value.
    FreeForm,
    /// Several schemas that no field and no kind of value distinguishes.
    Alternatives,
    /// Schemas that are combined in a way that gives no record.
    Combination,
    /// Its types have more parts than one operation may have.
    TooLarge,
    /// Its types are nested too deep.
    TooDeep,
}

impl JsonReason {
    /// Returns the note for documentation and reports.
    pub(crate) fn note(self) -> &'static str {
        match self {
            Self::Recursive => "its schema contains itself",
            Self::FreeForm => "its schema allows any content",
            Self::Alternatives => "nothing tells the alternatives of its schema apart",
            Self::Combination => "its schema combines others in a way that gives no record",
            Self::TooLarge => "its type would be too large",
            Self::TooDeep => "its type would be nested too deep",
        }
    }
}

impl fmt::Display for JsonReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.note())
    }
}

/// The number of a named type.
pub(crate) type TypeId = usize;

/// A type of the interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Ty {
    Bool,
    S32,
    S64,
    U32,
    U64,
    F64,
    Text,
    /// Raw bytes: a body or a part of one, never inside JSON.
    Bytes,
    Json(JsonReason),
    List(Box<Ty>),
    /// An object with any names: a list of pairs.
    Map(Box<Ty>),
    /// A value or `null`.
    Nullable(Box<Ty>),
    Named(TypeId),
}

impl Ty {
    pub(crate) fn nullable(self) -> Self {
        match self {
            Self::Nullable(_) => self,
            other => Self::Nullable(Box::new(other)),
        }
    }
}

/// The presence of a field in its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Presence {
    /// It is always there.
    Required,
    /// It may be absent; a `null` that is received counts as absent.
    Optional,
    /// It may be absent or `null`, and the two differ: `option<option<T>>`.
    OptionalNullable,
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Field {
    /// Its kebab-case name.
    pub(crate) name: String,
    /// Its name in JSON.
    pub(crate) wire: String,
    pub(crate) ty: Ty,
    pub(crate) presence: Presence,
    pub(crate) docs: String,
}

/// A case of an enum or of flags.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Label {
    pub(crate) name: String,
    pub(crate) wire: String,
}

/// The kinds of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum JsonKind {
    Boolean,
    Number,
    Text,
    Array,
    Object,
}

/// The mark by which a case of a variant is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CaseMark {
    /// Values of the variant's tag; the first is written.
    Tags(Vec<String>),
    Kind(JsonKind),
}

/// A case of a variant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) ty: Ty,
    pub(crate) mark: CaseMark,
}

/// The definition of a named type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Definition {
    Record(Vec<Field>),
    Enum(Vec<Label>),
    Flags(Vec<Label>),
    /// With the field that tells objects apart, if cases are known by it.
    Variant {
        tag: Option<String>,
        cases: Vec<Case>,
    },
}

/// A named type.
#[derive(Debug, Clone)]
pub(crate) struct TypeDef {
    pub(crate) name: String,
    pub(crate) docs: String,
    pub(crate) definition: Definition,
    /// The number of its parts as a tree.
    pub(crate) size: usize,
    /// The number of types inside each other.
    pub(crate) depth: usize,
}

/// All named types.
#[derive(Debug, Default)]
pub(crate) struct TypeTable {
    defs: Vec<TypeDef>,
}

impl TypeTable {
    pub(crate) fn add(&mut self, def: TypeDef) -> TypeId {
        self.defs.push(def);
        self.defs.len() - 1
    }

    pub(crate) fn get(&self, id: TypeId) -> Option<&TypeDef> {
        self.defs.get(id)
    }

    pub(crate) fn definition(&self, id: TypeId) -> Option<&Definition> {
        self.defs.get(id).map(|def| &def.definition)
    }

    /// Returns the number of parts of a type as a tree.
    pub(crate) fn size(&self, ty: &Ty) -> usize {
        match ty {
            Ty::List(inner) | Ty::Nullable(inner) => 1 + self.size(inner),
            Ty::Map(inner) => 3 + self.size(inner),
            Ty::Named(id) => self.get(*id).map_or(1, |def| def.size),
            _ => 1,
        }
    }

    pub(crate) fn depth(&self, ty: &Ty) -> usize {
        match ty {
            Ty::List(inner) | Ty::Nullable(inner) => 1 + self.depth(inner),
            Ty::Map(inner) => 2 + self.depth(inner),
            Ty::Named(id) => self.get(*id).map_or(1, |def| def.depth),
            _ => 1,
        }
    }

    /// Returns the types that a definition refers to.
    pub(crate) fn parts(definition: &Definition) -> Vec<&Ty> {
        match definition {
            Definition::Record(fields) => fields.iter().map(|field| &field.ty).collect(),
            Definition::Variant { cases, .. } => cases.iter().map(|case| &case.ty).collect(),
            Definition::Enum(_) | Definition::Flags(_) => Vec::new(),
        }
    }

    /// Collects the named types that `ty` reaches, each before those that use it.
    pub(crate) fn reach(&self, ty: &Ty, found: &mut Vec<TypeId>) {
        match ty {
            Ty::List(inner) | Ty::Map(inner) | Ty::Nullable(inner) => self.reach(inner, found),
            Ty::Named(id) if !found.contains(id) => {
                if let Some(def) = self.get(*id) {
                    for part in Self::parts(&def.definition) {
                        self.reach(part, found);
                    }
                }
                // A part may have been the type itself only if it were recursive, which no type is.
                found.push(*id);
            }
            _ => {}
        }
    }

    /// Returns the places of JSON text in a type, each with its reason.
    pub(crate) fn json_texts(&self, ty: &Ty, path: &str, found: &mut Vec<(String, JsonReason)>) {
        const MAX_NOTES: usize = 40;
        if found.len() >= MAX_NOTES {
            return;
        }
        match ty {
            Ty::Json(reason) => found.push((path.to_owned(), *reason)),
            Ty::List(inner) => self.json_texts(inner, &format!("{path}[]"), found),
            Ty::Map(inner) => self.json_texts(inner, &format!("{path}[*]"), found),
            Ty::Nullable(inner) => self.json_texts(inner, path, found),
            Ty::Named(id) => match self.definition(*id) {
                Some(Definition::Record(fields)) => {
                    for field in fields {
                        self.json_texts(&field.ty, &format!("{path}.{}", field.wire), found);
                    }
                }
                Some(Definition::Variant { cases, .. }) => {
                    for case in cases {
                        self.json_texts(&case.ty, &format!("{path}<{}>", case.name), found);
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Returns true if there is JSON text anywhere in a type.
    pub(crate) fn has_json_text(&self, ty: &Ty) -> bool {
        let mut found = Vec::new();
        self.json_texts(ty, "", &mut found);
        !found.is_empty()
    }
}
