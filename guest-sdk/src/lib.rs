//! placeholder
#[cfg(all(target_arch = "wasm32", feature = "allocator"))]
mod alloc;
#[doc(hidden)]
pub mod bindings;
pub mod call;
mod failure;
pub mod http;
pub mod log;

pub use cofferdam_guest_macro::connector;
pub use failure::{Failure, InputError, NetworkError, NetworkPhase, OperationError, UpstreamError};

/// What the code made by [`connector!`] refers to; nothing here is for authors.
#[doc(hidden)]
pub mod __private {
    pub use crate::bindings;
    pub use wit_bindgen::rt;
}
