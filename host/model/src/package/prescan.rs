//! One cheap pass over the bytes before anything else reads them: what kind of file it is, and whether
//! it could cost more than any connector needs.
//!
//! Nothing in wasmtime bounds compilation, and a few hundred bytes can ask for gigabytes: components
//! that instantiate each other multiply, sections and types nest. The pass is linear, never recursive, and
//! keeps only counts. It runs wherever packages are parsed: in the compile worker, which has limits of memory
//! and time, and in the caller's process for packages that are trusted.
//!
//! The caps leave room for interpreters compiled to components: CPython, as componentize-py packs it,
//! is 18 MB with 14 modules and 13,000 functions, the largest of 427 KB.

use std::ops::Range;

use wasmparser::{
    Chunk, ComponentAlias, ComponentExport, ComponentExternalKind, ComponentInstance,
    ComponentOuterAliasKind, ComponentTypeRef, Instance, Parser, Payload, SectionLimited,
};

use super::error::{FileKind, PackageError, printable};
use super::{outline, sections};

/// The largest package, in bytes.
pub const MAX_BYTES: u64 = 64 * 1024 * 1024;
const MAX_DEPTH: usize = 16;
const MAX_TYPE_DEPTH: usize = 32;
/// Instances after every nested instantiation is carried out.
const MAX_INSTANCES: u64 = 1_000;
/// Bytes of component-level definitions, those of an instantiated component counted each time.
const MAX_DEFINITION_BYTES: u64 = 2 * 1024 * 1024;
const MAX_IMPORTS: u64 = 200;
const MAX_EXPORTS: u64 = 2_000;
const MAX_NAME_BYTES: u64 = 256;
const MAX_MODULES: u64 = 500;
const MAX_FUNCTIONS: u64 = 100_000;
const MAX_BODY_BYTES: u64 = 1024 * 1024;
/// A base and an offset to it, where toolchains link at load, take 12.
const MAX_CONSTANT_BYTES: u64 = 64;
/// Types, imports, exports, globals, tables, memories and segments of all core modules.
const MAX_CORE_ITEMS: u64 = 500_000;

/// A custom section of the package's own, or that of names, where it was found.
#[derive(Debug)]
pub(super) struct FoundSection<'a> {
    pub(super) name: &'a str,
    pub(super) data: &'a [u8],
    /// The section with its header, in the file.
    pub(super) whole: Range<usize>,
    pub(super) nested: bool,
}

impl FoundSection<'_> {
    /// The section's content, in the file: what ends it.
    pub(super) fn content(&self) -> Range<usize> {
        self.whole.end.saturating_sub(self.data.len())..self.whole.end
    }
}

/// The cost of one instantiation of a component, including everything inside it.
#[derive(Debug, Clone, Copy, Default)]
struct InstantiationCost {
    instances: u64,
    /// Those of core modules, among them.
    core_instances: u64,
    bytes: u64,
}

