//! The console as a browser meets it: its link, its session, and pages made of hostile texts.

use std::time::Duration;

use serde_json::json;

use super::fixture::{Answer, PROBE, Stage, TOKEN, probe, read};

/// The cookie that a response sets, as a request sends it.
fn cookie(answer: &Answer) -> String {
    let cookie = answer.header("set-cookie").unwrap_or_else(|| panic!("{answer:?}"));
    format!("cookie: {}", cookie.split(';').next().unwrap())
}

/// The path and query of the link that the server printed.
fn link(stage: &Stage) -> String {
    let open = stage.ready["open"].as_str().unwrap();
    open.strip_prefix(stage.ready["listening"].as_str().unwrap()).unwrap().to_owned()
}

/// A browser, which has no token.
pub(super) struct Browser<'s> {
    stage: &'s Stage,
    cookie: String,
}

impl<'s> Browser<'s> {
    pub(super) fn open(stage: &'s Stage) -> Self {
        let opened = read(stage.begin_plain("GET", &link(stage), &[], b""));
        assert_eq!((opened.status, opened.header("location")), (303, Some("/console")), "{opened:?}");
        Self { stage, cookie: cookie(&opened) }
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        read(self.stage.begin_plain("GET", path, &[&self.cookie], b""))
    }

    /// A page, after checking what holds for every page.
    #[track_caller]
    pub(super) fn page(&self, path: &str) -> String {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        check_page(self.stage, &answer);
        answer.body
    }
}

#[track_caller]
fn check_page(stage: &Stage, answer: &Answer) {
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{answer:?}");
    let policy = answer.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'self';") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-frame-options"), Some("DENY"));
    let page = &answer.body;
    assert!(page.contains("<html lang=\"en\">") && page.matches("<h1>").count() == 1, "{page}");
    for forbidden in
        ["<script", " style=", " onload=", "javascript:", " src=\"", "href=\"http", "action=\"http"]
    {
        assert!(!page.contains(forbidden), "{forbidden}: {page}");
    }
    for hidden in [TOKEN, stage.home.path().to_str().unwrap(), "/console/open"] {
        assert!(!page.contains(hidden), "{hidden}: {page}");
    }
}

#[test]
fn a_link_opens_one_session() {
    let stage = Stage::with(&["--token-file", "token", "--console"]);
    let plain =
        |method: &str, path: &str, headers: &[&str]| read(stage.begin_plain(method, path, headers, b""));
    for path in ["/console", "/console/calls", "/console/nothing", "/console/open", "/console/open?key=x"] {
        let answer = plain("GET", path, &[]);
        assert_eq!((answer.status, answer.header("connection")), (401, Some("close")), "{path}: {answer:?}");
        check_page(&stage, &answer);
        assert!(answer.body.contains("cofferdam console") && answer.header("set-cookie").is_none());
    }
    // Whatever only looks at the link does not use it, and a foreign page cannot.
    assert_eq!(plain("HEAD", &link(&stage), &[]).status, 401);
    assert_eq!(plain("GET", &link(&stage), &["host: evil.example"]).status, 403);
    assert_eq!(plain("GET", &link(&stage), &["origin: https://evil.example"]).status, 403);
    let opened = plain("GET", &link(&stage), &[]);
    let set = opened.header("set-cookie").unwrap();
    for attribute in ["; Path=/console", "; HttpOnly", "; SameSite=Strict", "; Max-Age=43200"] {
        assert!(set.contains(attribute), "{set}");
    }
    assert_eq!(plain("GET", &link(&stage), &[]).status, 401, "a second time");
    let cookie = cookie(&opened);
    assert_eq!(plain("GET", "/console", &[&cookie]).status, 200);
    assert_eq!(plain("GET", "/console", &[&cookie.to_uppercase()]).status, 401);
    // The session opens the console and nothing else, and the token does not open the console.
    assert_eq!(plain("GET", "/v1/connectors", &[&cookie]).status, 401);
    assert_eq!(stage.get("/console").status, 401);
    assert_eq!(stage.get("/v1/connectors").status, 200);
    let style = plain("GET", "/console/style.css", &[]);
    assert_eq!((style.status, style.header("content-type")), (200, Some("text/css; charset=utf-8")));
}

