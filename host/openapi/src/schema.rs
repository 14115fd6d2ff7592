//! From schemas to types.

use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::Value;

use crate::document::{Document, Node};
use crate::error::OpenApiError;
use crate::graph::SchemaGraph;
use crate::names::{self, Namespace};
use crate::types::{
    Case, CaseMark, Definition, Direction, Field, JsonKind, JsonReason, Label, Presence, Ty, TypeDef,
    TypeTable,
};

/// The most parts of one type, as a tree. The host accepts 10,000 in an operation, but the code that passes a value costs
/// about 100 bytes a part in every operation that returns it, and ten operations have to fit into 400 KB.
const MAX_SIZE: usize = 200;

/// The most types inside each other: the host accepts 64 levels.
const MAX_DEPTH: usize = 24;

/// The most schemas that are read inside each other, with and without a reference.
const MAX_NESTING: usize = 80;

/// The most members of one `allOf`, with those of its members.
const MAX_MEMBERS: usize = 1_000;

/// The most unions inside each other whose kinds of values are looked at.
const MAX_KINDS_DEPTH: usize = 20;

/// The most cases of an enum.
const MAX_LABELS: usize = 400;

/// The most fields of a record and cases of a variant.
const MAX_FIELDS: usize = 1_000;

/// The most flags of one type, by the canonical ABI.
const MAX_FLAGS: usize = 32;

/// A schema with all that `allOf` adds to it.
#[derive(Debug, Default)]
struct Merged<'d> {
    types: Option<Vec<&'d str>>,
    nullable: bool,
    properties: Vec<(&'d str, Node<'d>)>,
    required: Vec<&'d str>,
    additional: Option<Node<'d>>,
    items: Option<Node<'d>>,
    labels: Option<Vec<&'d Value>>,
    format: Option<&'d str>,
    unions: Vec<(bool, Node<'d>)>,
    discriminator: Option<Node<'d>>,
    is_unique: bool,
    is_unsigned: bool,
    /// Schemas of `allOf` that are not objects.
    is_mixed: bool,
    /// The number of schemas in it.
    members: usize,
}

/// Makes types of schemas, and remembers them.
pub(crate) struct SchemaReader<'d> {
    document: &'d Document,
    graph: SchemaGraph,
    pub(crate) table: TypeTable,
    names: Namespace,
    /// The names of schemas that have one in the document.
    component_names: HashMap<(usize, String), String>,
    known: HashMap<((usize, String), Direction), Ty>,
    stack: Vec<(usize, String)>,
    /// The number of schemas that are being read, inside each other.
    nesting: usize,
    kinds: RefCell<HashMap<(usize, String), Vec<JsonKind>>>,
    /// The names of types of a place that was read already: an operation is read once for each of its two uses.
    inline: HashMap<String, Vec<Ty>>,
}

impl<'d> SchemaReader<'d> {
    /// Reads the names of all schemas, and then the schemas: a type depends on the document alone, not on the operations
    /// that are asked for.
    pub(crate) fn new(document: &'d Document, mut names: Namespace) -> Self {
        let mut component_names = HashMap::new();
        let root = document.root();
        let schemas = root.get("components").and_then(|components| components.get("schemas"));
        if let Some(schemas) = &schemas {
            for (name, schema) in schemas.fields() {
                component_names.insert(schema.key(), names.claim_type(&names::kebab(name)));
            }
        }
        let graph = SchemaGraph::new(document);
        let mut reader = Self {
            document,
            graph,
            table: TypeTable::default(),
            names,
            component_names,
            known: HashMap::new(),
            stack: Vec::new(),
            nesting: 0,
            kinds: RefCell::default(),
            inline: HashMap::new(),
        };
        for (_, schema) in schemas.iter().flat_map(Node::fields) {
            for direction in [Direction::Output, Direction::Input] {
                // A dead reference is an error of the operations that need it.
                reader.target(&schema, direction, "item").ok();
            }
        }
        reader
    }

    /// Returns the type of a schema. `name` is for a type of its own, if it needs one.
    pub(crate) fn read(
        &mut self,
        node: &Node<'d>,
        direction: Direction,
        name: &str,
    ) -> Result<Ty, OpenApiError> {
        if self.nesting > MAX_NESTING {
            return Ok(Ty::Json(JsonReason::TooDeep));
        }
        self.nesting += 1;
        let ty = self.nested(node, direction, name);
        self.nesting -= 1;
        ty
    }

