//! The rules of an operation, checked in the author's build, where a fault is cheapest to fix.
//!
//! The host makes the same checks again at install and at load: a component may have been built without this macro.

use wit_bindgen_core::wit_parser::{
    Function, FunctionKind, InterfaceId, Resolve, Type, TypeDefKind, TypeId, TypeOwner, WorldId, WorldItem,
};

use crate::contract::TYPES;

/// Returns the interfaces that a world exports.
///
/// # Errors
///
/// Everything that is wrong with the world's exports, a line each.
pub(crate) fn exports(resolve: &Resolve, world: WorldId) -> Result<Vec<InterfaceId>, String> {
    let mut interfaces = Vec::new();
    let mut wrong = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (key, item) in &resolve.worlds[world].exports {
        let WorldItem::Interface { id, .. } = item else {
            let name = resolve.name_world_key(key);
            wrong.push(format!("`export {name}`: put it into an interface and export that"));
            continue;
        };
        interfaces.push(*id);
        for function in resolve.interfaces[*id].functions.values() {
            if let Err(why) = operation(resolve, function) {
                wrong.push(format!("function `{}` {why}", function.name));
            }
            if seen.contains(&function.name.as_str()) {
                wrong.push(format!("function `{}` is exported by two interfaces: rename one", function.name));
            }
            seen.push(&function.name);
        }
    }
    if seen.is_empty() && wrong.is_empty() {
        wrong.push("no function is exported, so the connector has no operation".to_owned());
    }
    if wrong.is_empty() { Ok(interfaces) } else { Err(wrong.join("\n")) }
}

fn operation(resolve: &Resolve, function: &Function) -> Result<(), String> {
    match function.kind {
        FunctionKind::Freestanding => {}
        FunctionKind::AsyncFreestanding => return Err("is async: leave the word out".to_owned()),
        _ => return Err("belongs to a resource: operations are plain functions".to_owned()),
    }
    for param in &function.params {
        value(resolve, param.ty)
            .map_err(|kind| format!("takes a {kind} in `{}`: {ONLY_VALUES}", param.name))?;
    }
    let Some((ok, err)) = function.result.and_then(|ty| as_result(resolve, ty)) else {
        return Err(format!("must return `result<T, failure>` or `result<_, failure>`; {USE_IT}"));
    };
    if !err.is_some_and(|err| is_failure(resolve, err)) {
        return Err(format!("must have `failure` of {TYPES} as its error; {USE_IT}"));
    }
    ok.map_or(Ok(()), |ok| value(resolve, ok)).map_err(|kind| format!("returns a {kind}: {ONLY_VALUES}"))
}

const ONLY_VALUES: &str = "only plain values cross the border";
const USE_IT: &str = "write `use cofferdam:connector/types@0.1.0.{failure};` in the interface";

/// Returns the two sides of a `result`, through any aliases.
fn as_result(resolve: &Resolve, ty: Type) -> Option<(Option<Type>, Option<Type>)> {
    match &resolve.types[target(resolve, ty)?].kind {
        TypeDefKind::Result(sides) => Some((sides.ok, sides.err)),
        _ => None,
    }
}

fn is_failure(resolve: &Resolve, ty: Type) -> bool {
    let Some(id) = target(resolve, ty) else { return false };
    let definition = &resolve.types[id];
    let TypeOwner::Interface(owner) = definition.owner else { return false };
    definition.name.as_deref() == Some("failure") && resolve.id_of(owner).as_deref() == Some(TYPES)
}

/// Returns the definition behind a name and its aliases. None for `u32` and other primitive types.
fn target(resolve: &Resolve, ty: Type) -> Option<TypeId> {
    let Type::Id(mut id) = ty else { return None };
    while let TypeDefKind::Type(Type::Id(next)) = resolve.types[id].kind {
        id = next;
    }
    Some(id)
}

