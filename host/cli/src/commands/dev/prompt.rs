//! The lines that a developer types, or pipes: calls of the connector.

use std::borrow::Cow;
use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cofferdam_core::strict_json;
use cofferdam_model::package::{OperationSignature, ValueShape};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Context, Editor, ExternalPrinter, Helper};
use serde_json::{Map, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::commands::call::key_and_value;
use crate::ui::Ui;

const PROMPT: &str = "> ";

/// The most lines that are kept for the arrow keys.
const HISTORY: usize = 500;

/// A line of input.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    Call(TypedCall),
    Help,
    /// Ctrl-C at a terminal. The input goes on after [`Prompt::resume`].
    Interrupt,
    /// A line that is no call, with the reason.
    Unreadable(String),
}

/// A call as it was typed.
#[derive(Debug, PartialEq)]
pub(super) struct TypedCall {
    pub(super) operation: String,
    arguments: Map<String, Value>,
    /// The words that were read as numbers or truth values.
    words: Map<String, Value>,
    pub(super) key: Option<String>,
    /// The file for a trace.
    pub(super) trace: Option<PathBuf>,
}

impl TypedCall {
    /// Returns the arguments for the operation, if it is known: a word for a text is text, also if it is a number.
    pub(super) fn arguments_for(self, operation: Option<&OperationSignature>) -> Map<String, Value> {
        let Self { mut arguments, mut words, .. } = self;
        for parameter in operation.map(OperationSignature::params).unwrap_or_default() {
            if let Some(word) = words.remove(parameter.name.json()).filter(|_| is_text(&parameter.shape)) {
                arguments.insert(parameter.name.json().to_owned(), word);
            }
        }
        arguments
    }
}

fn is_text(shape: &ValueShape) -> bool {
    match shape {
        ValueShape::String => true,
        ValueShape::Option(shape) => is_text(shape),
        _ => false,
    }
}

impl Line {
    /// Reads a line: an operation, and its arguments as a JSON object or as `NAME=VALUE` pairs. None for a blank line and
    /// a comment.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            return None;
        }
        if matches!(text, "help" | "?" | ":help") {
            return Some(Self::Help);
        }
        Some(match Self::parse_call(text) {
            Ok(call) => Self::Call(call),
            Err(why) => Self::Unreadable(why),
        })
    }

    fn parse_call(text: &str) -> Result<TypedCall, String> {
        let (mut text, mut key, mut trace) = (text, None, None);
        while let Some((before, name, value)) = last_option(text) {
            match name {
                "key" => key = Some(value.to_owned()),
                _ => trace = Some(PathBuf::from(value)),
            }
            text = before;
        }
        let (operation, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        // The name in WIT means the same operation.
        let operation = operation.replace('-', "_");
        let rest = rest.trim();
        if rest.starts_with('{') {
            return match strict_json::parse(rest.as_bytes()) {
                Ok(Value::Object(arguments)) => {
                    Ok(TypedCall { operation, arguments, words: Map::new(), key, trace })
                }
                Ok(_) => Err("The arguments are not a JSON object.".to_owned()),
                Err(error) => Err(format!("The arguments are not JSON: {error}.")),
            };
        }
        let (mut arguments, mut words) = (Map::new(), Map::new());
        for pair in rest.split_whitespace() {
            let (name, value) = key_and_value(pair)
                .map_err(|why| format!("`{pair}`: {why}, or give the arguments as one JSON object."))?;
            if let (Value::Number(_) | Value::Bool(_), Some((_, word))) = (&value, pair.split_once('=')) {
                words.insert(name.clone(), Value::from(word));
            }
            if arguments.insert(name.clone(), value).is_some() {
                return Err(format!("`{name}` is given twice."));
            }
        }
        Ok(TypedCall { operation, arguments, words, key, trace })
    }
}

/// Returns the last option of a line with its name and value, and what is before it.
fn last_option(text: &str) -> Option<(&str, &str, &str)> {
    let (before, option) = text.rsplit_once(" --")?;
    let (name, value) = option.split_once(' ')?;
    matches!(name, "key" | "trace").then_some((before, name, value.trim()))
}

/// A printer that keeps the line being typed intact.
pub(super) type SharedPrinter = Arc<Mutex<dyn ExternalPrinter + Send>>;

/// The source of lines: a line editor on a terminal, otherwise standard input as it is.
pub(super) struct Prompt {
    lines: UnboundedReceiver<Line>,
    operations: Arc<RwLock<Vec<KnownOperation>>>,
    editor: Option<RunningEditor>,
    /// Keeps an input without lines from ending.
    _open: Option<UnboundedSender<Line>>,
}

/// The line editor on the terminal, which runs on a thread of its own.
struct RunningEditor {
    printer: SharedPrinter,
    resume: std::sync::mpsc::Sender<()>,
    /// The terminal's mode before the editor: its thread does not end with the command, and cannot restore it.
    mode: Option<Termios>,
}

