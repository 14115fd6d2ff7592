//! Renders a call's error for an agent: a failure, the host's own error, or a cancellation.

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{Failure, FailureClass, sanitize_line};
use serde_json::{Value, json};

use super::RenderedAnswer;
use crate::flow::RepeatAdvice;

/// The longest line that an agent is shown, in characters.
pub(super) const LINE_CHARS: usize = 2_000;

/// Renders the error that `action` ended with.
#[must_use]
pub fn error(action: &str, error: &Error) -> RenderedAnswer {
    if let Error::Failure(failure) = error
        && let Some(refusal) = refused_arguments(failure)
    {
        let (action, code, id) = (named(action), failure.code(), failure.audit_id());
        let text = format!(
            "{refusal}\nAction '{action}' was called with arguments that its connector refuses ({code}). Change them: the \
             same call is refused again.\naudit_id: {id}"
        );
        let structured = serde_json::to_value(failure).unwrap_or_default();
        return RenderedAnswer { text, structured_text: None, structured, is_error: true };
    }
    render_error(action, error, true)
}

/// Renders the error of an action. The arguments of its failed step need not be its caller's.
pub(super) fn render_action_error(action: &str, error: &Error) -> RenderedAnswer {
    render_error(action, error, true)
}

/// Renders the error of an action, without retry advice: one of its steps must not be repeated.
pub(super) fn render_final_error(action: &str, error: &Error) -> RenderedAnswer {
    render_error(action, error, false)
}

fn render_error(action: &str, error: &Error, may_retry: bool) -> RenderedAnswer {
    let (text, structured) = match error {
        Error::Failure(failure) => failure_parts(action, failure, may_retry),
        Error::Host(error) => host_error_parts(action, error, "was not run", may_retry),
    };
    RenderedAnswer { text, structured_text: None, structured, is_error: true }
}

fn failure_parts(action: &str, failure: &Failure, may_retry: bool) -> (String, Value) {
    let hint = hint(failure, may_retry);
    let class = match failure.code() {
        // The arguments are at fault, not the connector.
        code @ "input_invalid" => code,
        _ => failure.class().name(),
    };
    let id = failure.audit_id().as_str();
    let mut text = failed(action, class, failure.message(), hint.as_deref(), id);
    if let Some(said) = connector_message(failure) {
        // Insert it before the audit id.
        let at = text.rfind('\n').unwrap_or(text.len());
        text.insert_str(at, &format!("\n{said}"));
    }
    (text, serde_json::to_value(failure).unwrap_or_default())
}

/// Returns the connector's own reason for refusing the arguments, if the call failed for that. The caller's own
/// arguments are at fault, so this is shown before the host's own text.
pub fn refused_arguments(failure: &Failure) -> Option<String> {
    connector_message(failure).filter(|_| failure.code() == "input_invalid")
}

/// Returns the connector's own message as one line. It is quoted and labeled, so that it cannot be mistaken for the
/// host's text.
fn connector_message(failure: &Failure) -> Option<String> {
    let text = |name: &str| failure.details().get(name).and_then(Value::as_str);
    let said = text("connector_message").filter(|said| !said.trim().is_empty())?;
    let of = text("field").or_else(|| text("connector_code"));
    let whole = of.map_or_else(|| said.to_owned(), |of| format!("{of}: {said}"));
    Some(format!("The connector says: {}", Value::from(sanitize_line(&whole, LINE_CHARS))))
}

/// Returns the fix or the retry advice, and notes that fallbacks were tried, too.
fn hint(failure: &Failure, may_retry: bool) -> Option<String> {
    let details = failure.details();
    let mends = details.get("suggestion").and_then(Value::as_str).map(str::to_owned);
    let after =
        details.get("retry_after_ms").and_then(Value::as_u64).filter(|_| failure.retriable() && may_retry);
    let again = || after.map(|ms| format!("Try again after {} s.", ms.div_ceil(1000)));
    let chain = details.get("chain").and_then(Value::as_array).map(Vec::len);
    // A denial's message already has its fix if there is one. Do not repeat it.
    let is_denial = failure.class() == FailureClass::CapabilityDenied;
    let said = |mends: &String| is_denial && failure.message().contains(mends.trim_end_matches('.'));
    let mends = mends.filter(|mends| !said(mends));
    // A command needs no further words.
    match (mends, again(), chain) {
        (Some(command), ..) => Some(command),
        (None, Some(again), Some(asked)) => Some(format!("{again} {asked} candidates were asked in turn.")),
        (None, None, Some(asked)) => Some(format!("{asked} candidates were asked in turn.")),
        (None, again, None) => again,
    }
}

/// Formats the three lines of a failure, without the connector's own message. Two lines if no fix is known.
pub(super) fn failed(action: &str, class: &str, message: &str, hint: Option<&str>, audit_id: &str) -> String {
    let first = format!("Action '{}' failed: {class} ({}).", named(action), sentence(message));
    lines(first, hint, &format!("audit_id: {audit_id}"))
}

/// Renders the host's own error for an action that was begun and could not go on.
pub(super) fn render_interrupted(action: &str, error: &HostError, again: RepeatAdvice) -> RenderedAnswer {
    let (text, structured) = host_error_parts(action, error, "failed", again != RepeatAdvice::AskFirst);
    RenderedAnswer { text, structured_text: None, structured, is_error: true }
}

/// A host's own error is for its operator and may name paths of the machine. So an agent gets the meaning of its
/// code, and its text only if the agent's own request is at fault.
fn host_error_parts(action: &str, error: &HostError, ended: &str, may_retry: bool) -> (String, Value) {
    let (code, id) = (error.kind().code(), error.request_id().as_str());
    let own = error.kind().is_about_the_request();
    let message = if own { error.message() } else { error.kind().meaning() };
    let hint = if own { error.hint() } else { Some("The operator's log says more.") };
    let hint = hint.filter(|_| may_retry || error.kind() != HostErrorKind::Busy);
    let (action, said) = (named(action), sentence(message));
    let first = match error.kind() {
        HostErrorKind::Cancelled => format!("Action '{action}' was cancelled: {said}."),
        _ => format!("Action '{action}' {ended}: {code} ({said})."),
    };
    let text = lines(first, hint, &format!("request_id: {id}"));
    let mut details = if own { error.details().clone() } else { Default::default() };
    if let Some(hint) = hint {
        details.insert("suggestion".into(), hint.into());
    }
    let structured =
        json!({"error": {"code": code, "message": message, "details": details, "request_id": id}});
    (text, structured)
}

/// Sanitizes the name for display: it may come from anywhere.
pub(super) fn named(action: &str) -> String {
    sanitize_line(action, 200)
}

/// Returns one line without its full stop, for use in parentheses.
fn sentence(message: &str) -> String {
    sanitize_line(message, LINE_CHARS).trim_end_matches('.').to_owned()
}

fn lines(first: String, hint: Option<&str>, last: &str) -> String {
    let hint = hint.map(|hint| sanitize_line(hint, LINE_CHARS)).filter(|hint| !hint.is_empty());
    let hint = hint.map(|hint| format!("\n{hint}")).unwrap_or_default();
    format!("{first}{hint}\n{last}")
}