    fn nested(&mut self, node: &Node<'d>, direction: Direction, name: &str) -> Result<Ty, OpenApiError> {
        if let Some(target) = self.document.step(node)? {
            let ty = self.target(&target, direction, name)?;
            // Siblings of a reference: OpenAPI 3.1 reads them, and many documents of 3.0 have them.
            return Ok(if node.flag("nullable") { ty.nullable() } else { ty });
        }
        self.own(node, direction, name)
    }

    /// Returns the type of a schema that was referred to.
    fn target(&mut self, target: &Node<'d>, direction: Direction, name: &str) -> Result<Ty, OpenApiError> {
        let key = target.key();
        if let Some(known) = self.known.get(&(key.clone(), direction)) {
            return Ok(known.clone());
        }
        if self.stack.contains(&key) {
            return Ok(Ty::Json(JsonReason::Recursive));
        }
        let name = self.component_names.get(&key).cloned().unwrap_or_else(|| name.to_owned());
        self.stack.push(key.clone());
        let read = self.read(target, direction, &name);
        self.stack.pop();
        let ty = read?;
        self.known.insert((key, direction), ty.clone());
        Ok(ty)
    }

    fn own(&mut self, node: &Node<'d>, direction: Direction, name: &str) -> Result<Ty, OpenApiError> {
        if !node.value.is_object() {
            return Ok(Ty::Json(JsonReason::FreeForm));
        }
        if let Some(only) = only_member(node) {
            let ty = self.read(&only, direction, name)?;
            return Ok(if node.flag("nullable") { ty.nullable() } else { ty });
        }
        let mut merged = Merged::default();
        self.merge(node, &mut merged, 0)?;
        let nullable = merged.nullable;
        let ty = self.merged(node, merged, direction, name)?;
        Ok(if nullable && !matches!(ty, Ty::Json(_)) { ty.nullable() } else { ty })
    }

