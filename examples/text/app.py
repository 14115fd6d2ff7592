"""The operations of the connector: one method for each function in wit/text.wit."""

import re
import socket

from cofferdam import invalid_input, log, request
from wit_world import exports
from wit_world.exports.text import Count, Published


def count(text: str) -> Count:
    return Count(len(text), len(text.split()), len(text.splitlines()))


class Text(exports.Text):
    def count_text(self, text: str) -> Count:
        log.info("counting", characters=len(text))
        return count(text)

    def words(self, text: str) -> list[str]:
        return text.split()

    def substitute(self, pattern: str, replacement: str, text: str) -> str:
        try:
            return re.sub(pattern, replacement, text)
        except re.error as error:
            raise invalid_input("pattern", f"not a regular expression: {error.msg}") from error

    def count_page(self, url: str) -> Count:
        return count(request("GET", url).text())

    def publish(self, url: str, text: str) -> Published:
        response = request("POST", url, body=text, idempotency_key="publish")
        return Published(response.status, response.text())

    def open_socket(self) -> None:
        socket.socket().connect(("127.0.0.1", 80))
