"""How a rival is asked: each line of standard input is a request in JSON, each answer one line of JSON on standard output.

Import it before the libraries: what they print goes to standard error.
"""

import json
import os
import resource
import sys
import time

_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(**fields):
    _answers.write(json.dumps(fields) + "\n")
    _answers.flush()


def serve(kinds, **start):
    """Answers `start`, and then each request `{kind, ...}` with what `kinds[kind](...)` tells, its times and the peak of memory."""
    answer(**start)
    for line in sys.stdin:
        request = json.loads(line)
        work = kinds[request.pop("kind")]
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        result = work(**request) or {}
        ms, cpu_ms = (time.perf_counter() - start_s) * 1000, (time.process_time() - start_cpu_s) * 1000
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer(ms=ms, cpuMs=cpu_ms, peakMiB=resident / 1024, **result)
