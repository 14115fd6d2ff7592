//! What the parser found in a component, and its form on the pipe between the compile worker and the host.
//!
//! Types are shared in a component: a thousand operations may use one type of ten thousand parts. So the
//! shapes travel as a table in which each is written once and parts are named by their index.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind, WholeHostError};
use serde::{Deserialize, Serialize};

use super::decode::{self, World};
use super::docs::Docs;
use super::error::PackageError;
use super::imports::Import;
use super::operation::Operation;
use super::shape::{Case, Field, Name, Shape, ShapeKey};
use super::{MANIFEST_LABEL, prescan, sections};
use crate::manifest::Manifest;

/// What a package is built from, apart from its bytes.
pub(super) struct Parts {
    pub(super) manifest: Manifest,
    pub(super) docs: Docs,
    pub(super) world: World,
    pub(super) core_instances: u64,
    ranges: Sections,
}

/// Where the sections of a package are.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sections {
    manifest: Range<usize>,
    docs: Range<usize>,
}

/// Parses a package, cheapest checks first; `patience` is how long the validator may take, looked at between sections.
pub(super) fn parse(bytes: &[u8], patience: Duration) -> Result<Parts, PackageError> {
    let (found, core_instances) = prescan::scan_counting(bytes)?;
    let (manifest, docs) = sections::find(&found)?;
    let ranges = Sections { manifest: manifest.content(), docs: docs.content() };
    let text = sections::manifest_text(manifest.data)?;
    let docs = Docs::parse(docs.data)?;
    let manifest =
        Manifest::parse(MANIFEST_LABEL, text).map_err(|error| PackageError::Manifest(Box::new(error)))?;
    let world = decode::decode(bytes, patience)?;
    Ok(Parts { manifest, docs, world, core_instances, ranges })
}

/// What a worker answers about a package or a bare component.
#[derive(Debug, Serialize, Deserialize)]
pub enum ParseReply {
    /// It is acceptable.
    Parsed(Outline),
    /// It is not.
    Refused(WholeHostError<'static>),
    /// Its manifest is not: the host, which shows the lines at fault, reads the text itself.
    ManifestRefused(Range<usize>),
}

/// A component's face, as the worker writes it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outline {
    /// None of a bare component.
    sections: Option<Sections>,
    core_instances: u64,
    imports: Vec<Import>,
    operations: Vec<WireOperation>,
    shapes: Vec<WireShape>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireOperation {
    interface: Option<String>,
    name: String,
    params: Vec<(String, usize)>,
    result: Option<usize>,
}

/// A shape whose parts are shapes before it in the table.
#[derive(Debug, Serialize, Deserialize)]
enum WireShape {
    Bool,
    Signed(u8),
    Unsigned(u8),
    Float(u8),
    Char,
    String,
    Bytes,
    List(usize),
    Tuple(Vec<usize>),
    Option(usize),
    Result(Option<usize>, Option<usize>),
    Record(Vec<(String, usize)>),
    Variant(Vec<(String, Option<usize>)>),
    Enum(Vec<String>),
    Flags(Vec<String>),
}

/// The worker's side: what there is to say about the package `bytes`.
pub fn parse_package(bytes: &[u8], patience: Duration) -> ParseReply {
    let parts = match parse(bytes, patience) {
        Ok(parts) => parts,
        Err(PackageError::Manifest(error)) => {
            return match manifest_range(bytes) {
                Some(range) => ParseReply::ManifestRefused(range),
                None => refused(PackageError::Manifest(error)),
            };
        }
        Err(error) => return refused(error),
    };
    // Part of what is parsed: where it is refused, the host is told what refused it.
    if let Err(error) = super::check_named(&parts.manifest, &parts.world.operations) {
        return refused(error);
    }
    ParseReply::Parsed(Outline::new(Some(parts.ranges), &parts.world, parts.core_instances))
}

/// The same about a component that need not be a package.
pub fn parse_component(bytes: &[u8], patience: Duration) -> ParseReply {
    let parsed = prescan::scan_counting(bytes)
        .and_then(|(_, core_instances)| Ok((decode::decode(bytes, patience)?, core_instances)));
    match parsed {
        Ok((world, core_instances)) => ParseReply::Parsed(Outline::new(None, &world, core_instances)),
        Err(error) => refused(error),
    }
}

fn manifest_range(bytes: &[u8]) -> Option<Range<usize>> {
    let found = prescan::scan(bytes).ok()?;
    sections::find(&found).ok().map(|(manifest, _)| manifest.content())
}

fn refused(error: PackageError) -> ParseReply {
    ParseReply::Refused(HostError::from(error).whole().into_owned())
}

impl ParseReply {
    /// The host's side: the operations of a bare component.
    pub fn operations(self) -> Result<Vec<Operation>, HostError> {
        match self {
            Self::Parsed(outline) => Ok(outline.world()?.operations),
            Self::Refused(error) => Err(HostError::restored(error).unwrap_or_else(unreadable)),
            Self::ManifestRefused(_) => Err(unreadable()),
        }
    }

