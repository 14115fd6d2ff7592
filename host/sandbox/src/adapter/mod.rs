//! The adapter: a connector, wrapped so that its values cross as bytes.
//!
//! wasmtime's dynamic values are one allocated enum a value: 32 bytes for each byte of a `list<u8>`, a name
//! for each field of each record. Its typed calls need types known when the host is compiled. So the host
//! writes a component around the connector's, at load, from the operations' types:
//!
//! ```text
//! (component                                the imports of the connector, copied
//!   (component $connector ...)              the connector's file, byte for byte
//!   (component $adapter                     takes the operations, gives one function each:
//!     (import "f0" (func ...))              an operation, with its own types
//!     memory, realloc, entry functions      -> modules.rs
//!     (export "f0" (func (param list<u8>) (result list<u8>)))))
//! ```
//!
//! Two sibling components, since the component model lets no component call into its own child. Arguments
//! and result are images: the canonical ABI's memory layout (`values::layout`), written and read by the
//! host in safe code. The trampolines that wasmtime compiles between the siblings do the copying and all the
//! checking of what the guest hands over: lengths, alignment, UTF-8, discriminants, characters.
//!
//! Two more modules, the trampolines and a memory cost about 4 us an instance, and lists as dynamic values much more
//! (docs/contributing/benchmarks.md has the figures). So a connector is wrapped if an operation of it has lists in its
//! types, and then all its operations are called through the adapter. Any other connector, and one that cannot be
//! wrapped, is called as it is, with dynamic values.
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
pub(super) use wrap::{export_name, wrap};

/// The interface of the wrapper that has the functions.
pub(super) const INSTANCE: &str = "cofferdam-adapter";

/// The version of the generated code. It changes with every change of the generator: cached code of another
/// version is not loaded.
const VERSION: &str = concat!("cofferdam adapter 3, ", env!("CARGO_PKG_VERSION"));

/// Returns the cache key of a package's compiled wrapper.
pub(super) fn cache_key(package: &Digest) -> Digest {
    Digest::sha256(&[VERSION.as_bytes(), package.as_bytes()].concat())
}

/// Core instances that the adapter adds: its two modules, and the trampolines.
pub(super) const INSTANCES: usize = 3;

/// Memories that the adapter adds.
pub(super) const MEMORIES: usize = 1;
