//! The parser's result for a component, and its form on the pipe between the compile worker and the host.
//!
//! Types are shared in a component: a thousand operations may use one type of ten thousand parts. So the
//! shapes travel as a table in which each is written once and parts are named by their index.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind, HostErrorSnapshot};
use serde::{Deserialize, Serialize};
use wasmparser::{
    BinaryReader, ComponentAlias, ComponentExternName, ComponentImport, ComponentType, ComponentTypeRef,
    CoreType, Result,
};

use super::decode::{self, ComponentInterface};
use super::docs::ConnectorDocs;
use super::error::PackageError;
use super::imports::ImportDeclaration;
use super::shape::OperationSignature;
use super::shape::{ShapeCase, ShapeField, ShapeKey, ValueShape, WitName};
use super::{MANIFEST_LABEL, prescan, sections};
use crate::manifest::Manifest;

/// The parts of a package without its bytes.
pub(super) struct ParsedPackage {
    pub(super) manifest: Manifest,
    pub(super) docs: ConnectorDocs,
    pub(super) world: ComponentInterface,
    pub(super) core_instances: u64,
    ranges: SectionRanges,
}

/// The positions of a package's sections.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SectionRanges {
    manifest: Range<usize>,
    docs: Range<usize>,
}

/// Parses a package, cheapest checks first; `patience` is how long the validator may take, looked at between
/// sections.
pub(super) fn parse(bytes: &[u8], patience: Duration) -> Result<ParsedPackage, PackageError> {
    let (found, core_instances) = prescan::scan_counting(bytes)?;
    let (manifest, docs) = sections::find(&found)?;
    let ranges = SectionRanges { manifest: manifest.content(), docs: docs.content() };
    let text = sections::manifest_text(manifest.data)?;
    let docs = ConnectorDocs::parse(docs.data)?;
    let manifest =
        Manifest::parse(MANIFEST_LABEL, text).map_err(|error| PackageError::Manifest(Box::new(error)))?;
    let world = decode::decode(bytes, patience)?;
    Ok(ParsedPackage { manifest, docs, world, core_instances, ranges })
}

/// The answer of a worker about a package or a bare component.
#[derive(Debug, Serialize, Deserialize)]
pub enum ParseReply {
    /// It is acceptable.
    Parsed(ComponentOutline),
    /// It is not.
    Refused(HostErrorSnapshot<'static>),
    /// Its manifest is not: the host, which shows the lines at fault, reads the text itself.
    ManifestRefused(Range<usize>),
}

/// A component's face, as the worker writes it.
#[derive(Debug, Serialize, Deserialize)]
pub struct ComponentOutline {
    /// None of a bare component.
    sections: Option<SectionRanges>,
    core_instances: u64,
    imports: Vec<ImportDeclaration>,
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
    // Part of the parsing: if it is refused, the host learns the reason.
    if let Err(error) = super::check_named(&parts.manifest, &parts.world.operations) {
        return refused(error);
    }
    ParseReply::Parsed(ComponentOutline::new(Some(parts.ranges), &parts.world, parts.core_instances))
}

/// The same about a component that need not be a package.
pub fn parse_component(bytes: &[u8], patience: Duration) -> ParseReply {
    let parsed = prescan::scan_counting(bytes)
        .and_then(|(_, core_instances)| Ok((decode::decode(bytes, patience)?, core_instances)));
    match parsed {
        Ok((world, core_instances)) => {
            ParseReply::Parsed(ComponentOutline::new(None, &world, core_instances))
        }
        Err(error) => refused(error),
    }
}

fn manifest_range(bytes: &[u8]) -> Option<Range<usize>> {
    let found = prescan::scan(bytes).ok()?;
    sections::find(&found).ok().map(|(manifest, _)| manifest.content())
}

fn refused(error: PackageError) -> ParseReply {
    ParseReply::Refused(HostError::from(error).snapshot().into_owned())
}

impl ParseReply {
    /// The host's side: the operations of a bare component.
    pub fn operations(self) -> Result<Vec<OperationSignature>, HostError> {
        match self {
            Self::Parsed(outline) => Ok(outline.world()?.operations),
            Self::Refused(error) => Err(HostError::from_snapshot(error).unwrap_or_else(unreadable)),
            Self::ManifestRefused(_) => Err(unreadable()),
        }
    }

