//! Reads documentation comments out of an author's WIT: the one place where they still are.

use cofferdam_core::failure::sanitize_line;
use wit_parser::{Function, SourceMap, UnresolvedPackage, WorldItem, WorldKey};

use super::docs::ConnectorDocs;
use super::error::PackageError;
use super::operation::OperationSignature;
use super::shape::WitName;

impl ConnectorDocs {
    /// Returns the documentation of `operations` in `sources`, the author's own WIT files as (label, text);
    /// the packages that they use need not be present. Documentation of other items is left out.
    ///
    /// Comments before a parameter count for the parameter.
    ///
    /// # Errors
    /// Sources that do not parse as one WIT package, with the place.
    pub fn from_wit(
        sources: &[(String, String)],
        operations: &[OperationSignature],
    ) -> Result<Self, PackageError> {
        let mut files = SourceFiles { texts: Vec::new(), next: 0 };
        let mut map = SourceMap::new();
        for (label, text) in sources {
            files.push(text)?;
            map.push_str(label, text.as_str());
        }
        let group = map.parse().map_err(|(map, error)| PackageError::WitSource {
            detail: sanitize_line(&error.render(&map), 400),
        })?;
        let mut docs = Self::default();
        for package in std::iter::once(&group.main).chain(&group.nested) {
            for operation in operations {
                if let Some(function) = find(package, operation) {
                    let params = function.params.iter().filter_map(|param| {
                        let comment = files.comment_before(param.span)?;
                        Some((WitName::from_wit(&param.name).json().to_owned(), comment))
                    });
                    let text = function.docs.contents.as_deref().unwrap_or_default();
                    docs.insert(operation.name().json(), text, params);
                }
            }
        }
        Ok(docs)
    }
}

/// The function in the WIT that became `operation`.
fn find<'p>(package: &'p UnresolvedPackage, operation: &OperationSignature) -> Option<&'p Function> {
    let name = operation.name().wit();
    let exports = || package.worlds.iter().flat_map(|(_, world)| &world.exports);
    let Some(interface) = operation.interface() else {
        return exports().find_map(|(_, item)| match item {
            WorldItem::Function(function) if function.name == name => Some(function),
            _ => None,
        });
    };
    // `acme:slack/slack@1.0.0` is the package's interface `slack`; a plain name is one of the world's.
    let (_, short) = interface.split_once('/').unwrap_or(("", interface));
    let short = short.split('@').next().unwrap_or(short);
    let named = package
        .interfaces
        .iter()
        .map(|(_, interface)| interface)
        .filter(|i| i.name.as_deref() == Some(short));
    let inline = exports().filter_map(|(key, item)| match (key, item) {
        (WorldKey::Name(name), WorldItem::Interface { id, .. }) if name == short => {
            package.interfaces.get(*id)
        }
        _ => None,
    });
    named.chain(inline).find_map(|interface| interface.functions.get(name))
}

/// The sources as the parser counts through them: one after the other, with one byte between.
struct SourceFiles<'s> {
    texts: Vec<(u32, &'s str)>,
    next: u32,
}

impl<'s> SourceFiles<'s> {
    fn push(&mut self, text: &'s str) -> Result<(), PackageError> {
        let end =
            u32::try_from(text.len()).ok().and_then(|length| self.next.checked_add(length)?.checked_add(1));
        let Some(end) = end else {
            return Err(PackageError::WitSource { detail: "it has more than 4 GiB".into() });
        };
        self.texts.push((self.next, text));
        self.next = end;
        Ok(())
    }

    /// The lines of `///` right before what is at `span`, which the parser reads and throws away.
    fn comment_before(&self, span: wit_parser::Span) -> Option<String> {
        if !span.is_known() {
            return None;
        }
        let (start, text) = self.texts.iter().rev().find(|(start, _)| *start <= span.start())?;
        let before = text.get(..(span.start() - start) as usize)?;
        let (before, indent) = before.rsplit_once('\n')?;
        if !indent.trim().is_empty() {
            return None;
        }
        let lines = before.lines().rev().map_while(|line| line.trim().strip_prefix("///"));
        let mut lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        lines.reverse();
        Some(lines.join("\n"))
    }
}
