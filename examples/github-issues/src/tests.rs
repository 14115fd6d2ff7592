//! The operations against scripted answers of GitHub.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use cofferdam_guest::http::{self, Response};
use cofferdam_guest::testing::{Call, Value, json};
use cofferdam_guest::{Failure, NetworkPhase};

use super::{GithubIssues, Guest as _, Repository, State};

const ISSUES: &str = "https://api.github.com/repos/acme/tools/issues";

fn repository() -> Repository {
    Repository { owner: "acme".to_owned(), name: "tools".to_owned(), base_url: None }
}

/// An issue as GitHub's API has it.
fn issue(number: u64) -> Value {
    json!({
        "number": number, "title": format!("Issue {number}"), "state": "open", "body": "",
        "user": {"login": "ada"}, "labels": ["bug", {"name": "later"}],
        "created_at": "2026-01-31T12:00:00Z", "html_url": format!("https://github.com/acme/tools/issues/{number}"),
    })
}

#[test]
fn pages_are_followed_until_the_limit() {
    let call = Call::new().in_order();
    let mut pull_request = issue(2);
    pull_request["pull_request"] = json!({});
    let next = [("link", "</repositories/1/issues?page=2>; rel=\"next\"")];
    let first = json!([issue(3), pull_request]).to_string();
    call.expect(
        http::get(ISSUES)
            .query("state", "open")
            .query("per_page", 3)
            .header("accept", "application/vnd.github+json"),
    )
    .respond(Response::new(200, next, first));
    call.expect(http::get("https://api.github.com/repositories/1/issues?page=2"))
        .respond_json(200, &json!([issue(1), issue(0)]));

    let page = GithubIssues::list_issues(repository(), Some(State::Open), Some(2)).unwrap();
    assert_eq!(page.issues.iter().map(|issue| issue.number).collect::<Vec<_>>(), [3, 1]);
    assert!(page.more);
    assert_eq!(page.issues[0].labels, ["bug", "later"]);
    assert_eq!(page.issues[0].body, None);
    let lines: Vec<_> = call.log_lines().iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["debug page read page=1 issues=1", "debug page read page=2 issues=3"]);
}

#[test]
fn an_issue_is_created_with_a_key() {
    let call = Call::new();
    call.expect(
        http::post(ISSUES).idempotency_key("create").json(&json!({"title": "It leaks", "labels": ["bug"]})),
    )
    .respond_json(201, &issue(4));

    let labels = vec!["bug".to_owned()];
    let created = GithubIssues::create_issue(repository(), "It leaks".to_owned(), None, labels).unwrap();
    assert_eq!(created.number, 4);
    assert_eq!(call.requests()[0].header("x-github-api-version"), Some("2022-11-28"));
}

#[test]
fn errors_of_github_are_reported() {
    let call = Call::new();
    let limited = [("retry-after", "60"), ("content-type", "application/json")];
    call.expect(http::get(format!("{ISSUES}/1"))).respond(Response::new(
        429,
        limited,
        r#"{"message": "API rate limit exceeded"}"#,
    ));
    call.expect(http::get(format!("{ISSUES}/2"))).fail(NetworkPhase::Connect);

    let Err(Failure::Upstream(error)) = GithubIssues::get_issue(repository(), 1) else { panic!() };
    assert_eq!((error.status, error.retry_after_ms), (429, Some(60_000)));
    assert_eq!(
        GithubIssues::get_issue(repository(), 2).unwrap_err().to_string(),
        "the exchange with the service broke off while connecting"
    );
}

#[test]
fn names_cannot_leave_their_path_segment() {
    let call = Call::new();
    call.expect(http::get("https://ghe.example/api/repos/a%2Fb/%2E%2E/pulls?head=a/b:fix&state=open"))
        .respond_json(200, &json!([]));
    let repository = Repository {
        owner: "a/b".to_owned(),
        name: "..".to_owned(),
        base_url: Some("https://ghe.example/api/".to_owned()),
    };
    let failure = GithubIssues::find_pr_by_branch(repository, "fix".to_owned()).unwrap_err();
    assert_eq!(failure.to_string(), "The branch has no open pull request.");
}

#[test]
fn bad_arguments_send_nothing() {
    let call = Call::new();
    for limit in [0, 1001] {
        let failure = GithubIssues::list_issues(repository(), None, Some(limit)).unwrap_err();
        assert_eq!(failure.to_string(), "limit: must be from 1 to 1000");
    }
    assert!(call.requests().is_empty());
}
