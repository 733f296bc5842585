"""Times of PyTorch, torch.compile and Liger for the benches of `fulmar-device bench`, by the same names.

    python3 rivals.py [--wheels FOLDER] [--records FILE] [--model FOLDER] [--only NAME] [--device cpu]

Each rival writes one JSON object a line. `--model` is what `fulmar-device model` wrote: transformers scores the same ids. Exit status 4: PyTorch, or a GPU for it, is missing. `--device cpu` runs small shapes on
the processor, to test this file.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import zipfile
from pathlib import Path

TIMES = 20
ROUNDS = 2

# Rows, outputs and inputs of products in bfloat16, as in `bench.rs`.
MANY_ROWS = [
    (8192, 9728, 896),
    (8192, 22016, 2048),
    (16384, 22016, 2048),
    (8192, 2048, 11008),
    (8192, 37888, 3584),
]
# The same for gradients: the operands that are stored as columns.
GRADIENTS = {(8192, 2048, 22016): "w", (22016, 2048, 8192): "both"}
FEW_ROWS = [1, 8, 64, 256]


def missing(reason):
    print(reason)
    sys.exit(4)


def arguments():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--only", help="a file of kernels")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    return parser.parse_args()


def add_wheels(folder):
    """Makes pure Python wheels importable. They are unpacked, because Triton reads the source of its kernels."""
    if folder is None or not folder.is_dir():
        return
    for wheel in sorted(folder.glob("*.whl")):
        place = tempfile.mkdtemp(prefix="fulmar-wheel-")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)
        sys.path.append(place)


class Rivals:
    """Runs one rival after the other; `torch` is imported, `device` is where tensors are."""

    def __init__(self, torch, options):
        self.torch = torch
        self.options = options
        self.device = options.device
        self.is_gpu = options.device == "cuda"

    def sized(self, on_gpu, on_cpu):
        return on_gpu if self.is_gpu else on_cpu

    def random(self, *shape, dtype=None):
        return self.torch.randn(*shape, device=self.device, dtype=dtype or self.torch.float32)

    def measure(self, name, rival, file, make, goal=None, operations=0):
        """Times what `make` returns."""

        def times():
            milliseconds = self.slower_round(make())
            rate = {"teraflops": operations / milliseconds / 1e9} if operations else {}
            return {"milliseconds": milliseconds, **rate}

        self.add(name, rival, file, times, goal)

    def add(self, name, rival, file, find, goal=None):
        """Writes what `find` returns, or says why it cannot: another rival may run where this one does not."""
        if self.options.only not in (None, file):
            return
        record = {"name": name, "rival": rival, "goal": goal}
        try:
            record |= find()
        except ModuleNotFoundError as error:
            record["error"] = f"skipped: {error.name} is missing"
        except Exception as error:  # noqa: BLE001: the report names it
            record["error"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        self.write(record)

    def write(self, record):
        text = json.dumps(record)
        print(text, flush=True)
        if self.options.records is not None:
            with open(self.options.records, "a", encoding="utf8") as file:
                file.write(text + "\n")
        if self.is_gpu:
            self.torch.cuda.empty_cache()

    def slower_round(self, work):
        for _ in range(3):  # compiles
            work()
        return max(statistics.median(self.times(work)) for _ in range(ROUNDS))

    def times(self, work):
        if not self.is_gpu:
            return [self.on_clock(work) for _ in range(TIMES)]
        pairs = [[self.torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(TIMES)]
        for before, after in pairs:
            before.record()
            work()
            after.record()
        self.torch.cuda.synchronize()
        return [before.elapsed_time(after) for before, after in pairs]

    def on_clock(self, work):
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3


def log_prob(rivals):
    """Log-probs of chosen ids of [N, V] logits, alone and with their gradient."""
    torch = rivals.torch
    rows, vocab = rivals.sized((8192, 151936), (4, 5000))

    def inputs(needs_gradient):
        logits = rivals.random(rows, vocab).requires_grad_(needs_gradient)
        return logits, torch.randint(0, vocab, (rows,), device=rivals.device)

    def forward(logits, ids):
        return torch.log_softmax(logits, -1).gather(1, ids[:, None])[:, 0]

    def alone():
        logits, ids = inputs(False)
        compiled = torch.compile(forward)
        return lambda: compiled(logits, ids)

    def with_gradient():
        logits, ids = inputs(True)
        upstream = rivals.random(rows)
        compiled = torch.compile(forward)

        def step():
            logits.grad = None
            compiled(logits, ids).backward(upstream)

        return step

    def liger():
        from liger_kernel.transformers import LigerCrossEntropyLoss

        logits, ids = inputs(True)
        loss = LigerCrossEntropyLoss()

        def step():
            logits.grad = None
            loss(logits, ids).backward()

        return step

    def top_k():
        logits = rivals.random(*rivals.sized((512, 151936), (4, 5000)))
        compiled = torch.compile(lambda logits: torch.log_softmax(logits, -1).topk(20))
        return lambda: compiled(logits)

    rivals.measure("log_prob", "torch.compile", "log_prob", alone)
    rivals.measure("top_k", "torch.compile", "log_prob", top_k)
    rivals.measure("log_prob_and_gradient", "torch.compile", "log_prob", with_gradient)
    rivals.measure("log_prob_and_gradient", "Liger", "log_prob", liger, goal=2.0)


def draws(rivals):
    """Ids by the routes of sampling code in PyTorch; the one of top-p sorts."""
    torch = rivals.torch
    rows, vocab = rivals.sized((128, 151936), (4, 5000))

    def draw(cut):
        def make():
            logits = rivals.random(rows, vocab)
            return lambda: torch.multinomial(torch.softmax(cut(logits), -1), 1)

        return make

    def top_k(logits):
        return logits.masked_fill(logits < logits.topk(50).values[:, -1:], -torch.inf)

    def top_p(logits):
        ordered, index = logits.sort(descending=True)
        p = torch.softmax(ordered, -1)
        is_dropped = p.cumsum(-1) - p >= 0.9
        return logits.masked_fill(is_dropped.scatter(1, index, is_dropped), -torch.inf)

    rivals.measure("draw", "torch", "draw", draw(lambda logits: logits))
    rivals.measure("draw_top_k", "torch, top k", "draw", draw(top_k))
    rivals.measure("draw_top_p", "torch, sorted", "draw", draw(top_p), goal=8.0)


def row_kernels(rivals):
    torch = rivals.torch
    rows, width = rivals.sized((16384, 4096), (8, 896))

    def rms_norm():
        x, weight = rivals.random(rows, width), rivals.random(width)
        return lambda: torch.nn.functional.rms_norm(x, (width,), weight, 1e-6)

    def rms_norm_backward():
        x = rivals.random(rows, width).requires_grad_()
        weight, upstream = rivals.random(width), rivals.random(rows, width)
        out = torch.nn.functional.rms_norm(x, (width,), weight, 1e-6)
        return lambda: torch.autograd.grad(out, x, upstream, retain_graph=True)

    def gather():
        count, there = rivals.sized((65536, 262144), (64, 256))
        rows_there = rivals.random(there, 768)
        index = torch.randint(0, there, (count,), device=rivals.device)
        return lambda: rows_there.index_select(0, index)

    def scatter_add():
        there = rivals.sized(32768, 32)
        to, rows_added = rivals.random(there, 768), rivals.random(2 * there, 768)
        index = torch.arange(2 * there, device=rivals.device) % there
        return lambda: to.index_add_(0, index, rows_added)

    def swiglu():
        shape = rivals.sized((16384, 4864), (10, 1000))
        gate, up = rivals.random(*shape), rivals.random(*shape)
        compiled = torch.compile(lambda gate, up: torch.nn.functional.silu(gate) * up)
        return lambda: compiled(gate, up)

    def cast():
        numbers = rivals.random(rivals.sized(1 << 28, 10000))
        return lambda: numbers.to(torch.bfloat16)

    def adamw():
        weights = rivals.random(rivals.sized(500_000_000, 10_000)).requires_grad_()
        weights.grad = rivals.random(*weights.shape)
        return torch.optim.AdamW([weights], fused=rivals.is_gpu).step

    rivals.measure("adamw", "torch, f32", "optimizer", adamw, goal=1.0)
    rivals.measure("rms_norm", "torch", "rms_norm", rms_norm, goal=1.0)
    rivals.measure("rms_norm_backward", "torch", "rms_norm", rms_norm_backward, goal=1.0)
    rivals.measure("gather", "torch", "rows", gather)
    rivals.measure("scatter_add", "torch", "rows", scatter_add)
    rivals.measure("swiglu", "torch.compile", "swiglu", swiglu)
    rivals.measure("cast", "torch", "cast", cast)


def copies(rivals):
    """Copies of 64 MiB between the host and new memory, of pinned host memory and of any other."""
    torch = rivals.torch
    count = rivals.sized(1 << 24, 1 << 18)

    def upload(is_pinned):
        def make():
            values = torch.ones(count, pin_memory=is_pinned and rivals.is_gpu)
            return lambda: values.to(rivals.device, non_blocking=is_pinned)

        return make

    def download():
        values = rivals.random(count)
        return lambda: values.to("cpu")

    rivals.measure("upload", "PyTorch, pageable", "copies", upload(False))
    rivals.measure("upload", "PyTorch, pinned before", "copies", upload(True))
    rivals.measure("download", "PyTorch, pageable", "copies", download)


def products(rivals):
    """Products by cuBLAS, as PyTorch calls it; the large one in bfloat16 is the limit of the device."""
    torch = rivals.torch

    def product(name, rival, file, shape, dtype, goal=None, columns=""):
        rows, outs, inner = shape if rivals.is_gpu else (4, 64, 64)

        def make():
            x = rivals.random(inner, rows, dtype=dtype).T if columns == "both" else rivals.random(rows, inner, dtype=dtype)
            w = rivals.random(inner, outs, dtype=dtype).T if columns else rivals.random(outs, inner, dtype=dtype)
            return lambda: torch.nn.functional.linear(x, w)

        rivals.measure(name, rival, file, make, goal, operations=2 * rows * outs * inner)

    product("product_f32", "cuBLAS, f32", "product_f32", (4096, 4096, 4096), torch.float32)
    product("limit 8192^3", "cuBLAS, bf16", "product", (8192, 8192, 8192), torch.bfloat16)
    for shape in MANY_ROWS:
        product("product " + " x ".join(map(str, shape)), "cuBLAS", "product", shape, torch.bfloat16, goal=0.45)
    for shape, columns in GRADIENTS.items():
        name = "product " + " x ".join(map(str, shape))
        product(name, "cuBLAS", "product", shape, torch.bfloat16, goal=0.45, columns=columns)
    for rows in FEW_ROWS:
        shape = (rows, 22016, 2048)
        product("product " + " x ".join(map(str, shape)), "cuBLAS", "product", shape, torch.bfloat16, goal=0.7)


def attention(rivals):
    """Attention in bfloat16 by PyTorch: causal over sequences, and of one row each over its keys."""
    torch = rivals.torch
    attend = torch.nn.functional.scaled_dot_product_attention

    def sequences():
        len_each = rivals.sized(4096, 20)
        q, keys, values = (rivals.random(4, 16, len_each, 128, dtype=torch.bfloat16) for _ in range(3))
        return lambda: attend(q, keys, values, is_causal=True)

    def gradients():
        len_each = rivals.sized(4096, 20)
        inputs = [rivals.random(4, 16, len_each, 128, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
        out = attend(*inputs, is_causal=True)
        upstream = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, inputs, upstream, retain_graph=True)

    def rows():
        count, len_each = rivals.sized((256, 2048), (4, 300))
        q = rivals.random(count, 16, 1, 128, dtype=torch.bfloat16)
        keys, values = (rivals.random(count, 2, len_each, 128, dtype=torch.bfloat16) for _ in range(2))
        return lambda: attend(q, keys, values, enable_gqa=True)

    len_each = rivals.sized(4096, 20)
    operations = 4 * 4 * 16 * 128 * len_each * (len_each + 1) // 2
    rivals.measure("attention 16384 x 16 x 128", "torch", "attention", sequences, goal=0.6, operations=operations)
    name = "attention backward 16384 x 16 x 128"
    rivals.measure(name, "torch", "attention_backward", gradients, goal=0.6, operations=operations * 5 // 2)
    rivals.measure("attention 256 x 2048 keys", "torch", "attention", rows, goal=0.6)


def decoders(rivals):
    """Whole decoders by transformers: log-probs in bfloat16, drawn tokens, and steps of training."""
    torch = rivals.torch
    half_b = {"vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
    half_b |= {"num_attention_heads": 14, "num_key_value_heads": 2}
    layers_of_3_b = {"vocab_size": 4096, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 4}
    layers_of_3_b |= {"num_attention_heads": 16, "num_key_value_heads": 2}
    tiny = {"vocab_size": 150, "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 2}
    tiny |= {"num_attention_heads": 2, "num_key_value_heads": 1}

    def random_model(shape):
        from transformers import Qwen2Config, Qwen2ForCausalLM

        config = Qwen2Config(**rivals.sized(shape, tiny), max_position_embeddings=4096, tie_word_embeddings=True)
        with torch.device(rivals.device):
            return Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16)

    def seconds(work):
        if rivals.is_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if rivals.is_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def log_probs():
        """Mean errors of log-probs in bfloat16 against f32, of ours and theirs, with the same weights and ids."""
        from transformers import AutoModelForCausalLM

        folder = rivals.options.model
        if folder is None:
            return {"error": "skipped: there is no model"}
        found = json.loads((folder / "log_probs.json").read_text(encoding="utf8"))
        ids = torch.tensor(found["ids"], device=rivals.device)

        def theirs(dtype):
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(rivals.device)
            rows = []
            for row in ids:
                with torch.no_grad():
                    logits = model(row[None, :-1]).logits[0].double()
                rows.append(torch.log_softmax(logits, -1).gather(1, row[1:, None])[:, 0])
            return torch.stack(rows)

        def ours(name):
            return torch.tensor(found[name], dtype=torch.float64, device=rivals.device)[:, 1:]

        def error(of, exact):
            return (of - exact).abs().mean().item()

        exact = theirs(torch.float32)
        of_ours, of_theirs = error(ours("bf16"), ours("f32")), error(theirs(torch.bfloat16), exact)
        errors = {"ours": of_ours, "theirs": of_theirs, "ratio": of_ours / of_theirs}
        return errors | {"difference_in_f32": error(ours("f32"), exact)}

    def decode():
        """The time of a step of a full batch: that of all tokens less that of the first two."""
        count, prompt, drawn = rivals.sized((256, 512, 128), (3, 5, 4))
        model = random_model(half_b).eval()
        ids = torch.randint(0, model.config.vocab_size, (count, prompt), device=rivals.device)
        options = {"attention_mask": torch.ones_like(ids), "do_sample": True, "top_k": 0, "pad_token_id": 0}

        def generate(new):
            with torch.no_grad():
                model.generate(ids, max_new_tokens=new, min_new_tokens=new, **options)

        generate(2)
        steps = [(seconds(lambda: generate(drawn)) - seconds(lambda: generate(2))) / (drawn - 2) for _ in range(ROUNDS)]
        return {"milliseconds": 1e3 * max(steps), "tokens_per_second": count / max(steps)}

    def training(shape):
        def find():
            sequences, length, at_once = rivals.sized((32, 1024, 8), (2, 9, 1))
            model = random_model(shape).train()
            for layer in model.model.layers:
                layer.compile()
            ids = torch.randint(0, model.config.vocab_size, (sequences, length), device=rivals.device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=rivals.is_gpu)

            def step():
                for part in ids.split(at_once):
                    logits = model(part[:, :-1], use_cache=False).logits.float()
                    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten())
                    (loss * len(part) / sequences).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()

            step()  # compiles
            slower = max(seconds(step) for _ in range(ROUNDS))
            return {"milliseconds": 1e3 * slower, "tokens_per_second": ids.numel() / slower}

        return find

    rivals.add("log-probs in bf16", "transformers", "decoder", log_probs, goal=1.2)
    rivals.add("decode 0.5 B", "transformers", "decoder", decode, goal=5.0)
    rivals.add("training 0.5 B", "transformers, torch.compile", "decoder", training(half_b), goal=1.2)
    rivals.add("training 3 B layers", "transformers, torch.compile", "decoder", training(layers_of_3_b), goal=1.2)


def main():
    options = arguments()
    try:
        import torch
    except ImportError as error:
        missing(f"PyTorch is missing: {error}")
    if options.device == "cuda" and not torch.cuda.is_available():
        missing("PyTorch finds no GPU")
    add_wheels(options.wheels)
    torch.manual_seed(22)
    rivals = Rivals(torch, options)
    torch.backends.cuda.matmul.allow_tf32 = False
    for part in (log_prob, draws, row_kernels, copies, products, attention, decoders):
        part(rivals)


if __name__ == "__main__":
    main()
