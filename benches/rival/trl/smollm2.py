"""The rival of benches/ts/smollm2.ts: transformers on PyTorch, in f32.

    python smollm2.py FOLDER THREADS

FOLDER is a model as Hugging Face lays it out. Each line of standard input is a request in JSON, each answer one line of JSON on
standard output with `ms` and `cpuMs` of the work; benches/ts/smollm2.ts says what each request means.
"""

import json
import os
import resource
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import torch  # noqa: E402
import transformers  # noqa: E402


def answer(**fields):
    answers.write(json.dumps(fields) + "\n")
    answers.flush()


folder, threads = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(threads)
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
model.eval()
optimizer = None


def score(ids):
    with torch.no_grad():
        log_probs = torch.log_softmax(model(ids).logits[:, :-1], dim=-1)
    return log_probs.gather(-1, ids[:, 1:, None]).squeeze(-1)


def prefill(ids):
    with torch.no_grad():
        model(ids, logits_to_keep=1)


def peak():
    """Operations a second of the best of several large products, in f32: what this machine can do at most."""
    left, right = torch.rand(2048, 2048), torch.rand(2048, 2048)
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        torch.matmul(left, right)
        best = min(best, time.perf_counter() - start)
    return 2 * 2048**3 / best


def generate(ids, tokens):
    """Greedy, with a cache, past any end token."""
    with torch.no_grad():
        past, last, drawn = None, ids, []
        for _ in range(tokens):
            out = model(last, past_key_values=past, use_cache=True, logits_to_keep=1)
            past, last = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)
            drawn.append(last)
    return torch.cat(drawn, 1)


def train(ids):
    """Forward, a clipped loss on the log-prob of every token but the first, backward, clipping by norm, AdamW on all weights."""
    global optimizer
    if optimizer is None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0)
    model.train()
    logits = model(ids).logits[:, :-1]
    log_probs = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    ratio = torch.exp(log_probs - log_probs.detach())
    loss = -torch.minimum(ratio, ratio.clamp(0.8, 1.2)).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    model.eval()
versions = {"torch": torch.__version__, "transformers": transformers.__version__}
answer(versions=versions, threads=torch.get_num_threads())
for line in sys.stdin:
    request = json.loads(line)
    ids = torch.tensor(request["ids"])
    start, start_cpu = time.perf_counter(), time.process_time()
    kind, result = request["kind"], {}
    if kind == "score":
        result = {"logProbs": score(ids).tolist()}
    elif kind == "greedy":
        result = {"ids": generate(ids, request["tokens"]).tolist()}
    elif kind == "peak":
        result = {"flops": peak()}
    elif kind == "prefill":
        prefill(ids)
    elif kind == "generate":
        generate(ids, request["tokens"])
    elif kind == "train":
        train(ids)
    else:
        raise ValueError(f"kind must be known: got {kind}")
    ms, cpu_ms = (time.perf_counter() - start) * 1000, (time.process_time() - start_cpu) * 1000
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer(ms=ms, cpuMs=cpu_ms, peakMiB=resident / 1024, **result)
