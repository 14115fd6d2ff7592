"""A person answers in the official Python SDK, over both transports and lifecycles: elicitation.py COFFERDAM HOME URL POST."""

import asyncio
import sys

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp_types import ElicitResult

ANSWERS = {
    "approve": (ElicitResult(action="accept", content={"decision": "approve", "reason": "ticket 17"}), None),
    "deny": (ElicitResult(action="accept", content={"decision": "deny", "reason": "not now"}), "approval_denied"),
    "decline": (ElicitResult(action="decline"), "approval_denied"),
    "cancel": (ElicitResult(action="cancel"), "approval_required"),
    "none": (None, "approval_required"),
}


async def call(target, mode, answer, url):
    """The result of the call, and the forms that were shown."""
    forms = []

    async def person(context, params):
        forms.append(params)
        return answer

    callback = person if answer else None
    async with Client(target, mode=mode, elicitation_callback=callback) as client:
        return await client.call_tool("probe__post", {"url": url, "body": "b"}), forms


async def main():
    program, home, url, post = sys.argv[1:5]
    args = ["mcp", "--operations", "probe.post"]
    server = StdioServerParameters(command=program, args=args, env={"COFFERDAM_HOME": home})
    for transport in ("stdio", "http"):
        for mode in ("auto", "legacy"):
            for name, (answer, code) in ANSWERS.items():
                target = stdio_client(server) if transport == "stdio" else url
                path = f"{post}{transport}-{mode}-{name}?form"
                result, forms = await call(target, mode, answer, path)
                assert len(forms) == (0 if answer is None else 1), (path, forms)
                assert all(path in form.message for form in forms), forms
                told = result.structured_content.get("error", {}).get("code")
                assert (result.is_error, told) == (code is not None, code), (path, result)
    print("both transports, both lifecycles: approved, denied, declined, cancelled, not asked")


asyncio.run(main())
