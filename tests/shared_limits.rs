//! Hosts of one cluster as processes: a rate limit of an upstream and its circuit hold over all of them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam_test_support::services::Postgres;
use cofferdam_test_support::{Cli, Home, Serving, Signer, package};
use serde_json::json;

use crate::COFFERDAM;

const PROBE: &str = "github://cofferdam/probe";

/// The times at which an upstream got requests.
type Arrivals = Arc<Mutex<Vec<Instant>>>;

/// An upstream that answers each request with this status.
fn upstream(status: &'static str) -> (u16, Arrivals) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let arrivals = Arrivals::default();
    let seen = Arc::clone(&arrivals);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        seen.lock().unwrap().push(Instant::now());
                        head.clear();
                        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
                        stream.write_all(answer.as_bytes()).unwrap();
                    }
                }
            });
        }
    });
    (port, arrivals)
}

/// Three hosts of one cluster, which may call this port.
fn hosts(url: &str, port: u16, settings: &str) -> Vec<(Home, Serving)> {
    let signer = Signer::new();
    let at = format!("http://localhost:{port}");
    let start = |number: usize| {
        let home = Home::new(COFFERDAM);
        home.trust(&signer.public(), "github://cofferdam/*");
        let key = home.path().join("host.key");
        fs::write(&key, [7; 32]).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let config = format!(
            "[network]\nallow_private = [\"localhost:{port}\"]\n[retry]\nprofile = \"none\"\n\
             [audit]\nurl = \"{url}\"\n[cluster]\nhost = \"host-{number}\"\n{settings}"
        );
        fs::write(home.path().join("config.toml"), config).unwrap();
        let file = home.path().join("probe.wasm");
        signer.write(&file, &package::guest_package("probe", std::slice::from_ref(&at)));
        let cli = Cli::new(COFFERDAM, home.path());
        cli.install(&[file]).ok();
        let serving = Serving::start(&cli, &[]);
        (home, serving)
    };
    (0..3).map(start).collect()
}

#[test]
fn an_upstreams_limit_holds_over_three_hosts() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    // A busy machine may not reach the higher limit. It reaches the lower one, which three hosts with limits of their
    // own would exceed.
    for (requests, most_allowed, least) in [(5, 7, 20), (50, 55, 1)] {
        let (port, arrivals) = upstream("200 OK");
        let limit = format!("[rate_limit]\nrequests = {requests}\nper = \"1s\"\nburst = 1\n");
        let hosts = hosts(&postgres.database(), port, &limit);
        let args = json!({"url": format!("http://localhost:{port}/limited")});
        let end = Instant::now() + Duration::from_secs(6);
        std::thread::scope(|scope| {
            for number in 0..18 {
                let (serving, args) = (&hosts[number % 3].1, &args);
                scope.spawn(move || {
                    while Instant::now() < end {
                        let (status, answer) = serving.call_with(PROBE, "fetch", args);
                        assert_eq!(status, 200, "{answer}");
                    }
                });
            }
        });
        let mut arrivals = arrivals.lock().unwrap().clone();
        arrivals.sort_unstable();
        let in_a_second = |from: &Instant| {
            arrivals.iter().filter(|at| *at >= from && **at < *from + Duration::from_secs(1)).count()
        };
        let most = arrivals.iter().map(in_a_second).max().unwrap();
        // A request is sent at its time and arrives a little later, the one more so than the other.
        assert!(most <= most_allowed, "{most} arrived in a second, and {requests} are allowed");
        assert!(arrivals.len() >= least, "{} in six seconds: the limit is not used", arrivals.len());
    }
}

#[test]
fn one_hosts_failures_stop_all_hosts() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (port, arrivals) = upstream("503 Service Unavailable");
    let hosts = hosts(&postgres.database(), port, "[breaker]\npolicy = \"windowed\"\n");
    let args = json!({"url": format!("http://localhost:{port}/broken")});
    for _ in 0..3 {
        let _ = hosts[0].1.call_with(PROBE, "fetch", &args);
    }
    let sent = arrivals.lock().unwrap().len();
    assert_eq!(sent, 3, "three failures open the circuit");
    std::thread::sleep(Duration::from_secs(1));
    for (_, serving) in &hosts {
        let (_, answer) = serving.call_with(PROBE, "fetch", &args);
        assert!(answer.to_string().contains("circuit_open"), "{answer}");
    }
    assert_eq!(arrivals.lock().unwrap().len(), 3, "no host sent anything more");
    let status =
        Cli::new(COFFERDAM, hosts[2].0.path()).run(&["breaker", "status", "--format", "json"]).json();
    assert_eq!(status[0]["state"], "open", "{status}");
}
