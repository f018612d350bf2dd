"""How cores are counted and divided, with fake file systems and in the service."""

import json
import os
from pathlib import Path

import httpx
import pytest

from app.runtime import cores
from app.runtime.cores import share_cores, usable_cores
from tests.patience import PATIENCE_S

CORES = len(os.sched_getaffinity(0))
COUNTER = '''
"""How many threads TensorFlow has: within a kernel, and for kernels."""

import numpy as np
import tensorflow as tf

from ops import Example, Input, Op, Output

threads = tf.config.threading


def forward(x):
    counts = (threads.get_intra_op_parallelism_threads(), threads.get_inter_op_parallelism_threads())
    return 0 * x + tf.constant(counts, x.dtype)


OP = Op(
    name="counter",
    summary="how many threads there are",
    doc=__doc__,
    function=forward,
    reference=np.asarray,
    inputs=(Input("x", shape=(2,)),),
    outputs=(Output("y", shape=(2,)),),
    mechanism="symbolic_gradient",
    source="a test",
    examples=(Example("two", {"x": [0.0, 0.0]}),),
)
'''


def write(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="ascii")


def version_1(group: str, quota: int) -> dict[str, str]:
    return {f"{group}/cpu.cfs_quota_us": f"{quota}\n", f"{group}/cpu.cfs_period_us": "10000\n"}


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "10000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "6400000 100000\n"}, 8),
        ("0::/\n", {}, 8),
        ("0::/a.slice/b\n", {"a.slice/b/cpu.max": "max 100000", "a.slice/cpu.max": "300000 100000"}, 3),
        ("0::/outside/unseen\n", {"cpu.max": "300000 100000"}, 3),
        ("3:memory:/m\n2:cpu:/d/e\n0::/\n", version_1("cpu/d/e", 50_000), 5),
        ("4:cpu,cpuacct:/x\n", version_1("cpu,cpuacct", 50_000), 5),
        ("4:cpu,cpuacct:/x\n", version_1("cpu,cpuacct", -1), 8),
        ("4:cpuset:/x\n", version_1("cpuset", 10_000), 8),
    ],
)
def test_a_quota_counts_as_cores(tmp_path, monkeypatch, own: str, files: dict[str, str], cores: int):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    write(tmp_path / "groups", files)
    write(tmp_path, {"own": own})
    assert usable_cores(tmp_path / "groups", tmp_path / "own") == cores


def test_without_control_groups_the_cores_are_those_of_the_process(tmp_path):
    assert usable_cores(tmp_path, tmp_path / "none") == CORES


@pytest.mark.parametrize(
    ("count", "quota", "workers", "expected"),
    [
        (8, 8, 1, {}),
        (8, 8, 2, {"intra": 4, "inter": 4}),
        (8, 8, 3, {"intra": 2, "inter": 2}),
        (8, 8, 64, {"intra": 1, "inter": 2}),
        (8, 3, 1, {"intra": 3, "inter": 3}),
        (8, 3, 2, {"intra": 1, "inter": 2}),
        (2, 2, 2, {"intra": 1}),
        (1, 1, 1, {"inter": 2}),
    ],
)
def test_the_cores_are_divided_among_the_workers(monkeypatch, count: int, quota: int, workers: int, expected):
    """One kernel thread would be too few: the long slot would block the kernels of the short slot."""
    found: dict[str, int] = {}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)))
    monkeypatch.setattr(cores, "usable_cores", lambda: quota)
    for kind in ("intra", "inter"):
        name = f"set_{kind}_op_parallelism_threads"
        monkeypatch.setattr(cores.tf.config.threading, name, lambda count, kind=kind: found.update({kind: count}))
    share_cores(workers, 1)
    assert found == expected


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_the_service_divides_the_cores(start, tmp_path, workers: int):
    if usable_cores() != CORES:
        pytest.skip("there is a quota here")
    (tmp_path / "counter.py").write_text(COUNTER, encoding="ascii")
    one = start(OPS_PATH=str(tmp_path), WORKERS=str(workers)).wait_until_ready()
    body = json.dumps({"inputs": {"x": [0, 0]}})
    headers = {"content-type": "application/json"}
    answer = httpx.post(
        one.url + "/v1/ops/counter/forward", content=body, headers=headers, timeout=PATIENCE_S, trust_env=False
    )
    part = max(1, CORES // workers)
    wanted = [0 if part == CORES else part, 0 if max(2, part) == CORES else max(2, part)]  # 0 is TensorFlow's default
    assert answer.json()["outputs"]["y"]["data"] == wanted
