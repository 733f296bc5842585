"""The tasks of benches/ts/eval.ts for `vf-eval`: 64 questions, of which an answer is right that holds the word `Oslo`."""

import verifiers.v1 as vf

__all__ = ["Capitals"]


class Capital(vf.Task):
    @vf.reward
    async def is_right(self, trace) -> float:
        return float("Oslo" in (trace.last_reply or ""))


class Capitals(vf.Taskset[Capital]):
    def load(self):
        return [Capital(vf.TaskData(prompt=f"Question {index}: capital of Norway?"), self.config.task) for index in range(64)]