/// Refuses a type that is not a plain value, with the word for it.
fn value(resolve: &Resolve, ty: Type) -> Result<(), &'static str> {
    let id = match ty {
        Type::Id(id) => id,
        Type::ErrorContext => return Err("error-context"),
        _ => return Ok(()),
    };
    let all = |types: &mut dyn Iterator<Item = Type>| {
        for ty in types {
            value(resolve, ty)?;
        }
        Ok(())
    };
    match &resolve.types[id].kind {
        TypeDefKind::Record(record) => all(&mut record.fields.iter().map(|field| field.ty)),
        TypeDefKind::Variant(variant) => all(&mut variant.cases.iter().filter_map(|case| case.ty)),
        TypeDefKind::Tuple(tuple) => all(&mut tuple.types.iter().copied()),
        TypeDefKind::Result(sides) => all(&mut sides.ok.into_iter().chain(sides.err)),
        TypeDefKind::Option(inner) | TypeDefKind::List(inner) | TypeDefKind::Type(inner) => {
            value(resolve, *inner)
        }
        TypeDefKind::Enum(_) | TypeDefKind::Flags(_) => Ok(()),
        TypeDefKind::Resource | TypeDefKind::Handle(_) => Err("resource"),
        other => Err(other.as_str()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test")]

    use crate::contract;

    /// Returns the errors of an interface with these contents. Empty if it is valid.
    fn wrong(contents: &str) -> String {
        let (mut resolve, _) = contract::load().expect("the contract parses");
        let text = format!(
            "package a:b@0.1.0;
             interface i {{ use cofferdam:connector/types@0.1.0.{{failure}}; {contents} }}
             world w {{ include cofferdam:connector/connector@0.1.0; export i; }}"
        );
        let package = contract::made(&mut resolve, &text).expect("WIT");
        let world = resolve.select_world(&[package], None).expect("a world");
        super::exports(&resolve, world).err().unwrap_or_default()
    }

    #[test]
    fn operations_of_plain_values_pass() {
        for contents in [
            "f: func() -> result<_, failure>;",
            "f: func(a: list<option<tuple<u8, string>>>) -> result<result<u8, string>, failure>;",
            "type oops = failure; type both = result<u8, oops>; f: func() -> both;",
            "record r { a: e } enum e { x } flags g { y } variant v { z(r) } f: func(a: v, b: g) -> result<r, failure>;",
        ] {
            assert_eq!(wrong(contents), "", "{contents}");
        }
    }

    #[test]
    fn unsupported_types_are_refused_by_name() {
        for (contents, word) in [
            ("f: func();", "`f` must return"),
            ("f: func() -> string;", "`f` must return"),
            ("f: func() -> result;", "as its error"),
            ("f: func() -> result<u8>;", "as its error"),
            ("f: func() -> result<u8, string>;", "as its error"),
            ("resource r; f: func(a: borrow<r>) -> result<_, failure>;", "takes a resource in `a`"),
            ("resource r; f: func() -> result<list<r>, failure>;", "returns a resource"),
            ("f: func(a: stream<u8>) -> result<_, failure>;", "takes a stream"),
            ("f: func() -> result<future<u8>, failure>;", "returns a future"),
            ("resource r { m: func() -> result<_, failure>; }", "belongs to a resource"),
            ("f: async func() -> result<_, failure>;", "is async"),
            ("record r { a: u8 }", "no operation"),
        ] {
            assert!(wrong(contents).contains(word), "{contents}: {}", wrong(contents));
        }
    }

    #[test]
    fn a_custom_failure_type_is_refused() {
        let (mut resolve, _) = contract::load().expect("the contract parses");
        let text = "package a:b; interface i { enum failure { x } f: func() -> result<_, failure>; }
                    world w { export i; export g: func() -> u8; }";
        let package = contract::made(&mut resolve, text).expect("WIT");
        let world = resolve.select_world(&[package], None).expect("a world");
        let wrong = super::exports(&resolve, world).expect_err("two mistakes");
        assert!(wrong.contains("`f` must have") && wrong.contains("`export g`"), "{wrong}");
    }
}
