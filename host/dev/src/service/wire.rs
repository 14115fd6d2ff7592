//! HTTP/1.1 as a service speaks it: one request, one response, and the end of the connection.
//!
//! Written by hand, because most of what a test needs of a service is what a library prevents: half a response, a reset
//! in its middle, bytes that are not HTTP.

use std::io;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::scenario::ScriptedResponse;

/// The longest head of a request, in bytes. The host sends less.
const HEAD_BYTES: usize = 256 * 1024;

/// The longest body of a request, in bytes. The host sends less.
const BODY_BYTES: usize = 256 * 1024 * 1024;

/// The most header fields of a request.
const FIELDS: usize = 2_000;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct WireRequest {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl WireRequest {
    /// Returns the path.
    pub(crate) fn path(&self) -> &str {
        self.target.split_once('?').map_or(self.target.as_str(), |(path, _)| path)
    }

    /// Returns the query, without its `?`.
    pub(crate) fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// Returns the field `Host`.
    pub(crate) fn host(&self) -> &str {
        self.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default()
    }
}

/// Reads a request to its end; none if the connection ends before it begins.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<WireRequest>> {
    let mut buffer = Vec::new();
    let (mut request, head) = loop {
        if let Some(parsed) = parse_head(&buffer)? {
            break parsed;
        }
        if buffer.len() > HEAD_BYTES {
            return Err(malformed("the head is too long"));
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return match buffer.is_empty() {
                true => Ok(None),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
    };
    let rest = buffer.split_off(head);
    let chunked =
        request.headers.get(TRANSFER_ENCODING).is_some_and(|coding| coding.as_bytes() == b"chunked");
    let length = request.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let mut input = rest.as_slice().chain(stream);
    request.body = match (chunked, length) {
        (true, _) => read_chunks(&mut input).await?,
        (false, Some(length)) if length > BODY_BYTES => return Err(malformed("the body is too long")),
        (false, Some(length)) => {
            let mut body = vec![0; length];
            input.read_exact(&mut body).await?;
            body
        }
        (false, None) => Vec::new(),
    };
    Ok(Some(request))
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Parses the head of a request, and returns its length; none if it is not complete yet.
fn parse_head(bytes: &[u8]) -> io::Result<Option<(WireRequest, usize)>> {
    let mut fields = vec![httparse::EMPTY_HEADER; FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let length = match head.parse(bytes).map_err(io::Error::other)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let mut headers = HeaderMap::new();
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(io::Error::other)?;
        headers.append(name, HeaderValue::from_bytes(field.value).map_err(io::Error::other)?);
    }
    let (method, target) = (head.method.unwrap_or_default(), head.path.unwrap_or_default());
    let (method, target) = (method.to_owned(), target.to_owned());
    Ok(Some((WireRequest { method, target, headers, body: Vec::new() }, length)))
}

async fn read_chunks(input: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(input).await?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
        if size == 0 {
            // The trailers, and the empty line behind them.
            while !read_line(input).await?.is_empty() {}
            return Ok(body);
        }
        if body.len().saturating_add(size) > BODY_BYTES {
            return Err(malformed("the body is too long"));
        }
        let mut chunk = vec![0; size];
        input.read_exact(&mut chunk).await?;
        body.append(&mut chunk);
        read_line(input).await?;
    }
}

/// Reads a line, byte by byte: lines between chunks are short.
async fn read_line(input: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut line = Vec::new();
    while line.len() < HEAD_BYTES {
        match input.read_u8().await? {
            b'\n' => return Ok(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned()),
            byte => line.push(byte),
        }
    }
    Err(malformed("a line is too long"))
}

/// Returns the head of `response`.
pub(crate) fn response_head(response: &ScriptedResponse) -> Vec<u8> {
    let reason = response.status.canonical_reason().unwrap_or("Other");
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", response.status.as_u16()).into_bytes();
    for (name, value) in &response.headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    // These have no body, and a length would announce one.
    if !matches!(response.status.as_u16(), 204 | 304) {
        head.extend_from_slice(format!("content-length: {}\r\n", response.body.len()).as_bytes());
    }
    head.extend_from_slice(b"connection: close\r\n\r\n");
    head
}

/// Returns the body of `response` to a request with this method.
pub(crate) fn response_body<'r>(method: &str, response: &'r ScriptedResponse) -> &'r [u8] {
    match method == "HEAD" || matches!(response.status.as_u16(), 204 | 304) {
        true => &[],
        false => &response.body,
    }
}

/// Writes `response` to a request with this method.
pub(crate) async fn write_response(
    stream: &mut (impl AsyncWrite + Unpin),
    method: &str,
    response: &ScriptedResponse,
) -> io::Result<()> {
    stream.write_all(&response_head(response)).await?;
    stream.write_all(response_body(method, response)).await?;
    stream.flush().await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    /// A stream that gives one piece at a time.
    struct Pieces(VecDeque<Vec<u8>>);

    /// Reads a request as it may come from a network: in pieces.
    async fn read(text: &str) -> io::Result<Option<WireRequest>> {
        read_request(&mut Pieces(text.as_bytes().chunks(7).map(<[u8]>::to_vec).collect())).await
    }

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if let Some(mut piece) = self.0.pop_front() {
                let fits = piece.len().min(buffer.remaining());
                let rest = piece.split_off(fits);
                buffer.put_slice(&piece);
                if !rest.is_empty() {
                    self.0.push_front(rest);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn requests_are_read_whole() {
        let request =
            read("POST /v1/x?a=b HTTP/1.1\r\nHost: api.example\r\nContent-Length: 5\r\n\r\nhello").await;
        let request = request.unwrap().unwrap();
        assert_eq!((request.method.as_str(), request.path(), request.query()), ("POST", "/v1/x", "a=b"));
        assert_eq!((request.host(), request.body.as_slice()), ("api.example", b"hello".as_slice()));
        let chunked = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\na: b\r\n\r\n";
        assert_eq!(read(chunked).await.unwrap().unwrap().body, b"abcde");
        assert!(read("").await.unwrap().is_none());
        assert!(read("GET / HTTP/1.1\r\n").await.is_err());
        assert!(read("POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nshort").await.is_err());
    }
}
