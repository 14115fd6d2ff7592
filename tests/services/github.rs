//! `github-issues` against steady, which serves GitHub's own description.

use serde_json::{Value, json};

use super::fixture::{GITHUB, assert_token, stage};
use crate::envelope;

fn repository(name: &str) -> Value {
    json!({"owner": "acme", "name": name})
}

#[test]
fn issues_are_listed_read_and_created() {
    let Some(stage) = stage() else { return };
    let list = json!({"repository": repository("described"), "state": "open", "limit": 5});
    let page = stage.value("github-issues", "list_issues", list);
    // GitHub's example of an issue is a pull request, which does not count as an issue here.
    assert_eq!(page, json!({"issues": [], "more": false}));
    let got = stage.value(
        "github-issues",
        "get_issue",
        json!({"repository": repository("described"), "number": 1347}),
    );
    assert_eq!((&got["number"], &got["title"]), (&json!(1347), &json!("Found a bug")));
    let new = json!({"repository": repository("described"), "title": "It leaks", "body": "Look.", "labels": ["bug"]});
    let created = stage.value("github-issues", "create_issue", new);
    assert_eq!((&created["number"], &created["author"]), (&json!(1347), &json!("octocat")));
    let seen = stage.front.seen(GITHUB, "/repos/acme/described/");
    let asked: Vec<_> = seen.iter().map(|seen| format!("{} {}", seen.method, seen.path)).collect();
    assert_eq!(
        asked,
        [
            "GET /repos/acme/described/issues?state=open&per_page=6",
            "GET /repos/acme/described/issues/1347",
            "POST /repos/acme/described/issues"
        ]
    );
    assert!(seen.iter().all(|seen| seen.header("x-github-api-version") == Some("2022-11-28")));
    assert_token(&seen);
}

#[test]
fn github_errors_are_distinguished() {
    let Some(stage) = stage() else { return };
    let cases = [
        ("bad-token", 401, None, json!({"message": "Bad credentials"}), "auth", false),
        ("forbidden", 403, None, json!({"message": "Resource not accessible by integration"}), "auth", false),
        ("missing", 404, None, json!({"message": "Not Found"}), "not_found", false),
        ("gone", 410, None, json!({"message": "Issues are disabled for this repo"}), "bad_request", false),
        (
            "invalid",
            422,
            None,
            json!({"message": "Validation Failed", "errors": [{"code": "missing_field"}]}),
            "bad_request",
            false,
        ),
        (
            "limited",
            429,
            Some("60"),
            json!({"message": "You have exceeded a secondary rate limit"}),
            "rate_limited",
            true,
        ),
        ("down", 502, None, json!({"message": "Server Error"}), "unavailable", true),
    ];
    for (name, status, wait, body, code, retriable) in cases {
        let headers: Vec<_> = wait.map(|wait| ("retry-after", wait)).into_iter().collect();
        stage.front.answer(GITHUB, &format!("/acme/{name}/"), (status, &headers, &body.to_string()));
        let create = json!({"repository": repository(name), "title": "x", "labels": []});
        let created = stage.failure("github-issues", "create_issue", create);
        envelope::check(&created, envelope::upstream(code, false));
        let get = json!({"repository": repository(name), "number": 1});
        let failure = stage.failure("github-issues", "get_issue", get);
        envelope::check(&failure, envelope::upstream(code, retriable));
        assert_eq!(failure.details()["status"], status);
        if name == "invalid" {
            assert_eq!(failure.details()["upstream_code"], "missing_field");
        }
        if let Some(wait) = wait {
            assert_eq!(failure.details()["retry_after_ms"], wait.parse::<u64>().unwrap() * 1000);
        }
    }
}

#[test]
fn the_generated_connector_meets_its_document() {
    let Some(stage) = stage() else { return };
    let with = |more: Value| {
        let mut args = json!({"owner": "acme", "repo": "generated"});
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        args
    };
    let list =
        stage.value("github-openapi", "issues_list_for_repo", with(json!({"state": "open", "per_page": 5})));
    assert_eq!((&list[0]["number"], &list[0]["user"]["login"]), (&json!(1347), &json!("octocat")));
    let got = stage.value("github-openapi", "issues_get", with(json!({"issue_number": 1347})));
    assert_eq!(got["title"], "Found a bug");
    let body = json!({"title": {"text": "It leaks"}, "body": "Look.", "labels": [{"text": "bug"}]});
    let created = stage.value("github-openapi", "issues_create", with(json!({ "body": body })));
    assert_eq!(created["number"], 1347);
    let pulls = stage.value("github-openapi", "pulls_list", with(json!({"head": "acme:fix"})));
    assert!(pulls[0]["number"].is_u64(), "{pulls}");
    let seen = stage.front.seen(GITHUB, "/repos/acme/generated/");
    let asked: Vec<_> = seen.iter().map(|seen| format!("{} {}", seen.method, seen.path)).collect();
    let expected = [
        "GET /repos/acme/generated/issues?state=open&per_page=5",
        "GET /repos/acme/generated/issues/1347",
        "POST /repos/acme/generated/issues",
        "GET /repos/acme/generated/pulls?head=acme%3Afix",
    ];
    assert_eq!(asked, expected);
    assert_token(&seen);
    let none =
        stage.failure("github-openapi", "issues_get", json!({"owner": "", "repo": "x", "issue_number": 1}));
    assert_eq!(none.code(), "input_invalid", "an empty part would be another path");
}
