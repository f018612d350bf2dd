"""What is added to a table of the client is everywhere: a copy of the package gets one more operation, and a dtype."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import pullback
from pullback.op import OPERATIONS, Operations
from tests.client.conftest import ROOT, client_environment
from tests.client.fake_servers import json_response

CONTRACT = {
    "name": "square",
    "summary": "",
    "mechanism": "",
    "available": True,
    "claim": None,
    "doc": "",
    "source": "",
    "batching": "",
    "dtypes": ["float64"],
    "modes": ["graph"],
    "default_mode": {},
    "inputs": [
        {"name": "x", "dtypes": ["float64"], "shape": [], "differentiable": True, "doc": ""}
        | {"domain": [0, 1], "kinks": [], "poles": []}
    ],
    "outputs": [{"name": "y", "dtypes": ["float64"], "shape": [], "differentiable": True, "doc": ""}],
    "attrs": {"properties": {}},
    "examples": [],
}
TRACES = {"traces": {"y": {"dtype": "float64", "shape": [], "base64": "AAAAAAAACEA="}}}

# An operation with a result, an option and a field of tensors that no other has.
OPERATION = {
    "results.py": {
        "__all__ = [": '__all__ = ["Traces", ',
        "def reader(": '''@dataclass(frozen=True, eq=False)
class Traces:
    """The traces of the Hessian."""

    traces: Partial
    absent: Reasons


def reader(''',
        "vjp = reader(": 'traces = reader(Traces, "traces")\nvjp = reader(',
    },
    "op.py": {
        "FIELDS = {": 'PROBES = TensorField("probes", "inputs", ("p",))\nFIELDS = {"probes": PROBES} | {',
        "    @operation\n    def forward(": '''    @operation
    def traces(
        self, inputs: Tensors, *, probes: Tensors, max_draws: int = 1, **common: Unpack[Common]
    ) -> OpCall[results.Traces]:
        """Return the traces of the Hessian."""
        tensors = {INPUTS: inputs, PROBES: probes}
        path, options = op_path(self.name, "traces"), {"max_draws": max_draws}
        return evaluation(path, results.traces, tensors, common, options)

    @operation
    def forward(''',
    },
}
PROGRAM = """
import asyncio, inspect, sys, pullback
url = sys.argv[1]
with pullback.Client(url) as client:
    found = client.op("square").traces(3.0, probes=[1.0], max_draws=5)
async def main():
    async with pullback.AsyncClient(url) as client:
        return await client.op("square").traces(3.0, probes=[1.0], max_draws=5)
for each in (found, asyncio.run(main())):
    assert type(each) is pullback.Traces, each
    assert each.traces["y"] == 3, each
assert inspect.iscoroutinefunction(pullback.AsyncOp.traces)
"""
LINE = '    "float8_e4m3fn": Dtype("float", "F8_E4M3", "uint8"),\n'
DTYPE = {"dtypes.py": {'    "bool": Dtype(': f'{LINE}    "bool": Dtype('}}
DTYPE_PROGRAM = """
import ml_dtypes, numpy as np
from pullback import arrays, bodies, safetensors
x = np.array([0.5, 448.0], ml_dtypes.float8_e4m3fn)
assert arrays.array_or_json(x) is x
assert arrays.shared_float([{"x": x}]) == "float8_e4m3fn"
both = arrays.decode(arrays.encode(x)), safetensors.read(b"".join(safetensors.write({"x": x}, "{}")))["x"]
for each in both:
    assert each.dtype == x.dtype and (each == x).all(), each
"""


def edited(folder: Path, edits: Mapping[str, Mapping[str, str]]) -> Path:
    """Copy the package, and replace texts in some files of it."""
    shutil.copytree(ROOT / "pullback", folder / "pullback", ignore=shutil.ignore_patterns("__pycache__"))
    for name, replacements in edits.items():
        path = folder / "pullback" / name
        text = path.read_text()
        for old, new in replacements.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path.write_text(text)
    return folder


def python(folder: Path, *args: str) -> str:
    environ = client_environment() | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-W", "error", *args], env=environ, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_operation_is_added_in_two_files(tmp_path, fake_server) -> None:
    folder = edited(tmp_path, OPERATION)
    assert len(OPERATION) == 2
    server = fake_server(*[json_response(CONTRACT), json_response(TRACES)] * 3)
    python(folder, "-c", PROGRAM, server.url)
    assert "traces" in python(folder, "-m", "pullback", "call", "--help")
    printed = python(
        folder, "-m", "pullback", "call", "square", "traces", "x=3", "px=1", "--max-draws", "5", "--url", server.url
    )
    assert printed == "traces.y  float64 []\n3.\n"
    sent = [body for method, path, body in server.requests if path == "/v1/ops/square/traces"]
    assert len(sent) == 3
    for body in sent:
        assert (body["inputs"], body["max_draws"]) == ({"x": 3}, 5)
        assert body["probes"] in ({"x": [1.0]}, {"x": 1})


def test_a_dtype_is_added_in_one_line(tmp_path) -> None:
    python(edited(tmp_path, DTYPE), "-c", DTYPE_PROGRAM)


def public(kind: type) -> dict[str, str]:
    found = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: str(inspect.signature(member)) for name, member in found.items() if callable(member)}


def test_both_classes_have_the_same_methods() -> None:
    blocking, awaited = public(pullback.Op), public(pullback.AsyncOp)
    assert "AsyncLinearization" in awaited.pop("linearize")
    assert blocking.pop("linearize")
    assert blocking == awaited
    assert public(pullback.Linearization) == public(pullback.AsyncLinearization)
    blocking, awaited = public(pullback.Client), public(pullback.AsyncClient)
    assert list(blocking) == list(awaited)
    returns_a_twin = {"op", "compose", "checks", "job"}
    for name in blocking:
        one, other = (str(methods[name]) for methods in (blocking, awaited))
        assert one.partition(" -> ")[0] == other.partition(" -> ")[0]
        assert name in returns_a_twin or one == other
    for name in (*OPERATIONS, "contract", "check", "verify"):
        assert name in vars(Operations)
        assert inspect.iscoroutinefunction(getattr(pullback.AsyncOp, name))
        assert not inspect.iscoroutinefunction(getattr(pullback.Op, name))
    vjp = inspect.signature(pullback.Op.vjp)
    assert vjp.return_annotation is pullback.Gradients
    assert list(vjp.parameters) == ["self", "inputs", "cotangents", "wrt", "outputs", "batched", "common"]


@pytest.mark.parametrize("kind", [pullback.Op, pullback.AsyncOp])
def test_every_method_says_what_it_returns(kind: type) -> None:
    for name in public(kind):
        assert inspect.getdoc(getattr(kind, name)), name


def test_the_operations_are_those_of_the_service(client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    served = {
        path.rpartition("/")[2]
        for path, methods in paths.items()
        if re.fullmatch(r"/v1/ops/\{\w+\}/\w+", path) and "post" in methods
    }
    assert set(OPERATIONS) == served - {"check", "verify", "linearize", "sparsity"}


def test_the_copy_is_what_runs(tmp_path) -> None:
    found = python(edited(tmp_path, {}), "-c", "import pullback; print(pullback.__file__)")
    assert Path(found.strip()).parent.parent == Path(os.path.realpath(tmp_path))
