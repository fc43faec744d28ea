"""Drive `python -m chapter10 serve` with an official client, and measure it beside the official server.

    PYTHON_WITH_A_CLIENT .ci/official_clients.py mcp1|mcp2|fastmcp SERVER_PYTHON
    PYTHON_WITH_A_CLIENT .ci/official_clients.py speed SERVER_PYTHON

The first form needs `mcp` 1.x, `mcp` 2.x or `fastmcp` in the Python that runs it; the second one `mcp`, 1.x or 2.x.
`SERVER_PYTHON` runs the server from the current folder and needs nothing. Each check is a line; the exit code is 0 when
all are fine.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HANDLERS = ["--handlers", "chapter10.tests.served"]
TASKS = "io.modelcontextprotocol/tasks"
failed = 0


def check(what, fine, seen=""):
    """Say one line of how it went."""
    global failed
    failed += not fine
    print(f"[{'OK' if fine else 'X'}] {what}" + ("" if fine else f": {seen!r}"), flush=True)


def text_of(result):
    """Return the text of a result, read as JSON where it is."""
    text = result.content[0].text
    try:
        return json.loads(text)
    except ValueError:
        return text


def is_error(result):
    """Return whether a result says that it is an error; the two clients name it differently."""
    return getattr(result, "is_error", None) or getattr(result, "isError", False)


def command(server, *options):
    """Return the arguments of a server."""
    return ["-m", "chapter10", "serve", *map(str, options)]


async def tools_and_calls(call, list_tools, many_list, many_call):
    """List, search, load and call: the same for every client."""
    names = [tool.name for tool in await list_tools()]
    check("list: the tools that this identity may see", names[:3] == ["child_reads", "count", "echo"], names)
    result = await call("echo", {"text": "一"})
    check("call", text_of(result) == "一", result)
    result = await call("noisy", {"text": "x"})
    check("call: what a handler and its child print breaks nothing", text_of(result) == "x", result)
    result = await call("echo", {"text": 3})
    check("call: bad arguments are a result", is_error(result) and text_of(result)["error"] == "invalid_arguments")
    names = [tool.name for tool in await many_list()]
    check("300 tools: three are listed", names == ["tools_search", "tools_load", "tools_call"], names)
    found = text_of(await many_call("tools_search", {"query": "查询订单状态"}))["tools"]
    check("search", found[0]["name"] == "orders.get", found)
    named = {"name": found[0]["name"], "digest": found[0]["digest"]}
    loaded = text_of(await many_call("tools_load", {"tools": [named]}))["tools"]
    check("load", loaded[0]["parameters"]["required"] == ["record_id"], loaded)
    result = await many_call("tools_call", {**named, "arguments": {"record_id": "A"}})
    check("call of a loaded tool", text_of(result)["error"] == "no_handler", result)


async def by_number(call, key):
    """A job of a client that does not know tasks, from its number to its result."""
    receipt = text_of(await call("reports_export", {"month": "2026-08", "action_key": key}))
    for _ in range(200):
        job = text_of(await call(receipt["ask"]["name"], receipt["ask"]["arguments"]))
        if job["state"] == "succeeded":
            break
        await asyncio.sleep(0.05)
    check("job: from its number to its result", json.loads(job["result"])["month"] == "2026-08", job)
    again = text_of(await call("reports_export", {"month": "2026-08", "action_key": key}))
    check("job: the same key is the same job", again["job"] == receipt["job"], again)
    told = text_of(await call(receipt["cancel"]["name"], receipt["cancel"]["arguments"]))
    check("job: a cancel of what is done changes nothing", told["state"] == "succeeded", told)


async def mcp1(server, folder):
    """The last 1.x: `initialize`, no tasks."""
    from contextlib import asynccontextmanager

    from mcp import ClientSession, McpError, StdioServerParameters, types
    from mcp.client.stdio import stdio_client

    @asynccontextmanager
    async def connected(*options):
        parameters = StdioServerParameters(command=server, args=command(server, *options), cwd=os.getcwd())
        async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
            yield session, await session.initialize()

    db = ["--db", folder / "jobs.db"]
    async with connected(*HANDLERS, *db, "--owner", "alice", "--grant", "reports:write") as (session, greeting):
        check("initialize", greeting.protocolVersion == "2025-11-25", greeting)
        await session.send_ping()

        async def listed():
            return (await session.list_tools()).tools

        async with connected() as (many, _):

            async def many_listed():
                return (await many.list_tools()).tools

            await tools_and_calls(session.call_tool, listed, many_listed, many.call_tool)
        seen = []

        async def heard(done, total, message):
            seen.append((done, total))

        await session.call_tool("count", {}, progress_callback=heard)
        check("progress", seen == [(1, 3), (2, 3), (3, 3)], seen)

        number = session._request_id
        waiting = asyncio.ensure_future(session.call_tool("stubborn", {}))
        await session.send_ping()
        cancelled = types.CancelledNotification(
            method="notifications/cancelled", params=types.CancelledNotificationParams(requestId=number)
        )
        await session.send_notification(types.ClientNotification(cancelled))
        await session.send_ping()
        check("cancel: no answer, and the next request is served", not waiting.done())
        waiting.cancel()
        await by_number(session.call_tool, "k1")
        try:
            await session.call_tool("reports_export", {"month": "2026-07", "action_key": "k1"})
        except McpError as error:
            check("job: another intent under a key is -32602", error.error.code == -32602, error)
        else:
            check("job: another intent under a key is -32602", False)
        async with connected(*HANDLERS, *db, "--owner", "bob") as (bob, _):
            names = [tool.name for tool in (await bob.list_tools()).tools]
            check("two identities: two lists", "reports_export" not in names and "echo" in names, names)
            theirs = text_of(await bob.call_tool("jobs_get", {"job": 1}))
            check("two identities: a foreign job is none", theirs["error"] == "not_found", theirs)


def tasks_extension(handles):
    """Return the extension that `mcp` 2.x lets one add: what to do with `resultType: task`."""
    from typing import Literal

    import mcp_types as types
    from mcp.client import ClientExtension, ResultClaim
    from pydantic import ConfigDict

    class Task(types.Result):
        model_config = ConfigDict(extra="allow", populate_by_name=True)
        result_type: Literal["task"] = "task"

    async def resolve(task, context):
        handle = task.model_dump(by_alias=True)["taskId"]
        handles.append(handle)
        for _ in range(200):
            found = await get_task(context.session, handle)
            if found["status"] != "working":
                break
            await asyncio.sleep(0.05)
        return types.CallToolResult.model_validate(found["result"])

    class Tasks(ClientExtension):
        identifier = TASKS

        def claims(self):
            return [ResultClaim(result_type="task", model=Task, resolve=resolve)]

    return Tasks()


async def get_task(session, handle, method="tasks/get"):
    """Ask for a task as the extension says, and return what came as it came."""
    import mcp_types as types
    from pydantic import ConfigDict

    class Anything(types.Result):
        model_config = ConfigDict(extra="allow")

    class Params(types.RequestParams):
        task_id: str

    class Request(types.Request[Params, str]):
        method: str
        params: Params

    asked = Request(method=method, params=Params(task_id=handle))
    return (await session.send_request(asked, Anything)).model_dump(by_alias=True)


async def mcp2(server, folder):
    """The last 2.x, in both eras; tasks with an extension of a few lines."""
    from mcp import Client, MCPError, StdioServerParameters

    def parameters(*options):
        return StdioServerParameters(command=server, args=command(server, *options), cwd=os.getcwd())

    db = ["--db", folder / "jobs.db"]
    alice = [*HANDLERS, *db, "--owner", "alice", "--grant", "reports:write"]
    for mode in ("auto", "legacy"):
        async with Client(parameters(*alice), mode=mode) as client, Client(parameters(), mode=mode) as many:
            version = client.protocol_version
            check(f"{mode}: the version", version == {"auto": "2026-07-28", "legacy": "2025-11-25"}[mode], version)

            async def listed(client=client):
                return (await client.list_tools()).tools

            async def many_listed(many=many):
                return (await many.list_tools()).tools

            await tools_and_calls(client.call_tool, listed, many_listed, many.call_tool)
            seen = []

            async def heard(done, total, message, seen=seen):
                seen.append((done, total))

            await client.call_tool("count", {}, progress_callback=heard)
            check(f"{mode}: progress", seen == [(1, 3), (2, 3), (3, 3)], seen)
            try:
                await asyncio.wait_for(client.call_tool("stubborn", {}), 0.5)
            except TimeoutError:
                result = await client.call_tool("echo", {"text": "on"})
                check(f"{mode}: cancel, and the next request is served", text_of(result) == "on", result)
            await by_number(client.call_tool, f"k-{mode}")
            try:
                await get_task(client.session, "1.x")
            except MCPError as error:
                expected = {"auto": -32021, "legacy": -32601}[mode]
                check(f"{mode}: tasks/get without the extension", error.code == expected, error)
    handles = []
    async with Client(parameters(*alice), extensions=[tasks_extension(handles)]) as client:
        result = await client.call_tool("reports_export", {"month": "2026-08"})
        check("task: from its handle to its result", text_of(result)["month"] == "2026-08", result)
        result = await client.call_tool("reports_export", {"month": "2026-13"})
        check("task: a failure of the tool is a result", is_error(result), result)
        done = await get_task(client.session, handles[0])
        check("task: found again", done["status"] == "completed", done)
        answer = await get_task(client.session, handles[0], "tasks/cancel")
        check("task: a cancel is acknowledged", "status" not in answer, answer)
    async with Client(parameters(*alice), extensions=[tasks_extension([])]) as client:
        done = await get_task(client.session, handles[0])
        check("task: found again after a restart of both sides", done["status"] == "completed", done)
    bobs = [*HANDLERS, *db, "--owner", "bob"]
    async with Client(parameters(*bobs), extensions=[tasks_extension([])]) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        check("two identities: two lists", "reports_export" not in names and "echo" in names, names)
        try:
            await get_task(client.session, handles[0])
            check("two identities: a foreign task is none", False)
        except MCPError as error:
            check("two identities: a foreign task is none", error.code == -32602, error)


async def fastmcp(server, folder):
    """The client of `fastmcp`."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    def client_of(*options):
        return Client(StdioTransport(server, command(server, *options), cwd=os.getcwd(), keep_alive=False))

    db = ["--db", folder / "jobs.db"]
    alice = [*HANDLERS, *db, "--owner", "alice", "--grant", "reports:write"]
    async with client_of(*alice) as client, client_of() as many:

        def caller(client):
            async def call(name, arguments, **options):
                return await client.call_tool(name, arguments, raise_on_error=False, **options)

            return call

        await tools_and_calls(caller(client), client.list_tools, many.list_tools, caller(many))
        seen = []

        async def heard(done, total, message):
            seen.append((done, total))

        await client.call_tool("count", {}, progress_handler=heard)
        check("progress", seen == [(1, 3), (2, 3), (3, 3)], seen)
        try:
            await asyncio.wait_for(client.call_tool("stubborn", {}), 0.5)
        except TimeoutError:
            result = await caller(client)("echo", {"text": "on"})
            check("cancel, and the next request is served", text_of(result) == "on", result)
        await by_number(caller(client), "kf")
    async with client_of(*HANDLERS, *db, "--owner", "bob") as bob:
        names = [tool.name for tool in await bob.list_tools()]
        check("two identities: two lists", "reports_export" not in names and "echo" in names, names)


