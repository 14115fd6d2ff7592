//! The pages about calls that wait for a person, with the form of the answer, and about requests for grants.

use std::collections::BTreeMap;

use crate::call_pages;
use crate::format::{bytes, encoded, number, plain};
use crate::frame::{Area, Page, error_text, table, time, timestamp};
use crate::router::CONSOLE;
use cofferdam_audit::approvals::{Approval, ApprovalState};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::event::is_action;
use cofferdam_core::failure::{sanitize_lines, visible_json};
use cofferdam_runtime::approvals::ApprovalPolicy;
use cofferdam_runtime::host::ApprovalDecision;
use cofferdam_server::http_api::{ApprovalList, ErrorMessage, GrantRequestView};
use maud::{Markup, html};

/// The times within which all calls with the same arguments may run, that the form offers.
const WINDOWS: [(&str, &str); 4] =
    [("10m", "10 minutes"), ("1h", "1 hour"), ("8h", "8 hours"), ("24h", "1 day")];

/// The longest text of arguments on a page, in bytes. A setting of the audit log may keep more.
const ARGUMENTS: usize = 64 * 1024;

/// Returns the path of the page about an approval.
pub(crate) fn path(id: &str) -> String {
    format!("{CONSOLE}/approvals/{}", encoded(id))
}

fn style(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Approved | ApprovalState::Used => "good",
        ApprovalState::Denied => "bad",
        _ => "doubtful",
    }
}

/// The page about all that wait, and the requests for grants or the reason why they cannot be read; with `all`, about those
/// with an answer, too.
pub(crate) fn list(
    list: &ApprovalList,
    requests: Result<&[GrantRequestView], ErrorMessage>,
    all: bool,
) -> Page {
    let header = [
        "Asked",
        "Approval",
        "State",
        "Caller",
        "Connector",
        "Operation",
        "Effect",
        "Waits until",
        "Answered by",
    ];
    let rows = html! {
        @for approval in &list.approvals {
            tr {
                td { (timestamp(approval.asked_at)) }
                th.wide scope="row" { a href=(path(approval.id.as_str())) { code { (approval.id.as_str()) } } }
                td { span class=(style(approval.state)) { (approval.state.name()) } }
                td { (plain(&approval.actor)) @if approval.agent { " (agent)" } }
                td { (plain(&approval.connector)) }
                td { (plain(&approval.op)) }
                td { (plain(approval.effect.as_deref().unwrap_or("not declared"))) }
                td { (timestamp(approval.waits_until)) }
                td { (plain(approval.answered_by.as_deref().unwrap_or("-"))) }
            }
        }
    };
    let other = if all { "" } else { "?all=true" };
    let body = html! {
        div #present {
            p {
                (match list.waiting {
                    0 => "No call waits for a person. ".to_owned(),
                    1 => "1 call waits for a person. ".to_owned(),
                    waiting => format!("{} calls wait for a person. ", number(waiting as u64)),
                })
                a href=(format!("{CONSOLE}/approvals{other}")) { (if all { "Only those that wait" } else { "Answered ones, too" }) }
            }
            @if !list.approvals.is_empty() { (table("Approvals", &header, &rows)) }
            @if list.more > 0 {
                p { (number(list.more as u64)) " more are not on this page, which has the oldest. They follow as these are answered." }
            }
            h2 { "Requests for grants" }
            @match requests {
                Ok(requests) => (grant_requests(requests)),
                Err(message) => (error_text(&message)),
            }
        }
    };
    Page::new(Area::Approvals, "Approvals", body)
}

