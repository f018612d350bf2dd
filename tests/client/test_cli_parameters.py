"""``--parameters``: values by their digest, and from a file, which the command puts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import safetensors
from tests.client.conftest import needs_service
from tests.conftest import ROOT, Serve

X = np.array([[0.5, -1.0, 0.25]])
VALUES = {"w": np.arange(6.0).reshape(3, 2) / 8, "b": np.array([0.25, -0.5])}


@pytest.fixture(scope="module")
def url(serve_for_module: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("ops")
    shutil.copy(ROOT / "tests" / "http" / "plugins" / "layered.py", folder)
    return serve_for_module(OPS_PATH=str(folder), PARAMETERS_MB="1").url


@pytest.fixture
def call(run: Any, url: str) -> Callable[..., Any]:
    return lambda *args: run(*args, url=url)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "values.safetensors"
    path.write_bytes(b"".join(safetensors.write(VALUES, "{}")))
    return path


def test_a_file_is_put_and_its_digest_used(call: Callable[..., Any], url: str, file: Path) -> None:
    slope = 1 - np.tanh(X @ VALUES["w"] + VALUES["b"]) ** 2
    with pullback.Client(url) as client:
        digest = client.op("layered").put_parameters(VALUES)
    for given in (str(file), digest):
        found = call("call", "layered", "vjp", "x=[[0.5,-1,0.25]]", "--wrt", "b", "--parameters", given, "--json")
        assert (found.code, found.err) == (0, "")
        np.testing.assert_allclose(json.loads(found.out)["gradients.b"]["data"], slope[0], rtol=1e-12)
        gradient = json.dumps(slope[0].tolist())
        right = call("verify", "layered", "x=[[0.5,-1,0.25]]", f"gb={gradient}", "--parameters", given)
        assert (right.code, right.err) == (0, "")
    assert call("verify", "layered", "x=[[0.5,-1,0.25]]", f"gb={gradient}").code == 1


def test_a_parameter_has_tangents_and_values(call: Callable[..., Any]) -> None:
    point, zeros = "x=[[0.5,-1,0.25]]", "w=[[0,0],[0,0],[0,0]]"
    assert call("call", "layered", "forward", point, zeros, "b=[0,0]").out.endswith("\n[[0. 0.]]\n")
    assert call("call", "layered", "jvp", point, zeros, "b=[0,0]", "tb=[1,2]").out.endswith("\n[[1. 2.]]\n")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("values.txt", b"", "expected a digest of 64 hexadecimal digits, or a file that ends in .safetensors, got"),
        ("no.safetensors", None, "no.safetensors: No such file"),
        ("short.safetensors", b"\x05", "short.safetensors is not safetensors"),
        ("nested.safetensors", b"".join(safetensors.write({"a/b": np.ones(1)}, "{}")), "got 'a'"),
        ("other.safetensors", b"".join(safetensors.write({"b": np.ones(2)}, "{}")), "parameters.w: missing parameter"),
    ],
)
def test_what_is_no_set(
    call: Callable[..., Any], tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    found = call("call", "layered", "forward", "x=[[1,2,3]]", "--parameters", str(tmp_path / name))
    assert message in found.error


@needs_service
@pytest.mark.slow
def test_a_file_without_a_service(run: Any, tmp_path: Path, file: Path) -> None:
    shutil.copy(ROOT / "tests" / "http" / "plugins" / "layered.py", tmp_path)
    page = str(tmp_path / "layered.py")
    found = run("call", "layered", "forward", "x=[[0.5,-1,0.25]]", "--parameters", str(file), "--from", page, "--json")
    expected = np.tanh(X @ VALUES["w"] + VALUES["b"])
    np.testing.assert_allclose(json.loads(found.out)["outputs.y"]["data"], expected, rtol=1e-12)