impl InstantiationCost {
    fn add(&mut self, other: InstantiationCost) {
        self.instances = self.instances.saturating_add(other.instances);
        self.core_instances = self.core_instances.saturating_add(other.core_instances);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

struct ParserFrame {
    parser: Parser,
    component: bool,
    /// The component index space: what instantiating each would cost.
    components: Vec<InstantiationCost>,
    weight: InstantiationCost,
}

impl ParserFrame {
    fn new(parser: Parser, component: bool) -> Self {
        Self { parser, component, components: Vec::new(), weight: InstantiationCost::default() }
    }
}

#[derive(Default)]
struct ItemTotals {
    modules: u64,
    functions: u64,
    core_items: u64,
    imports: u64,
    exports: u64,
}

/// Checks `bytes` against every cap and returns the package's own custom sections and those of names, in order.
pub(super) fn scan(bytes: &[u8]) -> Result<Vec<FoundSection<'_>>, PackageError> {
    scan_counting(bytes).map(|(found, _)| found)
}

/// As [`scan`], and the core modules that one instantiation of the component instantiates.
pub(super) fn scan_counting(bytes: &[u8]) -> Result<(Vec<FoundSection<'_>>, u64), PackageError> {
    check_kind(bytes)?;
    let mut found = Vec::new();
    let mut totals = ItemTotals::default();
    // Of the frame that ended last, which in the end is the component itself.
    let mut core_instances = 0;
    let mut frames = vec![ParserFrame::new(Parser::new(0), true)];
    let mut offset = 0;
    while let Some(frame) = frames.last_mut() {
        let rest = bytes.get(offset..).unwrap_or_default();
        let (payload, consumed) =
            match frame.parser.parse(rest, true).map_err(|e| PackageError::malformed(&e))? {
                Chunk::Parsed { payload, consumed } => (payload, consumed),
                Chunk::NeedMoreData(_) => {
                    return Err(PackageError::Malformed { offset, detail: "the file ends too early".into() });
                }
            };
        let start = offset;
        offset += consumed;
        match payload {
            Payload::ModuleSection { parser, .. } => {
                add("too many core modules", &mut totals.modules, 1, MAX_MODULES)?;
                frames.push(ParserFrame::new(parser, false));
                within("modules and components nested too deep", frames.len() as u64, MAX_DEPTH as u64)?;
            }
            Payload::ComponentSection { parser, .. } => {
                frames.push(ParserFrame::new(parser, true));
                within("modules and components nested too deep", frames.len() as u64, MAX_DEPTH as u64)?;
            }
            Payload::End(_) => {
                let Some(ended) = frames.pop() else { break };
                core_instances = ended.weight.core_instances;
                if let (true, Some(parent)) = (ended.component, frames.last_mut()) {
                    parent.components.push(ended.weight);
                }
            }
            Payload::CustomSection(section) if sections::is_noted(section.name()) => {
                found.push(FoundSection {
                    name: section.name(),
                    data: section.data(),
                    whole: start..offset,
                    nested: frames.len() > 1,
                })
            }
            Payload::CustomSection(_) => {}
            payload if frame.component => {
                let bytes_of_it =
                    InstantiationCost { bytes: consumed as u64, ..InstantiationCost::default() };
                frame.weight.add(bytes_of_it);
                component_section(&payload, bytes, &mut frames, &mut totals)?;
                let weight = frames.last().map(|frame| frame.weight).unwrap_or_default();
                within("too many instances, nested ones multiplied", weight.instances, MAX_INSTANCES)?;
                within(
                    "too many definitions (in bytes), nested ones multiplied",
                    weight.bytes,
                    MAX_DEFINITION_BYTES,
                )?;
            }
            payload => module_section(&payload, &mut totals)?,
        }
    }
    Ok((found, core_instances))
}

/// Checks the size and the first bytes, before a parser reads any.
pub fn check_kind(bytes: &[u8]) -> Result<(), PackageError> {
    within("more bytes than a package may have", bytes.len() as u64, MAX_BYTES)?;
    other_kind(bytes).map_or(Ok(()), |found| Err(PackageError::NotAComponent { found }))
}

/// Returns the kind of file that the first bytes show, unless they are a component's.
fn other_kind(bytes: &[u8]) -> Option<FileKind> {
    const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
    const MODULE: &[u8] = b"\0asm\x01\0\0\0";
    // The magic numbers of gzip, zstd, zip, xz, bzip2.
    const PACKED: [&[u8]; 5] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"\xfd7zXZ", b"BZh"];
    // ELF, Mach-O, PE.
    const NATIVE: [&[u8]; 3] = [b"\x7fELF", b"\xcf\xfa\xed\xfe", b"MZ"];
    let starts = |magic: &[u8]| bytes.starts_with(magic);
    let kind = match bytes {
        [] => FileKind::Empty,
        _ if starts(COMPONENT) => return None,
        _ if starts(MODULE) => FileKind::CoreModule,
        // Cut within its header: the parser says so.
        _ if COMPONENT.starts_with(bytes) => return None,
        _ if starts(b"\0asm") => FileKind::OtherVersion,
        _ if NATIVE.iter().any(|magic| starts(magic)) => FileKind::Native,
        _ if PACKED.iter().any(|magic| starts(magic)) => FileKind::Archive,
        _ if is_wat(bytes) => FileKind::Text,
        _ => FileKind::Unknown,
    };
    Some(kind)
}

fn is_wat(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    text.starts_with(b"(module")
        || text.starts_with(b"(component")
        || text.starts_with(b"(;")
        || text.starts_with(b";;")
}