    /// The host's side: the parts of the package `bytes`. The worker has parsed these sections within its
    /// limits; parsing them again costs as little.
    pub(super) fn parts(self, bytes: &[u8]) -> Result<Parts, HostError> {
        let outline = match self {
            Self::Parsed(outline) => outline,
            Self::Refused(error) => return Err(HostError::restored(error).unwrap_or_else(unreadable)),
            Self::ManifestRefused(range) => {
                return match manifest_at(bytes, &range) {
                    Ok(_) => Err(unreadable()),
                    Err(error) => Err(error),
                };
            }
        };
        let ranges = outline.sections.clone().ok_or_else(unreadable)?;
        let manifest = manifest_at(bytes, &ranges.manifest)?;
        let docs = Docs::parse(bytes.get(ranges.docs.clone()).ok_or_else(unreadable)?)?;
        let core_instances = outline.core_instances;
        Ok(Parts { manifest, docs, world: outline.world()?, core_instances, ranges })
    }
}

fn manifest_at(bytes: &[u8], range: &Range<usize>) -> Result<Manifest, HostError> {
    let text = sections::manifest_text(bytes.get(range.clone()).ok_or_else(unreadable)?)?;
    Ok(Manifest::parse(MANIFEST_LABEL, text).map_err(|error| PackageError::Manifest(Box::new(error)))?)
}

/// The error for an answer that no worker of this version gives.
pub fn unreadable() -> HostError {
    HostError::new(HostErrorKind::Configuration, "The compile worker's answer cannot be read.")
        .hint("Point Compiler::child at the cofferdam binary of this very version.")
}

impl Outline {
    fn new(sections: Option<Sections>, world: &World, core_instances: u64) -> Self {
        let mut table = Table::default();
        let operations = world.operations.iter().map(|operation| table.operation(operation)).collect();
        Self { sections, core_instances, imports: world.imports.clone(), operations, shapes: table.shapes }
    }

    fn world(self) -> Result<World, HostError> {
        let mut shapes: Vec<Shape> = Vec::with_capacity(self.shapes.len());
        for wire in self.shapes {
            let shape = wire.shape(&shapes).ok_or_else(unreadable)?;
            shapes.push(shape);
        }
        let operation = |wire: WireOperation| wire.operation(&shapes).ok_or_else(unreadable);
        let operations = self.operations.into_iter().map(operation).collect::<Result<_, _>>()?;
        Ok(World { operations, imports: self.imports })
    }
}

/// Shapes on their way into the table.
#[derive(Default)]
struct Table {
    shapes: Vec<WireShape>,
    known: HashMap<ShapeKey, usize>,
}

impl Table {
    fn operation(&mut self, operation: &Operation) -> WireOperation {
        WireOperation {
            interface: operation.interface.clone(),
            name: operation.name.wit().to_owned(),
            params: self.fields(&operation.params),
            result: operation.result.as_ref().map(|shape| self.index(shape)),
        }
    }

    fn fields(&mut self, fields: &[Field]) -> Vec<(String, usize)> {
        fields.iter().map(|field| (field.name.wit().to_owned(), self.index(&field.shape))).collect()
    }

    fn case(&mut self, case: &Case) -> (String, Option<usize>) {
        (case.name.wit().to_owned(), case.payload.as_ref().map(|payload| self.index(payload)))
    }

