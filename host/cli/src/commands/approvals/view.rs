//! An approval for people.

use cofferdam_audit::approvals::{Approval, ApprovalState};
use cofferdam_core::event::is_action;

use crate::layout::{Page, TextStyle};

/// Writes all of the approval.
pub(super) fn page(approval: &Approval, page: &mut Page) {
    page.heading(approval.id.as_str());
    let tone = match approval.state {
        ApprovalState::Approved | ApprovalState::Used => TextStyle::Good,
        ApprovalState::Denied => TextStyle::Bad,
        _ => TextStyle::Doubtful,
    };
    page.styled_field("state", tone, approval.state.name());
    let caller = if approval.agent { "an agent" } else { "no agent" };
    page.field("asked by", &format!("{} ({caller})", approval.actor));
    page.field("call", &format!("{} {}", approval.connector, approval.op));
    for operation in &approval.operations {
        page.field("would call", operation);
    }
    if approval.candidate > 0 {
        page.field("fallback", &approval.candidate.to_string());
    }
    if let Some(action) = &approval.action {
        page.field("action", &[action.as_str(), approval.step.as_deref().unwrap_or_default()].join(" "));
    }
    let effect = approval.effect.as_deref().unwrap_or("not declared");
    let tone = if effect == "destructive" { TextStyle::Bad } else { TextStyle::Doubtful };
    page.styled_field("effect", tone, effect);
    page.field(if is_action(&approval.connector) { "action file" } else { "package" }, &approval.hash);
    if let Some(key) = &approval.idempotency_key {
        page.field("key", key);
    }
    let arguments = &approval.arguments;
    page.field("arguments", &format!("{} bytes, sha256:{}", arguments.bytes, arguments.sha256));
    match &arguments.text {
        Some(text) => {
            page.block(2, text);
        }
        None => {
            page.styled(TextStyle::Doubtful, "  Not kept: `[audit] field_bytes` is 0.");
        }
    }
    if arguments.cut {
        page.styled(TextStyle::Bad, "  Only their beginning is shown.");
    }
    page.field("first call", &approval.call);
    page.field("asked at", &format!("{:.0}", approval.asked_at));
    page.field("until", &format!("{:.0}", approval.waits_until));
    if let (Some(at), Some(by)) = (approval.answered_at, &approval.answered_by) {
        page.field("answered", &format!("{at:.0} by {by}"));
    }
    if let Some(reason) = &approval.reason {
        page.field("reason", reason);
    }
    if let Some(until) = approval.usable_until {
        let what = if approval.same_arguments { "any call with these arguments" } else { "one call" };
        page.field("may run", &format!("{what}, until {until:.0}"));
    }
    if let Some(call) = &approval.used_by {
        page.field("used by", call);
    }
}
