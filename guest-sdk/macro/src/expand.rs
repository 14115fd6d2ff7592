//! Expands resolved WIT to Rust: the bindings, and the code that connects them to the author's type.

use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use wit_bindgen_core::wit_parser::{InterfaceId, PackageId, Resolve, WorldId, WorldItem};
use wit_bindgen_core::{Files, WorldGenerator as _, name_package_module};
use wit_bindgen_rust::{Opts, WithOption, to_rust_ident};

use crate::input::Input;
use crate::{check, contract};

/// The path of the SDK's bindings and runtime in the author's code.
const PRIVATE: &str = "::cofferdam_guest::__private";

/// Expands `connector!(..)`.
pub(crate) fn connector(input: &Input) -> syn::Result<TokenStream> {
    let fail = |what: String| syn::Error::new(input.wit.span(), what);
    let path = find(&input.wit.value()).map_err(fail)?;
    let shown = input.wit.value();

    let (mut resolve, _) = contract::load().map_err(fail)?;
    let (package, files) =
        contract::author(&mut resolve, &path).map_err(|why| fail(format!("{shown}: {why}")))?;
    let world = world(&mut resolve, package).map_err(|why| fail(format!("{shown}: {why}")))?;
    let exports = check::exports(&resolve, world).map_err(|why| fail(format!("{shown}: {why}")))?;

    let options = Opts {
        runtime_path: Some(format!("{PRIVATE}::rt")),
        bitflags_path: Some(format!("{PRIVATE}::rt::bitflags")),
        generate_all: true,
        with: shared(&resolve, world),
        additional_derive_attributes: vec!["PartialEq".to_owned()],
        ..Opts::default()
    };
    let names = in_scope(&resolve, &exports);
    let implemented = implemented(&resolve, &exports, &input.connector);
    let bindings = generate(options, &mut resolve, world).map_err(fail)?;

    let connector = &input.connector;
    let files = files.iter().map(|file| file.display().to_string());
    Ok(quote! {
        #[doc(hidden)]
        #[allow(
            clippy::all, missing_docs, unreachable_pub, dead_code, unused_imports, unsafe_code,
            reason = "generated from the WIT, which carries the documentation"
        )]
        mod __cofferdam_bindings { #bindings }

        #names
        #implemented

        // A native build (`cargo test`) exports nothing, and could not link the names.
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "an export of the canonical ABI is raw memory")]
        const _: () = {
            __cofferdam_bindings::export!(#connector with_types_in self::__cofferdam_bindings);
        };

        // Makes cargo rebuild when the WIT has changed.
        #(const _: &[u8] = include_bytes!(#files);)*
    })
}

/// Expands `sdk_bindings!()`: the whole world, for the SDK itself.
pub(crate) fn sdk() -> syn::Result<TokenStream> {
    let fail = |what| syn::Error::new(Span::call_site(), what);
    let (mut resolve, world) = contract::load().map_err(fail)?;
    let comparable =
        ["failure", "upstream-error", "network-phase", "network-error", "input-error", "operation-error"]
            .iter()
            // wit-bindgen derives the comparison of an `enum` already.
            .filter(|name| **name != "network-phase")
            .map(|name| (format!("{}/{name}", contract::TYPES), "#[derive(PartialEq, Eq)]".to_owned()))
            .collect();
    let options = Opts {
        runtime_path: Some("::wit_bindgen::rt".to_owned()),
        generate_all: true,
        generate_unused_types: true,
        additional_type_attributes: comparable,
        ..Opts::default()
    };
    generate(options, &mut resolve, world).map_err(fail)
}

/// Returns the author's file as an absolute path.
fn find(wit: &str) -> Result<PathBuf, String> {
    let root = std::env::var("CARGO_MANIFEST_DIR").map_err(|_| "connector! needs cargo".to_owned())?;
    let path = Path::new(&root).join(wit);
    if path.exists() {
        return Ok(path);
    }
    Err(format!("{wit}: there is no such file in {root} (the path is relative to the crate's Cargo.toml)"))
}

