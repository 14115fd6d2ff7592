//! The form in which an MCP client shows a person a call that waits for approval, and the answer in it.
//!
//! The arguments are the agent's text. They stand last, on one line, with every invisible character written out, so
//! that they can neither forge the lines above them nor move these out of sight.

use std::collections::BTreeMap;

use cofferdam_audit::approvals::Approval;
use cofferdam_core::event::is_action;
use cofferdam_core::failure::{sanitize_line, visible_json};
use cofferdam_runtime::host::ApprovalDecision;
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema,
    PrimitiveSchemaDefinition, StringSchema,
};
use serde::Deserialize as _;
use serde_json::Value;

/// The longest arguments that a form shows, in characters.
const ARGUMENT_CHARS: usize = 8_000;

/// The most operations of an action that a form lists.
const OPERATIONS: usize = 32;

/// The longest name in a form, in characters.
const NAME_CHARS: usize = 300;

/// The longest reason, in characters.
const REASON_CHARS: u32 = 500;

/// The fields of the form. The decision has no default, so that no client fills it in by itself.
const DECISION: &str = "decision";
const REASON: &str = "reason";

/// The values of the decision.
const APPROVE: &str = "approve";
const DENY: &str = "deny";

/// Returns the form about a call that waits.
pub(super) fn form(approval: &Approval) -> ElicitRequestParams {
    let decision = EnumSchema::builder(vec![APPROVE.to_owned(), DENY.to_owned()]).title("Decision").build();
    let reason = StringSchema::new()
        .title("Reason")
        .description("For the audit log. The agent does not get it.")
        .max_length(REASON_CHARS);
    let fields = BTreeMap::from([
        (DECISION.to_owned(), PrimitiveSchemaDefinition::Enum(decision)),
        (REASON.to_owned(), PrimitiveSchemaDefinition::String(reason)),
    ]);
    let requested_schema = ElicitationSchema::new(fields).with_required(vec![DECISION.to_owned()]);
    ElicitRequestParams::FormElicitationParams { meta: None, message: message(approval), requested_schema }
}

/// Returns the text of the form.
fn message(approval: &Approval) -> String {
    let name = |text: &str| sanitize_line(text, NAME_CHARS);
    let mut lines = vec![
        "An agent wants to make a call that waits for your approval. Nothing of it has run.".to_owned(),
        match approval.operations.is_empty() {
            true => format!("Operation: {} of {}", name(&approval.op), name(&approval.connector)),
            false => format!("Action: {}", name(&approval.connector)),
        },
    ];
    let listed = approval.operations.iter().take(OPERATIONS);
    lines.extend(listed.map(|operation| format!("Would call: {}", name(operation))));
    if let Some(more) = approval.operations.len().checked_sub(OPERATIONS).filter(|more| *more > 0) {
        lines.push(format!("Would call {more} more operations."));
    }
    lines.push(format!("Effect: {}", approval.effect.as_deref().map_or("not declared".to_owned(), name)));
    lines.push(format!("Asked by: {}", name(&approval.actor)));
    let hashed = if is_action(&approval.connector) { "Action file" } else { "Package" };
    lines.push(format!("{hashed}: {}", name(&approval.hash)));
    lines.push(format!("Approval: {}", approval.id));
    lines.extend(arguments(approval));
    lines.join("\n")
}

/// Returns the lines about the arguments, as the store of approvals has them.
fn arguments(approval: &Approval) -> [String; 2] {
    let arguments = &approval.arguments;
    let bytes = arguments.bytes;
    let Some(text) = &arguments.text else {
        let says =
            format!("Arguments: {bytes} bytes, which this host does not store, so they cannot be shown.");
        return [says, format!("Their SHA-256: {}", arguments.sha256)];
    };
    let visible = visible_json(&without_white_space(text)).into_owned();
    let shown = sanitize_line(&visible, ARGUMENT_CHARS);
    let says = match arguments.cut || shown.chars().count() > ARGUMENT_CHARS {
        true => format!("Arguments, secrets removed. ONLY THE BEGINNING of their {bytes} bytes is shown:"),
        false => "Arguments, secrets removed:".to_owned(),
    };
    [says, shown]
}

/// Returns JSON, which may be cut, without the white space between its values.
fn without_white_space(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let keep = |c: &char| {
        let kept = is_text || !matches!(c, ' ' | '\n' | '\r' | '\t');
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            _ => {}
        }
        kept
    };
    json.chars().filter(keep).collect()
}

/// The answer of a person in the form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FormAnswer {
    pub(super) decision: ApprovalDecision,
    pub(super) reason: Option<String>,
}

impl FormAnswer {
    /// Reads the answer. None if the person dismissed the form, or if it does not have the form's fields: the call goes
    /// on waiting then. To decline the form is to deny the call.
    pub(super) fn read(result: ElicitResult) -> Option<Self> {
        match (result.action, result.content) {
            (ElicitationAction::Decline, _) => Some(Self { decision: ApprovalDecision::Deny, reason: None }),
            (ElicitationAction::Accept, Some(Value::Object(fields))) => {
                let decision = match fields.get(DECISION)?.as_str()? {
                    APPROVE => ApprovalDecision::Approve,
                    DENY => ApprovalDecision::Deny,
                    _ => return None,
                };
                let reason = match fields.get(REASON) {
                    None | Some(Value::Null) => None,
                    Some(Value::String(reason)) => Some(reason.trim()).filter(|reason| !reason.is_empty()),
                    Some(_) => return None,
                };
                Some(Self { decision, reason: reason.map(str::to_owned) })
            }
            _ => None,
        }
    }

