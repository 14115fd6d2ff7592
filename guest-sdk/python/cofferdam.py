"""HTTP requests, failures and log lines of a connector in Python.

Copy this file next to the connector's code. It needs a world that includes `cofferdam:connector/connector@0.1.0`.

    from cofferdam import encode_segment, failed, log, request

    response = request("GET", f"https://api.example.com/cities/{encode_segment(city)}", query={"units": "metric"})
    log.info("report read", station=response.json()["station"])

Every failure is an exception of the type `componentize_py_types.Err`, which an operation need not catch.
"""

import json as _json
import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Iterable, Mapping
from urllib.parse import quote, urlencode

from componentize_py_types import Err, Ok
from wit_world.imports import call, outgoing_handler
from wit_world.imports import log as _host_log
from wit_world.imports.cofferdam_connector_types import (
    Failure_Failed,
    Failure_InvalidInput,
    Failure_Network,
    Failure_Upstream,
    InputError,
    NetworkError,
    NetworkPhase,
    OperationError,
    UpstreamError,
)
from wit_world.imports.streams import StreamError_Closed, StreamError_LastOperationFailed
from wit_world.imports.wasi_http_types import (
    Fields,
    IncomingResponse,
    Method_Delete,
    Method_Get,
    Method_Head,
    Method_Options,
    Method_Other,
    Method_Patch,
    Method_Post,
    Method_Put,
    OutgoingBody,
    OutgoingRequest,
    Scheme_Http,
    Scheme_Https,
)

Pairs = Mapping[str, Any] | Iterable[tuple[str, Any]]


@dataclass
class Response:
    """A response, read to its end."""

    status: int
    headers: list[tuple[str, bytes]]
    body: bytes

    def header(self, name: str) -> str | None:
        """Returns the first header of that name, in any case."""
        values = (value for key, value in self.headers if key.lower() == name.lower())
        return next((value.decode(errors="replace") for value in values), None)

    def text(self) -> str:
        """Returns the body as text. Fails if it is not UTF-8."""
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise failed("invalid_text", "A response was not UTF-8 text.", detail=str(error)) from error

    def json(self) -> Any:
        """Parses the body as JSON. Fails if it is not JSON."""
        try:
            return _json.loads(self.body)
        except ValueError as error:
            message = "A JSON document did not have the expected form."
            raise failed("invalid_json", message, detail=str(error)) from error


def request(
    method: str,
    url: str,
    *,
    query: Pairs | None = None,
    headers: Mapping[str, str] | None = None,
    json: Any = None,
    form: Pairs | None = None,
    body: bytes | str | None = None,
    idempotency_key: str | None = None,
    raise_for_status: bool = True,
) -> Response:
    """Sends a request, waits, and reads the whole response.

    The URL is absolute and already encoded: `encode_segment` encodes a value for its path, and `query` encodes its
    pairs, without those whose value is None. The body is one of `json`, `form` and `body`; the first two set the
    content type.

    `idempotency_key` is a label. It sends `Idempotency-Key: <key of the call>:<label>`, so that a service that
    supports the header has one effect, however often the call is attempted. The label must be the same in every
    attempt, and another for every other request of the call that changes something.

    A status from 400 to 599 raises the failure `upstream`, with the service's own code and its `Retry-After`, unless
    `raise_for_status` is false. An interrupted exchange raises the failure `network`.
    """
    fields = [(name.lower(), value.encode()) for name, value in (headers or {}).items()]
    if json is not None:
        body = _json.dumps(json, separators=(",", ":"), ensure_ascii=False)
        fields.append(("content-type", b"application/json"))
    elif form is not None:
        body = urlencode(_texts(form))
        fields.append(("content-type", b"application/x-www-form-urlencoded"))
    content = body.encode() if isinstance(body, str) else body or b""
    if idempotency_key is not None:
        fields.append(("idempotency-key", f"{call.idempotency_key()}:{idempotency_key}".encode()))
    if content:
        fields.append(("content-length", str(len(content)).encode()))
    scheme, authority, path = _split(url, query)
    if idempotency_key is not None:
        _take_label(idempotency_key, (method, authority, path, content))
    response = _send(method, scheme, authority, path, fields, content)
    if raise_for_status and 400 <= response.status <= 599:
        raise _status_failure(response)
    return response


def encode_segment(value: str) -> str:
    """Encodes a value as one segment of a path, so that a slash in it remains part of the value."""
    return value.replace(".", "%2E") if value in (".", "..") else quote(value, safe="")


def invalid_input(field: str | None, message: str, *, detail: str | None = None) -> Err:
    """Rejects the arguments: `raise invalid_input("city", "must not be empty")`. The field is a path in the caller's
    names, or None if the combination is at fault. The caller sees the message, and the operator alone the detail."""
    return Err(Failure_InvalidInput(InputError(field or None, message, detail)))


