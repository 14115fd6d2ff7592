//! The pages of the console over a log of a million calls, and the processor time that a live page costs while calls are
//! recorded.
//!
//! `cargo bench --bench console`; `COFFERDAM_BENCH_CALLS=20000` makes a smaller log. The log is filled each time, since
//! the pages show the last day, week or month.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cofferdam::Compiler;
use cofferdam_audit::{AuditLog as _, JournalLog, LogSettings};
use cofferdam_core::clock::SystemClock;
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::process::processor_time_of;
use cofferdam_test_support::{Home, Signer, traffic};
use jiff::Timestamp;
use serde_json::Value;

/// The number of loads of each page.
const RUNS: usize = 21;

const DAYS: u32 = 30;

/// The calls a second that are recorded while a page is live.
const RATE: u32 = 5_000;

/// The time of each measurement of a live page.
const ROUND: Duration = Duration::from_secs(60);

/// A console, and the session of a browser.
struct Console {
    child: Child,
    address: String,
    cookie: String,
}

impl Drop for Console {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Console {
    fn start(home: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
        command.args(["console", "--listen", "127.0.0.1:0", "--format", "json"]);
        let mut child = command.env("COFFERDAM_HOME", home).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let open = ready["open"].as_str().unwrap().strip_prefix("http://").unwrap();
        let (address, link) = open.split_once('/').unwrap();
        let mut console = Self { child, address: address.to_owned(), cookie: String::new() };
        let opened = console.get(&format!("/{link}"));
        let cookie = opened.split("set-cookie: ").nth(1).unwrap();
        console.cookie = format!("cookie: {}\r\n", cookie.split(';').next().unwrap());
        console
    }

    fn begin(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (address, cookie) = (&self.address, &self.cookie);
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\n{cookie}connection: close\r\n\r\n")
            .unwrap();
        stream
    }

    /// Returns the whole answer, with its head.
    fn get(&self, path: &str) -> String {
        let mut answer = String::new();
        self.begin(path).read_to_string(&mut answer).unwrap();
        answer
    }

    /// Returns the part of one processor, in percent, that the console uses while this work is done, and its result.
    fn cost(&self, work: impl FnOnce(Instant) -> u32) -> (f64, u32) {
        let before = processor_time_of(self.child.id());
        let loads = work(Instant::now() + ROUND);
        let used = processor_time_of(self.child.id()).saturating_sub(before);
        (used.as_secs_f64() / ROUND.as_secs_f64() * 100.0, loads)
    }

    /// Loads the page, and prints its time and its size.
    fn row(&self, page: &str) -> String {
        let mut answer = String::new();
        let mut times: Vec<Duration> = (0..RUNS)
            .map(|_| {
                let began = Instant::now();
                answer = self.get(page);
                began.elapsed()
            })
            .collect();
        assert!(answer.starts_with("HTTP/1.1 200"), "{page}: {answer}");
        // The first load pays for what later ones find in memory.
        let first = times[0];
        times.sort_unstable();
        let (median, slowest, bytes) = (times[RUNS / 2], times[RUNS - 1], answer.len());
        println!("| {page} | {first:.1?} | {median:.1?} | {slowest:.1?} | {bytes} |");
        answer
    }
}

/// Records calls at the rate until `stop`.
fn record(home: &Path, stop: &AtomicBool) -> u64 {
    // With a runtime, the process of the calls keeps its log as a host does.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let log = JournalLog::new(home, LogSettings::default(), Arc::new(SystemClock));
    let (mut calls, mut recorded) = (traffic::Calls::new(7), 0);
    let began = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let due = (began.elapsed().as_secs_f64() * f64::from(RATE)) as u64;
        while recorded < due {
            let (open, close) = calls.next(Timestamp::now());
            runtime.block_on(log.open(open)).unwrap();
            runtime.block_on(log.close(None, close)).unwrap();
            recorded += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    recorded
}

/// Follows the host as the script of the page does: loads the page after an event, and then waits two hundred times as long
/// as that took, but at most a minute. Returns the processor time of the console after the first load, and the number of
/// loads.
fn follow(console: &Console, page: &str) -> (f64, u32) {
    let events = console.get(page);
    let events = events.split("data-events=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let mut stream = console.begin(&events);
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (mut bytes, mut ready, mut is_behind, mut loads) = ([0; 4096], Instant::now(), false, 0);
    console.cost(|until| {
        while Instant::now() < until {
            is_behind |= stream.read(&mut bytes).is_ok_and(|read| read > 0);
            if is_behind && Instant::now() >= ready {
                let began = Instant::now();
                console.get(page);
                (is_behind, loads) = (false, loads + 1);
                ready = Instant::now() + (began.elapsed() * 200).min(Duration::from_secs(60));
            }
        }
        loads
    })
}

fn main() {
    let calls = std::env::var("COFFERDAM_BENCH_CALLS").ok().and_then(|calls| calls.parse().ok());
    let calls = calls.unwrap_or(1_000_000);
    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(home.install(&guest_package("hello", &[]), &signer)).unwrap();
    let began = Instant::now();
    traffic::fill(home.path(), calls, DAYS, Timestamp::now());
    println!("filled with {calls} calls in {:.1?}", began.elapsed());
    let console = Console::start(home.path());
    println!("| page | first | median | slowest | bytes |\n|---|---|---|---|---|");
    console.row("/console");
    console.row("/console/connectors/github/cofferdam/hello@0.1.0");
    let list = console.row("/console/calls");
    let call = list.split("href=\"/console/calls/").nth(1).unwrap().split('"').next().unwrap().to_owned();
    for page in ["calls?failed=true", "calls?connector=github%3A%2F%2Facme%2Fc00", "calls?actor=agent-1"] {
        console.row(&format!("/console/{page}"));
    }
    console.row(&format!("/console/calls/{call}"));
    for page in ["health", "health?range=week", "health?range=month", "network", "trust", "approvals"] {
        console.row(&format!("/console/{page}"));
    }

    let (stop, path) = (Arc::new(AtomicBool::new(false)), home.path().to_owned());
    let recorder = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || record(&path, &stop)
    });
    let began = Instant::now();
    println!("while calls are recorded, the console's part of one processor:");
    let (idle, _) = console.cost(|until| {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        0
    });
    println!("  no page is open            {idle:>6.2} %");
    for page in ["/console/calls", "/console/health", "/console/network"] {
        let (share, loads) = follow(&console, page);
        println!("  {page:<26} {share:>6.2} %, loaded {loads} times");
    }
    stop.store(true, Ordering::Relaxed);
    let recorded = recorder.join().unwrap();
    println!("  {:.0} calls a second were recorded", recorded as f64 / began.elapsed().as_secs_f64());
}
