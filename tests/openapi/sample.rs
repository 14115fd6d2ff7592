//! A sample of the operations of public documents, compiled and called against mocks that serve the same documents and
//! check requests and responses by them.
#![allow(clippy::print_stdout, reason = "the sizes of a sample are for its reader")]

use std::fs;
use std::path::PathBuf;

use cofferdam_egress::vault::{Binding, SecretMaterial};
use cofferdam_test_support::services::{Front, Route, Server, Tools, described};
use cofferdam_test_support::vault::{MemoryVault, binding, secret};
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, connector};
use serde_json::Value;

use crate::COFFERDAM;
use crate::new::{Author, ok};
use crate::services::fixture::tools;
use crate::shared_host::run;

/// A service: its document, the name that requests are sent to, and the sample of its operations.
struct Sample {
    name: &'static str,
    file: &'static str,
    host: &'static str,
    /// The start of paths that the mock does not have.
    prefix: &'static str,
    options: &'static [&'static str],
    operations: &'static [&'static str],
}

const SAMPLES: [Sample; 5] = [
    Sample {
        name: "github-sample",
        file: "github.json",
        host: "api.github.com",
        prefix: "",
        options: &["--credential", "bearer"],
        operations: &[
            "issues/list-for-repo",
            "issues/get",
            "issues/create",
            "pulls/list",
            "repos/list-tags",
            "repos/list-branches",
            "reactions/list-for-issue",
            "git/get-ref",
            "git/create-blob",
            "gists/list",
            "licenses/get-all-commonly-used",
            "rate-limit/get",
            "repos/list-languages",
            "issues/add-labels",
            "issues/remove-label",
            "markdown/render",
        ],
    },
    Sample {
        name: "stripe-sample",
        file: "stripe.json",
        host: "api.stripe.com",
        prefix: "",
        options: &["--idempotency-header", "Idempotency-Key"],
        operations: &[
            "GetBalance",
            "GetCustomers",
            "PostCustomers",
            "GetCustomersCustomer",
            "DeleteCustomersCustomer",
            "GetProducts",
            "PostProducts",
            "GetPrices",
            "PostRefunds",
            "GetEvents",
            "GetPaymentIntents",
            "PostPaymentIntents",
            "GetCoupons",
            "PostCoupons",
        ],
    },
    Sample {
        name: "slack-sample",
        file: "slack.json",
        host: "slack.com",
        prefix: "/api",
        options: &[],
        operations: &[
            "api_test",
            "auth_test",
            "bots_info",
            "chat_postMessage",
            "chat_delete",
            "conversations_members",
            "conversations_info",
            "emoji_list",
            "reactions_add",
            "reminders_list",
            "team_info",
            "users_info",
        ],
    },
    Sample {
        name: "figma-sample",
        file: "figma.yaml",
        host: "api.figma.com",
        prefix: "",
        options: &[],
        operations: &[
            "getFile",
            "getFileNodes",
            "getImages",
            "getImageFills",
            "getTeamProjects",
            "getProjectFiles",
            "getFileVersions",
            "getComments",
            "postComment",
            "deleteComment",
            "getMe",
            "getTeamComponents",
            "getWebhook",
            "postWebhook",
        ],
    },
    Sample {
        name: "vercel-sample",
        file: "vercel.json",
        host: "api.vercel.com",
        prefix: "",
        options: &[],
        operations: &[
            "getTeams",
            "getTeam",
            "getAuthUser",
            "listAliases",
            "getDomains",
            "getRecords",
            "deleteAlias",
            "getProjects",
            "deleteProject",
            "getWebhooks",
            "createWebhook",
            "getDeployment",
            "getCertById",
            "listUserEvents",
        ],
    },
];