    /// Adds a schema, and the members of its `allOf`, to `merged`.
    fn merge(&self, node: &Node<'d>, merged: &mut Merged<'d>, depth: usize) -> Result<(), OpenApiError> {
        merged.members += 1;
        if depth > MAX_NESTING || merged.members > MAX_MEMBERS {
            let message = "the members of allOf refer to each other in a circle, or are too many";
            return Err(self.document.error(node, message, "Remove one of the references."));
        }
        let node = self.document.follow(node)?;
        for member in node.get("allOf").iter().flat_map(Node::items) {
            self.merge(&member, merged, depth + 1)?;
        }
        let types: Option<Vec<&'d str>> = match node.value.get("type") {
            Some(Value::String(one)) => Some(vec![one]),
            Some(Value::Array(several)) => Some(several.iter().filter_map(Value::as_str).collect()),
            _ => None,
        };
        if let Some(types) = types {
            merged.nullable |= types.contains(&"null");
            let types: Vec<_> = types.into_iter().filter(|name| *name != "null").collect();
            merged.is_mixed |= merged.types.as_ref().is_some_and(|known| *known != types);
            merged.types = Some(types);
        }
        merged.nullable |= node.flag("nullable");
        for (name, property) in node.get("properties").iter().flat_map(Node::fields) {
            match merged.properties.iter_mut().find(|(known, _)| *known == name) {
                // What comes later is more specific, unless it says nothing of the type.
                Some((_, known)) if is_informative(property.value) => *known = property,
                Some(_) => {}
                None => merged.properties.push((name, property)),
            }
        }
        let required = node.value.get("required").and_then(Value::as_array);
        merged.required.extend(required.into_iter().flatten().filter_map(Value::as_str));
        if let Some(additional) = node.get("additionalProperties") {
            merged.additional = Some(additional);
        } else if let Some(patterns) = node.get("patternProperties")
            && let [(_, pattern)] = patterns.fields().collect::<Vec<_>>().as_slice()
        {
            merged.additional = Some(pattern.clone());
        }
        if let Some(items) = node.get("items") {
            merged.items = Some(items);
        }
        if let Some(Value::Array(labels)) = node.value.get("enum") {
            merged.nullable |= labels.iter().any(Value::is_null);
            merged.labels = Some(labels.iter().filter(|label| !label.is_null()).collect());
        } else if let Some(constant) = node.value.get("const") {
            merged.labels = Some(vec![constant]);
        }
        merged.format = node.text("format").or(merged.format);
        merged.discriminator = node.get("discriminator").or(merged.discriminator.take());
        merged.is_unique |= node.flag("uniqueItems");
        let minimum = ["minimum", "exclusiveMinimum"].iter().find_map(|key| node.value.get(*key)?.as_f64());
        merged.is_unsigned |= minimum.is_some_and(|minimum| minimum >= 0.0);
        for key in ["oneOf", "anyOf"] {
            if let Some(union) = node.get(key).filter(|union| union.value.is_array()) {
                merged.unions.push((key == "oneOf", union));
            }
        }
        Ok(())
    }

    fn merged(
        &mut self,
        node: &Node<'d>,
        mut merged: Merged<'d>,
        direction: Direction,
        name: &str,
    ) -> Result<Ty, OpenApiError> {
        let docs = node.text("description").or_else(|| node.text("title")).unwrap_or_default().to_owned();
        // Members that only say which fields have to be there give no type.
        merged.unions.retain(|(_, union)| union.items().any(|member| !is_constraint(member.value)));
        if let [(_, union)] = merged.unions.as_slice() {
            if merged.properties.is_empty() {
                return self.union(&union.clone(), merged.discriminator.as_ref(), direction, name, docs);
            }
            let union = union.clone();
            let objects = union.items().all(|member| self.kinds(&member, 0) == [JsonKind::Object]);
            if !objects || union.items().any(|member| self.has_properties(&member)) {
                return Ok(Ty::Json(JsonReason::Combination));
            }
        } else if merged.unions.len() > 1 {
            return Ok(Ty::Json(JsonReason::Combination));
        }
        if let Some(labels) = &merged.labels {
            if !labels.is_empty() && labels.iter().all(|label| label.is_string()) {
                let texts: Vec<_> = labels.iter().filter_map(|label| label.as_str()).collect();
                return Ok(self.enumeration(&texts, name, docs));
            }
            if !labels.is_empty() && labels.iter().all(|label| label.is_boolean()) {
                return Ok(Ty::Bool);
            }
            if labels.iter().any(|label| label.is_string()) {
                return Ok(Ty::Json(JsonReason::Alternatives));
            }
        }
        if merged.is_mixed {
            return Ok(Ty::Json(JsonReason::Combination));
        }
        let types = merged.types.clone().unwrap_or_default();
        match types.as_slice() {
            [one] => self.of_type(one, node, &merged, direction, name, docs),
            [] if !merged.properties.is_empty() || merged.additional.is_some() => {
                self.of_type("object", node, &merged, direction, name, docs)
            }
            [] if merged.items.is_some() => self.of_type("array", node, &merged, direction, name, docs),
            [] if merged.format.is_some() => self.of_type("string", node, &merged, direction, name, docs),
            [] => Ok(Ty::Json(JsonReason::FreeForm)),
            several => {
                let mut cases = Vec::new();
                for one in several {
                    let Some(kind) = kind_of(one) else { return Ok(Ty::Json(JsonReason::FreeForm)) };
                    let inner = names::join(name, &names::kebab(one));
                    cases.push((kind, self.of_type(one, node, &merged, direction, &inner, String::new())?));
                }
                self.by_kind(cases, name, docs)
            }
        }
    }

    fn of_type(
        &mut self,
        one: &str,
        node: &Node<'d>,
        merged: &Merged<'d>,
        direction: Direction,
        name: &str,
        docs: String,
    ) -> Result<Ty, OpenApiError> {
        Ok(match one {
            "boolean" => Ty::Bool,
            "integer" => match (merged.format, merged.is_unsigned) {
                (Some("int32"), true) => Ty::U32,
                (Some("int32"), false) => Ty::S32,
                (_, true) => Ty::U64,
                (_, false) => Ty::S64,
            },
            "number" => Ty::F64,
            "string" | "file" => Ty::Text,
            "array" => {
                let Some(items) = &merged.items else {
                    return Ok(Ty::List(Box::new(Ty::Json(JsonReason::FreeForm))));
                };
                let inner = self.read(items, direction, &names::join(name, "item"))?;
                match (&inner, merged.is_unique) {
                    (Ty::Named(id), true) => match self.table.definition(*id).cloned() {
                        Some(Definition::Enum(labels)) if labels.len() <= MAX_FLAGS => {
                            self.define(&names::join(name, "set"), docs, Definition::Flags(labels))
                        }
                        _ => Ty::List(Box::new(inner)),
                    },
                    _ => Ty::List(Box::new(inner)),
                }
            }
            "object" => return self.object(merged, direction, name, docs),
            "null" => Ty::Json(JsonReason::FreeForm),
            other => {
                let message = format!("{other:?} is not a type");
                let fix = "Write string, number, integer, boolean, array, object or null.";
                return Err(self.document.error(node, message, fix));
            }
        })
    }

    fn object(
        &mut self,
        merged: &Merged<'d>,
        direction: Direction,
        name: &str,
        docs: String,
    ) -> Result<Ty, OpenApiError> {
        let additional =
            merged.additional.as_ref().filter(|node| node.value.as_object().is_some_and(|it| !it.is_empty()));
        let hidden = match direction {
            Direction::Input => "readOnly",
            Direction::Output => "writeOnly",
        };
        let mut fields = Vec::new();
        let mut taken = Namespace::default();
        for (wire, property) in &merged.properties {
            let resolved = self.document.follow(property)?;
            if property.flag(hidden) || resolved.flag(hidden) {
                continue;
            }
            let part = names::kebab(wire);
            let ty = self.read(property, direction, &names::join(name, &part))?;
            let required = merged.required.contains(wire);
            let (ty, presence) = match (required, ty, direction) {
                (true, ty, _) => (ty, Presence::Required),
                (false, Ty::Nullable(inner), Direction::Output) => (*inner, Presence::Optional),
                (false, Ty::Nullable(inner), Direction::Input) => (*inner, Presence::OptionalNullable),
                (false, ty, _) => (ty, Presence::Optional),
            };
            let docs =
                [property, &resolved].iter().find_map(|node| node.text("description")).unwrap_or_default();
            let name = taken.claim(&part, "value");
            fields.push(Field { name, wire: (*wire).to_owned(), ty, presence, docs: docs.to_owned() });
        }
        if fields.len() > MAX_FIELDS {
            return Ok(Ty::Json(JsonReason::TooLarge));
        }
        if fields.is_empty() {
            return match additional {
                Some(values) if merged.properties.is_empty() => {
                    let inner = self.read(values, direction, &names::join(name, "value"))?;
                    Ok(Ty::Map(Box::new(inner)))
                }
                _ => Ok(Ty::Json(JsonReason::FreeForm)),
            };
        }
        Ok(self.define(name, docs, Definition::Record(fields)))
    }

    fn enumeration(&mut self, texts: &[&str], name: &str, docs: String) -> Ty {
        let mut taken = Namespace::default();
        let mut labels: Vec<Label> = Vec::new();
        for text in texts {
            if labels.iter().any(|label| label.wire == *text) {
                continue;
            }
            let wanted = match names::kebab(text) {
                name if name.is_empty() => "empty".to_owned(),
                // `Self` cannot be a case in Rust.
                name if name == "self" => "self-value".to_owned(),
                name => name,
            };
            labels.push(Label { name: taken.claim(&wanted, "value"), wire: (*text).to_owned() });
        }
        if labels.len() > MAX_LABELS {
            return Ty::Text;
        }
        self.define(name, docs, Definition::Enum(labels))
    }

    fn union(
        &mut self,
        union: &Node<'d>,
        discriminator: Option<&Node<'d>>,
        direction: Direction,
        name: &str,
        docs: String,
    ) -> Result<Ty, OpenApiError> {
        let mut members = Vec::new();
        let mut nullable = false;
        for member in union.items() {
            let target = self.document.follow(&member)?;
            match is_null(target.value) {
                true => nullable = true,
                false => members.push((member, target)),
            }
        }
        let ty = self.alternatives(&members, discriminator, direction, name, docs)?;
        Ok(if nullable && !matches!(ty, Ty::Json(_)) { ty.nullable() } else { ty })
    }

    fn alternatives(
        &mut self,
        members: &[(Node<'d>, Node<'d>)],
        discriminator: Option<&Node<'d>>,
        direction: Direction,
        name: &str,
        docs: String,
    ) -> Result<Ty, OpenApiError> {
        if let [(only, _)] = members {
            return self.read(only, direction, name);
        }
        if members.is_empty() || members.len() > MAX_FIELDS {
            return Ok(Ty::Json(JsonReason::FreeForm));
        }
        let mut kinds: Vec<(JsonKind, Vec<usize>)> = Vec::new();
        for (at, (_, target)) in members.iter().enumerate() {
            let found = self.kinds(target, 0);
            if found.is_empty() {
                return Ok(Ty::Json(JsonReason::Alternatives));
            }
            for kind in found {
                match kinds.iter_mut().find(|(known, _)| *known == kind) {
                    Some((_, list)) => list.push(at),
                    None => kinds.push((kind, vec![at])),
                }
            }
        }
        let all_simple = kinds.iter().any(|(kind, _)| !matches!(kind, JsonKind::Array | JsonKind::Object));
        let mut cases = Vec::new();
        for (kind, list) in &kinds {
            let chosen: Vec<_> = list.iter().filter_map(|at| members.get(*at)).collect();
            let several = kinds.len() > 1;
            let inner = if several { names::join(name, kind_name(*kind)) } else { name.to_owned() };
            let docs = if several { String::new() } else { docs.clone() };
            let ty = match (kind, chosen.as_slice()) {
                (JsonKind::Boolean, _) => Ty::Bool,
                (JsonKind::Number, chosen) => self.number(chosen),
                (JsonKind::Text, chosen) => self.text(chosen, &inner, docs),
                (JsonKind::Array | JsonKind::Object, [(member, target)]) => {
                    let owner = self.stack.last().cloned();
                    // An id or the whole: where the whole leads back to here, it is JSON text.
                    let leads_back = all_simple
                        && owner.is_some_and(|owner| self.graph.in_one_circle(&owner, &target.key()));
                    match (leads_back, self.kinds(target, 0).len()) {
                        (true, _) => Ty::Json(JsonReason::Recursive),
                        (false, 1) => self.read(member, direction, &inner)?,
                        _ => Ty::Json(JsonReason::Alternatives),
                    }
                }
                (JsonKind::Object, chosen) => {
                    let chosen: Vec<_> = chosen.iter().map(|pair| (*pair).clone()).collect();
                    self.tagged(&chosen, discriminator, direction, &inner, docs)?
                }
                (JsonKind::Array, _) => Ty::Json(JsonReason::Alternatives),
            };
            cases.push((*kind, ty));
        }
        self.by_kind(cases, name, docs)
    }

    /// Returns the type of values that are known by their kind.
    fn by_kind(&mut self, cases: Vec<(JsonKind, Ty)>, name: &str, docs: String) -> Result<Ty, OpenApiError> {
        if let [(_, ty)] = cases.as_slice() {
            return Ok(ty.clone());
        }
        // Two JSON texts are one.
        if cases.iter().all(|(_, ty)| matches!(ty, Ty::Json(_))) {
            return Ok(Ty::Json(JsonReason::Alternatives));
        }
        let mut found: Vec<Case> = Vec::new();
        for (kind, ty) in cases {
            let ty = match ty {
                Ty::Nullable(inner) => *inner,
                ty => ty,
            };
            if found.iter().any(|case| case.mark == CaseMark::Kind(kind)) {
                continue;
            }
            found.push(Case { name: kind_name(kind).to_owned(), ty, mark: CaseMark::Kind(kind) });
        }
        Ok(self.define(name, docs, Definition::Variant { tag: None, cases: found }))
    }

    fn number(&self, chosen: &[&(Node<'d>, Node<'d>)]) -> Ty {
        let whole = chosen.iter().all(|(_, target)| {
            target.text("type") == Some("integer")
                || target
                    .value
                    .get("type")
                    .and_then(Value::as_array)
                    .is_some_and(|it| it.iter().all(|it| it != "number"))
        });
        if whole { Ty::S64 } else { Ty::F64 }
    }

    fn text(&mut self, chosen: &[&(Node<'d>, Node<'d>)], name: &str, docs: String) -> Ty {
        let mut texts: Vec<&'d str> = Vec::new();
        for (_, target) in chosen {
            match (target.value.get("enum"), target.value.get("const")) {
                (Some(Value::Array(labels)), _) => texts.extend(labels.iter().filter_map(Value::as_str)),
                (_, Some(Value::String(text))) => texts.push(text),
                _ => return Ty::Text,
            }
        }
        if texts.is_empty() { Ty::Text } else { self.enumeration(&texts, name, docs) }
    }

    /// Returns a variant of objects that a field tells apart.
    fn tagged(
        &mut self,
        members: &[(Node<'d>, Node<'d>)],
        discriminator: Option<&Node<'d>>,
        direction: Direction,
        name: &str,
        docs: String,
    ) -> Result<Ty, OpenApiError> {
        let named = discriminator.and_then(|node| node.text("propertyName")).map(ToOwned::to_owned);
        let mut merged = Vec::new();
        for (member, _) in members {
            let mut all = Merged::default();
            self.merge(member, &mut all, 0)?;
            merged.push(all);
        }
        let Some(tag) = named.or_else(|| self.implied_tag(&merged)) else {
            return Ok(Ty::Json(JsonReason::Alternatives));
        };
        let mapping = discriminator.and_then(|node| node.get("mapping"));
        let mut cases: Vec<Case> = Vec::new();
        let mut taken = Namespace::default();
        let mut seen: Vec<String> = Vec::new();
        for ((member, target), merged) in members.iter().zip(&merged) {
            let mut tags = Vec::new();
            for (value, reference) in mapping.iter().flat_map(Node::fields) {
                let leads_here = reference.value.as_str().is_some_and(|text| {
                    let end = text.rsplit('/').next().unwrap_or_default();
                    target.pointer.rsplit('/').next() == Some(end)
                });
                if leads_here {
                    tags.push(value.to_owned());
                }
            }
            if tags.is_empty() {
                tags = self.labels_of(merged, &tag);
            }
            if tags.is_empty()
                && discriminator.is_some()
                && let Some(end) = member.text("$ref").and_then(|text| text.rsplit('/').next())
            {
                tags.push(end.to_owned());
            }
            tags.retain(|value| !seen.contains(value));
            if tags.is_empty() {
                return Ok(Ty::Json(JsonReason::Alternatives));
            }
            seen.extend(tags.iter().cloned());
            let wanted = match names::kebab(tags.first().map(String::as_str).unwrap_or_default()) {
                name if name == "self" => "self-value".to_owned(),
                name => name,
            };
            let case = taken.claim(&wanted, "case");
            let ty = match self.read(member, direction, &names::join(name, &case))? {
                Ty::Nullable(inner) => *inner,
                ty => ty,
            };
            cases.push(Case { name: case, ty, mark: CaseMark::Tags(tags) });
        }
        // JSON text in every case is no better than JSON text for all.
        if let Some(Ty::Json(reason)) = cases.first().map(|case| &case.ty)
            && cases.iter().all(|case| matches!(case.ty, Ty::Json(_)))
        {
            return Ok(Ty::Json(*reason));
        }
        Ok(self.define(name, docs, Definition::Variant { tag: Some(tag), cases }))
    }

    /// Returns the field that is required by all members, with other fixed texts in each.
    fn implied_tag(&self, merged: &[Merged<'d>]) -> Option<String> {
        let first = merged.first()?;
        let candidates = first.properties.iter().map(|(name, _)| *name);
        candidates.filter(|name| first.required.contains(name)).find_map(|name| {
            let mut seen: Vec<String> = Vec::new();
            for member in merged {
                let labels = self.labels_of(member, name);
                if !member.required.contains(&name)
                    || labels.is_empty()
                    || labels.iter().any(|it| seen.contains(it))
                {
                    return None;
                }
                seen.extend(labels);
            }
            Some(name.to_owned())
        })
    }

    /// Returns the texts that a field may have, if they are fixed.
    fn labels_of(&self, merged: &Merged<'d>, name: &str) -> Vec<String> {
        let property = merged.properties.iter().find(|(known, _)| *known == name).map(|(_, node)| node);
        let Some(Ok(property)) = property.map(|node| self.document.follow(node)) else { return Vec::new() };
        match (property.value.get("const"), property.value.get("enum")) {
            (Some(Value::String(text)), _) => vec![text.clone()],
            (_, Some(Value::Array(labels))) => {
                labels.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the kinds of values that a schema allows; none if it does not say.
    fn kinds(&self, node: &Node<'d>, depth: usize) -> Vec<JsonKind> {
        let Some(node) = self.document.follow(node).ok().filter(|_| depth <= MAX_KINDS_DEPTH) else {
            return Vec::new();
        };
        if let Some(known) = self.kinds.borrow().get(&node.key()) {
            return known.clone();
        }
        let found = self.own_kinds(&node, depth);
        self.kinds.borrow_mut().insert(node.key(), found.clone());
        found
    }

    fn own_kinds(&self, node: &Node<'d>, depth: usize) -> Vec<JsonKind> {
        let of_text = |text: &str| kind_of(text);
        match node.value.get("type") {
            Some(Value::String(one)) => return of_text(one).into_iter().collect(),
            Some(Value::Array(several)) => {
                let mut kinds: Vec<_> =
                    several.iter().filter_map(Value::as_str).filter_map(of_text).collect();
                kinds.dedup();
                return kinds;
            }
            _ => {}
        }
        if node.value.get("properties").is_some() || node.value.get("additionalProperties").is_some() {
            return vec![JsonKind::Object];
        }
        if node.value.get("items").is_some() {
            return vec![JsonKind::Array];
        }
        let labels = node.value.get("enum").and_then(Value::as_array);
        if node.value.get("const").is_some_and(Value::is_string)
            || labels.is_some_and(|labels| !labels.is_empty() && labels.iter().all(Value::is_string))
        {
            return vec![JsonKind::Text];
        }
        let mut found: Vec<JsonKind> = Vec::new();
        for key in ["oneOf", "anyOf"] {
            for member in node.get(key).iter().flat_map(Node::items) {
                if self.document.follow(&member).is_ok_and(|target| is_null(target.value)) {
                    continue;
                }
                let inner = self.kinds(&member, depth + 1);
                if inner.is_empty() {
                    return Vec::new();
                }
                for kind in inner {
                    if !found.contains(&kind) {
                        found.push(kind);
                    }
                }
            }
        }
        if found.is_empty() {
            for member in node.get("allOf").iter().flat_map(Node::items) {
                let inner = self.kinds(&member, depth + 1);
                if !inner.is_empty() {
                    return inner;
                }
            }
        }
        found
    }

    fn has_properties(&self, node: &Node<'d>) -> bool {
        self.document.follow(node).is_ok_and(|node| node.value.get("properties").is_some())
    }

    /// Adds a type, unless the same is there already, and keeps it within the limits.
    pub(crate) fn define(&mut self, name: &str, docs: String, mut definition: Definition) -> Ty {
        let wanted = if name.is_empty() { "item" } else { name };
        for same in self.inline.get(wanted).into_iter().flatten() {
            if let Ty::Named(id) = same
                && self.table.definition(*id) == Some(&definition)
            {
                return same.clone();
            }
        }
        let mut size = 1 + self.sizes(&definition).iter().map(|(_, size)| size).sum::<usize>();
        while size > MAX_SIZE {
            let sizes = self.sizes(&definition);
            let Some((largest, amount)) =
                sizes.iter().max_by_key(|(_, size)| *size).filter(|(_, size)| *size > 1)
            else {
                return Ty::Json(JsonReason::TooLarge);
            };
            replace(&mut definition, *largest, JsonReason::TooLarge);
            size = size + 1 - amount;
        }
        let depths: Vec<_> =
            TypeTable::parts(&definition).into_iter().map(|ty| self.table.depth(ty)).collect();
        for (at, _) in depths.iter().enumerate().filter(|(_, depth)| **depth >= MAX_DEPTH) {
            replace(&mut definition, at, JsonReason::TooDeep);
        }
        let depth =
            1 + TypeTable::parts(&definition).into_iter().map(|ty| self.table.depth(ty)).max().unwrap_or(0);
        let is_component =
            self.stack.last().and_then(|key| self.component_names.get(key)).is_some_and(|it| it == wanted);
        let name = match (is_component, self.inline.contains_key(wanted)) {
            // The first type of a schema has the name that was taken for it.
            (true, false) => wanted.to_owned(),
            (true, true) => self.names.claim_type(&names::join(wanted, "input")),
            (false, _) => self.names.claim_type(wanted),
        };
        let id = self.table.add(TypeDef { name, docs, definition, size, depth });
        self.inline.entry(wanted.to_owned()).or_default().push(Ty::Named(id));
        Ty::Named(id)
    }

    /// Returns the size of each part.
    fn sizes(&self, definition: &Definition) -> Vec<(usize, usize)> {
        match definition {
            // A label costs a text in the code that reads and writes it.
            Definition::Enum(labels) | Definition::Flags(labels) => vec![(0, labels.len().div_ceil(8))],
            Definition::Record(fields) => {
                let size = |field: &Field| {
                    let extra = match field.presence {
                        Presence::Required => 0,
                        Presence::Optional => 1,
                        Presence::OptionalNullable => 2,
                    };
                    extra + self.table.size(&field.ty)
                };
                fields.iter().enumerate().map(|(at, field)| (at, size(field))).collect()
            }
            Definition::Variant { cases, .. } => {
                cases.iter().enumerate().map(|(at, case)| (at, self.table.size(&case.ty))).collect()
            }
        }
    }
}

fn replace(definition: &mut Definition, at: usize, reason: JsonReason) {
    match definition {
        Definition::Record(fields) => {
            if let Some(field) = fields.get_mut(at) {
                field.ty = Ty::Json(reason);
            }
        }
        Definition::Variant { cases, .. } => {
            if let Some(case) = cases.get_mut(at) {
                case.ty = Ty::Json(reason);
            }
        }
        Definition::Enum(_) | Definition::Flags(_) => {}
    }
}

/// Returns the only member of `allOf`, `oneOf` or `anyOf` if the schema says nothing else of the type.
fn only_member<'d>(node: &Node<'d>) -> Option<Node<'d>> {
    let says = ["properties", "items", "enum", "const", "additionalProperties", "required", "format"];
    if says.iter().any(|key| node.value.get(*key).is_some()) {
        return None;
    }
    let present: Vec<_> = ["allOf", "oneOf", "anyOf"].iter().filter_map(|key| node.get(key)).collect();
    let [list] = present.as_slice() else { return None };
    let members: Vec<_> = list.items().collect();
    match members.as_slice() {
        [only] if node.value.get("type").is_none() || only.value.get("$ref").is_some() => Some(only.clone()),
        _ => None,
    }
}

fn is_informative(schema: &Value) -> bool {
    let says = ["type", "$ref", "allOf", "oneOf", "anyOf", "enum", "const", "properties", "items"];
    says.iter().any(|key| schema.get(*key).is_some())
}

/// Returns true for a schema that only restricts, like `{"required": ["a"]}`.
fn is_constraint(schema: &Value) -> bool {
    let says = [
        "type",
        "$ref",
        "allOf",
        "oneOf",
        "anyOf",
        "enum",
        "const",
        "properties",
        "items",
        "additionalProperties",
    ];
    schema.is_object() && !says.iter().any(|key| schema.get(*key).is_some())
}

fn is_null(schema: &Value) -> bool {
    let only_null =
        |value: &Value| value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(Value::is_null));
    match schema.get("type") {
        Some(Value::String(one)) => one == "null",
        Some(Value::Array(all)) => !all.is_empty() && all.iter().all(|one| one == "null"),
        _ => schema.get("enum").is_some_and(only_null) || schema.get("const").is_some_and(Value::is_null),
    }
}

fn kind_of(name: &str) -> Option<JsonKind> {
    Some(match name {
        "boolean" => JsonKind::Boolean,
        "integer" | "number" => JsonKind::Number,
        "string" => JsonKind::Text,
        "array" => JsonKind::Array,
        "object" => JsonKind::Object,
        _ => return None,
    })
}

fn kind_name(kind: JsonKind) -> &'static str {
    match kind {
        JsonKind::Boolean => "flag",
        JsonKind::Number => "number",
        JsonKind::Text => "text",
        JsonKind::Array => "items",
        JsonKind::Object => "object",
    }
}