/// The access that calls were denied, with the reason.
fn grant_requests(requests: &[GrantRequestView]) -> Markup {
    let header =
        ["Connector", "Asked for", "Calls", "Since", "Last call", "Caller", "Reason", "To look at it"];
    let rows = html! {
        @for request in requests {
            tr {
                td { (plain(&request.connector)) }
                th scope="row" { code { (plain(request.binding.as_ref().unwrap_or(&request.subject))) } }
                td.number { (number(request.calls as u64)) }
                td { (time(Some(&request.first))) }
                td { (call_pages::link(&request.last_call)) " " (time(Some(&request.last))) }
                td { (plain(&request.actor)) }
                td.wide { code { (plain(&request.code)) } ": " (plain(&request.reason)) }
                td.wide { code { "cofferdam why " (plain(&request.connector)) " " (plain(&request.subject)) } }
            }
        }
    };
    html! {
        @if requests.is_empty() {
            p { "No request for a grant is open." }
        } @else {
            p {
                "Calls of the last 7 days were denied this, and would be now. Nothing can be accepted on this page: "
                "an operator installs a version whose manifest asks for it (" code { "cofferdam install" }
                "), sets a binding (" code { "cofferdam binding set" } " or " code { "cofferdam binding allow" }
                "), or changes " code { "config.toml" } " and starts this process again."
            }
            (table("Requests for grants", &header, &rows))
        }
    }
}

/// The page about one; with the token of a session that may answer, with the forms for it.
pub(crate) fn show(approval: &Approval, answer_token: Option<&str>) -> Page {
    let body = html! {
        p { span class=(style(approval.state)) { (approval.state.name()) } }
        (facts(approval))
        h2 { "Arguments" }
        (arguments(approval, answer_token.is_some()))
        @match answer_token {
            Some(token) if approval.state == ApprovalState::Waiting => { (approve(approval, token)) (deny(approval, token, "Deny")) },
            Some(token) if approval.state == ApprovalState::Approved => (deny(approval, token, "Withdraw")),
            None if approval.state == ApprovalState::Waiting => p.panel {
                "This session only reads. " code { "cofferdam console --approvals" }
                " prints a link whose session may answer, and " code { "cofferdam approvals" } " answers in a terminal."
            },
            _ => "",
        }
    };
    Page::new(Area::Approvals, format!("{} of {}", plain(&approval.op), plain(&approval.connector)), body)
}

fn facts(approval: &Approval) -> Markup {
    let hashed = if is_action(&approval.connector) { "Action file" } else { "Package" };
    html! {
        dl {
            dt { "Approval" } dd { code { (approval.id.as_str()) } }
            dt { "Asked by" } dd { (plain(&approval.actor)) @if approval.agent { ", an agent" } @else { ", not an agent" } }
            dt { "Effect" } dd { (plain(approval.effect.as_deref().unwrap_or("not declared"))) }
            @for operation in &approval.operations { dt { "Would call" } dd { (plain(operation)) } }
            @if approval.candidate > 0 { dt { "Fallback" } dd { (approval.candidate) } }
            @if let Some(action) = &approval.action {
                dt { "Action" }
                dd { (plain(action)) @if let Some(step) = &approval.step { ", step " (plain(step)) } }
            }
            dt { (hashed) } dd { code { (plain(&approval.hash)) } }
            @if let Some(key) = &approval.idempotency_key { dt { "Idempotency key" } dd { code { (plain(key)) } } }
            dt { "First call" } dd { (call_pages::link(&approval.call)) }
            dt { "Asked" } dd { (timestamp(approval.asked_at)) }
            dt { "Waits until" } dd { (timestamp(approval.waits_until)) }
            @if let Some(at) = approval.answered_at {
                dt { "Answered" }
                dd { (timestamp(at)) " by " (plain(approval.answered_by.as_deref().unwrap_or("-"))) }
            }
            @if let Some(reason) = &approval.reason { dt { "Reason" } dd { (plain(reason)) } }
            @if let Some(until) = approval.usable_until {
                dt { "May run" }
                dd {
                    (if approval.same_arguments { "any call with these arguments" } else { "one call" })
                    ", until " (timestamp(until))
                }
            }
            @if let Some(call) = &approval.used_by { dt { "Used by" } dd { (call_pages::link(call)) } }
        }
    }
}

