//! The public API of the crate `cofferdam` as a committed list, so that it changes only deliberately.
//!
//! `COFFERDAM_BLESS=1 cargo test -p cofferdam-cli --test integration public_api` writes `tests/public-api.txt` anew.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{fmt, fs, iter};

use cofferdam::{FailureClass, HostErrorKind};
use cofferdam_test_support::golden::assert_committed;
use cofferdam_test_support::package::repository;
use quote::ToTokens;
use syn::{ImplItem, Item, UseTree, Visibility};

/// One item of the facade: the crate and the path that it is re-exported from.
type Export = Vec<String>;

fn parsed(path: &PathBuf) -> syn::File {
    let text = fs::read_to_string(path).unwrap();
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn exports(tree: &UseTree, path: &mut Vec<String>, found: &mut Vec<Export>) {
    match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            exports(&part.tree, path, found);
            path.pop();
        }
        UseTree::Name(name) => found.push([path.as_slice(), &[name.ident.to_string()]].concat()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| exports(tree, path, found)),
        UseTree::Rename(_) | UseTree::Glob(_) => panic!("the facade names each item as it is"),
    }
}

/// The sources of a crate below `host`, but its tests.
fn sources(krate: &str) -> Vec<syn::File> {
    let mut folders = vec![repository().join("host").join(krate).join("src")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs") {
                files.push(parsed(&path));
            }
        }
    }
    files
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The tokens of a declaration, spaced as they are written.
fn text(tokens: impl ToTokens) -> String {
    let mut text = tokens.into_token_stream().to_string();
    for (spaced, plain) in [
        (" :: ", "::"),
        (" < ", "<"),
        (" > ", "> "),
        (" >", ">"),
        ("& ", "&"),
        (" , ", ", "),
        (" : ", ": "),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" ;", ";"),
        (",)", ")"),
    ] {
        text = text.replace(spaced, plain);
    }
    text.trim().to_owned()
}

/// The public parts of the definition of `name`, and of its inherent implementations.
fn parts(name: &str, files: &[syn::File]) -> Vec<String> {
    let mut found = Vec::new();
    for item in files.iter().flat_map(|file| &file.items) {
        match item {
            Item::Struct(it) if it.ident == name && is_public(&it.vis) => {
                found.push(format!("struct {name}{}", text(&it.generics)));
                let public = it.fields.iter().filter(|field| is_public(&field.vis));
                found.extend(public.map(|field| {
                    let field_name = field.ident.as_ref().map_or_else(|| "0".to_owned(), ToString::to_string);
                    format!("{name}.{field_name}: {}", text(&field.ty))
                }));
            }
            Item::Enum(it) if it.ident == name && is_public(&it.vis) => {
                found.push(format!("enum {name}{}", text(&it.generics)));
                found.extend(
                    it.variants
                        .iter()
                        .map(|variant| format!("{name}::{}{}", variant.ident, text(&variant.fields))),
                );
            }
            Item::Trait(it) if it.ident == name && is_public(&it.vis) => {
                found.push(format!("trait {name}"));
                found.extend(it.items.iter().filter_map(|item| match item {
                    syn::TraitItem::Fn(method) => Some(format!("{name}::{}", text(&method.sig))),
                    _ => None,
                }));
            }
            Item::Type(it) if it.ident == name && is_public(&it.vis) => {
                found.push(format!("type {name} = {}", text(&it.ty)));
            }
            Item::Const(it) if it.ident == name && is_public(&it.vis) => {
                found.push(format!("const {name}: {}", text(&it.ty)));
            }
            Item::Fn(it) if it.sig.ident == name && is_public(&it.vis) => found.push(text(&it.sig)),
            Item::Impl(it) if it.trait_.is_none() && is_of(&it.self_ty, name) => {
                found.extend(it.items.iter().filter_map(|item| match item {
                    ImplItem::Fn(method) if is_public(&method.vis) => {
                        Some(format!("{name}::{}", text(&method.sig)))
                    }
                    ImplItem::Const(it) if is_public(&it.vis) => Some(format!("{name}::{}", it.ident)),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    found
}

/// The variants of an enum that a macro makes, so that the sources do not show them.
fn listed(name: &str, variants: &[impl fmt::Debug]) -> Vec<String> {
    iter::once(format!("enum {name}")).chain(variants.iter().map(|it| format!("{name}::{it:?}"))).collect()
}

fn is_of(ty: &syn::Type, name: &str) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

#[test]
fn the_public_api_is_the_committed_list() {
    let facade = parsed(&repository().join("host/src/lib.rs"));
    let mut found = Vec::new();
    for item in &facade.items {
        let Item::Use(it) = item else { panic!("the facade only re-exports") };
        exports(&it.tree, &mut Vec::new(), &mut found);
    }
    let crates: BTreeSet<_> = found.iter().map(|path| path[0].clone()).collect();
    let mut lines = Vec::new();
    for krate in &crates {
        let files = sources(krate.strip_prefix("cofferdam_").unwrap());
        for path in found.iter().filter(|path| path[0] == *krate) {
            let name = path.last().unwrap();
            let parts = match name.as_str() {
                "HostErrorKind" => listed(name, HostErrorKind::ALL),
                "FailureClass" => listed(name, FailureClass::ALL),
                _ => parts(name, &files),
            };
            assert!(!parts.is_empty(), "{} is not found in the sources", path.join("::"));
            lines.extend(parts);
        }
    }
    lines.sort();
    let head = "# The public API of the crate `cofferdam`: host/src/lib.rs, and the public parts of what it names.\n\
                # `COFFERDAM_BLESS=1 cargo test -p cofferdam-cli --test integration public_api` writes this list anew.\n\n";
    assert_committed("tests/public-api.txt", &format!("{head}{}\n", lines.join("\n")));
}
