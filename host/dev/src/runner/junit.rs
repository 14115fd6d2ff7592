//! The results as JUnit XML, which CI systems read.

use std::fmt::Write as _;

use super::report::ScenarioReport;

/// Returns `reports` as JUnit XML: a suite for each file, a case for each scenario.
#[must_use]
pub fn junit_xml(connector: &str, reports: &[ScenarioReport]) -> String {
    let mut suites: Vec<(&str, Vec<&ScenarioReport>)> = Vec::new();
    for report in reports {
        match suites.iter_mut().find(|(file, _)| *file == report.file) {
            Some((_, cases)) => cases.push(report),
            None => suites.push((&report.file, vec![report])),
        }
    }
    let all: Vec<_> = reports.iter().collect();
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    // Writing to a string cannot fail.
    let _ = writeln!(xml, "<testsuites name=\"{}\" {}>", escaped(connector), counts(&all));
    for (file, cases) in suites {
        let _ = writeln!(xml, "  <testsuite name=\"{}\" {}>", escaped(file), counts(&cases));
        for case in cases {
            testcase(&mut xml, case);
        }
        xml += "  </testsuite>\n";
    }
    xml += "</testsuites>\n";
    xml
}

fn counts(reports: &[&ScenarioReport]) -> String {
    let failures = reports.iter().filter(|report| !report.passed).count();
    let time: u64 = reports.iter().map(|report| report.duration_ms).sum();
    format!(
        "tests=\"{}\" failures=\"{failures}\" errors=\"0\" skipped=\"0\" time=\"{}\"",
        reports.len(),
        seconds(time)
    )
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn testcase(xml: &mut String, report: &ScenarioReport) {
    let (file, name) = (escaped(&report.file), escaped(&report.name));
    let _ = write!(
        xml,
        "    <testcase name=\"{name}\" classname=\"{file}\" file=\"{file}\" line=\"{}\" time=\"{}\"",
        report.line,
        seconds(report.duration_ms)
    );
    if report.passed {
        xml.push_str("/>\n");
        return;
    }
    xml.push_str(">\n");
    let first = report.problems.first().map_or("", |problem| &problem.message);
    let _ = write!(xml, "      <failure type=\"scenario\" message=\"{}\">", escaped(first));
    for problem in &report.problems {
        let _ = writeln!(xml, "{}:{}: {}", escaped(&problem.file), problem.line, escaped(&problem.message));
        for it in &problem.differences {
            let (expected, actual) = (escaped(&it.expected), escaped(&it.actual));
            let _ = writeln!(xml, "  {}: expected {expected}, got {actual}", escaped(&it.path));
        }
        for note in &problem.notes {
            let _ = writeln!(xml, "  {}", escaped(note));
        }
    }
    xml.push_str("</failure>\n    </testcase>\n");
}

/// Escapes text for XML, and leaves out what XML has no way to write.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            '\t' | '\n' => out.push(letter),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                out.push('\u{fffd}')
            }
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

    use super::*;
    use crate::runner::{Problem, ProblemKind};
    use crate::scenario::{Difference, Place};

    fn report(file: &str, name: &str, problems: Vec<Problem>) -> ScenarioReport {
        ScenarioReport {
            file: file.to_owned(),
            line: 3,
            name: name.to_owned(),
            passed: problems.is_empty(),
            duration_ms: 1_007,
            calls: Vec::new(),
            requests: 0,
            problems,
        }
    }

    /// The shape that Jenkins, GitLab and GitHub's reporters have in common.
    #[test]
    fn the_report_has_the_common_shape() {
        let place = Place { file: "tests/a.toml".into(), line: 7 };
        let mut problem = Problem::new(ProblemKind::Outcome, &place, "it <failed> & \"how\"\u{1}");
        problem.differences.push(Difference::new("value.a", "1", "2"));
        let reports = [
            report("tests/a.toml", "one", Vec::new()),
            report("tests/a.toml", "two", vec![problem]),
            report("tests/b.toml", "three", Vec::new()),
        ];
        let xml = junit_xml("github://acme/x@1.0.0", &reports);
        let document = roxmltree::Document::parse(&xml).unwrap();
        let root = document.root_element();
        let number = |node: roxmltree::Node<'_, '_>, name: &str| -> f64 {
            node.attribute(name).unwrap_or_else(|| panic!("{name} is missing")).parse().unwrap()
        };
        assert_eq!(root.tag_name().name(), "testsuites");
        let suites: Vec<_> = root.children().filter(roxmltree::Node::is_element).collect();
        assert_eq!(suites.len(), 2);
        for suite in suites.iter().chain([&root]) {
            for name in ["tests", "failures", "errors", "skipped", "time"] {
                assert!(number(*suite, name) >= 0.0, "{name}");
            }
            assert!(suite.attribute("name").is_some());
        }
        let (mut cases, mut failures) = (0, 0);
        for suite in suites {
            assert_eq!(suite.tag_name().name(), "testsuite");
            for case in suite.children().filter(roxmltree::Node::is_element) {
                cases += 1;
                assert_eq!(case.tag_name().name(), "testcase");
                assert!(case.attribute("name").is_some() && case.attribute("classname").is_some());
                assert!((number(case, "time") - 1.007).abs() < 1e-9);
                for failure in case.children().filter(roxmltree::Node::is_element) {
                    failures += 1;
                    assert_eq!(failure.tag_name().name(), "failure");
                    assert_eq!(failure.attribute("message"), Some("it <failed> & \"how\"\u{fffd}"));
                    let text = failure.text().unwrap();
                    assert!(text.contains("tests/a.toml:7: it <failed>"), "{text}");
                    assert!(text.contains("value.a: expected 1, got 2"), "{text}");
                }
            }
        }
        assert_eq!((cases, failures, number(root, "tests")), (3, 1, 3.0));
    }
}
