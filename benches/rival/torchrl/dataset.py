"""The rivals of benches/ts/dataset.ts: TorchRL's data sets, h5py and Minari. It also writes the files that both sides read.

    python dataset.py FOLDER

Each line of standard input is a request, `{kind: "make"}` or `{kind: "run", name, repeats}`; an answer to the latter has a sum that both sides must give.
"""

from answering import serve

import gzip
import json
import os
import sys
from pathlib import Path

folder = Path(sys.argv[1])
os.environ["MINARI_DATASETS_PATH"] = str(folder / "minari")
# torchrl calls `gsutil` for the files of Atari: ours copies them from the folder.
os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"

import gymnasium
import h5py
import huggingface_hub
import minari
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
import torchrl
from minari.data_collector import EpisodeBuffer
from torchrl.data import SliceSampler
from torchrl.data.datasets import d4rl
from torchrl.data.datasets import AtariDQNExperienceReplay, D4RLExperienceReplay, LeRobotExperienceReplay
from torchrl.data.datasets import MinariExperienceReplay

D4RL_ID, D4RL_FILE = "hopper-medium-v2", "hopper_medium-v2.hdf5"
MINARI_ID = "bench/halfcheetah-v0"
STEPS, EPISODES, EPISODE = 1_000_000, 100, 1000
SLICES, SLICE = 8, 32
ATARI_ID, FRAMES = "Pong/1", 20_000
ROBOT_ID, ROBOT_FRAMES = "bench/robot", 100_000


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
    make_atari(random)
    make_robot(random)


def make_atari(random):
    logs = folder / "gs" / "atari-replay-datasets" / "dqn" / ATARI_ID / "replay_logs"
    logs.mkdir(parents=True)
    # A ball moves over a still background.
    frames = np.broadcast_to(random.integers(0, 80, (84, 84), dtype=np.uint8), (FRAMES, 84, 84)).copy()
    for at in range(FRAMES):
        frames[at, at % 80 : at % 80 + 4, at * 7 % 80 : at * 7 % 80 + 4] = 236
    arrays = {"$store$_observation": frames, "$store$_action": random.integers(0, 6, FRAMES, dtype=np.int32)}
    arrays |= {"$store$_reward": random.integers(-1, 2, FRAMES).astype(np.float32)}
    arrays |= {"$store$_terminal": (np.arange(1, FRAMES + 1) % 500 == 0).astype(np.uint8)}
    arrays |= {"add_count": np.array(FRAMES), "invalid_range": np.arange(5)}
    for name, array in arrays.items():
        with gzip.open(logs / f"{name}_ckpt.0.gz", "wb", compresslevel=1) as file:
            np.save(file, array)
    (folder / "bin").mkdir()
    gsutil = folder / "bin" / "gsutil"
    gsutil.write_text(GSUTIL.format(sys.executable, folder / "gs"))
    gsutil.chmod(0o755)


GSUTIL = """#!{}
import shutil, sys
from pathlib import Path
args, root = [one for one in sys.argv[1:] if not one.startswith("-")], Path("{}")
local = lambda url: root / url.removeprefix("gs://")
if args[0] == "ls":
    for path in sorted(local(args[1]).iterdir()):
        print("gs://" + str(path.relative_to(root)))
if args[0] == "cp":
    for url in args[1:-1]:
        shutil.copy(local(url), args[-1])
"""


def make_robot(random):
    root = folder / "robot"
    (root / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    (root / "data" / "chunk-000").mkdir(parents=True)
    count = ROBOT_FRAMES // EPISODE
    at = np.arange(ROBOT_FRAMES)

    def joints():
        return pa.FixedSizeListArray.from_arrays(random.standard_normal(14 * ROBOT_FRAMES).astype(np.float32), 14)

    columns = {"observation.state": joints(), "action": joints(), "timestamp": (at % EPISODE / 50).astype(np.float32)}
    columns |= {"frame_index": at % EPISODE, "episode_index": at // EPISODE, "index": at, "task_index": at * 0}
    pa.parquet.write_table(pa.table(columns), root / "data" / "chunk-000" / "file-000.parquet")
    episodes = [
        {"episode_index": number, "tasks": ["fold"], "length": EPISODE, "data/chunk_index": 0, "data/file_index": 0}
        | {"dataset_from_index": number * EPISODE, "dataset_to_index": (number + 1) * EPISODE}
        for number in range(count)
    ]
    pa.parquet.write_table(pa.Table.from_pylist(episodes), root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    pa.parquet.write_table(pa.table({"task_index": [0], "task": ["fold"]}), root / "meta" / "tasks.parquet")
    shapes = {"observation.state": 14, "action": 14, "timestamp": 1}
    shapes |= {"frame_index": 1, "episode_index": 1, "index": 1, "task_index": 1}
    floats = ("observation.state", "action", "timestamp")
    features = {
        name: {"dtype": "float32" if name in floats else "int64", "shape": [width], "names": None}
        for name, width in shapes.items()
    }
    about = {"codebase_version": "v3.0", "fps": 50, "total_episodes": count, "total_frames": ROBOT_FRAMES}
    about |= {"total_tasks": 1, "chunks_size": 1000, "features": features, "video_path": None}
    about |= {"data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"}
    (root / "meta" / "info.json").write_text(json.dumps(about))
    huggingface_hub.snapshot_download = lambda *_, **__: str(root)


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


def open_atari(download, **options):
    AtariDQNExperienceReplay._max_runs = 1
    options = {"batch_size": 32, "root": folder / "torchrl-atari"} | options
    return AtariDQNExperienceReplay(ATARI_ID, download=download, **options)


def open_robot(download, **options):
    options = {"batch_size": 256, "root": folder / "torchrl-robot", "decode_video": False} | options
    return LeRobotExperienceReplay(ROBOT_ID, download=download, **options)


def convert_atari():
    return float(len(open_atari("force")))


def convert_robot():
    return float(open_robot("force")[:]["action"].double().sum())


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
        "sample atari": lambda: open_atari(False),
        "sample robot": lambda: open_robot(False),
    }
    if name not in buffers:
        buffers[name] = makers[name]()
    return float(buffers[name].sample().shape[0])


WORKS = {
    "convert d4rl": convert_d4rl,
    "read h5py": read_h5py,
    "convert minari": convert_minari,
    "iterate minari": iterate_minari,
    "convert atari": convert_atari,
    "convert robot": convert_robot,
}


def run(name, repeats):
    for _ in range(repeats):
        total = WORKS[name]() if name in WORKS else sample(name)
    return {"total": total}


torch.set_num_threads(2)
versions = {"torchrl": torchrl.__version__, "h5py": h5py.__version__, "minari": minari.__version__}
serve({"make": make, "run": run}, versions=versions)
