//! The output of the tour: chapters, scenes with their outcome, and the table at the end.

use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use cofferdam::{Error, FailureBoundary, FailureClass};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde_json::Value;

const TITLE: Style = AnsiColor::Cyan.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// The promise of a scene: a value, or a failure of this class, from this boundary, with this code.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Promise {
    Value,
    Failure(FailureClass, FailureBoundary, &'static str),
}

/// One scene: what is tried and why it matters.
pub(crate) struct Scene<'a> {
    /// For the table.
    pub(crate) what: &'a str,
    /// Why it is worth showing.
    pub(crate) why: &'a str,
    /// The call, as one would type it.
    pub(crate) call: &'a str,
    pub(crate) promise: Promise,
    /// For the table: what the host did about it.
    pub(crate) held: &'a str,
}

struct Row {
    what: String,
    outcome: String,
    boundary: String,
    held: String,
    time: Duration,
    kept: bool,
}

/// The printer, and what it remembers for the table.
pub(crate) struct Show {
    rows: Vec<Row>,
    step: Instant,
    started: Instant,
}

impl Show {
    pub(crate) fn start() -> Self {
        anstream::println!("{TITLE}cofferdam: a tour{TITLE:#}");
        paragraph(
            "Connectors are other people's code. Here are three, on their best and on their worst behaviour.",
        );
        Self { rows: Vec::new(), step: Instant::now(), started: Instant::now() }
    }

    pub(crate) fn chapter(&mut self, title: &str) {
        anstream::println!("\n{TITLE}{title}{TITLE:#}");
    }

    pub(crate) fn step(&mut self, what: &str) {
        anstream::println!("  {DIM}…{DIM:#} {what}");
        self.step = Instant::now();
    }

    pub(crate) fn done(&mut self, what: &str) {
        anstream::println!("  {GOOD}✓{GOOD:#} {what} {DIM}({}){DIM:#}", shown(self.step.elapsed()));
    }

    /// Announces a scene, plays it, and compares what came of it with what was promised. `also` may find
    /// more that has to be so: the sentence that says it, or what is wrong.
    pub(crate) async fn scene(
        &mut self,
        scene: Scene<'_>,
        call: impl Future<Output = Result<Value, Error>>,
        also: impl FnOnce(&Result<Value, Error>) -> Result<Option<String>, String>,
    ) {
        anstream::println!("\n  {TITLE}{}. {}{TITLE:#}", self.rows.len() + 1, scene.what);
        paragraph(scene.why);
        anstream::println!("    {DIM}${DIM:#} {}", scene.call);
        let started = Instant::now();
        let outcome = call.await;
        let time = started.elapsed();
        let (named, boundary) = print_outcome(&outcome);
        let mut wrong = broken(scene.promise, &outcome);
        match also(&outcome) {
            Ok(Some(more)) => anstream::println!("    {GOOD}✓{GOOD:#} {more}"),
            Ok(None) => {}
            Err(broken) => wrong = Some(wrong.unwrap_or(broken)),
        }
        match &wrong {
            None => anstream::println!(
                "    {GOOD}✓{GOOD:#} as promised: {} {DIM}({}){DIM:#}",
                scene.held,
                shown(time)
            ),
            Some(wrong) => anstream::println!("    {BAD}✗ not as promised: {wrong}{BAD:#}"),
        }
        self.rows.push(Row {
            what: scene.what.to_owned(),
            outcome: named,
            boundary,
            held: scene.held.to_owned(),
            time,
            kept: wrong.is_none(),
        });
    }

    /// The table; whether everything went as promised.
    pub(crate) fn end(self, nothing_left: bool) -> bool {
        self.chapter_of_the_table();
        let kept = self.rows.iter().filter(|row| row.kept).count();
        let all = kept == self.rows.len() && nothing_left;
        let style = if all { GOOD } else { BAD };
        anstream::println!(
            "\n{style}{kept} of {} went as promised{style:#}, in {}; {}.",
            self.rows.len(),
            shown(self.started.elapsed()),
            if nothing_left { "the temporary home is gone" } else { "but the temporary home is still there" }
        );
        anstream::println!(
            "{DIM}Next: README.md, `cargo run -p cofferdam-cli -- --help`, and the connectors in examples/.{DIM:#}"
        );
        all
    }

    fn chapter_of_the_table(&self) {
        anstream::println!("\n{TITLE}What happened{TITLE:#}");
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
        if table.width().is_none() {
            table.set_width(120);
        }
        table.set_header(["", "what was tried", "outcome", "boundary", "what held", "time"]);
        for row in &self.rows {
            let mark = if row.kept { "✓" } else { "✗" };
            let mut cells: Vec<Cell> = [mark, &row.what, &row.outcome, &row.boundary, &row.held]
                .into_iter()
                .map(Cell::new)
                .collect();
            cells.push(Cell::new(shown(row.time)).set_alignment(CellAlignment::Right));
            table.add_row(cells);
        }
        anstream::println!("{table}");
    }
}

/// Prints the value or the failure; its name and its boundary for the table.
fn print_outcome(outcome: &Result<Value, Error>) -> (String, String) {
    match outcome {
        Ok(value) => {
            anstream::println!("    {}", cut(&value.to_string(), 160));
            ("value".into(), "–".into())
        }
        Err(Error::Failure(failure)) => {
            let (class, boundary) = (failure.class().name(), failure.boundary().name());
            let retriable = if failure.retriable() { "retriable" } else { "not retriable" };
            anstream::println!("    {BAD}{class}{BAD:#} · {boundary} · {} · {retriable}", failure.code());
            paragraph(failure.message());
            (class.into(), boundary.into())
        }
        Err(Error::Host(error)) => {
            anstream::println!("    {BAD}{}{BAD:#}", error.kind().code());
            paragraph(error.message());
            (error.kind().code().into(), "–".into())
        }
    }
}

/// The difference between the outcome and the promise.
fn broken(promise: Promise, outcome: &Result<Value, Error>) -> Option<String> {
    match (promise, outcome) {
        (Promise::Value, Ok(_)) => None,
        (Promise::Failure(class, boundary, code), Err(Error::Failure(failure))) => {
            let got = (failure.class(), failure.boundary(), failure.code());
            let text = || format!("{}, {}, {code} was promised", class.name(), boundary.name());
            (got != (class, boundary, code)).then(text)
        }
        (promise, _) => Some(format!("{promise:?} was promised")),
    }
}

/// Text in lines that fit, indented.
fn paragraph(text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + word.chars().count() > 96 {
            anstream::println!("    {DIM}{line}{DIM:#}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    anstream::println!("    {DIM}{line}{DIM:#}");
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or(text)),
        None => text.to_owned(),
    }
}

fn shown(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1_000.0;
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1_000.0),
    }
}
