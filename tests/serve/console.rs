//! The console as a browser meets it: its link, its session, and pages made of hostile texts.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;

use super::fixture::{Answer, PROBE, Stage, TOKEN, begin_at, probe, read};

/// The cookie that a response sets, as a request sends it.
pub(super) fn cookie(answer: &Answer) -> String {
    let cookie = answer.header("set-cookie").unwrap_or_else(|| panic!("{answer:?}"));
    format!("cookie: {}", cookie.split(';').next().unwrap())
}

/// The path and query of a link that the server printed.
pub(super) fn link(stage: &Stage, name: &str) -> String {
    let open = stage.ready[name].as_str().unwrap();
    open.strip_prefix(stage.ready["listening"].as_str().unwrap()).unwrap().to_owned()
}

/// A browser, which has no token.
pub(super) struct Browser<'s> {
    stage: &'s Stage,
    address: SocketAddr,
    cookie: String,
}

impl<'s> Browser<'s> {
    pub(super) fn open(stage: &'s Stage) -> Self {
        Self::open_link(stage, "open")
    }

    pub(super) fn open_link(stage: &'s Stage, name: &str) -> Self {
        Self::open_at(stage, stage.address, &link(stage, name))
    }

    /// Opens the link of a console over the home of the stage that may be another process.
    pub(super) fn open_at(stage: &'s Stage, address: SocketAddr, link: &str) -> Self {
        let opened = read(begin_at(address, "GET", link, &[], b""));
        assert_eq!((opened.status, opened.header("location")), (303, Some("/console")), "{opened:?}");
        Self { stage, address, cookie: cookie(&opened) }
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        read(self.begin(path))
    }

    /// Begins a request whose response may not end.
    pub(super) fn begin(&self, path: &str) -> TcpStream {
        begin_at(self.address, "GET", path, &[&self.cookie], b"")
    }

    /// The token that the forms of the session have.
    pub(super) fn token(&self) -> String {
        form_token(&self.get("/console").body)
    }

    /// Sends a form with the token of the session.
    pub(super) fn send(&self, path: &str, fields: &str) -> Answer {
        self.send_with_token(path, &self.token(), fields)
    }

    fn send_with_token(&self, path: &str, token: &str, fields: &str) -> Answer {
        read(self.begin_form(path, token, fields))
    }

