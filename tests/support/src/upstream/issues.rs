//! A GitHub-compatible issues API: list with pages, get, create. A repository's name is its script.
//!
//! `/repos/<owner>/issues-<n>/issues` has n issues to begin with; `/repos/<owner>/status-<code>/..`
//! answers with that status and GitHub's error body, `status-<code>-after-<seconds>` with a
//! `Retry-After` too. Creating twice with one `Idempotency-Key` creates once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::ReceivedRequest;
use super::reply::{Reply, parameter, value};

/// The created issues, by repository.
#[derive(Default)]
pub(super) struct Store(Mutex<HashMap<String, Vec<Created>>>);

#[derive(Clone)]
struct Created {
    key: Option<String>,
    issue: Value,
}

impl Store {
    pub(super) fn answer(&self, seen: &ReceivedRequest) -> Reply {
        let (path, query) = seen.path.split_once('?').unwrap_or((&seen.path, ""));
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let ["repos", owner, repo, "issues", rest @ ..] = parts.as_slice() else {
            return not_found();
        };
        if let Some(script) = repo.strip_prefix("status-") {
            return scripted(script);
        }
        let Some(count) = repo.strip_prefix("issues-").and_then(|count| count.parse().ok()) else {
            return not_found();
        };
        let repository = format!("{owner}/{repo}");
        match (seen.method.as_str(), rest) {
            ("GET", []) => {
                let mut all: Vec<Value> = (1..=count).map(|number| issue(number, "An issue", "")).collect();
                all.extend(self.created(&repository).into_iter().map(|created| created.issue));
                page(&all, path, query, seen.header("host").unwrap_or_default())
            }
            ("POST", []) => self.create(&repository, count, seen),
            ("GET", [number]) => match number.parse::<u64>() {
                Ok(number) if (1..=count).contains(&number) => value(200, &issue(number, "An issue", "")),
                Ok(number) => {
                    let mut created = self.created(&repository).into_iter().map(|created| created.issue);
                    created
                        .find(|issue| issue.get("number") == Some(&json!(number)))
                        .map_or_else(not_found, |issue| value(200, &issue))
                }
                Err(_) => not_found(),
            },
            _ => error(405, "Method Not Allowed"),
        }
    }

    fn created(&self, repository: &str) -> Vec<Created> {
        let store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        store.get(repository).cloned().unwrap_or_default()
    }

    fn create(&self, repository: &str, count: u64, seen: &ReceivedRequest) -> Reply {
        let Ok(body) = serde_json::from_slice::<Value>(&seen.body) else {
            return error(400, "Problems parsing JSON");
        };
        let Some(title) = body.get("title").and_then(Value::as_str).filter(|title| !title.is_empty()) else {
            return error(422, "Validation Failed");
        };
        let key = seen.header("idempotency-key").map(str::to_owned);
        let mut store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let created = store.entry(repository.to_owned()).or_default();
        if let Some(first) = created.iter().find(|first| key.is_some() && first.key == key) {
            return value(201, &first.issue);
        }
        let number = count + created.len() as u64 + 1;
        let issue = issue(number, title, body.get("body").and_then(Value::as_str).unwrap_or_default());
        created.push(Created { key, issue: issue.clone() });
        value(201, &issue)
    }
}

fn issue(number: u64, title: &str, body: &str) -> Value {
    json!({
        "id": 1_000 + number,
        "number": number,
        "title": title,
        "body": body,
        "state": "open",
        "html_url": format!("https://github.example/issues/{number}"),
        "user": {"login": "octocat", "id": 1},
        "labels": [{"id": 1, "name": "bug", "color": "d73a4a"}],
        "comments": 0,
        "created_at": "2026-01-02T03:04:05Z",
        "updated_at": "2026-01-02T03:04:05Z",
    })
}

fn page(all: &[Value], path: &str, query: &str, host: &str) -> Reply {
    let number =
        |name, otherwise| parameter(query, name).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let per_page = number("per_page", 30_usize).clamp(1, 100);
    let page = number("page", 1_usize).max(1);
    let pages = all.len().div_ceil(per_page).max(1);
    let items: Vec<&Value> = all.iter().skip((page - 1) * per_page).take(per_page).collect();
    let mut reply = value(200, &json!(items));
    let link = |page: usize, rel: &str| {
        format!("<http://{host}{path}?per_page={per_page}&page={page}>; rel=\"{rel}\"")
    };
    let mut links = Vec::new();
    if page > 1 {
        links.push(link(page - 1, "prev"));
    }
    if page < pages {
        links.extend([link(page + 1, "next"), link(pages, "last")]);
    }
    if let (Reply::Response(response), false) = (&mut reply, links.is_empty()) {
        response.headers_mut().insert("link", links.join(", ").parse().expect("a header value"));
    }
    reply
}

fn scripted(script: &str) -> Reply {
    let (status, wait) = match script.split_once("-after-") {
        Some((status, wait)) => (status, Some(wait)),
        None => (script, None),
    };
    let mut reply = error(status.parse().unwrap_or(500), "As the repository's name says");
    if let (Reply::Response(response), Some(wait)) = (&mut reply, wait) {
        response.headers_mut().insert("retry-after", wait.parse().expect("a header value"));
    }
    reply
}

fn not_found() -> Reply {
    error(404, "Not Found")
}

fn error(status: u16, message: &str) -> Reply {
    value(status, &json!({"message": message, "documentation_url": "https://docs.example/rest"}))
}
