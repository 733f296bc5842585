"""The rival of benches/ts/chat.ts: transformers renders and tokenises a corpus, one pass a request.

    python chat.py FOLDER

FOLDER holds corpus.json, template.jinja and tokenizer.json. Each line of standard input is a request, each answer is
one line of JSON on standard output: `render` gives the time of one pass of apply_chat_template to text, `tokens` of
one to ids and assistant masks; both tell processor milliseconds, sizes and a digest of everything that came out.
"""

import hashlib
import json
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import jinja2  # noqa: E402
import tokenizers  # noqa: E402
import transformers  # noqa: E402

folder = sys.argv[1]
with open(os.path.join(folder, "corpus.json"), encoding="utf-8") as file:
    corpus = json.load(file)
with open(os.path.join(folder, "template.jinja"), encoding="utf-8") as file:
    template = file.read()
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))
tokenizer.chat_template = template


def answer(**fields):
    answers.write(json.dumps(fields) + "\n")
    answers.flush()


def apply(row, **options):
    return tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), **options)


def render():
    start = time.process_time()
    texts = [apply(row, tokenize=False) for row in corpus]
    ms = 1000 * (time.process_time() - start)
    digest = hashlib.sha256("\x00".join(texts).encode()).hexdigest()
    answer(ms=ms, count=sum(map(len, texts)), digest=digest)


def tokens():
    options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
    start = time.process_time()
    encodings = [apply(row, **options) for row in corpus]
    ms = 1000 * (time.process_time() - start)
    digest = hashlib.sha256()
    count = 0
    for encoding in encodings:
        count += len(encoding["input_ids"])
        pairs = zip(encoding["input_ids"], encoding["assistant_masks"])
        digest.update(b"".join((2 * id + mask).to_bytes(4, "little") for id, mask in pairs))
    answer(ms=ms, count=count, digest=digest.hexdigest())


packages = {"jinja2": jinja2, "tokenizers": tokenizers, "transformers": transformers}
versions = {name: module.__version__ for name, module in packages.items()}
answer(versions={"python": sys.version.split()[0], **versions})
requests = {"render": render, "tokens": tokens}
for line in sys.stdin:
    requests[line.strip()]()
