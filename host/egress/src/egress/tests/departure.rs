//! The moment from which a request may have left, for requests that are cancelled.

use std::sync::atomic::AtomicBool;

use super::*;

/// Records the last notification of a request's observer.
#[derive(Clone, Default)]
struct Left(Arc<AtomicBool>);

impl Left {
    fn departure(&self) -> Option<Arc<dyn ObserveDeparture>> {
        Some(Arc::new(self.clone()))
    }

    fn so_far(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl ObserveDeparture for Left {
    fn may_depart(&self) -> bool {
        self.0.store(true, Ordering::SeqCst);
        true
    }

    fn not_sent(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Prevents every departure.
struct TooLate;

impl ObserveDeparture for TooLate {
    fn may_depart(&self) -> bool {
        false
    }

    fn not_sent(&self) {}
}

/// Sends a request and cancels it at `moment`. Returns whether it may have left.
async fn given_up(client: &EgressClient, uri: &str, moment: impl Future) -> bool {
    let left = Left::default();
    let request = Request::post(uri).body(Empty::<Bytes>::new()).unwrap();
    let target = client.policy().decide(request.uri(), None).unwrap();
    let (times, carries) = (EgressTimeouts::default(), Authorization::default());
    tokio::select! {
        biased;
        _ = moment => {}
        outcome = client.send(request, &target, &times, &carries, left.departure()) => panic!("{outcome:?}"),
    }
    left.so_far()
}

/// An upstream that reads the first bytes of a connection, reports that, and never answers.
async fn silent() -> (Upstream, mpsc::UnboundedReceiver<u8>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |_, mut stream| {
        let sender = sender.clone();
        async move {
            sender.send(stream.read_u8().await.unwrap()).unwrap();
            std::future::pending::<()>().await;
            drop(stream);
        }
    })
    .await;
    (upstream, receiver)
}

/// A resolver that reports each lookup and never answers.
struct Stalled(mpsc::UnboundedSender<()>);

impl Resolve for Stalled {
    fn resolve<'a>(&'a self, _: &'a str) -> ResolvedAddresses<'a> {
        let _ = self.0.send(());
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_request_given_up_in_its_lookup_has_not_left() {
    let (sender, mut asked) = mpsc::unbounded_channel();
    let client = client("http://service.test:80", true, Arc::new(Stalled(sender)));
    assert!(!given_up(&client, "http://service.test:80/", asked.recv()).await);
}

#[tokio::test]
async fn a_request_given_up_in_the_tls_hello_has_not_left() {
    let (upstream, mut read) = silent().await;
    let grant = format!("{NAME}:{}", upstream.port);
    let client = client(&grant, true, Answers::of(&["127.0.0.1"]));
    assert!(!given_up(&client, &format!("https://{grant}/"), read.recv()).await);
    assert_eq!(upstream.accepts(), 1, "the hello had been sent");
}

#[tokio::test]
async fn a_request_given_up_before_its_answer_may_have_left() {
    let (upstream, mut read) = silent().await;
    assert!(given_up(&upstream.client(), &upstream.uri("/"), read.recv()).await);
}

#[tokio::test]
async fn a_request_that_nothing_took_has_not_left() {
    let left = Left::default();
    let upstream = Upstream::start(|_, stream| async move { drop(stream) }).await;
    let (client, uri) = (upstream.client(), upstream.uri("/"));
    let target = client.policy().decide(&uri.parse().unwrap(), None).unwrap();
    let request = Request::post(uri).header("content-length", "x").body(Empty::<Bytes>::new()).unwrap();
    let (times, carries) = (EgressTimeouts::default(), Authorization::default());
    assert!(client.send(request, &target, &times, &carries, left.departure()).await.is_err());
    assert!(!left.so_far());
}

#[tokio::test]
async fn a_prevented_departure_sends_nothing() {
    let (upstream, mut read) = silent().await;
    let (client, uri) = (upstream.client(), upstream.uri("/"));
    let target = client.policy().decide(&uri.parse().unwrap(), None).unwrap();
    let request = Request::post(uri).body(Empty::<Bytes>::new()).unwrap();
    let (times, carries) = (EgressTimeouts::default(), Authorization::default());
    let outcome = client.send(request, &target, &times, &carries, Some(Arc::new(TooLate))).await;
    assert!(matches!(outcome, Err(SendError::Over)), "{outcome:?}");
    assert!(read.try_recv().is_err(), "a byte arrived");
}
