"""The GPU image on a machine that need not have a GPU: all but the driver is in it."""

import json
import re

import pytest

import pullback
from app.runtime.doctor import COMPILER_FILES, DRIVER, LIBRARIES
from tests.docker.conftest import CPU, GPU, call, docker

pytestmark = pytest.mark.docker

# What TensorFlow's libraries hold of names of CUDA's libraries: those that it may ask the loader for.
NAMED = r"""
import ctypes, mmap, pathlib, re, sys
found = set()
for path in pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/tensorflow/libtensorflow*.so.2"):
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found |= set(re.findall(rb"\blib(?:cu[a-zA-Z]+|nv[A-Z]\w+|nccl)\.so\.\d+\b", content))
for name in sorted(name.decode() for name in found | {name.encode() for name in sys.argv[1:]}):
    try:
        ctypes.CDLL(name)
        print(name, "loads")
    except OSError as error:
        print(name, "does not load:", error)
"""


def run(*args: str, env: dict[str, str] | None = None):
    settings = [part for name, value in (env or {}).items() for part in ("--env", f"{name}={value}")]
    hardened = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    return call("docker", "run", "--rm", *hardened, *settings, GPU, *args)


def test_every_library_that_tensorflow_loads_is_found_by_the_loader_and_loads():
    told = dict(line.split(" ", 1) for line in run("python", "-c", NAMED, *LIBRARIES).stdout.splitlines())
    assert set(LIBRARIES) <= set(told)
    assert {name for name, state in told.items() if state != "loads"} == {DRIVER}, told


def test_what_xla_compiles_with_is_there():
    done = run(
        "sh",
        "-c",
        "$(python -c 'import app.runtime.doctor as d; print(d.compiler_file(\"bin/ptxas\").found)') --version",
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"release \d+\.\d+", done.stdout)


def test_the_doctor_finds_all_but_the_driver():
    done = run("pullback", "doctor")
    assert done.returncode == 1
    missing = [line.split()[0] for line in done.stdout.splitlines() if " MISSING " in line]
    assert missing == [DRIVER, "gpus"], done.stdout
    assert "NVIDIA driver" in done.stdout
    assert {name.rpartition("/")[2] for name in COMPILER_FILES} <= set(done.stdout.split())


def test_without_a_gpu_it_refuses_to_start_for_one_and_says_why():
    done = run(env={"PULLBACK_DEVICE": "gpu"})
    assert done.returncode == 3
    [line] = [line for line in done.stderr.splitlines() if line.startswith("pullback: ")]
    for told in ("PULLBACK_DEVICE", "got gpu", DRIVER, "NVIDIA driver"):
        assert told in line


def test_left_to_itself_it_falls_back_to_the_cpu_and_warns():
    ask = (
        "import threading, time, json, urllib.request as r, runpy, os, signal\n"
        "def probe():\n"
        "    while True:\n"
        "        try:\n"
        "            print(r.urlopen('http://127.0.0.1:8000/health/ready').read().decode(), flush=True)\n"
        "            break\n"
        "        except OSError:\n"
        "            time.sleep(0.2)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Thread(target=probe, daemon=True).start()\n"
        "runpy.run_module('app', run_name='__main__')\n"
    )
    done = run("python", "-c", ask, env={"PULLBACK_DRAIN_S": "0"})
    [ready] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert (ready["default_device"], ready["devices"]) == ("cpu", ["cpu"])
    [warning] = [line for line in done.stderr.splitlines() if "WARNING" in line and "PULLBACK_DEVICE=auto" in line]
    assert DRIVER in warning


def test_both_images_are_of_one_version_and_one_tensorflow():
    versions = {docker("run", "--rm", "--network", "none", image, "pullback", "--version") for image in (CPU, GPU)}
    assert len(versions) == 1
    assert pullback.__version__ in versions.pop()
    program = "import importlib.metadata as m; print([m.version(d) for d in ('numpy', 'fastapi', 'keras')])"
    assert len({docker("run", "--rm", image, "python", "-c", program) for image in (CPU, GPU)}) == 1
    tensorflows = {
        docker("run", "--rm", image, "python", "-c", f"import importlib.metadata as m; print(m.version('{name}'))")
        for image, name in ((CPU, "tensorflow-cpu"), (GPU, "tensorflow"))
    }
    assert len(tensorflows) == 1
