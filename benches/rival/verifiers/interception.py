"""The rival of benches/ts/agent.ts: the interception server of verifiers, in front of a server that answers at once.

    python interception.py URL

A line with the number of `agents` is answered with the `url` and their `keys`, the next line with the number of `turns` of each.
"""

import asyncio
import contextlib
import json
import sys
import time

from answering import answer  # before all that prints

import verifiers
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.session import RolloutSession
from verifiers.v1.state import State
from verifiers.v1.task import TaskData
from verifiers.v1.trace import AgentInfo, Trace, TraceTask

client = EvalClientConfig(base_url=f"{sys.argv[1]}/v1", api_key_var="FULMAR_BENCH_KEY")


def session():
    data = TaskData(prompt="Read the report page by page.")
    task = TraceTask(type="Task", data=data, key="", hash="")
    trace = Trace(task=task, state=State(), agent=AgentInfo(config=AgentConfig()))
    return RolloutSession(ctx=ModelContext(model="any", client=client), trace=trace)


async def main():
    loop = asyncio.get_running_loop()
    async with InterceptionServer() as server:
        answer(versions={"verifiers": verifiers.__version__})
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            sessions = [session() for _ in range(json.loads(line)["agents"])]
            async with contextlib.AsyncExitStack() as stack:
                slots = [await stack.enter_async_context(server.acquire(each)) for each in sessions]
                start_s = time.process_time()
                answer(url=server.base_url, keys=[key for _, key, _ in slots])
                await loop.run_in_executor(None, sys.stdin.readline)
                cpu_ms = (time.process_time() - start_s) * 1000
            answer(cpuMs=cpu_ms, turns=[each.trace.num_turns for each in sessions])


asyncio.run(main())
