"""The rivals of benches/ts/objective.ts: PyTorch, TorchRL, TRL and transformers, one call a request.

    python objective.py FOLDER THREADS

FOLDER holds the inputs, see benches/ts/objective.ts. Each line `KIND REPEATS` of standard input is answered with one line of JSON:
`us`, the mean time of a call, and `values`, what the last call gave, to be compared. benches/rust/src/bin/bench_objective.rs
answers the same requests for ours.
"""

import json
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import numpy  # noqa: E402
import torch  # noqa: E402
import torchrl  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402
from torchrl.objectives.value import functional  # noqa: E402
from trl.trainer.utils import nanstd  # noqa: E402

GROUP, GAMMA, LAMBDA, STRIDE = 8, 0.99, 0.95, 997
folder, threads = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(threads)


def answer(**fields):
    answers.write(json.dumps(fields) + "\n")
    answers.flush()


def read(name, dtype):
    return torch.from_numpy(numpy.fromfile(os.path.join(folder, name), dtype=dtype))


ids = read("ids.u32", numpy.uint32).long()
logits = read("logits.f32", numpy.float32).view(len(ids), -1)
rewards = read("rewards.f64", numpy.float64).float()
rows_of_logits = {"peaked": read("peaked.f32", numpy.float32)[None], "flat": read("flat.f32", numpy.float32)[None]}


def steps(rows, length):
    columns = read(f"steps-{rows}x{length}.f32", numpy.float32).view(6, rows, length, 1)
    *floats, done = columns
    return [*floats, done != 0]


shapes = {f"{rows}x{length}": steps(rows, length) for rows, length in [(64, 1000), (4096, 128)]}
anew = logits.clone().requires_grad_()


def log_probs(of):
    return of.gather(-1, ids[:, None]).squeeze(-1) - of.logsumexp(-1)


def forward():
    with torch.no_grad():
        return log_probs(logits).tolist()


def both():
    anew.grad = None
    (-log_probs(anew).sum()).backward()
    return anew.grad


def advantage():
    """The lines of TRL's trainer that compare rewards within a group."""
    mean = torch.nanmean(rewards.view(-1, GROUP), dim=1).repeat_interleave(GROUP, dim=0)
    std = nanstd(rewards.view(-1, GROUP), dim=1).repeat_interleave(GROUP, dim=0)
    return (rewards - mean) / (std + 1e-4)


def estimate(kind, shape):
    reward, value, next_value, log_pi, log_mu, done = shapes[shape]
    if kind == "gae":
        return functional.vec_generalized_advantage_estimate(GAMMA, LAMBDA, value, next_value, reward, done)[0]
    if kind == "tdLambda":
        return functional.vec_td_lambda_return_estimate(GAMMA, LAMBDA, next_value, reward, done)
    return functional.vtrace_advantage_estimate(GAMMA, log_pi, log_mu, value, next_value, reward, done)[0]


def warpers(cut):
    made = [transformers.TemperatureLogitsWarper(0.7)] if cut == "temperature" else []
    if cut.startswith("topK50"):
        made.append(transformers.TopKLogitsWarper(50))
    if cut.endswith("opP0.9"):
        made.append(transformers.TopPLogitsWarper(0.9))
    return transformers.LogitsProcessorList(made)


def draw(cut):
    """What `generate` does with a row of logits; the scores it drew from."""
    scores = warpers(cut)(None, rows_of_logits["flat" if cut.startswith("flat") else "peaked"])
    torch.multinomial(torch.softmax(scores, dim=-1), num_samples=1)
    return scores


def told(kind, found):
    if kind == "forward":
        return found
    if kind.startswith("draw"):
        return [int((found > -float("inf")).sum())]
    return found.flatten()[:: STRIDE * STRIDE if kind == "both" else STRIDE].tolist()


def run(kind):
    first, _, second = kind.partition(":")
    if not second:
        return {"forward": forward, "both": both, "advantage": advantage}[kind]()
    return draw(second) if first == "draw" else estimate(first, second)


versions = {module.__name__: module.__version__ for module in (torch, torchrl, trl, transformers)}
answer(versions={"python": sys.version.split()[0], **versions}, threads=torch.get_num_threads())
for line in sys.stdin:
    kind, repeats = line.split()
    start, start_cpu = time.perf_counter(), time.process_time()
    for _ in range(int(repeats)):
        found = run(kind)
    us = (time.perf_counter() - start) * 1e6 / int(repeats)
    cpu_ms = (time.process_time() - start_cpu) * 1e3
    answer(us=us, cpuMs=cpu_ms, values=told(kind, found))