fn arguments(approval: &Approval, may_answer: bool) -> Markup {
    let arguments = &approval.arguments;
    // What a text could hide is written out: a person decides by it.
    let text = arguments.text.as_deref().map(|text| sanitize_lines(&visible_json(text), ARGUMENTS));
    html! {
        p { (bytes(arguments.bytes)) ", SHA-256 " code { (plain(&arguments.sha256)) } }
        @match (text, may_answer) {
            (Some(text), _) => {
                pre tabindex="0" aria-label="Arguments" { (text) }
                @if arguments.cut || arguments.text.as_ref().is_some_and(|text| text.len() > ARGUMENTS) {
                    p.panel { span.bad { "Only their beginning is shown." } " The approval is for all of them, by their SHA-256." }
                }
            },
            (None, true) => p.doubtful { "They are not kept: [audit] field_bytes is 0." },
            (None, false) => p.dim { "They are shown to sessions that may answer." },
        }
    }
}

fn approve(approval: &Approval, token: &str) -> Markup {
    html! {
        h2 { "Approve" }
        p {
            "The approval is for exactly this caller, operation, arguments and package"
            @if approval.idempotency_key.is_some() { ", and this idempotency key" }
            ". The caller has to repeat the call."
        }
        form.filter method="post" action=(path(approval.id.as_str())) {
            input type="hidden" name="token" value=(token);
            input type="hidden" name="decision" value="approve";
            label {
                "May run"
                select name="for" {
                    option value="" { "one call" }
                    @for (window, text) in WINDOWS { option value=(window) { "calls with these arguments, for " (text) } }
                }
            }
            label { "Reason, for the audit log" input name="reason" maxlength="500" autocomplete="off"; }
            button { "Approve" }
        }
    }
}

fn deny(approval: &Approval, token: &str, verb: &str) -> Markup {
    html! {
        h2 { (verb) }
        form.filter method="post" action=(path(approval.id.as_str())) {
            input type="hidden" name="token" value=(token);
            input type="hidden" name="decision" value="deny";
            label { "Reason, for the audit log; the caller is not told" input name="reason" maxlength="500" autocomplete="off"; }
            button { (verb) }
        }
    }
}

/// Reads the decision of a form.
///
/// # Errors
/// `validation`: the form is not one of these pages.
pub(crate) fn decision(form: &BTreeMap<String, String>) -> Result<ApprovalDecision, HostError> {
    let field = |name: &str| form.get(name).map(String::as_str).filter(|text| !text.is_empty());
    let refused = |message: &str| HostError::new(HostErrorKind::Validation, message.to_owned());
    match (field("decision"), field("for")) {
        (Some("approve"), None) => Ok(ApprovalDecision::Approve),
        (Some("approve"), Some(window)) => {
            let window = ApprovalPolicy::window(window).map_err(|error| refused(error.message()))?;
            Ok(ApprovalDecision::ApproveSameArguments(window))
        }
        (Some("deny"), None) => Ok(ApprovalDecision::Deny),
        _ => Err(refused("The form has no answer.")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::time::Duration;

    use super::*;

    fn read(fields: &[(&str, &str)]) -> Result<ApprovalDecision, HostError> {
        let form = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        decision(&form)
    }

    #[test]
    fn a_form_is_one_answer_or_none() {
        let hour = ApprovalDecision::ApproveSameArguments(Duration::from_secs(3_600));
        for (fields, expected) in [
            (&[("decision", "approve"), ("for", ""), ("reason", " ")][..], ApprovalDecision::Approve),
            (&[("decision", "approve"), ("for", "1h")], hour),
            (&[("decision", "deny"), ("reason", "in use")], ApprovalDecision::Deny),
        ] {
            assert_eq!(read(fields).unwrap(), expected);
        }
        for wrong in [
            &[][..],
            &[("decision", "")],
            &[("decision", "approved")],
            &[("decision", "approve"), ("for", "1s")],
            &[("decision", "approve"), ("for", "x")],
            &[("decision", "deny"), ("for", "1h")],
        ] {
            assert_eq!(read(wrong).unwrap_err().kind(), HostErrorKind::Validation, "{wrong:?}");
        }
    }
}
