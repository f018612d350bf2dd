"""The GPU image, on a machine with or without a GPU: it has everything but the driver."""

import json
import re

import pytest

import pullback
from app.runtime.doctor import COMPILER_FILES, DRIVER, LIBRARIES
from tests.docker.deployment import CPU, GPU, call, docker

pytestmark = pytest.mark.docker

# Load the CUDA libraries whose names are in TensorFlow's libraries, which it may load at run time.
LOAD_LIBRARIES = r"""
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


def test_every_library_of_tensorflow_loads():
    states = dict(line.split(" ", 1) for line in run("python", "-c", LOAD_LIBRARIES, *LIBRARIES).stdout.splitlines())
    assert set(LIBRARIES) <= set(states)
    assert {name for name, state in states.items() if state != "loads"} == {DRIVER}, states


def test_the_compiler_of_xla_is_installed():
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


def test_without_a_gpu_the_device_gpu_is_refused_with_the_reason():
    done = run(env={"PULLBACK_DEVICE": "gpu"})
    assert done.returncode == 3
    [line] = [line for line in done.stderr.splitlines() if line.startswith("pullback: ")]
    for text in ("PULLBACK_DEVICE", "got gpu", DRIVER, "NVIDIA driver"):
        assert text in line


def test_the_default_device_falls_back_to_the_cpu_with_a_warning():
    program = (
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
    done = run("python", "-c", program, env={"PULLBACK_DRAIN_S": "0"})
    [ready] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert (ready["default_device"], ready["devices"]) == ("cpu", ["cpu"])
    [warning] = [line for line in done.stderr.splitlines() if "WARNING" in line and "PULLBACK_DEVICE=auto" in line]
    assert DRIVER in warning


def test_both_images_have_the_same_versions():
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
