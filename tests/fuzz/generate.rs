//! Random components: complete ones of any shape, and connectors around a random core module.

use arbitrary::Unstructured;
use wasm_smith::{Component, Config, Module};
use wasmparser::{ExternalKind, FuncType, Payload, RefType, ValType};

use super::mutate::{component, sections};
use super::random::Random;
use cofferdam_test_support::package;

/// Mostly what is on here; now and then every proposal, to be refused.
fn proposals(on: bool) -> Config {
    Config {
        exceptions_enabled: on,
        // External references are off, and wasm-smith cannot distinguish them from tables of functions.
        reference_types_enabled: on,
        gc_enabled: on,
        memory64_enabled: on,
        max_memories: 1 + usize::from(on),
        relaxed_simd_enabled: on,
        tail_call_enabled: on,
        threads_enabled: on,
        extended_const_enabled: on,
        ..Config::default()
    }
}

/// Any component that wasm-smith can generate, valid or nearly: most are not connectors.
pub(super) fn any_component(random: &mut Random) -> Option<Vec<u8>> {
    let size = 1 << (6 + random.below(7));
    let data = random.bytes(size);
    let config = Config {
        max_memory32_bytes: 1 << 20,
        max_table_elements: 1_000,
        max_imports: 100 * random.below(2),
        ..proposals(random.below(4) == 0)
    };
    Component::new(config, &mut Unstructured::new(&data)).ok().map(|component| component.to_bytes())
}

/// A connector that holds any component, and now and then makes an instance of it.
pub(super) fn holding_any_component(random: &mut Random) -> Option<Vec<u8>> {
    let inner = any_component(random)?;
    let mut sections = sections(&package::quiet())?;
    sections.insert(0, (4, inner));
    if random.below(2) == 0 {
        // One instance, of the first component, with nothing given to it.
        sections.push((5, vec![1, 0, 0, 0]));
    }
    Some(component(&sections))
}

/// A connector whose only operation calls every export of a random core module, which may have a start
/// function, trap, spin, recurse and grow.
pub(super) fn connector(random: &mut Random) -> Option<Vec<u8>> {
    let size = 1 << (9 + random.below(5));
    let data = random.bytes(size);
    let config = Config {
        max_imports: 0,
        min_funcs: 1,
        max_funcs: 12,
        max_instructions: 200,
        export_everything: true,
        max_memory32_bytes: 1 << (16 + random.below(6)),
        max_table_elements: 1_000,
        ..proposals(random.below(10) == 0)
    };
    let module = Module::new(config, &mut Unstructured::new(&data)).ok()?.to_bytes();
    around(&module)
}

/// The connector around `module`: generated as text with a stand-in of the same exports, which it replaces.
fn around(module: &[u8]) -> Option<Vec<u8>> {
    let exports = exports(module)?;
    let (mut stand_in, mut imports, mut calls) = (String::new(), String::new(), String::new());
    for (at, ty) in exports.iter().enumerate() {
        let word = |types: &[ValType]| types.iter().map(|ty| text(*ty)).collect::<Option<Vec<_>>>();
        let (params, results) = (word(ty.params())?, word(ty.results())?);
        let signature = format!(
            "(param {}) (result {})",
            params.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" "),
            results.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" "),
        );
        stand_in += &format!("(func (export \"{at}\") {signature} unreachable)\n");
        imports += &format!("(import \"r\" \"{at}\" (func $f{at} {signature}))\n");
        let arguments: String = params.iter().map(|(_, zero)| *zero).collect::<Vec<_>>().join(" ");
        calls += &format!("{arguments} call $f{at} {}\n", "drop ".repeat(results.len()));
    }
    let text = format!(
        r#"(core module $r {stand_in})
           (core module $m {imports} (memory (export "memory") 1)
             (func (export "run") (result i32) {calls} i32.const 0))
           (core instance $ri (instantiate $r))
           (core instance $i (instantiate $m (with "r" (instance $ri))))
           (alias core export $i "memory" (core memory $memory))
           (func (export "run") (result (result (error $failure)))
             (canon lift (core func $i "run") (memory $memory)))"#
    );
    let mut sections = sections(&package::component(&text))?;
    let place = sections.iter_mut().find(|(id, _)| *id == 1)?;
    place.1 = renamed(module, exports.len())?;
    Some(component(&sections))
}

/// The types of the functions that `module` exports, in the order of its exports.
fn exports(module: &[u8]) -> Option<Vec<FuncType>> {
    let (mut types, mut functions, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for payload in wasmparser::Parser::new(0).parse_all(module) {
        match payload.ok()? {
            Payload::TypeSection(section) => {
                types = section.into_iter_err_on_gc_types().collect::<Result<_, _>>().ok()?;
            }
            Payload::FunctionSection(section) => {
                functions = section.into_iter().collect::<Result<_, _>>().ok()?;
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.ok()?;
                    if export.kind == ExternalKind::Func {
                        let ty: &u32 = functions.get(export.index as usize)?;
                        let ty: &FuncType = types.get(*ty as usize)?;
                        found.push((export.index, ty.clone()));
                    }
                }
            }
            _ => {}
        }
    }
    (!found.is_empty()).then(|| found.into_iter().map(|(_, ty)| ty).collect())
}

/// `module` with its functions exported as "0", "1", .. and nothing else.
fn renamed(module: &[u8], count: usize) -> Option<Vec<u8>> {
    let mut indices = Vec::new();
    for payload in wasmparser::Parser::new(0).parse_all(module) {
        if let Payload::ExportSection(section) = payload.ok()? {
            let functions = section.into_iter().flatten().filter(|export| export.kind == ExternalKind::Func);
            indices.extend(functions.map(|export| export.index));
        }
    }
    let mut exports = wasm_encoder::ExportSection::new();
    for (name, index) in indices.into_iter().take(count).enumerate() {
        exports.export(&name.to_string(), wasm_encoder::ExportKind::Func, index);
    }
    let mut sections = sections(module)?;
    let place = sections.iter_mut().find(|(id, _)| *id == 7)?;
    let mut encoded = Vec::new();
    wasm_encoder::Encode::encode(&exports, &mut encoded);
    // The output of `encode` begins with its length.
    let skip = encoded.iter().position(|byte| byte & 0x80 == 0)? + 1;
    place.1 = encoded.get(skip..)?.to_vec();
    let mut bytes = component(&sections);
    bytes[..8].copy_from_slice(b"\0asm\x01\0\0\0");
    Some(bytes)
}

/// A type's name, and a value of it, as text.
fn text(ty: ValType) -> Option<(&'static str, &'static str)> {
    Some(match ty {
        ValType::I32 => ("i32", "i32.const 65535"),
        ValType::I64 => ("i64", "i64.const -1"),
        ValType::F32 => ("f32", "f32.const nan"),
        ValType::F64 => ("f64", "f64.const 1e300"),
        ValType::V128 => ("v128", "v128.const i64x2 1 2"),
        ValType::Ref(RefType::FUNCREF) => ("funcref", "ref.null func"),
        ValType::Ref(_) => return None,
    })
}