fn component_section(
    payload: &Payload<'_>,
    bytes: &[u8],
    frames: &mut [ParserFrame],
    totals: &mut ItemTotals,
) -> Result<(), PackageError> {
    let top = frames.len() == 1;
    match payload {
        Payload::ComponentTypeSection(section) => {
            let range = section.range();
            let content = bytes.get(range.clone()).unwrap_or_default();
            let depth = outline::depth(content, range.start, MAX_TYPE_DEPTH)
                .map_err(|e| PackageError::malformed(&e))?;
            within("types nested too deep", depth as u64, MAX_TYPE_DEPTH as u64)
        }
        Payload::ComponentImportSection(section) => each(section, |import| {
            if top {
                add("too many imports", &mut totals.imports, 1, MAX_IMPORTS)?;
            }
            name_fits(import.name.name)?;
            if let ComponentTypeRef::Component(_) = import.ty {
                // The component for its instantiation is only known outside, so its cost is unknown.
                return Err(unsupported("imports a component", import.name.name));
            }
            Ok(())
        }),
        Payload::ComponentExportSection(section) => each(section, |export: ComponentExport<'_>| {
            if top {
                add("too many exports", &mut totals.exports, 1, MAX_EXPORTS)?;
            }
            name_fits(export.name.name)?;
            if export.kind == ComponentExternalKind::Component {
                // An export is a new index for the same component.
                push_component(frames, 0, export.index);
            }
            Ok(())
        }),
        Payload::ComponentAliasSection(section) => each(section, |alias| match alias {
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
                push_component(frames, count, index);
                Ok(())
            }
            ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, name, .. } => {
                Err(unsupported("takes a component out of an instance", name))
            }
            _ => Ok(()),
        }),
        Payload::InstanceSection(section) => each(section, |instance| {
            let core_instances = u64::from(matches!(instance, Instance::Instantiate { .. }));
            let weight = InstantiationCost { instances: 1, core_instances, bytes: 0 };
            frames.iter_mut().last().into_iter().for_each(|frame| frame.weight.add(weight));
            Ok(())
        }),
        Payload::ComponentInstanceSection(section) => each(section, |instance| {
            let mut weight = InstantiationCost { instances: 1, ..InstantiationCost::default() };
            if let ComponentInstance::Instantiate { component_index, .. } = instance {
                weight.add(component_at(frames, 0, component_index));
            }
            frames.iter_mut().last().into_iter().for_each(|frame| frame.weight.add(weight));
            Ok(())
        }),
        _ => Ok(()),
    }
}

/// The weight of a component of the frame `outward` steps out; nothing where there is none, which
/// validation refuses later.
fn component_at(frames: &[ParserFrame], outward: u32, index: u32) -> InstantiationCost {
    let frame = frames.iter().rev().nth(outward as usize);
    frame.and_then(|frame| frame.components.get(index as usize)).copied().unwrap_or_default()
}

fn push_component(frames: &mut [ParserFrame], outward: u32, index: u32) {
    let weight = component_at(frames, outward, index);
    if let Some(frame) = frames.last_mut() {
        frame.components.push(weight);
    }
}

fn module_section(payload: &Payload<'_>, totals: &mut ItemTotals) -> Result<(), PackageError> {
    let constant = sections::longest(payload).map_err(|e| PackageError::malformed(&e))?;
    within("a constant expression too long (in bytes)", constant, MAX_CONSTANT_BYTES)?;
    let items = match payload {
        Payload::CodeSectionStart { count, .. } => {
            return add("too many functions", &mut totals.functions, u64::from(*count), MAX_FUNCTIONS);
        }
        Payload::CodeSectionEntry(body) => {
            let bytes = body.range().len() as u64;
            return within("a function too large (in bytes)", bytes, MAX_BODY_BYTES);
        }
        Payload::FunctionSection(section) => {
            return within("too many functions", u64::from(section.count()), MAX_FUNCTIONS);
        }
        Payload::TypeSection(section) => section.count(),
        Payload::ImportSection(section) => section.count(),
        Payload::ExportSection(section) => section.count(),
        Payload::GlobalSection(section) => section.count(),
        Payload::TableSection(section) => section.count(),
        Payload::MemorySection(section) => section.count(),
        Payload::TagSection(section) => section.count(),
        Payload::ElementSection(section) => section.count(),
        Payload::DataSection(section) => section.count(),
        _ => 0,
    };
    add("too many items in its core modules", &mut totals.core_items, u64::from(items), MAX_CORE_ITEMS)
}

fn each<'a, T: wasmparser::FromReader<'a>>(
    section: &SectionLimited<'a, T>,
    mut visit: impl FnMut(T) -> Result<(), PackageError>,
) -> Result<(), PackageError> {
    for item in section.clone() {
        visit(item.map_err(|e| PackageError::malformed(&e))?)?;
    }
    Ok(())
}

fn name_fits(name: &str) -> Result<(), PackageError> {
    within("an import or export with too long a name (in bytes)", name.len() as u64, MAX_NAME_BYTES)
}

fn unsupported(what: &str, name: &str) -> PackageError {
    PackageError::Unsupported { detail: format!("{what} (`{}`)", printable(name)) }
}

fn add(what: &'static str, total: &mut u64, more: u64, limit: u64) -> Result<(), PackageError> {
    *total = total.saturating_add(more);
    within(what, *total, limit)
}

fn within(what: &'static str, found: u64, limit: u64) -> Result<(), PackageError> {
    if found > limit { Err(PackageError::TooCostly { what, found, limit }) } else { Ok(()) }
}