def failed(code: str, message: str, *, transient: bool = False, detail: str | None = None) -> Err:
    """Reports that the operation failed for a reason of its own. The code is one token, the message a sentence. It
    is transient if the same call may succeed later."""
    return Err(Failure_Failed(OperationError(code or None, message, transient, detail)))


def upstream(
    status: int, code: str | None = None, *, retry_after_ms: int | None = None, detail: str | None = None
) -> Err:
    """Reports that the service returned an error, for services that report errors with status 200."""
    return Err(Failure_Upstream(UpstreamError(status, code or None, retry_after_ms, detail)))


def network(phase: NetworkPhase | None = None, *, detail: str | None = None) -> Err:
    """Reports that the service could not be reached, or that the exchange was interrupted."""
    return Err(Failure_Network(NetworkError(phase, detail)))


class log:
    """Log lines for the operator. The message is the same each time, and the values that vary are fields:
    `log.info("page read", page=3)`."""

    @staticmethod
    def trace(message: str, **fields: object) -> None:
        _write_line(_host_log.Level.TRACE, message, fields)

    @staticmethod
    def debug(message: str, **fields: object) -> None:
        _write_line(_host_log.Level.DEBUG, message, fields)

    @staticmethod
    def info(message: str, **fields: object) -> None:
        _write_line(_host_log.Level.INFO, message, fields)

    @staticmethod
    def warn(message: str, **fields: object) -> None:
        _write_line(_host_log.Level.WARN, message, fields)

    @staticmethod
    def error(message: str, **fields: object) -> None:
        _write_line(_host_log.Level.ERROR, message, fields)


def suppressed(reason: str, cause: object) -> None:
    """Reports an error that is ignored on purpose, with the reason for that."""
    _host_log.suppressed(reason, str(cause))


def _write_line(level: _host_log.Level, message: str, fields: dict[str, object]) -> None:
    _host_log.log(level, message, [_host_log.Field(name, _text(value)) for name, value in fields.items()])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _texts(pairs: Pairs) -> list[tuple[str, str]]:
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return [(name, _text(value)) for name, value in items if value is not None]


_URL = re.compile(r"(https?)://([^/?#]+)([^#]*)", re.IGNORECASE)


def _split(url: str, query: Pairs | None) -> tuple[str, str, str]:
    """Returns scheme, host and path of a URL, with the query."""
    parts = _URL.match(url)
    if parts is None or "@" in parts[2] or re.search(r"[\x00-\x20\x7f\\]", url):
        raise _invalid_request("the URL must be absolute, with http or https, without a user, spaces and backslashes")
    path = parts[3] if parts[3].startswith("/") else f"/{parts[3]}"
    path = re.sub(r"[^\x00-\x7f]+", lambda found: quote(found[0]), path)
    encoded = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in _texts(query or ()))
    if encoded:
        joint = "?" if "?" not in path else "" if path.endswith(("?", "&")) else "&"
        path += joint + encoded
    return parts[1].lower(), parts[2], path


# An instance lives for one attempt of a call, and so do its labels.
_labels: dict[str, tuple[str, str, str, bytes]] = {}


def _take_label(label: str, parts: tuple[str, str, str, bytes]) -> None:
    """Takes a label for a request. Under another request's label the service would take the two for one."""
    if _labels.setdefault(label, parts) != parts:
        raise _invalid_request(
            f"the idempotency key's label `{label}` is another request's; give each request of a call its own"
        )


_METHODS = {
    "GET": Method_Get(),
    "HEAD": Method_Head(),
    "POST": Method_Post(),
    "PUT": Method_Put(),
    "DELETE": Method_Delete(),
    "OPTIONS": Method_Options(),
    "PATCH": Method_Patch(),
}


def _send(
    method: str, scheme: str, authority: str, path: str, fields: list[tuple[str, bytes]], content: bytes
) -> Response:
    try:
        outgoing = OutgoingRequest(Fields.from_list(fields))
        outgoing.set_method(_METHODS.get(method) or Method_Other(method))
        outgoing.set_scheme(Scheme_Http() if scheme == "http" else Scheme_Https())
        outgoing.set_authority(authority)
        outgoing.set_path_with_query(path)
    except Err as error:
        raise _invalid_request(f"the host does not accept a part of it: {error.value}") from error
    # An empty body that is written would be sent in chunks.
    body = outgoing.body() if content else None
    try:
        future = outgoing_handler.handle(outgoing, None)
    except Err as error:
        raise _exchange_failure(error.value) from error
    # A service may respond before it has read everything, and close the connection. Its response is then more
    # informative than the error of writing.
    unwritten = _write(body, content) if body else None
    with future.subscribe() as ready:
        ready.block()
    outcome = future.get().value
    if not isinstance(outcome, Ok):
        raise unwritten or _exchange_failure(outcome.value)
    with outcome.value as incoming:
        return _read(incoming)


