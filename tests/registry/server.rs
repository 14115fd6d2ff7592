//! Debian's `docker-registry`, and a token service of the tests' own for it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use cofferdam_test_support::services::{Authority, Server, Tools};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The account of all registries that have one, and its line in a file of htpasswd.
pub(super) const ACCOUNT: &str = "ada:s3cret-of-tests";
const HTPASSWD: &str = "ada:$2b$05$abcdefghijklmnopqrstuuQvdQC0iyoEpKKmAu/3kGsQt0UPm2Gom\n";

/// The settings of a registry.
#[derive(Clone, Copy)]
pub(super) enum Access<'a> {
    Open,
    Password,
    Token(&'a TokenService),
}

/// A running registry with its own storage.
pub(super) struct Registry {
    server: Server,
    _dir: TempDir,
}

/// The installed servers; none, with a message, on a machine without them.
pub(super) fn tools() -> Option<Tools> {
    crate::services::tools()
}

impl Registry {
    /// Starts a registry, over TLS with a certificate by `authority` if there is one.
    pub(super) fn start(tools: &Tools, access: Access<'_>, authority: Option<&Authority>) -> Self {
        let dir = tempfile::Builder::new().prefix("cofferdam-registry-").tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let tls = authority.map(|authority| {
            let (certificate, key) = authority.certify(&["localhost"]);
            let certificate = file("certificate.pem", &pem("CERTIFICATE", &certificate));
            json!({"certificate": certificate, "key": file("key.pem", &pem("PRIVATE KEY", key.secret_der()))})
        });
        let auth = match access {
            Access::Open => None,
            Access::Password => {
                Some(json!({"htpasswd": {"realm": "tests", "path": file("htpasswd", HTPASSWD)}}))
            }
            Access::Token(service) => Some(json!({"token": {
                "realm": service.realm(), "service": "registry-of-tests", "issuer": "tests",
                "rootcertbundle": file("issuer.pem", &service.authority.pem())
            }})),
        };
        let config = |port: u16| -> PathBuf {
            let mut config = json!({
                "version": 0.1,
                "log": {"accesslog": {"disabled": false}},
                "storage": {"filesystem": {"rootdirectory": dir.path().join("storage")}},
                "http": {"addr": format!("127.0.0.1:{port}"), "secret": "of tests"}
            });
            config["http"]["tls"] = tls.unwrap_or_default();
            if let Some(auth) = auth {
                config["auth"] = auth;
            }
            // JSON is YAML, too.
            file("config.yml", &config.to_string())
        };
        let args = |port| vec![PathBuf::from("serve"), config(port)];
        let server = Server::start(tools, tools.dir().join("registry/usr/bin/docker-registry"), args, &[]);
        Self { server, _dir: dir }
    }

    /// `localhost:PORT`.
    pub(super) fn name(&self) -> String {
        self.server.host_port()
    }

    /// A reference to `acme/quiet`, with `rest` behind it.
    pub(super) fn reference(&self, rest: &str) -> String {
        format!("oci://{}/acme/quiet{rest}", self.name())
    }

    /// The requests that were logged.
    pub(super) fn log(&self) -> String {
        self.server.log()
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// The issuer of tokens: gives everyone tokens to pull, and the account those to push.
pub(super) struct TokenService {
    port: u16,
    pub(super) authority: Authority,
    asked: Arc<Mutex<Vec<String>>>,
}

impl TokenService {
    pub(super) fn start() -> Self {
        let authority = Authority::new();
        let (certificate, key) = authority.certify(&["tokens"]);
        let key = KeyPair::try_from(&key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let (mut request, mut chunk) = (String::new(), [0; 4096]);
                while !request.contains("\r\n\r\n") {
                    match stream.read(&mut chunk) {
                        Ok(read @ 1..) => request.push_str(&String::from_utf8_lossy(&chunk[..read])),
                        _ => break,
                    }
                }
                log.lock().unwrap().push(request.clone());
                let token = json!({"token": token(&request, &certificate, &key)}).to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    token.len()
                );
                let _ = stream.write_all((head + &token).as_bytes());
            }
        });
        Self { port, authority, asked }
    }

    /// The address that the registry sends its clients to.
    pub(super) fn realm(&self) -> String {
        format!("http://127.0.0.1:{}/token", self.port)
    }

    /// The options that let a client ask it: it is on loopback, and no registry.
    pub(super) fn options(&self) -> String {
        format!("--allow-private 127.0.0.1:{0}=127.0.0.1 --plain-http 127.0.0.1:{0}", self.port)
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// A token for the scope in the request: a JWT as the registry's documentation has it.
fn token(request: &str, certificate: &[u8], key: &KeyPair) -> String {
    let account = format!("authorization: Basic {}", STANDARD.encode(ACCOUNT)).to_lowercase();
    let is_known = request.to_lowercase().contains(&account);
    let query = request.split(' ').nth(1).unwrap_or_default();
    let url = url::Url::parse(&format!("http://tokens{query}")).unwrap();
    let scopes = url.query_pairs().filter(|(name, _)| name == "scope");
    let access: Vec<Value> = scopes
        .filter_map(|(_, scope)| {
            let mut parts = scope.split(':');
            let (kind, name, actions) = (parts.next()?, parts.next()?, parts.next()?);
            let actions: Vec<_> = actions.split(',').filter(|action| is_known || *action == "pull").collect();
            Some(json!({"type": kind, "name": name, "actions": actions}))
        })
        .collect();
    let now = jiff::Timestamp::now().as_second();
    let header = json!({"typ": "JWT", "alg": "ES256", "x5c": [STANDARD.encode(certificate)]});
    let claims = json!({"iss": "tests", "aud": "registry-of-tests", "sub": "ada", "jti": "1",
        "iat": now - 10, "nbf": now - 10, "exp": now + 300, "access": access});
    let signed = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let signature = fixed(&key.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The two numbers of an ECDSA signature in DER, as JWS wants them: 32 bytes each.
fn fixed(der: &[u8]) -> Vec<u8> {
    let number = |der: &[u8]| {
        let length = usize::from(der[1]);
        let digits: Vec<u8> = der[2..2 + length].iter().copied().skip_while(|byte| *byte == 0).collect();
        let mut padded = vec![0; 32 - digits.len()];
        padded.extend(digits);
        (padded, der[2 + length..].to_vec())
    };
    let (r, rest) = number(&der[2..]);
    [r, number(&rest).0].concat()
}