    /// Begins to send a form.
    pub(super) fn begin_form(&self, path: &str, token: &str, fields: &str) -> TcpStream {
        let form = ["content-type: application/x-www-form-urlencoded", &self.cookie];
        begin_at(self.address, "POST", path, &form, format!("token={token}&{fields}").as_bytes())
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

/// The token that the forms of a page have.
fn form_token(page: &str) -> String {
    page.split("name=\"token\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

/// Checks what holds for every page.
#[track_caller]
pub(super) fn check_page(stage: &Stage, answer: &Answer) {
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{answer:?}");
    let policy = answer.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-frame-options"), Some("DENY"));
    // The only script is a file of its own.
    let page = answer.body.replacen("<script src=\"/console/live.js\" defer></script>", "", 1);
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
    assert_eq!(plain("HEAD", &link(&stage, "open"), &[]).status, 401);
    assert_eq!(plain("GET", &link(&stage, "open"), &["host: evil.example"]).status, 403);
    assert_eq!(plain("GET", &link(&stage, "open"), &["origin: https://evil.example"]).status, 403);
    let opened = plain("GET", &link(&stage, "open"), &[]);
    let set = opened.header("set-cookie").unwrap();
    for attribute in ["; Path=/console", "; HttpOnly", "; SameSite=Strict", "; Max-Age=43200"] {
        assert!(set.contains(attribute), "{set}");
    }
    assert_eq!(plain("GET", &link(&stage, "open"), &[]).status, 401, "a second time");
    let cookie = cookie(&opened);
    assert_eq!(plain("GET", "/console", &[&cookie]).status, 200);
    assert_eq!(plain("GET", "/console", &[&cookie.to_uppercase()]).status, 401);
    // The session opens the console and nothing else, and the token does not open the console.
    assert_eq!(plain("GET", "/v1/connectors", &[&cookie]).status, 401);
    assert_eq!(stage.get("/console").status, 401);
    assert_eq!(stage.get("/v1/connectors").status, 200);
    let style = plain("GET", "/console/style.css", &[]);
    assert_eq!((style.status, style.header("content-type")), (200, Some("text/css; charset=utf-8")));
    let icon = plain("GET", "/console/icon.svg", &[]);
    assert_eq!((icon.status, icon.header("content-type")), (200, Some("image/svg+xml")));
    let script = plain("GET", "/console/live.js", &[]);
    assert_eq!((script.status, script.header("content-type")), (200, Some("text/javascript; charset=utf-8")));
    assert_eq!(plain("GET", "/console/live", &[]).status, 401);
}

#[test]
fn a_session_ends_with_its_form_and_its_time() {
    let stage = Stage::with(&["--console", "--session", "3s"]);
    let browser = Browser::open(&stage);
    let token = form_token(&browser.page("/console"));
    for wrong in ["", "x", &token[1..]] {
        assert_eq!(browser.send_with_token("/console/close", wrong, "").status, 403, "{wrong}");
    }
    let close = |headers: &[&str], body: &str| {
        let headers = [headers, &["content-type: application/x-www-form-urlencoded"]].concat();
        read(stage.begin_plain("POST", "/console/close", &headers, body.as_bytes())).status
    };
    let right = format!("token={token}");
    assert_eq!(close(&[&browser.cookie], ""), 403);
    assert_eq!(close(&[&browser.cookie, "origin: https://evil.example"], &right), 403);
    assert_eq!(close(&[], &right), 401);
    assert_eq!(browser.get("/console").status, 200);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(browser.get("/console").status, 401);
    let stage = Stage::with(&["--console"]);
    let browser = Browser::open(&stage);
    let closed = browser.send("/console/close", "");
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
        "requested 2 times",
        "never requested",
        "2 attempts used",
        "% of the fuel; a limit of",
        "p50, p99, most",
        "Attempts by wall time: half of them at most",
        "2 attempts read responses of less than 1 % of the limit; a limit of 1 MiB would have held.",
        "10 MiB, the same for every connector",
        "<line class=\"limit\"",
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
    let details = stage.cli().run(&["audit", "show", &ids[1], "--format", "json"]).json();
    for entry in details["entries"].as_array().unwrap() {
        let (writer, n) = (entry["writer"].as_str().unwrap(), &entry["n"]);
        let place = format!("<code>{writer}</code></th><td class=\"number\">{n}</td>");
        assert!(call.contains(&place), "{place}: {call}");
    }
    for drawn in ["aria-label=\"Waterfall of the call\"", "until it ended: ", "<rect class=\"used\" x=\""] {
        assert!(call.contains(drawn), "{drawn}: {call}");
    }
    assert!(!call.contains("a-hidden-path") && !call.contains("recover skip"), "{call}");
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
    assert!(stage.ready.get("approve").is_none(), "{:?}", stage.ready);
    for option in [&["--session", "1m"][..], &["--approvals"]] {
        stage.cli().run(&[&["serve"], option].concat()).fails(65).said("--console");
    }
    let refused = stage.cli().run(&["console", "--listen", "0.0.0.0:0"]).fails(64);
    assert!(refused.stderr.contains("token"), "{refused:?}");
}

/// The rule by which every post of a program waits for a person.
pub(super) const POSTS_ASK: &str = "[[approvals.rules]]\noperations = [\"post\"]\nask = true\n";

/// A stage with both links, and a call that waits.
pub(super) fn waiting_stage(path: &str) -> (Stage, serde_json::Value) {
    let stage = Stage::configured(&["--token-file", "token", "--console", "--approvals"], POSTS_ASK);
    let call = probe("post", &json!({"url": stage.upstream.url(path), "body": "b"}));
    (stage, call)
}

/// The id of the approval that a call waits for.
#[track_caller]
pub(super) fn asked(stage: &Stage, call: &serde_json::Value) -> String {
    let waits = stage.post(call);
    assert_eq!(waits.word(), "approval_required", "{waits:?}");
    waits.json()["error"]["details"]["approval"].as_str().unwrap().to_owned()
}

#[test]
fn a_person_approves_a_call_in_the_console() {
    let path = "/text/console-approved";
    let (stage, call) = waiting_stage(path);
    let id = asked(&stage, &call);
    let (url, person) = (format!("/console/approvals/{id}"), Browser::open_link(&stage, "approve"));
    assert!(person.page("/console/approvals").contains(&url));
    let page = person.page(&url);
    for shown in ["waiting", "github://cofferdam/probe@0.1.0", path, "not declared", "one call", "Deny"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    for wrong in ["decision=approved", "decision=approve&for=1s", "decision=", ""] {
        assert_eq!(person.send(&url, wrong).status, 400, "{wrong}");
    }
    assert_eq!(person.send_with_token(&url, "x", "decision=approve").status, 403);
    assert_eq!(asked(&stage, &call), id, "it still waits");
    let approved = person.send(&url, "decision=approve&for=&reason=asked+for+in+%3Cticket%3E+17");
    assert_eq!((approved.status, approved.header("location")), (303, Some(&*url)), "{approved:?}");
    assert!(person.page(&url).contains("&lt;ticket&gt; 17"));
    assert_eq!(person.send(&url, "decision=approve").status, 409, "a second time");
    assert_eq!((stage.post(&call).status, stage.upstream.seen(path).len()), (200, 1));
    let used = person.page(&url);
    assert!(used.contains("Used by") && used.contains("(console)") && !used.contains("<h2>Deny"), "{used}");
    assert_ne!(asked(&stage, &call), id, "it is used up");
    assert_eq!(stage.upstream.seen(path).len(), 1);
}

#[test]
fn a_person_denies_a_call_in_the_console() {
    let (stage, call) = waiting_stage("/text/console-denied");
    let url = format!("/console/approvals/{}", asked(&stage, &call));
    let person = Browser::open_link(&stage, "approve");
    assert_eq!(person.send(&url, "decision=deny&reason=a-secret-reason").status, 303);
    let denied = stage.post(&call);
    assert_eq!((denied.status, denied.word().as_str()), (403, "approval_denied"), "{denied:?}");
    assert!(!denied.body.contains("a-secret-reason"), "{denied:?}");
    assert_eq!(person.send(&url, "decision=approve").status, 409);
    assert!(person.page("/console/approvals").contains("No call waits"));
    assert!(person.page("/console/approvals?all=true").contains("denied"));
    assert!(stage.upstream.seen("/text/console-denied").is_empty());
}

#[test]
fn a_session_that_reads_cannot_approve() {
    let path = "/text/console-read";
    let (stage, call) = waiting_stage(path);
    let id = asked(&stage, &call);
    let (url, reader) = (format!("/console/approvals/{id}"), Browser::open(&stage));
    let page = reader.page(&url);
    assert!(page.contains("This session only reads.") && !page.contains(path), "{page}");
    assert!(!page.contains("name=\"decision\""), "{page}");
    for decision in ["decision=approve", "decision=deny"] {
        let refused = reader.send(&url, decision);
        assert_eq!(refused.status, 403, "{refused:?}");
        check_page(&stage, &refused);
    }
    assert_eq!(reader.get("/console/approvals/approval-01890000-0000-7000-8000-000000000001").status, 404);
    // A program sees that it waits, and neither the arguments nor a way to answer.
    let list = stage.get("/v1/approvals").json();
    assert_eq!((list["waiting"].as_u64(), list["approvals"][0]["id"].as_str()), (Some(1), Some(&*id)));
    let shown = stage.get(&format!("/v1/approvals/{id}"));
    assert_eq!(shown.json()["state"], "waiting", "{shown:?}");
    assert!(!shown.body.contains(path) && !list.to_string().contains(path), "{shown:?}");
    for (method, path) in [("POST", ""), ("POST", "/approve"), ("PUT", ""), ("DELETE", "")] {
        let answer = stage.ask(method, &format!("/v1/approvals/{id}{path}"), &[], b"{}");
        assert!([404, 405].contains(&answer.status), "{answer:?}");
    }
    assert_eq!(asked(&stage, &call), id);
    assert!(stage.upstream.seen(path).is_empty());
}

#[test]
fn reports_are_files_that_need_no_server() {
    let stage = Stage::with(&["--console"]);
    for path in ["/text/a-hidden-path", "/status/503/a-hidden-path"] {
        stage.post(&probe("fetch", &json!({"url": stage.upstream.url(path)})));
    }
    let dir = stage.home.path().join("reports");
    std::fs::create_dir(&dir).unwrap();
    let (to, single) = (dir.to_str().unwrap(), dir.join("all.html"));
    stage.cli().run(&["report", PROBE, "--out", to]).ok();
    stage.cli().run(&["report", "--since", "1h", "--out", single.to_str().unwrap()]).ok();
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let (connector, period) = (read("github-cofferdam-probe-0.1.0.html"), read("all.html"));
    for shown in
        ["2 attempts used", "never requested", "Attempts by largest response", "<line class=\"limit\""]
    {
        assert!(connector.contains(shown), "{shown}: {connector}");
    }
    for shown in [
        "external_api_error",
        "github://cofferdam/probe@0.1.0 fetch",
        "unavailable",
        "audit-",
        "class=\"map\" role=\"img\"",
        &format!("<td>{}</td>", stage.upstream.host_port()),
        "Granted and never used",
    ] {
        assert!(period.contains(shown), "{shown}: {period}");
    }
    for report in [&connector, &period] {
        for forbidden in
            ["<script", "<a ", "href=", "src=", "a-hidden-path", stage.home.path().to_str().unwrap()]
        {
            assert!(!report.contains(forbidden), "{forbidden}: {report}");
        }
    }
    let _ = stage.cli().run(&["report", "github://acme/none", "--out", to]).fails(66);
    stage.cli().run(&["report", "--since", "1h", "--until", "2h", "--out", to]).fails(65).said("--since");
    let _ = stage.cli().run(&["report", PROBE, "--since", "1h", "--out", to]).fails(2);
}

#[test]
fn top_counts_the_calls_of_other_processes() {
    let stage = Stage::new();
    let fetch = |path: &str| stage.post(&probe("fetch", &json!({"url": stage.upstream.url(path)})));
    fetch("/status/503/top");
    let mut top = stage.cli().command(&["top", "--interval", "1s", "--format", "json"]);
    let mut top = top.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(top.stdout.take().unwrap()));
    let mut reading = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    let first = reading();
    assert!(first["calls_per_second"].is_null() && first["waiting_approvals"] == 0, "{first}");
    let ended = |reading: &serde_json::Value, name: &str| -> u64 {
        let steps = reading["history"]["steps"].as_array().unwrap();
        steps.iter().map(|step| step[name].as_u64().unwrap()).sum()
    };
    assert_eq!((ended(&first, "calls"), ended(&first, "failed")), (1, 1), "{first}");
    fetch("/text/top");
    let begun = std::time::Instant::now();
    while reading()["calls_per_second"].as_f64().unwrap() == 0.0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the call is not counted");
    }
    top.kill().unwrap();
    top.wait().unwrap();
    let once = stage.cli().run(&["top", "--once"]).ok();
    for shown in ["2 in 24 hours", "external_api_error", "never: cofferdam audit verify"] {
        assert!(once.contains(shown), "{shown}: {once}");
    }
}
