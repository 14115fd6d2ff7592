//! A home with every kind of credential bound, to secrets that are looked for afterwards wherever anything is written.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;

use cofferdam_test_support::{Cli, CommandResult, Home, ScriptedReply, Signer, Upstream, package};
use serde_json::{Value, json};

use super::grep::{self, Net};
use crate::COFFERDAM;
use crate::shared_host::run;

/// A collector's path for spans.
const TRACES: &str = "/v1/traces";

/// Every secret: as it is bound, or as the token endpoint hands it out.
pub(super) const SECRETS: [(&str, &str); 10] = [
    ("bearer", "canary/bearer+7hQ2mZx9Lw=="),
    ("api key in a header", "canary/header+4tYb8Kc1Vn&x"),
    ("api key in the query", "canary/query+9sRd3Pf6Gj=k"),
    ("basic", "canary/basic+2wEa5Uh0Zm:q"),
    ("oauth2 client secret", "canary/client+6nTk1Xo8Bv"),
    ("oauth2 refresh token", "canary/refresh+3jLp7Cy4Ds"),
    ("oauth2 access token", "canary/access+5gIq0Wr2Ne"),
    ("oauth2 next refresh token", "canary/rotated+8aFu6Mz1Kt"),
    ("aws secret key", "canary/aws+1vHx9Ob3Ylc7Rg5SpQd4"),
    ("session token", "canary/session+0eJw8Ti6Un"),
];

/// The connectors, and the credentials that the manifest of each requires, at `HOST`.
const CONNECTORS: [(&str, &str); 6] = [
    (
        "probe",
        "[[capabilities.credential]]\nkind = \"bearer\"\nservice = \"shop\"\nhosts = [\"HOST\"]\n\
         [[capabilities.credential]]\nkind = \"api_key\"\nservice = \"head\"\nhosts = [\"HOST\"]\nheader = \"X-Api-Key\"\nformat = \"{key}\"\n\
         [[capabilities.credential]]\nkind = \"api_key\"\nservice = \"query\"\nhosts = [\"HOST\"]\nquery = \"api_key\"\n",
    ),
    ("basic", "[[capabilities.credential]]\nkind = \"basic\"\nservice = \"wiki\"\nhosts = [\"HOST\"]\n"),
    ("oauth", "[[capabilities.credential]]\nkind = \"oauth2\"\nservice = \"mail\"\nhosts = [\"HOST\"]\n"),
    ("refused", "[[capabilities.credential]]\nkind = \"oauth2\"\nservice = \"gone\"\nhosts = [\"HOST\"]\n"),
    ("aws", "[[capabilities.credential]]\nkind = \"aws_sigv4\"\nservice = \"s3\"\nhosts = [\"HOST\"]\n"),
    ("unbound", "[[capabilities.credential]]\nkind = \"bearer\"\nservice = \"nobody\"\nhosts = [\"HOST\"]\n"),
];

/// The home and what is around it.
pub(super) struct CanaryHome {
    pub(super) upstream: Upstream,
    pub(super) home: Home,
    pub(super) signer: Signer,
    pub(super) closed_port: u16,
    /// The port of the token endpoint: `/token` gives tokens, any other path refuses.
    pub(super) issuer: u16,
    /// The collector of every command's spans.
    collector: Upstream,
}

pub(super) fn name(connector: &str) -> String {
    format!("github://cofferdam/{connector}")
}

fn secret(name: &str) -> &'static str {
    SECRETS.iter().find(|(known, _)| *known == name).unwrap().1
}

impl CanaryHome {
    /// Installs and binds everything, through the command line.
    pub(super) fn new() -> Self {
        let upstream = Upstream::start();
        let home = Home::new(COFFERDAM);
        let signer = Signer::new();
        home.trust(&signer.public(), "github://cofferdam/*");
        let closed_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::create_dir(home.path().join("tmp")).unwrap();
        let collector = Upstream::start();
        collector.script(TRACES, [ScriptedReply::status(200)]);
        let canary = Self { upstream, home, signer, closed_port, issuer: issuer(), collector };
        for (connector, credentials) in CONNECTORS {
            let bytes = canary.package(connector, credentials);
            run(canary.home.install(&bytes, &canary.signer)).unwrap();
        }
        let oauth = json!({"client_secret": secret("oauth2 client secret"), "refresh_token": secret("oauth2 refresh token")});
        let aws =
            json!({"secret_access_key": secret("aws secret key"), "session_token": secret("session token")});
        let (good, bad) = (
            format!("http://localhost:{}/token", canary.issuer),
            format!("http://localhost:{}/no", canary.issuer),
        );
        let oauth = oauth.to_string();
        canary.bind(&["bearer/shop"], secret("bearer"));
        canary.bind(&["api_key/head"], secret("api key in a header"));
        canary.bind(&["api_key/query"], secret("api key in the query"));
        canary.bind(&["basic/wiki", "--username", "somebody"], secret("basic"));
        canary.bind(&["oauth2/mail", "--client-id", "us", "--token-url", &good], &oauth);
        canary.bind(&["oauth2/gone", "--client-id", "us", "--token-url", &bad], &oauth);
        let keys = ["aws_sigv4/s3", "--access-key-id", "AKIAEXAMPLE", "--region", "eu-west-1", "--temporary"];
        canary.bind(&keys, &aws.to_string());
        canary
    }

