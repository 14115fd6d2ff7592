//! `rebuild`: builds a connector again from its sources in a clean directory, and compares the bytes.

mod checkout;

use std::ffi::OsString;
use std::path::PathBuf;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::package::{self, SectionDifference};
use cofferdam_model::trust::{ProvenanceRecord, ToolRecord};
use serde::Serialize;

use super::packaging::{self, DocsSource};
use crate::exit_codes::REBUILD_DIFFERS;
use crate::layout::{self, Page, TextStyle};
use crate::project::{BuildPurpose, Project};
use crate::report::{CommandError, exit_after};
use crate::session::{Session, signature_path};
use crate::{files, runtime};
use checkout::Checkout;

const EXAMPLES: &str = "\
The exit code is 0 if the bytes are the same and 92 if they are not. With --package, the first differences are listed: \
sections of the component, and versions of tools. Everything is compiled anew, with nothing of another build. Building \
runs code of the sources and their dependencies.

Examples:
  cofferdam rebuild . --expect sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  cofferdam rebuild https://github.com/acme/connectors --commit v1.2.0 --directory slack --package slack-1.2.0.wasm
  cofferdam rebuild --package slack-1.2.0.wasm";

/// Builds a connector again in a clean directory, and says whether the bytes are those of a package.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The sources: a directory, or a git repository [default: the repository in the package's provenance, if the
    /// signature is trusted].
    #[arg(value_name = "SOURCE", required_unless_present = "package")]
    source: Option<String>,

    /// The SHA-256 that the package must have.
    #[arg(long, value_name = "SHA256", value_parser = super::install::digest, required_unless_present = "package")]
    expect: Option<Digest>,

    /// The package to compare with. Its hash, and the commit and directory in its provenance, are the defaults.
    #[arg(long, value_name = "FILE")]
    package: Option<PathBuf>,

    /// The commit, tag or branch of a repository; without one, a directory is built as it is, without ignored files.
    #[arg(long, value_name = "COMMIT")]
    commit: Option<String>,

    /// The connector's directory in the repository.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Keeps the package that was built in this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Arguments for `cargo build`, after `--`: those of the first build.
    #[arg(last = true, value_name = "CARGO_ARGS")]
    cargo_args: Vec<OsString>,
}

/// The result.
#[derive(Debug, Serialize)]
struct RebuildResult {
    identical: bool,
    expected: String,
    built: String,
    /// The commit that was built; none for a directory as it is.
    commit: Option<String>,
    /// The sections that differ; none if there was no package to compare with.
    sections: Option<Vec<SectionDifference>>,
    /// The tools that differ, as the signer claims those of the package.
    tools: Vec<ToolDifference>,
}

#[derive(Debug, Serialize)]
struct ToolDifference {
    name: String,
    expected: Option<String>,
    built: Option<String>,
}

/// The package that is built again.
struct Expected {
    digest: Digest,
    bytes: Option<Vec<u8>>,
    claim: Option<ProvenanceRecord>,
    /// True if a key that is trusted here signed the claim.
    is_trusted: bool,
}

/// Takes the sources, builds, compares.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { source, expect, package, commit, directory, output, cargo_args } = args;
    let expected = expected(session, expect, package)?;
    if let Some(output) = &output {
        packaging::check_output(output)?;
    }
    let claimed = expected.claim.as_ref().and_then(|claim| claim.source.as_ref());
    let source = match source {
        Some(source) => source,
        None => {
            let repository = claimed.filter(|_| expected.is_trusted).and_then(|it| it.repository.as_ref());
            repository.ok_or_else(no_source)?.to_string()
        }
    };
    let commit = commit.or_else(|| claimed.map(|claimed| claimed.commit.clone()));
    let directory = directory.or_else(|| claimed.map(|claimed| PathBuf::from(&claimed.directory)));
    let dir = tempfile::Builder::new()
        .prefix("cofferdam-rebuild-")
        .tempdir()
        .map_err(|error| files::unwritable(&std::env::temp_dir(), error))?;
    let checkout = Checkout::make(session.ui, &dir.path().join("source"), &source, commit, directory)?;
    let mut project = Project::open(&checkout.connector)?;
    project.build_in(&dir.path().join("target"));
    let (bytes, tools) = runtime::block_on(async {
        let built = project.build(session.ui, BuildPurpose::Package(&cargo_args)).await?;
        let component = built.read()?;
        let docs = DocsSource::Wit(project.wit().to_vec());
        let bytes = packaging::package_bytes(session, &component, project.manifest(), docs).await?;
        Ok((bytes, built.provenance(None).map(|it| it.record().tools.clone()).unwrap_or_default()))
    })?;
    if let Some(output) = output {
        files::write_whole(&output, &bytes)?;
    }
    let built = Digest::sha256(&bytes);
    let sections = expected.bytes.map(|expected| package::section_differences(&expected, &bytes));
    let result = RebuildResult {
        identical: built == expected.digest,
        expected: format!("sha256:{}", expected.digest),
        built: format!("sha256:{built}"),
        commit: checkout.commit,
        sections: sections.transpose().map_err(HostError::from)?,
        tools: expected.claim.map(|claim| tool_differences(&claim.tools, &tools)).unwrap_or_default(),
    };
    let printed = session.ui.result(&result, |it| result.page(it));
    exit_after(printed, (!result.identical).then_some(REBUILD_DIFFERS))
}

