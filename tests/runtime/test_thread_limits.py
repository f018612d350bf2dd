"""Threads are bounded as memory is: requests of ever new shapes take no more, and a service fits its system's limit."""

import itertools
import json
import math
import os
import re
import resource
from pathlib import Path

import pytest

from app.runtime import cores, threads
from app.runtime.trace_entry import MEMBERS
from app.runtime.trace_room import SESSIONS_KEPT
from app.runtime.traces import TRACES
from app.settings import Settings
from tests.conftest import ROOT

JSON = {"content-type": "application/json"}
# Beside those of sessions: what the service and TensorFlow start once, when they are first needed.
ONCE, FILES, MOST_MB = 60, 8, 2000
BODIES = {
    "forward": {},
    "gradients": {"order": 2},
    "vjp": {},
    "jvp": {"tangents": {}},
    "hvp": {"vectors": {}},
    "jacobian": {},
    "hessian": {},
    "sparsity": {},
}
MODES = ("graph", "eager", "v1", "xla")
FEW = [("xla", "forward"), (None, "sparsity")]
EVERY = [pytest.param(*each, 1000, marks=pytest.mark.thorough) for each in itertools.product((None, *MODES), BODIES)]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "operation", "count"), [*((*each, 18) for each in FEW), *EVERY])
def test_new_shapes_take_a_bounded_number_of_threads(start, mode: str | None, operation: str, count: int):
    one = start(CHECK_PROCESSES="0", JOBS="0", DEADLINE_S="600").wait_until_ready()
    folder = Path(f"/proc/{one.process.pid}")
    with one.client() as client:

        def post(size: int) -> None:
            numbers = {"x": [1.0 + i for i in range(size)]}
            named = {name: numbers for name in ("tangents", "vectors") if name in BODIES[operation]}
            body = {"inputs": numbers, **BODIES[operation], **named, **({"mode": mode} if mode else {})}
            op = "square" if operation == "sparsity" else "safe_norm"
            response = client.post(f"/v1/ops/{op}/{operation}", content=json.dumps(body), headers=JSON)
            assert response.status_code == 200, response.text

        post(1)
        before, files, resident = count_in(folder / "task"), count_in(folder / "fd"), megabytes(folder)
        for size in range(2, 2 + count):
            post(size)
        compiled = client.get("/health/ready").json()["compiled"]
    sessions = min(SESSIONS_KEPT, math.ceil(compiled / MEMBERS))
    assert count_in(folder / "task") - before <= threads.OF_SESSION * sessions + ONCE
    assert count_in(folder / "fd") - files <= FILES
    assert megabytes(folder) - resident < MOST_MB


def count_in(folder: Path) -> int:
    return len(list(folder.iterdir()))


def megabytes(folder: Path) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", (folder / "status").read_text(encoding="ascii"))
    assert found
    return int(found[1]) / 1024


@pytest.mark.parametrize(
    ("own", "files", "of_user", "limit"),
    [
        ("0::/\n", {"pids.max": "512\n"}, None, 512),
        ("0::/\n", {"pids.max": "max\n"}, None, None),
        ("0::/a/b\n", {"a/b/pids.max": "max", "a/pids.max": "900"}, None, 900),
        ("8:pids:/d\n2:cpu:/e\n0::/\n", {"pids/d/pids.max": "700"}, None, 700),
        ("8:cpu:/d\n", {"cpu/d/pids.max": "700"}, None, None),
        ("0::/\n", {"pids.max": "512\n"}, 300, 300),
        ("", {}, 300, 300),
        ("", {}, None, None),
    ],
)
def test_the_limit_is_the_least_of_the_groups_and_the_user(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    own: str,
    files: dict[str, str],
    of_user: int | None,
    limit: int | None,
):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    soft = resource.RLIM_INFINITY if of_user is None else of_user
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, resource.RLIM_INFINITY))
    for path, text in {**{f"groups/{name}": text for name, text in files.items()}, "own": own}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="ascii")
    assert threads.usable_threads(tmp_path / "groups", tmp_path / "own") == limit


@pytest.mark.parametrize(
    ("limit", "processes", "expected"),
    [
        (None, 9, (64, SESSIONS_KEPT)),
        (8192, 1, (64, SESSIONS_KEPT)),
        (4096, 9, (64, 7)),
        (4096, 64, (1, 1)),
        (512, 1, (64, 12)),
        (100, 1, (5, 1)),
        (16, 9, (1, 1)),
    ],
)
def test_a_process_takes_its_part_of_the_threads(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, processes: int, expected: tuple[int, int]
):
    found = {"intra": 64}
    monkeypatch.setattr(TRACES.room, "most_sessions", SESSIONS_KEPT)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(cores, "usable_cores", lambda: 64)
    monkeypatch.setattr(cores, "usable_threads", lambda: limit)
    for kind in ("intra", "inter"):
        name = f"set_{kind}_op_parallelism_threads"
        monkeypatch.setattr(cores.tf.config.threading, name, lambda count, kind=kind: found.update({kind: count}))
    cores.share_cores(1, processes)
    assert (found["intra"], TRACES.room.most_sessions) == expected


def test_the_defaults_fit_the_containers_limit_of_threads():
    limit = re.search(r"pids_limit: (\d+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert limit
    of_each = int(limit[1]) // Settings.model_construct().processes
    assert threads.cores_within(of_each, 64) == 64
    assert threads.sessions_within(of_each, 4, SESSIONS_KEPT) == SESSIONS_KEPT