    /// The probe as a connector of this name.
    pub(super) fn package(&self, connector: &str, credentials: &str) -> Vec<u8> {
        let hosts = [self.upstream.grant(), format!("http://localhost:{}", self.closed_port)];
        let manifest = package::with_hosts(&package::guest_manifest("probe"), &hosts);
        let manifest = manifest.replace("github://cofferdam/probe", &name(connector));
        // The command line waits between attempts in earnest; one operation that may be repeated is enough.
        let manifest = manifest.replace("fetch = \"idempotent\"", "fetch = \"not_idempotent\"");
        let credentials = credentials.replace("HOST", &hosts[0]);
        package::pack(&package::guest("probe"), &format!("{manifest}\n{credentials}"))
    }

    fn bind(&self, args: &[&str], secret: &str) {
        let args = [&["binding", "set"], args, &["--stdin"]].concat();
        self.run_with(&args, Some(secret)).ok();
    }

    /// Runs the command line at its most verbose, and searches all its output.
    pub(super) fn run(&self, args: &[&str]) -> CommandResult {
        self.run_with(args, None)
    }

    fn run_with(&self, args: &[&str], input: Option<&str>) -> CommandResult {
        let args = [args, &["-vvv"]].concat();
        let private =
            [self.upstream.port(), self.closed_port, self.issuer].map(|port| format!("localhost:{port}"));
        let mut command = Cli::new(COFFERDAM, self.home.path()).command(&args);
        command
            .env("RUST_LOG", "trace")
            .env("RUST_BACKTRACE", "full")
            .env("TMPDIR", self.home.path().join("tmp"));
        command.env("COFFERDAM_ALLOW_PRIVATE", private.join(","));
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", self.collector.host_port()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.unwrap_or_default().as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let line = args.join(" ");
        clean(&format!("stdout of {line}"), &output.stdout);
        clean(&format!("stderr of {line}"), &output.stderr);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        CommandResult {
            line,
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// Calls an operation; its class and code, none where there was a value.
    pub(super) fn call(
        &self,
        connector: &str,
        op: &str,
        args: &Value,
        more: &[&str],
    ) -> Option<(String, String)> {
        let (connector, args) = (name(connector), args.to_string());
        let ran = self.run(&[&["call", &connector, op, &args, "--format", "json"], more].concat());
        let Ok(value) = serde_json::from_str::<Value>(&ran.stdout) else {
            panic!("`{}` printed no JSON: {} {}", ran.line, ran.stdout, ran.stderr);
        };
        let error = value.get("error")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some((text(&error["class"]), text(&error["details"]["code"])))
    }

    /// Looks at every file of the home, the vault included.
    pub(super) fn look_at_files(&self) -> usize {
        let mut count = 0;
        grep::files(self.home.path(), &mut |path: &std::path::Path, bytes: &[u8]| {
            count += 1;
            clean(&path.display().to_string(), bytes);
        });
        count
    }

    /// Looks at every request to the collector.
    pub(super) fn look_at_spans(&self) -> usize {
        let sent = self.collector.seen(TRACES);
        for request in &sent {
            clean("the head of spans", format!("{:?}", request.headers).as_bytes());
            clean("spans", &request.body);
        }
        sent.len()
    }

    /// The installed file of a package.
    pub(super) fn installed(&self, package: &[u8]) -> PathBuf {
        self.home.installed_file(package)
    }
}

/// The search for all of them.
pub(super) static NET: LazyLock<Net> = LazyLock::new(|| Net::of(&SECRETS.map(|(_, secret)| secret)));

/// Asserts that no secret is in `bytes`.
#[track_caller]
pub(super) fn clean(place: &str, bytes: &[u8]) {
    let caught: Vec<_> =
        NET.caught(bytes).into_iter().map(|(secret, form)| (SECRETS[*secret].0, form)).collect();
    assert!(caught.is_empty(), "{place}: {caught:?}:\n{}", String::from_utf8_lossy(bytes));
}

/// A token endpoint.
fn issuer() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tokens = json!({
        "access_token": secret("oauth2 access token"), "token_type": "Bearer", "expires_in": 3600,
        "refresh_token": secret("oauth2 next refresh token"),
    });
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut request, mut piece) = (String::new(), [0; 4096]);
            while !request.contains("refresh_token=") {
                match stream.read(&mut piece) {
                    Ok(length @ 1..) => request.push_str(&String::from_utf8_lossy(&piece[..length])),
                    _ => break,
                }
            }
            // A bad one reports the error.
            let (status, body) = match request.starts_with("POST /token ") {
                true => ("200 OK", tokens.to_string()),
                false => {
                    let shown = format!("{request} {}", secret("oauth2 refresh token"));
                    (
                        "400 Bad Request",
                        json!({"error": "invalid_grant", "error_description": shown}).to_string(),
                    )
                }
            };
            let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close");
            drop(write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        }
    });
    port
}
