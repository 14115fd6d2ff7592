//! The contract `cofferdam:connector`, compiled into the macro, and the resolution of an author's package against
//! it.
//!
//! The WIT is embedded from the repository's only copy, so an author needs no `wit/deps` and cannot have a stale
//! one.

use std::path::{Path, PathBuf};

use wit_bindgen_core::wit_parser::{PackageId, Resolve, SourceMap, UnresolvedPackageGroup, WorldId};

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
    let group = if path.is_dir() {
        UnresolvedPackageGroup::parse_dir(path).map_err(|error| format!("{error:#}"))?
    } else {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let mut sources = SourceMap::new();
        sources.push_str(&path.display().to_string(), text);
        sources.parse().map_err(|(map, error)| error.render(&map))?
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
    resolve.push_group(group).map_err(|error| resolve.render_error(&error.into()))
}
