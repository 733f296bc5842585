"""A rival of benches/ts/smollm2.ts: llama.cpp, on the weights as the file packs them.

    python in_llama_cpp.py FILE.gguf THREADS

benches/ts/smollm2.ts says what each request means.
"""

import sys
import time

from answering import serve  # before all that prints

import llama_cpp
import numpy as np

path, threads = sys.argv[1], int(sys.argv[2])
ROWS_MAX, LENGTH_MAX = 32, 128

llama_cpp.llama_backend_init()
model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
params = llama_cpp.llama_context_default_params()
params.n_ctx = ROWS_MAX * LENGTH_MAX
params.n_batch = params.n_ubatch = 512
params.n_seq_max = ROWS_MAX
params.n_threads = params.n_threads_batch = threads
context = llama_cpp.llama_init_from_model(model, params)
vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
batch = llama_cpp.llama_batch_init(params.n_batch, 0, 1)


def decode(entries):
    """Reads `(id, position, row, wanted)`, and gives the likeliest id after each that is wanted."""
    for at, (token, position, row, wanted) in enumerate(entries):
        batch.token[at], batch.pos[at], batch.logits[at] = token, position, wanted
        batch.n_seq_id[at], batch.seq_id[at][0] = 1, row
    batch.n_tokens = len(entries)
    if code := llama_cpp.llama_decode(context, batch):
        raise RuntimeError(f"llama_decode must succeed: got {code}")
    places = [at for at, (*_, wanted) in enumerate(entries) if wanted]
    logits = (llama_cpp.llama_get_logits_ith(context, at) for at in places)
    return [int(np.ctypeslib.as_array(one, shape=(vocab_size,)).argmax()) for one in logits]


def generate(ids, tokens):
    """Greedy, with a cache, past any end token; the prompts are read one after another. `drawMs` leaves the first token out."""
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    length = len(ids[0])
    prompts = ([(token, at, row, at == length - 1) for at, token in enumerate(prompt)] for row, prompt in enumerate(ids))
    drawn = [decode(prompt) for prompt in prompts]
    start = time.perf_counter()
    for position in range(length, length + tokens - 1):
        last = decode([(row[-1], position, index, True) for index, row in enumerate(drawn)])
        for row, token in zip(drawn, last):
            row.append(token)
    return {"ids": drawn, "drawMs": (time.perf_counter() - start) * 1000}


serve({"generate": generate}, versions={"llama-cpp-python": llama_cpp.__version__}, threads=threads)
