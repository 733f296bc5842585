"""The rivals of benches/ts/dataset.ts: TorchRL's data sets, h5py and Minari. It also writes the files that both sides read.

    python dataset.py FOLDER

Each line of standard input is a request, `{kind: "make"}` or `{kind: "run", name, repeats}`; an answer to the latter has a sum that both sides must give.
"""

from answering import serve

import os
import sys
from pathlib import Path

folder = Path(sys.argv[1])
os.environ["MINARI_DATASETS_PATH"] = str(folder / "minari")

import gymnasium
import h5py
import minari
import numpy as np
import torch
import torchrl
from minari.data_collector import EpisodeBuffer
from torchrl.data import SliceSampler
from torchrl.data.datasets import d4rl
from torchrl.data.datasets import D4RLExperienceReplay, MinariExperienceReplay

D4RL_ID, D4RL_FILE = "hopper-medium-v2", "hopper_medium-v2.hdf5"
MINARI_ID = "bench/halfcheetah-v0"
STEPS, EPISODES, EPISODE = 1_000_000, 100, 1000
SLICES, SLICE = 8, 32


def make():
    random = np.random.default_rng(5)

    def normal(*shape, dtype=np.float32):
        return random.standard_normal((STEPS, *shape)).astype(dtype)

    ends = np.arange(1, STEPS + 1) % EPISODE == 0
    columns = {"observations": normal(11), "next_observations": normal(11), "actions": normal(3), "rewards": normal()}
    columns |= {"terminals": np.zeros(STEPS, bool), "timeouts": ends, "infos/action_log_probs": normal()}
    columns |= {"infos/qpos": normal(6, dtype=np.float64), "infos/qvel": normal(6, dtype=np.float64)}
    with h5py.File(folder / D4RL_FILE, "w") as file:
        for name, column in columns.items():
            file.create_dataset(name, data=column, compression="gzip")
    episodes = [episode(random, number) for number in range(EPISODES)]
    spaces = {
        "observation_space": gymnasium.spaces.Box(-np.inf, np.inf, (17,)),
        "action_space": gymnasium.spaces.Box(-np.inf, np.inf, (6,)),
    }
    about = {"algorithm_name": "none", "author": "none", "author_email": "none", "code_permalink": "none"}
    minari.create_dataset_from_buffers(dataset_id=MINARI_ID, buffer=episodes, **spaces, **about)


def episode(random, number):
    def normal(count, width):
        return random.standard_normal((count, width)).astype(np.float32)

    ends = np.arange(1, EPISODE + 1) == EPISODE
    return EpisodeBuffer(
        id=number,
        observations=normal(EPISODE + 1, 17),
        actions=normal(EPISODE, 6),
        rewards=random.standard_normal(EPISODE),
        terminations=np.zeros(EPISODE, bool),
        truncations=ends,
        infos={"x_position": random.standard_normal(EPISODE + 1), "x_velocity": random.standard_normal(EPISODE + 1)},
    )


def open_d4rl(download, **options):
    d4rl.D4RL_DATASETS[D4RL_ID] = (folder / D4RL_FILE).as_uri()
    options = {"batch_size": 256, "direct_download": True, "root": folder / "torchrl-d4rl"} | options
    return D4RLExperienceReplay(D4RL_ID, download=download, **options)


def open_minari(download, **options):
    options = {"batch_size": 256, "load_from_local_minari": True, "root": folder / "torchrl-minari"} | options
    return MinariExperienceReplay(MINARI_ID, download=download, **options)


def convert_d4rl():
    return float(open_d4rl("force")[:]["next", "reward"].double().sum())


def convert_minari():
    open_minari("force")
    return 0.0  # TorchRL 0.14.1 writes zeros alone


def read_h5py():
    columns = []
    with h5py.File(folder / D4RL_FILE) as file:
        file.visititems(lambda name, item: columns.append(item[:]) if isinstance(item, h5py.Dataset) else None)
    return float(len(columns))


def iterate_minari():
    total = 0.0
    for one in minari.load_dataset(MINARI_ID).iterate_episodes():
        total += float(one.rewards.sum())
    return total


def slices(cached):
    sampler = SliceSampler(num_slices=SLICES, traj_key="episode", cache_values=cached, strict_length=True)
    return open_minari(False, sampler=sampler, batch_size=SLICES * SLICE)


buffers = {}


def sample(name):
    makers = {
        "sample d4rl": lambda: open_d4rl(False),
        "sample minari": lambda: open_minari(False),
        "slices cached": lambda: slices(True),
        "slices": lambda: slices(False),
    }
    if name not in buffers:
        buffers[name] = makers[name]()
    return float(buffers[name].sample().shape[0])


WORKS = {
    "convert d4rl": convert_d4rl,
    "read h5py": read_h5py,
    "convert minari": convert_minari,
    "iterate minari": iterate_minari,
}


def run(name, repeats):
    for _ in range(repeats):
        total = WORKS[name]() if name in WORKS else sample(name)
    return {"total": total}


torch.set_num_threads(2)
versions = {"torchrl": torchrl.__version__, "h5py": h5py.__version__, "minari": minari.__version__}
serve({"make": make, "run": run}, versions=versions)
