"""The rival of benches/ts/vllm.ts: completions asked for with aiohttp.

    python completions.py URL

A request `ask` has `body` (what is sent, but for its id), `requests` and `in_flight`.
"""

import asyncio
import platform
import sys

from answering import serve  # before all that prints

import aiohttp

url = f"{sys.argv[1]}/v1/completions"
loop = asyncio.new_event_loop()


async def open_session():
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


session = loop.run_until_complete(open_session())


async def complete(body, index):
    async with session.post(url, json={**body, "request_id": f"request-{index}"}) as response:
        choice = (await response.json())["choices"][0]
    if choice["prompt_token_ids"] != body["prompt"]:
        raise RuntimeError("the prompt must be the one that was sent")
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def ask(body, requests, in_flight):
    async def worker(todo):
        return [await complete(body, index) for index in todo]

    async def run():
        todo = iter(range(requests))
        return await asyncio.gather(*(worker(todo) for _ in range(in_flight)))

    done = [one for many in loop.run_until_complete(run()) for one in many]
    return {"completions": len(done), "tokens": sum(len(ids) for ids, _ in done)}


serve({"ask": ask}, versions={"python": platform.python_version(), "aiohttp": aiohttp.__version__})
