//! The reference of the format, `docs/reference/scenarios.md`: prose, and the tables as they are in the code.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::path::Path;

use cofferdam_test_support::golden::assert_committed;

use super::keys::{self, FaultKind, Table};
use super::pattern::PLACEHOLDERS;
use super::tests::connector;

const HEAD: &str = include_str!("reference.md");

#[test]
fn the_scenario_reference_is_up_to_date() {
    let mut page = HEAD.to_owned();
    page.push_str("\n## Keys\n\nA key without a default (after the comma) is required or has the meaning that is given.\n");
    let tables = [
        &keys::FILE,
        &keys::SCENARIO,
        &keys::SERVICE,
        &keys::REQUEST,
        &keys::RESPONSE,
        &keys::FAULT,
        &keys::CALL,
        &keys::EXPECT,
        &keys::FAILURE,
        &keys::ERROR,
    ];
    for table in tables {
        section(&mut page, table);
    }
    page.push_str(
        "\n## Placeholders\n\nIn the values that are compared: the path of a URL, `query`, `headers`, `json`, `form`, \
         `body`, and below `expect`. Where `{{any}}`, `{{string}}`, `{{number}}`, `{{boolean}}` or `{{null}}` is all of a \
         JSON value, it stands for a value of that type. Values that are sent (`args`, and `json` of a response) have \
         `{{null}}` alone.\n\nAn object with the key `\"...\"` may have other keys, and a list whose last item is `\"...\"` \
         other items.\n\n| placeholder | stands for |\n|---|---|\n",
    );
    for (placeholder, meaning) in PLACEHOLDERS {
        writeln!(page, "| `{placeholder}` | {meaning} |").unwrap();
    }
    page.push_str("\n## Faults\n\n| kind | what happens |\n|---|---|\n");
    for kind in FaultKind::ALL {
        writeln!(page, "| `{}` | {} |", kind.name(), kind.meaning()).unwrap();
    }
    page.push_str(
        "\nStatuses like 429 and 500 are responses. `refuse` and `tls` come before the request: only its host is compared, \
         and they need an order.\n",
    );
    assert_committed("docs/reference/scenarios.md", &page);
}

fn section(page: &mut String, table: &Table) {
    writeln!(page, "\n### {}\n\n| key | value | meaning |\n|---|---|---|", table.title).unwrap();
    for key in table.keys {
        writeln!(page, "| `{}` | {} | {} |", key.name, key.form, key.meaning).unwrap();
    }
}

#[test]
fn the_examples_of_the_documentation_are_scenarios() {
    let guide = include_str!("../../../../docs/guides/test-a-connector.md");
    for (page, steps) in [(HEAD, 2), (guide, 1)] {
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        let scenarios = super::parse_scenarios("example", example, Path::new("."), &connector()).unwrap();
        assert_eq!(scenarios.iter().map(|it| it.service.len()).sum::<usize>(), steps);
    }
}
