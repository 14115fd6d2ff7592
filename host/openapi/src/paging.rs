//! Recognizes how a service hands out long lists.

use crate::operation::{Operation, Paging, Place};
use crate::schema::SchemaReader;
use crate::types::{Definition, Field, Presence, Ty};

/// Parameters whose value is a field of the answer before.
const CURSORS: [&str; 9] = [
    "cursor",
    "page_token",
    "pageToken",
    "next_token",
    "nextToken",
    "after",
    "continuation_token",
    "start_cursor",
    "next_page_token",
];

/// The fields that have it.
const NEXT: [&str; 9] = [
    "next_cursor",
    "nextCursor",
    "next_page_token",
    "nextPageToken",
    "next_token",
    "nextToken",
    "continuation_token",
    "cursor",
    "after",
];

/// Records around such a field.
const AROUND: [&str; 6] = ["response_metadata", "meta", "metadata", "pagination", "paging", "page_info"];

/// Returns the scheme of an operation that reads a list.
pub(crate) fn recognize(reader: &SchemaReader<'_>, operation: &Operation<'_>) -> Option<Paging> {
    if operation.method != "GET" || operation.record.is_some() || operation.answers.len() != 1 {
        return None;
    }
    let answer = operation.answers.first()?;
    let result = operation.result.as_ref()?;
    if answer.has_link && matches!(result, Ty::List(_)) {
        return Some(Paging::Link);
    }
    let query = |names: &[&str], text: bool| {
        let fits = |ty: &Ty| {
            if text { *ty == Ty::Text } else { matches!(ty, Ty::S32 | Ty::S64 | Ty::U32 | Ty::U64) }
        };
        let found = operation.parameters.iter().find(|it| {
            it.place == Place::Query && !it.required && names.contains(&it.wire.as_str()) && fits(&it.ty)
        });
        found.map(|parameter| parameter.name.clone())
    };
    let fields = match result {
        Ty::Named(id) => match reader.table.definition(*id) {
            Some(Definition::Record(fields)) => fields.as_slice(),
            _ => &[],
        },
        _ => &[],
    };
    let lists: Vec<&Field> = fields.iter().filter(|field| matches!(field.ty, Ty::List(_))).collect();
    let items = match lists.as_slice() {
        [only] if only.presence == Presence::Required => Some(only.name.clone()),
        _ => None,
    };
    if let (Some(parameter), Some(items)) = (query(&CURSORS, true), &items)
        && let Some(path) = next_field(reader, fields)
    {
        return Some(Paging::Cursor { path, parameter, items: items.clone() });
    }
    let more = fields.iter().find(|field| {
        field.wire == "has_more" && field.ty == Ty::Bool && field.presence == Presence::Required
    });
    if let (Some(parameter), Some(items), Some(more)) = (query(&["starting_after"], true), &items, more)
        && items_have_id(reader, fields, items)
    {
        return Some(Paging::LastId { parameter, items: items.clone(), more: more.name.clone() });
    }
    let parameter = query(&["page", "page_number", "pageNumber"], false)?;
    match (result, items) {
        (Ty::List(_), _) => Some(Paging::Page { parameter, items: None }),
        (_, Some(items)) => Some(Paging::Page { parameter, items: Some(items) }),
        _ => None,
    }
}

/// Returns the names of the fields that lead to the next cursor.
fn next_field(reader: &SchemaReader<'_>, fields: &[Field]) -> Option<Vec<String>> {
    let find = |fields: &[Field]| {
        let found = fields.iter().find(|field| NEXT.contains(&field.wire.as_str()) && plain_text(&field.ty));
        found.map(|field| field.name.clone())
    };
    if let Some(name) = find(fields) {
        return Some(vec![name]);
    }
    fields.iter().filter(|field| AROUND.contains(&field.wire.as_str())).find_map(|field| {
        let inner = match &field.ty {
            Ty::Named(id) => *id,
            _ => return None,
        };
        match reader.table.definition(inner) {
            Some(Definition::Record(fields)) => Some(vec![field.name.clone(), find(fields)?]),
            _ => None,
        }
    })
}

fn plain_text(ty: &Ty) -> bool {
    match ty {
        Ty::Text => true,
        Ty::Nullable(inner) => **inner == Ty::Text,
        _ => false,
    }
}

fn items_have_id(reader: &SchemaReader<'_>, fields: &[Field], items: &str) -> bool {
    let Some(Ty::List(item)) = fields.iter().find(|field| field.name == items).map(|field| &field.ty) else {
        return false;
    };
    let Ty::Named(id) = &**item else { return false };
    match reader.table.definition(*id) {
        Some(Definition::Record(fields)) => {
            fields.iter().any(|it| it.name == "id" && it.ty == Ty::Text && it.presence == Presence::Required)
        }
        _ => false,
    }
}
