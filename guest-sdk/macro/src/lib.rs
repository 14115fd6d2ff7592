//! The macro of `cofferdam-guest`: from an author's WIT file to their exported functions.
//!
//! Not for use on its own: the code it makes names `::cofferdam_guest`.
#![allow(clippy::indexing_slicing, reason = "all of it by ids that wit-parser gave out for its own arenas")]

mod check;
mod contract;
mod expand;
mod input;

use proc_macro::TokenStream;

/// Makes a type a connector: `connector!("wit/slack.wit", Slack);`
///
/// The first argument is the WIT file (or a directory of them), relative to the
/// `Cargo.toml` of the crate. It holds one package: either interfaces alone, all
/// of which are exported, or also one world that says which. The second is the
/// type that implements the operations.
///
/// In scope afterwards, in the module of the call: where one interface is
/// exported, everything in it, so its trait is `Guest` and its types have their
/// own names; where several are, one module each, so the traits are
/// `messages::Guest`, `channels::Guest`.
///
/// # Errors
///
/// The crate does not compile when the file is missing or is not WIT, when
/// nothing is exported, when a function does not return `result<_, failure>`
/// with the `failure` of `cofferdam:connector/types`, and when a type cannot
/// cross the border (resources, streams, futures).
#[proc_macro]
pub fn connector(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as input::Input);
    expand::connector(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The SDK's own half: bindings for everything a connector may import.
#[doc(hidden)]
#[proc_macro]
pub fn sdk_bindings(_: TokenStream) -> TokenStream {
    expand::sdk().unwrap_or_else(syn::Error::into_compile_error).into()
}
