//! The references between the schemas of a document: those that belong to one circle.

use std::collections::HashMap;

use serde_json::Value;

use crate::document::{Document, Node};

/// For each schema that is referred to, the number of its circle: two schemas with one number contain each other.
#[derive(Debug, Default)]
pub(crate) struct SchemaGraph {
    circles: HashMap<(usize, String), usize>,
}

impl SchemaGraph {
    pub(crate) fn new(document: &Document) -> Self {
        let mut nodes: Vec<Node<'_>> = Vec::new();
        let mut numbers: HashMap<(usize, String), usize> = HashMap::new();
        let root = document.root();
        if let Some(schemas) = root.get("components").and_then(|components| components.get("schemas")) {
            for (_, schema) in schemas.fields() {
                numbers.insert(schema.key(), nodes.len());
                nodes.push(schema);
            }
        }
        let mut edges: Vec<Vec<usize>> = Vec::new();
        let mut at = 0;
        while let Some(node) = nodes.get(at).cloned() {
            let mut targets = Vec::new();
            for target in references(document, &node) {
                let number = *numbers.entry(target.key()).or_insert_with(|| {
                    nodes.push(target);
                    nodes.len() - 1
                });
                targets.push(number);
            }
            edges.push(targets);
            at += 1;
        }
        let circle_of = components(&edges);
        let circles =
            numbers.into_iter().filter_map(|(key, number)| Some((key, *circle_of.get(number)?))).collect();
        Self { circles }
    }

    /// Returns true if the two schemas contain each other.
    pub(crate) fn in_one_circle(&self, a: &(usize, String), b: &(usize, String)) -> bool {
        match (self.circles.get(a), self.circles.get(b)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        }
    }
}

/// Returns the schemas that a schema refers to.
fn references<'d>(document: &'d Document, node: &Node<'d>) -> Vec<Node<'d>> {
    let mut found = Vec::new();
    let mut stack = vec![node.value];
    while let Some(value) = stack.pop() {
        match value {
            Value::Object(fields) => {
                if fields.get("$ref").is_some_and(Value::is_string) {
                    let holder = Node { value, file: node.file, pointer: node.pointer.clone() };
                    if let Ok(Some(target)) = document.step(&holder) {
                        found.push(target);
                    }
                }
                let inner =
                    fields.iter().filter(|(name, _)| !matches!(name.as_str(), "example" | "examples"));
                stack.extend(
                    inner.map(|(_, value)| value).filter(|value| value.is_object() || value.is_array()),
                );
            }
            Value::Array(items) => {
                stack.extend(items.iter().filter(|value| value.is_object() || value.is_array()))
            }
            _ => {}
        }
    }
    found
}

/// Returns the number of the strongly connected component of each node, by Kosaraju's algorithm without recursion.
fn components(edges: &[Vec<usize>]) -> Vec<usize> {
    let count = edges.len();
    let targets = |node: usize| edges.get(node).map(Vec::as_slice).unwrap_or_default();
    let mut seen = vec![false; count];
    let mut order = Vec::with_capacity(count);
    for start in 0..count {
        let mut stack = vec![(start, 0)];
        while let Some((node, next)) = stack.pop() {
            if next == 0 {
                match seen.get_mut(node) {
                    Some(seen) if !*seen => *seen = true,
                    _ => continue,
                }
            }
            match targets(node).get(next) {
                Some(target) => {
                    stack.push((node, next + 1));
                    if seen.get(*target) == Some(&false) {
                        stack.push((*target, 0));
                    }
                }
                None => order.push(node),
            }
        }
    }
    let mut reversed = vec![Vec::new(); count];
    for (from, targets) in edges.iter().enumerate() {
        for target in targets {
            if let Some(list) = reversed.get_mut(*target) {
                list.push(from);
            }
        }
    }
    let mut component = vec![usize::MAX; count];
    let mut number = 0;
    for start in order.into_iter().rev() {
        let mut stack = vec![start];
        let mut used = false;
        while let Some(node) = stack.pop() {
            match component.get_mut(node) {
                Some(slot) if *slot == usize::MAX => *slot = number,
                _ => continue,
            }
            used = true;
            stack.extend(reversed.get(node).into_iter().flatten());
        }
        if used {
            number += 1;
        }
    }
    component
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test")]

    use super::components;

    #[test]
    fn circles_are_found() {
        let edges = vec![vec![1], vec![2], vec![0, 3], vec![4], vec![4], vec![0]];
        let found = components(&edges);
        assert!(found[0] == found[1] && found[1] == found[2]);
        assert!(found[3] != found[0] && found[4] != found[3] && found[5] != found[0]);
    }
}
