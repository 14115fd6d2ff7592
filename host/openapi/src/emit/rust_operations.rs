//! Writes the function of each operation.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::rust::{format, has_request_function, ident, reader_of, rust_type, summary, text, written};
use crate::error::OpenApiError;
use crate::names;
use crate::operation::{
    Body, BodyEncoding, Content, FormStyle, Operation, Parameter, PathPart, Place, Statuses, Style,
};
use crate::schema::SchemaReader;
use crate::types::{Definition, Presence, Ty, TypeTable};

/// Names of the functions' own variables.
const LOCALS: [&str; 6] = ["target", "request", "response", "form", "it", "super"];

/// Returns the arguments of an operation's function: name, and type with whether it is required.
pub(crate) fn arguments<'o>(operation: &'o Operation<'_>) -> Vec<(Ident, (&'o Ty, bool))> {
    let mut found: Vec<(String, (&Ty, bool))> = Vec::new();
    match &operation.record {
        Some(ty) => found.push(("parameters".to_owned(), (ty, true))),
        None => {
            found.extend(operation.parameters.iter().map(|it| (names::rust(&it.name), (&it.ty, it.required))))
        }
    }
    found.extend(operation.body.iter().map(|body| (names::rust(&body.name), (&body.ty, body.required))));
    let all: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
    let local = |name: String| {
        let mut name = name;
        while LOCALS.contains(&name.as_str()) {
            name.push_str("_value");
            while all.contains(&name) {
                name.push('_');
            }
        }
        ident(&name)
    };
    found.into_iter().map(|(name, ty)| (local(name), ty)).collect()
}

/// Returns the file with all operations.
pub(crate) fn operations_file(
    header: &str,
    reader: &SchemaReader<'_>,
    operations: &[Operation<'_>],
) -> Result<String, OpenApiError> {
    let table = &reader.table;
    let functions = operations.iter().map(|operation| function(table, operation)).collect::<Vec<_>>();
    let code: TokenStream = functions.into_iter().collect();
    let used = code.to_string();
    let has = |word: &str| used.contains(word);
    let style = match (has("Style ::"), has("Keep ::")) {
        (true, true) => quote!(
            use super::style::{Keep, Style};
        ),
        (true, false) => quote!(
            use super::style::Style;
        ),
        (false, _) => quote!(),
    };
    let style_module = has("style :: form").then(|| {
        quote!(
            use super::style;
        )
    });
    let multipart = has("Multipart ::").then(|| {
        quote!(
            use super::multipart::Multipart;
        )
    });
    let read = has("read ::").then(|| {
        quote!(
            use super::read;
        )
    });
    let write = has("write ::").then(|| {
        quote!(
            use super::write;
        )
    });
    let call = has("call ::").then(|| {
        quote!(
            use cofferdam_guest::call;
        )
    });
    let request = has("-> Result < Request").then(|| {
        quote!(
            use cofferdam_guest::http::Request;
        )
    });
    let value = has("Value ::").then(|| {
        quote!(
            use serde_json::Value;
        )
    });
    let why = "an operation has as many arguments as the service's has";
    let tokens = quote! {
        #![allow(clippy::too_many_arguments, reason = #why)]
        use super::exchange;
        #multipart
        #read
        #style_module
        #style
        use super::target::Target;
        #write
        use cofferdam_guest::Failure;
        #call
        use cofferdam_guest::http::Method;
        #request
        #value
        #code
    };
    format(header, "The operations: how each is sent, and how its answer is read.", tokens)
}

fn function(table: &TypeTable, operation: &Operation<'_>) -> TokenStream {
    let name = ident(&names::rust(&operation.name));
    let arguments = arguments(operation);
    let declared: Vec<_> = arguments
        .iter()
        .map(|(name, (ty, required))| {
            let ty = rust_type(table, ty);
            if *required { quote!(#name: #ty) } else { quote!(#name: Option<#ty>) }
        })
        .collect();
    let names: Vec<_> = arguments.iter().map(|(name, _)| name).collect();
    let result = operation.result.as_ref().map_or_else(|| quote!(()), |ty| rust_type(table, ty));
    let request = request(table, operation, &arguments);
    let answer = answer(table, operation);
    let docs = summary(&operation.docs, &format!("Sends {} {}.", operation.method, operation.template));
    if has_request_function(operation) {
        let request_name = ident(&format!("{}_request", names::json(&operation.name)));
        let about = text(&format!(" Makes the request of `{name}`."));
        return quote! {
            #docs
            pub(crate) fn #name(#(#declared),*) -> Result<#result, Failure> {
                let request = #request_name(#(#names),*)?;
                let response = exchange::send(request)?;
                #answer
            }
            #[doc = #about]
            pub(crate) fn #request_name(#(#declared),*) -> Result<Request, Failure> {
                #request
                Ok(request)
            }
        };
    }
    quote! {
        #docs
        pub(crate) fn #name(#(#declared),*) -> Result<#result, Failure> {
            #request
            let response = exchange::send(request)?;
            #answer
        }
    }
}

