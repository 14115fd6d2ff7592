//! A model of the capacity of hosts on one database, a simulation that it is held against, and the table that
//! docs/explanation/scale.md has from it.
//!
//! The simulation knows nothing of the formulas: hosts whose calls arrive at random, group commits of which each host
//! has one under way, and a database with a number of processors and one queue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use cofferdam_test_support::golden::assert_committed_part;

/// The costs of a commit, in seconds.
struct Costs {
    /// Processor time of the database for each transaction.
    transaction: f64,
    /// Processor time of the database for each entry of it.
    entry: f64,
    /// The time of a commit in which no processor works: the sync of the write-ahead log, and the network.
    wait: f64,
}

/// The entries of a call without retries: its beginning and its end.
const ENTRIES: f64 = 2.0;

/// The most entries of a transaction.
const ENTRIES_AT_ONCE: f64 = 1_024.0;

/// The costs that `cargo bench --bench postgres` measures; docs/explanation/scale.md says how they follow from it.
const COSTS: Costs = Costs { transaction: 450e-6, entry: 25e-6, wait: 300e-6 };

/// The processor time of a host for each call, in seconds, as `cargo bench --bench hosts` measures it with 64 clients.
const HOST: f64 = 750e-6;

/// The bytes of the write-ahead log, and of tables and indexes, for each call with two sealed parts of 200 bytes.
const WRITTEN: f64 = 2_300.0;
const KEPT: f64 = 2_000.0;

/// The rows of a call: two entries, two sealed parts, its row and its key.
const ROWS: f64 = 6.0;

/// The connections of a host, without those of queries, of which it has four at most.
const CONNECTIONS: f64 = 3.0;

/// The share of the processors that is planned for. The rest is for bursts, and for hosts that are away.
const PLANNED: f64 = 0.6;

/// The processors of a host.
const HOST_PROCESSORS: f64 = 16.0;

/// A cluster: hosts, and one database.
#[derive(Clone, Copy)]
struct Cluster {
    hosts: u32,
    /// Processors of the database.
    processors: u32,
    /// Calls a second of all hosts.
    calls: f64,
}

/// The behaviour of a cluster.
struct Behaviour {
    /// Entries in a transaction.
    batch: f64,
    /// The share of the time in which the database's processors work.
    busy: f64,
    /// The share of the entries that were written.
    written: f64,
}

/// Returns the behaviour according to the model, as long as the database is not full.
///
/// A host has one transaction under way, and what arrives meanwhile is the next one. So a transaction has as many
/// entries as arrive in its time, and one at least: `n^2 = 1 + (a (t + n e + w))^2` with the entries `a` that a host makes
/// a second. If there are more hosts than processors, and those do not keep up with that, transactions wait for each other,
/// and grow until they do: `t / n + e` is then the time of the processors for each entry that arrives.
fn model(cluster: Cluster, costs: &Costs) -> Behaviour {
    let (entries, processors) = (ENTRIES * cluster.calls, f64::from(cluster.processors));
    let arriving = entries / f64::from(cluster.hosts);
    let mut batch = 1.0_f64;
    for _ in 0..500 {
        let time = costs.transaction + batch * costs.entry + costs.wait;
        batch += 0.2 * ((arriving * time).hypot(1.0).min(ENTRIES_AT_ONCE) - batch);
    }
    if cluster.hosts > cluster.processors {
        let room = processors / entries - costs.entry;
        let least = if room > 0.0 { costs.transaction / room } else { ENTRIES_AT_ONCE };
        batch = batch.max(least.min(ENTRIES_AT_ONCE));
    }
    let work = entries / batch * costs.transaction + entries * costs.entry;
    Behaviour { batch, busy: work / processors, written: 1.0 }
}

/// Returns the most calls a second that a database with so many processors records.
fn limit(processors: u32, costs: &Costs) -> f64 {
    f64::from(processors) / (ENTRIES * (costs.entry + costs.transaction / ENTRIES_AT_ONCE))
}

/// An event of the simulation, by its time in nanoseconds.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A call of this host writes its first or its last entry.
    Entry(usize),
    /// A processor is done with the transaction of this host.
    Worked(usize),
    /// The commit of this host's transaction is acknowledged.
    Acknowledged(usize),
}

