"""The hardware and libraries of the machine and the default device: each fault is reported with its cure."""

import ctypes.util
import logging
import subprocess
import sys

import pytest

from app.errors import CannotStart
from app.runtime import devices, doctor
from app.settings import Settings
from ops import Registry, Unavailable, discover
from tests.conftest import ROOT, environment

CPU = {"cpu": "/device:CPU:0"}
GPU = CPU | {"gpu:0": "/device:GPU:0", "gpu:1": "/device:GPU:1"}


def why_not() -> str:
    return "the driver is gone: install it"


@pytest.mark.parametrize(
    ("setting", "known", "expected"),
    [
        ("auto", CPU, "cpu"),
        ("auto", GPU, "gpu:0"),
        ("gpu", GPU, "gpu:0"),
        ("gpu:1", GPU, "gpu:1"),
        ("cpu", GPU, "cpu"),
    ],
)
def test_the_default_device(setting, known, expected):
    assert devices.default_device(setting, known, why_not) == expected


@pytest.mark.parametrize("setting", ["gpu", "gpu:7", "tpu"])
def test_a_missing_device_is_reported_with_the_reason(setting):
    with pytest.raises(CannotStart) as refused:
        devices.default_device(setting, CPU, why_not)
    text = str(refused.value)
    assert text.startswith(f"PULLBACK_DEVICE: expected auto or one of cpu, got {setting}")
    assert text.endswith(why_not()) is setting.startswith("gpu")


@pytest.mark.parametrize(("with_cuda", "known", "warned"), [(True, CPU, 1), (True, GPU, 0), (False, CPU, 0)])
def test_a_gpu_build_of_tensorflow_without_a_gpu_gives_a_warning(monkeypatch, caplog, with_cuda, known, warned):
    monkeypatch.setattr(devices, "BUILT_WITH_CUDA", with_cuda)
    with caplog.at_level(logging.WARNING):
        devices.default_device("auto", known, why_not)
    assert len(caplog.messages) == warned
    assert all(why_not() in message for message in caplog.messages)


def test_a_library_is_loaded_like_tensorflow_does():
    soname = ctypes.util.find_library("m")
    assert soname
    assert doctor.library(soname, "nobody").status == "ok"


def test_a_missing_or_broken_library_is_reported_with_its_cure(tmp_path, monkeypatch):
    absent = doctor.library("libnothing.so.12", "nvidia-nothing-cu12")
    assert (absent.status, absent.cure) == ("missing", "install nvidia-nothing-cu12")
    folder = tmp_path / "nvidia" / "nothing" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnothing.so.12").write_bytes(b"no library")
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda name: str(tmp_path))
    broken = doctor.library("libnothing.so.12", "nvidia-nothing-cu12")
    assert broken.status == "missing"
    assert str(folder) in broken.found


def test_a_gpu_build_of_tensorflow_without_a_driver(monkeypatch):
    """Like the GPU image on a host without a driver; the libraries are installed."""
    monkeypatch.setattr(doctor, "BUILT_WITH_CUDA", True)
    parts = {part.name: part for part in doctor.examination(Settings(), Registry({}))}
    assert set(doctor.LIBRARIES) <= set(parts)
    assert parts["gpus"].status == "missing"
    assert doctor.DRIVER in doctor.why_no_gpu()
    assert "NVIDIA driver" in doctor.why_no_gpu()


def test_a_missing_op_is_reported():
    registry = Registry(discover().ops, (Unavailable("mine", "it does not load"),))
    parts = {part.name: part for part in doctor.examination(Settings(), registry)}
    assert (parts["op mine"].status, parts["op mine"].found) == ("missing", "it does not load")


@pytest.mark.slow
def test_the_doctor_prints_a_line_for_each_part(tmp_path):
    """And exits with 1, because an op is missing; ``tests/docs`` runs it on a healthy machine."""
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n", encoding="ascii")
    called, environ = [sys.executable, "-m", "pullback", "doctor"], environment(OPS_PATH=str(tmp_path))
    ill = subprocess.run(called, check=False, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert ill.returncode == 1
    [line] = [line for line in ill.stdout.splitlines() if line.startswith("op broken")]
    assert "MISSING" in line
    assert "nothing_of_this_name" in line


def test_a_service_for_a_missing_gpu_does_not_start(start):
    one = start(DEVICE="gpu:9")
    assert one.wait() == 3
    [line] = [line for line in one.log().splitlines() if line.startswith("pullback: ")]
    assert "PULLBACK_DEVICE" in line
    assert "got gpu:9: " in line


def test_the_report_fits_the_terminal() -> None:
    parts = doctor.examination(Settings(), Registry({}))
    parts.append(doctor.Part(name="an op", status="missing", found="a reason of some words " * 9, cure="a cure " * 9))
    whole = "\n".join(doctor.lines(parts, sys.maxsize))
    assert "a reason of some words " * 8 in whole
    for columns in (20, 40, 60, 80, 200):
        lines = list(doctor.lines(parts, columns))
        assert [line for line in lines if len(line) > columns] == []
        if columns == 20:
            continue  # narrower than some words
        assert [word.rstrip(":") for word in " ".join(lines).split()] == [word.rstrip(":") for word in whole.split()]
