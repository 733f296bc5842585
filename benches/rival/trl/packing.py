"""The rival of benches/ts/packing.ts: TRL packs a table of sequences by best fit decreasing, one pass a request.

    python packing.py LENGTHS CAPACITY

LENGTHS holds lengths as little-endian u32. Each line of standard input asks for one pass of `pack_dataset`'s function over a table
of lists of these lengths, of one byte an element, so that little is moved; each answer is one line of JSON with its milliseconds,
by the clock and of the processor, its rows and the tokens in them.
"""

import json
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import trl  # noqa: E402
from trl.data_utils import _pack_bfd  # noqa: E402


def answer(**fields):
    answers.write(json.dumps(fields) + "\n")
    answers.flush()


lengths = np.fromfile(sys.argv[1], dtype="<u4")
capacity = int(sys.argv[2])
offsets = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])
values = pa.array(np.zeros(int(offsets[-1]), dtype=np.uint8))
table = pa.table({"input_ids": pa.LargeListArray.from_arrays(pa.array(offsets), values)})
answer(ready=True, versions={"trl": trl.__version__, "pyarrow": pa.__version__})
for _ in sys.stdin:
    start, cpu = time.perf_counter(), time.process_time()
    packed = _pack_bfd(table, capacity)
    ms, cpu_ms = 1000 * (time.perf_counter() - start), 1000 * (time.process_time() - cpu)
    tokens = sum(len(row) for column in packed.columns[:1] for row in column)
    answer(ms=ms, cpuMs=cpu_ms, rows=len(packed), tokens=int(tokens))
