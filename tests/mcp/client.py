"""A conversation with the server by the official Python SDK, over both transports: client.py COFFERDAM HOME URL."""

import asyncio
import logging
import sys

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client


class Warnings(logging.Handler):
    """Whatever the SDK warns of."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


async def converse(target, mode="auto"):
    async with Client(target, mode=mode) as client:
        listed = (await client.list_tools()).tools
        names = [tool.name for tool in listed]
        assert "hello__greet" in names and "conformance__test_simple_text" in names, names
        value = await client.call_tool("hello__greet", {"name": "Ada", "tone": "warm"})
        assert not value.is_error, value
        assert value.structured_content["value"]["text"] == "Hello, dear Ada!", value
        failure = await client.call_tool("hello__fail", {"kind": "upstream"})
        assert failure.is_error and failure.structured_content["error"]["class"] == "external_api_error", failure
        assert failure.content[0].text.startswith("Action 'hello__fail' failed: external_api_error ("), failure
        wrong = await client.call_tool("hello__greet", {"name": 5})
        assert wrong.is_error and wrong.structured_content["error"]["code"] == "validation", wrong
        try:
            await client.call_tool("no_such_tool", {})
        except Exception as error:
            assert "no_such_tool" in str(error), error
        else:
            raise AssertionError("a tool that is not there was called")
        return len(names)


async def main():
    program, home, url = sys.argv[1:4]
    args = ["mcp", "--operations", "hello,conformance"]
    server = StdioServerParameters(command=program, args=args, env={"COFFERDAM_HOME": home})
    over_stdio = await converse(stdio_client(server))
    over_http = await converse(url)
    assert over_stdio == over_http, (over_stdio, over_http)
    # With a session, which is ended by a DELETE.
    warnings = Warnings()
    logging.getLogger("mcp").addHandler(warnings)
    assert await converse(url, "legacy") == over_http
    assert not warnings.said, warnings.said
    print(f"both transports: {over_http} tools, a value, a failure, a refusal")


asyncio.run(main())
