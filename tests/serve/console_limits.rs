//! The console at its limits: thousands of approvals, large arguments, events that are not read, a log that is
//! pruned and indexed again, two answers at once, wrong clocks, and TLS.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::approvals::{ApprovalBinding, ApprovalId, ApprovalRow, ApprovalSeal};
use cofferdam_console::{Console, SESSION_LIFETIME, SessionRight};
use cofferdam_core::host_key;
use cofferdam_server::http_api::HttpApi;
use cofferdam_server::server::{BoundServer, ServerSettings, Shutdown};
use cofferdam_test_support::{ManualClock, traffic};
use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, params};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use super::console::{Browser, asked, check_page, cookie, link, waiting_stage};
use super::fixture::{Answer, PROBE, Stage, TOKEN, probe, read};
use crate::shared_host::{begin, run};

/// The pages that list something.
const LISTS: [&str; 6] = [
    "/console",
    "/console/calls",
    "/console/health",
    "/console/network",
    "/console/trust",
    "/console/approvals",
];

/// The most bytes of a page, whatever is in it.
const PAGE_BYTES: usize = 100_000;

fn approval_path(id: &str) -> String {
    format!("/console/approvals/{id}")
}

fn post(stage: &Stage, path: &str) -> Value {
    probe("post", &json!({"url": stage.upstream.url(path), "body": "b"}))
}

/// Adds approvals that wait, like the one with this id, and sealed as the host does.
fn add_approvals(home: &Path, id: &str, count: u32) {
    let seal = ApprovalSeal::new(&host_key::read(&home.join("host.key")).unwrap());
    let mut file = Connection::open(home.join("audit/approvals.db")).unwrap();
    let select = "SELECT exact, same_arguments, value, mac FROM approvals WHERE id = ?1";
    let first = file.query_row(select, [id], |row| {
        let id = id.to_owned();
        let (exact, same_arguments, value, mac) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(ApprovalRow { id, exact, same_arguments, value, mac })
    });
    let mut stored = seal.open(&first.unwrap()).unwrap();
    let copies = file.transaction().unwrap();
    for n in 0..count {
        stored.approval.id = ApprovalId::mint();
        stored.binding = ApprovalBinding::new(&[0; 32], &[], n, None);
        let row = seal.row(&stored).unwrap();
        let copy = "INSERT INTO approvals SELECT ?1, ?2, ?3, is_waiting, ends, bytes, ?4, arguments, ?5 \
                    FROM approvals WHERE id = ?6";
        copies.execute(copy, params![row.id, row.exact, row.same_arguments, row.value, row.mac, id]).unwrap();
    }
    copies.commit().unwrap();
}

#[test]
fn ten_thousand_approvals_are_counted() {
    let (stage, call) = waiting_stage("/text/console-many");
    let first = asked(&stage, &call);
    add_approvals(stage.home.path(), &first, 9_999);
    let person = Browser::open_link(&stage, "approve");
    let page = person.page("/console/approvals");
    for shown in ["10,000 calls wait for a person.", "9,900 more are not on this page", first.as_str()] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(page.len() < PAGE_BYTES, "{}", page.len());
    assert_eq!(person.send(&approval_path(&first), "decision=deny").status, 303);
    let page = person.page("/console/approvals?all=true");
    assert!(page.contains("9,999 calls wait") && page.contains("denied"), "{page}");
    assert!(page.len() < PAGE_BYTES, "{}", page.len());
}

#[test]
fn large_arguments_are_cut_and_approved_whole() {
    let path = "/text/console-large";
    let (stage, _) = waiting_stage(path);
    let (url, person) = (stage.upstream.url(path), Browser::open_link(&stage, "approve"));
    let call = |last: char| {
        let body = format!("{}{last}", "x".repeat((4 << 20) - 1024));
        probe("post", &json!({"url": url, "body": body}))
    };
    let id = asked(&stage, &call('x'));
    let page = person.page(&approval_path(&id));
    assert!(page.contains("Only their beginning is shown."), "{} bytes", page.len());
    assert!((50_000..PAGE_BYTES).contains(&page.len()), "{} bytes", page.len());
    assert_eq!(person.send(&approval_path(&id), "decision=approve").status, 303);
    assert_ne!(asked(&stage, &call('y')), id, "the last byte differs, which the page does not show");
    assert!(stage.upstream.seen(path).is_empty());
    assert_eq!((stage.post(&call('x')).status, stage.upstream.seen(path).len()), (200, 1));
}

