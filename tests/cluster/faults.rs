//! Injects the faults of a plan, each when so many operations are over.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::client::Clients;
use super::fleet::Member;
use super::plan::Fault;
use super::proxy::CuttingProxy;

/// What faults hit.
pub(super) struct Targets {
    pub(super) hosts: Vec<Arc<Member>>,
    pub(super) workers: Vec<Arc<Member>>,
    pub(super) database: Option<(Arc<dyn Restarts>, CuttingProxy)>,
    pub(super) nats: Option<(Arc<dyn Restarts>, CuttingProxy)>,
    /// A process is hit by one fault at a time.
    busy: Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

/// A server that can be ended and started again, on the same port and with the same data.
pub(super) trait Restarts: Send + Sync {
    /// Ends it, without a shutdown if `is_immediate`, and starts it after the pause.
    fn restart(&self, is_immediate: bool, after: Duration);
}

impl Targets {
    pub(super) fn new(hosts: Vec<Arc<Member>>, workers: Vec<Arc<Member>>) -> Self {
        Self { hosts, workers, database: None, nats: None, busy: Mutex::default() }
    }

    /// Injects the faults: the n-th when its share of the operations is over. Returns the number of those that hit.
    pub(super) async fn inject(&self, faults: &[Fault], clients: &Clients, operations: usize) -> usize {
        let mut hits = 0;
        for (n, fault) in faults.iter().enumerate() {
            let due = operations * (n + 1) / (faults.len() + 1);
            let begun = Instant::now();
            // A cluster that is too broken to end an operation gets the next fault all the same.
            while clients.done.load(Ordering::SeqCst) < due && begun.elapsed() < Duration::from_secs(15) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            hits += usize::from(self.hit(*fault).await);
        }
        let busy = std::mem::take(&mut *self.busy.lock().unwrap());
        for task in busy {
            task.await.unwrap();
        }
        hits
    }

    async fn hit(&self, fault: Fault) -> bool {
        match fault {
            Fault::KillHost { host, after_ms } => self.restarts(&self.hosts[host], after_ms, Member::kill),
            Fault::StopHost { host } => self.restarts(&self.hosts[host], 0, Member::stop),
            Fault::KillWorker { worker, after_ms } => {
                self.restarts(&self.workers[worker], after_ms, Member::kill);
            }
            Fault::PauseHost { host, for_ms } => {
                let host = Arc::clone(&self.hosts[host]);
                self.begins(move || host.pause(Duration::from_millis(for_ms)));
            }
            Fault::RestartDatabase { is_immediate } => {
                let Some((server, _)) = &self.database else { return false };
                let server = Arc::clone(server);
                let restart = move || server.restart(is_immediate, Duration::ZERO);
                tokio::task::spawn_blocking(restart).await.unwrap();
            }
            Fault::KillNats { after_ms } => {
                let Some((server, _)) = &self.nats else { return false };
                let server = Arc::clone(server);
                let restart = move || server.restart(true, Duration::from_millis(after_ms));
                tokio::task::spawn_blocking(restart).await.unwrap();
            }
            Fault::CutDatabase { choice } => {
                return self.database.as_ref().is_some_and(|(_, proxy)| proxy.cut(choice));
            }
            Fault::CutNats { choice } => {
                return self.nats.as_ref().is_some_and(|(_, proxy)| proxy.cut(choice));
            }
        }
        true
    }

    /// Ends a process and starts it again after the pause. Other faults go on meanwhile.
    fn restarts(&self, member: &Arc<Member>, after_ms: u64, end: fn(&Member)) {
        let member = Arc::clone(member);
        self.begins(move || member.restart(end, Duration::from_millis(after_ms)));
    }

    fn begins(&self, work: impl FnOnce() + Send + 'static) {
        let task = tokio::task::spawn_blocking(work);
        let mut busy = self.busy.lock().unwrap();
        busy.retain(|task| !task.is_finished());
        busy.push(task);
    }
}
