//! GitHub's JSON, as far as it is used, and what of it becomes the connector's own types.

use serde::{Deserialize, Serialize};

use crate::{Issue as Own, PullRequest as Found, State};

/// An issue as the API gives it.
#[derive(Deserialize)]
pub(crate) struct Issue {
    number: u64,
    title: String,
    state: String,
    body: Option<String>,
    user: Option<User>,
    #[serde(default)]
    labels: Vec<Label>,
    created_at: String,
    html_url: String,
    /// There for pull requests, which the API lists among the issues.
    #[serde(default)]
    pub(crate) pull_request: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct User {
    login: String,
}

/// The API gives labels in either form.
#[derive(Deserialize)]
#[serde(untagged)]
enum Label {
    Name(String),
    Whole { name: Option<String> },
}

/// A pull request as the API gives it.
#[derive(Deserialize)]
pub(crate) struct PullRequest {
    number: u64,
    title: String,
    html_url: String,
}

impl From<PullRequest> for Found {
    fn from(found: PullRequest) -> Self {
        Self { number: found.number, title: found.title, url: found.html_url }
    }
}

/// An issue to be created.
#[derive(Serialize)]
pub(crate) struct NewIssue<'a> {
    pub(crate) title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) labels: &'a [String],
}

impl From<Issue> for Own {
    fn from(issue: Issue) -> Self {
        let name = |label| match label {
            Label::Name(name) | Label::Whole { name: Some(name) } => Some(name),
            Label::Whole { name: None } => None,
        };
        Self {
            number: issue.number,
            title: issue.title,
            state: if issue.state == "closed" { State::Closed } else { State::Open },
            body: issue.body.filter(|body| !body.is_empty()),
            author: issue.user.map(|user| user.login),
            labels: issue.labels.into_iter().filter_map(name).collect(),
            created_at: issue.created_at,
            url: issue.html_url,
        }
    }
}
