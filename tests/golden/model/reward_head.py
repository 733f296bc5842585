"""Writes the folder reward_head: a tiny LlamaForSequenceClassification with its scores and gradients. See HOW.md."""

import json
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForSequenceClassification

folder = sys.argv[1]
torch.set_num_threads(1)
torch.manual_seed(5)
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128, initializer_range=0.2, num_labels=1, pad_token_id=0,
)
model = LlamaForSequenceClassification(config).float().eval()
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.add_(torch.randn_like(parameter) * 0.2)
model.save_pretrained(folder)

sequences = [[5, 6, 7, 8, 9], [5, 6, 7, 11], [12], [3, 1, 4, 1, 5, 9, 2, 6]]
rewards, values = [], []
for ids in sequences:
    batch = torch.tensor([ids])
    rewards.append(model(batch).logits[0, 0])
    values.append(model.score(model.model(batch).last_hidden_state)[0, :, 0])
rewards = torch.stack(rewards)
# Bradley-Terry: the first is preferred to the second, the third to the fourth.
loss = -torch.nn.functional.logsigmoid(rewards[0::2] - rewards[1::2]).mean()
(grad_rewards,) = torch.autograd.grad(loss, rewards, retain_graph=True)
loss.backward()
save_file({name: p.grad.contiguous() for name, p in model.named_parameters()}, f"{folder}/grads.safetensors")
with open(f"{folder}/case.json", "w") as out:
    json.dump(
        {
            "sequences": sequences, "rewards": rewards.tolist(), "token_values": [v.tolist() for v in values],
            "loss": loss.item(), "grad_rewards": grad_rewards.tolist(),
        },
        out,
    )
