//! The bridge: a connector, wrapped so that its values cross as bytes.
//!
//! wasmtime's dynamic values are one allocated enum a value: 32 bytes for each byte of a `list<u8>`, a name
//! for each field of each record. Its typed calls need types known when the host is compiled. So the host
//! writes a component around the connector's, at load, from the operations' types:
//!
//! ```text
//! (component                                the imports of the connector, copied
//!   (component $connector ...)              the connector's file, byte for byte
//!   (component $bridge                      takes the operations, gives one function each:
//!     (import "f0" (func ...))              an operation, with its own types
//!     memory, realloc, entry functions      -> modules.rs
//!     (export "f0" (func (param list<u8>) (result list<u8>)))))
//! ```
//!
//! Two sibling components, since the component model lets no component call into its own child. Arguments
//! and result are images: the canonical ABI's memory layout (`values::layout`), written and read by the
//! host in safe code. The adapters that wasmtime compiles between the siblings do the copying and all the
//! checking of what the guest hands over: lengths, alignment, UTF-8, discriminants, characters.
//!
//! Two more modules, the adapters and a memory cost about 5 us an instance. So a small connector with lists in
//! its types is compiled twice, as it is and wrapped: an operation whose types have no list is called as the
//! connector exports it, with dynamic values. So is every operation of a component that cannot be wrapped. Of a
//! large one the wrapped form alone is compiled, and then every operation is called through the bridge
//! ([`WrapScope`]).
//!
//! The wrapper is a pure function of the package's bytes, made after they were verified. Its memory counts
//! against the guest's (it starts with 256 KiB); its instances do not count against the guest's.

use cofferdam_core::digest::Digest;

mod imports;
mod modules;
mod types;
mod wrap;

#[cfg(test)]
mod tests;

pub(super) use modules::BASE;
pub(super) use wrap::{WrapScope, export_name, wrap};

/// The interface of the wrapper that has the functions.
pub(super) const INSTANCE: &str = "cofferdam-bridge";

/// The version of the generated code. It changes with every change of the generator: cached code of another
/// version is not loaded.
const VERSION: &str = concat!("cofferdam bridge 2, ", env!("CARGO_PKG_VERSION"));

/// Returns the cache key of a package's compiled wrapper.
pub(super) fn cache_key(package: &Digest) -> Digest {
    Digest::sha256(&[VERSION.as_bytes(), package.as_bytes()].concat())
}

/// Core instances that the bridge adds: its two modules, and the adapters.
pub(super) const INSTANCES: usize = 3;

/// Memories that the bridge adds.
pub(super) const MEMORIES: usize = 1;