    /// The host's side: the parts of the package `bytes`. The worker has parsed these sections within its
    /// limits; parsing them again costs as little.
    pub(super) fn parts(self, bytes: &[u8]) -> Result<ParsedPackage, HostError> {
        let outline = match self {
            Self::Parsed(outline) => outline,
            Self::Refused(error) => return Err(HostError::from_snapshot(error).unwrap_or_else(unreadable)),
            Self::ManifestRefused(range) => {
                return match manifest_at(bytes, &range) {
                    Ok(_) => Err(unreadable()),
                    Err(error) => Err(error),
                };
            }
        };
        let ranges = outline.sections.clone().ok_or_else(unreadable)?;
        let manifest = manifest_at(bytes, &ranges.manifest)?;
        let docs = ConnectorDocs::parse(bytes.get(ranges.docs.clone()).ok_or_else(unreadable)?)?;
        let core_instances = outline.core_instances;
        Ok(ParsedPackage { manifest, docs, world: outline.world()?, core_instances, ranges })
    }
}

fn manifest_at(bytes: &[u8], range: &Range<usize>) -> Result<Manifest, HostError> {
    let text = sections::manifest_text(bytes.get(range.clone()).ok_or_else(unreadable)?)?;
    Ok(Manifest::parse(MANIFEST_LABEL, text).map_err(|error| PackageError::Manifest(Box::new(error)))?)
}

/// The error for an answer that no worker of this version gives.
pub fn unreadable() -> HostError {
    HostError::new(HostErrorKind::Configuration, "The compile worker's answer cannot be read.")
        .with_hint("Point Compiler::child at the cofferdam binary of this very version.")
}

impl ComponentOutline {
    fn new(sections: Option<SectionRanges>, world: &ComponentInterface, core_instances: u64) -> Self {
        let mut table = ShapeTable::default();
        let operations = world.operations.iter().map(|operation| table.operation(operation)).collect();
        Self { sections, core_instances, imports: world.imports.clone(), operations, shapes: table.shapes }
    }

    fn world(self) -> Result<ComponentInterface, HostError> {
        let mut shapes: Vec<ValueShape> = Vec::with_capacity(self.shapes.len());
        for wire in self.shapes {
            let shape = wire.shape(&shapes).ok_or_else(unreadable)?;
            shapes.push(shape);
        }
        let operation = |wire: WireOperation| wire.operation(&shapes).ok_or_else(unreadable);
        let operations = self.operations.into_iter().map(operation).collect::<Result<_, _>>()?;
        Ok(ComponentInterface { operations, imports: self.imports })
    }
}

/// Shapes on their way into the table.
#[derive(Default)]
struct ShapeTable {
    shapes: Vec<WireShape>,
    known: HashMap<ShapeKey, usize>,
}

impl ShapeTable {
    fn operation(&mut self, operation: &OperationSignature) -> WireOperation {
        WireOperation {
            interface: operation.interface.clone(),
            name: operation.name.wit().to_owned(),
            params: self.fields(&operation.params),
            result: operation.result.as_ref().map(|shape| self.index(shape)),
        }
    }

    fn fields(&mut self, fields: &[ShapeField]) -> Vec<(String, usize)> {
        fields.iter().map(|field| (field.name.wit().to_owned(), self.index(&field.shape))).collect()
    }

    fn case(&mut self, case: &ShapeCase) -> (String, Option<usize>) {
        (case.name.wit().to_owned(), case.payload.as_ref().map(|payload| self.index(payload)))
    }

