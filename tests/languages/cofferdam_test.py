"""Tests of guest-sdk/python/cofferdam.py without a sandbox: the requests that it builds and the failures that it makes.

tests/languages.rs runs this with the bindings of examples/text in PYTHONPATH.
"""

import unittest
from unittest.mock import patch

import cofferdam
from cofferdam import Response, encode_segment, failed, invalid_input, log, request, suppressed
from componentize_py_types import Err


class Requests(unittest.TestCase):
    def setUp(self):
        self.sent, self.response = [], Response(200, [], b"{}")
        cofferdam._labels.clear()
        for patched in (
            patch("cofferdam.call.idempotency_key", return_value="k-1"),
            patch("cofferdam._send", side_effect=lambda *parts: self.sent.append(parts) or self.response),
        ):
            patched.start()
            self.addCleanup(patched.stop)

    def failure(self, *args, **options):
        with self.assertRaises(Err) as raised:
            request(*args, **options)
        return raised.exception.value.value

    def test_the_parts_of_a_request(self):
        request("POST", "HTTPS://h.example:8443/a?x=1#f", query={"b c": "d&e", "n": None, "t": True}, json={"k": "é"})
        request("PUT", "http://h.example", form=[("a b", "c&d"), ("n", None)], headers={"X-Trace": "1"})
        request("GET", "https://h.example/é/%2E%2E/x?", query={"q": "1"})
        self.assertEqual(
            self.sent,
            [
                (
                    "POST", "https", "h.example:8443", "/a?x=1&b%20c=d%26e&t=true",
                    [("content-type", b"application/json"), ("content-length", b"10")], '{"k":"é"}'.encode(),
                ),
                (
                    "PUT", "http", "h.example", "/",
                    [
                        ("x-trace", b"1"),
                        ("content-type", b"application/x-www-form-urlencoded"),
                        ("content-length", b"9"),
                    ],
                    b"a+b=c%26d",
                ),
                ("GET", "https", "h.example", "/%C3%A9/%2E%2E/x?q=1", [], b""),
            ],
        )

    def test_invalid_urls_are_refused(self):
        for url in ("h.example/x", "ftp://h.example", "https://", "https://u:p@h", "https://h/a b", "https://h\\@b/"):
            self.assertEqual(self.failure("GET", url).code, "invalid_request", url)
        self.assertEqual(self.sent, [])

    def test_a_label_identifies_one_request(self):
        for label, body in (("create", b"1"), ("create", b"1"), ("pay", b"2")):
            request("POST", "https://h/x", body=body, idempotency_key=label)
        keys = [dict(parts[4])["idempotency-key"] for parts in self.sent]
        self.assertEqual(keys, [b"k-1:create", b"k-1:create", b"k-1:pay"])
        for method, url, body in (
            ("PUT", "https://h/x", b"1"),
            ("POST", "https://h/y", b"1"),
            ("POST", "https://h/x", b"2"),
        ):
            failure = self.failure(method, url, body=body, idempotency_key="create")
            self.assertIn("`create`", failure.detail)
        self.assertEqual(len(self.sent), 3)

    def test_the_service_s_code_is_found(self):
        for body, expected in (
            (b'{"error":"channel_not_found"}', "channel_not_found"),
            (b'{"error":{"code":"rate_limited","message":"Slow down"}}', "rate_limited"),
            (b'{"error":{"type":"card_error"}}', "card_error"),
            (b'{"code":20404,"message":"Not found"}', "20404"),
            (b'{"errors":[{"code":"already_exists"}]}', "already_exists"),
            (b'[{"errorCode":"X","code":"INVALID_FIELD"}]', "INVALID_FIELD"),
            (b'{"error":"This is a sentence."}', None),
            (b'{"code":true}', None),
            (b"<html>", None),
            (b"", None),
        ):
            self.response = Response(400, [], body)
            failure = self.failure("GET", "https://h/")
            self.assertEqual((failure.status, failure.code, failure.detail), (400, expected, body.decode() or None))
        self.response = Response(503, [], b"x" * 2000)
        self.assertEqual(len(self.failure("GET", "https://h/").detail), 512)
        self.assertEqual(request("GET", "https://h/", raise_for_status=False).status, 503)

    def test_retry_after_is_seconds_or_a_date(self):
        for value, expected in (
            (b"0", 0),
            (b" 120 ", 120_000),
            (b"18446744073709551615", 2**64 - 1),
            (b"Sun, 06 Nov 1994 08:50:37 GMT", 60_000),
            (b"Sunday, 06-Nov-94 08:49:38 GMT", 1000),
            (b"Sun, 06 Nov 1994 08:00:00 GMT", 0),
            (b"+5", None),
            (b"-1", None),
            (b"1.5", None),
            (b"soon", None),
            (b"", None),
        ):
            headers = [("date", b"Sun, 06 Nov 1994 08:49:37 GMT"), ("Retry-After", value)]
            self.response = Response(429, headers, b"")
            self.assertEqual(self.failure("GET", "https://h/").retry_after_ms, expected, value)

    def test_bodies_that_are_no_text_or_json_fail(self):
        for read, code in ((Response.text, "invalid_text"), (Response.json, "invalid_json")):
            with self.assertRaises(Err) as raised:
                read(Response(200, [], b"\xff"))
            self.assertEqual(raised.exception.value.value.code, code)


class Others(unittest.TestCase):
    def test_failures_are_those_of_the_contract(self):
        failure = invalid_input("", "pick one", detail="d").value.value
        self.assertEqual((failure.field, failure.message, failure.detail), (None, "pick one", "d"))
        failure = failed("empty", "It is empty.", transient=True).value.value
        self.assertEqual((failure.code, failure.transient), ("empty", True))

    def test_a_segment_stays_one_segment(self):
        self.assertEqual(encode_segment("a/b?c#d%e f"), "a%2Fb%3Fc%23d%25e%20f")
        self.assertEqual(encode_segment(".."), "%2E%2E")

    def test_lines_have_fields(self):
        with patch("cofferdam._host_log.log") as line, patch("cofferdam._host_log.suppressed") as event:
            log.warn("page is late", page=3, last=False)
            suppressed("an ornament", ValueError("boom"))
        level, message, fields = line.call_args.args
        self.assertEqual((level.name, message), ("WARN", "page is late"))
        self.assertEqual([(field.key, field.value) for field in fields], [("page", "3"), ("last", "false")])
        event.assert_called_once_with("an ornament", "boom")


if __name__ == "__main__":
    unittest.main()