#[test]
fn generated_connectors_meet_their_services() {
    let Some(tools) = tools() else { return };
    let (mut calls, mut wrong) = (0, Vec::new());
    for sample in &SAMPLES {
        let failed = meet(&tools, sample);
        println!(
            "{}: {} operations called, {} not as described",
            sample.name,
            sample.operations.len(),
            failed.len()
        );
        calls += sample.operations.len();
        wrong.extend(failed);
    }
    assert!(wrong.is_empty(), "{} of {calls}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(calls >= 60, "{calls}");
}

/// Builds the connector, runs its scenarios, and calls each operation. Returns what failed.
fn meet(tools: &Tools, sample: &Sample) -> Vec<String> {
    let author = Author::new();
    let document = tools.dir().join("descriptions").join(sample.file);
    let base =
        ["new", sample.name, "--owner", "acme", "--format", "json", "--openapi", document.to_str().unwrap()];
    let args = [&base[..], sample.options, &["--operations"], sample.operations].concat();
    let made = ok(&author.run(&args));
    assert_eq!(made["carried_over"]["refused"], 0, "{made}");
    let dir = author.work(sample.name);
    // A token that is bound as it is stands for one that is obtained.
    let manifest = dir.join("connector.toml");
    let text = fs::read_to_string(&manifest).unwrap().replace("kind = \"oauth2\"", "kind = \"bearer\"");
    fs::write(&manifest, text).unwrap();
    let built = author.command(&dir, &["build", "--format", "json", "--", "--locked"]).output().unwrap();
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(!said.contains("warning"), "{}: {said}", sample.name);
    let path = PathBuf::from(ok(&built)["path"].as_str().unwrap());
    let size = fs::metadata(&path).unwrap().len();
    println!("{}: {} operations, {size} bytes", sample.name, sample.operations.len());
    let tested = author.command(&dir, &["test"]).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&tested.stdout), String::from_utf8_lossy(&tested.stderr));
    assert!(tested.status.success(), "{}: {said}", sample.name);
    let mock = described(tools, sample.file);
    let route = Route::new(sample.host, mock.address()).without_prefix(sample.prefix);
    let route = if sample.file == "slack.json" { route.with_token_in("token") } else { route };
    let failed = call_all(sample, &dir, &fs::read(&path).unwrap(), route);
    drop::<Server>(mock);
    failed
}

fn call_all(sample: &Sample, dir: &std::path::Path, package: &[u8], route: Route) -> Vec<String> {
    let front = match Front::start([route]) {
        Ok(front) => front,
        Err(why) => panic!("{why}"),
    };
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://acme/*");
    let name = format!("github://acme/{}", sample.name);
    let host = home
        .builder()
        .extra_root_pem(front.authority().pem())
        .resolver(front.resolver())
        .vault(MemoryVault::with(bindings(sample, &name)))
        .allow_private(format!("{}:443=127.0.0.0/8", sample.host))
        .build()
        .unwrap();
    run(host.install_accepted(package.to_vec(), Some(signer.sign(package)), Default::default())).unwrap();
    let mut failed = Vec::new();
    let mut files: Vec<_> =
        fs::read_dir(dir.join("tests")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let operation = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let args = super::args_of(&fs::read_to_string(&file).unwrap());
        let outcome = run(host.call(&connector(&format!("{name}@0.1.0")), &operation, args.clone()));
        if let Err(error) = outcome {
            let shown = serde_json::to_value(&error).unwrap_or(Value::Null);
            failed.push(format!("{} {operation} {args}: {shown}", sample.name));
        }
    }
    failed
}

/// A binding for each kind that these documents have.
fn bindings(sample: &Sample, connector: &str) -> Vec<Binding> {
    let token = || secret("token-of-the-sample-0123456789");
    let hosts = [format!("{}:443", sample.host)];
    let bearer = SecretMaterial::Bearer { token: token() };
    let key = SecretMaterial::ApiKey { key: token() };
    vec![
        binding(&format!("bearer/{}/default", sample.name), bearer, &[connector], &hosts),
        binding(&format!("api_key/{}/default", sample.name), key, &[connector], &hosts),
    ]
}