fn style_token(style: Style) -> TokenStream {
    match style {
        Style::Simple => quote!(Style::Simple),
        Style::Label => quote!(Style::Label),
        Style::Matrix => quote!(Style::Matrix),
        Style::Form => quote!(Style::Form),
        Style::SpaceDelimited => quote!(Style::SpaceDelimited),
        Style::PipeDelimited => quote!(Style::PipeDelimited),
        Style::DeepObject => quote!(Style::DeepObject),
    }
}

fn request(table: &TypeTable, operation: &Operation<'_>, arguments: &[(Ident, (&Ty, bool))]) -> TokenStream {
    let base = text(&operation.base);
    let mut code = quote!(let mut target = Target::new(#base););
    // The expression of a parameter, which is a reference.
    let place_of = |parameter: &Parameter<'_>| -> TokenStream {
        if operation.record.is_some() {
            let field = ident(&names::rust(&parameter.name));
            return quote!(&parameters.#field);
        }
        let at = operation.parameters.iter().position(|it| it.name == parameter.name).unwrap_or_default();
        let name = arguments.get(at).map_or_else(|| ident("invalid_name"), |(name, _)| name.clone());
        quote!(&#name)
    };
    let value = |parameter: &Parameter<'_>, place: &TokenStream| {
        let value = written(table, &parameter.ty, place);
        if parameter.is_json { quote!(&Value::String((#value).to_string())) } else { quote!(&#value) }
    };
    for part in &operation.path {
        match part {
            PathPart::Literal(literal) => {
                let literal = text(literal);
                code.extend(quote!(target.literal(#literal);));
            }
            PathPart::Parameter(wire) => {
                let Some(parameter) = operation.path_parameter(wire) else { continue };
                let (wire, style, explode) = (text(wire), style_token(parameter.style), parameter.explode);
                let value = value(parameter, &place_of(parameter));
                code.extend(quote!(target.path(#wire, #style, #explode, #value)?;));
            }
        }
    }
    for parameter in operation.parameters.iter().filter(|parameter| parameter.place != Place::Path) {
        let place = place_of(parameter);
        let inner = if parameter.required { place.clone() } else { quote!(it) };
        let value = value(parameter, &inner);
        let (wire, style, explode) = (text(&parameter.wire), style_token(parameter.style), parameter.explode);
        let line = match parameter.place {
            Place::Query => {
                let keep = if parameter.is_reserved_allowed {
                    quote!(Keep::Reserved)
                } else {
                    quote!(Keep::Unreserved)
                };
                quote!(target.query(#wire, #style, #explode, #keep, #value);)
            }
            Place::Header => {
                let wire = text(&parameter.wire.to_ascii_lowercase());
                quote!(target.header(#wire, #explode, #value);)
            }
            Place::Cookie => quote!(target.cookie(#wire, #explode, #value);),
            Place::Path => continue,
        };
        code.extend(if parameter.required { line } else { quote!(if let Some(it) = #place { #line }) });
    }
    let method = ident(match operation.method.as_str() {
        "HEAD" => "Head",
        "POST" => "Post",
        "PUT" => "Put",
        "PATCH" => "Patch",
        "DELETE" => "Delete",
        _ => "Get",
    });
    let mut chain = quote!(target.request(Method::#method));
    if let Some(accept) = &operation.accept {
        let accept = text(accept);
        chain = quote!(#chain.header("accept", #accept));
    }
    if let Some(header) = &operation.idempotency_header {
        let label = names::json(&operation.name);
        chain = if header.eq_ignore_ascii_case("idempotency-key") {
            let label = text(&label);
            quote!(#chain.idempotency_key(#label))
        } else {
            let (header, form) = (text(&header.to_ascii_lowercase()), text(&format!("{{}}:{label}")));
            quote!(#chain.header(#header, format!(#form, call::idempotency_key())))
        };
    }
    code.extend(quote!(let request = #chain;));
    if let (Some(body), Some((name, _))) = (&operation.body, arguments.last()) {
        code.extend(encoded(table, body, name));
    }
    code
}

/// Returns the statements that give the request its body.
fn encoded(table: &TypeTable, body: &Body<'_>, name: &Ident) -> TokenStream {
    let place = if body.required { quote!(&#name) } else { quote!(it) };
    let request = match &body.encoding {
        BodyEncoding::Json(media) => {
            let value = written(table, &body.ty, &place);
            if media == "application/json" {
                quote!(request.json(&#value))
            } else {
                let media = text(media);
                quote!(request.bytes(#media, (#value).to_string()))
            }
        }
        BodyEncoding::Form => {
            let value = written(table, &body.ty, &place);
            let styles = body.styles.iter().map(|FormStyle { wire, style, explode }| {
                let (wire, style) = (text(wire), style_token(*style));
                quote!((#wire, #style, #explode))
            });
            quote!(request.form(style::form(&#value, &[#(#styles),*])))
        }
        BodyEncoding::Multipart => {
            let lines = parts(table, &body.ty, &place);
            quote!({
                let mut form = Multipart::default();
                #lines
                form.send_with(request)
            })
        }
        BodyEncoding::Text(media) => {
            let media = text(media);
            quote!(request.bytes(#media, #place.clone()))
        }
        BodyEncoding::Bytes(media) => {
            let media = text(media);
            quote!(request.bytes(#media, #place.clone()))
        }
    };
    let request = match (&body.encoding, body.required) {
        // The body is not used again.
        (BodyEncoding::Text(media) | BodyEncoding::Bytes(media), true) => {
            let media = text(media);
            quote!(request.bytes(#media, #name))
        }
        _ => request,
    };
    if body.required {
        quote!(let request = #request;)
    } else {
        quote! {
            let request = match &#name {
                Some(it) => #request,
                None => request,
            };
        }
    }
}

/// Returns the statements that add the parts of a form with files.
fn parts(table: &TypeTable, ty: &Ty, place: &TokenStream) -> TokenStream {
    let Ty::Named(id) = ty else { return TokenStream::new() };
    let Some(Definition::Record(fields)) = table.definition(*id) else { return TokenStream::new() };
    let owner = place.to_string();
    let owner: TokenStream = if owner == "it" {
        quote!(it)
    } else {
        // `&body` is `body` before a field.
        let mut tokens = place.clone().into_iter();
        tokens.next();
        tokens.collect()
    };
    let mut code = TokenStream::new();
    for field in fields {
        let name = ident(&names::rust(&field.name));
        // The name is part of a header field, in quotes: as browsers write it.
        let wire = field.wire.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
        let wire = text(&wire);
        let is_required = field.presence == Presence::Required;
        let value = if is_required { quote!(&#owner.#name) } else { quote!(part) };
        let line = match &field.ty {
            Ty::Bytes => quote!(form.file(#wire, #value);),
            Ty::List(inner) if **inner == Ty::Bytes => quote!(for file in #value { form.file(#wire, file); }),
            ty => {
                let value = written(table, ty, &value);
                quote!(form.field(#wire, &#value);)
            }
        };
        code.extend(if is_required { line } else { quote!(if let Some(part) = &#owner.#name { #line }) });
    }
    code
}

/// Returns the expression that reads the answer.
fn answer(table: &TypeTable, operation: &Operation<'_>) -> TokenStream {
    let json = if operation.has_ok_field { quote!(exchange::ok_json) } else { quote!(exchange::json) };
    let read = |content: &Content, ty: &Ty| match content {
        Content::Json => {
            let reader = reader_of(table, ty);
            quote!(#json(&response, #reader))
        }
        Content::Text => quote!(exchange::text(response)),
        Content::Bytes => quote!(exchange::bytes(response)),
        Content::Location => quote!(exchange::location(&response)),
        Content::Empty => quote!(exchange::success(&response)),
    };
    let with_content: Vec<_> = operation.answers.iter().filter(|answer| answer.ty.is_some()).collect();
    let has_empty = with_content.len() < operation.answers.len();
    let mut kinds: Vec<(&Content, &Ty)> = Vec::new();
    for answer in &with_content {
        if let Some(ty) = &answer.ty
            && !kinds.contains(&(&answer.content, ty))
        {
            kinds.push((&answer.content, ty));
        }
    }
    match kinds.as_slice() {
        [] => quote!(exchange::success(&response)),
        [(content, ty)] => {
            let value = read(content, ty);
            let is_option = matches!(ty, Ty::Nullable(_));
            match (has_empty, is_option) {
                (false, _) => value,
                (true, true) => quote! {
                    if response.bytes().is_empty() {
                        exchange::success(&response)?;
                        return Ok(None);
                    }
                    #value
                },
                (true, false) => quote! {
                    if response.bytes().is_empty() {
                        exchange::success(&response)?;
                        return Ok(None);
                    }
                    #value.map(Some)
                },
            }
        }
        _ => {
            let variant = match &operation.result {
                Some(Ty::Named(id)) => super::rust::type_ident(table, *id),
                Some(Ty::Nullable(inner)) => match &**inner {
                    Ty::Named(id) => super::rust::type_ident(table, *id),
                    _ => ident("invalid_name"),
                },
                _ => ident("invalid_name"),
            };
            let wrap = |value: TokenStream| if has_empty { quote!(#value.map(Some)) } else { value };
            let mut arms = TokenStream::new();
            let mut last = TokenStream::new();
            for answer in &with_content {
                let (Some(ty), Some(case)) = (&answer.ty, &answer.case) else { continue };
                let case = ident(&names::camel(case));
                let value = read(&answer.content, ty);
                let value = wrap(quote!(#value.map(super::#variant::#case)));
                match answer.statuses {
                    Statuses::One(status) => arms.extend(quote!(#status => #value,)),
                    Statuses::Hundred(_) | Statuses::Any => last = quote!(_ => #value,),
                }
            }
            for answer in operation.answers.iter().filter(|answer| answer.ty.is_none()) {
                if let Statuses::One(status) = answer.statuses {
                    arms.extend(quote!(#status => Ok(None),));
                }
            }
            if last.is_empty() {
                last = quote!(status => Err(Failure::upstream(status, "unexpected_status")),);
            }
            quote!(match response.status() { #arms #last })
        }
    }
}
