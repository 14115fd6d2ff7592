//! Components for tests, made from WIT text against the contract's own files.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fixture")]

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::WasmType;
use wit_parser::{
    Function, LiftLowerAbi, ManglingAndAbi, Resolve, WasmExport, WasmExportKind, WasmImport, WorldId,
    WorldItem, WorldKey,
};

use super::{ConnectorDocs, embed};

/// The contract's WIT directory.
fn contract() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit")
}

/// A component of the world `it` in `wit`; its functions trap when called.
pub(crate) fn component(wit: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    resolve.push_dir(contract()).unwrap();
    component_in(resolve, wit)
}

/// The same, where `wit` brings all the packages that it uses.
pub(crate) fn component_in(mut resolve: Resolve, wit: &str) -> Vec<u8> {
    let package = resolve.push_str("test.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some("it")).unwrap();
    component_of(&resolve, world)
}

/// A component of `world`; its functions trap when called.
pub(crate) fn component_of(resolve: &Resolve, world: WorldId) -> Vec<u8> {
    let mut module = dummy(resolve, world);
    embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap()
}

/// Legacy names, which every toolchain still speaks.
const NAMES: ManglingAndAbi = ManglingAndAbi::Legacy(LiftLowerAbi::Sync);

/// A core module with every import and export of `world`, whose functions trap.
fn dummy(resolve: &Resolve, world: WorldId) -> Vec<u8> {
    let world = &resolve.worlds[world];
    let mut wat = String::from("(module\n");
    for (interface, function) in world.imports.iter().flat_map(|(key, item)| functions(resolve, key, item)) {
        let name = WasmImport::Func { interface, func: function };
        let (module, name) = resolve.wasm_import_name(NAMES, name);
        let signature = signature(resolve, function, NAMES.import_variant());
        wat += &format!("(import {module:?} {name:?} (func {signature}))\n");
    }
    for (interface, function) in world.exports.iter().flat_map(|(key, item)| functions(resolve, key, item)) {
        let name = WasmExport::Func { interface, func: function, kind: WasmExportKind::Normal };
        let name = resolve.wasm_export_name(NAMES, name);
        let signature = signature(resolve, function, NAMES.export_variant());
        wat += &format!("(func (export {name:?}) {signature} unreachable)\n");
    }
    wat += "(memory (export \"memory\") 1)
        (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) unreachable))";
    wat::parse_str(&wat).unwrap()
}

fn functions<'r>(
    resolve: &'r Resolve,
    key: &'r WorldKey,
    item: &'r WorldItem,
) -> Vec<(Option<&'r WorldKey>, &'r Function)> {
    match item {
        WorldItem::Function(function) => vec![(None, function)],
        WorldItem::Interface { id, .. } => {
            resolve.interfaces[*id].functions.values().map(|function| (Some(key), function)).collect()
        }
        WorldItem::Type { .. } => Vec::new(),
    }
}

fn signature(resolve: &Resolve, function: &Function, variant: wit_parser::abi::AbiVariant) -> String {
    let signature = resolve.wasm_signature(variant, function);
    let types = |kind: &str, types: &[WasmType]| match types {
        [] => String::new(),
        types => format!("({kind} {})", types.iter().map(|ty| word(*ty)).collect::<Vec<_>>().join(" ")),
    };
    types("param", &signature.params) + &types("result", &signature.results)
}

fn word(ty: WasmType) -> &'static str {
    match ty {
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
    }
}

/// A world that exports the interface `ops` with `items`, after a line that uses `failure`.
pub(crate) fn connector(items: &str) -> Vec<u8> {
    component(&format!(
        "package acme:test@1.2.3;
         interface ops {{ use cofferdam:connector/types@0.1.0.{{failure}}; {items} }}
         world it {{ export ops; }}"
    ))
}

/// A manifest with nothing but a name and a version.
pub(crate) fn manifest(name: &str, version: &str) -> String {
    format!("[connector]\nname = \"{name}\"\nversion = \"{version}\"\n")
}

/// A package of one operation; `salt` makes its bytes different.
pub(crate) fn package(name: &str, version: &str, salt: &str) -> Vec<u8> {
    let component = connector("greet: func(name: string) -> result<string, failure>;");
    embed(&component, &format!("# {salt}\n{}", manifest(name, version)), &ConnectorDocs::default()).unwrap()
}
