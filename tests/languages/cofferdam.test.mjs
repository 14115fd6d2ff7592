// Tests of guest-sdk/javascript/cofferdam.js without a sandbox: the requests that it builds and the failures that it
// makes. tests/languages.rs runs this with node.
import assert from "node:assert/strict";
import { registerHooks } from "node:module";
import { test } from "node:test";

const bytes = (text) => new TextEncoder().encode(text);
const text = (content) => new TextDecoder().decode(content);

/** What the helper sent and logged, and what answers it. */
const host = { sent: [], lines: [], suppressed: [], answer: undefined };
globalThis.cofferdamTestHost = host;

/** The host's functions, as far as the helper uses them. */
const HOST = {
  "cofferdam:connector/call@0.1.0": `export const idempotencyKey = () => "k-1";`,
  "cofferdam:connector/log@0.1.0": `
    export const log = (...line) => cofferdamTestHost.lines.push(line);
    export const suppressed = (...event) => cofferdamTestHost.suppressed.push(event);`,
  "wasi:http/types@0.2.12": `
    export class Fields {
      static fromList(list) { return list; }
    }
    export class OutgoingRequest {
      constructor(fields) { this.fields = fields; this.content = []; cofferdamTestHost.sent.push(this); }
      setMethod(method) { this.method = method; }
      setScheme(scheme) { this.scheme = scheme.tag; }
      setAuthority(authority) { this.authority = authority; }
      setPathWithQuery(path) { this.path = path; }
      body() {
        const stream = {
          subscribe: () => ({ block() {}, [Symbol.dispose]() {} }),
          checkWrite: () => 4n,
          write: (part) => this.content.push(...part),
          flush() {},
          [Symbol.dispose]() {},
        };
        return { write: () => stream };
      }
    }
    export class OutgoingBody {
      static finish() {}
    }`,
  "wasi:http/outgoing-handler@0.2.12": `
    export const handle = () => {
      const { tag, val } = cofferdamTestHost.answer;
      let rest = [val?.body].filter(Boolean);
      const stream = {
        blockingRead() {
          if (rest.length > 0) return rest.shift();
          throw Object.assign(new Error(), { payload: { tag: "closed" } });
        },
      };
      const response = {
        status: () => val.status,
        headers: () => ({ entries: () => val.headers }),
        consume: () => ({ stream: () => stream }),
      };
      const outcome = { tag: "ok", val: tag === "ok" ? { tag, val: response } : { tag, val } };
      return { subscribe: () => ({ block() {} }), get: () => outcome };
    };`,
};
registerHooks({
  resolve: (specifier, context, next) =>
    specifier in HOST ? { url: specifier, shortCircuit: true } : next(specifier, context),
  load: (url, context, next) =>
    url in HOST ? { format: "module", source: HOST[url], shortCircuit: true } : next(url, context),
});
const helper = new URL("../../guest-sdk/javascript/cofferdam.js", import.meta.url);
const { encodeSegment, failed, invalidInput, log, request, suppressed } = await import(helper);

const answers = (status, headers = [], body = "") => {
  const values = headers.map(([name, value]) => [name, bytes(value)]);
  host.answer = { tag: "ok", val: { status, headers: values, body: typeof body === "string" ? bytes(body) : body } };
};

/** The payload of the failure that a request throws. */
const failure = (...args) => {
  try {
    request(...args);
  } catch (error) {
    return error.payload;
  }
  return assert.fail("no failure");
};

/** The last request, as one object. */
const last = () => {
  const { method, scheme, authority, path, fields, content } = host.sent.at(-1);
  const headers = Object.fromEntries(fields.map(([name, value]) => [name, text(value)]));
  return { method: method.tag, scheme, authority, path, headers, body: text(new Uint8Array(content)) };
};

test("the parts of a request", () => {
  answers(200);
  const options = { query: { "b c": "d&e(f)", n: null, u: undefined, t: true }, json: { k: "é" } };
  request("POST", "HTTPS://h.example:8443/a?x=1#f", options);
  assert.deepEqual(last(), {
    method: "post",
    scheme: "HTTPS",
    authority: "h.example:8443",
    path: "/a?x=1&b%20c=d%26e%28f%29&t=true",
    headers: { "content-type": "application/json", "content-length": "10" },
    body: '{"k":"é"}',
  });
  request("PUT", "http://h.example", { form: [["a b", "c&d"], ["n", null]], headers: { "X-Trace": 1 } });
  assert.deepEqual(last(), {
    method: "put",
    scheme: "HTTP",
    authority: "h.example",
    path: "/",
    headers: { "x-trace": "1", "content-type": "application/x-www-form-urlencoded", "content-length": "11" },
    body: "a%20b=c%26d",
  });
  request("GET", "https://h.example/é/%2E%2E/x?", { query: { q: 1 } });
  assert.equal(last().path, "/%C3%A9/%2E%2E/x?q=1");
  assert.deepEqual(last().headers, {});
});

test("invalid URLs are refused", () => {
  const before = host.sent.length;
  for (const url of ["h.example/x", "ftp://h", "https://", "https://u:p@h", "https://h/a b", "https://h\\@b/"]) {
    assert.equal(failure("GET", url).val.code, "invalid_request", url);
  }
  assert.equal(host.sent.length, before);
});

