/**
 * HTTP requests, failures and log lines of a connector in JavaScript.
 *
 * Copy this file next to the connector's code. It needs a world that includes `cofferdam:connector/connector@0.1.0`.
 *
 *     import { encodeSegment, failed, log, request } from "./cofferdam.js";
 *
 *     const url = `https://api.example.com/cities/${encodeSegment(city)}`;
 *     const report = request("GET", url, { query: { units: "metric" } }).json();
 *     log.info("report read", { station: report.station });
 *
 * Every failure is thrown as a `Failure`, which an operation need not catch.
 */
import { idempotencyKey as callKey } from "cofferdam:connector/call@0.1.0";
import { log as writeLine, suppressed as writeSuppressed } from "cofferdam:connector/log@0.1.0";
import { handle } from "wasi:http/outgoing-handler@0.2.12";
import { Fields, OutgoingBody, OutgoingRequest } from "wasi:http/types@0.2.12";

/** A failure of the operation, as `invalidInput`, `failed`, `upstream` and `network` create it. */
export class Failure extends Error {
  constructor(tag, val, message) {
    super(message);
    this.payload = { tag, val };
  }
}

/**
 * Rejects the arguments: `throw invalidInput("city", "must not be empty")`. The field is a path in the caller's names,
 * or undefined if the combination is at fault. The caller sees the message, and the operator alone the detail.
 */
export const invalidInput = (field, message, { detail } = {}) =>
  new Failure("invalid-input", { field: field || undefined, message, detail }, message);

/**
 * Reports that the operation failed for a reason of its own. The code is one token, the message a sentence. It is
 * transient if the same call may succeed later.
 */
export const failed = (code, message, { transient = false, detail } = {}) =>
  new Failure("failed", { code: code || undefined, message, transient, detail }, message);

/** Reports that the service returned an error, for services that report errors with status 200. */
export const upstream = (status, code, { retryAfterMs, detail } = {}) => {
  const wait = retryAfterMs === undefined ? undefined : BigInt(retryAfterMs);
  const message = `the service answered with status ${status}`;
  return new Failure("upstream", { status, code: code || undefined, retryAfterMs: wait, detail }, message);
};

/** Reports that the service could not be reached, or that the exchange was interrupted. */
export const network = (phase, { detail } = {}) =>
  new Failure("network", { phase, detail }, "the exchange with the service broke off");

const logAt = (level) => (message, fields = {}) =>
  writeLine(level, message, Object.entries(fields).map(([key, value]) => ({ key, value: String(value) })));

/**
 * Log lines for the operator. The message is the same each time, and the values that vary are fields:
 * `log.info("page read", { page: 3 })`.
 */
export const log = {
  trace: logAt("trace"),
  debug: logAt("debug"),
  info: logAt("info"),
  warn: logAt("warn"),
  error: logAt("error"),
};

/** Reports an error that is ignored on purpose, with the reason for that. */
export const suppressed = (reason, cause) => writeSuppressed(reason, String(cause));

/** Encodes a value as one segment of a path, so that a slash in it remains part of the value. */
export const encodeSegment = (value) =>
  value === "." || value === ".." ? value.replaceAll(".", "%2E") : encode(value);

/** A response, read to its end: `status`, `headers` (pairs of a name and bytes), and `body` (bytes). */
export class Response {
  constructor(status, headers, body) {
    Object.assign(this, { status, headers, body });
  }

  /** Returns the first header of that name, in any case. */
  header(name) {
    const found = this.headers.find(([key]) => key.toLowerCase() === name.toLowerCase());
    return found && new TextDecoder().decode(found[1]);
  }

  /** Returns the body as text. Fails if it is not UTF-8. */
  text() {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(this.body);
    } catch (error) {
      throw failed("invalid_text", "A response was not UTF-8 text.", { detail: String(error) });
    }
  }

  /** Parses the body as JSON. Fails if it is not JSON. */
  json() {
    try {
      return JSON.parse(new TextDecoder().decode(this.body));
    } catch (error) {
      throw failed("invalid_json", "A JSON document did not have the expected form.", { detail: String(error) });
    }
  }
}

/**
 * Sends a request, waits, and reads the whole response.
 *
 * The URL is absolute and already encoded: `encodeSegment` encodes a value for its path, and `query` encodes its pairs,
 * without those whose value is null or undefined. The body is one of `json`, `form` and `body` (text or bytes); the
 * first two set the content type.
 *
 * `idempotencyKey` is a label. It sends `Idempotency-Key: <key of the call>:<label>`, so that a service that supports
 * the header has one effect, however often the call is attempted. The label must be the same in every attempt, and
 * another for every other request of the call that changes something.
 *
 * A status from 400 to 599 throws the failure `upstream`, with the service's own code and its `Retry-After`, unless
 * `throwForStatus` is false. An interrupted exchange throws the failure `network`.
 */
