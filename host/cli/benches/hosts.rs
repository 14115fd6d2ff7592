//! Recorded calls a second of 1, 2 and 4 hosts on one PostgreSQL, with guests that wait 20 ms on their upstream; and the
//! time from the submission of a job to its request.
//!
//! Each host is a `cofferdam serve` with a home of its own. Its clients are connections of the HTTP API that stay open,
//! each with one call at a time, so that a host whose log costs nothing makes `CLIENTS / 20 ms` calls a second. The
//! processors are those of the whole machine: hosts, PostgreSQL, the upstream and the clients share them, and the
//! table tells how busy they were.
//!
//! `COFFERDAM_SERVICES=DIR cargo bench --bench hosts`
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam::Compiler;
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::process::processor_time_of;
use cofferdam_test_support::services::{Nats, Postgres, Tools};
use cofferdam_test_support::{Home, Signer, Upstream};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The time that the upstream takes.
const WAIT: Duration = Duration::from_millis(20);

/// The connections to each host, each with one call at a time.
const CLIENTS: [usize; 3] = [4, 16, 64];

const HOSTS: [usize; 3] = [1, 2, 4];

/// The jobs, and those of them that are not measured.
const JOBS: usize = 220;
const WARM: usize = 20;

/// The time of one measurement.
const ROUND: Duration = Duration::from_secs(5);

/// The calls of one measurement.
#[derive(Default)]
struct Measured {
    each: Vec<Duration>,
}

/// Starts a process in this home, and returns its first line.
async fn process(home: &Path, args: &[&str]) -> (String, Child) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    command.args(args).args(["--format", "json"]);
    command.env("COFFERDAM_HOME", home).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (lines.next_line().await.unwrap().unwrap(), child)
}

/// Starts a host in this home, and returns its address.
async fn host(home: &Path) -> (Arc<str>, Child) {
    let args = ["serve", "--listen", "127.0.0.1:0", "--concurrency", "256"];
    let (ready, child) = process(home, &args).await;
    let address = ready.split("http://").nth(1).unwrap();
    (address.split(['"', '/']).next().unwrap().into(), child)
}

/// Makes calls over one connection until `until`.
async fn client(address: Arc<str>, body: Arc<str>, until: Instant) -> Vec<Duration> {
    let mut stream = connected(&address).await;
    let request = request("/v1/calls", &body);
    let mut each = Vec::new();
    while Instant::now() < until {
        let start = Instant::now();
        stream.write_all(request.as_bytes()).await.unwrap();
        answered(&mut stream).await;
        each.push(start.elapsed());
    }
    each
}

async fn connected(address: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::new(stream)
}

fn request(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n\
         {body}"
    )
}

