//! A value with references in it, read once and filled in once: what is filled in is never read again.

use serde_json::{Map, Value};

/// A step's input, or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Template {
    /// As it stands.
    Literal(Value),
    /// A reference alone: the value keeps its type.
    Whole(Reference),
    /// A text with references in it.
    Text(Vec<Part>),
    /// A list with references somewhere in it.
    List(Vec<Template>),
    /// A table with references somewhere in it, in the order of the file.
    Table(Vec<(String, Template)>),
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// As it stands.
    Literal(String),
    /// What is referred to, as text.
    Reference(Reference),
}

/// What stands between `${` and `}`.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    pub(crate) root: Root,
    pub(crate) path: Vec<Segment>,
    /// As it is written, without `${` and `}`.
    pub(crate) text: String,
}

/// Where a reference begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// An argument of the caller's.
    Arg(String),
    /// The value of an earlier step, by its place.
    Step(usize),
}

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// The field of this name.
    Field(String),
    /// The item at this place.
    Index(usize),
}

/// What templates are filled in with.
#[derive(Debug, Clone, Copy)]
pub struct Values<'v> {
    /// The caller's arguments, with defaults.
    pub args: &'v Map<String, Value>,
    /// The values of the steps so far.
    pub steps: &'v [Value],
}
