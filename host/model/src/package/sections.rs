//! The two custom sections that make a component a package: its manifest and its operations' docs.
//!
//! Each is there exactly once, at the top level. A section inside a nested module or component is
//! refused rather than ignored: tools that merge components would otherwise decide which one counts.

use wasm_encoder::{ComponentSection, CustomSection};
use wasmparser::{ConstExpr, DataKind, ElementKind, Payload, TableInit};

use super::docs::ConnectorDocs;
use super::error::PackageError;
use super::prescan::{FoundSection, scan};

/// The section with `connector.toml`, verbatim.
pub const MANIFEST_SECTION: &str = "cofferdam:manifest";
/// The section with the operations' documentation, as JSON.
pub const DOCS_SECTION: &str = "cofferdam:docs";

/// The section with the names of a component's parts, by the component model.
const NAMES_SECTION: &str = "component-name";

/// The larger of them may have this many bytes.
const MAX_SECTION_BYTES: usize = 1024 * 1024;

/// The sections of a package about itself.
#[derive(Debug)]
pub struct PackageSections<'a> {
    /// `connector.toml`, verbatim.
    pub manifest: &'a str,
    /// The operations' documentation.
    pub docs: ConnectorDocs,
}

/// Creates a package: `component` with its manifest and docs.
///
/// # Errors
/// The bytes are not a component, are too costly, or already have one of the sections ([`strip`] removes
/// them).
pub fn embed(component: &[u8], manifest_text: &str, docs: &ConnectorDocs) -> Result<Vec<u8>, PackageError> {
    let found = scan(component)?;
    for section in [MANIFEST_SECTION, DOCS_SECTION] {
        if let Some(already) = found.iter().find(|found| found.name == section) {
            return Err(if already.nested {
                PackageError::SectionNested { section }
            } else {
                PackageError::SectionPresent { section }
            });
        }
    }
    let docs = docs.to_json();
    let mut package = Vec::with_capacity(component.len() + manifest_text.len() + docs.len() + 64);
    package.extend_from_slice(component);
    for (name, data) in [(MANIFEST_SECTION, manifest_text.as_bytes()), (DOCS_SECTION, docs.as_bytes())] {
        fits(name, data)?;
        CustomSection { name: name.into(), data: data.into() }.append_to_component(&mut package);
    }
    Ok(package)
}

/// Returns the component without the sections of a package; unchanged if it has none.
///
/// # Errors
/// The bytes are not a component, are too costly, or have one of the sections in a nested module or
/// component.
pub fn strip(package: &[u8]) -> Result<Vec<u8>, PackageError> {
    without(package, |found| match known(found.name) {
        Some(section) if found.nested => Err(PackageError::SectionNested { section }),
        section => Ok(section.is_some()),
    })
}

/// Returns the component without the names of its parts, which only tools read that show its structure.
///
/// # Errors
/// The bytes are not a component, or are too costly.
pub fn strip_names(component: &[u8]) -> Result<Vec<u8>, PackageError> {
    without(component, |found| Ok(found.name == NAMES_SECTION && !found.nested))
}

fn without(
    component: &[u8],
    is_removed: impl Fn(&FoundSection<'_>) -> Result<bool, PackageError>,
) -> Result<Vec<u8>, PackageError> {
    let mut rest = Vec::with_capacity(component.len());
    let mut kept = 0;
    for found in scan(component)? {
        if is_removed(&found)? {
            rest.extend_from_slice(component.get(kept..found.whole.start).unwrap_or_default());
            kept = found.whole.end;
        }
    }
    rest.extend_from_slice(component.get(kept..).unwrap_or_default());
    Ok(rest)
}

/// Returns the package's sections about itself.
///
/// # Errors
/// The bytes are not a component or too costly, or a section is missing, repeated, nested or unreadable.
pub fn extract(package: &[u8]) -> Result<PackageSections<'_>, PackageError> {
    read(&scan(package)?)
}

fn read<'a>(found: &[FoundSection<'a>]) -> Result<PackageSections<'a>, PackageError> {
    let (manifest, docs) = find(found)?;
    Ok(PackageSections { manifest: manifest_text(manifest.data)?, docs: ConnectorDocs::parse(docs.data)? })
}

/// The manifest's section and that of the docs.
pub(super) fn find<'f, 'a>(
    found: &'f [FoundSection<'a>],
) -> Result<(&'f FoundSection<'a>, &'f FoundSection<'a>), PackageError> {
    Ok((the_one(found, MANIFEST_SECTION)?, the_one(found, DOCS_SECTION)?))
}

/// The content of the manifest's section, as text.
pub(super) fn manifest_text(section: &[u8]) -> Result<&str, PackageError> {
    std::str::from_utf8(section).map_err(|error| PackageError::SectionUnreadable {
        section: MANIFEST_SECTION,
        detail: error.to_string(),
    })
}

fn the_one<'f, 'a>(
    found: &'f [FoundSection<'a>],
    section: &'static str,
) -> Result<&'f FoundSection<'a>, PackageError> {
    let mut these = found.iter().filter(|found| found.name == section);
    let (first, count) = (these.clone().next(), these.clone().count());
    if these.any(|found| found.nested) {
        return Err(PackageError::SectionNested { section });
    }
    match (first, count) {
        (None, _) => Err(PackageError::SectionMissing { section }),
        (Some(only), 1) => fits(section, only.data).map(|()| only),
        (Some(_), count) => Err(PackageError::SectionRepeated { section, count }),
    }
}

/// True for the sections that a scan returns.
pub(super) fn is_noted(name: &str) -> bool {
    name.starts_with("cofferdam:") || name == NAMES_SECTION
}

fn known(name: &str) -> Option<&'static str> {
    [MANIFEST_SECTION, DOCS_SECTION].into_iter().find(|section| *section == name)
}

fn fits(section: &'static str, data: &[u8]) -> Result<(), PackageError> {
    if data.len() > MAX_SECTION_BYTES {
        let detail = format!("it has {} bytes; {MAX_SECTION_BYTES} are allowed", data.len());
        return Err(PackageError::SectionUnreadable { section, detail });
    }
    Ok(())
}

/// Bytes of the longest constant expression in the section, 0 where it has none.
///
/// The items of element segments are not checked: each is one instruction, by its type.
pub(super) fn longest(payload: &Payload<'_>) -> wasmparser::Result<u64> {
    let mut longest = 0;
    let mut note = |expression: &ConstExpr<'_>| {
        longest = longest.max(expression.get_binary_reader().bytes_remaining() as u64);
    };
    match payload {
        Payload::GlobalSection(section) => {
            for global in section.clone() {
                note(&global?.init_expr);
            }
        }
        Payload::TableSection(section) => {
            for table in section.clone() {
                if let TableInit::Expr(expression) = table?.init {
                    note(&expression);
                }
            }
        }
        Payload::ElementSection(section) => {
            for element in section.clone() {
                if let ElementKind::Active { offset_expr, .. } = element?.kind {
                    note(&offset_expr);
                }
            }
        }
        Payload::DataSection(section) => {
            for data in section.clone() {
                if let DataKind::Active { offset_expr, .. } = data?.kind {
                    note(&offset_expr);
                }
            }
        }
        _ => {}
    }
    Ok(longest)
}
