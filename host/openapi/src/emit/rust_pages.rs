//! Writes helpers that read lists page by page.

use proc_macro2::TokenStream;
use quote::quote;

use super::rust::{format, ident, reader_of, rust_type, text};
use super::rust_operations::arguments;
use crate::error::OpenApiError;
use crate::names;
use crate::operation::{Operation, Paging};
use crate::schema::SchemaReader;
use crate::types::{Definition, Field, Presence, Ty, TypeTable};

/// Returns the file with a helper for each list; none if there is none.
pub(crate) fn pages_file(
    header: &str,
    reader: &SchemaReader<'_>,
    operations: &[Operation<'_>],
) -> Result<Option<String>, OpenApiError> {
    let table = &reader.table;
    let functions: Vec<_> = operations.iter().filter_map(|operation| helper(table, operation)).collect();
    if functions.is_empty() {
        return Ok(None);
    }
    let code: TokenStream = functions.into_iter().collect();
    let used = code.to_string();
    let exchange = used.contains("exchange ::").then(|| {
        quote!(
            use super::exchange;
        )
    });
    let http = used.contains("http ::").then(|| {
        quote!(
            use cofferdam_guest::http;
        )
    });
    let read = used.contains("read ::").then(|| {
        quote!(
            use super::read;
        )
    });
    let tokens = quote! {
        #exchange
        use super::operations;
        #read
        use cofferdam_guest::Failure;
        #http

        /// The most pages of one list.
        const MAX_PAGES: u32 = 1_000;
        #code
    };
    format(header, "Long lists, page by page.", tokens).map(Some)
}

fn helper(table: &TypeTable, operation: &Operation<'_>) -> Option<TokenStream> {
    let paging = operation.paging.as_ref()?;
    let result = operation.result.as_ref()?;
    let name = ident(&names::rust(&operation.name));
    let all = arguments(operation);
    let skipped = match paging {
        Paging::Link => None,
        Paging::Cursor { parameter, .. }
        | Paging::LastId { parameter, .. }
        | Paging::Page { parameter, .. } => operation.parameters.iter().position(|it| it.name == *parameter),
    };
    let declared =
        all.iter().enumerate().filter(|(at, _)| Some(*at) != skipped).map(|(_, (name, (ty, required)))| {
            let ty = rust_type(table, ty);
            if *required { quote!(#name: #ty) } else { quote!(#name: Option<#ty>) }
        });
    let passed = all.iter().enumerate().map(|(at, (name, (ty, required)))| {
        if Some(at) == skipped {
            quote!(next_page)
        } else if *required && matches!(ty, Ty::Bool | Ty::S32 | Ty::S64 | Ty::U32 | Ty::U64 | Ty::F64) {
            quote!(#name)
        } else {
            quote!(#name.clone())
        }
    });
    let item = items_of(table, result, paging)?;
    let item_type = rust_type(table, item);
    let docs = text(&format!(" Reads `{name}` until `most` items are read or there are no more."));
    let body = match paging {
        Paging::Link => {
            let request = ident(&format!("{}_request", names::json(&operation.name)));
            let passed = all.iter().map(|(name, _)| name);
            let read = reader_of(table, result);
            let accept = operation.accept.as_ref().map(|accept| {
                let accept = text(accept);
                quote!(.header("accept", #accept))
            });
            quote! {
                let mut request = operations::#request(#(#passed),*)?;
                let mut items = Vec::new();
                for _ in 0..MAX_PAGES {
                    let response = exchange::send(request)?;
                    items.extend(exchange::json(&response, #read)?);
                    match response.next_page() {
                        Some(next) if items.len() < most => request = http::get(next)#accept,
                        _ => break,
                    }
                }
            }
        }
        Paging::Page { items, .. } => {
            let field = items.as_ref().map(|items| {
                let items = ident(&names::rust(items));
                quote!(.#items)
            });
            quote! {
                let mut items = Vec::new();
                for number in 1..=MAX_PAGES {
                    let next_page = Some(number.into());
                    let page = operations::#name(#(#passed),*)?#field;
                    let is_last = page.is_empty();
                    items.extend(page);
                    if is_last || items.len() >= most {
                        break;
                    }
                }
            }
        }
        Paging::LastId { items, more, .. } => {
            let (field, more) = (ident(&names::rust(items)), ident(&names::rust(more)));
            quote! {
                let mut items: Vec<#item_type> = Vec::new();
                for _ in 0..MAX_PAGES {
                    let next_page = items.last().map(|it| it.id.clone());
                    let page = operations::#name(#(#passed),*)?;
                    let is_last = !page.#more || page.#field.is_empty();
                    items.extend(page.#field);
                    if is_last || items.len() >= most {
                        break;
                    }
                }
            }
        }
        Paging::Cursor { path, items, .. } => {
            let field = ident(&names::rust(items));
            let next = next_of(table, result, path)?;
            quote! {
                let mut items = Vec::new();
                let mut cursor: Option<String> = None;
                for _ in 0..MAX_PAGES {
                    let next_page = cursor.clone();
                    let page = operations::#name(#(#passed),*)?;
                    let next: Option<String> = #next;
                    items.extend(page.#field);
                    match next.filter(|next| !next.is_empty()) {
                        Some(next) if items.len() < most && cursor.as_ref() != Some(&next) => cursor = Some(next),
                        _ => break,
                    }
                }
            }
        }
    };
    let fits = match paging {
        // The number of a page is whole and small, whatever its type.
        Paging::Page { parameter, .. } => operation
            .parameters
            .iter()
            .find(|it| it.name == *parameter)
            .is_some_and(|it| matches!(it.ty, Ty::S64 | Ty::U64 | Ty::U32)),
        _ => true,
    };
    let function = ident(&format!("{}_pages", names::json(&operation.name)));
    fits.then(|| {
        quote! {
            #[doc = #docs]
            pub(crate) fn #function(#(#declared,)* most: usize) -> Result<Vec<#item_type>, Failure> {
                #body
                items.truncate(most);
                Ok(items)
            }
        }
    })
}

fn items_of<'t>(table: &'t TypeTable, result: &'t Ty, paging: &Paging) -> Option<&'t Ty> {
    let name = match paging {
        Paging::Link | Paging::Page { items: None, .. } => {
            return match result {
                Ty::List(item) => Some(item),
                _ => None,
            };
        }
        Paging::Page { items: Some(items), .. }
        | Paging::LastId { items, .. }
        | Paging::Cursor { items, .. } => items,
    };
    match &fields_of(table, result)?.iter().find(|field| field.name == *name)?.ty {
        Ty::List(item) => Some(item),
        _ => None,
    }
}

fn fields_of<'t>(table: &'t TypeTable, ty: &Ty) -> Option<&'t [Field]> {
    let Ty::Named(id) = ty else { return None };
    match table.definition(*id)? {
        Definition::Record(fields) => Some(fields),
        _ => None,
    }
}

/// Returns the expression of the cursor in `page`.
fn next_of(table: &TypeTable, result: &Ty, path: &[String]) -> Option<TokenStream> {
    let find = |ty: &Ty, name: &String| {
        let field = fields_of(table, ty)?.iter().find(|field| field.name == *name)?;
        let is_option = field.presence != Presence::Required || matches!(field.ty, Ty::Nullable(_));
        let ty = match &field.ty {
            Ty::Nullable(inner) => (**inner).clone(),
            ty => ty.clone(),
        };
        // A field that may be both absent and null has two options, which this does not unpack.
        let is_double = field.presence == Presence::Optional && matches!(field.ty, Ty::Nullable(_));
        (!is_double).then_some((ident(&names::rust(&field.name)), ty, is_option))
    };
    let (first, ty, first_option) = find(result, path.first()?)?;
    let Some(second) = path.get(1) else {
        return Some(if first_option {
            quote!(page.#first.clone())
        } else {
            quote!(Some(page.#first.clone()))
        });
    };
    let (second, _, second_option) = find(&ty, second)?;
    Some(match (first_option, second_option) {
        (true, true) => quote!(page.#first.as_ref().and_then(|it| it.#second.clone())),
        (true, false) => quote!(page.#first.as_ref().map(|it| it.#second.clone())),
        (false, true) => quote!(page.#first.#second.clone()),
        (false, false) => quote!(Some(page.#first.#second.clone())),
    })
}
