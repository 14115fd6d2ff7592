//! The sections in which two packages differ, for a build that did not make the same bytes.

use std::ops::Range;

use serde::Serialize;
use wasmparser::{Parser, Payload};

use super::PackageError;

/// Most differences that are listed.
const MAX_DIFFERENCES: usize = 50;

/// A section that is not the same in two packages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SectionDifference {
    /// Its module (counted from 1, in the file's order) and its name.
    pub section: String,
    /// Its size in the first package, in bytes. None if it is not there.
    pub expected_bytes: Option<usize>,
    /// Its size in the second package, in bytes. None if it is not there.
    pub built_bytes: Option<usize>,
    /// The position of the first byte that differs, in the section.
    pub first_difference: usize,
}

/// Returns the sections in which `built` differs from `expected`, in the file's order, and at most 50. Both are checked
/// packages.
///
/// # Errors
/// One of them is not a component.
pub fn section_differences(expected: &[u8], built: &[u8]) -> Result<Vec<SectionDifference>, PackageError> {
    let (old, new) = (sections(expected)?, sections(built)?);
    let mut differences = Vec::new();
    for at in 0..old.len().max(new.len()) {
        let (old, new) = (old.get(at), new.get(at));
        let content = |package: &'_ [u8], section: Option<&(String, Range<usize>)>| {
            section.and_then(|(_, range)| package.get(range.clone())).unwrap_or_default().to_vec()
        };
        let name = |section: Option<&(String, Range<usize>)>| section.map(|(name, _)| name.clone());
        let (was, now) = (content(expected, old), content(built, new));
        if was == now && name(old) == name(new) {
            continue;
        }
        differences.push(SectionDifference {
            section: name(old).or(name(new)).unwrap_or_default(),
            expected_bytes: old.map(|_| was.len()),
            built_bytes: new.map(|_| now.len()),
            first_difference: was.iter().zip(&now).take_while(|(one, other)| one == other).count(),
        });
    }
    differences.truncate(MAX_DIFFERENCES);
    Ok(differences)
}

/// Returns the sections with content of their own, those of nested modules in their place.
fn sections(package: &[u8]) -> Result<Vec<(String, Range<usize>)>, PackageError> {
    let mut sections = Vec::new();
    let (mut modules, mut open) = (0_usize, Vec::new());
    for payload in Parser::new(0).parse_all(package) {
        let payload = payload.map_err(|error| PackageError::malformed(&error))?;
        match &payload {
            Payload::ModuleSection { .. } => {
                modules += 1;
                open.push(format!("module {modules}: "));
                continue;
            }
            Payload::ComponentSection { .. } => {
                open.push("nested component: ".to_owned());
                continue;
            }
            Payload::End(_) => {
                open.pop();
            }
            _ => {}
        }
        if let Some((_, range)) = payload.as_section() {
            let place = open.last().map_or("", String::as_str);
            sections.push((format!("{place}{}", section_name(&payload)), range));
        }
    }
    Ok(sections)
}

fn section_name(payload: &Payload<'_>) -> String {
    match payload {
        Payload::CustomSection(section) => format!("custom section `{}`", section.name()),
        Payload::CodeSectionStart { .. } => "code".to_owned(),
        Payload::DataSection(_) => "data".to_owned(),
        Payload::ImportSection(_) | Payload::ComponentImportSection(_) => "imports".to_owned(),
        Payload::ExportSection(_) | Payload::ComponentExportSection(_) => "exports".to_owned(),
        Payload::TypeSection(_) | Payload::CoreTypeSection(_) | Payload::ComponentTypeSection(_) => {
            "types".to_owned()
        }
        Payload::FunctionSection(_) => "functions".to_owned(),
        Payload::ElementSection(_) => "elements".to_owned(),
        Payload::GlobalSection(_) => "globals".to_owned(),
        other => format!("section {}", other.as_section().map_or(0, |(id, _)| id)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn component(data: &str, custom: &str) -> Vec<u8> {
        let text = format!(
            r#"(component (core module (memory 1) (data (i32.const 0) "{data}") (func (nop))) {custom})"#
        );
        wat::parse_str(text).unwrap()
    }

    #[test]
    fn differences_are_named_by_module_and_section() {
        let expected = component("abc", "");
        assert_eq!(section_differences(&expected, &expected).unwrap(), []);
        let built = component("abd", r#"(@custom "later" "x")"#);
        let found = section_differences(&expected, &built).unwrap();
        let found: Vec<_> =
            found.iter().map(|it| (&*it.section, it.expected_bytes, it.built_bytes)).collect();
        assert_eq!(found, [("module 1: data", Some(9), Some(9)), ("custom section `later`", None, Some(7))]);
        assert!(section_differences(&expected, b"no component").is_err());
    }
}
