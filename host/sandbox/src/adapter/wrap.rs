//! Assembles the wrapper: the connector, the adapter, and the connections between them.

use cofferdam_model::package::OperationSignature;
use wasm_encoder::{
    Alias, CanonicalFunctionSection, CanonicalOption, Component, ComponentAliasSection, ComponentExportKind,
    ComponentExportSection, ComponentImportSection, ComponentInstanceSection, ComponentSectionId,
    ComponentTypeRef, ExportKind, InstanceSection, ModuleArg, ModuleSection, NestedComponentSection,
    RawSection,
};

use super::imports::{self, CopyRefusal};
use super::types::{AdapterTypes, TypeNaming};
use super::{INSTANCE, modules};
use crate::values::{CoreSignature, OperationLayout};

/// The name of the function for the operation number `at`.
pub(crate) fn export_name(at: usize) -> String {
    format!("f{at}")
}

/// The wrapper around `component`, for all its operations. The compiler validates it: a
/// component with a peculiarity that the wrapper does not support runs without it.
pub(crate) fn wrap(
    component: &[u8],
    operations: &[OperationSignature],
    layouts: &[OperationLayout],
) -> Result<Vec<u8>, CopyRefusal> {
    let entries: Vec<AdapterEntry<'_>> = operations
        .iter()
        .zip(layouts)
        .enumerate()
        .map(|(at, (operation, layout))| AdapterEntry {
            name: export_name(at),
            operation,
            signature: layout.signature(),
        })
        .collect();
    assemble(component, &entries)
}

/// An operation that goes through the adapter.
pub(super) struct AdapterEntry<'o> {
    /// Its name in the wrapper.
    pub(super) name: String,
    pub(super) operation: &'o OperationSignature,
    pub(super) signature: CoreSignature,
}

fn assemble(component: &[u8], entries: &[AdapterEntry<'_>]) -> Result<Vec<u8>, CopyRefusal> {
    let mut outer = Component::new();
    let imports = imports::copy(component, &mut outer)?;
    outer.section(&RawSection { id: ComponentSectionId::Component.into(), data: component });
    outer.section(&NestedComponentSection(&build_adapter(entries)));

    let connector = imports.instance_count;
    let mut instances = ComponentInstanceSection::new();
    let args = imports.instances.iter().map(|(name, at)| (name.as_str(), ComponentExportKind::Instance, *at));
    instances.instantiate(0, args.collect::<Vec<_>>());
    outer.section(&instances);

    // The operations: functions 0, 1, .. of the wrapper.
    let mut aliases = ComponentAliasSection::new();
    let mut next_instance = connector + 1;
    let mut interfaces: Vec<(&str, u32)> = Vec::new();
    for AdapterEntry { operation, .. } in entries {
        let known = interfaces.iter().find(|(name, _)| Some(*name) == operation.interface());
        let instance = match (operation.interface(), known) {
            (None, _) => connector,
            (Some(_), Some((_, instance))) => *instance,
            (Some(name), None) => {
                let kind = ComponentExportKind::Instance;
                aliases.alias(Alias::InstanceExport { instance: connector, kind, name });
                interfaces.push((name, next_instance));
                next_instance += 1;
                next_instance - 1
            }
        };
        let (kind, name) = (ComponentExportKind::Func, operation.name().wit());
        aliases.alias(Alias::InstanceExport { instance, kind, name });
    }
    outer.section(&aliases);

    let mut types = AdapterTypes::new(&mut outer, imports.type_count, TypeNaming::Nothing);
    types.all(entries);
    let types = types.nominal();
    let mut args = Vec::with_capacity(types.len() + entries.len());
    for (at, index) in types.into_iter().enumerate() {
        args.push((AdapterTypes::name(at), ComponentExportKind::Type, index));
    }
    for (entry, index) in entries.iter().zip(0..) {
        args.push((entry.name.clone(), ComponentExportKind::Func, index));
    }
    let mut instances = ComponentInstanceSection::new();
    instances.instantiate(
        1,
        args.iter().map(|(name, kind, index)| (name.as_str(), *kind, *index)).collect::<Vec<_>>(),
    );
    outer.section(&instances);
    let mut exports = ComponentExportSection::new();
    exports.export(INSTANCE, ComponentExportKind::Instance, next_instance, None);
    outer.section(&exports);
    Ok(outer.finish())
}

/// The component that takes operations and exports functions from bytes to bytes.
fn build_adapter(entries: &[AdapterEntry<'_>]) -> Component {
    let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    let mut adapter = Component::new();
    let mut types = AdapterTypes::new(&mut adapter, 0, TypeNaming::Imported);
    types.all(entries);
    let functions: Vec<u32> = entries.iter().map(|entry| types.operation(entry.operation)).collect();
    let bytes = types.bytes_function();
    let mut imports = ComponentImportSection::new();
    for (entry, function) in entries.iter().zip(functions) {
        imports.import(entry.name.as_str(), ComponentTypeRef::Func(function));
    }
    adapter.section(&imports);

    adapter.section(&ModuleSection(&modules::memory()));
    adapter.section(&ModuleSection(&modules::entries(entries.iter().map(|entry| &entry.signature))));
    let mut instances = InstanceSection::new();
    instances.instantiate(0, [("", ModuleArg::Instance(0)); 0]);
    adapter.section(&instances);
    let mut aliases = ComponentAliasSection::new();
    aliases.alias(Alias::CoreInstanceExport { instance: 0, kind: ExportKind::Memory, name: "memory" });
    aliases.alias(Alias::CoreInstanceExport { instance: 0, kind: ExportKind::Func, name: "realloc" });
    adapter.section(&aliases);
    let options = [CanonicalOption::UTF8, CanonicalOption::Memory(0), CanonicalOption::Realloc(0)];

    // Core functions: realloc, the operations, the entries.
    let mut lowered = CanonicalFunctionSection::new();
    for at in 0..count {
        lowered.lower(at, options);
    }
    adapter.section(&lowered);
    let names: Vec<String> = (0..count).map(|at| at.to_string()).collect();
    let mut instances = InstanceSection::new();
    let functions: Vec<_> =
        names.iter().zip(1..).map(|(name, at)| (name.as_str(), ExportKind::Func, at)).collect();
    instances.export_items(functions);
    instances.instantiate(1, [("m", ModuleArg::Instance(0)), ("f", ModuleArg::Instance(1))]);
    adapter.section(&instances);
    let mut aliases = ComponentAliasSection::new();
    for name in &names {
        aliases.alias(Alias::CoreInstanceExport { instance: 2, kind: ExportKind::Func, name });
    }
    adapter.section(&aliases);
    let mut lifted = CanonicalFunctionSection::new();
    for at in 0..count {
        lifted.lift(1 + count + at, bytes, options);
    }
    adapter.section(&lifted);
    let mut exports = ComponentExportSection::new();
    for (entry, function) in entries.iter().zip(count..) {
        exports.export(entry.name.as_str(), ComponentExportKind::Func, function, None);
    }
    adapter.section(&exports);
    adapter
}
