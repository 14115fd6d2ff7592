//! Credentials, end to end: a real guest, a real server, and what goes over the wire between them.

mod approved_actions;
mod circuits;
mod grant_requests;
mod handles;
mod issuer;
mod kinds;
mod rotation;
mod tokens;
mod under_failure;

use std::sync::Arc;

use cofferdam::{Call, Error, Failure, Host, HostBuilder};
use cofferdam_egress::vault::Binding;
use cofferdam_test_support::{Home, InstallAccepted as _, MemoryVault, Signer, Upstream, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::{example, failed, run};

/// The name of the connector under test.
const PROBE: &str = "github://cofferdam/probe";

/// A host with the probe, whose manifest requires credentials; and the servers that it may reach.
struct Service {
    upstream: Upstream,
    other: Upstream,
    vault: Arc<MemoryVault>,
    home: Home,
    host: Host,
}

/// Everything that a test wants of its service.
struct Wants<'w> {
    /// Tables of the manifest; `HOST` and `OTHER` stand for the servers.
    credentials: &'w str,
    /// The bindings at the first server.
    bindings: &'w dyn Fn(&[String]) -> Vec<Binding>,
    /// Further settings of the host.
    more: &'w dyn Fn(HostBuilder) -> HostBuilder,
}

fn service(credentials: &str, bindings: impl Fn(&[String]) -> Vec<Binding>) -> Service {
    make(&Wants { credentials, bindings: &bindings, more: &|builder| builder })
}

fn make(wants: &Wants<'_>) -> Service {
    let (upstream, other) = (Upstream::start(), Upstream::start());
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://cofferdam/*");
    let hosts = [upstream.grant(), other.grant()];
    let manifest = package::with_hosts(&package::guest_manifest("probe"), &hosts);
    let [first, second] = &hosts;
    let credentials = wants.credentials.replace("HOST", first).replace("OTHER", second);
    let bytes = package::pack(&package::guest("probe"), &format!("{manifest}\n{credentials}"));
    let vault = MemoryVault::with((wants.bindings)(std::slice::from_ref(first)));
    let builder = home.builder().vault(vault.clone());
    let builder = builder.allow_private(upstream.host_port()).allow_private(other.host_port());
    let host = (wants.more)(builder).build().unwrap();
    run(host.install_accepted(bytes.clone(), Some(signer.sign(&bytes)), Default::default())).unwrap();
    Service { upstream, other, vault, home, host }
}

impl Service {
    fn call(&self, op: &str, args: Value) -> Result<Value, Error> {
        run(self.host.call(&example("probe"), op, args))
    }

    /// Gets `path` from the first server.
    fn get(&self, path: &str) -> Result<Value, Error> {
        self.call("fetch", json!({"url": self.upstream.url(path)}))
    }

    #[track_caller]
    fn got(&self, path: &str) {
        self.get(path).unwrap_or_else(|error| panic!("{}", serde_json::to_string_pretty(&error).unwrap()));
    }

    #[track_caller]
    fn fails(&self, path: &str) -> Failure {
        failed(self.get(path))
    }

    /// A header field of the only request whose path begins with this.
    #[track_caller]
    fn header(&self, path: &str, name: &str) -> Option<String> {
        let seen = self.upstream.seen(path);
        assert_eq!(seen.len(), 1, "{path}: {seen:?}");
        seen[0].header(name).map(str::to_owned)
    }

    /// Gets `path` with these identities.
    fn get_as(&self, path: &str, identities: &[(&str, &str)]) -> Result<Value, Error> {
        let call = Call::new(example("probe"), "fetch", json!({"url": self.upstream.url(path)}));
        let call =
            identities.iter().fold(call, |call, (service, identity)| call.identity(*service, *identity));
        run(self.host.run(call)).outcome
    }
}

/// A table of the manifest.
fn credential(kind: &str, service: &str, hosts: &str, more: &str) -> String {
    format!(
        "[[capabilities.credential]]\nkind = \"{kind}\"\nservice = \"{service}\"\nhosts = [{hosts}]\n{more}\n"
    )
}
