//! The part of a component that declares its imports, copied so that the wrapper has the same imports.

use wasm_encoder::{Component, RawSection};
use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentOuterAliasKind, ComponentTypeRef, Parser, Payload,
};

/// The copied imports, and how many indices their sections took.
#[derive(Debug, Default)]
pub(super) struct AdapterImports {
    /// Each import with its instance.
    pub(super) instances: Vec<(String, u32)>,
    pub(super) instance_count: u32,
    pub(super) type_count: u32,
}

/// The reason why a component cannot be copied, as the end of a sentence that begins with "it".
pub(super) type CopyRefusal = &'static str;

/// Copies every section up to the last import that defines types or imports. Index spaces stay the same, so
/// that the sections can be copied byte for byte; anything that would shift them is refused.
pub(super) fn copy(component: &[u8], into: &mut Component) -> Result<AdapterImports, CopyRefusal> {
    let mut imports = AdapterImports::default();
    let mut left = import_sections(component)?;
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        if left == 0 {
            break;
        }
        let payload = payload.map_err(|_| "is malformed")?;
        match &payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > 0 || matches!(payload, Payload::End(_)) {
            continue;
        }
        match &payload {
            Payload::ComponentTypeSection(section) => imports.type_count += section.count(),
            Payload::CoreTypeSection(_) => {}
            Payload::ComponentImportSection(section) => {
                left -= 1;
                for import in section.clone() {
                    let import = import.map_err(|_| "is malformed")?;
                    match import.ty {
                        ComponentTypeRef::Instance(_) => {
                            let name = import.name.name.to_owned();
                            imports.instances.push((name, imports.instance_count));
                            imports.instance_count += 1;
                        }
                        _ => return Err("imports something that is not an instance"),
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    match alias.map_err(|_| "is malformed")? {
                        ComponentAlias::InstanceExport { kind: ComponentExternalKind::Type, .. }
                        | ComponentAlias::Outer { kind: ComponentOuterAliasKind::Type, .. } => {
                            imports.type_count += 1;
                        }
                        _ => {
                            return Err(
                                "takes something else than a type out of an import before its last import",
                            );
                        }
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    match export.map_err(|_| "is malformed")?.kind {
                        ComponentExternalKind::Type => imports.type_count += 1,
                        _ => return Err("exports something else than a type before its last import"),
                    }
                }
            }
            Payload::Version { .. } | Payload::CustomSection(_) => continue,
            _ => return Err("defines functions or instances before its last import"),
        }
        if let Some((id, range)) = payload.as_section() {
            let data = component.get(range).ok_or("is malformed")?;
            into.section(&RawSection { id, data });
        }
    }
    Ok(imports)
}

/// The import sections at the top level.
fn import_sections(component: &[u8]) -> Result<u32, CopyRefusal> {
    let (mut count, mut depth) = (0, 0_usize);
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(|_| "is malformed")? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(_) if depth == 0 => count += 1,
            _ => {}
        }
    }
    Ok(count)
}