/// Returns the package's own world, or a generated one that exports every interface of the package.
fn world(resolve: &mut Resolve, package: PackageId) -> Result<WorldId, String> {
    let own: Vec<WorldId> = resolve.packages[package].worlds.values().copied().collect();
    match own.as_slice() {
        [world] => return Ok(*world),
        [] => {}
        _ => return Err("more than one world: a connector has one, or none and only interfaces".to_owned()),
    }
    let exports: String = resolve.packages[package]
        .interfaces
        .values()
        .filter_map(|id| resolve.id_of(*id))
        .map(|id| format!("    export {id};\n"))
        .collect();
    let text = format!(
        "package cofferdam-guest:made;\nworld connector {{\n    include {};\n{exports}}}\n",
        contract::PACKAGE.replace("connector@", "connector/connector@"),
    );
    let made = contract::made(resolve, &text)?;
    resolve.select_world(&[made], None).map_err(|error| format!("{error:#}"))
}

/// Returns the imports that the SDK has bindings for already: `Failure` must be one type everywhere.
fn shared(resolve: &Resolve, world: WorldId) -> Vec<(String, WithOption)> {
    let imports = resolve.worlds[world].imports.values().filter_map(|item| match item {
        WorldItem::Interface { id, .. } => Some(*id),
        _ => None,
    });
    let ours = |id: &InterfaceId| {
        let package = resolve.interfaces[*id].package.map(|package| &resolve.packages[package].name);
        package.is_some_and(|name| name.namespace == "wasi" || name.to_string() == contract::PACKAGE)
    };
    let pair = |id: InterfaceId| {
        let name = resolve.id_of(id)?;
        let path = format!("{PRIVATE}::bindings::{}", module(resolve, id)?.join("::"));
        Some((name, WithOption::Path(path)))
    };
    imports.filter(ours).filter_map(pair).collect()
}

/// Generates the imports of `connector!`: everything in a single interface with functions, or one module for each
/// of several interfaces.
fn in_scope(resolve: &Resolve, exports: &[InterfaceId]) -> TokenStream {
    let single = exports.iter().filter(|id| has_functions(resolve, **id)).count() == 1;
    let lines = exports.iter().filter_map(|id| Some((*id, exported(resolve, *id)?))).map(|(id, path)| {
        let all = (single && has_functions(resolve, id)).then(|| quote!(::*));
        quote! {
            #[allow(unused_imports, reason = "an author need not name every type")]
            use #path #all;
        }
    });
    quote!(#(#lines)*)
}

/// Requires the author's `impl`s, also in a native build, which exports nothing.
fn implemented(resolve: &Resolve, exports: &[InterfaceId], connector: &syn::Path) -> TokenStream {
    let with_functions = exports.iter().filter(|id| has_functions(resolve, **id));
    let paths = with_functions.filter_map(|id| exported(resolve, *id));
    quote! {
        const _: () = {
            #({
                const fn connector<T: #paths::Guest>() {}
                connector::<#connector>();
            })*
        };
    }
}

fn has_functions(resolve: &Resolve, id: InterfaceId) -> bool {
    !resolve.interfaces[id].functions.is_empty()
}

/// Returns the path of an exported interface's module.
fn exported(resolve: &Resolve, id: InterfaceId) -> Option<TokenStream> {
    let path = module(resolve, id)?;
    let path = path.iter().map(|part| format_ident!("{part}"));
    Some(quote!(self::__cofferdam_bindings::exports::#(#path)::*))
}

/// Returns the module that wit-bindgen generates for an interface: namespace, package, interface.
fn module(resolve: &Resolve, id: InterfaceId) -> Option<Vec<String>> {
    let interface = &resolve.interfaces[id];
    let package = interface.package?;
    Some(vec![
        to_rust_ident(&resolve.packages[package].name.namespace),
        name_package_module(resolve, package),
        to_rust_ident(interface.name.as_deref()?),
    ])
}

fn generate(options: Opts, resolve: &mut Resolve, world: WorldId) -> Result<TokenStream, String> {
    let mut files = Files::default();
    let mut generator = options.build();
    generator.generate(resolve, world, &mut files).map_err(|error| format!("{error:#}"))?;
    let source = files.iter().next().map(|(_, source)| String::from_utf8_lossy(source).into_owned());
    source.unwrap_or_default().parse().map_err(|error| format!("the generated code is no Rust: {error}"))
}
