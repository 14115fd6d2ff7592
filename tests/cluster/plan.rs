//! The plan of a run: the seed decides its operations, their keys, and the faults with their order.

use cofferdam_history::{PlannedKey, PlannedStep};
use fastrand::Rng;

/// The size of a run, and its seed.
#[derive(Debug, Clone)]
pub(super) struct Size {
    pub(super) seed: u64,
    pub(super) calls: usize,
    pub(super) actions: usize,
    pub(super) faults: usize,
    /// Clients that send requests at once.
    pub(super) clients: usize,
}

impl Size {
    /// This size, unless the environment has another: `COFFERDAM_CLUSTER_CALLS` and so on.
    pub(super) fn or_environment(self) -> Self {
        let number = |name: &str, default: u64| {
            let text = std::env::var(format!("COFFERDAM_CLUSTER_{name}")).ok();
            text.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is {text}")))
        };
        let count = |name: &str, default: usize| usize::try_from(number(name, default as u64)).unwrap();
        Self {
            seed: number("SEED", self.seed),
            calls: count("CALLS", self.calls),
            actions: count("ACTIONS", self.actions),
            faults: count("FAULTS", self.faults),
            clients: count("CLIENTS", self.clients),
        }
    }
}

/// An operation that a client does under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// One call: of `order` if it is repeatable, else of `order_once`.
    Call { repeatable: bool },
    /// The action of three steps.
    Action,
}

/// The way to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// `POST /v1/calls`, or `POST /v1/actions/NAME/run`.
    Direct,
    /// `POST /v1/jobs`.
    Job,
    /// Both at the same moment.
    Both,
}

/// One operation, and the behaviour of its client.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) key: String,
    pub(super) work: Work,
    pub(super) way: Way,
    /// The seed of the client's choices: hosts and pauses.
    pub(super) seed: u64,
    /// A second client sends the same at the same moment to another host.
    pub(super) is_doubled: bool,
    /// After the outcome, another host is asked again.
    pub(super) is_repeated: bool,
    /// The client disconnects after so many milliseconds, the first time.
    pub(super) patience_ms: Option<u64>,
}

/// The steps of the action: its id, and whether it may be repeated.
pub(super) const STEPS: [(&str, bool); 3] = [("note", true), ("pay", false), ("receipt", true)];

/// A fault. `after_ms` is the pause until the process is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// `kill -9` of a host.
    KillHost { host: usize, after_ms: u64 },
    /// SIGTERM to a host, which is started again when it has ended.
    StopHost { host: usize },
    /// SIGSTOP to a host, and SIGCONT later.
    PauseHost { host: usize, for_ms: u64 },
    /// `kill -9` of a worker.
    KillWorker { worker: usize, after_ms: u64 },
    /// PostgreSQL ends its connections without a shutdown, as in a crash, and starts again.
    RestartDatabase { is_immediate: bool },
    /// `kill -9` of NATS.
    KillNats { after_ms: u64 },
    /// The proxy resets one of its connections: the `choice`-th of those that are open.
    CutDatabase { choice: usize },
    /// The same, of NATS.
    CutNats { choice: usize },
}

/// The parts of a cluster that faults can hit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    pub(super) hosts: usize,
    pub(super) workers: usize,
    pub(super) has_database: bool,
    pub(super) has_nats: bool,
}

/// What a run does.
pub(super) struct Plan {
    pub(super) operations: Vec<Operation>,
    pub(super) faults: Vec<Fault>,
}

impl Plan {
    pub(super) fn new(size: &Size, parts: Parts) -> Self {
        let mut rng = Rng::with_seed(size.seed);
        let mut work = vec![Work::Action; size.actions];
        work.extend((0..size.calls).map(|n| Work::Call { repeatable: n % 5 < 3 }));
        rng.shuffle(&mut work);
        let operations = work.into_iter().enumerate();
        let operations =
            operations.map(|(n, work)| operation(n, work, parts.workers > 0, &mut rng)).collect();
        let faults = (0..size.faults).map(|_| fault(parts, &mut rng)).collect();
        Self { operations, faults }
    }

    /// The plan, as the checker reads it.
    pub(super) fn keys(&self) -> Vec<PlannedKey> {
        let steps = |work: Work| match work {
            Work::Call { repeatable } => vec![PlannedStep { id: String::new(), repeatable }],
            Work::Action => STEPS.map(|(id, repeatable)| PlannedStep { id: id.into(), repeatable }).to_vec(),
        };
        let key =
            |operation: &Operation| PlannedKey { key: operation.key.clone(), steps: steps(operation.work) };
        self.operations.iter().map(key).collect()
    }
}

fn operation(n: usize, work: Work, has_workers: bool, rng: &mut Rng) -> Operation {
    let letter = if work == Work::Action { 'a' } else { 'c' };
    let way = match rng.u8(0..10) {
        0..3 if has_workers => Way::Job,
        3 if has_workers && rng.u8(0..4) == 0 => Way::Both,
        _ => Way::Direct,
    };
    Operation {
        key: format!("{letter}-{n}"),
        work,
        way,
        seed: rng.u64(..),
        is_doubled: rng.u8(0..100) < 5,
        is_repeated: rng.u8(0..100) < 5,
        patience_ms: (rng.u8(0..100) < 1).then(|| rng.u64(1..30)),
    }
}

fn fault(parts: Parts, rng: &mut Rng) -> Fault {
    loop {
        let host = rng.usize(0..parts.hosts);
        let after_ms = rng.u64(0..400);
        return match rng.u8(0..100) {
            0..35 => Fault::KillHost { host, after_ms },
            35..40 => Fault::StopHost { host },
            40..46 => Fault::PauseHost { host, for_ms: rng.u64(50..1_500) },
            46..60 if parts.workers > 0 => {
                Fault::KillWorker { worker: rng.usize(0..parts.workers), after_ms }
            }
            60..67 if parts.has_database => Fault::RestartDatabase { is_immediate: rng.u8(0..3) > 0 },
            67..73 if parts.has_nats => Fault::KillNats { after_ms },
            73..92 if parts.has_database => Fault::CutDatabase { choice: rng.usize(..) },
            92..100 if parts.has_nats => Fault::CutNats { choice: rng.usize(..) },
            _ => continue,
        };
    }
}

#[test]
fn the_same_seed_makes_the_same_plan() {
    let size = Size { seed: 7, calls: 50, actions: 20, faults: 40, clients: 4 };
    let parts = Parts { hosts: 3, workers: 2, has_database: true, has_nats: true };
    let shown = |plan: &Plan| format!("{:?} {:?}", plan.operations, plan.faults);
    let plan = Plan::new(&size, parts);
    assert_eq!(shown(&plan), shown(&Plan::new(&size, parts)));
    assert_ne!(shown(&plan), shown(&Plan::new(&Size { seed: 8, ..size }, parts)));
    assert_eq!((plan.operations.len(), plan.faults.len(), plan.keys().len()), (70, 40, 70));
}