#[test]
fn a_session_ends_with_its_form_and_its_time() {
    let stage = Stage::with(&["--console", "--session", "3s"]);
    let browser = Browser::open(&stage);
    let page = browser.page("/console");
    let token = page.split("name=\"token\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let post = |headers: &[&str], body: &str| {
        read(stage.begin_plain("POST", "/console/close", headers, body.as_bytes())).status
    };
    let right = format!("token={token}");
    for body in ["", "token=", "token=x", token] {
        assert_eq!(post(&[&browser.cookie], body), 403, "{body}");
    }
    assert_eq!(post(&[&browser.cookie, "origin: https://evil.example"], &right), 403);
    assert_eq!(post(&[], &right), 401);
    assert_eq!(browser.get("/console").status, 200);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(browser.get("/console").status, 401);
    let stage = Stage::with(&["--console"]);
    let browser = Browser::open(&stage);
    let page = browser.page("/console");
    let token = page.split("name=\"token\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let body = format!("token={token}");
    let closed = read(stage.begin_plain("POST", "/console/close", &[&browser.cookie], body.as_bytes()));
    assert_eq!(closed.status, 303, "{closed:?}");
    assert!(closed.header("set-cookie").unwrap().contains("Max-Age=0"), "{closed:?}");
    assert_eq!(browser.get("/console").status, 401);
}

#[test]
fn pages_show_connectors_and_calls() {
    let stage = Stage::with(&["--console"]);
    let browser = Browser::open(&stage);
    let url = |path: &str| json!({"url": stage.upstream.url(path)});
    let mut ids = Vec::new();
    for call in [
        probe("fetch", &url("/text/a-hidden-path")),
        probe("fetch", &url("/status/503/a-hidden-path")),
        json!({"connector": PROBE, "op": "<img src=x onerror=alert(1)>", "args": {}}),
    ] {
        let told = stage.post(&call).json();
        let id = told["audit_id"].as_str().or(told["error"]["audit_id"].as_str());
        ids.extend(id.map(str::to_owned));
    }
    let list = browser.page("/console");
    for name in ["probe", "hello", "slack"] {
        assert!(
            list.contains(&format!("href=\"/console/connectors/github/cofferdam/{name}@0.1.0\"")),
            "{list}"
        );
    }
    let probe = browser.page("/console/connectors/github/cofferdam/probe@0.1.0");
    for shown in [
        "requested by 2 calls",
        "never requested",
        "2 attempts used",
        "% of the fuel; a limit of",
        "p50, p99, most",
        "not_idempotent",
        "trusted",
    ] {
        assert!(probe.contains(shown), "{shown}: {probe}");
    }
    let slack = browser.page("/console/connectors/github/cofferdam/slack@0.1.0");
    assert!(slack.contains("bearer/slack") && slack.contains("not bound"), "{slack}");
    assert!(slack.contains("No attempt is on record.") && slack.contains("slack.com:443"), "{slack}");

    let calls = browser.page("/console/calls");
    assert!(ids.iter().all(|id| calls.contains(&format!("/console/calls/{id}"))), "{calls}");
    assert!(calls.contains("&lt;img src=x onerror=alert(1)&gt;") && !calls.contains("<img"), "{calls}");
    // As the form sends it: fields without a value select nothing.
    let failed = browser.page("/console/calls?connector=&op=&status=failure&class=&since=");
    assert!(failed.contains(&ids[1]) && !failed.contains(&ids[0]), "{failed}");
    assert!(failed.contains("<option value=\"failure\" selected>"), "{failed}");
    let paged = browser.page("/console/calls?limit=1");
    let older = paged.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(browser.page(&older.replace("&amp;", "&")).contains("Newest calls"));

    let call = browser.page(&format!("/console/calls/{}", ids[1]));
    for shown in
        ["external_api_error.unavailable", "Attempt 1 of", "GET", "503", "Fix", "Call again", "attempt_ended"]
    {
        assert!(call.contains(shown), "{shown}: {call}");
    }
    assert!(!call.contains("a-hidden-path"), "{call}");
    assert!(browser.page(&format!("/console/calls/{}", ids[0])).contains("cofferdam replay"));
    for (path, status) in [
        ("/console/calls/audit-01890000-0000-7000-8000-000000000001", 404),
        ("/console/calls/%22%3E%3Cscript%3E", 404),
        ("/console/connectors/github/acme/none", 404),
        ("/console/connectors/github/Acme/none", 404),
        ("/console/calls?class=%22%3E%3Cscript%3E", 400),
        ("/console/calls?%3Cscript%3E=1", 400),
        ("/console/none", 404),
    ] {
        let answer = browser.get(path);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        check_page(&stage, &answer);
    }
    let filter = browser.page("/console/calls?op=%22%3E%3Cscript%3Ealert(1)%3C/script%3E");
    assert!(filter.contains("value=\"&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\""), "{filter}");
}

#[test]
fn the_console_runs_without_the_api() {
    let stage = Stage::start(&["console", "--listen", "127.0.0.1:0"]);
    let browser = Browser::open(&stage);
    assert!(browser.page("/console").contains("github://cofferdam/hello"));
    assert!(browser.page("/console/calls").contains("No call on record fits."));
    assert_eq!(browser.get("/v1/connectors").status, 404);
    stage.cli().run(&["serve", "--session", "1m"]).fails(65).said("--console");
    let refused = stage.cli().run(&["console", "--listen", "0.0.0.0:0"]).fails(64);
    assert!(refused.stderr.contains("token"), "{refused:?}");
}