test("a label identifies one request", () => {
  answers(200);
  for (const [idempotencyKey, body] of [["create", "1"], ["create", "1"], ["pay", "2"]]) {
    request("POST", "https://h/x", { body, idempotencyKey });
    assert.equal(last().headers["idempotency-key"], `k-1:${idempotencyKey}`);
  }
  const before = host.sent.length;
  for (const [method, url, body] of [
    ["PUT", "https://h/x", "1"],
    ["POST", "https://h/y", "1"],
    ["POST", "https://h/x", "2"],
  ]) {
    assert.match(failure(method, url, { body, idempotencyKey: "create" }).val.detail, /`create`/);
  }
  assert.equal(host.sent.length, before);
});

test("the service's code is found", () => {
  for (const [body, expected] of [
    ['{"error":"channel_not_found"}', "channel_not_found"],
    ['{"error":{"code":"rate_limited","message":"Slow down"}}', "rate_limited"],
    ['{"error":{"type":"card_error"}}', "card_error"],
    ['{"code":20404,"message":"Not found"}', "20404"],
    ['{"errors":[{"code":"already_exists"}]}', "already_exists"],
    ['[{"errorCode":"X","code":"INVALID_FIELD"}]', "INVALID_FIELD"],
    ['{"error":"This is a sentence."}', undefined],
    ['{"code":true}', undefined],
    ["null", undefined],
    ["<html>", undefined],
    ["", undefined],
  ]) {
    answers(400, [], body);
    const { tag, val } = failure("GET", "https://h/");
    assert.deepEqual([tag, val.status, val.code, val.detail], ["upstream", 400, expected, body || undefined], body);
  }
  answers(503, [], "x".repeat(2000));
  assert.equal(failure("GET", "https://h/").val.detail.length, 512);
  assert.equal(request("GET", "https://h/", { throwForStatus: false }).status, 503);
});

test("Retry-After is seconds or a date", () => {
  for (const [value, expected] of [
    ["0", 0n],
    [" 120 ", 120_000n],
    ["18446744073709551615", 2n ** 64n - 1n],
    ["Sun, 06 Nov 1994 08:50:37 GMT", 60_000n],
    ["Sunday, 06-Nov-94 08:49:38 GMT", 1000n],
    ["Sun, 06 Nov 1994 08:00:00 GMT", 0n],
    ["+5", undefined],
    ["-1", undefined],
    ["1.5", undefined],
    ["soon", undefined],
    ["", undefined],
  ]) {
    answers(429, [["date", "Sun, 06 Nov 1994 08:49:37 GMT"], ["Retry-After", value]]);
    assert.equal(failure("GET", "https://h/").val.retryAfterMs, expected, value);
  }
});

test("errors of the exchange have their phase", () => {
  for (const [code, tag, part] of [
    [{ tag: "DNS-error", val: { rcode: "x", infoCode: 1 } }, "network", { phase: "dns" }],
    [{ tag: "connection-refused" }, "network", { phase: "connect" }],
    [{ tag: "TLS-certificate-error" }, "network", { phase: "tls" }],
    [{ tag: "HTTP-request-body-size", val: 7n }, "network", { phase: "send" }],
    [{ tag: "connection-terminated" }, "network", { phase: "response" }],
    [{ tag: "internal-error", val: "x" }, "network", { phase: undefined }],
    [{ tag: "HTTP-request-URI-invalid" }, "failed", { code: "invalid_request" }],
    [{ tag: "HTTP-request-denied" }, "failed", { code: "request_denied" }],
  ]) {
    host.answer = { tag: "err", val: code };
    const payload = failure("GET", "https://h/");
    assert.equal(payload.tag, tag, code.tag);
    assert.deepEqual({ ...payload.val, ...part }, payload.val, code.tag);
  }
});

test("a body that is no text or JSON fails", () => {
  answers(200, [], new Uint8Array([0xff]));
  const response = request("GET", "https://h/");
  assert.throws(() => response.text(), ({ payload }) => payload.val.code === "invalid_text");
  assert.throws(() => response.json(), ({ payload }) => payload.val.code === "invalid_json");
});

test("failures, segments and lines", () => {
  assert.deepEqual(invalidInput("", "pick one", { detail: "d" }).payload, {
    tag: "invalid-input",
    val: { field: undefined, message: "pick one", detail: "d" },
  });
  assert.equal(failed("empty", "It is empty.", { transient: true }).payload.val.transient, true);
  assert.equal(encodeSegment("a/b?c#d%e f"), "a%2Fb%3Fc%23d%25e%20f");
  assert.equal(encodeSegment(".."), "%2E%2E");
  log.warn("page is late", { page: 3, last: false });
  assert.deepEqual(host.lines, [
    ["warn", "page is late", [{ key: "page", value: "3" }, { key: "last", value: "false" }]],
  ]);
  suppressed("an ornament", new RangeError("boom"));
  assert.deepEqual(host.suppressed, [["an ornament", "RangeError: boom"]]);
});
