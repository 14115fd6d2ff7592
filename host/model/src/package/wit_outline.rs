//! The names in an author's WIT files, for toolchains that need a world and have to be told which.

use cofferdam_core::failure::{sanitize_line, sanitize_lines};
use wit_parser::{AstItem, SourceMap};

use super::error::PackageError;
use super::imports::CONTRACT_VERSION;

/// The package, the world and the interfaces of an author's WIT files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitOutline {
    package: (String, String),
    version: Option<String>,
    world: Option<String>,
    interfaces: Vec<String>,
}

impl WitOutline {
    /// Parses `sources`, the author's own WIT files as (label, text); the packages that they use need not be present.
    ///
    /// # Errors
    /// Sources that do not parse as one WIT package, more than one world, or the contract in another version than
    /// this host's.
    pub fn parse(sources: &[(String, String)]) -> Result<Self, PackageError> {
        let unreadable = |detail: String| PackageError::WitSource { detail };
        let mut map = SourceMap::new();
        for (label, text) in sources {
            map.push_str(label, text.as_str());
        }
        let group =
            map.parse().map_err(|(map, error)| unreadable(sanitize_lines(&error.render(&map), 400)))?;
        let package = &group.main;
        for used in package.foreign_deps.keys().filter(|it| (&*it.namespace, &*it.name) == CONTRACT) {
            let version = used.version.as_ref().map(ToString::to_string).unwrap_or_default();
            if version != CONTRACT_VERSION {
                let found = sanitize_line(&used.to_string(), 128);
                return Err(PackageError::WitContractVersion { found, supported: CONTRACT_VERSION });
            }
        }
        // What the package uses of others is among its own items, too.
        let foreign = |item: AstItem| package.foreign_deps.values().flatten().any(|(_, (it, _))| *it == item);
        let worlds = package.worlds.iter().filter(|(id, _)| !foreign(AstItem::World(*id)));
        let mut worlds = worlds.map(|(_, world)| world.name.clone());
        let world = worlds.next();
        if worlds.next().is_some() {
            let detail = "it has more than one world: a connector has one, or none and only interfaces";
            return Err(unreadable(detail.into()));
        }
        let interfaces = package.interfaces.iter().filter(|(id, _)| !foreign(AstItem::Interface(*id)));
        Ok(Self {
            package: (package.name.namespace.clone(), package.name.name.clone()),
            version: package.name.version.as_ref().map(ToString::to_string),
            world,
            interfaces: interfaces.filter_map(|(_, it)| it.name.clone()).collect(),
        })
    }

    /// Returns the package with its version: `acme:weather@0.1.0`.
    #[must_use]
    pub fn package(&self) -> String {
        let (namespace, name) = &self.package;
        let version = self.version.iter().map(|version| format!("@{version}")).collect::<String>();
        format!("{namespace}:{name}{version}")
    }

    /// Returns the name of the package's own world, or of the one that [`generated_world`](Self::generated_world) is.
    #[must_use]
    pub fn world_name(&self) -> String {
        self.world.clone().unwrap_or_else(|| format!("{}-connector", self.package.1))
    }

    /// Returns the world's name with its package, as componentize-py wants it: `acme:weather/weather-connector`.
    #[must_use]
    pub fn world(&self) -> String {
        format!("{}:{}/{}", self.package.0, self.package.1, self.world_name())
    }

    /// Returns WIT with a world that exports every interface, if the package has no world of its own.
    #[must_use]
    pub fn generated_world(&self) -> Option<String> {
        if self.world.is_some() {
            return None;
        }
        let exports: String = self.interfaces.iter().map(|name| format!("    export %{name};\n")).collect();
        Some(format!(
            "package {};\n\nworld {} {{\n    include cofferdam:connector/connector@{CONTRACT_VERSION};\n{exports}}}\n",
            self.package(),
            self.world_name(),
        ))
    }
}

/// The namespace and the name of the contract's package.
const CONTRACT: (&str, &str) = ("cofferdam", "connector");

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn parse(text: &str) -> Result<WitOutline, PackageError> {
        WitOutline::parse(&[("a.wit".into(), text.into())])
    }

    const USE: &str = "use cofferdam:connector/types@0.1.0.{failure};";

    #[test]
    fn a_package_without_a_world_gets_one() {
        let text =
            format!("package acme:weather@0.1.0; interface weather {{ {USE} }} interface record2 {{}}");
        let outline = parse(&text).unwrap();
        assert_eq!(outline.world(), "acme:weather/weather-connector");
        let world = outline.generated_world().unwrap();
        assert!(world.contains("    export %weather;\n    export %record2;\n}"), "{world}");
        let both = [("a.wit".into(), text), ("b.wit".into(), world)];
        let whole = WitOutline::parse(&both).unwrap();
        assert_eq!((whole.world(), whole.generated_world()), (outline.world(), None));
    }

    #[test]
    fn an_authors_own_world_is_kept() {
        let outline = parse("package a:b; interface i {} world mine { include cofferdam:connector/connector@0.1.0; export i; }").unwrap();
        assert_eq!((outline.world().as_str(), outline.generated_world()), ("a:b/mine", None));
        let error = parse("package a:b; world one {} world two {}").unwrap_err();
        assert!(error.to_string().contains("more than one world"), "{error}");
    }

    #[test]
    fn another_version_of_the_contract_is_named() {
        for version in ["@0.2.0", "@0.1.1", ""] {
            let text =
                format!("package a:b; interface i {{ use cofferdam:connector/types{version}.{{failure}}; }}");
            let error = parse(&text).unwrap_err();
            assert!(error.to_string().contains(&format!("cofferdam:connector{version}")), "{error}");
            assert!(error.fix().contains(CONTRACT_VERSION), "{error}");
        }
    }
}
