//! The difference between two generated interfaces.

use std::collections::BTreeMap;

/// The names of what was added, removed and changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceDiff {
    /// Operations of the new interface alone.
    pub added_operations: Vec<String>,
    /// Operations of the old interface alone.
    pub removed_operations: Vec<String>,
    /// Operations with other parameters or another result.
    pub changed_operations: Vec<String>,
    /// Types of the new interface alone.
    pub added_types: Vec<String>,
    /// Types of the old interface alone.
    pub removed_types: Vec<String>,
    /// Types with another definition.
    pub changed_types: Vec<String>,
}

impl InterfaceDiff {
    /// Returns true if nothing differs but documentation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The items of an interface by name: functions, and types.
type Items = (BTreeMap<String, String>, BTreeMap<String, String>);

/// Compares two WIT files that this crate has written. Documentation is not compared.
#[must_use]
pub fn diff_interfaces(old: &str, new: &str) -> InterfaceDiff {
    let ((old_functions, old_types), (new_functions, new_types)) = (items(old), items(new));
    let only = |a: &BTreeMap<String, String>, b: &BTreeMap<String, String>| {
        a.keys().filter(|name| !b.contains_key(*name)).cloned().collect()
    };
    let changed = |a: &BTreeMap<String, String>, b: &BTreeMap<String, String>| {
        a.iter()
            .filter(|(name, text)| b.get(*name).is_some_and(|it| it != *text))
            .map(|(name, _)| name.clone())
            .collect()
    };
    InterfaceDiff {
        added_operations: only(&new_functions, &old_functions),
        removed_operations: only(&old_functions, &new_functions),
        changed_operations: changed(&old_functions, &new_functions),
        added_types: only(&new_types, &old_types),
        removed_types: only(&old_types, &new_types),
        changed_types: changed(&old_types, &new_types),
    }
}

/// Items begin with four spaces; a function has a colon behind its name.
fn items(text: &str) -> Items {
    let mut items: Items = Default::default();
    let mut current: Option<(bool, String, String)> = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("//") || trimmed.is_empty() {
            continue;
        }
        let begins = line.strip_prefix("    ").filter(|rest| !rest.starts_with([' ', '}', ')']));
        if let Some(rest) = begins {
            finish(&mut items, current.take());
            let is_function = rest.split_once(": func").is_some();
            let name = match rest.split_once(": func") {
                Some((name, _)) => name,
                None => rest.split(' ').nth(1).unwrap_or_default(),
            };
            if !rest.starts_with("use ") {
                current = Some((is_function, name.trim_start_matches('%').to_owned(), String::new()));
            }
        }
        if let Some((_, _, text)) = &mut current {
            text.push_str(trimmed);
            text.push('\n');
        }
        if line == "}" {
            finish(&mut items, current.take());
        }
    }
    finish(&mut items, current);
    items
}

fn finish(items: &mut Items, item: Option<(bool, String, String)>) {
    if let Some((is_function, name, text)) = item {
        let list = if is_function { &mut items.0 } else { &mut items.1 };
        list.insert(name, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_types_are_compared() {
        let old = "interface i {\n    use a:b/c.{d};\n\n    /// Docs.\n    record r {\n        a: u8,\n    }\n\n    enum e {\n        x,\n    }\n\n    get: func() -> result<r, failure>;\n    put: func(\n        a: u8,\n    ) -> result<_, failure>;\n}\n";
        let new = "interface i {\n    use a:b/c.{d};\n\n    /// Other.\n    record r {\n        a: u8,\n        b: u8,\n    }\n\n    get: func() -> result<r, failure>;\n    put: func(\n        a: u16,\n    ) -> result<_, failure>;\n    post: func() -> result<_, failure>;\n}\n";
        let diff = diff_interfaces(old, new);
        assert_eq!(
            (diff.added_operations, diff.changed_operations),
            (vec!["post".to_owned()], vec!["put".to_owned()])
        );
        assert_eq!((diff.removed_types, diff.changed_types), (vec!["e".to_owned()], vec!["r".to_owned()]));
        assert!(diff_interfaces(old, old).is_empty());
    }
}
