"""pullback.pytensor: how many requests, with which credentials, and until when, in graphs and files too."""

import io
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.gradient import jacobian

import pullback
import pullback.pytensor
from tests.frameworks.conftest import KEY, assert_no_secret, pickles

X = np.array([-0.5, 0.25, 2.0])
compiled = partial(pytensor.function, mode=Mode(linker="py", optimizer="fast_run"))


def test_rows_of_a_jacobian_take_no_request(remote, count) -> None:
    x = pt.dvector("x")
    y = remote("log1pexp")(x)
    found = compiled([x], [y, jacobian(y, x)])(X)[1]
    np.testing.assert_allclose(found, np.diag(1 / (1 + np.exp(-X))))
    assert count() == 1


def test_points_that_alternate_take_a_request_each(remote, count) -> None:
    """As the chains of a sampler do that take turns in one process."""
    x = pt.dvector("x")
    y = remote("log1pexp")(x)
    value, gradient = compiled([x], y), compiled([x], pytensor.grad(y.sum(), x))
    for step in range(5):
        for chain in range(4):
            value(X + step + chain / 10)
        for chain in range(4):
            gradient(X + step + chain / 10)
    assert count() == 20


def test_functions_with_different_keys_send_their_own(proxy) -> None:
    x = pt.dvector("x")
    one, two = (pullback.pytensor.remote("square", url=proxy.url, api_key=key) for key in ("one", "two"))
    y = one(x) + two(x)
    found = compiled([x], pytensor.grad(y.sum(), x))(X)
    np.testing.assert_allclose(found, 4 * X)
    assert sorted(proxy.new("Authorization")) == ["Bearer one", "Bearer two"]
    copy = pickle.loads(pickle.dumps(one))
    compiled([x], copy(x))(X)
    assert proxy.new("Authorization") == ["Bearer one"]


def test_no_secret_is_in_graphs_and_files(secret, proxy, python, tmp_path: Path) -> None:
    f, x = pullback.pytensor.remote("log1pexp", **secret), pt.dvector("x")
    y = f(x)
    function = compiled([x], [y, pytensor.grad(y.sum(), x)])
    function(X)
    assert proxy.new("Authorization") == [f"Bearer {KEY}"]
    printed = io.StringIO()
    pytensor.dprint(function, file=printed, print_type=True)
    assert "log1pexp" in printed.getvalue()
    assert_no_secret(
        printed.getvalue(), pytensor.printing.pp(y), repr(y.owner), repr(y.owner.op), str(y.owner.op), repr(f)
    )
    saved = [*pickles(f), *pickles(y.owner.op), pickle.dumps(function), pickle.dumps(y)]
    assert all(b"log1pexp" in content for content in saved)
    assert_no_secret(*saved)
    folder = tmp_path / "compiled"
    python(COMPILED, secret["url"], KEY, secret["headers"]["X-Tenant"], PYTENSOR_FLAGS=f"base_compiledir={folder}")
    assert_no_secret(*filter(None, (path.read_bytes() for path in folder.rglob("*") if path.is_file())))


COMPILED = """
import sys
import pytensor, pytensor.tensor as pt
import pullback.pytensor
url, key, tenant = sys.argv[1:]
f, x = pullback.pytensor.remote("log1pexp", url=url, api_key=key, headers={"X-Tenant": tenant}), pt.dvector("x")
y = f(x)
print(pytensor.function([x], [y, pytensor.grad(y.sum(), x)])([1.0]))
"""

LOADED = """
import pickle, sys
from pathlib import Path
import pullback.pytensor
print(pickle.loads(Path(sys.argv[1]).read_bytes())([0.0, 0.0, 0.0])[1])
"""


def test_a_pickle_has_the_key_of_the_environment_in_another_process(secret, proxy, python, tmp_path: Path) -> None:
    x = pt.dvector("x")
    y = pullback.pytensor.remote("log1pexp", **secret)(x)
    file = tmp_path / "function.pickle"
    file.write_bytes(pickle.dumps(compiled([x], [y, pytensor.grad(y.sum(), x)])))
    assert python(LOADED, file, PULLBACK_KEY="theirs").split() == ["[0.5", "0.5", "0.5]"]
    assert proxy.new("Authorization") == ["Bearer theirs"]


def test_the_hessian_product_of_a_composition_is_one_request(remote, compose, count) -> None:
    log1pexp, safe_norm, square = map(remote, ("log1pexp", "safe_norm", "square"))
    x, v = pt.dvector("x"), pt.dvector("v")
    loss = compose(lambda x: log1pexp(safe_norm(square(x))))
    local = pt.softplus(pt.sqrt((x**4).sum()))

    def product(y: pt.TensorVariable) -> np.ndarray:
        gradient = pytensor.grad(y, x)
        return compiled([x, v], pytensor.grad((gradient * v).sum(), x))(X, np.array([1.0, -2.0, 0.5]))

    found = product(loss(x))
    assert count() == 1
    np.testing.assert_allclose(found, product(local), rtol=1e-10)