export function request(
  method,
  url,
  { query = {}, headers = {}, json, form, body, idempotencyKey, throwForStatus = true } = {},
) {
  const fields = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), bytes(String(value))]);
  if (json !== undefined) {
    body = JSON.stringify(json);
    fields.push(["content-type", bytes("application/json")]);
  } else if (form !== undefined) {
    body = pairs(form).map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&");
    fields.push(["content-type", bytes("application/x-www-form-urlencoded")]);
  }
  const content = typeof body === "string" ? bytes(body) : body ?? new Uint8Array();
  if (idempotencyKey !== undefined) {
    fields.push(["idempotency-key", bytes(`${callKey()}:${idempotencyKey}`)]);
  }
  if (content.length > 0) {
    fields.push(["content-length", bytes(String(content.length))]);
  }
  const target = split(url, query);
  if (idempotencyKey !== undefined) {
    takeLabel(idempotencyKey, `${method} ${target.authority}${target.path}`, content);
  }
  const response = send(method, target, fields, content);
  if (throwForStatus && response.status >= 400 && response.status <= 599) {
    throw statusFailure(response);
  }
  return response;
}

const bytes = (text) => new TextEncoder().encode(text);

/** Encodes all characters except those that RFC 3986 calls unreserved. */
const encode = (value) =>
  encodeURIComponent(String(value).toWellFormed())
    .replace(/[!'()*]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);

/** Returns the pairs of an object, or of a list of pairs, without those that have no value. */
const pairs = (values) =>
  (Array.isArray(values) ? values : Object.entries(values)).filter(([, value]) => (value ?? null) !== null);

/** Returns scheme, host and path of a URL, with the query. `URL` is no help: it resolves an encoded `..`. */
function split(url, query) {
  const parts = /^(https?):\/\/([^/?#]+)([^#]*)/i.exec(url);
  if (parts === null || parts[2].includes("@") || /[\x00-\x20\x7f\\]/.test(url)) {
    throw invalidRequest("the URL must be absolute, with http or https, without a user, spaces and backslashes");
  }
  let path = (parts[3].startsWith("/") ? "" : "/") + parts[3];
  path = path.replace(/[^\x00-\x7f]+/g, (found) => encodeURIComponent(found.toWellFormed()));
  const encoded = pairs(query).map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&");
  if (encoded !== "") {
    const joint = !path.includes("?") ? "?" : /[?&]$/.test(path) ? "" : "&";
    path += joint + encoded;
  }
  return { scheme: parts[1].toLowerCase(), authority: parts[2], path };
}

/** The labels of this instance, which lives for one attempt of a call, each with its request. */
const labels = new Map();

/** Takes a label for a request. Under another request's label the service would take the two for one. */
function takeLabel(label, target, content) {
  const taken = labels.get(label);
  if (taken === undefined) {
    labels.set(label, { target, content });
  } else if (taken.target !== target || !isSame(taken.content, content)) {
    throw invalidRequest(
      `the idempotency key's label \`${label}\` is another request's; give each request of a call its own`,
    );
  }
}

const isSame = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

const METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];

function send(method, { scheme, authority, path }, fields, content) {
  let outgoing;
  try {
    outgoing = new OutgoingRequest(Fields.fromList(fields));
    outgoing.setMethod(METHODS.includes(method) ? { tag: method.toLowerCase() } : { tag: "other", val: method });
    outgoing.setScheme({ tag: scheme === "http" ? "HTTP" : "HTTPS" });
    outgoing.setAuthority(authority);
    outgoing.setPathWithQuery(path);
  } catch (error) {
    throw invalidRequest(`the host does not accept a part of it: ${describe(error.payload)}`);
  }
  // An empty body that is written would be sent in chunks.
  const body = content.length > 0 ? outgoing.body() : undefined;
  let future;
  try {
    future = handle(outgoing, undefined);
  } catch (error) {
    throw exchangeFailure(error.payload);
  }
  // A service may respond before it has read everything, and close the connection. Its response is then more
  // informative than the error of writing.
  const unwritten = body && write(body, content);
  const ready = future.subscribe();
  ready.block();
  const outcome = future.get().val;
  if (outcome.tag === "err") {
    throw unwritten ?? exchangeFailure(outcome.val);
  }
  return read(outcome.val);
}

/** Writes and ends a request's body. Returns the failure instead of throwing it. */
function write(body, content) {
  try {
    const stream = body.write();
    const ready = stream.subscribe();
    try {
      let rest = content;
      while (rest.length > 0) {
        const room = Number(stream.checkWrite());
        if (room === 0) {
          ready.block();
          continue;
        }
        stream.write(rest.subarray(0, room));
        rest = rest.subarray(room);
      }
      stream.flush();
      ready.block();
      stream.checkWrite();
    } finally {
      ready[Symbol.dispose]();
      stream[Symbol.dispose]();
    }
  } catch (error) {
    return network("send", { detail: streamError(error.payload) });
  }
  try {
    OutgoingBody.finish(body, undefined);
  } catch (error) {
    return exchangeFailure(error.payload);
  }
  return undefined;
}

function read(incoming) {
  const headers = incoming.headers().entries();
  const stream = incoming.consume().stream();
  const chunks = [];
  let length = 0;
  for (;;) {
    try {
      const chunk = stream.blockingRead(65536n);
      chunks.push(chunk);
      length += chunk.length;
    } catch (error) {
      if (error.payload?.tag === "closed") break;
      throw network("response", { detail: streamError(error.payload) });
    }
  }
  const body = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    body.set(chunk, at);
    at += chunk.length;
  }
  return new Response(incoming.status(), headers, body);
}

const streamError = (error) => (error?.tag === "closed" ? "the stream was closed" : error?.val?.toDebugString());

const describe = (value) => JSON.stringify(value, (_, part) => (typeof part === "bigint" ? String(part) : part));

const PHASES = {
  dns: ["DNS-timeout", "DNS-error", "destination-not-found"],
  connect: [
    "destination-unavailable",
    "destination-IP-prohibited",
    "destination-IP-unroutable",
    "connection-refused",
    "connection-timeout",
    "connection-limit-reached",
  ],
  tls: ["TLS-protocol-error", "TLS-certificate-error", "TLS-alert-received"],
  send: [
    "connection-write-timeout",
    "HTTP-request-body-size",
    "HTTP-request-header-section-size",
    "HTTP-request-header-size",
    "HTTP-request-trailer-section-size",
    "HTTP-request-trailer-size",
  ],
};

/** Converts an error of `wasi:http`. */
function exchangeFailure(error) {
  const detail = describe(error);
  if (error.tag === "HTTP-request-denied") {
    return failed("request_denied", "The host refused a request.");
  }
  if (["loop-detected", "configuration-error", "internal-error"].includes(error.tag)) {
    return network(undefined, { detail });
  }
  const phase = Object.keys(PHASES).find((phase) => PHASES[phase].includes(error.tag));
  if (phase === undefined && error.tag.startsWith("HTTP-request-")) {
    return invalidRequest(detail);
  }
  return network(phase ?? "response", { detail });
}

const invalidRequest = (detail) => failed("invalid_request", "A request could not be built.", { detail });

/** Returns the failure of an error response: the service's own code, its delay, and the start of its body. */
function statusFailure(response) {
  const detail = new TextDecoder().decode(response.body.subarray(0, 512)) || undefined;
  return upstream(response.status, errorCode(response.body), { retryAfterMs: retryAfterMs(response), detail });
}

/** Returns the service's own name for an error: a token in one of the usual places, never a sentence. */
function errorCode(content) {
  let body;
  try {
    body = JSON.parse(new TextDecoder().decode(content));
  } catch {
    return undefined;
  }
  const nested = [body?.error, body?.errors, body?.errors?.[0], body?.[0]];
  const candidates = [body?.code, body?.error, body?.error_code, ...nested.flatMap((it) => [it?.code, it?.type])];
  return candidates
    .filter((value) => typeof value === "string" || typeof value === "number")
    .map(String)
    .find((text) => /^[!-~]{1,128}$/.test(text));
}

/** Returns the delay of `Retry-After`: seconds, or a date, which is compared with the service's own clock. */
function retryAfterMs(response) {
  const value = response.header("retry-after")?.trim() ?? "";
  if (/^[0-9]+$/.test(value)) {
    const wait = BigInt(value) * 1000n;
    return wait < 1n << 64n ? wait : (1n << 64n) - 1n;
  }
  // The three forms of an HTTP date begin with the day; `Date.parse` reads much else.
  const until = /^[A-Z][a-z]+,? /.test(value) ? Date.parse(value) : NaN;
  if (Number.isNaN(until)) return undefined;
  const now = Date.parse(response.header("date") ?? "");
  return Math.max(0, until - (Number.isNaN(now) ? Date.now() : now));
}
