"""The tool of GradBench answers the messages of its protocol, with values of closed forms or of NumPy."""

import io
import json
import subprocess
import sys
from math import lgamma, log, pi
from typing import Any

import numpy as np
import pytest

from benchmarks.gradbench import protocol
from benchmarks.gradbench.evals import EVALS
from benchmarks.gradbench.protocol import BrokenProtocol, responses
from pullback import Client
from tests.conftest import ROOT, Serve
from tests.patience import PATIENCE_S

PAGES = ROOT / "benchmarks" / "gradbench" / "pages"
RNG = np.random.default_rng(7)
NOBODY = "http://127.0.0.1:9"


def answers(url: str, *messages: Any) -> list[Any]:
    lines = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in messages)
    with Client(url) as client:
        return [json.loads(line) for line in responses(io.BytesIO(lines), client)]


def message(module: str, function: str, given: Any, **others: Any) -> dict[str, Any]:
    return {"id": 5, "kind": "evaluate", "module": module, "function": function, "input": given, **others}


def test_messages_that_need_no_service() -> None:
    told = {"id": 3, "kind": "analysis", "of": 2, "valid": False, "error": "too large"}
    start = {"id": 0, "kind": "start", "eval": "hello", "config": {"a": 1}}
    late = {"id": 5, "kind": "start"}
    assert answers(NOBODY, start, told, {"id": 4, "kind": "end"}, late) == [
        {"id": 0, "tool": "pullback"},
        {"id": 3},
        {"id": 4},
    ]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"id": 5, "kind": "guess"}, "expected kind to be"),
        ({"id": 5, "kind": ["define"]}, "expected kind to be"),
        ({"id": 5, "kind": "define", "module": "lstm"}, "hello, llsq, lse, det, gmm, kmeans"),
        ({"id": 5, "kind": "define", "module": ["hello"]}, "expected a module"),
        ({"id": 5, "kind": "define"}, "got None"),
        ({"id": 5, "kind": "define", "module": "hello"}, "cannot connect"),
        (message("hello", "cube", 1.0), "square, double"),
        (message("hello", ["square"], 1.0), "square, double"),
        (message("hello", "square", 1.0), "cannot connect"),
        (message("hello", "square", "1"), "expected a number"),
        (message("hello", "square", True), "expected a number"),
        (message("llsq", "primal", [1]), "expected an object"),
        (message("llsq", "primal", {"x": [1.0]}), "expected n in the input, got x"),
        (message("llsq", "primal", {"x": [1.0], "n": 2.5}), "expected n to be an integer"),
        (message("llsq", "primal", {"x": [[1.0]], "n": 3}), "1 dimensions, got 2"),
        (message("llsq", "primal", {"x": [[1.0], 2.0], "n": 3}), "an array of numbers"),
        (message("llsq", "primal", {"x": ["a" * 1000], "n": 3}), "aaa..."),
        (message("det", "primal", {"A": [1.0, 2.0], "ell": 2}), "ell² = 4 numbers, got 2"),
        (message("lse", "primal", {"x": [1.0], "min_runs": -1}), "min_runs"),
        (message("lse", "primal", {"x": [1.0], "min_seconds": 1e9}), "from 0 to 60"),
        (message("lse", "primal", {"x": [1.0], "min_seconds": float("nan")}), "min_seconds"),
    ],
)
def test_a_wrong_message_gets_an_error_that_says_what_was_expected(wrong: Any, error: str) -> None:
    [found] = answers(NOBODY, wrong)
    assert (found["id"], found["success"]) == (5, False)
    assert error in found["error"]
    assert len(found["error"]) < 400


@pytest.mark.parametrize("line", [b"{\n", b"[]\n", b'{"kind": "start"}\n', b'{"id": "0"}\n', b"\xff\n", b"[" * 100_000])
def test_a_line_without_an_id_ends_the_tool(line: bytes) -> None:
    with pytest.raises(BrokenProtocol, match="expected a JSON object"):
        answers(NOBODY, line)


def test_lines_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_LINE", 1000)
    with pytest.raises(BrokenProtocol, match="at most 1000 bytes"):
        answers(NOBODY, {"id": 0, "kind": "start", "eval": "a" * 1000})


def output(url: str, module: str, function: str, given: Any) -> Any:
    [found] = answers(url, message(module, function, given))
    assert found.keys() == {"id", "success", "output", "timings"}, found
    assert found["timings"]
    assert all(timing["name"] == "evaluate" and timing["nanoseconds"] > 0 for timing in found["timings"])
    return found["output"]


@pytest.mark.slow
def test_the_service_answers_every_eval(serve: Serve) -> None:
    url = serve(OPS_PATH=str(PAGES)).url
    defined = answers(url, *({"id": i, "kind": "define", "module": module} for i, module in enumerate(EVALS)))
    assert defined == [{"id": i, "success": True} for i in range(len(EVALS))]
    hello(url)
    least_squares(url)
    log_sum_exp(url)
    determinant(url)
    mixture(url)
    clusters(url)
    as_a_command(url)


def hello(url: str) -> None:
    assert output(url, "hello", "square", 3.0) == 9
    assert output(url, "hello", "double", 3) == 6
    [found] = answers(url, message("hello", "square", 1e200))
    assert (found["success"], "NaN or infinity" in found["error"]) == (False, True)
    [found] = answers(url, message("llsq", "gradient", {"x": [1.0], "n": 1}))
    assert found["success"] is False


