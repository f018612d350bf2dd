"""GET /v1/ops: the group of each op, and the last verdict on it."""

from pathlib import Path

import httpx
import pytest

import pullback
from tests.conftest import ROOT, Serve, Start

PAGE = '''"""A cube whose gradient is wrong."""

import numpy as np

from ops import Array, Example, Input, Op, Output, Tensor, custom_gradient


def forward(x: Tensor) -> Tensor:
    """y = x³."""
    return x * x * x


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """dx = 2x² dy, which is wrong."""
    return dy * 2 * x * x


def reference(x: Array) -> Array:
    """y = x³."""
    return np.asarray(x, np.float64) ** 3


OP = Op(
    name="cubed",
    summary="x³",
    doc=__doc__,
    function=custom_gradient(forward, vjp),
    reference=reference,
    inputs=(Input("x", ("float64",)),),
    outputs=(Output("y", ("float64",)),),
    source="tests",
    modes=("graph",),
    examples=(Example("some", {"x": [1.0, 2.0]}),),
)
'''


@pytest.fixture
def pages(tmp_path: Path) -> str:
    (tmp_path / "cubed.py").write_text(PAGE)
    return str(tmp_path)


def listed(client: httpx.Client) -> dict[str, dict[str, object]]:
    return {op["name"]: op for op in client.get("/v1/ops").json()["ops"]}


def test_ops_are_grouped_by_what_they_are(serve: Serve, pages: str) -> None:
    with serve(OPS_PATH=pages).client() as client:
        found = listed(client)
    groups = {group: {name for name in found if found[name]["group"] == group} for group in ("glue", "native", "yours")}
    texts = {path.stem: path.read_text() for path in (ROOT / "ops").glob("*.py")}
    assert groups["glue"] == {name for name, text in texts.items() if "glue for graphs of ops" in text.split("\n")[0]}
    assert groups["native"] == {path.stem for path in (ROOT / "ops").glob("*.cc")}
    assert groups["yours"] == {"cubed"}
    assert {found[name]["group"] for name in ("sign", "clip_gradient")} == {"surrogate"}
    assert {found[name]["group"] for name in ("square", "log1pexp2", "self_adjoint_eig")} == {"numerics"}


def test_only_a_check_of_the_whole_op_is_its_last_verdict(serve: Serve, pages: str) -> None:
    service = serve(OPS_PATH=pages)
    with service.client() as client:
        parts = [{"checks": ["value"]}, {"tolerances": {"relative": 1.0}}, {"orders": [1]}, {"inputs": {"x": [0.0]}}]
        for part in (*parts, {"dtypes": ["float64"]}, {"modes": ["graph"]}):
            assert client.post("/v1/ops/cubed/check", json=part).is_success
            assert "last_check" not in listed(client)["cubed"]
        assert client.post("/v1/ops/cubed/check", json={}).json()["verdict"] == "fail"
        last = listed(client)["cubed"]["last_check"]
        assert isinstance(last, dict)
        assert last["verdict"] == "fail"
        assert 0 <= last["age_s"] < 600
        assert [name for name, op in listed(client).items() if "last_check" in op] == ["cubed"]
    with pullback.Client(service.url) as api:
        lasts = {(op.name, op.group): op.last_check for op in api.ops() if op.last_check}
    assert [(*key, last.verdict) for key, last in lasts.items()] == [("cubed", "yours", "fail")]
    assert all(last.age_s >= 0 for last in lasts.values())


@pytest.mark.slow
def test_all_workers_know_the_last_verdict(start: Start, pages: str) -> None:
    one = start(OPS_PATH=pages, WORKERS="2").wait_until_ready()
    with one.client() as client:
        events = client.post("/v1/checks", json={"ops": ["cubed"]}, headers={"accept": "application/x-ndjson"})
        assert '"verdict":"fail"' in events.text
    for _ in range(12):
        # Each connection goes to any worker.
        with one.client() as client:
            assert "last_check" in listed(client)["cubed"]