#[test]
fn unread_events_hold_nothing_up() {
    let mut stage = Stage::with(&["--token-file", "token", "--console"]);
    let browser = Browser::open(&stage);
    let fetch = probe("fetch", &json!({"url": stage.upstream.url("/text/console-unread")}));
    assert_eq!(stage.post(&fetch).status, 200);
    let streams: Vec<_> = (0..16).map(|_| browser.begin("/console/live")).collect();
    for stream in &streams {
        // The first event has arrived, and stays unread.
        assert_eq!(stream.peek(&mut [0; 1]).unwrap(), 1);
    }
    assert_eq!(browser.get("/console/live").status, 503, "the streams count until they end");
    let peak = stage.peak_bytes();
    for _ in 0..50 {
        assert_eq!(stage.post(&fetch).status, 200);
    }
    for path in LISTS {
        browser.page(path);
    }
    let cost = stage.peak_bytes().saturating_sub(peak);
    assert!(cost < 64 << 20, "{cost} bytes more");
    let begun = Instant::now();
    stage.signal("-TERM");
    assert_eq!(stage.ended().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(9), "it waited for the grace of 10 seconds");
    drop(streams);
}

/// Loads the lists until the command ends, and at least once.
fn load_lists_during(browser: &Browser<'_>, mut command: Command) {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    loop {
        let ended = child.try_wait().unwrap();
        for path in LISTS {
            browser.page(path);
        }
        if let Some(status) = ended {
            assert!(status.success(), "{command:?}: {status}");
            return;
        }
    }
}

#[test]
fn pages_outlast_a_pruned_and_rebuilt_log() {
    let stage = Stage::with(&["--token-file", "token", "--console"]);
    let (browser, url) = (Browser::open(&stage), stage.upstream.url("/text/console-pruned"));
    let kept = stage.post(&probe("fetch", &json!({"url": url}))).json()["audit_id"].clone();
    // The server keeps its own journal, so that only that of another process can be pruned.
    stage.cli().run(&["call", PROBE, "fetch", "--arg", &format!("url={url}")]).ok();
    let newest = stage.cli().run(&["audit", "list", "--limit", "1", "--format", "json"]).json();
    let path = |id: &Value| format!("/console/calls/{}", id.as_str().unwrap());
    let (kept, pruned) = (path(&kept), path(&newest[0]["audit_id"]));
    assert_ne!(kept, pruned);
    browser.page(&pruned);
    load_lists_during(&browser, stage.cli().command(&["audit", "prune", "--older-than", "2100-01-01"]));
    let gone = browser.get(&pruned);
    assert_eq!(gone.status, 404, "{gone:?}");
    check_page(&stage, &gone);
    for words in ["The audit log has no call audit-", "Old calls are removed by `cofferdam audit prune`"] {
        assert!(gone.body.contains(words), "{words}: {gone:?}");
    }
    assert!(!browser.page("/console/calls").contains(&pruned));

    traffic::fill(stage.home.path(), 3_000, 1, Timestamp::now());
    load_lists_during(&browser, stage.cli().command(&["audit", "reindex"]));
    fs::remove_file(stage.home.path().join("audit/index.db")).unwrap();
    for path in LISTS {
        browser.page(path);
    }
    browser.page(&kept);
}

/// Opens a session of another person, with a console of their own over the home of the stage.
fn open_beside<'s>(stage: &'s Stage, clock: &Arc<ManualClock>) -> Browser<'s> {
    let (host, shutdown) = (stage.home.builder_at(clock).user("ada").build().unwrap(), Shutdown::new());
    let api = HttpApi::new(host, shutdown.clone());
    let console = Console::new(api, Arc::<ManualClock>::clone(clock), |_, _| None, SESSION_LIFETIME, false);
    let link = console.new_link(SessionRight::Answer).unwrap();
    let settings = ServerSettings::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let server = run(BoundServer::bind(settings.with_path_access(console.access()))).unwrap();
    let address = server.address();
    begin(server.serve(console.router(), shutdown));
    Browser::open_at(stage, address, &link)
}

