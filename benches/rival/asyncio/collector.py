"""The rival of benches/ts/collector.ts: the same rollouts on asyncio, tokens in and out, with a policy that answers from a script.

    python3 collector.py

A request `crowd` has `alphabet` and `special` (the ids of characters and of the marks of ChatML), `question`, `answer` and `page` (what
user, policy and environment say), `groups`, `group_size` and `turns`. The answer tells the ids of one rollout.
"""

import asyncio
import platform
import statistics

from answering import serve


class Pages:
    """An environment that answers every turn with the same message."""

    def __init__(self, question, page):
        self.question, self.page = question, page

    async def init(self):
        return [{"role": "user", "content": self.question}]

    async def step(self, message):
        return [{"role": "user", "content": self.page}]


class ChatMl:
    """Messages to ids of characters, and back."""

    def __init__(self, alphabet, special):
        self.ids = {character: index for index, character in enumerate(alphabet)}
        self.characters = alphabet
        self.start, self.end = special["<|im_start|>"], special["<|im_end|>"]

    def encode(self, text):
        ids = self.ids
        return [ids[character] for character in text]

    def prompt(self, messages):
        """The messages, and the beginning of an answer."""
        ids = []
        for message in messages:
            ids += [self.start, *self.encode(f"{message['role']}\n{message['content']}"), self.end, *self.encode("\n")]
        return ids + [self.start, *self.encode("assistant\n")]

    def parse(self, completion):
        text = "".join(self.characters[token] for token in completion if token != self.end)
        return {"role": "assistant", "content": text}


class Scripted:
    """Answers in a later turn of the event loop, as an engine does."""

    def __init__(self, answer):
        self.answer = answer

    async def generate(self, ids):
        await asyncio.sleep(0)
        return list(self.answer), [-0.1] * len(self.answer)


async def run_rollout(policy, env, chat, turns):
    """One rollout: its ids, which of them were sampled, and their log-probs."""
    messages = await env.init()
    ids = chat.prompt(messages)
    mask, log_probs, turn_bounds = [0] * len(ids), [0.0] * len(ids), []
    for turn in range(turns):
        completion, told = await policy.generate(ids)
        turn_bounds.append((len(ids), len(ids) + len(completion)))
        ids += completion
        mask += [1] * len(completion)
        log_probs += told
        message = chat.parse(completion)
        new = await env.step(message)
        messages += [message, *new]
        if turn + 1 < turns:
            since = chat.encode("\n") + chat.prompt(new)
            ids += since
            mask += [0] * len(since)
            log_probs += [0.0] * len(since)
    return {"ids": ids, "mask": mask, "log_probs": log_probs, "messages": messages, "turns": turn_bounds}


async def run_group(policy, make_env, chat, turns, group_size):
    """Siblings side by side, and how each compares with the others."""
    rollouts = await asyncio.gather(*(run_rollout(policy, make_env(), chat, turns) for _ in range(group_size)))
    rewards = [float(len(rollout["turns"])) for rollout in rollouts]
    mean = statistics.fmean(rewards)
    for rollout, reward in zip(rollouts, rewards):
        rollout["reward"], rollout["advantage"] = reward, reward - mean
    return rollouts


def crowd(alphabet, special, question, answer, page, groups, group_size, turns):
    chat = ChatMl(alphabet, special)
    policy = Scripted(answer)

    async def run():
        make_env = lambda: Pages(question, page)  # noqa: E731
        return await asyncio.gather(*(run_group(policy, make_env, chat, turns, group_size) for _ in range(groups)))

    done = asyncio.run(run())
    if any(len(rollout["turns"]) != turns for group in done for rollout in group):
        raise RuntimeError("a rollout lacks turns")
    return {"ids": done[-1][-1]["ids"]}


serve({"crowd": crowd}, versions={"python": platform.python_version()})
