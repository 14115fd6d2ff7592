//! A hand-written registry that answers what a test says, over plain HTTP or TLS.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cofferdam_test_support::services::Authority;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::digest;

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const SIGNATURE: &str = "application/vnd.dsse.envelope.v1+json";

/// A request that the registry got.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) authorization: Option<String>,
}

/// The body of an answer.
#[derive(Clone)]
pub(super) enum Body {
    Bytes(Vec<u8>),
    /// Goes on until the client is gone.
    Endless,
    /// One byte each tenth of a second, with the length of the whole announced.
    Slow(Vec<u8>),
    /// The manifest or blob that was put there last.
    LastPut,
}

/// An answer.
#[derive(Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Body,
}

impl Answer {
    pub(super) fn ok(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, vec![("content-type", content_type.to_owned())], body)
    }

    pub(super) fn new(status: u16, headers: Vec<(&'static str, String)>, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers, body: Body::Bytes(body.into()) }
    }

    pub(super) fn redirect(to: &str) -> Self {
        Self::new(307, vec![("location", to.to_owned())], "")
    }

    pub(super) fn with_body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }
}

/// The content of a registry: answers by path. Several answers of a path are given one after the other, the last again
/// and again.
#[derive(Default)]
pub(super) struct Shelf {
    answers: HashMap<String, Vec<Answer>>,
    puts: HashMap<String, Vec<u8>>,
}

impl Shelf {
    /// A registry with `package` under the tag 1.0.0 of `acme/quiet`, and with its signatures.
    pub(super) fn with_package(package: &[u8], signatures: &[Vec<u8>]) -> Self {
        let mut shelf = Self::default();
        shelf.put("/v2/", Answer::ok("application/json", "{}"));
        let manifest = shelf.put_package(package, signatures);
        shelf.put("/v2/acme/quiet/manifests/1.0.0", Answer::ok(MANIFEST, manifest));
        shelf
    }

    /// Adds an artifact under no tag, and returns its manifest.
    pub(super) fn put_package(&mut self, package: &[u8], signatures: &[Vec<u8>]) -> Vec<u8> {
        let manifest = package_manifest(package, &json!({})).to_string().into_bytes();
        self.put_manifest(&manifest);
        self.put_blob(package);
        let entries: Vec<_> =
            signatures.iter().map(|envelope| self.put_signature(envelope, &manifest)).collect();
        self.put_referrers(&manifest, &entries);
        manifest
    }

    /// Adds a signature's artifact, and returns its entry for the list of referrers.
    pub(super) fn put_signature(&mut self, envelope: &[u8], subject: &[u8]) -> Value {
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": SIGNATURE,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest(b"{}"), "size": 2},
            "layers": [{"mediaType": SIGNATURE, "digest": digest(envelope), "size": envelope.len()}],
            "subject": {"mediaType": MANIFEST, "digest": digest(subject), "size": subject.len()},
        });
        let manifest = manifest.to_string().into_bytes();
        self.put_manifest(&manifest);
        self.put_blob(envelope);
        json!({"mediaType": MANIFEST, "artifactType": SIGNATURE, "digest": digest(&manifest), "size": manifest.len()})
    }

    pub(super) fn put_referrers(&mut self, subject: &[u8], entries: &[Value]) {
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
        self.put(&format!("/v2/acme/quiet/referrers/{}", digest(subject)), Answer::ok(INDEX, index));
    }

    pub(super) fn put_manifest(&mut self, manifest: &[u8]) {
        self.put(&format!("/v2/acme/quiet/manifests/{}", digest(manifest)), Answer::ok(MANIFEST, manifest));
    }

    pub(super) fn put_blob(&mut self, blob: &[u8]) {
        self.put(&blob_path(blob), Answer::ok("application/octet-stream", blob));
    }

    /// Sets the answer of a path.
    pub(super) fn put(&mut self, path: &str, answer: Answer) {
        self.answers.insert(path.to_owned(), vec![answer]);
    }

    /// Adds an answer for the next time.
    pub(super) fn then(&mut self, path: &str, answer: Answer) {
        self.answers.entry(path.to_owned()).or_default().push(answer);
    }

    /// Accepts every upload to `/upload`.
    pub(super) fn take_uploads(&mut self, registry: &str) {
        let headers = vec![("location", format!("http://{registry}/upload"))];
        self.put("/v2/acme/quiet/blobs/uploads/", Answer::new(202, headers, ""));
    }

    /// Returns the bytes that were put to a path last.
    pub(super) fn last_put(&self, path: &str) -> &[u8] {
        self.puts.get(path).map(Vec::as_slice).unwrap_or_default()
    }

    fn answer(&mut self, asked: &Asked, body: Vec<u8>) -> Answer {
        let path = asked.path.split('?').next().unwrap_or_default();
        if asked.method == "PUT" {
            self.puts.insert(path.to_owned(), body);
            return Answer::new(201, vec![("location", path.to_owned())], "");
        }
        let mut answer = match self.answers.get_mut(path) {
            Some(answers) if answers.len() > 1 => answers.remove(0),
            Some(answers) => answers[0].clone(),
            None => Answer::new(404, Vec::new(), ""),
        };
        if let Body::LastPut = answer.body {
            answer.body = Body::Bytes(self.last_put(path).to_vec());
        }
        answer
    }
}

