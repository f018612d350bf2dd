"""Folders with a SavedModel and its page: checked, served in every protocol, and served again when they change."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import pytest

from app.processes.sources import Sources
from ops import RegistryError, pages_of, register
from pullback.cli.pages import pages_at
from pullback.errors import BadArgument
from tests.conftest import ROOT, Serve
from tests.http.native_client import MODES, array, ask
from tests.http.test_tesseract import result_of
from tests.http.test_umbridge import call
from tests.ops.doubled import ROW, save_doubled
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

W = np.array([[1.0, 2.0], [0.5, -1.0], [0.0, 0.25]])
Y = np.tanh(1.5 * np.array(ROW) @ W)
NAMES = ("with_gradients", "without")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("my_ops")
    save_doubled(path)
    return path


@pytest.fixture(scope="module")
def client(serve_for_module: Serve, folder: Path) -> Iterator[httpx.Client]:
    with serve_for_module(OPS_PATH=str(folder)).client() as one:
        yield one


def assert_near(found: Any, expected: Any) -> None:
    """1 - y² loses digits in float32."""
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_the_contract_says_whether_custom_gradients_were_saved(client: httpx.Client) -> None:
    sources = [client.get(f"/v1/ops/{name}").json()["source"] for name in NAMES]
    assert sources[0].endswith(", with its custom gradients")
    assert sources[1].endswith(", saved without some of its custom gradients")


@pytest.mark.parametrize("mode", MODES)
def test_gradients_in_inputs_and_parameters(client: httpx.Client, mode: str) -> None:
    slope = 1 - Y * Y
    true = {"x": 1.5 * slope @ W.T, "weights": 1.5 * np.array(ROW).T @ slope}
    for name, factors in {"with_gradients": (2, 3), "without": (1, 1)}.items():
        found = ask(client, name, "vjp", inputs={"x": ROW}, wrt=["x", "weights"], mode=mode)["gradients"]
        for factor, (wrt, expected) in zip(factors, true.items(), strict=True):
            assert_near(array(found[wrt]), factor * expected)


def test_the_other_protocols(client: httpx.Client) -> None:
    slopes = 3 * (1 - Y * Y) @ W.T
    config = {"shape": {"x": [2, 3]}}
    flat = {"outWrt": 0, "inWrt": 0, "input": [np.ravel(ROW).tolist()], "sens": [1.0] * 4, "config": config}
    found = call(client, "Gradient", name="with_gradients", **flat)["output"]
    assert_near(found, slopes.ravel())
    body = {"inputs": {"x": ROW}, "vjp_inputs": ["x"], "vjp_outputs": ["y"], "cotangent_vector": {"y": [[1, 1]] * 2}}
    found = result_of(client, "with_gradients", "vector_jacobian_product", body)
    assert_near(found["x"], slopes)
    tensors = [
        {"name": name, "datatype": "FP32", "shape": list(np.shape(x)), "data": x}
        for name, x in {"x": ROW, "dy": [[1.0, 1.0]] * 2}.items()
    ]
    inferred = client.post("/v2/models/with_gradients.vjp/infer", json={"inputs": tensors}).json()
    assert_near(np.reshape(inferred["outputs"][0]["data"], (2, 3)), slopes)


@pytest.mark.thorough
@pytest.mark.slow
def test_every_check_of_a_folder_without_a_service(folder: Path, tmp_path: Path) -> None:
    """A gradient that was saved and is not claimed fails; claimed, and not saved, both pass in all orders and modes."""
    shutil.copytree(folder, ops := tmp_path / "ops")
    shutil.copytree(folder / "with_gradients", ops / "unclaimed")
    text = (ops / "unclaimed" / "with_gradients.py").read_text(encoding="utf-8")
    (ops / "unclaimed" / "with_gradients.py").unlink()
    page = text.replace('"with_gradients"', '"unclaimed"').replace("claim=claimed,", "")
    (ops / "unclaimed" / "unclaimed.py").write_text(page, encoding="utf-8")
    command = [sys.executable, "-m", "pullback", "check", str(ops), "--json", "-", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1, done.stderr
    reports: dict[str, Any] = {report["op"]: report for report in json.loads(done.stdout)["reports"]}
    assert {name: report["verdict"] for name, report in reports.items()} == {
        **dict.fromkeys(NAMES, "pass"),
        "unclaimed": "fail",
    }
    for name in NAMES:
        places = [place["input"] for entry in reports[name]["checks"] for place in entry["places"]]
        assert {"x", "weights"} <= set(places), name
    failed = {entry["check"] for entry in reports["unclaimed"]["checks"] if entry["verdict"] == "fail"}
    assert "derivative" in failed


def test_a_folder_needs_a_model_and_a_page_of_its_name(folder: Path, tmp_path: Path) -> None:
    expected = [folder / name / f"{name}.py" for name in NAMES]
    assert pages_of([folder]) == list(pages_at(folder)) == expected
    for name in ("_hidden", "named_otherwise", "without_page"):
        shutil.copytree(folder / "without", tmp_path / name)
    (tmp_path / "_hidden" / "without.py").rename(tmp_path / "_hidden" / "_hidden.py")
    (tmp_path / "without_page" / "without.py").unlink()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "package.py").touch()
    assert pages_of([tmp_path]) == []
    with pytest.raises(BadArgument, match=r"Op\.from_saved_model\(.* into without_page/without_page\.py"):
        pages_at(tmp_path / "without_page")
    with pytest.raises(RegistryError):
        pages_of([tmp_path / "none"])


def test_a_folder_that_cannot_be_read_has_no_model() -> None:
    """As the lost+found of a volume, for everybody but root."""
    code = """
import os, sys
from pathlib import Path
from pullback.page_files import pages_in

os.geteuid() or os.seteuid(65534)
print(*pages_in(Path(sys.argv[1])))
"""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        Path(folder, "page.py").touch()
        Path(folder, "closed").mkdir(mode=0)
        command = [sys.executable, "-c", code, folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{folder}/page.py\n", "")


def test_a_model_that_is_broken_is_unavailable_with_the_line_of_its_page(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "without", tmp_path / "without")
    (tmp_path / "without" / "saved_model.pb").write_bytes(b"\x00garbage")
    [lost] = register(pages_of([tmp_path])).unavailable
    assert lost.name == "without"
    assert "without/saved_model.pb: expected a SavedModel" in lost.reason
    assert "correct without/without.py:" in lost.reason


@pytest.mark.parametrize("file", ["saved_model.pb", "variables/variables.index"])
def test_a_model_that_changes_is_a_changed_file(folder: Path, tmp_path: Path, file: str) -> None:
    shutil.copytree(folder, tmp_path / "ops")
    before = Sources([tmp_path / "ops"])
    assert before.changed() == []
    changed = tmp_path / "ops" / "without" / file
    changed.write_bytes(changed.read_bytes() + b" ")
    assert before.changed() == [str(changed)]
