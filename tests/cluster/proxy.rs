//! A TCP proxy that can cut single connections.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// The proxy; it runs on the runtime that it was started on.
#[derive(Clone)]
pub(super) struct CuttingProxy {
    port: u16,
    open: Arc<Mutex<Open>>,
}

/// The open connections, by their number.
#[derive(Default)]
struct Open {
    number: u64,
    connections: BTreeMap<u64, oneshot::Sender<()>>,
}

impl CuttingProxy {
    /// A proxy to this port of the loopback interface.
    pub(super) async fn start(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Self { port, open: Arc::default() };
        let open = Arc::clone(&proxy.open);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let open = Arc::clone(&open);
                tokio::spawn(async move {
                    let (cut, is_cut) = oneshot::channel();
                    let number = {
                        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
                        open.number += 1;
                        let number = open.number;
                        open.connections.insert(number, cut);
                        number
                    };
                    drop(pass((Ipv4Addr::LOCALHOST, to).into(), near, is_cut).await);
                    open.lock().unwrap_or_else(PoisonError::into_inner).connections.remove(&number);
                });
            }
        });
        proxy
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Resets the `choice`-th of the open connections, counted around; returns whether there was one.
    pub(super) fn cut(&self, choice: usize) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.connections.len();
        let number = (count > 0).then(|| open.connections.keys().nth(choice % count).copied()).flatten();
        number.and_then(|number| open.connections.remove(&number)).is_some_and(|cut| cut.send(()).is_ok())
    }
}

/// Passes bytes in both directions until the connection ends or is cut. Then both ends are reset.
async fn pass(to: SocketAddr, mut near: TcpStream, is_cut: oneshot::Receiver<()>) -> std::io::Result<()> {
    let mut far = TcpStream::connect(to).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    tokio::select! {
        passed = tokio::io::copy_bidirectional(&mut near, &mut far) => passed.map(drop),
        _ = is_cut => {
            near.set_zero_linger()?;
            far.set_zero_linger()
        }
    }
}