THEIRS = """
try:
    from mcp.server.mcpserver import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server
server = Server("theirs")
@server.tool()
def nothing() -> str:
    return ""
@server.tool()
async def nothing_async() -> str:
    return ""
server.run("stdio")
"""
OURS = """
TOOLS = []
from chapter10.companions.tools.registry import ToolSpec
def nothing() -> str:
    return ""
async def nothing_async() -> str:
    return ""
for function in (nothing, nothing_async):
    TOOLS.append(ToolSpec(function.__name__, "Nothing.", "read", 30, 1, 100, function))
"""


class Line:
    """A client of a few lines, the same for both servers: it writes a line and waits for its answer."""

    def __init__(self, arguments, folder):
        self.number = 0
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), str(folder)])}
        self.start = time.perf_counter()
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.getcwd(),
            env=environment,
        )
        self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "l", "version": "1"})
        self.first = time.perf_counter() - self.start
        self.process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def ask(self, method, **params):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        while json.loads(line := self.process.stdout.readline()).get("id") != self.number:
            pass
        return json.loads(line)

    def calls(self, name, times):
        start = time.perf_counter()
        for _ in range(times):
            answer = self.ask("tools/call", name=name, arguments={})
            assert not answer["result"].get("isError"), answer
        return time.perf_counter() - start

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def speed(server, folder):
    """First answer of nine starts, and 1,000 calls in turns of 100 of one and the other."""
    (folder / "ours.py").write_text(OURS, encoding="utf-8")
    ours = [server, "-m", "chapter10", "serve", "--handlers", "ours"]
    theirs = [sys.executable, "-c", THEIRS]
    firsts = []
    bare = [server, "-c", "import sys; print('{\"id\": 1}', flush=True); sys.stdin.read()"]
    for arguments in [ours] * 10 + [bare] * 5 + [theirs] * 2:
        line = Line(arguments, folder)
        firsts.append(round(line.first * 1000))
        line.end()
    print(f"first answer, ms: ours {firsts[1:10]} (a bare Python {firsts[10:15]}), theirs {firsts[15:]}")
    limit = max(200, min(firsts[10:15]) + 100)  # on a busy machine a bare Python alone takes that long
    check(f"first answer within {limit} ms (best of nine)", min(firsts[1:10]) <= limit)
    for name in ("nothing", "nothing_async"):
        mine, other = Line(ours, folder), Line(theirs, folder)
        mine.calls(name, 50), other.calls(name, 50)
        turns = [(mine.calls(name, 100), other.calls(name, 100)) for _ in range(10)]
        mine.end(), other.end()
        total = [sum(turn[side] for turn in turns) for side in (0, 1)]
        print(f"{name}: 1,000 calls, s: ours {total[0]:.2f}, theirs {total[1]:.2f}, ratio {total[0] / total[1]:.2f}")
        check(f"{name}: within 1.5 times the official server", total[0] <= 1.5 * total[1], total)


def main():
    kind, server = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as name:
        if kind == "speed":
            speed(server, Path(name))
        else:
            asyncio.run({"mcp1": mcp1, "mcp2": mcp2, "fastmcp": fastmcp}[kind](server, Path(name)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