impl Drop for RunningEditor {
    fn drop(&mut self) {
        if let Some(mode) = &self.mode {
            // Fails only if the terminal is gone.
            tcsetattr(std::io::stdin(), OptionalActions::Drain, mode).ok();
        }
    }
}

/// An operation with the names of its parameters, for completion.
#[derive(Debug, Clone)]
struct KnownOperation {
    name: String,
    parameters: Vec<String>,
}

impl Prompt {
    /// Starts to read lines, on a thread of their own: reading a terminal cannot be interrupted.
    pub(super) fn start(ui: &Ui) -> Self {
        let (sender, lines) = unbounded_channel();
        let operations = Arc::new(RwLock::new(Vec::new()));
        let is_interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !ui.json();
        let editor = is_interactive.then(|| editor(Arc::clone(&operations))).and_then(Result::ok);
        let editor = match editor {
            Some((editor, printer)) => {
                let mode = tcgetattr(std::io::stdin()).ok();
                let (resume, resumed) = std::sync::mpsc::channel();
                std::thread::spawn(move || edit_lines(editor, &sender, &resumed));
                Some(RunningEditor { printer, resume, mode })
            }
            None => {
                std::thread::spawn(move || read_lines(&sender));
                None
            }
        };
        Self { lines, operations, editor, _open: None }
    }

    /// Reads nothing: standard input is used otherwise. The input never ends.
    pub(super) fn without_input() -> Self {
        let (sender, lines) = unbounded_channel();
        Self { lines, operations: Arc::default(), editor: None, _open: Some(sender) }
    }

    /// Returns the printer for output while a line is being typed; none without a terminal.
    pub(super) fn printer(&self) -> Option<SharedPrinter> {
        self.editor.as_ref().map(|editor| Arc::clone(&editor.printer))
    }

    /// Reads on after [`Line::Interrupt`].
    pub(super) fn resume(&self) {
        if let Some(editor) = &self.editor {
            // Fails only if the terminal is gone.
            editor.resume.send(()).ok();
        }
    }

    /// Completes with these operations from now on.
    pub(super) fn complete_with(&mut self, operations: &[OperationSignature]) {
        let known = operations.iter().map(|operation| KnownOperation {
            name: operation.name().json().to_owned(),
            parameters: operation.params().iter().map(|param| param.name.json().to_owned()).collect(),
        });
        *self.operations.write().unwrap_or_else(PoisonError::into_inner) = known.collect();
    }

    /// Returns the next line; none at the end of the input, after Ctrl-D and after `quit`.
    pub(super) async fn next(&mut self) -> Option<Line> {
        self.lines.recv().await
    }
}

type LineEditor = Editor<OperationCompleter, MemHistory>;

fn editor(operations: Arc<RwLock<Vec<KnownOperation>>>) -> rustyline::Result<(LineEditor, SharedPrinter)> {
    let config = rustyline::Config::builder().max_history_size(HISTORY)?.auto_add_history(true).build();
    let history = MemHistory::with_config(&config);
    let mut editor = LineEditor::with_history(config, history)?;
    editor.set_helper(Some(OperationCompleter { operations }));
    let printer: SharedPrinter = Arc::new(Mutex::new(editor.create_external_printer()?));
    Ok((editor, printer))
}

fn edit_lines(mut editor: LineEditor, lines: &UnboundedSender<Line>, resumed: &Receiver<()>) {
    loop {
        match editor.readline(PROMPT) {
            Ok(text) if matches!(text.trim(), "quit" | "exit" | ":quit") => return,
            Ok(text) => {
                if Line::parse(&text).is_some_and(|line| lines.send(line).is_err()) {
                    return;
                }
            }
            Err(ReadlineError::Interrupted) => {
                if lines.send(Line::Interrupt).is_err() || resumed.recv().is_err() {
                    return;
                }
            }
            // The end of the input, or of the terminal.
            Err(_) => return,
        }
    }
}

fn read_lines(lines: &UnboundedSender<Line>) {
    for text in std::io::stdin().lock().lines() {
        let Ok(text) = text else { return };
        if Line::parse(&text).is_some_and(|line| lines.send(line).is_err()) {
            return;
        }
    }
}

/// Completes the names of operations and of their parameters.
struct OperationCompleter {
    operations: Arc<RwLock<Vec<KnownOperation>>>,
}

