//! Lookups: one for each connection, answers that change, and names that stall.

use tokio::sync::Semaphore;

use super::*;

/// Answers each lookup with the next of its addresses, and repeats the last one.
struct Changing(Mutex<Vec<IpAddr>>, AtomicUsize);

impl Resolve for Changing {
    fn resolve<'a>(&'a self, _: &'a str) -> ResolvedAddresses<'a> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let mut addresses = self.0.lock().unwrap();
        let next = if addresses.len() > 1 { addresses.remove(0) } else { addresses[0] };
        Box::pin(std::future::ready(Ok(vec![next])))
    }
}

/// A client that looks a name up twice, once to check and once to connect, would reach the second address.
#[tokio::test]
async fn dns_rebinding_has_no_effect() {
    const NO_CONTENT: &[u8] = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    let good = Upstream::answering("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
    let evil = TcpListener::bind(("127.0.0.66", good.port)).await.unwrap();
    let evil_accepts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&evil_accepts);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = evil.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(NO_CONTENT).await;
        }
    });
    let addresses = ["127.0.0.1", "127.0.0.66"].map(|text| text.parse().unwrap()).to_vec();
    let resolver = Arc::new(Changing(Mutex::new(addresses), AtomicUsize::new(0)));
    let client = client(&good.uri(""), true, resolver.clone());
    assert_eq!(get(&client, &good.uri("/")).await.unwrap().status(), 204);
    assert_eq!(resolver.1.load(Ordering::SeqCst), 1, "one lookup for one connection");
    assert_eq!((good.accepts(), evil_accepts.load(Ordering::SeqCst)), (1, 0));
    // The next connection does another lookup, whose result is checked separately.
    let _ = get(&client, &good.uri("/")).await;
    assert_eq!((resolver.1.load(Ordering::SeqCst), evil_accepts.load(Ordering::SeqCst)), (2, 1));
}

#[tokio::test]
async fn a_later_private_lookup_is_refused() {
    // A public address by the policy, without a route from here.
    let upstream = Upstream::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    let policy = EgressPolicy::new(&[HostGrant::parse(&upstream.uri("")).unwrap()], &[]);
    let target = policy.decide(&upstream.uri("/").parse().unwrap(), None).unwrap();
    assert!(policy.admit_address(&target, "8.8.8.8".parse().unwrap()).is_ok());
    let resolver = Answers::of(&["127.0.0.1"]);
    let strict = client(&upstream.uri(""), false, resolver.clone());
    for lookups in 1..=2 {
        assert!(matches!(get(&strict, &upstream.uri("/")).await, Err(SendError::Refused(_))));
        assert_eq!(resolver.asked.lock().unwrap().len(), lookups, "no answer outlives its request");
    }
    assert_eq!(upstream.accepts(), 0);
}

/// A resolver with a thread pool like the machine's, on which one name stalls for ever.
struct Threads {
    free: Semaphore,
    asked: AtomicUsize,
}

impl Resolve for Threads {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolvedAddresses<'a> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let _thread = self.free.acquire().await.unwrap();
            if host != NAME {
                std::future::pending::<()>().await;
            }
            Ok(vec!["127.0.0.1".parse().unwrap()])
        })
    }
}

#[tokio::test]
async fn a_stalled_name_blocks_no_other_connector() {
    let upstream = Upstream::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    let threads = Arc::new(Threads { free: Semaphore::new(12), asked: AtomicUsize::new(0) });
    let stalls = client("http://stalls.test:9", true, threads.clone());
    let lives = client(&upstream.uri(""), true, threads.clone());
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let stalls = stalls.clone();
        waiting.spawn(async move {
            let request = Request::get("http://stalls.test:9/").body(Empty::<Bytes>::new()).unwrap();
            fault(send(&stalls, request, &quick()).await)
        });
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let request = Request::get(upstream.uri("/")).body(Empty::<Bytes>::new()).unwrap();
    assert_eq!(send(&lives, request, &quick()).await.unwrap().status(), 204);
    assert!(waiting.join_all().await.into_iter().all(|end| end == (RequestPhase::Dns, "timeout", false)));
    // A cancelled lookup has not ended: it cannot be interrupted and still counts towards this connector's
    // limit.
    let request = Request::get("http://stalls.test:9/").body(Empty::<Bytes>::new()).unwrap();
    assert_eq!(fault(send(&stalls, request, &quick()).await), (RequestPhase::Dns, "timeout", false));
    assert_eq!(threads.asked.load(Ordering::SeqCst), 8 + 1);
}
