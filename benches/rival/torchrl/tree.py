"""A rival of benches/ts/tree.ts: TorchRL's hashes, maps, forests and scores.

    python tree.py

Each line of standard input is a request, `{kind: "result" | "run", name, repeats}`.
"""

from answering import serve

import sys

import numpy as np
import torch
import torchrl
from tensordict import TensorDict
from torchrl.data import MCTSForest, SipHash, TensorDictMap
from torchrl.modules.mcts import PUCTScore

HASHED, WIDTH, MAPPED = 100_000, 4, 1000
ROLLOUTS, STEPS, ACTIONS = 32, 10, 9


def numbers(count):
    """The numbers of benches/ts/tree.ts with salt 0 and scale 1."""
    places = np.arange(1, count + 1, dtype=np.uint32)
    with np.errstate(over="ignore"):
        bits = places * np.uint32(0x9E3779B1) ^ np.uint32(0x85EBCA6B)
        bits = (bits ^ (bits >> 15)) * np.uint32(0x2C1B3C6D)
        bits = (bits ^ (bits >> 12)) * np.uint32(0x297A2D39)
        bits = (bits ^ (bits >> 15)) >> 12
    return torch.from_numpy(np.float32(bits / 2**20 - 0.5))


def rollout(index):
    def state(step):
        return 0 if step == 0 else 1 + index * STEPS + step

    def column(of):
        return torch.tensor([[of(step)] for step in range(STEPS)])

    done = torch.tensor([[step == STEPS - 1] for step in range(STEPS)])
    after = {"observation": column(lambda step: state(step + 1)), "reward": numbers(STEPS)[:, None]}
    after |= {"done": done, "terminated": done.clone()}
    before = {"observation": column(state), "action": column(lambda step: step or index)}
    return TensorDict(before | {"next": TensorDict(after, [STEPS])}, [STEPS])


def forest_of(rollouts):
    forest = MCTSForest(max_size=10_000)
    for one in rollouts:
        forest.extend(one.clone())
    return forest


rows = numbers(HASHED * WIDTH).reshape(HASHED, WIDTH)
hash_rows = SipHash()
keys = TensorDict({"key": numbers(MAPPED * WIDTH).reshape(MAPPED, WIDTH)}, [MAPPED])
values = TensorDict({"value": numbers(MAPPED)[:, None]}, [MAPPED])
map_of = TensorDictMap.from_tensordict_pair(source=keys, dest=values, in_keys=["key"], max_size=MAPPED)
map_of[keys] = values
rollouts = [rollout(index) for index in range(ROLLOUTS)]
grown = forest_of(rollouts)
root = rollouts[0][0]
score = PUCTScore(c=5)
places = torch.arange(ACTIONS, dtype=torch.float32)
node = TensorDict(
    {
        "win_count": places,
        "visits": places + 1,
        "total_visits": torch.tensor(ACTIONS * (ACTIONS + 1) / 2),
        "prior_prob": torch.full((ACTIONS,), 1 / ACTIONS),
    }
)
sys.setrecursionlimit(10_000)


def set_rows():
    map_of[keys] = values


WORKS = {
    "hash": (lambda: hash_rows(rows), lambda: [int(one) & 0xFFFFFFFF for one in hash_rows(rows).tolist()]),
    "set": (set_rows, lambda: [MAPPED]),
    "get": (lambda: map_of[keys], lambda: map_of[keys]["value"].reshape(-1).tolist()),
    "extend": (lambda: forest_of(rollouts), lambda: [len(grown)]),
    "tree": (
        lambda: grown.get_tree(root, compact=False),
        lambda: [grown.get_tree(root, compact=False).num_vertices()],
    ),
    "score": (lambda: score(node), lambda: score(node)["score"].tolist()),
}


def result(name, request):
    return {"values": WORKS[name][1]()}


def run(name, request, repeats):
    for _ in range(repeats):
        WORKS[name][0]()


serve({"result": result, "run": run}, versions={"torchrl": torchrl.__version__})