/// Sends the answers of two persons at once.
fn answer_at_once(people: [&Browser<'_>; 2], path: &str, decisions: [&str; 2]) -> [Answer; 2] {
    let tokens = people.map(Browser::token);
    let [first, second] =
        [0, 1].map(|n| people[n].begin_form(path, &tokens[n], &format!("decision={}", decisions[n])));
    [read(first), read(second)]
}

#[test]
fn one_of_two_answers_takes_effect() {
    let (stage, _) = waiting_stage("/text/console-first");
    let one = Browser::open_link(&stage, "approve");
    let other = open_beside(&stage, &ManualClock::new());
    for (decision, said, status) in [("approve", "approved", 200), ("deny", "denied", 403)] {
        let path = format!("/text/console-both-{decision}");
        let call = post(&stage, &path);
        let url = approval_path(&asked(&stage, &call));
        let [first, second] = answer_at_once([&one, &other], &url, [decision; 2]);
        let (late, by) = match (first.status, second.status) {
            (303, 409) => (second, "uid "),
            (409, 303) => (first, "ada (console)"),
            _ => panic!("{first:?} {second:?}"),
        };
        check_page(&stage, &late);
        assert!(late.body.contains(&format!("was {said} already by {by}")), "{late:?}");
        assert!(late.body.contains("This answer has no effect."), "{late:?}");
        assert_eq!(stage.post(&call).status, status);
        assert_eq!(stage.upstream.seen(&path).len(), usize::from(status == 200));
    }
    // A denial also withdraws an approval that was given at the same time.
    let path = "/text/console-both-differ";
    let call = post(&stage, path);
    let url = approval_path(&asked(&stage, &call));
    let [approved, denied] = answer_at_once([&one, &other], &url, ["approve", "deny"]);
    assert!([303, 409].contains(&approved.status) && denied.status == 303, "{approved:?} {denied:?}");
    assert!(one.page(&url).contains("denied"));
    assert_eq!((stage.post(&call).status, stage.upstream.seen(path).len()), (403, 0));
}

#[test]
fn an_approval_by_a_wrong_clock_runs_nothing() {
    let (stage, _) = waiting_stage("/text/console-clock");
    let right = Browser::open_link(&stage, "approve");
    for days in [3, -3] {
        let path = format!("/text/console-clock{days}");
        let call = post(&stage, &path);
        let id = asked(&stage, &call);
        let wrong = Timestamp::now() + SignedDuration::from_hours(24 * days);
        let person = open_beside(&stage, &ManualClock::starting_at(wrong));
        assert!(person.page(&approval_path(&id)).contains("waiting"), "{days}");
        assert_eq!(person.send(&approval_path(&id), "decision=approve").status, 303, "{days}");
        let again = asked(&stage, &call);
        assert_ne!(again, id, "{days}: by the clock of the caller, the approval has ended");
        assert!(stage.upstream.seen(&path).is_empty(), "{days}");
        assert_eq!(right.send(&approval_path(&again), "decision=approve").status, 303, "{days}");
        assert_eq!((stage.post(&call).status, stage.upstream.seen(&path).len()), (200, 1), "{days}");
    }
}

/// Sends a request over TLS. `header` is a line.
fn get_over_tls(stage: &Stage, config: &Arc<ClientConfig>, path: &str, header: &str) -> Answer {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(stage.address).unwrap());
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n{header}\r\nconnection: close\r\n\r\n")
        .unwrap();
    read(stream)
}

#[test]
fn pages_and_sessions_work_over_tls() {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let options = ["--token-file", "token", "--console", "--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    let stage = Stage::prepared(&options, "", |home| {
        for (name, text) in [("cert.pem", own.cert.pem()), ("key.pem", own.signing_key.serialize_pem())] {
            let path = home.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
    });
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let get = |path: &str, header: &str| get_over_tls(&stage, &config, path, header);

    let mut plain = Vec::new();
    // The server may end a connection without TLS by a reset.
    let _ = stage.begin_plain("GET", "/console", &[], b"").read_to_end(&mut plain);
    assert!(!plain.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&plain));
    let opened = get(&link(&stage, "open"), "accept: */*");
    let set = opened.header("set-cookie").unwrap_or_else(|| panic!("{opened:?}"));
    for part in ["__Secure-cofferdam-console=", "; Secure", "; HttpOnly", "; SameSite=Strict"] {
        assert!(set.contains(part), "{set}");
    }
    let cookie = cookie(&opened);
    for path in LISTS {
        let answer = get(path, &cookie);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        check_page(&stage, &answer);
    }
    for header in ["accept: */*", &cookie.replace("__Secure-", "")] {
        let answer = get("/console", header);
        assert_eq!(answer.status, 401, "{header}: {answer:?}");
        check_page(&stage, &answer);
    }
    assert_eq!(get("/v1/connectors", &cookie).status, 401);
    assert_eq!(get("/v1/connectors", &format!("authorization: Bearer {TOKEN}")).status, 200);
}