def _write(body: OutgoingBody, content: bytes) -> Err | None:
    """Writes and ends a request's body. Returns the failure instead of raising it."""
    try:
        with body.write() as stream, stream.subscribe() as ready:
            while content:
                room = stream.check_write()
                if room == 0:
                    ready.block()
                    continue
                stream.write(content[:room])
                content = content[room:]
            stream.flush()
            ready.block()
            stream.check_write()
    except Err as error:
        return network(NetworkPhase.SEND, detail=_stream_error(error.value))
    try:
        OutgoingBody.finish(body, None)
    except Err as error:
        return _exchange_failure(error.value)
    return None


def _read(incoming: IncomingResponse) -> Response:
    with incoming.headers() as fields:
        headers = fields.entries()
    content = bytearray()
    with incoming.consume() as body, body.stream() as stream:
        while True:
            try:
                content += stream.blocking_read(64 * 1024)
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    break
                raise network(NetworkPhase.RESPONSE, detail=_stream_error(error.value)) from error
    return Response(incoming.status(), headers, bytes(content))


def _stream_error(error: StreamError_Closed | StreamError_LastOperationFailed) -> str:
    if isinstance(error, StreamError_Closed):
        return "the stream was closed"
    with error.value as failure:
        return failure.to_debug_string()


_PHASES = {
    NetworkPhase.DNS: ("DnsTimeout", "DnsError", "DestinationNotFound"),
    NetworkPhase.CONNECT: (
        "DestinationUnavailable",
        "DestinationIpProhibited",
        "DestinationIpUnroutable",
        "ConnectionRefused",
        "ConnectionTimeout",
        "ConnectionLimitReached",
    ),
    NetworkPhase.TLS: ("TlsProtocolError", "TlsCertificateError", "TlsAlertReceived"),
    NetworkPhase.SEND: (
        "ConnectionWriteTimeout",
        "HttpRequestBodySize",
        "HttpRequestHeaderSectionSize",
        "HttpRequestHeaderSize",
        "HttpRequestTrailerSectionSize",
        "HttpRequestTrailerSize",
    ),
    None: ("LoopDetected", "ConfigurationError", "InternalError"),
}


def _exchange_failure(error: object) -> Err:
    """Converts an error of `wasi:http`."""
    name = type(error).__name__.removeprefix("ErrorCode_")
    if name == "HttpRequestDenied":
        return failed("request_denied", "The host refused a request.")
    phase = next((phase for phase, names in _PHASES.items() if name in names), NetworkPhase.RESPONSE)
    if phase == NetworkPhase.RESPONSE and name.startswith("HttpRequest"):
        return _invalid_request(str(error))
    return network(phase, detail=str(error))


def _invalid_request(detail: str) -> Err:
    return failed("invalid_request", "A request could not be built.", detail=detail)


def _status_failure(response: Response) -> Err:
    """Returns the failure of an error response: the service's own code, its delay, and the start of its body."""
    try:
        code = _code(_json.loads(response.body))
    except ValueError:
        code = None
    detail = response.body[:512].decode(errors="replace")
    return upstream(response.status, code, retry_after_ms=_retry_after_ms(response), detail=detail or None)


def _code(body: Any) -> str | None:
    """Returns the service's own name for an error: a token in one of the usual places, never a sentence."""

    def member(value: Any, name: str) -> Any:
        return value.get(name) if isinstance(value, dict) else None

    def first(value: Any) -> Any:
        return value[0] if isinstance(value, list) and value else None

    error, errors = member(body, "error"), member(body, "errors")
    candidates = [member(body, "code"), error, member(body, "error_code")]
    for nested in (error, errors, first(errors), first(body)):
        candidates += [member(nested, "code"), member(nested, "type")]
    return next((token for token in map(_token, candidates) if token), None)


def _token(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value)
    return text if re.fullmatch(r"[!-~]{1,128}", text) else None


def _retry_after_ms(response: Response) -> int | None:
    """Returns the delay of `Retry-After`: seconds, or a date, which is compared with the service's own clock."""
    value = (response.header("retry-after") or "").strip()
    if re.fullmatch(r"[0-9]+", value):
        return min(int(value) * 1000, 2**64 - 1)
    try:
        until = parsedate_to_datetime(value).timestamp()
    except ValueError:
        return None
    try:
        now = parsedate_to_datetime(response.header("date") or "").timestamp()
    except ValueError:
        now = time.time()
    return max(0, int((until - now) * 1000))
