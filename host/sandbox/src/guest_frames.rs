//! The functions that a guest was in when a trap ended it, if its code was compiled for debugging.

use wasmtime::{FrameInfo, FrameSymbol, WasmBacktrace};

/// The beginnings of functions of Rust's standard library, which only report a panic: its cause is outside of them.
const STANDARD_LIBRARY: [&str; 7] =
    ["abort", "__rust", "rust_panic", "std::", "core::", "alloc::", "<core::"];

/// The directory of its sources in debug information.
const STANDARD_SOURCES: &str = " at /rustc/";

/// Returns the functions, the innermost first, each with its place in the source if that is known.
pub(super) fn frames(error: &wasmtime::Error) -> Vec<String> {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return Vec::new() };
    let all: Vec<String> = backtrace.frames().iter().flat_map(lines).collect();
    let is_standard = |line: &String| {
        line.contains(STANDARD_SOURCES) || STANDARD_LIBRARY.iter().any(|name| line.starts_with(name))
    };
    let first_own = all.iter().position(|line| !is_standard(line)).unwrap_or(0);
    all.into_iter().skip(first_own).collect()
}

/// Returns the texts of the error and its causes, without the backtrace.
pub(super) fn causes(error: &wasmtime::Error) -> Vec<String> {
    let backtrace = error.downcast_ref::<WasmBacktrace>().map(ToString::to_string);
    let texts = error.chain().map(ToString::to_string);
    texts.filter(|text| Some(text) != backtrace.as_ref()).collect()
}

/// Returns a line for the function of a frame, and for each that was inlined into it before it.
fn lines(frame: &FrameInfo) -> Vec<String> {
    let name = |name: Option<&str>| match name {
        Some(name) => format!("{:#}", rustc_demangle::demangle(name)),
        None => format!("function {}", frame.func_index()),
    };
    if frame.symbols().is_empty() {
        return vec![name(frame.func_name())];
    }
    let last = frame.symbols().len().saturating_sub(1);
    let line = |(at, symbol): (usize, &FrameSymbol)| {
        // The name that the linker knows has the module and the type, and only the function itself has it.
        let known = if at == last { frame.func_name().or(symbol.name()) } else { symbol.name() };
        match (symbol.file(), symbol.line()) {
            (Some(file), Some(line)) => format!("{} at {file}:{line}", name(known)),
            _ => name(known),
        }
    };
    frame.symbols().iter().enumerate().map(line).collect()
}
