"""``compose`` of the frameworks: remote functions inside a Python function become one op."""

from typing import Any

import numpy as np
import pytest

import pullback
from pullback.graph_values import is_traced
from pullback.remotes import Function, evaluate

A, X = np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([0.25, 1.0])


class Plain(Function):
    """The functions of a framework that has only NumPy."""

    def __call__(self, *inputs: Any) -> Any:
        if is_traced(inputs):
            return self.in_graph(inputs)
        return evaluate(self.p, [np.asarray(x) for x in inputs], batched=False, ahead=False)


def remotes(url: str, *names: str) -> list[Plain]:
    return [Plain.remote(name, url=url) for name in names]


def test_remote_functions_compose_to_one(service) -> None:
    log1pexp, safe_norm, matvec = remotes(service.url, "log1pexp", "safe_norm", "matvec")
    scale = Plain.remote("scale_gradient", url=service.url, attrs={"scale": 0.5})
    loss = Plain.compose(lambda a, x: log1pexp(safe_norm(matvec(a, scale(x)))) * 2)
    assert loss.p.remote.name.startswith("graph.")
    r = np.linalg.norm(A @ X)
    [y] = loss(A, X)
    assert np.allclose(y, 2 * np.log1p(np.exp(r)), rtol=1e-12)
    assert loss.p.remote.contract(("vjp",)).name == f"{loss.p.remote.name}.vjp"


def test_a_graph_that_the_service_has_lost_is_posted_again(serve, tmp_path) -> None:
    url = serve(DATA=str(tmp_path), EXPRESS="0").url
    [square] = remotes(url, "square")
    double = Plain.compose(lambda x: square(square(x)))
    for file in (tmp_path / "graphs").iterdir():
        file.unlink()
    with serve(DATA=str(tmp_path)).client() as other:
        assert other.get(f"/v1/ops/{double.p.remote.name}").status_code == 404
        double.p.remote.client = type(double.p.remote.client)(
            pullback.Client(str(other.base_url)), double.p.remote.name, double.p.remote.client.document
        )
        assert np.allclose(double(X), X**4)


def test_mistakes_have_a_cure(service) -> None:
    [square] = remotes(service.url, "square")
    [other] = remotes("http://127.0.0.1:1", "square")
    with pytest.raises(pullback.BadArgument, match="of one service, got none"):
        Plain.compose(lambda x: -x)
    with pytest.raises(pullback.BadArgument, match="of one service, got"):
        Plain.compose(lambda x: square(other(x)))
