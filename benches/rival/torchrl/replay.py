"""The rivals of benches/ts/replay.ts: TorchRL's buffers, or cpprb's.

    python replay.py torchrl|cpprb THREADS

Each line of standard input is a request, each answer one line of JSON on standard output. benches/rust/src/bin/bench_replay.rs
says what the requests mean and what lies in the rows; it answers the same ones.
"""

import hashlib
import json
import os
import resource
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import numpy  # noqa: E402

ROWS, MORE, BATCH = 10_000, 400, 256
LEVELS, ALPHA, BETA, EPS = 1000, 0.6, 0.4, 1e-8
ROLLOUTS, PADDED = 256, 64
EPISODE, SLICES, STEPS, WRITTEN = 200, 32, 64, 256
CHUNK = 1_000_000


def bits(ids):
    """A number of 32 bits for each id."""
    return (numpy.asarray(ids, dtype=numpy.uint64) * 2654435761) % 2**32


def priorities(ids):
    return ((bits(ids) % LEVELS + 1) / LEVELS).astype(numpy.float32)


def pixels(start, count):
    ids = numpy.arange(start, start + count)
    a = (ids[:, None] * 5 + numpy.arange(5)).astype(numpy.float32)
    c = (ids[:, None] * 31 + numpy.arange(3072) * 7).astype(numpy.uint8)
    return a, c.reshape(count, 3, 32, 32)


def count_wrong_pixels(a, c):
    starts = (a[:, 0] / 5).astype(numpy.int64)
    rows = [pixels(start, 1) for start in starts]
    return sum(not ((a[i] == x[0]).all() and (c[i] == y[0]).all()) for i, (x, y) in enumerate(rows))


