//! A rate limit holds over all hosts of a cluster: the upstream measures it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Setup};
use super::has_services;
use super::plan::{Operation, Way, Work};
use super::proof::block_on;
use super::run::clients;

/// The limit, in requests a second.
const RATE: usize = 50;

const REQUESTS: usize = 400;

#[test]
fn a_rate_limit_holds_over_three_hosts() {
    if !has_services() {
        return;
    }
    let config = format!("[rate_limit]\nrequests = {RATE}\nper = \"1s\"\nburst = 1\n");
    let setup = Setup { has_database: true, config, ..Setup::default() };
    let begun = Instant::now();
    let (mut times, errors) = block_on(async {
        let cluster = Cluster::start("rate", None, begun, &setup).await;
        let clients = clients(begun, &cluster.hosts, &cluster.upstream);
        let mut tasks = tokio::task::JoinSet::new();
        // Many clients, so that every host always has requests that wait for their turn.
        for client in 0..24 {
            let clients = Arc::clone(&clients);
            tasks.spawn(async move {
                for n in (client..REQUESTS).step_by(24) {
                    clients.does(&operation(n)).await;
                }
            });
        }
        tasks.join_all().await;
        let times: Vec<_> = cluster.upstream.effects().iter().map(|effect| effect.at).collect();
        let exchanges = clients.exchanges.lock().unwrap();
        let by_host = |host: usize| exchanges.iter().filter(|exchange| exchange.host == host).count();
        assert!((0..cluster.hosts.len()).all(|host| by_host(host) > REQUESTS / 6), "a host was left out");
        (times, exchanges.len() - REQUESTS)
    });
    assert_eq!((times.len(), errors), (REQUESTS, 0), "each call is one request");
    times.sort_unstable();
    let time = Duration::from_micros(times[REQUESTS - 1] - times[0]);
    let least = Duration::from_secs_f64((REQUESTS - 1) as f64 / RATE as f64);
    // No host sends early. What arrives late may arrive together with what comes after it.
    assert!(time >= least.mul_f64(0.95), "{REQUESTS} requests took {time:?}, and must take {least:?}");
    assert!(time < least * 3, "{REQUESTS} requests took {time:?}: less than a third of the limit is used");
    let most = (0..times.len())
        .map(|first| times[first..].iter().take_while(|at| **at < times[first] + 2_000_000).count());
    let most = most.max().unwrap();
    assert!(most <= RATE * 2 + RATE / 2, "{most} requests within two seconds");
}

fn operation(n: usize) -> Operation {
    Operation {
        key: format!("rate-{n}"),
        work: Work::Call { repeatable: true },
        way: Way::Direct,
        seed: n as u64,
        is_doubled: false,
        is_repeated: false,
        patience_ms: None,
    }
}
