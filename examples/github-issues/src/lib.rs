//! Lists, gets and creates issues, and finds pull requests, on GitHub and on services that speak its API.

mod api;
#[cfg(test)]
mod tests;

use cofferdam_guest::http::{self, Request};
use cofferdam_guest::{Failure, connector, log};

connector!("wit/github-issues.wit", GithubIssues);

struct GithubIssues;

/// The number of issues listed by default.
const LIMIT: u32 = 100;
/// The most a caller can ask for.
const MOST: u32 = 1000;
/// The most the service gives in one response.
const PER_PAGE: usize = 100;
/// Responses read for one list, however few issues are in them: the service
/// counts pull requests too.
const PAGES: u32 = 20;

impl Guest for GithubIssues {
    fn list_issues(
        repository: Repository,
        state: Option<State>,
        limit: Option<u32>,
    ) -> Result<Page, Failure> {
        let limit = limit.unwrap_or(LIMIT);
        if !(1..=MOST).contains(&limit) {
            return Err(Failure::invalid_input("limit", format!("must be from 1 to {MOST}")));
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let state = match state {
            None => "all",
            Some(State::Open) => "open",
            Some(State::Closed) => "closed",
        };
        // One more than wanted shows whether there are more.
        let per_page = limit.saturating_add(1).min(PER_PAGE);
        let mut request = http::get(issues(&repository)?).query("state", state).query("per_page", per_page);
        let mut issues = Vec::new();
        for read in 1..=PAGES {
            let response = github(request).send()?.error_for_status()?;
            let page: Vec<api::Issue> = response.json()?;
            issues.extend(page.into_iter().filter(|issue| issue.pull_request.is_none()).map(Issue::from));
            log::debug("page read", &[("page", &read), ("issues", &issues.len())]);
            match response.next_page() {
                Some(next) if issues.len() <= limit => request = http::get(next),
                _ => {
                    let more = issues.len() > limit;
                    issues.truncate(limit);
                    return Ok(Page { issues, more });
                }
            }
        }
        Ok(Page { issues, more: true })
    }

    fn get_issue(repository: Repository, number: u64) -> Result<Issue, Failure> {
        let response = github(http::get(format!("{}/{number}", issues(&repository)?))).send()?;
        let issue: api::Issue = response.error_for_status()?.json()?;
        Ok(issue.into())
    }

    fn find_pr_by_branch(repository: Repository, branch: String) -> Result<PullRequest, Failure> {
        if branch.trim().is_empty() {
            return Err(Failure::invalid_input("branch", "must not be empty"));
        }
        let request = http::get(of(&repository, "pulls")?)
            .query("head", format!("{}:{branch}", repository.owner))
            .query("state", "open")
            .query("per_page", 1);
        let found: Vec<api::PullRequest> = github(request).send()?.error_for_status()?.json()?;
        let found = found.into_iter().next().map(PullRequest::from);
        found.ok_or_else(|| Failure::failed("no_pull_request", "The branch has no open pull request."))
    }

    fn create_issue(
        repository: Repository,
        title: String,
        body: Option<String>,
        labels: Vec<String>,
    ) -> Result<Issue, Failure> {
        if title.trim().is_empty() {
            return Err(Failure::invalid_input("title", "must not be empty"));
        }
        let new = api::NewIssue { title: &title, body: body.as_deref(), labels: &labels };
        let request = github(http::post(issues(&repository)?)).idempotency_key("create").json(&new);
        let issue: api::Issue = request.send()?.error_for_status()?.json()?;
        Ok(issue.into())
    }
}

/// The URL of a repository's issues.
fn issues(repository: &Repository) -> Result<String, Failure> {
    of(repository, "issues")
}

/// The URL of what a repository has.
fn of(repository: &Repository, what: &str) -> Result<String, Failure> {
    for (field, value) in [("repository.owner", &repository.owner), ("repository.name", &repository.name)] {
        if value.is_empty() {
            return Err(Failure::invalid_input(field, "must not be empty"));
        }
    }
    let base = repository.base_url.as_deref().unwrap_or("https://api.github.com").trim_end_matches('/');
    let (owner, name) = (http::encode_segment(&repository.owner), http::encode_segment(&repository.name));
    Ok(format!("{base}/repos/{owner}/{name}/{what}"))
}

/// The header fields that GitHub requires of every request.
fn github(request: Request) -> Request {
    request
        .header("accept", "application/vnd.github+json")
        .header("x-github-api-version", "2022-11-28")
        .header("user-agent", "cofferdam-github-issues")
}
