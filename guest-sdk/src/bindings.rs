//! Bindings for everything a connector may import, generated from the repository's `wit/`.
#![allow(
    clippy::all,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes_without_reason,
    missing_docs,
    unreachable_pub,
    unsafe_code,
    dead_code,
    reason = "generated: the canonical ABI is raw memory, and the WIT carries the documentation"
)]

cofferdam_guest_macro::sdk_bindings!();
