"""The rival of benches/ts/collector.ts as it ships: torchtitan's rollouts on asyncio, rendered by the package `renderers`, with a policy
that answers from a script.

    python3 collector.py FOLDER shipped|tuned

FOLDER holds the tokenizer. As shipped, every rendering runs on a thread of its own; tuned, on the event loop, as ours does. A request
`crowd` has `question`, `tool`, `answer` and `page` (what the user says, what the policy may call, what it answers, as ids, and what
the tool says), `groups`, `group_size` and `turns`. The answer tells the ids of one rollout.
"""

import asyncio
import sys
import types
from dataclasses import dataclass
from importlib.metadata import version

from answering import serve

# The package registers itself with vLLM as it is loaded. Rollouts do without: only these two modules are left out.
for name, member in {"vllm_registry": "register_to_vllm", "vllm_wrapper": "VLLMModelWrapper"}.items():
    module = types.ModuleType(f"torchtitan.experiments.rl.models.{name}")
    setattr(module, member, None)
    sys.modules[module.__name__] = module

from torchtitan.config import Configurable  # noqa: E402
from torchtitan.experiments.rl.environment import MessageEnv, TokenEnv, token  # noqa: E402
from torchtitan.experiments.rl.environment.message import MessageEnvInitOutput, MessageEnvStepOutput  # noqa: E402
from torchtitan.experiments.rl.renderer import RendererConfig  # noqa: E402
from torchtitan.experiments.rl.rollout.rollouter import Rollouter  # noqa: E402
from torchtitan.experiments.rl.rubrics import RewardFn, Rubric  # noqa: E402
from torchtitan.experiments.rl.types import Completion  # noqa: E402


class Samples(Configurable):
    """One sample, for ever."""

    @dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        pass

    def __init__(self, config):
        pass

    def __next__(self):
        return 0


class Pages(MessageEnv):
    """An environment that answers every turn with the same message."""

    @dataclass(kw_only=True, slots=True)
    class Config(MessageEnv.Config):
        question: str
        tool: dict
        page: str

    def __init__(self, config, *, env_input):
        self.config = config

    async def init(self):
        question = {"role": "user", "content": self.config.question}
        return MessageEnvInitOutput(init_prompt_messages=[question], tools=[self.config.tool])

    async def step(self, completion_message):
        return MessageEnvStepOutput(env_messages=[{"role": "tool", "content": self.config.page}])


class Turns(RewardFn):
    """As many as there were turns."""

    @dataclass(kw_only=True, slots=True)
    class Config(RewardFn.Config):
        pass

    async def __call__(self, rollout, env_input):
        return float(len(rollout.turns))


@dataclass(frozen=True)
class Sampling:
    """What a rollouter asks of a sampling configuration; the original's own lies in a module that needs vLLM."""

    seed: int | None = None


class OnTheLoop:
    """asyncio, but for threads."""

    def __getattr__(self, name):
        return getattr(asyncio, name)

    async def to_thread(self, work, *args, **kwargs):
        return work(*args, **kwargs)


if sys.argv[2] == "tuned":
    token.asyncio = OnTheLoop()
renderer = RendererConfig(name="qwen3").build(tokenizer_path=sys.argv[1])


def crowd(question, tool, answer, page, groups, group_size, turns):
    rollouter = Rollouter.Config(
        train_dataset=Samples.Config(),
        validation_dataset=Samples.Config(),
        rubric=Rubric.Config(reward_fns=[Turns.Config()]),
        message_env=Pages.Config(question=question, tool=tool, page=page),
        token_env=TokenEnv.Config(max_num_turns=turns),
    ).build()

    async def generate(*, prompt_token_ids, request_id, routing_session_id, sampling_config):
        """Answers in a later turn of the event loop, as an engine does."""
        await asyncio.sleep(0)
        return Completion(
            min_policy_version=0,
            max_policy_version=0,
            request_id=request_id,
            token_ids=list(answer),
            token_logprobs=[-0.1] * len(answer),
            finish_reason="stop",
        )

    async def run():
        return await asyncio.gather(
            *(
                rollouter.run_group_rollouts(
                    generate_fn=generate,
                    sample=rollouter.get_training_sample(),
                    group_id=group_id,
                    group_size=group_size,
                    sampling=Sampling(),
                    renderer=renderer,
                )
                for group_id in range(groups)
            )
        )

    done = asyncio.run(run())
    if any(len(rollout.turns) != turns for group in done for rollout in group.rollouts):
        raise RuntimeError("a rollout lacks turns")
    last = done[-1].rollouts[-1].turns[-1]
    return {"ids": last.prompt_token_ids + last.completion_token_ids}


serve({"crowd": crowd}, versions={name: version(name) for name in ("torchtitan", "renderers", "transformers")})
