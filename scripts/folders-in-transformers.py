"""Loads folders that this repository wrote into transformers and PEFT and compares what they score.

Run by hand, with torch, transformers and peft installed (`.venv/trl` has them once `npm run bench -- grpo-step` ran):

    npm run build && node scripts/folders-for-transformers.mjs FOLDER
    python scripts/folders-in-transformers.py FOLDER

Says one line a folder and exits with 1 if one differs.
"""

import json
import sys
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

# Both sum in single precision, each in its own order.
TOLERANCE = 1e-4


def scores(folder, ids):
    """What transformers says of the tokens, under the name that expected.json has for it."""
    if folder.name.endswith("-score"):
        model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
        model.config.pad_token_id = None
        return {"value": model(ids).logits[0]}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if (folder / "adapter").exists():
        model = PeftModel.from_pretrained(model, folder / "adapter")
    log_probs = torch.log_softmax(model(ids).logits[0, :-1], -1).gather(-1, ids[0, 1:, None])[:, 0]
    return {"logProbs": torch.cat([torch.zeros(1), log_probs])}


def main():
    failed = 0
    for folder in sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir()):
        expected = json.loads((folder / "expected.json").read_text())
        with torch.no_grad():
            found = scores(folder, torch.tensor([expected["ids"]]))
        (name, values), = found.items()
        apart = (values - torch.tensor(expected[name])).abs().max().item()
        failed += not apart <= TOLERANCE
        print(f"{folder.name}: {name} at most {apart:.1e} apart{'' if apart <= TOLERANCE else ', DIFFERS'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