def digest_of(*arrays):
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(numpy.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class CpprbPixels:
    def __init__(self, rows):
        shapes = {"a": {"shape": 5, "dtype": numpy.float32}, "c": {"shape": (3, 32, 32), "dtype": numpy.uint8}}
        self.buffer = cpprb.ReplayBuffer(rows, shapes)
        a, c = pixels(0, rows)
        self.buffer.add(a=a, c=c)
        self.more, self.one = pixels(2 * ROWS, MORE), pixels(3 * ROWS, 1)

    def extend(self, count):
        self.buffer.add(a=self.more[0], c=self.more[1])

    def add(self, count):
        self.buffer.add(a=self.one[0], c=self.one[1])

    def sample(self, count):
        return self.buffer.sample(count)

    def check(self):
        batch = self.sample(BATCH)
        return {"wrong": count_wrong_pixels(batch["a"], batch["c"]), "of": BATCH}

    def state(self):
        rows = self.buffer.get_all_transitions()
        return digest_of(rows["a"], rows["c"])


class Pixels:
    def __init__(self, rows):
        self.buffer = ReplayBuffer(storage=LazyTensorStorage(rows), batch_size=BATCH)
        self.buffer.extend(self.items(0, rows))
        self.more, self.one = self.items(2 * ROWS, MORE), self.items(3 * ROWS, 1)[0]

    def items(self, start, count):
        a, c = map(torch.from_numpy, pixels(start, count))
        return TensorDict({"a": a, "b": {"c": c}}, batch_size=[count])

    def extend(self, count):
        self.buffer.extend(self.more)

    def add(self, count):
        self.buffer.add(self.one)

    def sample(self, count):
        return self.buffer.sample(count)

    def check(self):
        batch = self.sample(BATCH)
        return {"wrong": count_wrong_pixels(batch["a"].numpy(), batch["b", "c"].numpy()), "of": BATCH}

    def state(self):
        rows = self.buffer[:]
        return digest_of(rows["a"].numpy(), rows["b", "c"].numpy())


class Prioritized:
    def __init__(self, rows):
        self.rows = rows
        self.storage = LazyTensorStorage(rows)
        self.storage.set(range(rows), TensorDict({"id": torch.zeros(rows, dtype=torch.uint8)}, batch_size=[rows]))
        self.sampler = PrioritizedSampler(rows, alpha=ALPHA, beta=BETA, eps=EPS)
        for start in range(0, rows, CHUNK):
            ids = numpy.arange(start, min(start + CHUNK, rows))
            self.put(torch.from_numpy(ids), torch.from_numpy(priorities(ids)))
        order = numpy.arange(65536) * 40503 % 65536
        stride = rows // 65536
        updated = order * stride + (bits(order) % stride).astype(numpy.int64)
        self.updated = torch.from_numpy(updated)
        self.changes = [torch.from_numpy(priorities(updated + by)) for by in (7, 0)]

    def put(self, rows, values):
        self.sampler.update_priority(rows, values, storage=self.storage)

    def sample(self, count):
        return self.sampler.sample(self.storage, count)

    def update(self, count):
        self.put(self.updated[:count], self.changes[0][:count])
        self.changes.reverse()

    def check(self):
        changed = self.changes[0].numpy().astype(numpy.float64)
        self.update(65536)
        leaves = torch.as_tensor(self.sampler._sum_tree[self.updated]).numpy().astype(numpy.float64)
        leaf_apart = float(numpy.abs(leaves / (changed + EPS) ** ALPHA - 1).mean())
        self.update(65536)
        drawn, info = self.sample(65536)
        drawn = drawn.numpy()
        weights = torch.as_tensor(info["priority_weight"]).numpy().astype(numpy.float64)
        drawn_priorities = priorities(drawn).astype(numpy.float64)
        expected = ((drawn_priorities + EPS) / (1 / LEVELS + EPS)) ** (-ALPHA * BETA)
        apart = float(numpy.abs(weights / expected - 1).max())
        means = {"priority": float(drawn_priorities.mean()), "row": float(drawn.mean()) / self.rows}
        return {"apart": apart, "leafApart": leaf_apart, **means}


def tokens_of(id):
    return torch.arange(64 + int(bits(id)) % 1985, dtype=torch.int64) * 7 + 31 * int(id)


class Rollouts:
    """Rows of different lengths, kept one by one as TorchRL's list storage does, by reference."""

    def __init__(self, rows):
        self.buffer = ReplayBuffer(storage=ListStorage(rows), batch_size=PADDED, collate_fn=self.padded)
        self.buffer.extend(self.items(0, rows))
        self.more = self.items(2 * rows, ROLLOUTS)

    def items(self, start, count):
        ids = range(start, start + count)
        return [TensorDict({"reward": torch.tensor(float(id)), "tokens": tokens_of(id)}, batch_size=[]) for id in ids]

    def padded(self, items):
        tokens = torch.nn.utils.rnn.pad_sequence([item["tokens"] for item in items], batch_first=True, padding_value=-1)
        rewards = torch.stack([item["reward"] for item in items])
        return TensorDict({"reward": rewards, "tokens": tokens}, batch_size=[len(items)])

    def extend(self, count):
        self.buffer.extend(self.more)

    def sample(self, count):
        return self.buffer.sample(count)

    def check(self):
        batch = self.sample(PADDED)
        wrong = 0
        for id, row in zip(batch["reward"].tolist(), batch["tokens"]):
            tokens = tokens_of(id)
            wrong += not (torch.equal(row[: len(tokens)], tokens) and bool((row[len(tokens) :] == -1).all()))
        return {"wrong": wrong, "of": PADDED}

    def state(self):
        items = [self.buffer._storage[row] for row in range(len(self.buffer))]
        rewards = torch.stack([item["reward"] for item in items])
        return digest_of(rewards.numpy(), torch.cat([item["tokens"] for item in items]).numpy())


class Slices:
    def __init__(self, rows):
        sampler = SliceSampler(num_slices=SLICES, traj_key="episode")
        self.buffer = ReplayBuffer(storage=LazyTensorStorage(rows), sampler=sampler, batch_size=SLICES * STEPS)
        for start in range(0, rows, CHUNK):
            ids = numpy.arange(start, min(start + CHUNK, rows))
            self.buffer.extend(self.items(ids // EPISODE, ids, ids % EPISODE == EPISODE - 1))
        ids = numpy.arange(WRITTEN)
        half = WRITTEN // 2
        self.more = self.items(-1 - ids // half, rows + ids, ids % half == half - 1)

    def items(self, episode, step, done):
        leaves = {"episode": episode.astype(numpy.int64), "step": step.astype(numpy.float32)}
        leaves = {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}
        return TensorDict({**leaves, "next": {"done": torch.from_numpy(done)}}, batch_size=[len(episode)])

    def turn(self, count):
        self.buffer.extend(self.more)
        return self.buffer.sample()

    def check(self):
        batch = self.turn(1)
        episode = batch["episode"].numpy().reshape(SLICES, STEPS)
        step = batch["step"].numpy().reshape(SLICES, STEPS)
        right = (episode == episode[:, :1]).all(axis=1) & (numpy.diff(step, axis=1) == 1).all(axis=1)
        return {"wrong": int((~right).sum()), "of": SLICES}

    def state(self):
        rows = self.buffer[:]
        return digest_of(rows["episode"].numpy(), rows["step"].numpy(), rows["next", "done"].numpy())


def resident_bytes():
    if not os.path.exists("/proc/self/statm"):
        return None
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def timed(operation, count, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        operation(count)
    return 1e6 * (time.perf_counter() - start) / repeats


def answer(**fields):
    answers.write(json.dumps(fields) + "\n")
    answers.flush()


if sys.argv[1] == "cpprb":
    import cpprb
    from importlib.metadata import version

    versions, threads = {"cpprb": version("cpprb")}, 1
    cases = {"pixels": CpprbPixels}
else:
    import tensordict
    import torch
    import torchrl
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, ListStorage, PrioritizedSampler, ReplayBuffer, SliceSampler

    threads = int(sys.argv[2])
    torch.set_num_threads(threads)
    versions = {name.__name__: name.__version__ for name in (torch, torchrl, tensordict)}
    cases = {"pixels": Pixels, "prioritized": Prioritized, "ragged": Rollouts, "slices": Slices}

answer(versions={"python": sys.version.split()[0], **versions}, cases=list(cases))
case = None
for line in sys.stdin:
    request, *words = line.split()
    if request == "open":
        before = resident_bytes()
        case = cases[words[0]](int(words[1]))
        after = resident_bytes()
        answer(bytesPerRow=None if before is None else (after - before) / int(words[1]))
    elif request == "close":
        case = None
        answer(closed=True)
    elif request == "check":
        answer(**case.check())
    elif request == "state":
        answer(digest=case.state())
    else:
        answer(us=timed(getattr(case, request), *map(int, words)))
