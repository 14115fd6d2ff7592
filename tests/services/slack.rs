//! `slack` against prism, which serves Slack's description and wants a credential.

use serde_json::{Value, json};

use super::fixture::{SLACK, assert_token, stage};
use crate::envelope;

fn post(channel: &str) -> Value {
    json!({"channel": channel, "text": "Nightly & <green>", "thread": null})
}

#[test]
fn a_message_is_posted_with_a_hidden_token() {
    let Some(stage) = stage() else { return };
    let posted = stage.value("slack", "post_message", post("C0POSTED1"));
    // prism answers with the schema's example for every channel.
    assert_eq!(posted, json!({"channel": "C1H9RESGL", "timestamp": "1503435956.000247"}));
    let reply = json!({"channel": "C0POSTED1", "text": "And again", "thread": "1503435956.000247"});
    stage.value("slack", "post_message", reply);
    let seen = stage.front.seen(SLACK, "C0POSTED1");
    let bodies: Vec<_> = seen.iter().map(|seen| String::from_utf8_lossy(&seen.body).into_owned()).collect();
    assert_eq!(
        bodies,
        [
            "channel=C0POSTED1&text=Nightly+%26+%3Cgreen%3E",
            "channel=C0POSTED1&text=And+again&thread_ts=1503435956.000247"
        ]
    );
    assert_eq!(seen[0].path, "/api/chat.postMessage");
    assert_eq!(seen[0].header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_token(&seen);
}

#[test]
fn an_existing_reaction_is_not_a_failure() {
    let Some(stage) = stage() else { return };
    let react = |channel: &str| {
        let args = json!({"channel": channel, "timestamp": "1503435956.000247", "emoji": ":thumbsup:"});
        stage.value("slack", "add_reaction", args)
    };
    assert_eq!(react("C0REACT01"), Value::Null);
    let seen = stage.front.seen(SLACK, "C0REACT01");
    let body = String::from_utf8_lossy(&seen[0].body);
    assert_eq!(body, "channel=C0REACT01&timestamp=1503435956.000247&name=thumbsup");
    stage.front.answer(SLACK, "C0REACT02", (200, &[], r#"{"ok":false,"error":"already_reacted"}"#));
    assert_eq!(react("C0REACT02"), Value::Null);
}

#[test]
fn channels_are_listed_across_pages_by_cursor() {
    let Some(stage) = stage() else { return };
    let two = stage.value("slack", "list_channels", json!({"limit": 2}));
    assert_eq!(two["more"], true, "the description's example has a cursor: {two}");
    let general = json!({"id": "C012AB3CD", "name": "general", "private": false, "members": 4,
                         "topic": "Company-wide announcements and work-based matters"});
    assert_eq!((&two["channels"][0], &two["channels"][1]["name"]), (&general, &json!("random")));
    assert_eq!(stage.front.seen(SLACK, "limit=2").len(), 1, "no page more than needed");

    let page = |ids: std::ops::Range<u32>, cursor: &str| {
        let channels: Vec<_> = ids
            .map(|id| json!({"id": format!("C{id}"), "name": format!("n{id}"), "is_private": true}))
            .collect();
        json!({"ok": true, "channels": channels, "response_metadata": {"next_cursor": cursor}}).to_string()
    };
    stage.front.answer(SLACK, "limit=7&cursor=a%3D%3D", (200, &[], &page(3..5, "b")));
    stage.front.answer(SLACK, "limit=7&cursor=b", (200, &[], &page(5..6, "")));
    stage.front.answer(SLACK, "limit=7", (200, &[], &page(0..3, "a==")));
    let all = stage.value("slack", "list_channels", json!({"limit": 7}));
    let ids: Vec<_> =
        all["channels"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["C0", "C1", "C2", "C3", "C4", "C5"]);
    assert_eq!(all["more"], false);
    assert_eq!(
        all["channels"][0],
        json!({"id": "C0", "name": "n0", "private": true, "topic": null, "members": null})
    );
}

#[test]
fn a_repeated_cursor_ends_the_list() {
    let Some(stage) = stage() else { return };
    // prism has one example, so every page has the same cursor.
    let failure = stage.failure("slack", "list_channels", json!({"limit": 5}));
    assert_eq!(failure.details()["connector_code"], "cursor_repeats", "{:?}", failure.details());
    assert_eq!(stage.front.seen(SLACK, "limit=5").len(), 2);
}

#[test]
fn a_slack_error_with_status_200_keeps_its_name() {
    let Some(stage) = stage() else { return };
    for (channel, name) in [("C0MISSING", "channel_not_found"), ("C0ARCHIVE", "is_archived")] {
        let body = json!({"ok": false, "error": name}).to_string();
        stage.front.answer(SLACK, channel, (200, &[], &body));
        let failure = stage.failure("slack", "post_message", post(channel));
        let details = failure.details();
        assert_eq!((&details["status"], &details["upstream_code"]), (&json!(200), &json!(name)));
        envelope::check(&failure, envelope::upstream("error_in_answer", false));
        assert!(failure.message().contains(name), "{}", failure.message());
    }
}

#[test]
fn a_rate_limit_is_retriable_only_if_repeatable() {
    let Some(stage) = stage() else { return };
    let limited = (429, &[("retry-after", "30")][..], r#"{"ok":false,"error":"ratelimited"}"#);
    stage.front.answer(SLACK, "C0LIMITED", limited);
    let failure = stage.failure("slack", "post_message", post("C0LIMITED"));
    envelope::check(&failure, envelope::upstream("rate_limited", false));
    assert_eq!(
        (&failure.details()["retry_after_ms"], &failure.details()["upstream_code"]),
        (&json!(30_000), &json!("ratelimited"))
    );
    let args = json!({"channel": "C0LIMITED", "timestamp": "1.2", "emoji": "eyes"});
    let failure = stage.failure("slack", "add_reaction", args);
    envelope::check(&failure, envelope::upstream("rate_limited", true));
}

#[test]
fn an_outage_without_json_is_recognised() {
    let Some(stage) = stage() else { return };
    stage.front.answer(SLACK, "C0OUTAGE1", (503, &[], "<html>Slack is down</html>"));
    let args = json!({"channel": "C0OUTAGE1", "timestamp": "1.2", "emoji": "eyes"});
    envelope::check(&stage.failure("slack", "add_reaction", args), envelope::upstream("unavailable", true));
}

#[test]
fn invalid_slack_arguments_are_not_sent() {
    let Some(stage) = stage() else { return };
    let before = stage.front.seen(SLACK, "C0NOBODY1").len();
    for (op, args) in [
        ("post_message", json!({"channel": " ", "text": "C0NOBODY1"})),
        ("post_message", json!({"channel": "C0NOBODY1", "text": ""})),
        ("add_reaction", json!({"channel": "C0NOBODY1", "timestamp": "1.2", "emoji": "::"})),
        ("list_channels", json!({"limit": 0})),
    ] {
        let failure = stage.failure("slack", op, args.clone());
        assert_eq!(failure.code(), "input_invalid", "{op} {args}");
    }
    assert_eq!(stage.front.seen(SLACK, "C0NOBODY1").len(), before);
}
