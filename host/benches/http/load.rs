//! Callers that ask again and again, in rounds that take turns, and what they measured.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

/// The duration of one row in one round.
const TURN: Duration = Duration::from_millis(150);

/// Rounds; medians are taken over them.
const ROUNDS: usize = 11;

type Asked = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One thing to ask for.
pub struct Row {
    name: &'static str,
    requests: u32,
    ask: Arc<dyn Fn() -> Asked + Send + Sync>,
}

/// The result of a row's rounds, in microseconds a request; medians.
#[derive(Clone, Copy)]
struct Measured {
    p50: f64,
    p99: f64,
    rate: f64,
}

impl Row {
    /// `ask` makes `requests` requests.
    pub fn new<C, F>(name: &'static str, requests: u32, ask: C) -> Self
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self { name, requests, ask: Arc::new(move || Box::pin(ask())) }
    }

    fn turn(&self, runtime: &Runtime, callers: usize) -> Measured {
        let (start, until) = (Instant::now(), Instant::now() + TURN);
        let callers: Vec<_> = (0..callers)
            .map(|_| {
                let ask = Arc::clone(&self.ask);
                runtime.spawn(async move {
                    let mut latencies = Vec::new();
                    while Instant::now() < until {
                        let start = Instant::now();
                        ask().await;
                        latencies.push(start.elapsed().as_secs_f64() * 1e6);
                    }
                    latencies
                })
            })
            .collect();
        let latencies: Vec<f64> =
            callers.into_iter().flat_map(|caller| runtime.block_on(caller).unwrap()).collect();
        let requests = f64::from(self.requests);
        let rate = latencies.len() as f64 * requests / start.elapsed().as_secs_f64();
        let at = |percent| quantile(latencies.clone(), percent) / requests;
        Measured { p50: at(50), p99: at(99), rate }
    }
}

/// Asks for all rows in turn, round after round; prints each row's medians. With words on the command line,
/// of the rows that have one of them in their name alone: for a profiler.
pub fn rounds(runtime: &Runtime, callers: usize, rows: Vec<Row>) {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |row: &Row| words.is_empty() || words.iter().any(|word| row.name.contains(word));
    let rows: Vec<_> = rows.into_iter().filter(wanted).collect();
    let mut all: Vec<Vec<Measured>> = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for (row, all) in rows.iter().zip(&mut all) {
            all.push(row.turn(runtime, callers));
        }
    }
    let medians = all.iter().map(|turns| {
        let of = |value: fn(&Measured) -> f64| quantile(turns.iter().map(value).collect(), 50);
        Measured { p50: of(|turn| turn.p50), p99: of(|turn| turn.p99), rate: of(|turn| turn.rate) }
    });
    let medians: Vec<_> = medians.collect();
    for (row, Measured { p50, p99, rate }) in rows.iter().zip(&medians) {
        let over = p50 / medians[0].p50;
        println!(
            "  {:<44} p50 {p50:>8.1} us  p99 {p99:>8.1} us  {rate:>7.0} /s  {over:>5.2} x the first",
            row.name
        );
    }
}

fn quantile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent / 100).min(values.len() - 1)]
}
