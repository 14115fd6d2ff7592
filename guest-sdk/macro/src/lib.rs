//! The macro of `cofferdam-guest`: generates the exported functions of an author's WIT file.
//!
//! Not for use on its own: the generated code refers to `::cofferdam_guest`.
#![allow(clippy::indexing_slicing, reason = "all of it by ids that wit-parser gave out for its own arenas")]

mod check;
mod contract;
mod expand;
mod input;

use proc_macro::TokenStream;

/// Turns a type into a connector: `connector!("wit/slack.wit", Slack);`
///
/// The first argument is the WIT file (or a directory of them), relative to the `Cargo.toml` of the crate. It
/// contains one package: either only interfaces, all of which are exported, or also one world that selects the
/// exports. The second argument is the type that implements the operations.
///
/// The macro brings names into scope in the module of its call. If one interface is exported, these are all its
/// names: its trait is `Guest`, and its types have their own names. If several are exported, each has a module: the
/// traits are `messages::Guest`, `channels::Guest`.
///
/// # Errors
///
/// The crate does not compile if the file is missing or is not WIT, if it names another version of the contract than
/// this SDK has, if nothing is exported, if a function does not return `result<_, failure>` with the `failure` of
/// `cofferdam:connector/types`, and if a type cannot cross the sandbox boundary (resources, streams, futures).
#[proc_macro]
pub fn connector(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as input::Input);
    expand::connector(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Generates the SDK's own bindings for everything that a connector may import.
#[doc(hidden)]
#[proc_macro]
pub fn sdk_bindings(_: TokenStream) -> TokenStream {
    expand::sdk().unwrap_or_else(syn::Error::into_compile_error).into()
}
