"""The rival of benches/ts/python.ts: TorchRL's interpreters, which keep nothing apart.

    python python.py

Each line of standard input is a request, `{kind, persistent, count}`: the transform answers `count` messages, as it does in a batch.
"""

from answering import serve

import torchrl
from torchrl.envs.llm.transforms import PythonInterpreter

SAID = "```python\nprint(1 + 1)\n```"
ANSWER = ["Code block 1 executed successfully:\n2\n"]
interpreters = {persistent: PythonInterpreter(persistent=persistent) for persistent in (False, True)}


def run(persistent, count):
    answers = [interpreters[persistent]._process_batch_item(SAID, index) for index in range(count)]
    if answers != [ANSWER] * count:
        raise RuntimeError(f"each answer must be {ANSWER}: got {answers}")


serve({"run": run}, versions={"torchrl": torchrl.__version__})