def least_squares(url: str) -> None:
    x, n = RNG.random(6), 33
    t = -1 + np.arange(n) * 2 / (n - 1)
    powers = t[:, None] ** np.arange(6)
    residuals = np.sign(t) - powers @ x
    given = {"x": x.tolist(), "n": n, "min_runs": 3, "min_seconds": 0}
    assert np.isclose(output(url, "llsq", "primal", given), residuals @ residuals / 2, rtol=1e-12)
    np.testing.assert_allclose(output(url, "llsq", "gradient", given), -powers.T @ residuals, rtol=1e-10)
    [found] = answers(url, message("llsq", "primal", given))
    assert len(found["timings"]) == 3


def log_sum_exp(url: str) -> None:
    x = 100 * RNG.normal(size=50)
    given = {"x": x.tolist()}
    value = np.logaddexp.reduce(x)
    assert np.isclose(output(url, "lse", "primal", given), value, rtol=1e-12)
    np.testing.assert_allclose(output(url, "lse", "gradient", given), np.exp(x - value), rtol=1e-10)


def determinant(url: str) -> None:
    for ell in (1, 2, 5, 8):
        a = RNG.random((ell, ell))
        given = {"A": a.ravel().tolist(), "ell": ell}
        assert np.isclose(output(url, "det", "primal", given), np.linalg.det(a), rtol=1e-9)
        cofactors = np.linalg.det(a) * np.linalg.inv(a).T
        np.testing.assert_allclose(output(url, "det", "gradient", given), cofactors.ravel(), rtol=1e-8)


def posterior(*, alpha, mu, q, l, x, gamma, m) -> float:  # noqa: E741 - the names of the eval
    """Return the log posterior by its definition: densities of points, and the Wishart density of each inverse."""
    d = mu.shape[1]
    inverses = []
    for diagonal, others in zip(q, l, strict=True):
        factor = np.diag(np.exp(diagonal))
        factor.T[np.triu_indices(d, 1)] = others
        inverses.append(factor.T @ factor)
    weights = np.exp(alpha) / np.exp(alpha).sum()
    total, degrees = 0.0, d + m + 1
    for point in x:
        total += np.log(
            sum(
                w * np.sqrt(np.linalg.det(s / (2 * np.pi))) * np.exp(-(point - c) @ s @ (point - c) / 2)
                for w, c, s in zip(weights, mu, inverses, strict=True)
            )
        )
    for s in inverses:
        total += (degrees - d - 1) / 2 * np.log(np.linalg.det(s)) - gamma**2 * np.trace(s) / 2
        total -= degrees * d / 2 * np.log(2) - degrees * d * np.log(gamma) + log_gamma(degrees / 2, d)
    return total


def log_gamma(a: float, d: int) -> float:
    return d * (d - 1) / 4 * log(pi) + sum(lgamma(a - j / 2) for j in range(d))


def mixture(url: str) -> None:
    for d, m in ((1, 0), (2, 0), (4, 2)):
        k, n, gamma = 2, 6, 1.3
        parts = {"alpha": (k,), "mu": (k, d), "q": (k, d), "l": (k, d * (d - 1) // 2)}
        parts = {name: 0.5 * RNG.normal(size=shape) for name, shape in parts.items()}
        x = RNG.normal(size=(n, d))
        given = {name: part.tolist() for name, part in parts.items()}
        given |= {"d": d, "k": k, "n": n, "m": m, "gamma": gamma, "x": x.tolist()}
        value = posterior(**parts, x=x, gamma=gamma, m=m)
        assert np.isclose(output(url, "gmm", "objective", given), value, rtol=1e-11)
        jacobian = output(url, "gmm", "jacobian", given)
        assert jacobian.keys() == parts.keys()
        for name, part in parts.items():
            assert np.shape(jacobian[name]) == part.shape
            for i in np.ndindex(part.shape):
                h = np.zeros_like(part)
                h[i] = 1e-5
                sides = [posterior(**parts | {name: part + s * h}, x=x, gamma=gamma, m=m) for s in (1, -1)]
                slope = np.array(jacobian[name])[i]
                assert np.isclose((sides[0] - sides[1]) / 2e-5, slope, rtol=1e-6, atol=1e-7)


def clusters(url: str) -> None:
    points = RNG.random((40, 3))
    centroids = points[-4:] + 0.01
    given = {"points": points.tolist(), "centroids": centroids.tolist()}
    squares = ((points[:, None] - centroids) ** 2).sum(2)
    closest = squares.argmin(1)
    assert np.isclose(output(url, "kmeans", "cost", given), squares.min(1).sum(), rtol=1e-12)
    steps = [centroids[j] - points[closest == j].mean(0) for j in range(4)]
    np.testing.assert_allclose(output(url, "kmeans", "dir", given), steps, rtol=1e-9, atol=1e-12)


def as_a_command(url: str) -> None:
    lines = '{"id": 0, "kind": "start"}\n' + json.dumps(message("hello", "double", 2.5)) + "\nnonsense\n"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gradbench", "--url", url],
        cwd=ROOT,
        input=lines,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first, second["output"]) == ({"id": 0, "tool": "pullback"}, 5.0)
    assert done.returncode == 2
    assert done.stderr.startswith("expected a JSON object on each line")
    assert "Traceback" not in done.stderr
