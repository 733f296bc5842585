"""Loads folders that this repository wrote into transformers and PEFT and compares what they score.

Run by hand, with torch, transformers and peft installed (`.venv/trl` has them once `npm run bench -- grpo-step` ran):

    npm run build && node scripts/folders-for-transformers.mjs FOLDER
    python scripts/folders-in-transformers.py FOLDER

Says one line a folder and exits with 1 if one differs. Without one of these packages it says SKIPPED and exits with 0.
"""

import json
import sys
from pathlib import Path

try:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, GenerationConfig
except ImportError as missing:
    print(f"SKIPPED: {missing}. NOTHING WAS CHECKED: install torch, transformers and peft.")
    sys.exit(0)

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


def served(folder):
    """What a server reads of a folder beside its weights; a list of what is wrong."""
    config = json.loads((folder / "config.json").read_text())
    wrong = [] if config.get("architectures") else ["architectures are missing"]
    if (folder / "text.json").exists():
        generation = GenerationConfig.from_pretrained(folder)
        if (generation.eos_token_id, generation.bos_token_id) != (5, 3):
            wrong.append(f"generation_config.json has {generation.eos_token_id} and {generation.bos_token_id}")
        tokenizer, expected = AutoTokenizer.from_pretrained(folder), json.loads((folder / "text.json").read_text())
        messages = [{"role": "user", "content": "Tea at five?"}]
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        if text != expected["text"] or tokenizer(text)["input_ids"] != expected["ids"]:
            wrong.append(f"the tokenizer writes {text!r}")
    if (folder / "adapter_config.json").exists():
        model = AutoModelForCausalLM.from_pretrained(folder)
        if not getattr(model, "peft_config", None):
            wrong.append("the adapter is not loaded with its base")
    return wrong


def main():
    failed = 0
    folders = (path for path in Path(sys.argv[1]).iterdir() if path.is_dir() and not path.name.startswith("."))
    for folder in sorted(folders):
        expected = json.loads((folder / "expected.json").read_text())
        with torch.no_grad():
            found = scores(folder, torch.tensor([expected["ids"]]))
        (name, values), = found.items()
        apart = (values - torch.tensor(expected[name])).abs().max().item()
        failed += not apart <= TOLERANCE
        for wrong in served(folder):
            failed += 1
            print(f"{folder.name}: {wrong}, DIFFERS")
        print(f"{folder.name}: {name} at most {apart:.1e} apart{'' if apart <= TOLERANCE else ', DIFFERS'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
