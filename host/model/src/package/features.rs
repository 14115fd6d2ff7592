//! The accepted WebAssembly features, decided once: the validator of packages and the engine both take this
//! set.
//!
//! Everything else is off. An enabled proposal is compiler and runtime code that an untrusted component can
//! reach; one that no toolchain for `wasm32-wasip2` emits has no benefit for that cost. New proposals of a
//! newer engine stay off until they are listed here with a reason.

use wasmparser::WasmFeatures;

/// The proposals that are on: WebAssembly 2.0, extended constants and the component model.
pub const FEATURES: WasmFeatures = WasmFeatures::FLOATS
    // The features that LLVM emits for its generic WebAssembly target, and so Rust, C, C++, Zig and TinyGo:
    // globals that change (the stack pointer), sign extension, conversions that do not trap, several results,
    // memory.copy and memory.fill, tables with more than one use, the long form of a table's index.
    .union(WasmFeatures::MUTABLE_GLOBAL)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::REFERENCE_TYPES)
    // Deterministic, bounded like any other instruction, and what parsers of JSON are built with.
    .union(WasmFeatures::SIMD)
    // Modules that are linked at load, as componentize-py's CPython is: addresses are a base and an offset.
    // Computed at every instantiation, before the first unit of fuel, so their length is bounded (prescan).
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::COMPONENT_MODEL);

// Off, each for its own reason where "no toolchain needs it" is not all there is to say:
//   GC, GC types, exceptions, function references: a collector with a heap of its own in the host.
//   threads, shared-everything-threads: memory that grows past the limiter, and races.
//   memory64, custom page sizes: memories whose bounds and sizes the limits were not made for.
//   multi-memory: the pool's slots are made for one memory a module. (The engine has it on for modules that
//   wasmtime itself makes.)
//   relaxed SIMD: other results on other machines.
//   tail calls: a loop that no stack limit sees; fuel would, but there is no demand for it.
//   wide arithmetic, stack switching, memory control: young, and no toolchain emits them.
//   component-model async, error-context, maps, fixed-length lists, values, GC: not in WASI 0.2; async
//   alone costs 7.7 us a call, and a wait outside the gates.

/// Returns the usual names of the proposals in `missing`.
pub(super) fn names(missing: WasmFeatures) -> String {
    let names: Vec<String> = missing.iter_names().map(|(name, _)| words(name)).collect();
    if names.is_empty() { "a WebAssembly proposal".to_owned() } else { names.join(", ") }
}

fn words(constant: &str) -> String {
    match constant {
        "CM_ASYNC" | "CM_ASYNC_STACKFUL" | "CM_MORE_ASYNC_BUILTINS" => {
            "asynchronous functions, streams or futures (component-model async)".into()
        }
        "GC" | "GC_TYPES" => "garbage-collected references (gc)".into(),
        name => match name.strip_prefix("CM_") {
            Some(rest) => format!("component-model {}", plain(rest)),
            None => plain(name),
        },
    }
}

fn plain(constant: &str) -> String {
    constant.to_ascii_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_enabled_features_are_pinned() {
        let wanted = WasmFeatures::WASM2
            .difference(WasmFeatures::GC_TYPES)
            .union(WasmFeatures::EXTENDED_CONST)
            .union(WasmFeatures::COMPONENT_MODEL);
        assert_eq!(FEATURES, wanted);
    }

    #[test]
    fn every_wasm_feature_has_a_readable_name() {
        for (_, feature) in WasmFeatures::all().difference(FEATURES).iter_names() {
            let name = names(feature);
            assert!(!name.is_empty() && !name.contains('_'), "{name}");
        }
        assert_eq!(names(WasmFeatures::TAIL_CALL), "tail-call");
        assert_eq!(names(WasmFeatures::CM_FIXED_LENGTH_LISTS), "component-model fixed-length-lists");
    }
}