    /// Reads the answer that a client sends with a request.
    pub(super) fn read_value(result: &Value) -> Option<Self> {
        ElicitResult::deserialize(result).ok().and_then(Self::read)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use cofferdam_audit::approvals::ShownArguments;
    use cofferdam_core::failure::AuditId;
    use serde_json::json;

    use super::*;

    fn approval(arguments: &str) -> Approval {
        let arguments =
            ShownArguments::new(arguments.len() as u64, "0".repeat(64), Some(arguments.to_owned()));
        Approval {
            effect: Some("destructive".to_owned()),
            hash: "sha256:00".to_owned(),
            arguments,
            ..Approval::new("github://acme/files@1.0.0", "delete", "mcp:a", &AuditId::mint())
        }
    }

    #[test]
    fn the_form_shows_the_call_and_asks_for_primitives() {
        let approval = approval("{\"folder\": \"/a b\"}");
        let form = serde_json::to_value(form(&approval)).unwrap();
        let message = form["message"].as_str().unwrap();
        for line in [
            "Operation: delete of github://acme/files@1.0.0",
            "Effect: destructive",
            "Asked by: mcp:a",
            "Package: sha256:00",
            &format!("Approval: {}", approval.id),
            "Arguments, secrets removed:",
            "{\"folder\":\"/a b\"}",
        ] {
            assert!(message.lines().any(|own| own == line), "{line}: {message}");
        }
        assert!(!message.contains("cofferdam approvals"), "{message}");
        let schema = &form["requestedSchema"];
        assert_eq!(schema["properties"]["decision"]["enum"], json!(["approve", "deny"]));
        assert!(schema["properties"]["decision"].get("default").is_none(), "{schema}");
        assert_eq!((&schema["required"], &form["mode"]), (&json!(["decision"]), &json!("form")));
        for field in schema["properties"].as_object().unwrap().values() {
            assert_eq!(field["type"], "string", "{field}");
        }
    }

    #[test]
    fn arguments_cannot_forge_or_hide_lines() {
        let hidden = "{\n\n\n\r\t \"a\\\"\" : \"x\\n  Effect: read_only\u{202e}\\u200b\", \"b\" : [1 , 2]}";
        let text = message(&approval(hidden));
        let lines = text.lines().collect::<Vec<_>>();
        assert_eq!(lines.iter().filter(|line| line.starts_with("Effect:")).count(), 1, "{text}");
        let last = "{\"a\\\"\":\"x\\n  Effect: read_only\\\\u202e\\\\u200b\",\"b\":[1,2]}";
        assert_eq!(lines.last(), Some(&last), "{text}");
    }

    #[test]
    fn the_form_says_when_arguments_are_cut() {
        let whole = "Arguments, secrets removed:";
        let says = |approval: &Approval| arguments(approval)[0].clone();
        assert_eq!(says(&approval(&format!("\"{}\"", "x".repeat(ARGUMENT_CHARS - 2)))), whole);
        let long = approval(&format!("\"{}\"", "x".repeat(ARGUMENT_CHARS - 1)));
        assert!(says(&long).contains("ONLY THE BEGINNING of their 8001 bytes"), "{}", says(&long));
        let mut cut = approval("{\"a\":\"xx…[truncated, 90000 bytes]");
        assert_eq!(says(&cut), whole, "it is an agent's text that ends so");
        let ShownArguments { sha256, text, .. } = cut.arguments;
        cut.arguments = ShownArguments::new(90_000, sha256, text);
        assert!(says(&cut).contains("ONLY THE BEGINNING of their 90000 bytes"), "{}", says(&cut));
        cut.arguments.text = None;
        assert!(says(&cut).contains("cannot be shown"), "{}", says(&cut));
    }

    #[test]
    fn a_long_action_lists_its_first_operations() {
        let mut approval = approval("{}");
        approval.operations = (0..OPERATIONS + 2).map(|number| format!("a@1.0.0 op{number}")).collect();
        let text = message(&approval);
        assert_eq!(text.matches("Would call: ").count(), OPERATIONS, "{text}");
        assert!(text.contains("\nWould call 2 more operations.\n") && !text.contains("Operation:"), "{text}");
    }

    #[test]
    fn only_the_forms_own_answers_decide() {
        let read = |result: Value| FormAnswer::read_value(&result);
        let answer =
            |decision, reason: Option<&str>| Some(FormAnswer { decision, reason: reason.map(str::to_owned) });
        let accept = |content: Value| read(json!({"action": "accept", "content": content}));
        assert_eq!(accept(json!({"decision": "approve"})), answer(ApprovalDecision::Approve, None));
        let both = json!({"decision": "approve", "reason": " ticket 17 ", "more": [1]});
        assert_eq!(accept(both), answer(ApprovalDecision::Approve, Some("ticket 17")));
        let denied = json!({"decision": "deny", "reason": ""});
        assert_eq!(accept(denied), answer(ApprovalDecision::Deny, None));
        let declined = json!({"action": "decline", "content": {"decision": "approve"}});
        assert_eq!(read(declined), answer(ApprovalDecision::Deny, None));
        for content in [
            json!({}),
            json!({"decision": true}),
            json!({"decision": "Approve"}),
            json!({"decision": ["approve"]}),
            json!({"decision": "approve", "reason": 1}),
            json!({"username": "testuser"}),
            json!("approve"),
            Value::Null,
        ] {
            assert_eq!(accept(content.clone()), None, "{content}");
        }
        for result in [
            json!({"action": "cancel", "content": {"decision": "approve"}}),
            json!({"action": "accept"}),
            json!({"action": "approve", "content": {"decision": "approve"}}),
            json!({"content": {"decision": "approve"}}),
            json!(12345),
            Value::Null,
        ] {
            assert_eq!(read(result.clone()), None, "{result}");
        }
    }
}
