"""The smallest whole agent: find, load, two calls at once, one approved and one refused, an answer."""

import asyncio
import tempfile

from chapter10.companions.tools.gateway import SEARCH_TOOL, Gateway
from chapter10.companions.tools.registry import ToolRegistry
from chapter10.companions.tools.result_budget import ResultBudget
from chapter10.companions.tools.result_store import ResultStore

registry = ToolRegistry()


@registry.tool(effect="read", concurrency_safe=True)
async def price_of(order: str) -> int:
    """Tell the price of an order in cents."""
    return {"A": 1200, "B": 99000}[order]


@registry.tool(effect="irreversible_write", idempotency_key=lambda given: f"refund {given['order']}")
async def refund(order: str, cents: int) -> str:
    """Pay the price of an order back."""
    return f"{cents} cents for {order}"


async def model(turn):  # a real one is asked here, with the tools and the messages of the request
    calls = [[(SEARCH_TOOL, {"query": "order price"})], [("price_of", {"order": "A"}), ("price_of", {"order": "B"})]]
    calls += [[("refund", {"order": "A", "cents": 1200}), ("refund", {"order": "B", "cents": 99000})], []]
    for place, (name, arguments) in enumerate(calls[turn]):
        yield {"type": "tool_use", "id": f"call_{turn}_{place}", "name": name, "input": arguments}
    if not calls[turn]:
        yield {"type": "text", "text": "A is paid back. B waits for an approval."}


async def main(folder):
    def approve(asked):  # a person is asked here
        return asked.arguments["cents"] < 5000

    gateway = Gateway(registry, ResultBudget(ResultStore(folder)), approve=approve)
    gateway.ask("Pay A and B back.")
    while not gateway.finished:
        async with gateway.turn(model(len(gateway.request().messages) // 2)) as turn:
            async for update in turn:
                print(update.message.name, update.message.code or update.message.content)
    print(gateway.transcript[-1]["content"][0]["text"])


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
