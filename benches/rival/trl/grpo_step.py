"""The rival of benches/ts/grpo-case.ts: TRL's GRPOTrainer, one step a request.

    python grpo_step.py FOLDER (shipped | tuned)

FOLDER holds a model as Hugging Face lays it out, and setting.json. Each line of standard input is a request, each answer is one line of
JSON on standard output: first `score`, which gives log-probabilities of setting.scored, then each `step` runs one
training step and gives its wall time. Input that ends is the end. Everything that libraries print goes to standard error.
"""

import json
import os
import resource
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import accelerate  # noqa: E402
import datasets  # noqa: E402
import peft  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402


def answer(**fields):
    answers.write(json.dumps(fields) + "\n")
    answers.flush()


def load_model(folder):
    """The model of the folder in f32, without ids that start or stop anything."""
    config = transformers.AutoConfig.from_pretrained(folder, bos_token_id=None, eos_token_id=None)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32)
    # The folder may have a generation_config.json of its own.
    model.generation_config = transformers.GenerationConfig()
    return model


def make_tokenizer(vocab_size):
    """Words `t0 t1 ...` for the ids 0, 1, ...; the end token is none that the model can draw."""
    vocab = {f"t{index}": index for index in range(vocab_size)} | {"<end>": vocab_size}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="t0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", eos_token="<end>")


def score(model, sequences):
    """Log-probability of each token but the first, one list a sequence."""
    ids = torch.tensor(sequences)
    with torch.no_grad():
        log_probs = torch.log_softmax(model(ids).logits[:, :-1].float(), dim=-1)
    return log_probs.gather(-1, ids[:, 1:, None]).squeeze(-1).tolist()


class OneStepARequest(transformers.TrainerCallback):
    """Waits for a request before each step, and answers with its wall time: sampling, both passes and the update.

    The answer is given when the trainer is ready for the next step, so nothing of it runs on while others are timed;
    what it does between two steps (logging, loading data) is not counted.
    """

    def __init__(self, reward):
        self.reward = reward
        self.done = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.done:
            answer(**self.done)
        if sys.stdin.readline().strip() != "step":
            os._exit(0)
        self.start, self.start_cpu = time.perf_counter(), time.process_time()

    def on_step_end(self, args, state, control, **kwargs):
        ms = (time.perf_counter() - self.start) * 1000
        cpu_ms = (time.process_time() - self.start_cpu) * 1000
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.done = {"ms": ms, "cpuMs": cpu_ms, "numTokens": self.reward.num_tokens, "reward": self.reward.mean, "peakMiB": peak}


class ShareOfIds:
    """The share of drawn tokens that are among `ids`, where the n-th counts n times; remembers what it saw last."""

    __name__ = "share_of_ids"

    def __init__(self, ids):
        self.ids = set(ids)

    def __call__(self, completion_ids, **kwargs):
        self.num_tokens = sum(map(len, completion_ids))
        rewards = [self.share(ids) for ids in completion_ids]
        self.mean = sum(rewards) / len(rewards)
        return rewards

    def share(self, ids):
        return sum(at for at, token in enumerate(ids, 1) if token in self.ids) / (len(ids) * (len(ids) + 1) / 2)


def make_trainer(model, setting, is_tuned):
    prompts = [" ".join(f"t{token}" for token in prompt) for prompt in setting["prompts"]]
    reward = ShareOfIds(setting["rewardIds"])
    tuned = {"gradient_checkpointing": False, "disable_tqdm": True} if is_tuned else {}
    config = trl.GRPOConfig(
        output_dir=setting["outputFolder"],
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=setting["promptsPerStep"] * setting["groupSize"],
        num_generations=setting["groupSize"],
        max_completion_length=setting["maxTokens"],
        learning_rate=setting["learningRate"],
        lr_scheduler_type="constant",
        max_grad_norm=setting["maxGradNorm"],
        max_steps=1_000_000,
        save_strategy="no",
        report_to="none",
        **tuned,
    )
    lora = setting["lora"]
    return trl.GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=datasets.Dataset.from_dict({"prompt": prompts}),
        processing_class=make_tokenizer(setting["vocabSize"]),
        peft_config=lora and peft.LoraConfig(**lora, task_type="CAUSAL_LM"),
        callbacks=[OneStepARequest(reward)],
    )


def main(folder, variant):
    with open(os.path.join(folder, "setting.json")) as file:
        setting = json.load(file)
    torch.set_num_threads(setting["threads"])
    torch.manual_seed(0)
    model = load_model(folder)
    modules = {"torch": torch, "trl": trl, "transformers": transformers, "accelerate": accelerate, "peft": peft}
    versions = {name: module.__version__ for name, module in modules.items()}
    trainer = make_trainer(model, setting, variant == "tuned")
    answer(versions={"python": sys.version.split()[0], **versions}, threads=torch.get_num_threads())
    if sys.stdin.readline().strip() != "score":
        raise ValueError("the first request must be `score`")
    answer(logProbs=score(model.eval(), setting["scored"]))
    trainer.train()


main(*sys.argv[1:])
