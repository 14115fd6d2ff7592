//! Every operation of public documents is generated alone: the WIT is valid, the manifest is valid, the Rust parses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod support;

use cofferdam_openapi::{DocumentReader, OperationStatus};
use support::{descriptions, options, read};

/// Generates each operation of a document, and compares the counts with those in the guide.
fn walk(name: &str, file: &str) {
    let Some(dir) = descriptions() else { return };
    let document = read(&dir.join(file)).unwrap_or_else(|error| panic!("{error}; {}", error.fix()));
    let mut reader = DocumentReader::new(&document);
    let all = reader.operations();
    let (mut exact, mut with_text, mut refused) = (0, 0, Vec::new());
    for (id, line) in &all {
        match reader.project(&options(&[line])) {
            Ok(project) => {
                support::assert_valid(&project, &format!("{name} {id}"));
                let operation = project.report.operations.iter().find(|it| it.id == *id).expect(id);
                match operation.status {
                    OperationStatus::Exact => exact += 1,
                    OperationStatus::WithJsonText => with_text += 1,
                    OperationStatus::Refused(_) => panic!("{id}"),
                }
            }
            Err(error) => refused.push(format!("{id}: {error}")),
        }
    }
    let line = format!("| {name} | {} | {exact} | {with_text} | {} |\n", all.len(), refused.len());
    print!("{line}");
    for reason in &refused {
        println!("  refused: {reason}");
    }
    support::assert_documented(name, &line);
}

#[test]
fn every_operation_of_github_is_generated() {
    walk("GitHub (3.0)", "github.json");
}

#[test]
fn every_operation_of_stripe_is_generated() {
    walk("Stripe (3.0)", "stripe.json");
}

#[test]
fn every_operation_of_slack_is_generated() {
    walk("Slack (3.0)", "slack.json");
}

#[test]
fn every_operation_of_figma_is_generated() {
    walk("Figma (3.1)", "figma.yaml");
}

#[test]
fn every_operation_of_vercel_is_generated() {
    walk("Vercel (3.1)", "vercel.json");
}
