//! Writes the Rust code: the module, and the JSON of each type.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote;

use super::text::{doc_lines, line};
use crate::error::OpenApiError;
use crate::names;
use crate::operation::{Operation, Paging};
use crate::schema::SchemaReader;
use crate::types::{CaseMark, Definition, Direction, JsonKind, Presence, Ty, TypeDef, TypeId, TypeTable};

/// Formats a file, which has to be valid Rust.
pub(crate) fn format(header: &str, about: &str, tokens: TokenStream) -> Result<String, OpenApiError> {
    let file: syn3::File = syn3::parse2(tokens).map_err(|error| {
        let fix = "Report it with the document: this is an error of cofferdam.";
        OpenApiError::new("generated code", format!("it is not Rust: {error}"), fix)
    })?;
    Ok(format!("// {header}\n//! {about}\n\n{}", prettyplease::unparse(&file)))
}

/// Returns an identifier. Names are made by `names`, so that they are identifiers; anything else would panic.
pub(crate) fn ident(name: &str) -> Ident {
    let is_start = |first: char| first.is_ascii_alphabetic() || first == '_';
    let is_inner = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let is_valid = name.starts_with(is_start) && name.chars().all(is_inner) && name != "_";
    if is_valid { Ident::new(name, Span::call_site()) } else { Ident::new("invalid_name", Span::call_site()) }
}

pub(crate) fn type_ident(table: &TypeTable, id: TypeId) -> Ident {
    ident(&table.get(id).map_or_else(String::new, |def| names::camel(&def.name)))
}

pub(crate) fn text(text: &str) -> Literal {
    Literal::string(text)
}

