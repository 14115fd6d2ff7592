//! scratch
use cofferdam::AuditId;
use cofferdam::audit::*;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
fn lines(seq: u32, n: u32) -> Vec<EventLine> {
    (seq..seq + n).map(|seq| EventLine { at: jiff::Timestamp::now(), seq, name: "attempt_ended", payload: json!({"connector":"github://acme/slack@1.0.0","attempt":1,"status":"value","class":null,"code":null,"usage":{"fuel":12345,"fuel_limit":30000000000u64,"memory_bytes":1114112,"memory_limit_bytes":67108864,"memory_grows":0,"wall_us":12,"wall_limit_ms":30000,"requests":0,"bytes_out":0,"bytes_in":0,"log_lines":0,"log_lines_dropped":0,"stdio_bytes":0,"stdio_bytes_dropped":0}}).as_object().unwrap().clone() }).collect()
}
async fn one(log: &SqliteLog, route: &Route) {
    let id = AuditId::mint();
    let now = jiff::Timestamp::now();
    let (reply, answer) = written();
    log.submit(Order::Open {
        call: Box::new(OpenCall {
            audit_id: id.clone(),
            at: now,
            route: route.clone(),
            actor: "host".into(),
            idempotent: true,
            key: None,
            resumes: None,
            entry: Entry::new(&id, &lines(1, 2)),
            request: None,
        }),
        reply,
    });
    answer.done().await.unwrap();
    let (reply, answer) = written();
    log.submit(Order::Close {
        open: None,
        call: Box::new(CloseCall {
            audit_id: id.clone(),
            at: now,
            duration_us: 10,
            attempts: 1,
            verdict: Verdict { status: CallStatus::Value, class: None, code: None },
            key: KeyEnd::Free,
            entry: Entry::new(&id, &lines(3, 2)),
            outcome: None,
        }),
        reply: Some(reply),
    });
    answer.done().await.unwrap();
}
fn main() {
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let id = AuditId::mint();
    let l = lines(1, 2);
    let t = Instant::now();
    for _ in 0..20000 {
        std::hint::black_box(Entry::new(&id, &l));
    }
    println!(
        "entry of 2 events: {:.2} us, {} bytes",
        t.elapsed().as_micros() as f64 / 20000.0,
        Entry::new(&id, &l).body().len()
    );
    let t = Instant::now();
    for _ in 0..20000 {
        std::hint::black_box(lines(1, 2));
    }
    println!("lines: {:.2} us", t.elapsed().as_micros() as f64 / 20000.0);
    for durability in [Durability::Process, Durability::Power] {
        for callers in [1usize, 8, 64] {
            let dir = tempfile::Builder::new()
                .prefix("zz")
                .tempdir_in(std::env::var("ZZ_DIR").unwrap_or("/work".into()))
                .unwrap();
            let log = Arc::new(SqliteLog::new(dir.path(), durability).unwrap());
            let route = Route {
                connector: "github://acme/slack@1.0.0".into(),
                op: "post".into(),
                action: None,
                step: None,
            };
            let span = Duration::from_secs(3);
            let start = Instant::now();
            let calls: u64 = rt.block_on(async {
                let tasks: Vec<_> = (0..callers)
                    .map(|_| {
                        let (log, route) = (log.clone(), route.clone());
                        tokio::spawn(async move {
                            let mut n = 0u64;
                            while start.elapsed() < span {
                                one(&log, &route).await;
                                n += 1;
                            }
                            n
                        })
                    })
                    .collect();
                let mut sum = 0;
                for t in tasks {
                    sum += t.await.unwrap();
                }
                sum
            });
            let us = start.elapsed().as_micros() as f64;
            let cpu = std::fs::read_to_string("/proc/self/stat").unwrap();
            drop(log);
            let size: u64 =
                std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
            println!(
                "{} {callers}: {:.0} calls/s, {:.1} us a call, {} bytes a call; cpu {:?}",
                durability.name(),
                calls as f64 / us * 1e6,
                us / calls as f64,
                size / calls,
                cpu.split(' ').skip(13).take(2).collect::<Vec<_>>()
            );
        }
    }
}
