//! One plain HTTP exchange, for the control requests of a test to a server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server's response.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body, as text; chunks are not put together.
    pub body: String,
}

/// Sends a request over a new connection. `headers` are lines.
///
/// # Panics
/// The server does not answer with HTTP.
pub fn ask(server: SocketAddr, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
    let mut stream = TcpStream::connect(server).expect("a server");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|line| line.to_ascii_lowercase().starts_with("host:")) {
        head.push_str(&format!("host: {server}\r\n"));
    }
    for line in headers {
        head.push_str(&format!("{line}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).expect("a request that is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {answer}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer { status: status.unwrap_or_else(|| panic!("no status: {head}")), body: body.to_owned() }
}
