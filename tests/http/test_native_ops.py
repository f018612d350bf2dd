"""C++ ops over HTTP: correct, refused, faulty and not built."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT
from tests.http.native_client import post, problem
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

X = [0.5, 1.0, 2.0]
MODES = ("graph", "eager", "v1")
MISTAKES = {
    "mistaken_too_few": ("arguments of too_few", "takes 2 positional arguments but 3 were given"),
    "mistaken_too_few_checked": ("too_few takes the wrong arguments: expected 3 by position", "got too_few(op, dy)"),
    "mistaken_not_registered": ("TensorFlow has no gradient of MistakenNotRegistered", "register_gradient"),
    "mistaken_int": ("", "int"),
    "mistaken_int_checked": ("input 0 of MistakenIntChecked", "got 0 (int)"),
}


@pytest.fixture(scope="module")
def mistaken(serve_for_module, tmp_path_factory) -> Iterator[httpx.Client]:
    """A service with the faulty ops, built like plug-ins, and an op whose library is not built."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    build = ["make", "native", f"PULLBACK_OPS_PATH={Path(__file__).parent}"]
    subprocess.run(build, cwd=ROOT, env=env, check=True, capture_output=True, timeout=PATIENCE_S)
    pages = tmp_path_factory.mktemp("mistaken")
    for name in MISTAKES:
        (pages / f"{name}.py").write_text(f"from tests.http.mistaken import OPS\n\nOP = OPS[{name!r}]\n")
    (pages / "not_built.py").write_text((ROOT / "ops" / "relu.py").read_text())
    with serve_for_module(OPS_PATH=str(pages)).client() as client:
        yield client


@pytest.mark.share(3)
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("op", "words"), MISTAKES.items(), ids=MISTAKES)
def test_a_mistake_in_a_registered_gradient_is_named(mistaken, op, words, mode) -> None:
    assert post(mistaken, op, "forward", inputs={"x": X}, mode=mode).json()["outputs"]["y"]["data"] == X
    document = problem(post(mistaken, op, "vjp", inputs={"x": X}, mode=mode), 500)
    assert op in document["detail"]
    assert all(word in document["detail"] for word in words), document["detail"]


def test_the_error_of_an_op_without_modes_names_the_missing_kernel(mistaken) -> None:
    document = problem(post(mistaken, "mistaken_int", "forward", inputs={"x": X}, mode="xla"), 422)
    [entry] = document["errors"]
    assert entry["loc"] == ["mode"]
    assert "MistakenInt" in entry["message"]


def test_an_op_that_is_not_built_is_listed_with_its_cure(mistaken) -> None:
    listed = {op["name"]: op for op in mistaken.get("/v1/ops").json()["ops"]}
    assert not listed["not_built"]["available"]
    assert listed["relu"]["available"]
    reason = "build/not_built.so is missing; run pullback native"
    assert reason in listed["not_built"]["reason"]
    assert mistaken.get("/health/ready").json()["unavailable"][0]["op"] == "not_built"
    assert reason in problem(post(mistaken, "not_built", "forward", inputs={"x": X}), 404)["detail"]


@pytest.mark.parametrize("op", ["relu", "roi_pool", "zero_out", "zero_out_indexed"])
def test_xla_is_refused_before_anything_is_compiled(service, client, op) -> None:
    example = client.get(f"/v1/ops/{op}").json()["examples"][0]
    compiled = client.get("/health/ready").json()["compiled"]
    document = problem(post(client, op, "vjp", inputs=example["inputs"], attrs=example["attrs"], mode="xla"), 422)
    [entry] = document["errors"]
    assert entry == {
        "loc": ["mode"],
        "message": f"op {op} has no kernel for this mode",
        "expected": "one of graph, eager, v1",
        "got": "xla",
    }
    assert client.get("/health/ready").json()["compiled"] == compiled


FEATURES = [[[[1.0], [2.0]], [[3.0], [4.0]]]]
ROI = [0, 0, 0, 1, 1]
REFUSED = {
    "no image": ({"rois": [ROI, [1, 0, 0, 1, 1]]}, ["inputs", "rois", 1, 0], "the index of one of 1 images", "1.0"),
    "half an image": ({"rois": [[0.5, 0, 0, 1, 1]]}, ["inputs", "rois", 0, 0], "the index of one of 1 images", "0.5"),
    "not finite": ({"rois": [[0, 0, "NaN", 1, 1]]}, ["inputs", "rois", 0, 2], "a finite number", "nan"),
    "far away": ({"rois": [[0, 0, 0, 1e10, 1]]}, ["inputs", "rois", 0, 3], "within 2^30 cells", "1e+10"),
    "columns": ({"rois": [[0, 0, 0, 1]]}, ["inputs", "rois"], "[R, 5]", "[1, 4]"),
    "rank": ({"features": FEATURES[0]}, ["inputs", "features"], "[N, H, W, C]", "[2, 2, 1]"),
}


@pytest.mark.parametrize(("change", "loc", "expected", "got"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_region_is_refused(client, change, loc, expected, got) -> None:
    inputs = {"features": FEATURES, "rois": [ROI]} | change
    [entry] = problem(post(client, "roi_pool", "vjp", inputs=inputs), 422)["errors"]
    assert entry["loc"] == loc
    assert expected in entry["expected"]
    assert got in entry["got"]


@pytest.mark.parametrize("size", [0, -1, 65, 1.5])
def test_an_invalid_pooled_size_is_refused(client, size) -> None:
    inputs = {"features": FEATURES, "rois": [ROI]}
    document = problem(post(client, "roi_pool", "forward", inputs=inputs, attrs={"pooled_height": size}), 422)
    assert document["errors"][0]["loc"] == ["attrs", "pooled_height"]
