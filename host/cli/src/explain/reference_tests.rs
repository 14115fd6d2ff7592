//! The manual, `docs/reference/failures.md`: prose, and the tables as they are in the code.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;

use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::FailureClass;
use cofferdam_test_support::golden::assert_committed;

use super::{CodeInfo, TermKind, code_infos, documents};
use crate::exit_codes::{class_exit_code, kind_exit_code};

#[test]
fn the_failure_reference_is_up_to_date() {
    let mut page = include_str!("reference.md").to_owned();
    classes(&mut page);
    page.push_str(
        "\n## Errors of the host, and the third outcome\n\n\
         Nothing ran, except for `cancelled`: `details.attempts` has the number of attempts that had begun, of which \
         the last may have had effects. For an action this concerns the step that could not begin, or `[output]`; \
         `details.done` names the steps that are done. The exit code is in parentheses.\n",
    );
    rows(&mut page, |row| row.kind == TermKind::HostError || row.kind == TermKind::Outcome);
    page.push_str("\n## Why a failure was not retried\n");
    rows(&mut page, |row| row.kind == TermKind::RetryStopped);
    page.push_str("\n## Why an outcome is not replayed, or a call not resumed\n");
    rows(&mut page, |row| row.kind == TermKind::Recovery);
    external(&mut page);
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
            "\n### `{}`\n\n{} Exit code {}, boundary {}.",
            class.name(),
            row.meaning,
            class_exit_code(*class),
            from.join(", "),
        )
        .unwrap();
        rows(page, |code| code.class == Some(*class));
    }
}

/// Lists the codes; those with the same advice are listed together, below it.
fn rows(page: &mut String, wanted: impl Fn(&CodeInfo) -> bool) {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for row in code_infos().iter().filter(|row| wanted(row)) {
        let by = row.fixed_by.text();
        let by = by.split_once(';').map_or(by, |(role, _)| role).trim_end_matches(" of the host");
        let by = by.trim_start_matches("the ").trim_start_matches("connector's ");
        let again = match row.again.word() {
            "no" => String::new(),
            again => format!("{again}; "),
        };
        let advice = format!("*{again}{by}.* {}", row.remedy);
        let host_error = HostErrorKind::ALL.iter().find(|it| it.code() == row.word);
        let exit = host_error.filter(|_| row.kind == TermKind::HostError).map(|it| kind_exit_code(*it));
        let exit = exit.map(|code| format!(" ({code})")).unwrap_or_default();
        let code = format!("`{}`{exit}: {}", row.word, row.meaning);
        match groups.iter_mut().find(|(known, _)| *known == advice) {
            Some((_, codes)) => codes.push(code),
            None => groups.push((advice, vec![code])),
        }
    }
    page.push('\n');
    for (advice, codes) in groups {
        match codes.as_slice() {
            [code] => writeln!(page, "- {code} {advice}").unwrap(),
            codes => writeln!(page, "- {advice}\n  - {}", codes.join("\n  - ")).unwrap(),
        }
    }
}

fn external(page: &mut String) {
    page.push_str(
        "\n## Words of other documents\n\n\
         The host follows five documents about failures. `cofferdam explain WORD` finds their words too, with the \
         equivalent here.\n\n\
         | document | its retry profile | words |\n|---|---|---|\n",
    );
    for document in documents() {
        writeln!(page, "| {} | {} | {} |", document.name, document.profile, document.terms.len()).unwrap();
    }
}
