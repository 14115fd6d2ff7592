//! The manual, `docs/failures.md`: prose, and the tables as they are in the code.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;

use cofferdam_core::failure::FailureClass;
use cofferdam_test_support::committed::assert_committed;

use super::{Document, Kind, Ours, Theirs, foreign, ours};

#[test]
fn the_manual_of_failures_is_the_tables() {
    let mut page = include_str!("reference.md").to_owned();
    classes(&mut page);
    let title = "Errors of the host, and the third outcome";
    rows(&mut page, title, |row| row.kind == Kind::HostError || row.kind == Kind::Outcome);
    rows(&mut page, "Why a failure was not repeated", |row| row.kind == Kind::RetryStopped);
    let title = "Why an outcome is not given again, or a call not done again";
    rows(&mut page, title, |row| row.kind == Kind::Recovery);
    documents(&mut page);
    page.push_str(include_str!("judgements.md"));
    assert_committed("docs/failures.md", &page);
}

fn classes(page: &mut String) {
    page.push_str("\n## The nine classes and their codes\n");
    for class in FailureClass::ALL {
        let row = ours().iter().find(|row| row.word == class.name()).unwrap();
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

fn rows(page: &mut String, title: &str, wanted: impl Fn(&Ours) -> bool) {
    writeln!(page, "\n## {title}").unwrap();
    table(page, wanted);
}

fn table(page: &mut String, wanted: impl Fn(&Ours) -> bool) {
    page.push_str("\n| code | meaning | again | mended by | what to do |\n|---|---|---|---|---|\n");
    for row in ours().iter().filter(|row| wanted(row)) {
        let Ours { word, meaning, again, mended_by, remedy, .. } = row;
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
    for (document, profile) in Document::ALL.into_iter().zip(profiles) {
        writeln!(page, "| {} | {profile} |", document.name()).unwrap();
    }
    for document in Document::ALL {
        writeln!(
            page,
            "\n### The {}\n\n| word | among | again, there | here | |\n|---|---|---|---|---|",
            document.name()
        )
        .unwrap();
        for row in foreign().filter(|row| row.document == document) {
            let theirs = match row.theirs {
                Theirs::Yes => "yes",
                Theirs::No => "no",
                Theirs::Maybe => "maybe",
                Theirs::Silent => "-",
            };
            let (word, group, here, note) = (row.word, row.group, row.becomes.text(), row.note);
            writeln!(page, "| `{word}` | {group} | {theirs} | {here} | {note} |").unwrap();
        }
    }
}