fn expected(
    session: &Session<'_>,
    expect: Option<Digest>,
    package: Option<PathBuf>,
) -> Result<Expected, CommandError> {
    let Some(path) = package else {
        let digest = expect.ok_or_else(no_source)?;
        return Ok(Expected { digest, bytes: None, claim: None, is_trusted: false });
    };
    let bytes = files::read_package(&path)?;
    let digest = Digest::sha256(&bytes);
    if let Some(expect) = expect.filter(|expect| *expect != digest) {
        let message = format!("{} is another package: sha256:{digest}.", files::shown(&path));
        return Err(HostError::new(HostErrorKind::Conflict, message)
            .with_hint(format!("Name the file of sha256:{expect}, or leave --expect out."))
            .into());
    }
    let signature = files::read_if_there("The signature file", &signature_path(&path))?;
    let inspection = session.host()?.inspect_package(bytes.clone(), signature.as_deref())?;
    let claim = inspection.provenance.map(ProvenanceRecord::from);
    Ok(Expected { digest, bytes: Some(bytes), claim, is_trusted: inspection.signature.signer.is_some() })
}

fn no_source() -> HostError {
    let message = "There is no repository to build from: none is in the provenance of a trusted signature.";
    HostError::new(HostErrorKind::Validation, message)
        .with_hint("Name the sources: `cofferdam rebuild SOURCE --package FILE`.")
}

fn tool_differences(expected: &[ToolRecord], built: &[ToolRecord]) -> Vec<ToolDifference> {
    let version = |tools: &[ToolRecord], name: &str| {
        tools.iter().find(|tool| tool.name == name).map(|tool| tool.version.clone())
    };
    let added = built.iter().filter(|tool| version(expected, &tool.name).is_none());
    let all = expected.iter().chain(added).map(|tool| ToolDifference {
        name: tool.name.clone(),
        expected: version(expected, &tool.name),
        built: version(built, &tool.name),
    });
    all.filter(|tool| tool.expected != tool.built).collect()
}

impl RebuildResult {
    fn page(&self, page: &mut Page) {
        page.field("expected", &self.expected);
        page.field("built", &self.built);
        if let Some(commit) = &self.commit {
            page.field("commit", commit);
        }
        match self.identical {
            true => page.styled_field("result", TextStyle::Good, "the bytes are the same"),
            false => page.styled_field("result", TextStyle::Bad, "the bytes are NOT the same"),
        };
        if self.identical {
            return;
        }
        let none = || "none".to_owned();
        for tool in &self.tools {
            let (old, new) = (tool.expected.clone(), tool.built.clone());
            let versions = format!("{} -> {}", old.unwrap_or_else(none), new.unwrap_or_else(none));
            page.field("tool", &format!("{}: {versions}", tool.name));
        }
        let size = |bytes: Option<usize>| bytes.map_or_else(none, |bytes| layout::bytes(bytes as u64));
        for section in self.sections.iter().flatten() {
            let sizes = format!("{} -> {}", size(section.expected_bytes), size(section.built_bytes));
            let at = section.first_difference;
            page.field("section", &format!("{}: {sizes}, from byte {at} on", section.section));
        }
        if self.sections.is_none() {
            page.line("With --package FILE, the sections that differ are listed.");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_with_other_versions_are_listed() {
        let tool = |name: &str, version: &str| ToolRecord { name: name.into(), version: version.into() };
        let (old, new) = ([tool("rustc", "1"), tool("cargo", "1")], [tool("rustc", "2"), tool("cargo", "1")]);
        let found = tool_differences(&old, &new);
        let found: Vec<_> = found.iter().map(|it| (&*it.name, it.expected.as_deref())).collect();
        assert_eq!(found, [("rustc", Some("1"))]);
        assert_eq!(tool_differences(&old, &[]).len(), 2);
        assert_eq!(tool_differences(&[], &new).len(), 2);
    }
}
