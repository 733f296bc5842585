"""A rival of benches/ts/smollm2.ts: transformers on PyTorch.

    python in_torch.py FOLDER THREADS (float32 | bfloat16)

FOLDER is a model as Hugging Face lays it out. benches/ts/smollm2.ts says what each request means.
"""

import sys
import time

from answering import serve  # before all that prints

import torch
import transformers

folder, threads, dtype = sys.argv[1], int(sys.argv[2]), getattr(torch, sys.argv[3])
torch.set_num_threads(threads)
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
model.eval()
optimizer = None


def score(ids):
    ids = torch.tensor(ids)
    with torch.no_grad():
        log_probs = torch.log_softmax(model(ids).logits[:, :-1].float(), dim=-1)
    return {"logProbs": log_probs.gather(-1, ids[:, 1:, None]).squeeze(-1).tolist()}


def prefill(ids):
    with torch.no_grad():
        model(torch.tensor(ids), logits_to_keep=1)


def peak():
    """Operations a second of the best of several large products, in f32: what this machine can do at most."""
    left, right = torch.rand(2048, 2048), torch.rand(2048, 2048)
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        torch.matmul(left, right)
        best = min(best, time.perf_counter() - start)
    return {"flops": 2 * 2048**3 / best}


def generate(ids, tokens):
    """Greedy, with a cache, past any end token; `drawMs` leaves the first token out."""
    with torch.no_grad():
        past, last, drawn = None, torch.tensor(ids), []
        for at in range(tokens):
            if at == 1:
                start = time.perf_counter()
            out = model(last, past_key_values=past, use_cache=True, logits_to_keep=1)
            past, last = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)
            drawn.append(last)
    return {"ids": torch.cat(drawn, 1).tolist(), "drawMs": (time.perf_counter() - start) * 1000}


def train(ids):
    """Forward, a clipped loss on the log-prob of every token but the first, backward, clipping by norm, AdamW on all weights."""
    global optimizer
    if optimizer is None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0)
    ids = torch.tensor(ids)
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
kinds = {"score": score, "prefill": prefill, "peak": peak, "generate": generate, "train": train}
serve(kinds, versions=versions, threads=torch.get_num_threads())