/// Simulates the cluster for so many seconds.
fn simulate(cluster: Cluster, costs: &Costs, seconds: f64, seed: u64) -> Behaviour {
    let mut rng = fastrand::Rng::with_seed(seed);
    let hosts = cluster.hosts as usize;
    let rate = ENTRIES * cluster.calls / f64::from(cluster.hosts);
    let nanos = |seconds: f64| (seconds * 1e9) as u64;
    let mut gap = move || nanos(-(1.0 - rng.f64()).ln() / rate);
    let mut events = BinaryHeap::new();
    let (mut waiting, mut under_way) = (vec![0_u64; hosts], vec![0_u64; hosts]);
    let (mut queue, mut free) = (VecDeque::new(), cluster.processors);
    let (mut transactions, mut entries, mut arrived, mut worked) = (0_u64, 0_u64, 0_u64, 0.0);
    (0..hosts).for_each(|host| events.push(Reverse((gap(), Event::Entry(host)))));
    let end = nanos(seconds);
    while let Some(Reverse((now, event))) = events.pop() {
        if now > end {
            break;
        }
        let host = match event {
            Event::Entry(host) => {
                (waiting[host], arrived) = (waiting[host] + 1, arrived + 1);
                events.push(Reverse((now + gap(), Event::Entry(host))));
                host
            }
            Event::Worked(host) => {
                free += 1;
                events.push(Reverse((now + nanos(costs.wait), Event::Acknowledged(host))));
                host
            }
            Event::Acknowledged(host) => {
                under_way[host] = 0;
                host
            }
        };
        if under_way[host] == 0 && waiting[host] > 0 {
            let batch = waiting[host].min(ENTRIES_AT_ONCE as u64);
            waiting[host] -= batch;
            under_way[host] = batch;
            queue.push_back(host);
        }
        while free > 0 {
            let Some(host) = queue.pop_front() else { break };
            free -= 1;
            let work = costs.transaction + under_way[host] as f64 * costs.entry;
            (transactions, entries, worked) = (transactions + 1, entries + under_way[host], worked + work);
            events.push(Reverse((now + nanos(work), Event::Worked(host))));
        }
    }
    Behaviour {
        batch: entries as f64 / transactions as f64,
        busy: worked / seconds / f64::from(cluster.processors),
        written: entries as f64 / arrived as f64,
    }
}

/// A figure of the table.
type Figure<'f> = &'f dyn Fn(&Cluster, &Behaviour) -> f64;

/// Returns the table of what so many calls a second take.
fn table() -> String {
    let scales = [1e3, 1e5, 1e7];
    let clusters = scales.map(|calls| {
        let hosts = (calls * HOST / HOST_PROCESSORS / PLANNED).ceil().max(3.0);
        // None waits for another.
        Cluster { hosts: hosts as u32, processors: hosts as u32, calls }
    });
    let row = |name: &str, of: Figure<'_>| {
        let cells = clusters.map(|cluster| rounded(of(&cluster, &model(cluster, &COSTS))));
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    let mut table = format!("| calls a second | {} |\n|---|--:|--:|--:|\n", scales.map(rounded).join(" | "));
    let rows: [(&str, Figure<'_>); 9] = [
        ("hosts with 16 processors, at least 3", &|cluster, _| f64::from(cluster.hosts)),
        ("connections to the database", &|cluster, _| f64::from(cluster.hosts) * CONNECTIONS),
        ("entries in a transaction", &|_, behaviour| behaviour.batch),
        ("transactions a second", &|cluster, behaviour| ENTRIES * cluster.calls / behaviour.batch),
        ("processors of PostgreSQL", &|cluster, behaviour| {
            (behaviour.busy * f64::from(cluster.processors) / PLANNED).ceil()
        }),
        ("rows a second", &|cluster, _| ROWS * cluster.calls),
        ("write-ahead log, MB a second", &|cluster, _| WRITTEN * cluster.calls / 1e6),
        ("tables and indexes, GB a day", &|cluster, _| KEPT * cluster.calls * 86_400.0 / 1e9),
        ("rows of `entries` in the part of a month, millions", &|cluster, _| {
            ENTRIES * cluster.calls * 30.0 * 86_400.0 / 1e6
        }),
    ];
    rows.iter().for_each(|(name, of)| table.push_str(&row(name, *of)));
    table
}

/// Returns a number with two significant digits, and with commas.
fn rounded(number: f64) -> String {
    let digits = number.log10().floor() as i32 - 1;
    let unit = 10_f64.powi(digits);
    let whole = (number / unit).round() * unit;
    if whole < 10.0 {
        return format!("{whole:.1}").trim_end_matches(".0").to_owned();
    }
    let plain = format!("{whole:.0}");
    let groups: Vec<_> = plain.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[test]
fn the_table_of_capacity_is_the_models() {
    assert_committed_part("docs/explanation/scale.md", "capacity", &table());
}

#[test]
fn the_model_fits_the_simulation() {
    let some =
        [(1, 2, 0.02), (1, 2, 0.2), (4, 2, 0.5), (4, 8, 0.3), (16, 8, 0.5), (64, 16, 0.4), (64, 64, 0.2)];
    for (hosts, processors, share) in some {
        let calls = limit(processors, &COSTS) * share;
        let cluster = Cluster { hosts, processors, calls };
        let (told, seen) = (model(cluster, &COSTS), simulate(cluster, &COSTS, 5.0, 7));
        let near = |told: f64, seen: f64| (told / seen - 1.0).abs() < 0.1;
        assert!(near(told.batch, seen.batch), "{hosts} hosts: {} or {} entries", told.batch, seen.batch);
        assert!(near(told.busy, seen.busy), "{hosts} hosts: {} or {} busy", told.busy, seen.busy);
    }
}

#[test]
fn the_simulated_database_fills_at_the_limit() {
    for processors in [1, 4] {
        let calls = limit(processors, &COSTS);
        let written = |share| {
            let cluster = Cluster { hosts: 16, processors, calls: calls * share };
            simulate(cluster, &COSTS, 5.0, 11).written
        };
        assert!(written(0.9) > 0.98, "{processors} processors keep up with 90 % of the limit");
        assert!(written(1.15) < 0.9, "{processors} processors do not keep up with 115 % of it");
    }
}
