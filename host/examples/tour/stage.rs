//! The requirements of the tour before the first call: packages, a key, a home that trusts it, two servers.

use cofferdam::{Compiler, ConnectorRef, Host};
use cofferdam_core::digest::Digest;
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, Upstream, connector, package};

use crate::show::Show;

/// The scenery.
pub(crate) struct Stage {
    pub(crate) host: Host,
    pub(crate) home: Home,
    /// The server that the connectors are granted.
    pub(crate) upstream: Upstream,
    /// A server that they are not granted.
    pub(crate) elsewhere: Upstream,
    /// A port that they are granted, and at which no server listens.
    pub(crate) closed_port: u16,
    /// The installed package of `hello`, byte for byte.
    pub(crate) hello: Vec<u8>,
}

/// The connectors, and whether they are granted the server.
const CONNECTORS: [(&str, bool); 3] = [("hello", false), ("github-issues", true), ("probe", true)];

/// A connector of the tour.
pub(crate) fn example(name: &str) -> ConnectorRef {
    connector(&format!("github://cofferdam/{name}@0.1.0"))
}

impl Stage {
    /// Builds, signs, trusts and installs.
    pub(crate) async fn set(show: &mut Show) -> Result<Self, String> {
        show.chapter("Before the first call");
        show.step("three connectors are built from source, in examples/");
        let built = tokio::task::spawn_blocking(|| {
            CONNECTORS
                .iter()
                .try_for_each(|(name, _)| cofferdam_test_support::guests::component(name).map(drop))
        });
        built.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        show.done("hello, github-issues and probe are WebAssembly components");

        let (upstream, elsewhere) = (Upstream::start(), Upstream::start());
        let closed_port = free_port();
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let home = Home::with_compiler(Compiler::child(program));
        let signer = Signer::new();
        show.step("a server starts on the loopback interface; it speaks the API of GitHub's issues");
        show.done(&format!("http://{} answers", upstream.host_port()));

        show.step("a home directory trusts one key, for github://cofferdam/* and nothing else");
        home.trust(&signer.public(), "github://cofferdam/*");
        show.done(&format!("{} is in keyring.toml", signer.public()));

        let host = home.builder().allow_private(upstream.host_port());
        let host = host.allow_private(format!("localhost:{closed_port}"));
        let host = host.allow_private(elsewhere.host_port()).build().map_err(|error| error.to_string())?;
        let mut hello = Vec::new();
        for (name, network) in CONNECTORS {
            show.step(&format!(
                "{name} is packed with its manifest, signed, verified, compiled and installed"
            ));
            let hosts = [upstream.grant(), format!("http://localhost:{closed_port}")];
            let bytes = package::guest_package(name, if network { &hosts } else { &[] });
            let signature = signer.sign(&bytes);
            let installed = host.install_accepted(bytes.clone(), Some(signature), Default::default()).await;
            installed.map_err(|error| error.to_string())?;
            show.done(&format!(
                "one file of {} KiB, sha256:{}…",
                bytes.len() / 1024,
                Digest::sha256(&bytes).short()
            ));
            if name == "hello" {
                hello = bytes;
            }
        }
        Ok(Self { host, home, upstream, elsewhere, closed_port, hello })
    }
}

/// A port at which no server listens, as far as one can know.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a loopback interface");
    listener.local_addr().expect("an address").port()
}
