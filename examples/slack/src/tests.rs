//! The operations against scripted answers of Slack.
#![allow(clippy::unwrap_used, reason = "tests")]

use cofferdam_guest::Failure;
use cofferdam_guest::http::{self, Response};
use cofferdam_guest::testing::{Call, json};

use super::{Guest as _, Slack};

fn post(text: &str) -> Result<super::Message, Failure> {
    Slack::post_message("#general".to_owned(), text.to_owned(), None)
}

#[test]
fn a_message_is_sent_as_a_form() {
    let call = Call::new();
    call.expect(
        http::post("https://slack.com/api/chat.postMessage")
            .form([("channel", "#general"), ("text", "a & b")]),
    )
    .respond_json(200, &json!({"ok": true, "channel": "C1", "ts": "1.2"}));
    let message = post("a & b").unwrap();
    assert_eq!((message.channel.as_str(), message.timestamp.as_str()), ("C1", "1.2"));
}

#[test]
fn an_error_with_status_200_is_an_upstream_failure() {
    let call = Call::new();
    let refused = json!({"ok": false, "error": "missing_scope", "needed": "chat:write"});
    call.expect(http::post("https://slack.com/api/chat.postMessage")).respond_json(200, &refused);
    let expected =
        Failure::upstream(200, "missing_scope").with_detail("the token lacks the scope chat:write");
    assert_eq!(post("hello"), Err(expected));
}

#[test]
fn a_reaction_that_is_there_already_is_added() {
    let call = Call::new();
    let pairs = [("channel", "C1"), ("timestamp", "1.2"), ("name", "thumbsup")];
    call.expect(http::post("https://slack.com/api/reactions.add").form(pairs))
        .respond_json(200, &json!({"ok": false, "error": "already_reacted"}));
    assert_eq!(Slack::add_reaction("C1".to_owned(), "1.2".to_owned(), ":thumbsup:".to_owned()), Ok(()));
}

#[test]
fn a_cursor_that_repeats_ends_the_list() {
    let call = Call::new();
    let page = json!({"ok": true, "channels": [], "response_metadata": {"next_cursor": "same"}});
    call.allow(http::get("https://slack.com/api/conversations.list").query("exclude_archived", true))
        .respond_with(move |_| Response::new(200, [], page.to_string()));
    let failure = Slack::list_channels(None).unwrap_err();
    assert_eq!(failure.to_string(), "Slack gave the same page again and again.");
    let cursors: Vec<_> = call.requests().iter().map(|request| request.query("cursor")).collect();
    assert_eq!(cursors, [None, Some("same".to_owned())]);
}
