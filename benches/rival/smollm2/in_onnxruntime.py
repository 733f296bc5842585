"""A rival of benches/ts/smollm2.ts: onnxruntime in f32, on a graph made of its own fused operators.

    python in_onnxruntime.py FOLDER THREADS

FOLDER is a Llama as Hugging Face lays it out, its head tied to its embedding. The graph is what onnxruntime's own builder of
language models makes: query, key and value in one product, `GroupQueryAttention` with rotary angles and a cache that grows
in place, and the head at the last position only.
"""

import json
import os
import sys
import time

from answering import serve  # before all that prints

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

folder, threads = sys.argv[1], int(sys.argv[2])
with open(os.path.join(folder, "config.json")) as file:
    config = json.load(file)
LAYERS, HEADS, KV_HEADS = (config[f"num_{kind}"] for kind in ("hidden_layers", "attention_heads", "key_value_heads"))
HEAD_DIM = config["hidden_size"] // HEADS
FUSED = "com.microsoft"


def make_graph(weights, positions):
    """The model's bytes; `positions` is the longest sequence."""
    nodes, tensors = [], []

    def tensor(name, value):
        tensors.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def node(op, inputs, output, domain="", more=(), **attributes):
        nodes.append(helper.make_node(op, inputs, [output, *more], domain=domain, **attributes))
        return output

    def linear(x, names, output):
        stacked = np.concatenate([weights[f"{name}.weight"] for name in names])
        return node("MatMul", [x, tensor(f"{output}.weight", stacked.T)], output)

    def norm(x, skip, name, output):
        """The sum of both and its normalisation."""
        scale, epsilon = tensor(name, weights[name]), config["rms_norm_eps"]
        if skip is None:
            return x, node("SimplifiedLayerNormalization", [x, scale], output, epsilon=epsilon, axis=-1)
        both = f"{output}.sum"
        fused = {"domain": FUSED, "more": ["", "", both], "epsilon": epsilon}
        return both, node("SkipSimplifiedLayerNormalization", [x, skip, scale], output, **fused)

    frequency = config["rope_theta"] ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = np.arange(positions)[:, None] * frequency
    cos, sin = (tensor(of.__name__, of(angles).astype(np.float32)) for of in (np.cos, np.sin))
    table = tensor("table", weights["model.embed_tokens.weight"])
    x, skip = node("Gather", [table, "ids"], "embedded"), None
    attributes = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "do_rotary": 1}
    for layer in range(LAYERS):
        place = f"model.layers.{layer}"
        x, normed = norm(x, skip, f"{place}.input_layernorm.weight", f"{place}.in")
        qkv = linear(normed, [f"{place}.self_attn.{one}_proj" for one in "qkv"], f"{place}.qkv")
        past, present = ([f"{when}_{kind}.{layer}" for kind in ("key", "value")] for when in ("past", "present"))
        inputs = [qkv, "", "", *past, "last_position", "total_length", cos, sin]
        seen = node("GroupQueryAttention", inputs, f"{place}.seen", domain=FUSED, more=present, **attributes)
        skip = linear(seen, [f"{place}.self_attn.o_proj"], f"{place}.attended")
        x, normed = norm(x, skip, f"{place}.post_attention_layernorm.weight", f"{place}.mid")
        gate, up = (linear(normed, [f"{place}.mlp.{one}_proj"], f"{place}.{one}") for one in ("gate", "up"))
        open_gate = node("Mul", [gate, node("Sigmoid", [gate], f"{gate}.sigmoid")], f"{gate}.open")
        skip = linear(node("Mul", [open_gate, up], f"{place}.wide"), [f"{place}.mlp.down_proj"], f"{place}.down")
    _, normed = norm(x, skip, "model.norm.weight", "out")
    last = node("Gather", [normed, tensor("minus_one", np.array(-1))], "last", axis=1)
    node("Gemm", [last, table], "logits", transB=1)
    cache = [["batch", KV_HEADS, when, HEAD_DIM] for when in ("past", "present")]
    value = helper.make_tensor_value_info
    inputs = [
        value("ids", TensorProto.INT64, ["batch", "length"]),
        value("last_position", TensorProto.INT32, ["batch"]),
        value("total_length", TensorProto.INT32, [1]),
    ]
    outputs = [value("logits", TensorProto.FLOAT, ["batch", config["vocab_size"]])]
    for layer in range(LAYERS):
        for kind in ("key", "value"):
            inputs.append(value(f"past_{kind}.{layer}", TensorProto.FLOAT, cache[0]))
            outputs.append(value(f"present_{kind}.{layer}", TensorProto.FLOAT, cache[1]))
    graph = helper.make_graph(nodes, "llama", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
weights = load_file(os.path.join(folder, "model.safetensors"))
session = onnxruntime.InferenceSession(make_graph(weights, 1024), options, providers=["CPUExecutionProvider"])
del weights


def generate(ids, tokens):
    """Greedy, past any end token; the cache stays where it is. `drawMs` leaves the first token out."""
    ids = np.array(ids, dtype=np.int64)
    rows, length = ids.shape
    shape = (rows, KV_HEADS, length + tokens, HEAD_DIM)
    binding = session.io_binding()
    for name in (f"{kind}.{layer}" for layer in range(LAYERS) for kind in ("key", "value")):
        cache = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
        binding.bind_ortvalue_input(f"past_{name}", cache)
        binding.bind_ortvalue_output(f"present_{name}", cache)
    drawn = []
    for total in range(length, length + tokens):
        if total == length + 1:
            start = time.perf_counter()
        binding.bind_cpu_input("ids", ids)
        binding.bind_cpu_input("last_position", np.full(rows, total - 1, np.int32))
        binding.bind_cpu_input("total_length", np.array([total], np.int32))
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        ids = binding.get_outputs()[-1].numpy().argmax(-1)[:, None]
        drawn.append(ids)
    return {"ids": np.concatenate(drawn, 1).tolist(), "drawMs": (time.perf_counter() - start) * 1000}


versions = {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}
serve({"generate": generate}, versions=versions, threads=threads)
