"""The operations of the connector: one method for each function in wit/text.wit."""

import re
import socket
from urllib.parse import urlsplit

from componentize_py_types import Err, Ok
from wit_world import exports
from wit_world.exports.text import Count, Published
from wit_world.imports import log, outgoing_handler
from wit_world.imports.cofferdam_connector_types import (
    Failure_InvalidInput,
    Failure_Network,
    Failure_Upstream,
    InputError,
    NetworkError,
    UpstreamError,
)
from wit_world.imports.wasi_http_types import (
    Fields,
    Method_Get,
    Method_Post,
    OutgoingBody,
    OutgoingRequest,
    Scheme_Http,
    Scheme_Https,
)


def count(text: str) -> Count:
    return Count(len(text), len(text.split()), len(text.splitlines()))


def read(stream) -> bytes:
    """Everything in a stream; a closed one ends it."""
    whole = b""
    while True:
        try:
            whole += stream.blocking_read(64 * 1024)
        except Err:
            return whole


def write(body: OutgoingBody, content: bytes) -> None:
    """The whole body of a request; a stream takes 4 KiB at once."""
    with body.write() as stream:
        for start in range(0, len(content), 4096):
            stream.blocking_write_and_flush(content[start : start + 4096])
    OutgoingBody.finish(body, None)


def send(url: str, content: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of what answers at `url` to a GET, or to a POST of `content`, by `wasi:http`."""
    parts = urlsplit(url)
    request = OutgoingRequest(Fields())
    request.set_method(Method_Get() if content is None else Method_Post())
    request.set_scheme(Scheme_Http() if parts.scheme == "http" else Scheme_Https())
    request.set_authority(parts.netloc)
    request.set_path_with_query((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
    body = request.body()
    future = outgoing_handler.handle(request, None)
    write(body, content or b"")
    with future.subscribe() as answered:
        answered.block()
    outcome = future.get().value
    if not isinstance(outcome, Ok):
        raise Err(Failure_Network(NetworkError(None, str(outcome))))
    with outcome.value as response:
        status = response.status()
        with response.consume() as body:
            with body.stream() as stream:
                answer = read(stream)
    if status >= 400:
        raise Err(Failure_Upstream(UpstreamError(status, None, None, None)))
    return status, answer


class Text(exports.Text):
    def count_text(self, text: str) -> Count:
        log.log(log.Level.INFO, "counting", [log.Field("characters", str(len(text)))])
        return count(text)

    def words(self, text: str) -> list[str]:
        return text.split()

    def substitute(self, pattern: str, replacement: str, text: str) -> str:
        try:
            return re.sub(pattern, replacement, text)
        except re.error as error:
            wrong = InputError("pattern", f"not a regular expression: {error.msg}", None)
            raise Err(Failure_InvalidInput(wrong)) from error

    def count_page(self, url: str) -> Count:
        _, page = send(url)
        return count(page.decode(errors="replace"))

    def publish(self, url: str, text: str) -> Published:
        status, answer = send(url, text.encode())
        return Published(status, answer.decode(errors="replace"))

    def open_socket(self) -> None:
        socket.socket().connect(("127.0.0.1", 80))