/// The manifest of a package, with `change` merged into it.
pub(super) fn package_manifest(package: &[u8], change: &Value) -> Value {
    let mut manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.wasm.config.v0+json", "digest": digest(b"{}"), "size": 2},
        "layers": [{"mediaType": "application/wasm", "digest": digest(package), "size": package.len()}],
    });
    for (name, value) in change.as_object().unwrap() {
        manifest[name] = value.clone();
    }
    manifest
}

pub(super) fn blob_path(blob: &[u8]) -> String {
    format!("/v2/acme/quiet/blobs/{}", digest(blob))
}

/// A running registry. Its threads end with the process.
pub(super) struct Liar {
    port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    shelf: Arc<Mutex<Shelf>>,
}

impl Liar {
    pub(super) fn start(shelf: Shelf) -> Self {
        Self::start_with(shelf, None)
    }

    /// With a certificate for `localhost`.
    pub(super) fn start_tls(shelf: Shelf, authority: &Authority) -> Self {
        Self::start_with(shelf, Some(authority))
    }

    fn start_with(shelf: Shelf, authority: Option<&Authority>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, shelf) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::new(Mutex::new(shelf)));
        let tls = authority.map(server_config);
        let shared = (Arc::clone(&asked), Arc::clone(&shelf));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), (asked, shelf), tls) = (stream, shared.clone(), tls.clone()) else {
                    continue;
                };
                std::thread::spawn(move || match tls {
                    Some(tls) => {
                        let connection = ServerConnection::new(tls).unwrap();
                        serve(StreamOwned::new(connection, stream), &asked, &shelf);
                    }
                    None => serve::<TcpStream>(stream, &asked, &shelf),
                });
            }
        });
        Self { port, asked, shelf }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// `localhost:PORT`.
    pub(super) fn registry(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// The reference of the package.
    pub(super) fn reference(&self) -> String {
        format!("oci://{}/acme/quiet:1.0.0", self.registry())
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Shelf)) {
        change(&mut self.shelf.lock().unwrap());
    }

    /// The requests until now; later ones are counted anew.
    pub(super) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn server_config(authority: &Authority) -> Arc<ServerConfig> {
    let (certificate, key) = authority.certify(&["localhost"]);
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(rustls::DEFAULT_VERSIONS)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    Arc::new(config)
}

/// Serves the requests of one connection. A client that goes away ends it.
fn serve<S: Read + Write>(stream: S, asked: &Mutex<Vec<Asked>>, shelf: &Mutex<Shelf>) {
    let mut stream = BufReader::new(stream);
    while let Some((request, body)) = read(&mut stream) {
        let answer = shelf.lock().unwrap().answer(&request, body);
        asked.lock().unwrap().push(request);
        if write(stream.get_mut(), &answer).is_none() {
            return;
        }
    }
}

/// Reads a request and its body.
fn read<S: Read>(stream: &mut BufReader<S>) -> Option<(Asked, Vec<u8>)> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut asked = Asked { method, path, authorization: None };
    let mut length = 0;
    loop {
        let mut field = String::new();
        stream.read_line(&mut field).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = field.trim_end().split_once(": ") else { break };
        match &*name.to_ascii_lowercase() {
            "authorization" => asked.authorization = Some(value.to_owned()),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = Vec::new();
    stream.take(length).read_to_end(&mut body).ok()?;
    Some((asked, body))
}

fn write(stream: &mut impl Write, answer: &Answer) -> Option<()> {
    let mut head = format!("HTTP/1.1 {} Said\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match &answer.body {
        Body::LastPut => unreachable!("the shelf replaces it"),
        Body::Bytes(bytes) => {
            head.push_str(&format!("content-length: {}\r\n\r\n", bytes.len()));
            stream.write_all(head.as_bytes()).ok()?;
            stream.write_all(bytes).ok()?;
        }
        Body::Endless => {
            head.push_str("connection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).ok()?;
            loop {
                stream.write_all(&[b' '; 64 * 1024]).ok()?;
            }
        }
        Body::Slow(bytes) => {
            head.push_str(&format!("content-length: {}\r\n\r\n", bytes.len()));
            stream.write_all(head.as_bytes()).ok()?;
            for byte in bytes {
                stream.write_all(&[*byte]).ok()?;
                stream.flush().ok()?;
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
    stream.flush().ok()
}
