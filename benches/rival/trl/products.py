"""Compared with benches/rust/src/bin/bench_products.rs: the same products by PyTorch.

    python products.py FOLDER INPUTS OUTPUTS COPIES THREADS

A request is `KIND ROWS REPEATS`; `bf16` and `rounded` are PyTorch's own bfloat16.
"""

import sys
import time

from answering import answer  # before all that prints

import torch

STRIDE = 97

folder, inputs, outputs, copies, threads = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(threads)


def read(name, width):
    return torch.frombuffer(bytearray(open(f"{folder}/{name}", "rb").read()), dtype=torch.float32).view(-1, width)


rows_of, weight = read("rows.f32", inputs), read("weight.f32", inputs)
held = (None, [])


def weights(kind):
    global held
    if held[0] != kind:
        dtype = torch.float32 if kind == "f32" else torch.bfloat16
        held = (kind, [weight.to(dtype).clone() for _ in range(copies)])
    return held[1]


answer(versions={"python": sys.version.split()[0], "torch": torch.__version__}, threads=torch.get_num_threads())
for line in sys.stdin:
    kind, rows, repeats = line.split()
    stored = weights(kind)
    x = rows_of[: int(rows)].to(stored[0].dtype)
    start, start_cpu = time.perf_counter(), time.process_time()
    with torch.no_grad():
        for repeat in range(int(repeats)):
            out = torch.nn.functional.linear(x, stored[repeat % copies])
    us = (time.perf_counter() - start) * 1e6 / int(repeats)
    cpu_ms = (time.process_time() - start_cpu) * 1e3
    answer(us=us, cpuMs=cpu_ms, values=out.float().flatten()[::STRIDE].tolist())
