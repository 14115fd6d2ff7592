//! The contract `cofferdam:connector`, compiled into the macro, and the resolution of an author's package against
//! it.
//!
//! The WIT is embedded from the repository's only copy, so an author needs no `wit/deps` and cannot have a stale
//! one.

use std::path::{Path, PathBuf};

use wit_bindgen_core::wit_parser::{
    PackageId, PackageName, Resolve, ResolveError, ResolveErrorKind, SourceMap, UnresolvedPackageGroup,
    WorldId,
};

/// The package that every connector's WIT refers to.
pub(crate) const PACKAGE: &str = "cofferdam:connector@0.1.0";
/// The interface of the contract that defines `failure`.
pub(crate) const TYPES: &str = "cofferdam:connector/types@0.1.0";

/// The packages of the contract, each after those that it refers to.
const PACKAGES: &[&[(&str, &str)]] = &[
    &[("wasi/io.wit", include_str!("../../../wit/deps/io.wit"))],
    &[("wasi/clocks.wit", include_str!("../../../wit/deps/clocks.wit"))],
    &[("wasi/random.wit", include_str!("../../../wit/deps/random.wit"))],
    &[("wasi/cli.wit", include_str!("../../../wit/deps/cli.wit"))],
    &[("wasi/http.wit", include_str!("../../../wit/deps/http.wit"))],
    &[
        ("cofferdam/types.wit", include_str!("../../../wit/types.wit")),
        ("cofferdam/call.wit", include_str!("../../../wit/call.wit")),
        ("cofferdam/credential.wit", include_str!("../../../wit/credential.wit")),
        ("cofferdam/log.wit", include_str!("../../../wit/log.wit")),
        ("cofferdam/world.wit", include_str!("../../../wit/world.wit")),
    ],
];

/// Loads the contract alone, with its world.
pub(crate) fn load() -> Result<(Resolve, WorldId), String> {
    let mut resolve = Resolve::default();
    let mut last = None;
    for files in PACKAGES {
        let mut sources = SourceMap::new();
        for (name, text) in *files {
            sources.push_str(name, *text);
        }
        let group = sources.parse().map_err(|(map, error)| error.render(&map))?;
        last = Some(push(&mut resolve, group)?);
    }
    let package = last.ok_or("no contract")?;
    let world = resolve.select_world(&[package], Some("connector")).map_err(|error| format!("{error:#}"))?;
    Ok((resolve, world))
}

/// Loads the author's package, and returns the files it was read from.
pub(crate) fn author(resolve: &mut Resolve, path: &Path) -> Result<(PackageId, Vec<PathBuf>), String> {
    let unreadable = |why: String| format!("not a WIT package this SDK ({PACKAGE}) can read\n{why}");
    let group = if path.is_dir() {
        UnresolvedPackageGroup::parse_dir(path).map_err(|error| unreadable(format!("{error:#}")))?
    } else {
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        let mut sources = SourceMap::new();
        sources.push_str(&path.display().to_string(), text);
        sources.parse().map_err(|(map, error)| unreadable(error.render(&map)))?
    };
    let files = group.source_map.source_files().map(PathBuf::from).collect();
    Ok((push(resolve, group)?, files))
}

/// Adds a package from generated text instead of files.
pub(crate) fn made(resolve: &mut Resolve, text: &str) -> Result<PackageId, String> {
    let mut sources = SourceMap::new();
    sources.push_str("made by connector!", text);
    let group = sources.parse().map_err(|(map, error)| error.render(&map))?;
    push(resolve, group)
}

fn push(resolve: &mut Resolve, group: UnresolvedPackageGroup) -> Result<PackageId, String> {
    let error = match resolve.push_group(group) {
        Ok(package) => return Ok(package),
        Err(error) => error,
    };
    let error = match error.kind() {
        ResolveErrorKind::PackageNotFound { span, requested, known } => {
            other_version(requested, known).map(|why| ResolveError::new_semantic(*span, why)).unwrap_or(error)
        }
        _ => error,
    };
    Err(error.render(&resolve.source_map))
}

/// Describes a reference to a package that the contract has in one version only. None for any other package.
fn other_version(requested: &PackageName, known: &[PackageName]) -> Option<String> {
    let is_same = |it: &&PackageName| (&it.namespace, &it.name) == (&requested.namespace, &requested.name);
    let is_ours = |it: &&PackageName| it.namespace == "wasi" || it.to_string() == PACKAGE;
    let ours = known.iter().filter(is_same).find(is_ours)?;
    let version = ours.version.as_ref()?;
    Some(match &requested.version {
        None => format!("`{requested}` has no version here: write it after the interface, `@{version}`"),
        Some(other) if other > version => format!(
            "`{requested}` is newer than this SDK, which has `{ours}`: update `cofferdam-guest` in Cargo.toml, or \
             write `@{version}`"
        ),
        Some(_) => format!("`{requested}` is older than this SDK, which has `{ours}`: write `@{version}`"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test")]

    use super::*;

    /// Returns the error of an interface with this line.
    fn error(line: &str) -> String {
        let (mut resolve, _) = load().expect("the contract parses");
        made(&mut resolve, &format!("package a:b@0.1.0;\ninterface i {{\n    {line}\n}}"))
            .expect_err("no WIT")
    }

    #[test]
    fn another_version_of_the_contract_is_a_sentence_with_the_fix() {
        for (line, expected) in [
            (
                "use cofferdam:connector/types@0.2.0.{failure};",
                "`cofferdam:connector@0.2.0` is newer than this SDK, which has `cofferdam:connector@0.1.0`: update \
                 `cofferdam-guest` in Cargo.toml, or write `@0.1.0`\n",
            ),
            ("use cofferdam:connector/types@0.1.1.{failure};", "`cofferdam:connector@0.1.1` is newer than"),
            ("use cofferdam:connector/types@0.1.0-rc.1.{failure};", "is older than this SDK"),
            (
                "use cofferdam:connector/types.{failure};",
                "`cofferdam:connector` has no version here: write it after the interface, `@0.1.0`\n",
            ),
            (
                "use wasi:clocks/wall-clock@0.2.6.{datetime};",
                "`wasi:clocks@0.2.6` is older than this SDK, which has `wasi:clocks@0.2.12`: write `@0.2.12`\n",
            ),
            ("use cofferdam:connector/typos@0.1.0.{failure};", "interface 'typos' not found in package"),
            (
                "use cofferdam:elsewhere/types@0.1.0.{failure};",
                "package 'cofferdam:elsewhere@0.1.0' not found",
            ),
            ("use a:b/types@0.2.0.{failure};", "package 'a:b@0.2.0' not found"),
        ] {
            let error = error(line);
            assert!(error.contains(expected), "{line}\n{error}");
            assert!(error.contains(":3:"), "the line is named: {error}");
        }
    }
}
