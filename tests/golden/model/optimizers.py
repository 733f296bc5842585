"""Writes optimizers.jsonl: weights of four parameters after each of four steps of PyTorch's optimisers. See HOW.md."""

import json
import sys

import torch

SHAPES = {
    "model.embed_tokens.weight": [7, 4],
    "model.layers.0.self_attn.q_proj.weight": [4, 4],
    "model.layers.0.self_attn.q_proj.bias": [4],
    "model.layers.0.mlp.up_proj.weight": [9, 4],
    "model.layers.0.mlp.down_proj.weight": [4, 9],
    "model.norm.weight": [4],
}
STEPS = 4


def is_matrix(name):
    return len(SHAPES[name]) == 2


def is_hidden(name):
    return is_matrix(name) and "embed" not in name


def adamw(parameters, options):
    decays = {"all": lambda name: True, "matrices": is_matrix}[options["decay"]]
    groups = [
        {"params": [p for name, p in parameters.items() if decays(name)], "weight_decay": options["weightDecay"]},
        {"params": [p for name, p in parameters.items() if not decays(name)], "weight_decay": 0.0},
    ]
    betas = (options["beta1"], options["beta2"])
    groups = [group for group in groups if group["params"]]
    return [torch.optim.AdamW(groups, lr=options["learningRate"], betas=betas, eps=options["eps"])]


def sgd(parameters, options):
    decays = {"all": lambda name: True, "matrices": is_matrix}[options["decay"]]
    groups = [
        {"params": [p for name, p in parameters.items() if decays(name)], "weight_decay": options["weightDecay"]},
        {"params": [p for name, p in parameters.items() if not decays(name)], "weight_decay": 0.0},
    ]
    rest = {key: options[key] for key in ("momentum", "dampening", "nesterov")}
    return [torch.optim.SGD([group for group in groups if group["params"]], lr=options["learningRate"], **rest)]


def muon(parameters, options):
    scale = {"original": "original", "matchRmsAdamw": "match_rms_adamw"}[options["scale"]]
    hidden = [p for name, p in parameters.items() if is_hidden(name)]
    rest = {name: p for name, p in parameters.items() if not is_hidden(name)}
    return [
        torch.optim.Muon(
            hidden,
            lr=options["learningRate"],
            weight_decay=options["weightDecay"],
            momentum=options["momentum"],
            nesterov=options["nesterov"],
            ns_steps=options["numIterations"],
            adjust_lr_fn=scale,
        )
    ] + adamw(rest, options["adamw"])


ADAMW = {"learningRate": 0.01, "beta1": 0.9, "beta2": 0.98, "eps": 1e-8, "weightDecay": 0.1, "decay": "matrices"}
SGD = {"learningRate": 0.05, "momentum": 0.0, "dampening": 0.0, "nesterov": False, "weightDecay": 0.0, "decay": "matrices"}
MUON = {
    "learningRate": 0.02, "momentum": 0.95, "nesterov": True, "numIterations": 5, "scale": "original",
    "weightDecay": 0.1, "adamw": ADAMW,
}
CASES = [
    ("adamw", adamw, ADAMW),
    ("adamw", adamw, {**ADAMW, "decay": "all"}),
    ("sgd", sgd, SGD),
    ("sgd", sgd, {**SGD, "weightDecay": 0.1}),
    ("sgd", sgd, {**SGD, "momentum": 0.9, "weightDecay": 0.1, "decay": "all"}),
    ("sgd", sgd, {**SGD, "momentum": 0.9, "dampening": 0.25}),
    ("sgd", sgd, {**SGD, "momentum": 0.9, "nesterov": True, "weightDecay": 0.01}),
    ("muon", muon, MUON),
    ("muon", muon, {**MUON, "nesterov": False, "weightDecay": 0.0}),
    ("muon", muon, {**MUON, "scale": "matchRmsAdamw", "numIterations": 3}),
]


def listed(tensor):
    """Flat, with the nine digits that tell floats apart."""
    return [float(f"{value:.9g}") for value in tensor.detach().flatten().tolist()]


def run(build, options, max_norm):
    """The weights after each step. Gradients are drawn, clipped together to `max_norm`."""
    generator = torch.Generator().manual_seed(11)
    draw = lambda shape: torch.randn(shape, generator=generator)
    parameters = {name: torch.nn.Parameter(draw(shape)) for name, shape in SHAPES.items()}
    first = {name: listed(p) for name, p in parameters.items()}
    optimizers, gradients, weights = build(parameters, options), [], []
    for _ in range(STEPS):
        for p in parameters.values():
            p.grad = draw(p.shape)
        gradients.append({name: listed(p.grad) for name, p in parameters.items()})
        torch.nn.utils.clip_grad_norm_(parameters.values(), max_norm)
        for optimizer in optimizers:
            optimizer.step()
        weights.append({name: listed(p) for name, p in parameters.items()})
    return first, gradients, weights


def in_float32(tensor_to):
    """`torch.optim.Muon` iterates in bfloat16: this keeps float32, so that its sums can be compared closely."""
    return lambda self, *args, **keys: tensor_to(self, *args, **{**keys, "dtype": torch.float32}) if keys.get(
        "dtype"
    ) is torch.bfloat16 else tensor_to(self, *args, **keys)


torch.set_num_threads(1)
out = open(sys.argv[1], "w")
for name, build, options in CASES:
    for precision in ["float32", "bfloat16"] if name == "muon" else ["float32"]:
        plain_to = torch.Tensor.to
        if precision == "float32":
            torch.Tensor.to = in_float32(plain_to)
        first, gradients, weights = run(build, options, 4.0)
        torch.Tensor.to = plain_to
        row = {
            "optimizer": name, "options": options, "precision": precision, "maxNorm": 4.0, "shapes": SHAPES,
            "first": first, "gradients": gradients, "weights": weights,
        }
        out.write(json.dumps(row, separators=(",", ":")) + "\n")
