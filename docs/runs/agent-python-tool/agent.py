"""The agent of agent.mjs, by the Python package `openai`."""

import json
import os
import subprocess

from openai import OpenAI

PARAMETERS = {"type": "object", "properties": {"code": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "python", "parameters": PARAMETERS}}]
BWRAP = (
    "--unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev"
)


def python(code, numbers):
    """Runs Python without a network or files of this machine; the numbers are its standard input."""
    command = ["bwrap", *BWRAP.split(), "/usr/bin/python3", "-I", "-c", code]
    text = " ".join(map(str, numbers))
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=10)
    return done.stdout.strip() if done.returncode == 0 else "error"


def agent(client, numbers):
    """Asks for the sum of numbers that only the program sees, and posts whether it is right. What a program prints is the answer."""
    messages = [{"role": "user", "content": "Sum?"}]
    message = client.chat.completions.create(model="fulmar", messages=messages, tools=TOOLS).choices[0].message
    answer = message.content
    if message.tool_calls:
        answer = python(str(json.loads(message.tool_calls[0].function.arguments).get("code")), numbers)
    client.post("/fulmar/reward", body={"reward": int(answer == str(sum(numbers)))}, cast_to=object)


agent(OpenAI(), json.loads(os.environ["FULMAR_SAMPLE"])["numbers"])
