//! Packages on registries and web servers: real ones, and ones that lie.

mod hostile;
mod liar;
mod oras;
mod publishers;
mod real;
mod server;
mod sets;
mod trust;
mod web;

use std::fs;
use std::path::PathBuf;

use cofferdam_core::digest::Digest;
use cofferdam_test_support::package::{manifest, pack, quiet};
use cofferdam_test_support::{Cli, CommandResult, Home, Signer};

use crate::COFFERDAM;

/// The name of the connector that travels.
const NAME: &str = "github://acme/quiet";

/// A home that trusts a publisher, and the publisher's key.
struct Desk {
    home: Home,
    cli: Cli,
    signer: Signer,
}

impl Desk {
    fn new() -> Self {
        let (home, signer) = (Home::new(COFFERDAM), Signer::new());
        home.trust(&signer.public(), "github://acme/*");
        let cli = Cli::new(COFFERDAM, home.path());
        Self { home, cli, signer }
    }

    #[track_caller]
    fn run(&self, line: &str) -> CommandResult {
        self.cli.run(&line.split(' ').collect::<Vec<_>>())
    }

    /// Installs release 1.0.0, and accepts what it asks for. `line` has its reference and the options.
    #[track_caller]
    fn installs(&self, line: &str) -> CommandResult {
        self.run(&format!("install {line} --accept {}", digest(&release("1.0.0"))))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a signed package to `quiet-VERSION.wasm`, and returns its bytes.
    fn package(&self, version: &str) -> Vec<u8> {
        let bytes = release(version);
        self.signer.write(self.path(&format!("quiet-{version}.wasm")), &bytes);
        bytes
    }

    /// Has the commands of this home send these credentials to `registry`.
    fn log_in(&self, registry: &str, user_and_password: &str) {
        use base64::Engine as _;
        let auth = base64::engine::general_purpose::STANDARD.encode(user_and_password);
        let config = serde_json::json!({"auths": {registry: {"auth": auth}}});
        fs::create_dir_all(self.path(".docker")).unwrap();
        fs::write(self.path(".docker/config.json"), config.to_string()).unwrap();
    }

    /// Makes an empty directory.
    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.path(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[track_caller]
    fn assert_empty(&self, dir: &str) {
        let entries: Vec<_> =
            fs::read_dir(self.path(dir)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(entries.is_empty(), "{entries:?}");
    }
}

/// A package of one quiet operation.
fn release(version: &str) -> Vec<u8> {
    pack(&quiet(), &manifest(NAME, version))
}

/// The digest as registries write it.
fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Digest::sha256(bytes))
}
