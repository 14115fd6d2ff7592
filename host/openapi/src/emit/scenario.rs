//! Writes a scenario for each operation.

use serde_json::{Value, json};

use super::text::{toml, toml_key};
use crate::document::Document;
use crate::names;
use crate::operation::{
    Answer, Body, BodyEncoding, Content, Operation, Parameter, PathPart, Place, Statuses, Style,
};
use crate::sample::{self, Sample};
use crate::schema::SchemaReader;
use crate::style;
use crate::types::{Direction, Ty};

/// A call of an operation with the exchange that it needs.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) args: Value,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<(&'static str, Value)>,
    pub(crate) status: u16,
    pub(crate) answer_headers: Vec<(String, String)>,
    pub(crate) answer: Option<(&'static str, Value)>,
    pub(crate) value: Value,
}

fn style_of(style: Style) -> style::Style {
    match style {
        Style::Simple => style::Style::Simple,
        Style::Label => style::Style::Label,
        Style::Matrix => style::Style::Matrix,
        Style::Form => style::Style::Form,
        Style::SpaceDelimited => style::Style::SpaceDelimited,
        Style::PipeDelimited => style::Style::PipeDelimited,
        Style::DeepObject => style::Style::DeepObject,
    }
}

/// Returns a call of an operation, made of the document's examples.
pub(crate) fn exchange(
    document: &Document,
    reader: &SchemaReader<'_>,
    operation: &Operation<'_>,
) -> Exchange {
    let table = &reader.table;
    let mut args = serde_json::Map::new();
    let mut url = operation.base.clone();
    let mut headers = Vec::new();
    let mut cookies: Vec<String> = Vec::new();
    let mut pairs: Vec<String> = Vec::new();
    let sample_of = |parameter: &Parameter<'_>| {
        let holders = [Some(&parameter.node)];
        let mut sample =
            sample::of(document, table, &parameter.ty, parameter.schema.as_ref(), &holders, Direction::Input);
        if parameter.place == Place::Path && style::plain(&sample.wire).is_empty() && parameter.ty == Ty::Text
        {
            sample = Sample { wire: json!("text"), wit: json!("text") };
        }
        sample.wire = sample::sorted(&sample.wire);
        sample
    };
    let mut path_values: Vec<(&str, Sample)> = Vec::new();
    for parameter in operation.parameters.iter().filter(|parameter| parameter.required) {
        let sample = sample_of(parameter);
        args.insert(names::json(&parameter.name), sample.wit.clone());
        let value =
            if parameter.is_json { Value::String(sample.wire.to_string()) } else { sample.wire.clone() };
        let style = style_of(parameter.style);
        let keep =
            if parameter.is_reserved_allowed { style::Keep::Reserved } else { style::Keep::Unreserved };
        match parameter.place {
            Place::Path => path_values.push((&parameter.wire, Sample { wire: value, wit: sample.wit })),
            Place::Query => {
                pairs.extend(style::query(&parameter.wire, style, parameter.explode, keep, &value))
            }
            Place::Header => {
                headers.push((parameter.wire.to_ascii_lowercase(), style::header(parameter.explode, &value)));
            }
            Place::Cookie => cookies.extend(style::query(
                &parameter.wire,
                style::Style::Form,
                parameter.explode,
                style::Keep::Unreserved,
                &value,
            )),
        }
    }
    if !cookies.is_empty() {
        headers.push(("cookie".to_owned(), cookies.join("; ")));
    }
    for part in &operation.path {
        match part {
            PathPart::Literal(text) => url.push_str(text),
            PathPart::Parameter(wire) => {
                let Some(parameter) = operation.path_parameter(wire) else { continue };
                let value = path_values.iter().find(|(name, _)| name == wire).map(|(_, sample)| &sample.wire);
                let value = value.unwrap_or(&Value::Null);
                url.push_str(&style::path(wire, style_of(parameter.style), parameter.explode, value));
            }
        }
    }
    for pair in pairs {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(&pair);
    }
    if operation.record.is_some() {
        // A record has all its fields, where an argument may be left out.
        args = serde_json::Map::from_iter([("parameters".to_owned(), Value::Object(args))]);
    }
    let body = operation.body.as_ref().and_then(|body| body_of(document, reader, body, &mut args));
    if let Some(header) = &operation.idempotency_header {
        headers.push((header.to_ascii_lowercase(), "{{key}}".to_owned()));
    }
    let mut exchange = Exchange {
        args: Value::Object(args),
        url,
        headers,
        body,
        status: 200,
        answer_headers: Vec::new(),
        answer: None,
        value: Value::Null,
    };
    // The answer with content, if there is one.
    let answer = operation.answers.iter().find(|answer| answer.ty.is_some()).or(operation.answers.first());
    if let Some(answer) = answer {
        answered(document, reader, operation, answer, &mut exchange);
    }
    exchange
}