    /// The shape's index. Recursion ends with the depth of types, which the parser bounds.
    fn index(&mut self, shape: &ValueShape) -> usize {
        let key = shape.key();
        if let Some(index) = key.and_then(|key| self.known.get(&key)) {
            return *index;
        }
        let wire = match shape {
            ValueShape::Bool => WireShape::Bool,
            ValueShape::Signed(bits) => WireShape::Signed(*bits),
            ValueShape::Unsigned(bits) => WireShape::Unsigned(*bits),
            ValueShape::Float(bits) => WireShape::Float(*bits),
            ValueShape::Char => WireShape::Char,
            ValueShape::String => WireShape::String,
            ValueShape::Bytes => WireShape::Bytes,
            ValueShape::List(item) => WireShape::List(self.index(item)),
            ValueShape::Option(item) => WireShape::Option(self.index(item)),
            ValueShape::Tuple(items) => WireShape::Tuple(items.iter().map(|item| self.index(item)).collect()),
            ValueShape::Result(ok, err) => {
                let ok = ok.as_ref().map(|side| self.index(side));
                WireShape::Result(ok, err.as_ref().map(|side| self.index(side)))
            }
            ValueShape::Record(fields) => WireShape::Record(self.fields(fields)),
            ValueShape::Variant(cases) => {
                WireShape::Variant(cases.iter().map(|case| self.case(case)).collect())
            }
            ValueShape::Enum(names) => {
                WireShape::Enum(names.iter().map(|name| name.wit().to_owned()).collect())
            }
            ValueShape::Flags(names) => {
                WireShape::Flags(names.iter().map(|name| name.wit().to_owned()).collect())
            }
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
    fn operation(self, shapes: &[ValueShape]) -> Option<OperationSignature> {
        Some(OperationSignature {
            name: WitName::from_wit(&self.name),
            interface: self.interface,
            params: fields(&self.params, shapes)?,
            result: part(self.result, shapes)?,
        })
    }
}

impl WireShape {
    fn shape(self, before: &[ValueShape]) -> Option<ValueShape> {
        let at = |index: usize| before.get(index).cloned();
        let boxed = |index: Option<usize>| Some(part(index, before)?.map(Arc::new));
        let names = |names: Vec<String>| names.iter().map(|name| WitName::from_wit(name)).collect();
        Some(match self {
            Self::Bool => ValueShape::Bool,
            Self::Signed(bits) => ValueShape::Signed(bits),
            Self::Unsigned(bits) => ValueShape::Unsigned(bits),
            Self::Float(bits) => ValueShape::Float(bits),
            Self::Char => ValueShape::Char,
            Self::String => ValueShape::String,
            Self::Bytes => ValueShape::Bytes,
            Self::List(item) => ValueShape::List(Arc::new(at(item)?)),
            Self::Option(item) => ValueShape::Option(Arc::new(at(item)?)),
            Self::Tuple(items) => ValueShape::Tuple(items.into_iter().map(at).collect::<Option<_>>()?),
            Self::Result(ok, err) => ValueShape::Result(boxed(ok)?, boxed(err)?),
            Self::Record(these) => ValueShape::Record(fields(&these, before)?.into()),
            Self::Variant(cases) => {
                let case = |(name, payload): (String, Option<usize>)| {
                    Some(ShapeCase { name: WitName::from_wit(&name), payload: part(payload, before)? })
                };
                ValueShape::Variant(cases.into_iter().map(case).collect::<Option<_>>()?)
            }
            Self::Enum(these) => ValueShape::Enum(names(these)),
            Self::Flags(these) => ValueShape::Flags(names(these)),
        })
    }
}

fn fields(wire: &[(String, usize)], shapes: &[ValueShape]) -> Option<Vec<ShapeField>> {
    let field = |(name, index): &(String, usize)| {
        Some(ShapeField { name: WitName::from_wit(name), shape: shapes.get(*index)?.clone() })
    };
    wire.iter().map(field).collect()
}

/// The part with this index, where there is one; none at all where the table has no such index.
#[expect(clippy::option_option, reason = "the outer one is an answer that cannot be read")]
fn part(index: Option<usize>, shapes: &[ValueShape]) -> Option<Option<ValueShape>> {
    match index {
        None => Some(None),
        Some(index) => shapes.get(index).cloned().map(Some),
    }
}

const COMPONENT_TYPE: u8 = 0x41;
const INSTANCE_TYPE: u8 = 0x42;

/// The owner of a run of declarations, which decides the declarations that are allowed in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeclarationScope {
    Section,
    Component,
    Instance,
}

struct NestingLevel {
    body: DeclarationScope,
    left: u32,
}

/// The deepest nesting in the component type section `section` (its count, then its types), which
/// starts at `offset` of the file; stops early once it is deeper than `cap`.
pub(super) fn depth(section: &[u8], offset: usize, cap: usize) -> Result<usize> {
    let mut reader = BinaryReader::new(section, offset);
    let mut levels = vec![NestingLevel { body: DeclarationScope::Section, left: reader.read_var_u32()? }];
    let mut deepest = 1;
    while let Some(level) = levels.last_mut() {
        if level.left == 0 {
            levels.pop();
            continue;
        }
        level.left -= 1;
        if level.body != DeclarationScope::Section && !declaration_is_type(&mut reader, level.body)? {
            continue;
        }
        let mut ahead = reader.clone();
        let body = match ahead.read_u8()? {
            COMPONENT_TYPE => DeclarationScope::Component,
            INSTANCE_TYPE => DeclarationScope::Instance,
            _ => {
                reader.read::<ComponentType<'_>>()?;
                continue;
            }
        };
        reader = ahead;
        levels.push(NestingLevel { body, left: reader.read_var_u32()? });
        deepest = deepest.max(levels.len());
        if deepest > cap {
            break;
        }
    }
    Ok(deepest)
}

/// Reads one declaration, except that a type is left to the caller.
fn declaration_is_type(reader: &mut BinaryReader<'_>, body: DeclarationScope) -> Result<bool> {
    let tag = reader.clone().read_u8()?;
    match (tag, body) {
        (0x00, _) => {
            reader.read_u8()?;
            reader.read::<CoreType<'_>>()?;
        }
        (0x01, _) => {
            reader.read_u8()?;
            return Ok(true);
        }
        (0x02, _) => {
            reader.read_u8()?;
            reader.read::<ComponentAlias<'_>>()?;
        }
        (0x03, DeclarationScope::Component) => {
            reader.read_u8()?;
            reader.read::<ComponentImport<'_>>()?;
        }
        (0x04, _) => {
            reader.read_u8()?;
            reader.read::<ComponentExternName<'_>>()?;
            reader.read::<ComponentTypeRef>()?;
        }
        // Not a declaration at all: this read fails with the parser's own words.
        _ => {
            reader.read::<wasmparser::InstanceTypeDeclaration<'_>>()?;
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

    use super::*;
    use crate::package::{Package, VALIDATION_TIMEOUT, fixture_tests};

    fn sent(reply: &ParseReply) -> ParseReply {
        serde_json::from_slice(&serde_json::to_vec(reply).unwrap()).unwrap()
    }

    #[test]
    fn a_package_from_the_worker_equals_one_parsed_here() {
        let bytes = fixture_tests::package("github://acme/quiet", "1.0.0", "");
        let here = Package::open(bytes.clone()).unwrap();
        let there =
            Package::from_reply(bytes.clone(), sent(&parse_package(&bytes, VALIDATION_TIMEOUT))).unwrap();
        assert_eq!(format!("{here:?}"), format!("{there:?}"));
    }

    #[test]
    fn shared_types_are_sent_once_and_stay_shared() {
        let mut shape = ValueShape::Unsigned(8);
        for _ in 0..10 {
            shape = ValueShape::Tuple(vec![shape.clone(), shape].into());
        }
        let field = |name: &str| ShapeField { name: WitName::from_wit(name), shape: shape.clone() };
        let operation = OperationSignature {
            name: WitName::from_wit("do-it"),
            interface: Some("a:b/c".into()),
            params: vec![field("a"), field("b")],
            result: Some(shape.clone()),
        };
        let world = ComponentInterface {
            operations: vec![operation; 100],
            imports: vec![ImportDeclaration::new("a:b/d", true)],
        };
        let outline = ComponentOutline::new(None, &world, 3);
        assert!(outline.shapes.len() < 30, "{}", outline.shapes.len());
        let text = serde_json::to_string(&outline).unwrap();
        let back = serde_json::from_str::<ComponentOutline>(&text).unwrap().world().unwrap();
        assert_eq!((&back.operations, &back.imports), (&world.operations, &world.imports));
        let [first, .., last] = back.operations.as_slice() else { panic!() };
        assert_eq!(first.result.as_ref().unwrap().key(), last.result.as_ref().unwrap().key());
    }

    #[test]
    fn an_outline_with_an_index_ahead_of_it_is_refused() {
        let text =
            r#"{"sections":null,"core_instances":0,"imports":[],"operations":[],"shapes":[{"List":0}]}"#;
        assert!(serde_json::from_str::<ComponentOutline>(text).unwrap().world().is_err());
    }

    #[test]
    fn the_worker_refuses_with_the_same_error() {
        for bytes in [
            b"not wasm".to_vec(),
            fixture_tests::connector("f: func() -> result<_, failure>;"),
            fixture_tests::connector("f: func() -> u8;"),
        ] {
            let here = HostError::from(Package::open(bytes.clone()).unwrap_err());
            let there = Package::from_reply(bytes.clone(), sent(&parse_package(&bytes, VALIDATION_TIMEOUT)))
                .unwrap_err();
            assert_eq!((here.kind(), here.message()), (there.kind(), there.message()));
            assert_eq!((here.hint(), here.details()), (there.hint(), there.details()));
        }
    }
}