impl OperationCompleter {
    /// Returns the words that may stand at the end of `line`, and where they begin.
    fn candidates(&self, line: &str) -> (usize, Vec<String>) {
        let operations = self.operations.read().unwrap_or_else(PoisonError::into_inner);
        let Some((operation, rest)) = line.split_once(char::is_whitespace) else {
            let typed = line.replace('-', "_");
            let names = operations.iter().filter(|it| it.name.starts_with(&typed));
            return (0, names.map(|it| format!("{} ", it.name)).collect());
        };
        let Some(operation) = operations.iter().find(|it| it.name == operation.replace('-', "_")) else {
            return (line.len(), Vec::new());
        };
        let is_json = rest.trim_start().starts_with('{');
        let is_border = |c: char| if is_json { "{,\" ".contains(c) } else { c.is_whitespace() };
        let start = line.rfind(is_border).map_or(line.len(), |at| at.saturating_add(1));
        let typed = line.get(start..).unwrap_or_default();
        let quoted = line.get(..start).is_some_and(|before| before.ends_with('"'));
        let offered = operation.parameters.iter().filter(|name| name.starts_with(typed));
        let words = offered.map(|name| match (is_json, quoted) {
            (true, true) => format!("{name}\": "),
            (true, false) => format!("\"{name}\": "),
            (false, _) => format!("{name}="),
        });
        (start, words.collect())
    }
}

impl Completer for OperationCompleter {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, words) = self.candidates(line.get(..pos).unwrap_or(line));
        let pair = |word: String| Pair { display: word.trim_end().to_owned(), replacement: word };
        Ok((start, words.into_iter().map(pair).collect()))
    }
}

impl Hinter for OperationCompleter {
    type Hint = String;
}

impl Highlighter for OperationCompleter {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Borrowed(prompt)
    }
}

impl Validator for OperationCompleter {}

impl Helper for OperationCompleter {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use serde_json::json;

    use super::*;

    fn call(operation: &str, arguments: Value, key: Option<&str>) -> Line {
        let Value::Object(arguments) = arguments else { return Line::Help };
        let (operation, words, key) = (operation.to_owned(), Map::new(), key.map(str::to_owned));
        Line::Call(TypedCall { operation, arguments, words, key, trace: None })
    }

    #[test]
    fn words_for_texts_stay_texts() {
        let Some(Line::Call(call)) = Line::parse("get id=7 page=7 note=true") else { unreachable!() };
        assert_eq!(Value::Object(call.words.clone()), json!({"id": "7", "page": "7", "note": "true"}));
        assert_eq!(Value::Object(call.arguments.clone()), json!({"id": 7, "page": 7, "note": true}));
        assert_eq!(call.arguments_for(None).len(), 3, "an unknown operation gets them as JSON");
        let optional = ValueShape::Option(Arc::new(ValueShape::String));
        assert!(is_text(&optional) && !is_text(&ValueShape::Unsigned(32)));
    }

    #[test]
    fn lines_are_calls_with_json_or_pairs() {
        for (text, expected) in [
            ("list-issues {\"owner\": \"acme\"}", call("list_issues", json!({"owner": "acme"}), None)),
            (" feels celsius=21 unit=c ", call("feels", json!({"celsius": 21, "unit": "c"}), None)),
            ("buy {\"n\": 1} --key K1", call("buy", json!({"n": 1}), Some("K1"))),
            ("ping", call("ping", json!({}), None)),
            ("?", Line::Help),
        ] {
            let parsed = Line::parse(text).map(|line| match line {
                Line::Call(call) => Line::Call(TypedCall { words: Map::new(), ..call }),
                line => line,
            });
            assert_eq!(parsed, Some(expected), "{text}");
        }
        assert_eq!((Line::parse("  "), Line::parse("# a comment")), (None, None));
        for (text, why) in [
            ("a {\"x\": }", "not JSON"),
            ("a x", "KEY=VALUE"),
            ("a x=1 x=2", "twice"),
            ("a {\"x\": 1} y", "not JSON"),
        ] {
            let Some(Line::Unreadable(reason)) = Line::parse(text) else { unreachable!("{text}") };
            assert!(reason.contains(why), "{reason}");
        }
    }

    #[test]
    fn operations_and_their_fields_are_completed() {
        let known =
            KnownOperation { name: "list_issues".into(), parameters: vec!["owner".into(), "repo".into()] };
        let completer = OperationCompleter { operations: Arc::new(RwLock::new(vec![known])) };
        for (line, start, words) in [
            ("li", 0, vec!["list_issues "]),
            ("list-i", 0, vec!["list_issues "]),
            ("list_issues ", 12, vec!["owner=", "repo="]),
            ("list_issues ow", 12, vec!["owner="]),
            ("list_issues {", 13, vec!["\"owner\": ", "\"repo\": "]),
            ("list_issues {\"ow", 14, vec!["owner\": "]),
            ("list_issues {\"owner\": \"a\", \"re", 28, vec!["repo\": "]),
            ("other x", 7, vec![]),
        ] {
            let words: Vec<_> = words.into_iter().map(str::to_owned).collect();
            assert_eq!(completer.candidates(line), (start, words), "{line}");
        }
    }
}