/// Reads an answer, which has to be a success.
async fn answered(stream: &mut BufReader<TcpStream>) {
    let (mut length, mut line, mut status) = (0, String::new(), String::new());
    loop {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        if line == "\r\n" {
            break;
        }
        if line.starts_with("HTTP/1.1") {
            status.clone_from(&line);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    assert!(status.starts_with("HTTP/1.1 20"), "{status}: {}", String::from_utf8_lossy(&body));
}

/// Returns the time that the processors worked and the time that they could have worked, in ticks.
fn processors() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let ticks: Vec<u64> = stat
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .skip(1)
        .take(8)
        .map(|it| it.parse().unwrap())
        .collect();
    let all: u64 = ticks.iter().sum();
    (all - ticks[3] - ticks[4], all)
}

async fn measure(addresses: &[Arc<str>], body: &Arc<str>, clients: usize) -> Measured {
    let (mut all, until) = (JoinSet::new(), Instant::now() + ROUND);
    for address in addresses {
        for _ in 0..clients {
            all.spawn(client(Arc::clone(address), Arc::clone(body), until));
        }
    }
    Measured { each: all.join_all().await.concat() }
}

/// Submits one job after the other, and prints the times until each is accepted and until its request is there.
async fn jobs(home: &Path, tools: &Tools, arrivals: &TcpListener) {
    let nats = Nats::start(tools);
    let config = home.join("config.toml");
    let with_queue =
        format!("{}nats = \"nats://{}\"\n", fs::read_to_string(&config).unwrap(), nats.address());
    fs::write(&config, with_queue).unwrap();
    let (address, _host) = host(home).await;
    let (_, _worker) = process(home, &["worker", "--concurrency", "8"]).await;
    let url = format!("http://localhost:{}/", arrivals.local_addr().unwrap().port());
    let call = json!({"connector": "github://cofferdam/probe", "op": "fetch", "args": {"url": url}});
    let request = request("/v1/jobs", &json!({"call": call}).to_string());
    let mut stream = connected(&address).await;
    let (mut accepted, mut started) = (Vec::new(), Vec::new());
    for job in 0..JOBS {
        let begun = Instant::now();
        stream.write_all(request.as_bytes()).await.unwrap();
        let (arrival, ()) = tokio::join!(
            async {
                let arrivals = arrivals.try_clone().unwrap();
                tokio::task::spawn_blocking(move || arrival(&arrivals)).await.unwrap()
            },
            async {
                answered(&mut stream).await;
                accepted.push(begun.elapsed());
            }
        );
        started.push(arrival - begun);
        if job < WARM {
            (accepted, started) = (Vec::new(), Vec::new());
        }
        tokio::time::sleep(WAIT).await;
    }
    for (name, mut times) in [("accepted", accepted), ("started", started)] {
        times.sort_unstable();
        let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3;
        println!("a job is {name} after p50 {:.1} ms, p99 {:.1} ms", at(50), at(99));
    }
}

/// Waits for a request, answers it, and returns when it came.
fn arrival(listener: &TcpListener) -> Instant {
    use std::io::{Read as _, Write as _};
    let (mut stream, _) = listener.accept().unwrap();
    let _ = stream.read(&mut [0; 4096]).unwrap();
    let at = Instant::now();
    stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok").unwrap();
    at
}

fn main() {
    let tools = Tools::find().unwrap();
    let (runtime, upstream, database) = (Runtime::new().unwrap(), Upstream::start(), Postgres::start(&tools));
    let (home, signer) =
        (Home::with_compiler(Compiler::child(env!("CARGO_BIN_EXE_cofferdam"))), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let arrivals = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let arrivals_at = format!("localhost:{}", arrivals.local_addr().unwrap().port());
    let grants = [upstream.grant(), format!("http://{arrivals_at}")];
    runtime.block_on(home.install(&guest_package("probe", &grants), &signer)).unwrap();
    let config = format!(
        "[network]\nallow_private = [\"{}\", \"{arrivals_at}\"]\n[audit]\nurl = \"{}\"\n",
        upstream.host_port(),
        database.database()
    );
    fs::write(home.path().join("config.toml"), config).unwrap();
    let url = upstream.url(&format!("/slow/{}", WAIT.as_millis()));
    let body: Arc<str> =
        json!({"connector": "github://cofferdam/probe", "op": "fetch", "args": {"url": url}})
            .to_string()
            .into();
    // Makes the tables, and the key that all hosts of the cluster share.
    let mut first = std::process::Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    assert!(first.args(["audit", "list"]).env("COFFERDAM_HOME", home.path()).status().unwrap().success());
    let homes: Vec<_> = (0..HOSTS[HOSTS.len() - 1]).map(|host| copied(home.path(), host)).collect();
    println!(
        "hosts  clients each  calls/s  of the linear  p50 ms  p99 ms  processors busy  us a call: hosts  PostgreSQL"
    );
    runtime.block_on(async {
        let mut hosts = Vec::new();
        for home in &homes {
            hosts.push(host(home.path()).await);
        }
        let addresses: Vec<_> = hosts.iter().map(|(address, _)| Arc::clone(address)).collect();
        // Compiles, connects, and makes the first partitions.
        measure(&addresses, &body, 2).await;
        for clients in CLIENTS {
            let mut alone = 0.0;
            for count in HOSTS {
                let spent = || {
                    let hosts = hosts.iter().filter_map(|(_, host)| host.id()).map(processor_time_of).sum();
                    [hosts, database.processor_time()]
                };
                let (before, spent_before) = (processors(), spent());
                let Measured { mut each } = measure(&addresses[..count], &body, clients).await;
                let (after, spent_after) = (processors(), spent());
                let cost: [f64; 2] = std::array::from_fn(|part| {
                    let time: Duration = spent_after[part] - spent_before[part];
                    time.as_secs_f64() * 1e6 / each.len() as f64
                });
                each.sort_unstable();
                let at = |share: usize| each[(each.len() - 1) * share / 100].as_secs_f64() * 1e3;
                let rate = each.len() as f64 / ROUND.as_secs_f64();
                if count == 1 {
                    alone = rate;
                }
                let linear = rate / (alone * count as f64);
                let busy = (after.0 - before.0) as f64 / (after.1 - before.1) as f64;
                println!(
                    "{count:>5}  {clients:>12}  {rate:>7.0}  {:>11.0} %  {:>6.1}  {:>6.1}  {:>13.0} %  {:>16.0}  {:>10.0}",
                    linear * 100.0,
                    at(50),
                    at(99),
                    busy * 100.0,
                    cost[0],
                    cost[1],
                );
            }
        }
        drop(hosts);
        jobs(homes[0].path(), &tools, &arrivals).await;
    });
}

/// Copies a home, for the host with this number.
fn copied(home: &Path, host: usize) -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("cofferdam-host-").tempdir().unwrap();
    let done =
        std::process::Command::new("cp").arg("-a").arg(home.join(".")).arg(dir.path()).status().unwrap();
    assert!(done.success());
    let config = dir.path().join("config.toml");
    let named = format!("{}[cluster]\nhost = \"host-{host}\"\n", fs::read_to_string(&config).unwrap());
    fs::write(config, named).unwrap();
    dir
}