    /// The shape's index. Recursion ends with the depth of types, which the parser bounds.
    fn index(&mut self, shape: &Shape) -> usize {
        let key = shape.key();
        if let Some(index) = key.and_then(|key| self.known.get(&key)) {
            return *index;
        }
        let wire = match shape {
            Shape::Bool => WireShape::Bool,
            Shape::Signed(bits) => WireShape::Signed(*bits),
            Shape::Unsigned(bits) => WireShape::Unsigned(*bits),
            Shape::Float(bits) => WireShape::Float(*bits),
            Shape::Char => WireShape::Char,
            Shape::String => WireShape::String,
            Shape::Bytes => WireShape::Bytes,
            Shape::List(item) => WireShape::List(self.index(item)),
            Shape::Option(item) => WireShape::Option(self.index(item)),
            Shape::Tuple(items) => WireShape::Tuple(items.iter().map(|item| self.index(item)).collect()),
            Shape::Result(ok, err) => {
                let ok = ok.as_ref().map(|side| self.index(side));
                WireShape::Result(ok, err.as_ref().map(|side| self.index(side)))
            }
            Shape::Record(fields) => WireShape::Record(self.fields(fields)),
            Shape::Variant(cases) => WireShape::Variant(cases.iter().map(|case| self.case(case)).collect()),
            Shape::Enum(names) => WireShape::Enum(names.iter().map(|name| name.wit().to_owned()).collect()),
            Shape::Flags(names) => WireShape::Flags(names.iter().map(|name| name.wit().to_owned()).collect()),
        };
        let index = self.shapes.len();
        self.shapes.push(wire);
        if let Some(key) = key {
            self.known.insert(key, index);
        }
        index
    }
}

impl WireOperation {
    fn operation(self, shapes: &[Shape]) -> Option<Operation> {
        Some(Operation {
            name: Name::from_wit(&self.name),
            interface: self.interface,
            params: fields(&self.params, shapes)?,
            result: part(self.result, shapes)?,
        })
    }
}

impl WireShape {
    fn shape(self, before: &[Shape]) -> Option<Shape> {
        let at = |index: usize| before.get(index).cloned();
        let boxed = |index: Option<usize>| Some(part(index, before)?.map(Arc::new));
        let names = |names: Vec<String>| names.iter().map(|name| Name::from_wit(name)).collect();
        Some(match self {
            Self::Bool => Shape::Bool,
            Self::Signed(bits) => Shape::Signed(bits),
            Self::Unsigned(bits) => Shape::Unsigned(bits),
            Self::Float(bits) => Shape::Float(bits),
            Self::Char => Shape::Char,
            Self::String => Shape::String,
            Self::Bytes => Shape::Bytes,
            Self::List(item) => Shape::List(Arc::new(at(item)?)),
            Self::Option(item) => Shape::Option(Arc::new(at(item)?)),
            Self::Tuple(items) => Shape::Tuple(items.into_iter().map(at).collect::<Option<_>>()?),
            Self::Result(ok, err) => Shape::Result(boxed(ok)?, boxed(err)?),
            Self::Record(these) => Shape::Record(fields(&these, before)?.into()),
            Self::Variant(cases) => {
                let case = |(name, payload): (String, Option<usize>)| {
                    Some(Case { name: Name::from_wit(&name), payload: part(payload, before)? })
                };
                Shape::Variant(cases.into_iter().map(case).collect::<Option<_>>()?)
            }
            Self::Enum(these) => Shape::Enum(names(these)),
            Self::Flags(these) => Shape::Flags(names(these)),
        })
    }
}

fn fields(wire: &[(String, usize)], shapes: &[Shape]) -> Option<Vec<Field>> {
    let field = |(name, index): &(String, usize)| {
        Some(Field { name: Name::from_wit(name), shape: shapes.get(*index)?.clone() })
    };
    wire.iter().map(field).collect()
}

/// The part with this index, where there is one; none at all where the table has no such index.
#[expect(clippy::option_option, reason = "the outer one is an answer that cannot be read")]
fn part(index: Option<usize>, shapes: &[Shape]) -> Option<Option<Shape>> {
    match index {
        None => Some(None),
        Some(index) => shapes.get(index).cloned().map(Some),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
    use super::*;
    use crate::package::{PATIENCE, Package, fixture};

    fn sent(reply: &ParseReply) -> ParseReply {
        serde_json::from_slice(&serde_json::to_vec(reply).unwrap()).unwrap()
    }

    #[test]
    fn a_package_from_the_worker_equals_one_parsed_here() {
        let bytes = fixture::package("github://acme/quiet", "1.0.0", "");
        let here = Package::open(bytes.clone()).unwrap();
        let there = Package::from_reply(bytes.clone(), sent(&parse_package(&bytes, PATIENCE))).unwrap();
        assert_eq!(format!("{here:?}"), format!("{there:?}"));
    }

    #[test]
    fn shared_types_cross_the_pipe_once_and_stay_shared() {
        let mut shape = Shape::Unsigned(8);
        for _ in 0..10 {
            shape = Shape::Tuple(vec![shape.clone(), shape].into());
        }
        let field = |name: &str| Field { name: Name::from_wit(name), shape: shape.clone() };
        let operation = Operation {
            name: Name::from_wit("do-it"),
            interface: Some("a:b/c".into()),
            params: vec![field("a"), field("b")],
            result: Some(shape.clone()),
        };
        let world = World { operations: vec![operation; 100], imports: vec![Import::new("a:b/d", true)] };
        let outline = Outline::new(None, &world, 3);
        assert!(outline.shapes.len() < 30, "{}", outline.shapes.len());
        let text = serde_json::to_string(&outline).unwrap();
        let back = serde_json::from_str::<Outline>(&text).unwrap().world().unwrap();
        assert_eq!((&back.operations, &back.imports), (&world.operations, &world.imports));
        let [first, .., last] = back.operations.as_slice() else { panic!() };
        assert_eq!(first.result.as_ref().unwrap().key(), last.result.as_ref().unwrap().key());
    }

    #[test]
    fn an_outline_with_an_index_ahead_of_it_is_refused() {
        let text =
            r#"{"sections":null,"core_instances":0,"imports":[],"operations":[],"shapes":[{"List":0}]}"#;
        assert!(serde_json::from_str::<Outline>(text).unwrap().world().is_err());
    }

    #[test]
    fn a_refusal_is_the_same_from_the_worker_as_from_here() {
        for bytes in [
            b"not wasm".to_vec(),
            fixture::connector("f: func() -> result<_, failure>;"),
            fixture::connector("f: func() -> u8;"),
        ] {
            let here = HostError::from(Package::open(bytes.clone()).unwrap_err());
            let there =
                Package::from_reply(bytes.clone(), sent(&parse_package(&bytes, PATIENCE))).unwrap_err();
            assert_eq!((here.kind(), here.message()), (there.kind(), there.message()));
            assert_eq!((here.hint_text(), here.details()), (there.hint_text(), there.details()));
        }
    }
}
