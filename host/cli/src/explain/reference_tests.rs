//! The manual, `docs/reference/failures.md`: prose, and the tables as they are in the code.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;

use cofferdam_core::failure::FailureClass;
use cofferdam_test_support::committed::assert_committed;

use super::{CodeInfo, ExternalRetry, SourceDocument, TermKind, code_infos, external_terms};

#[test]
fn the_manual_of_failures_is_the_tables() {
    let mut page = include_str!("reference.md").to_owned();
    classes(&mut page);
    let title = "Errors of the host, and the third outcome";
    rows(&mut page, title, |row| row.kind == TermKind::HostError || row.kind == TermKind::Outcome);
    rows(&mut page, "Why a failure was not repeated", |row| row.kind == TermKind::RetryStopped);
    let title = "Why an outcome is not given again, or a call not done again";
    rows(&mut page, title, |row| row.kind == TermKind::Recovery);
    documents(&mut page);
    page.push_str(include_str!("judgements.md"));
    assert_committed("docs/reference/failures.md", &page);
}

fn classes(page: &mut String) {
    page.push_str("\n## The nine classes and their codes\n");
    for class in FailureClass::ALL {
        let row = code_infos().iter().find(|row| row.word == class.name()).unwrap();
        let from: Vec<_> = row.boundary.iter().map(|boundary| format!("`{}`", boundary.name())).collect();
        writeln!(
            page,
            "\n### `{}`\n\n{} From: {}. {}",
            class.name(),
            row.meaning,
            from.join(", "),
            row.remedy
        )
        .unwrap();
        table(page, |code| code.class == Some(*class));
    }
}

fn rows(page: &mut String, title: &str, wanted: impl Fn(&CodeInfo) -> bool) {
    writeln!(page, "\n## {title}").unwrap();
    table(page, wanted);
}

fn table(page: &mut String, wanted: impl Fn(&CodeInfo) -> bool) {
    page.push_str("\n| code | meaning | again | mended by | what to do |\n|---|---|---|---|---|\n");
    for row in code_infos().iter().filter(|row| wanted(row)) {
        let CodeInfo { word, meaning, again, mended_by, remedy, .. } = row;
        let (again, who) = (again.word(), mended_by.text());
        writeln!(page, "| `{word}` | {meaning} | {again} | {who} | {remedy} |").unwrap();
    }
}

fn documents(page: &mut String) {
    page.push_str(
        "\n## What others call it\n\n\
         Five documents about failure were followed here; their words lead to ours. The first gave the classes, the \
         envelope and the default retries; the others have profiles of their own (`cofferdam explain patient`).\n\n\
         | document | its retry profile |\n|---|---|\n",
    );
    let profiles = [
        "`standard`, the default",
        "`patient`",
        "`failover`, `failover-windowed`",
        "`deterministic`",
        "`none`",
    ];
    for (document, profile) in SourceDocument::ALL.into_iter().zip(profiles) {
        writeln!(page, "| {} | {profile} |", document.name()).unwrap();
    }
    for document in SourceDocument::ALL {
        writeln!(
            page,
            "\n### The {}\n\n| word | among | again, there | here | |\n|---|---|---|---|---|",
            document.name()
        )
        .unwrap();
        for row in external_terms().filter(|row| row.document == document) {
            let theirs = match row.theirs {
                ExternalRetry::Yes => "yes",
                ExternalRetry::No => "no",
                ExternalRetry::Maybe => "maybe",
                ExternalRetry::Silent => "-",
            };
            let (word, group, here, note) = (row.word, row.group, row.becomes.text(), row.note);
            writeln!(page, "| `{word}` | {group} | {theirs} | {here} | {note} |").unwrap();
        }
    }
}
