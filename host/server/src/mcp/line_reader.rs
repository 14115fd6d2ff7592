//! Lines of a stream, one after the other; lines that are too long are discarded.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use super::jsonrpc::RpcError;
use crate::server::BODY_BYTES;

/// A stream of lines.
pub(super) struct LineReader<R> {
    stream: BufReader<R>,
    /// The bytes of the current line so far. Reading is often cancelled, and continues here.
    line: Vec<u8>,
    /// The rest of a line that is too long.
    skipping: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(stream: R) -> Self {
        Self { stream: BufReader::new(stream), line: Vec::new(), skipping: false }
    }

    /// Returns the next line; none at the end. Cancel-safe: a later call continues from the same position.
    pub(super) async fn next_line(&mut self) -> Option<Result<Vec<u8>, RpcError>> {
        loop {
            let read = match self.stream.fill_buf().await {
                Ok([]) => return None,
                Ok(read) => read,
                Err(error) => {
                    tracing::debug!(target: "cofferdam::mcp", %error, "the input broke");
                    return None;
                }
            };
            let end = read.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(read.len(), |end| end + 1);
            let too_long = !self.skipping && self.line.len() + taken > BODY_BYTES;
            if !self.skipping && !too_long {
                self.line.extend_from_slice(read.get(..taken).unwrap_or_default());
            }
            self.stream.consume(taken);
            if too_long {
                self.line = Vec::new();
            }
            let was_skipping = self.skipping;
            self.skipping = (was_skipping || too_long) && end.is_none();
            match end {
                _ if too_long => return Some(Err(RpcError::request("The message is too long."))),
                Some(_) if !was_skipping => return Some(Ok(std::mem::take(&mut self.line))),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{BODY_BYTES, LineReader};

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_to_its_end_and_no_further() {
        let long = vec![b'x'; 2 * BODY_BYTES];
        let stream = [b"one\n".as_slice(), &long, b"\n\ntwo\n", &long, b"\nthree\nrest"].concat();
        let mut input = LineReader::new(stream.as_slice());
        let mut lines = Vec::new();
        while let Some(line) = input.next_line().await {
            lines.push(line.map(|line| String::from_utf8(line).unwrap()).ok());
        }
        let line = |text: &str| Some(text.to_owned());
        assert_eq!(lines, [line("one\n"), None, line("\n"), line("two\n"), None, line("three\n")]);
    }
}
