"""Exports a small Qwen2 to ONNX, and models that a policy must refuse: `python export_onnx.py MODEL_FOLDER OUT_FOLDER`."""

import sys

import onnx
import torch
from onnx import TensorProto, helper
from transformers import AutoModelForCausalLM


class Logits(torch.nn.Module):
    """Logits of whole sequences, without a cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids):
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        return self.model(**inputs, use_cache=False).logits


def export(folder):
    """The model as a graph, without the notes of where its nodes came from."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    ids = torch.arange(10).reshape(2, 5)
    shape = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=1, max=4096)}
    program = torch.onnx.export(
        Logits(model),
        (ids, torch.ones_like(ids), torch.arange(5).expand(2, 5)),
        dynamo=True,
        input_names=["input_ids", "attention_mask", "position_ids"],
        output_names=["logits"],
        dynamic_shapes=(shape, shape, shape),
        opset_version=18,
    )
    proto = program.model_proto
    for part in [proto, proto.graph, *proto.graph.node, *proto.graph.value_info, *proto.graph.initializer]:
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    for value in [*proto.graph.input, *proto.graph.output]:
        value.ClearField("metadata_props")
        value.ClearField("doc_string")
    return proto


def with_past(proto):
    """The same model with a cache among its inputs, which counts for nothing while it is empty."""
    cached = onnx.ModelProto()
    cached.CopyFrom(proto)
    graph = cached.graph
    next(node for node in graph.node if "logits" in node.output).output[0] = "bare_logits"
    graph.input.append(
        helper.make_tensor_value_info("past_key_values.0.key", TensorProto.FLOAT, ["batch", 2, "past", 8])
    )
    graph.node.append(helper.make_node("ReduceSum", ["past_key_values.0.key"], ["past_sum"], keepdims=0))
    graph.node.append(helper.make_node("Add", ["bare_logits", "past_sum"], ["logits"]))
    return cached


def passing(name_in, name_out, dtype):
    """A model that gives what it is given."""
    ends = [helper.make_tensor_value_info(name, dtype, ["batch", "length"]) for name in (name_in, name_out)]
    graph = helper.make_graph([helper.make_node("Identity", [name_in], [name_out])], "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


folder, out = sys.argv[1:]
whole = export(folder)
onnx.save(whole, f"{out}/qwen2.onnx")
onnx.save(with_past(whole), f"{out}/qwen2_past.onnx")
onnx.save(passing("pixel_values", "logits", TensorProto.FLOAT), f"{out}/pixels.onnx")
onnx.save(passing("input_ids", "scores", TensorProto.INT64), f"{out}/no_logits.onnx")
onnx.save(passing("input_ids", "logits", TensorProto.INT64), f"{out}/flat_logits.onnx")