fn body_of(
    document: &Document,
    reader: &SchemaReader<'_>,
    body: &Body<'_>,
    args: &mut serde_json::Map<String, Value>,
) -> Option<(&'static str, Value)> {
    let holders = [body.media.as_ref()];
    let sample = match &body.encoding {
        // Bytes and files are base64 for the caller.
        BodyEncoding::Bytes(_) => Sample { wire: json!("bytes"), wit: json!(sample::base64(b"bytes")) },
        BodyEncoding::Text(_) => Sample { wire: json!("text"), wit: json!("text") },
        _ => sample::of(document, &reader.table, &body.ty, body.schema.as_ref(), &holders, Direction::Input),
    };
    args.insert(names::json(&body.name), sample.wit);
    Some(match &body.encoding {
        BodyEncoding::Json(_) => ("json", sample.wire),
        BodyEncoding::Form => {
            let styles: Vec<_> =
                body.styles.iter().map(|it| (it.wire.as_str(), style_of(it.style), it.explode)).collect();
            let mut table = serde_json::Map::new();
            for (name, value) in style::form(&sample.wire, &styles) {
                match table.get_mut(&name) {
                    Some(Value::Array(values)) => values.push(Value::String(value)),
                    Some(one) => *one = json!([one.clone(), value]),
                    None => {
                        table.insert(name, Value::String(value));
                    }
                }
            }
            ("form", Value::Object(table))
        }
        BodyEncoding::Text(_) | BodyEncoding::Bytes(_) => ("body", sample.wire),
        BodyEncoding::Multipart => return None,
    })
}

fn answered(
    document: &Document,
    reader: &SchemaReader<'_>,
    operation: &Operation<'_>,
    answer: &Answer<'_>,
    exchange: &mut Exchange,
) {
    exchange.status = match answer.statuses {
        Statuses::One(status) => status,
        Statuses::Hundred(_) | Statuses::Any => 200,
    };
    let Some(ty) = &answer.ty else { return };
    let mut value = match answer.content {
        Content::Json => {
            let holders = [answer.media.as_ref()];
            let mut sample =
                sample::of(document, &reader.table, ty, answer.schema.as_ref(), &holders, Direction::Output);
            if operation.has_ok_field
                && let Some(ok) = sample.wire.get_mut("ok")
                && *ok == Value::Bool(false)
            {
                *ok = Value::Bool(true);
                sample.wit = sample::to_wit(&reader.table, ty, &sample.wire).unwrap_or(sample.wit);
            }
            exchange.answer = Some(("json", sample.wire));
            sample.wit
        }
        Content::Location => {
            exchange.answer_headers.push(("location".to_owned(), "https://example.com/a".to_owned()));
            json!("https://example.com/a")
        }
        Content::Text => {
            exchange.answer = Some(("body", json!("text")));
            json!("text")
        }
        Content::Bytes => {
            exchange.answer = Some(("body", json!("bytes")));
            json!(sample::base64(b"bytes"))
        }
        Content::Empty => return,
    };
    if let Some(case) = &answer.case {
        value = json!({ names::json(case): value });
    }
    exchange.value = value;
}

/// Returns the file with the scenario of an operation.
pub(crate) fn file(header: &str, operation: &Operation<'_>, exchange: &Exchange) -> String {
    let name = names::json(&operation.name);
    let mut text = format!(
        "# {header}\n\n[[scenario]]\nname = {}\n\n[[scenario.service]]\n",
        toml(&format!("{name} is sent as described"))
    );
    let mut request =
        vec![format!("method = {}", toml(&operation.method)), format!("url = {}", toml(&exchange.url))];
    if !exchange.headers.is_empty() {
        let fields: Vec<_> = exchange
            .headers
            .iter()
            .map(|(name, value)| format!("{} = {}", toml_key(name), toml(value)))
            .collect();
        request.push(format!("headers = {{ {} }}", fields.join(", ")));
    }
    if let Some((kind, value)) = &exchange.body {
        request.push(format!("{kind} = {}", toml_value(value)));
    }
    text.push_str(&format!("request = {{ {} }}\n", request.join(", ")));
    let mut response = vec![format!("status = {}", exchange.status)];
    if !exchange.answer_headers.is_empty() {
        let fields: Vec<_> = exchange
            .answer_headers
            .iter()
            .map(|(name, value)| format!("{} = {}", toml_key(name), toml(value)))
            .collect();
        response.push(format!("headers = {{ {} }}", fields.join(", ")));
    }
    if let Some((kind, value)) = &exchange.answer {
        response.push(format!("{kind} = {}", toml_value(value)));
    }
    text.push_str(&format!(
        "response = {{ {} }}\n\n[[scenario.call]]\noperation = {}\n",
        response.join(", "),
        toml(&name)
    ));
    text.push_str(&format!(
        "args = {}\nexpect.value = {}\n",
        toml_value(&exchange.args),
        toml_value(&exchange.value)
    ));
    if !operation.changes_something() && operation.method != "HEAD" {
        text.push_str(&failure(operation, exchange, &name));
    }
    text
}

/// Returns the scenario of an error.
fn failure(operation: &Operation<'_>, exchange: &Exchange, name: &str) -> String {
    format!(
        "\n[[scenario]]\nname = {}\n\n[[scenario.service]]\nrequest = {{ method = {}, url = {} }}\nresponse = {{ status = 404, \
         json = {{ code = \"missing\" }} }}\n\n[[scenario.call]]\noperation = {}\nargs = {}\nexpect.failure = {{ class = \
         \"external_api_error\", code = \"not_found\", details = {{ upstream_code = \"missing\" }} }}\n",
        toml(&format!("an error of {name} is reported")),
        toml(&operation.method),
        toml(&exchange.url),
        toml(name),
        toml_value(&exchange.args),
    )
}

/// Returns a JSON value in TOML, with the placeholder of scenarios for `null`.
pub(crate) fn toml_value(value: &Value) -> String {
    match value {
        Value::Null => "\"{{null}}\"".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => number.to_string(),
            (None, Some(number)) => format!("{number:?}"),
            (None, None) => "0".to_owned(),
        },
        Value::String(text) => toml(text),
        Value::Array(items) => format!("[{}]", items.iter().map(toml_value).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(name, value)| format!("{} = {}", toml_key(name), toml_value(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}
