//! Writes the interface.

use super::text::doc_lines;
use crate::names;
use crate::operation::Operation;
use crate::schema::SchemaReader;
use crate::types::{Definition, JsonReason, Presence, Ty, TypeDef, TypeId, TypeTable};

/// Width of documentation in the interface.
const WIDTH: usize = 108;

/// Returns the text of the WIT file.
pub(crate) fn interface(
    header: &str,
    package: &str,
    name: &str,
    title: &str,
    reader: &SchemaReader<'_>,
    operations: &[Operation<'_>],
    reached: &[TypeId],
) -> String {
    let mut text = format!("// {header}\npackage {package};\n\n");
    docs(&mut text, "", title, "The operations of a service.");
    text.push_str(&format!(
        "interface {} {{\n    use cofferdam:connector/types@0.1.0.{{failure}};\n",
        names::wit(name)
    ));
    let table = &reader.table;
    for def in reached.iter().filter_map(|id| table.get(*id)) {
        text.push('\n');
        type_def(&mut text, table, def);
    }
    for operation in operations {
        text.push('\n');
        function(&mut text, table, operation);
    }
    text.push_str("}\n");
    text
}

fn docs(text: &mut String, indent: &str, docs: &str, otherwise: &str) {
    let mut lines = doc_lines(docs, WIDTH.saturating_sub(indent.len()));
    if lines.is_empty() && !otherwise.is_empty() {
        lines = doc_lines(otherwise, WIDTH);
    }
    for line in lines {
        text.push_str(format!("{indent}/// {line}").trim_end());
        text.push('\n');
    }
}

/// Returns the type as WIT writes it.
pub(crate) fn type_name(table: &TypeTable, ty: &Ty) -> String {
    match ty {
        Ty::Bool => "bool".to_owned(),
        Ty::S32 => "s32".to_owned(),
        Ty::S64 => "s64".to_owned(),
        Ty::U32 => "u32".to_owned(),
        Ty::U64 => "u64".to_owned(),
        Ty::F64 => "f64".to_owned(),
        Ty::Text | Ty::Json(_) => "string".to_owned(),
        Ty::Bytes => "list<u8>".to_owned(),
        Ty::List(inner) => format!("list<{}>", type_name(table, inner)),
        Ty::Map(inner) => format!("list<tuple<string, {}>>", type_name(table, inner)),
        Ty::Nullable(inner) => format!("option<{}>", type_name(table, inner)),
        Ty::Named(id) => table.get(*id).map_or_else(String::new, |def| names::wit(&def.name)),
    }
}

fn json_reason(ty: &Ty) -> Option<JsonReason> {
    match ty {
        Ty::Json(reason) => Some(*reason),
        Ty::List(inner) | Ty::Map(inner) | Ty::Nullable(inner) => json_reason(inner),
        _ => None,
    }
}

/// Adds the note of values that WIT cannot say.
fn noted(docs: &str, ty: &Ty) -> String {
    match json_reason(ty) {
        Some(reason) => format!("{}\n\nJSON text: {}.", docs.trim_end(), reason.note()),
        None => docs.to_owned(),
    }
}

fn type_def(text: &mut String, table: &TypeTable, def: &TypeDef) {
    let name = names::wit(&def.name);
    let words = def.name.replace('-', " ");
    docs(text, "    ", &def.docs, &format!("The type `{words}`."));
    match &def.definition {
        Definition::Record(fields) => {
            text.push_str(&format!("    record {name} {{\n"));
            for field in fields {
                let mut note = noted(&field.docs, &field.ty);
                if names::json(&field.name) != field.wire {
                    note = format!("{}\n\nThe service calls it `{}`.", note.trim_end(), field.wire);
                }
                if field.presence == Presence::OptionalNullable {
                    note = format!("{}\n\n`some(none)` sends null, `none` leaves it out.", note.trim_end());
                }
                docs(text, "        ", note.trim_start(), "");
                let ty = type_name(table, &field.ty);
                let ty = match field.presence {
                    Presence::Required => ty,
                    Presence::Optional => format!("option<{ty}>"),
                    Presence::OptionalNullable => format!("option<option<{ty}>>"),
                };
                text.push_str(&format!("        {}: {ty},\n", names::wit(&field.name)));
            }
        }
        Definition::Enum(labels) | Definition::Flags(labels) => {
            let word = if matches!(def.definition, Definition::Enum(_)) { "enum" } else { "flags" };
            text.push_str(&format!("    {word} {name} {{\n"));
            for label in labels {
                if names::json(&label.name) != label.wire && label.name != label.wire {
                    docs(text, "        ", &format!("The service calls it `{}`.", label.wire), "");
                }
                text.push_str(&format!("        {},\n", names::wit(&label.name)));
            }
        }
        Definition::Variant { cases, .. } => {
            text.push_str(&format!("    variant {name} {{\n"));
            for case in cases {
                docs(text, "        ", noted("", &case.ty).trim_start(), "");
                text.push_str(&format!(
                    "        {}({}),\n",
                    names::wit(&case.name),
                    type_name(table, &case.ty)
                ));
            }
        }
    }
    text.push_str("    }\n");
}

fn function(text: &mut String, table: &TypeTable, operation: &Operation<'_>) {
    let mut about = operation.docs.clone();
    if operation.is_deprecated {
        about = format!("Deprecated by the service.\n\n{about}");
    }
    if let Some(ty) = &operation.result
        && let Some(reason) = json_reason(ty)
    {
        about = format!("{}\n\nThe result is JSON text: {}.", about.trim_end(), reason.note());
    }
    docs(text, "    ", &about, &format!("Sends {} {}.", operation.method, operation.template));
    let name = names::wit(&operation.name);
    let mut lines = Vec::new();
    let mut parameter = |name: &str, about: &str, ty: String, required: bool| {
        let mut line = String::new();
        docs(&mut line, "        ", about, &format!("The parameter `{name}`."));
        let ty = if required { ty } else { format!("option<{ty}>") };
        line.push_str(&format!("        {}: {ty},\n", names::wit(name)));
        lines.push(line);
    };
    match &operation.record {
        Some(ty) => parameter("parameters", "The parameters.", type_name(table, ty), true),
        None => {
            for it in &operation.parameters {
                let about = noted(&it.docs, &it.ty);
                parameter(&it.name, about.trim_start(), type_name(table, &it.ty), it.required);
            }
        }
    }
    if let Some(body) = &operation.body {
        let about = if body.docs.is_empty() { "The body of the request." } else { &body.docs };
        parameter(&body.name, noted(about, &body.ty).trim_start(), type_name(table, &body.ty), body.required);
    }
    let result = match &operation.result {
        Some(ty) => type_name(table, ty),
        None => "_".to_owned(),
    };
    if lines.is_empty() {
        text.push_str(&format!("    {name}: func() -> result<{result}, failure>;\n"));
    } else {
        text.push_str(&format!("    {name}: func(\n{}    ) -> result<{result}, failure>;\n", lines.concat()));
    }
}