/// Returns the first line of a text as documentation.
pub(crate) fn summary(docs: &str, otherwise: &str) -> TokenStream {
    let first = doc_lines(docs, 90).into_iter().next().unwrap_or_else(|| line(otherwise, 90));
    let doc = text(&format!(" {first}"));
    quote!(#[doc = #doc])
}

/// Returns the type in the bindings.
pub(crate) fn rust_type(table: &TypeTable, ty: &Ty) -> TokenStream {
    match ty {
        Ty::Bool => quote!(bool),
        Ty::S32 => quote!(i32),
        Ty::S64 => quote!(i64),
        Ty::U32 => quote!(u32),
        Ty::U64 => quote!(u64),
        Ty::F64 => quote!(f64),
        Ty::Text | Ty::Json(_) => quote!(String),
        Ty::Bytes => quote!(Vec<u8>),
        Ty::List(inner) => {
            let inner = rust_type(table, inner);
            quote!(Vec<#inner>)
        }
        Ty::Map(inner) => {
            let inner = rust_type(table, inner);
            quote!(Vec<(String, #inner)>)
        }
        Ty::Nullable(inner) => {
            let inner = rust_type(table, inner);
            quote!(Option<#inner>)
        }
        Ty::Named(id) => {
            let name = type_ident(table, *id);
            quote!(super::#name)
        }
    }
}

/// Returns the function that reads a type.
pub(crate) fn reader_of(table: &TypeTable, ty: &Ty) -> TokenStream {
    match ty {
        Ty::Bool => quote!(read::boolean),
        Ty::S32 => quote!(read::s32),
        Ty::S64 => quote!(read::s64),
        Ty::U32 => quote!(read::u32),
        Ty::U64 => quote!(read::u64),
        Ty::F64 => quote!(read::f64),
        Ty::Text | Ty::Bytes => quote!(read::text),
        Ty::Json(_) => quote!(read::json),
        Ty::List(inner) => {
            let inner = reader_of(table, inner);
            quote!(|it| read::list(it, #inner))
        }
        Ty::Map(inner) => {
            let inner = reader_of(table, inner);
            quote!(|it| read::map(it, #inner))
        }
        Ty::Nullable(inner) => {
            let inner = reader_of(table, inner);
            quote!(|it| read::nullable(it, #inner))
        }
        Ty::Named(id) => {
            let name = type_ident(table, *id);
            quote!(super::#name::from_json)
        }
    }
}

/// Returns the function that writes a type.
pub(crate) fn writer_of(table: &TypeTable, ty: &Ty) -> TokenStream {
    match ty {
        Ty::Bool => quote!(write::boolean),
        Ty::S32 => quote!(write::s32),
        Ty::S64 => quote!(write::s64),
        Ty::U32 => quote!(write::u32),
        Ty::U64 => quote!(write::u64),
        Ty::F64 => quote!(write::f64),
        Ty::Text | Ty::Bytes => quote!(write::text),
        Ty::Json(_) => quote!(write::json),
        Ty::List(inner) => {
            let inner = writer_of(table, inner);
            quote!(|it| write::list(it, #inner))
        }
        Ty::Map(inner) => {
            let inner = writer_of(table, inner);
            quote!(|it| write::map(it, #inner))
        }
        Ty::Nullable(inner) => {
            let inner = writer_of(table, inner);
            quote!(|it| write::nullable(it, #inner))
        }
        Ty::Named(id) => {
            let name = type_ident(table, *id);
            quote!(super::#name::to_json)
        }
    }
}

/// Returns the call that writes the value of an expression that is a reference.
pub(crate) fn written(table: &TypeTable, ty: &Ty, value: &TokenStream) -> TokenStream {
    match ty {
        Ty::List(inner) => {
            let inner = writer_of(table, inner);
            quote!(write::list(#value, #inner)?)
        }
        Ty::Map(inner) => {
            let inner = writer_of(table, inner);
            quote!(write::map(#value, #inner)?)
        }
        Ty::Nullable(inner) => {
            let inner = writer_of(table, inner);
            quote!(write::nullable(#value, #inner)?)
        }
        ty => {
            let writer = writer_of(table, ty);
            quote!(#writer(#value)?)
        }
    }
}

/// Returns the file with the JSON of all types; none if no type has any.
pub(crate) fn types_file(
    header: &str,
    reader: &SchemaReader<'_>,
    operations: &[Operation<'_>],
    reached: &[TypeId],
) -> Result<Option<String>, OpenApiError> {
    let table = &reader.table;
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for operation in operations {
        let mut own: Vec<&Ty> = operation.parameters.iter().map(|parameter| &parameter.ty).collect();
        own.extend(operation.body.iter().map(|body| &body.ty));
        own.iter().for_each(|ty| table.reach(ty, &mut written));
        // The variant of several answers is read by status.
        let answers = operation.answers.iter().filter_map(|answer| answer.ty.as_ref());
        answers.for_each(|ty| table.reach(ty, &mut read));
    }
    let mut items = TokenStream::new();
    let (mut reads, mut writes) = (false, false);
    for id in reached {
        let Some(def) = table.get(*id) else { continue };
        let has_bytes = |ty: &&Ty| **ty == Ty::Bytes || **ty == Ty::List(Box::new(Ty::Bytes));
        if TypeTable::parts(&def.definition).iter().any(has_bytes) {
            continue;
        }
        let mut functions = TokenStream::new();
        for direction in [Direction::Output, Direction::Input] {
            match direction {
                Direction::Output if read.contains(id) => {
                    reads = true;
                    functions.extend(from_json(table, def));
                }
                Direction::Input if written.contains(id) => {
                    writes = true;
                    functions.extend(to_json(table, def));
                }
                _ => {}
            }
        }
        if !functions.is_empty() {
            let name = type_ident(table, *id);
            items.extend(quote!(impl super::#name { #functions }));
        }
    }
    if !reads && !writes {
        return Ok(None);
    }
    let read = reads.then(|| {
        quote!(
            use super::read::{self, Fields, Mismatch, Read};
        )
    });
    let write = writes.then(|| {
        quote!(
            use super::write::{self, Written};
        )
    });
    let tokens = quote! {
        use serde_json::Value;
        #read
        #write
        #items
    };
    format(header, "The JSON of the service's types.", tokens).map(Some)
}

fn from_json(table: &TypeTable, def: &TypeDef) -> TokenStream {
    let body = match &def.definition {
        Definition::Record(fields) => {
            let mut whole = TokenStream::new();
            let mut values = Vec::new();
            for field in fields {
                let name = ident(&names::rust(&field.name));
                let wire = text(&field.wire);
                match (field.presence, &field.ty) {
                    // First those that end the reading where they are wrong, while there is little to clean up.
                    (Presence::Required, Ty::Named(_)) => {
                        let read = reader_of(table, &field.ty);
                        let local = ident(&format!("the_{}", names::json(&field.name)));
                        whole.extend(quote!(let #local = fields.whole(#wire, #read)?;));
                        values.push(quote!(#name: #local));
                    }
                    (Presence::Required, Ty::Nullable(inner)) => {
                        let read = reader_of(table, inner);
                        values.push(quote!(#name: fields.optional(#wire, #read)));
                    }
                    (Presence::Required, ty) => {
                        let read = reader_of(table, ty);
                        values.push(quote!(#name: fields.required(#wire, #read)));
                    }
                    (_, ty) => {
                        let read = reader_of(table, ty);
                        values.push(quote!(#name: fields.optional(#wire, #read)));
                    }
                }
            }
            let mutable =
                values.iter().any(|value| value.to_string().contains("fields .")).then(|| quote!(mut));
            quote! {
                let #mutable fields = Fields::of(value)?;
                #whole
                let whole = Self { #(#values),* };
                fields.finish(whole)
            }
        }
        Definition::Enum(labels) => {
            let arms = labels.iter().map(|label| {
                let (case, wire) = (ident(&names::camel(&label.name)), text(&label.wire));
                quote!(Some(#wire) => Ok(Self::#case))
            });
            quote! {
                match value.as_str() {
                    #(#arms,)*
                    _ => Err(Mismatch::new("one of the described texts")),
                }
            }
        }
        Definition::Flags(labels) => {
            let arms = labels.iter().map(|label| {
                let (flag, wire) = (ident(&names::constant(&label.name)), text(&label.wire));
                quote!(#wire => Self::#flag)
            });
            quote! {
                let mut flags = Self::empty();
                for label in read::list(value, read::text)? {
                    flags |= match label.as_str() {
                        #(#arms,)*
                        _ => return Err(Mismatch::new("one of the described texts")),
                    };
                }
                Ok(flags)
            }
        }
        Definition::Variant { tag: Some(tag), cases } => {
            let arms = cases.iter().filter_map(|case| {
                let CaseMark::Tags(tags) = &case.mark else { return None };
                let tags = tags.iter().map(|tag| text(tag));
                let (name, read) = (ident(&names::camel(&case.name)), reader_of(table, &case.ty));
                let read = applied(&read, &case.ty, table);
                Some(quote!(#(#tags)|* => #read.map(Self::#name)))
            });
            let tag = text(tag);
            quote! {
                match Fields::of(value)?.tag(#tag)? {
                    #(#arms,)*
                    _ => Err(Mismatch::new("an object of a described type")),
                }
            }
        }
        Definition::Variant { tag: None, cases } => {
            let arms = cases.iter().filter_map(|case| {
                let CaseMark::Kind(kind) = &case.mark else { return None };
                let kind = match kind {
                    JsonKind::Boolean => quote!(Value::Bool(_)),
                    JsonKind::Number => quote!(Value::Number(_)),
                    JsonKind::Text => quote!(Value::String(_)),
                    JsonKind::Array => quote!(Value::Array(_)),
                    JsonKind::Object => quote!(Value::Object(_)),
                };
                let (name, read) = (ident(&names::camel(&case.name)), reader_of(table, &case.ty));
                let read = applied(&read, &case.ty, table);
                Some(quote!(#kind => #read.map(Self::#name)))
            });
            quote! {
                match value {
                    #(#arms,)*
                    _ => Err(Mismatch::new("a value of a described kind")),
                }
            }
        }
    };
    quote! {
        pub(crate) fn from_json(value: &Value) -> Read<Self> { #body }
    }
}

/// Returns the call of a reader on `value`.
fn applied(read: &TokenStream, ty: &Ty, table: &TypeTable) -> TokenStream {
    match ty {
        Ty::List(inner) => {
            let inner = reader_of(table, inner);
            quote!(read::list(value, #inner))
        }
        Ty::Map(inner) => {
            let inner = reader_of(table, inner);
            quote!(read::map(value, #inner))
        }
        _ => quote!(#read(value)),
    }
}

fn to_json(table: &TypeTable, def: &TypeDef) -> TokenStream {
    let body = match &def.definition {
        Definition::Record(fields) => {
            let lines = fields.iter().map(|field| {
                let name = ident(&names::rust(&field.name));
                let wire = text(&field.wire);
                match field.presence {
                    Presence::Required => {
                        let value = written(table, &field.ty, &quote!(&self.#name));
                        quote!(object.put(#wire, #value);)
                    }
                    Presence::Optional => {
                        let value = written(table, &field.ty, &quote!(it));
                        quote!(if let Some(it) = &self.#name { object.put(#wire, #value); })
                    }
                    Presence::OptionalNullable => {
                        let value = written(table, &field.ty.clone().nullable(), &quote!(it));
                        quote!(if let Some(it) = &self.#name { object.put(#wire, #value); })
                    }
                }
            });
            quote! {
                let mut object = write::Object::default();
                #(#lines)*
                Ok(object.finish())
            }
        }
        Definition::Enum(labels) => {
            let arms = labels.iter().map(|label| {
                let (case, wire) = (ident(&names::camel(&label.name)), text(&label.wire));
                quote!(Self::#case => #wire)
            });
            quote! {
                let label = match self { #(#arms,)* };
                Ok(Value::from(label))
            }
        }
        Definition::Flags(labels) => {
            let lines = labels.iter().map(|label| {
                let (flag, wire) = (ident(&names::constant(&label.name)), text(&label.wire));
                quote!((Self::#flag, #wire))
            });
            quote! {
                let labels = [#(#lines),*];
                let set = labels.iter().filter(|(flag, _)| self.contains(*flag));
                Ok(set.map(|(_, label)| Value::from(*label)).collect())
            }
        }
        Definition::Variant { tag, cases } => {
            let arms = cases.iter().map(|case| {
                let name = ident(&names::camel(&case.name));
                let writer = match &case.ty {
                    Ty::List(inner) => {
                        let inner = writer_of(table, inner);
                        quote!(write::list(it, #inner))
                    }
                    Ty::Map(inner) => {
                        let inner = writer_of(table, inner);
                        quote!(write::map(it, #inner))
                    }
                    ty => {
                        let writer = writer_of(table, ty);
                        quote!(#writer(it))
                    }
                };
                match (tag, &case.mark) {
                    (Some(tag), CaseMark::Tags(tags))
                        if tags.len() == 1 || !has_field(table, &case.ty, tag) =>
                    {
                        let (tag, value) =
                            (text(tag), text(tags.first().map(String::as_str).unwrap_or_default()));
                        quote!(Self::#name(it) => write::tagged(#writer?, #tag, #value))
                    }
                    _ => quote!(Self::#name(it) => #writer),
                }
            });
            quote!(match self { #(#arms,)* })
        }
    };
    quote! {
        pub(crate) fn to_json(&self) -> Written { #body }
    }
}

fn has_field(table: &TypeTable, ty: &Ty, wire: &str) -> bool {
    let Ty::Named(id) = ty else { return false };
    matches!(table.definition(*id), Some(Definition::Record(fields)) if fields.iter().any(|field| field.wire == wire))
}

/// The parts of the module.
pub(crate) struct ModuleParts<'p> {
    pub(crate) wit: &'p str,
    pub(crate) connector: &'p str,
    pub(crate) has_types: bool,
    pub(crate) has_multipart: bool,
    pub(crate) has_pages: bool,
    pub(crate) by_hand: &'p [String],
}

/// Returns the module of all generated code.
pub(crate) fn module_file(
    header: &str,
    reader: &SchemaReader<'_>,
    operations: &[Operation<'_>],
    parts: &ModuleParts<'_>,
) -> Result<String, OpenApiError> {
    let table = &reader.table;
    let (wit, connector) = (text(parts.wit), ident(parts.connector));
    let why = "a connector uses a part of them";
    let types = parts.has_types.then(|| {
        let why = "every type is written in the same way";
        quote!(
            #[allow(clippy::wrong_self_convention, reason = #why)]
            mod types;
        )
    });
    let multipart = parts.has_multipart.then(|| {
        quote!(
            mod multipart;
        )
    });
    let pages = parts.has_pages.then(|| {
        let why = "for the author of the connector, and for operations that are written by hand";
        quote!(
            #[allow(dead_code, clippy::too_many_arguments, reason = #why)]
            pub(crate) mod pages;
        )
    });
    let functions = operations.iter().map(|operation| {
        let name = ident(&names::rust(&operation.name));
        let (arguments, types): (Vec<_>, Vec<_>) =
            super::rust_operations::arguments(operation).into_iter().unzip();
        let types = types.iter().map(|(ty, required)| {
            let ty = rust_type_here(table, ty);
            if *required { ty } else { quote!(Option<#ty>) }
        });
        let result = match &operation.result {
            Some(ty) => rust_type_here(table, ty),
            None => quote!(()),
        };
        let is_by_hand =
            parts.by_hand.iter().any(|it| *it == names::json(&operation.name) || *it == operation.name);
        let module = if is_by_hand { quote!(crate::by_hand) } else { quote!(operations) };
        quote! {
            fn #name(#(#arguments: #types),*) -> Result<#result, Failure> {
                #module::#name(#(#arguments),*)
            }
        }
    });
    let tokens = quote! {
        #[allow(dead_code, reason = #why)]
        mod exchange;
        #multipart
        pub(crate) mod operations;
        #pages
        #[allow(dead_code, reason = #why)]
        mod read;
        #[allow(dead_code, reason = #why)]
        mod style;
        #[allow(dead_code, reason = #why)]
        mod target;
        #types
        #[allow(dead_code, clippy::ptr_arg, reason = #why)]
        mod write;

        use crate::#connector as Connector;
        use cofferdam_guest::connector;

        connector!(#wit, Connector);

        impl Guest for Connector {
            #(#functions)*
        }
    };
    let text = format(header, "The code between the interface and the service.", tokens)?;
    Ok(text)
}

/// Returns the type as the module itself names it.
fn rust_type_here(table: &TypeTable, ty: &Ty) -> TokenStream {
    match ty {
        Ty::Named(id) => {
            let name = type_ident(table, *id);
            quote!(#name)
        }
        Ty::List(inner) => {
            let inner = rust_type_here(table, inner);
            quote!(Vec<#inner>)
        }
        Ty::Map(inner) => {
            let inner = rust_type_here(table, inner);
            quote!(Vec<(String, #inner)>)
        }
        Ty::Nullable(inner) => {
            let inner = rust_type_here(table, inner);
            quote!(Option<#inner>)
        }
        ty => rust_type(table, ty),
    }
}

/// Returns true if the operation's request is made in a function of its own, for paging.
pub(crate) fn has_request_function(operation: &Operation<'_>) -> bool {
    operation.paging == Some(Paging::Link)
}
