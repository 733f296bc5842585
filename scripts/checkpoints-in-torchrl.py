"""Loads folders that this repository wrote into TorchRL's buffers and compares what is in them.

Run by hand, with torchrl 0.14.1 and h5py installed:

    cargo run -p fulmar-replay-files --example checkpoints -- FOLDER
    python scripts/checkpoints-in-torchrl.py FOLDER

Says one line a folder and exits with 1 if one differs.
"""

import sys
from pathlib import Path

import torch
from tensordict import TensorDict
from torchrl.data import (
    CompressedListStorage,
    FlatStorageCheckpointer,
    H5StorageCheckpointer,
    LazyTensorStorage,
    NestedStorageCheckpointer,
    PrioritizedSampler,
    SamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorDictRoundRobinWriter,
)

CAPACITY = 8
FORMS = {"flat": FlatStorageCheckpointer, "nested": NestedStorageCheckpointer, "h5": H5StorageCheckpointer}


def step(number):
    """What `examples/checkpoints.rs` writes as step `number`."""
    observation = torch.full((2,), float(number % 3 + number // 3 * 100))
    ends, never = torch.tensor([number % 3 == 2]), torch.tensor([False])
    after = {"observation": observation + 1, "reward": torch.tensor([number / 2]), "done": ends, "terminated": ends}
    return TensorDict(
        {
            "observation": observation,
            "action": torch.tensor(number),
            "done": never,
            "terminated": never,
            "truncated": never,
            "next": {**after, "truncated": never},
        }
    )


def buffer(kind):
    """The buffer that a folder is loaded into."""
    storage = CompressedListStorage(CAPACITY) if kind == "compressed" else LazyTensorStorage(CAPACITY)
    sampler = {
        "prioritized": lambda: PrioritizedSampler(CAPACITY, alpha=0.1, beta=0.1),
        "without_replacement": SamplerWithoutReplacement,
    }.get(kind, lambda: None)()
    writer = {
        "max_value": lambda: TensorDictMaxValueWriter(rank_key=("next", "reward")),
        "generations": lambda: TensorDictRoundRobinWriter(track_generations=True),
    }.get(kind, lambda: None)()
    given = {"sampler": sampler, "writer": writer}
    rb = TensorDictReplayBuffer(
        storage=storage, batch_size=2, **{name: part for name, part in given.items() if part is not None}
    )
    if kind in FORMS:
        rb.storage.checkpointer = FORMS[kind]()
    return rb


def check(path):
    """Loads the folder at `path`; an AssertionError says what differs."""
    kind, count = path.name.rsplit("_", 1)
    count = int(count)
    rb = buffer(kind)
    rb.loads(path)
    rows = min(count, CAPACITY)
    assert len(rb) == rows, f"length {len(rb)}, not {rows}"
    expected = [step(number) for number in range(rows)]
    for number in range(CAPACITY, count):
        expected[number % CAPACITY] = step(number)
    if kind == "max_value":
        # The newest have the highest rewards here, so each takes the place of the oldest, as in a ring.
        tops = {(round(value, 6), int(row)) for value, row in rb._writer._current_top_values}
        assert tops == {(item["next", "reward"].item(), row) for row, item in enumerate(expected)}, tops
    else:
        assert rb.write_count == count, f"write_count {rb.write_count}"
        assert rb._writer._cursor == count % CAPACITY, f"cursor {rb._writer._cursor}"
    if kind == "compressed":
        # Upstream neither writes nor loads dictionaries in compressed dictionaries.
        expected = [item.exclude("next") for item in expected]
    for row, item in enumerate(expected):
        got = rb._storage[row]
        for key in item.keys(True, True):
            assert torch.equal(got[key], item[key]), f"row {row}, {key}: {got[key]}, not {item[key]}"
    if kind == "prioritized":
        priorities = torch.ones(rows)
        priorities[:5] = torch.tensor([0.5, 1.5, 2.5, 3.5, 4.5])
        leaves = torch.tensor([rb._sampler._sum_tree[row] for row in range(rows)])
        assert torch.allclose(leaves, (priorities + 1e-8) ** 0.7), leaves
    if kind == "without_replacement":
        assert len(rb._sampler._sample_list) == rows - 2, rb._sampler._sample_list
    if kind == "generations":
        assert rb._writer._generation[:rows].tolist() == [(count - 1 - row) // CAPACITY for row in range(rows)]
    assert len(rb.sample()) == 2


def main():
    differ = 0
    for path in sorted(Path(sys.argv[1]).iterdir()):
        try:
            check(path)
            print(f"{path.name}: equal")
        except Exception as error:  # Whatever upstream raises is a finding.
            differ += 1
            print(f"{path.name}: {type(error).__name__}: {str(error).splitlines()[:1]}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
