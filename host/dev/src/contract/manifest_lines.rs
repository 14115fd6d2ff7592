//! The lines of a manifest that grant something, for findings.

use cofferdam_core::document::{DocumentTable, read};
use cofferdam_model::manifest::Manifest;
use cofferdam_model::package::MANIFEST_LABEL;

/// The lines of one manifest, from 1.
#[derive(Debug, Default)]
pub(crate) struct ManifestLines {
    hosts: Vec<(String, usize)>,
    imports: Vec<(String, usize)>,
    credentials: Vec<usize>,
    /// The default of `[connector.effects]`.
    default_effect: Option<usize>,
    idempotent: Vec<(String, usize)>,
    effects: Vec<(String, usize)>,
}

impl ManifestLines {
    /// Finds the lines of `manifest`.
    pub(crate) fn new(manifest: &Manifest) -> Self {
        // It was parsed before, so that nothing can be wrong with it.
        read(MANIFEST_LABEL, manifest.text(), |root| Some(Self::find(root))).unwrap_or_default()
    }

    fn find(root: &DocumentTable<'_>) -> Self {
        let mut lines = Self::default();
        if let Some(connector) = root.table("connector") {
            let operations = |table: Option<&DocumentTable<'_>>| {
                let operations = table.and_then(|table| table.table("operations"));
                let each = operations.iter().flat_map(DocumentTable::each_text).collect::<Vec<_>>();
                each.iter().map(|(name, _)| (name.value.to_owned(), name.line())).collect()
            };
            let effects = connector.table("effects");
            lines.idempotent = operations(connector.table("idempotency").as_ref());
            lines.effects = operations(effects.as_ref());
            lines.default_effect = effects.and_then(|effects| Some(effects.text("default")?.line()));
        }
        if let Some(capabilities) = root.table("capabilities") {
            let texts = |table: &str, key: &str| {
                let table = capabilities.table(table);
                let texts = table.iter().flat_map(|table| table.texts(key)).collect::<Vec<_>>();
                texts.iter().map(|text| (text.value.to_owned(), text.line())).collect()
            };
            lines.hosts = texts("network", "hosts");
            lines.imports = texts("runtime", "imports");
            let credentials = capabilities.tables("credential");
            lines.credentials = credentials
                .iter()
                .map(|table| table.text("service").map_or_else(|| table.location().line(), |it| it.line()))
                .collect();
        }
        lines
    }

    /// Returns the place of the line that declares `operation` idempotent.
    pub(crate) fn idempotent(&self, operation: &str) -> Option<String> {
        place(find(&self.idempotent, operation))
    }

    /// Returns the place of the line that declares the effect of `operation`.
    pub(crate) fn effect(&self, operation: &str) -> Option<String> {
        place(find(&self.effects, operation).or(self.default_effect))
    }

    /// Returns the place of the host at `index`.
    pub(crate) fn host(&self, index: usize) -> Option<String> {
        place(self.hosts.get(index).map(|(_, line)| *line))
    }

    /// Returns the place of the credential at `index`.
    pub(crate) fn credential(&self, index: usize) -> Option<String> {
        place(self.credentials.get(index).copied())
    }

    /// Returns the place of the import `name`.
    pub(crate) fn import(&self, name: &str) -> Option<String> {
        place(find(&self.imports, name))
    }
}

fn find(lines: &[(String, usize)], name: &str) -> Option<usize> {
    lines.iter().find(|(known, _)| known == name).map(|(_, line)| *line)
}

fn place(line: Option<usize>) -> Option<String> {
    line.map(|line| format!("{MANIFEST_LABEL}:{line}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn each_grant_has_its_line() {
        let text = "[connector]\nname = \"github://acme/x\"\nversion = \"1.0.0\"\n\
            [connector.idempotency.operations]\npost = \"idempotent\"\n\
            [connector.effects]\ndefault = \"read_only\"\n[connector.effects.operations]\npost = \"additive\"\n\
            [capabilities.network]\nhosts = [\n    \"a.example:443\",\n    \"b.example:443\",\n]\n\
            [[capabilities.credential]]\nkind = \"bearer\"\nservice = \"x\"\nhosts = [\"a.example:443\"]\n\
            [capabilities.runtime]\nimports = [\n    \"wasi:http/outgoing-handler\",\n]\n";
        let lines = ManifestLines::new(&Manifest::parse("connector.toml", text).unwrap());
        let at = |place: Option<String>| place.unwrap();
        assert_eq!(at(lines.idempotent("post")), "connector.toml:5");
        assert_eq!(at(lines.effect("post")), "connector.toml:9");
        assert_eq!(at(lines.effect("get")), "connector.toml:7");
        assert_eq!(at(lines.host(1)), "connector.toml:13");
        assert_eq!(at(lines.credential(0)), "connector.toml:17");
        assert_eq!(at(lines.import("wasi:http/outgoing-handler")), "connector.toml:21");
        assert_eq!(lines.idempotent("get"), None);
    }
}
