//! The stage: mocks of the services behind a front that has their names, and a host with the examples unchanged.

use std::sync::LazyLock;

use cofferdam::{Call, Error, Failure, Host};
use cofferdam_egress::vault::{Binding, SecretMaterial};
use cofferdam_test_support::services::{Description, Front, Moto, Route, Server, Tools, openapi};
use cofferdam_test_support::vault::{MemoryVault, binding, secret};
use cofferdam_test_support::{Home, InstallAccepted as _, ReceivedRequest, Signer, package};
use serde_json::Value;

use crate::COFFERDAM;
use crate::shared_host::{example, failed, run};

pub(crate) const SLACK: &str = "slack.com";
pub(crate) const STRIPE: &str = "api.stripe.com";
pub(crate) const GITHUB: &str = "api.github.com";
pub(crate) const S3: &str = "s3.us-east-1.amazonaws.com";

/// The token that is bound for the services that take one; no vendor's.
const TOKEN: &str = "token-of-the-stage-0123456789";

/// The host, and the servers that it takes for the services.
pub(crate) struct Stage {
    pub(crate) front: Front,
    pub(crate) moto: Moto,
    /// They end with the process.
    _mocks: [Server; 3],
    pub(crate) host: Host,
    _home: Home,
}

static STAGE: LazyLock<Result<Stage, String>> = LazyLock::new(|| {
    let tools = Tools::find()?;
    // A front that cannot be is known before the servers have taken their seconds to start.
    drop(Front::start([])?);
    let slack = openapi(&tools, Description::Slack);
    let stripe = openapi(&tools, Description::Stripe);
    let github = openapi(&tools, Description::Github);
    let moto = Moto::start(&tools);
    let front = Front::start([
        // Slack's description has the methods at the root, and wants the token in a header `token` too, which
        // Slack itself has never read.
        Route::new(SLACK, slack.address()).without_prefix("/api").with_token_in("token"),
        Route::new(STRIPE, stripe.address()),
        Route::new(GITHUB, github.address()),
        Route::new(S3, moto.server().address()),
    ])?;
    let base = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("services");
    std::fs::create_dir_all(&base).unwrap();
    let home = Home::shared(COFFERDAM, &base);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://cofferdam/*");
    let mut builder = home.builder().extra_root_pem(front.authority().pem()).resolver(front.resolver());
    builder = builder.vault(MemoryVault::with(bindings(&moto)));
    for name in [SLACK, STRIPE, GITHUB, S3] {
        builder = builder.allow_private(format!("{name}:443=127.0.0.0/8"));
    }
    let host = builder.build().unwrap();
    for name in ["slack", "stripe", "s3", "github-issues", "github-openapi"] {
        let bytes = package::guest_package(name, &[]);
        run(host.install_accepted(bytes.clone(), Some(signer.sign(&bytes)), Default::default())).unwrap();
    }
    Ok(Stage { front, moto, _mocks: [slack, stripe, github], host, _home: home })
});

/// The bindings: a token for each of three services, and for S3 the user's key, a wrong one, and an unknown
/// one.
fn bindings(moto: &Moto) -> Vec<Binding> {
    let bearer = |service: &str, connector: &str, host: &str| {
        let material = SecretMaterial::Bearer { token: secret(TOKEN) };
        let connector = format!("github://cofferdam/{connector}");
        binding(&format!("bearer/{service}/default"), material, &[&connector], &[format!("{host}:443")])
    };
    let key = |identity: &str, access_key_id: &str, key: &str| {
        let (access_key_id, secret_access_key) = (access_key_id.to_owned(), secret(key));
        let material =
            SecretMaterial::AwsSigv4 { access_key_id, secret_access_key, session_token: None, region: None };
        let name = format!("aws_sigv4/s3/{identity}");
        binding(&name, material, &["github://cofferdam/s3"], &[format!("{S3}:443")])
    };
    let wrong: String = moto.secret_key().chars().rev().collect();
    vec![
        bearer("slack", "slack", SLACK),
        bearer("stripe", "stripe", STRIPE),
        bearer("github", "github-issues", GITHUB),
        bearer("github-openapi", "github-openapi", GITHUB),
        key("default", moto.access_key(), moto.secret_key()),
        key("wrong", moto.access_key(), &wrong),
        key("nobodys", "AKIAIOSFODNN7EXAMPLE", moto.secret_key()),
    ]
}

/// The fixture; none, with a message, on a machine without it.
pub(crate) fn stage() -> Option<&'static Stage> {
    there(STAGE.as_ref().map_err(String::clone), "no example meets the mock of its service")
}

/// The installed servers; none, with a message, on a machine without them.
pub(crate) fn tools() -> Option<Tools> {
    there(Tools::find(), "nothing meets a real server")
}

fn there<T>(found: Result<T, String>, otherwise: &str) -> Option<T> {
    found.map_or_else(
        |why| {
            assert!(!Tools::required(), "COFFERDAM_REQUIRE_SERVICES is set, and {why}");
            crate::skipped(&format!("{otherwise}: {why}"));
            None
        },
        Some,
    )
}

impl Stage {
    /// Calls an operation of an example.
    pub(crate) fn call(&self, guest: &str, op: &str, args: Value) -> Result<Value, Error> {
        run(self.host.call(&example(guest), op, args))
    }

    /// Calls an operation that has to succeed.
    #[track_caller]
    pub(crate) fn value(&self, guest: &str, op: &str, args: Value) -> Value {
        let shown = args.to_string();
        self.call(guest, op, args).unwrap_or_else(|error| {
            panic!("{guest} {op} {shown}: {}", serde_json::to_string_pretty(&error).unwrap())
        })
    }

    /// Calls an operation that has to fail.
    #[track_caller]
    pub(crate) fn failure(&self, guest: &str, op: &str, args: Value) -> Failure {
        failed(self.call(guest, op, args))
    }

    /// The same under a key of the caller's.
    #[track_caller]
    pub(crate) fn under_key(&self, guest: &str, op: &str, args: Value, key: &str) -> Value {
        let call = Call::new(example(guest), op, args).idempotency_key(key);
        run(self.host.run(call))
            .outcome
            .unwrap_or_else(|error| panic!("{guest} {op}: {}", serde_json::to_string_pretty(&error).unwrap()))
    }

    /// The same with another identity than `default`.
    #[track_caller]
    pub(crate) fn failure_as(&self, identity: &str, guest: &str, op: &str, args: Value) -> Failure {
        failed(run(self.host.run(Call::new(example(guest), op, args).identity(guest, identity))).outcome)
    }
}

/// The host sent the bound token with all of these.
#[track_caller]
pub(crate) fn assert_token(seen: &[ReceivedRequest]) {
    assert!(!seen.is_empty());
    for request in seen {
        assert_eq!(request.header("authorization"), Some(&*format!("Bearer {TOKEN}")), "{}", request.path);
    }
}
