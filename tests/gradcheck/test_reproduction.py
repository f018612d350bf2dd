"""The command that a failure prints returns the number of the failure, on a service with the wrong ops."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pullback
from app.autodiff.binding import bind
from app.gradcheck.reproduce import MAX_POINT, Call
from app.tensors.json import decode
from ops.square import OP as square
from pullback.cli import main
from tests.conftest import Serve
from tests.gradcheck.wrong_ops import OPS
from tests.ops.cases import DEVICE
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url(serve_for_module: Serve, tmp_path_factory) -> str:
    folder: Path = tmp_path_factory.mktemp("wrong")
    for name in OPS:
        (folder / f"{name}.py").write_text(f"from tests.gradcheck.wrong_ops import OPS\n\nOP = OPS[{name!r}]\n")
    return serve_for_module(OPS_PATH=str(folder)).url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[pullback.Client]:
    with pullback.Client(url, timeout=PATIENCE_S) as one:
        yield one


class Printed(Exception):
    """The command line ended with another code than 0."""


@pytest.fixture
def called(monkeypatch, tmp_path, url: str):
    """Run a command line; return the arrays of its answer."""

    def call(text: str) -> dict[str, np.ndarray]:
        out = tmp_path / "out.npz"
        monkeypatch.setattr("sys.argv", [*shlex.split(text), "--out", str(out), "--url", url])
        if main():
            raise Printed(text)
        with np.load(out) as arrays:
            return dict(arrays)

    return call


def value(shows: str, arrays: dict[str, np.ndarray]) -> float:
    """Return the number that a text such as ``gradients.x[1] * 0.5 + gradients.z * 2.0`` stands for."""
    total = 0.0
    for term in shows.split(" + "):
        result, _, weights = term.removeprefix("the sum of ").partition(" * ")
        name, _, index = result.partition("[")
        array = arrays[name].astype(np.float64)
        if index:
            array = array[tuple(map(int, index.rstrip("]").split(",")))]
        total += float(np.sum(array * np.array(eval(weights)))) if weights else float(array)
    return total


@pytest.mark.share(9)
@pytest.mark.parametrize("name", OPS)
def test_the_printed_command_returns_the_number(client: pullback.Client, called, name: str) -> None:
    report = client.op(name).check()
    failing = [check for check in report.checks if check.verdict in ("fail", "inconclusive") and check.worst]
    assert failing, report.sentence
    commands = 0
    for check in failing:
        assert check.reproduce, check
        if check.reproduce.startswith("pullback call "):
            assert check.worst
            assert check.shows
            commands += 1
            if "random" not in check.shows:
                number = value(check.shows, called(check.reproduce))
                # The noise of one op is of another size at each evaluation.
                close = 1e-8 if name == "noisy" else 1e-12
                np.testing.assert_allclose(number, check.worst.analytic, rtol=close, err_msg=check.reproduce)
    assert commands, [check.reproduce for check in failing]


def test_a_large_point_is_in_a_file(client: pullback.Client, called, tmp_path: Path) -> None:
    report = client.op("many_rows").check({"x": np.arange(100.0).reshape(10, 10), "w": np.ones(10)}, orders=[1])
    check = next(each for each in report.checks if each.check == "derivative" and each.verdict == "fail")
    assert check.reproduce
    assert check.worst
    assert " @point.json " in check.reproduce
    (tmp_path / "point.json").write_text(json.dumps(check.point))
    found = called(check.reproduce.replace("@point.json", f"@{tmp_path / 'point.json'}"))
    assert value(str(check.shows), found) == pytest.approx(check.worst.analytic, rel=1e-12)


def test_a_point_may_be_too_large_for_a_report() -> None:
    many = np.ones(MAX_POINT)
    point = bind(square, {"x": many}, {}, "float64", decode, mode="graph", device=DEVICE, max_elements=1 << 20)
    found = Call(point, ("gradients", "x"), {"y": many}, needs_all=True).reproduction((0,), 2.0)
    assert f"too many numbers for a report ({2 * MAX_POINT} of at most {MAX_POINT})" in found.command
    assert found.point is None


def test_a_large_elementwise_point_needs_one_element(client: pullback.Client, called) -> None:
    x = np.linspace(0.5, 2, 5000).reshape(50, 100)
    report = client.op("steep").check({"x": x}, checks=["derivative"], attrs={"factor": 2.0})
    (check,) = (one for one in report.checks if one.verdict == "fail")
    assert check.reproduce
    assert check.worst
    assert len(check.reproduce) < 200
    assert "factor=2.0" in check.reproduce
    assert check.shows == "gradients.x"
    assert called(check.reproduce)["gradients.x"] == pytest.approx(check.worst.analytic, rel=1e-12)


def test_a_kink_has_a_command(client: pullback.Client, called) -> None:
    report = client.op("relu").check({"x": [0.0]}, checks=["derivative"])
    (check,) = report.checks
    assert check.verdict == "inconclusive"
    assert check.reproduce
    assert called(check.reproduce)["gradients.x"].shape == (1,)
