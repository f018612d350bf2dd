"""Complex arrays of NumPy through the client: in and out, in JSON and in safetensors, small and large."""

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

import pullback
from pullback.gradcheck.targets import server_target
from tests.complex_numbers.pages import draw

SIZES = [3, 5000]  # the larger one travels in safetensors, where this has the dtype


@pytest.fixture(scope="module")
def url(serve_for_module, pages) -> str:
    return serve_for_module(OPS_PATH=str(pages)).url


@pytest.fixture(scope="module")
def client(url) -> Iterator[pullback.Client]:
    with pullback.Client(url) as one:
        yield one


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("size", SIZES)
def test_arrays_travel(client, dtype, size) -> None:
    z, dw = (draw(np.random.default_rng(seed), size).astype(dtype) for seed in (1, 2))
    op = client.op("cx_square")
    close = {"rtol": 1e-5 if dtype is np.complex64 else 1e-12}
    answer = op.vjp({"z": z}, cotangents={"w": dw}, outputs=True)
    assert (answer.gradients["z"].dtype, answer.outputs["w"].dtype) == (dtype, dtype)
    np.testing.assert_allclose(answer.gradients["z"], 2 * z.conj() * dw, **close)
    np.testing.assert_allclose(op.jvp({"z": z}, tangents={"z": dw}).tangents["w"], 2 * z * dw, **close)
    np.testing.assert_allclose(op.hvp({"z": z}, vectors={"z": dw}).products["z"], 2 * dw.conj(), **close)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES)
def test_real_arrays_give_complex_ones(client, dtype, size) -> None:
    r, t = (np.random.default_rng(seed).uniform(0, 1, size).astype(dtype) for seed in (1, 2))
    answer = client.op("cx_phase").vjp({"r": r, "t": t}, cotangents={"w": np.exp(1j * t).astype(np.result_type(r, 1j))})
    np.testing.assert_allclose(answer.gradients["r"], np.ones(size), rtol=1e-6)
    w = client.op("cx_phase").forward({"r": r, "t": t}).outputs["w"]
    np.testing.assert_allclose(w, r * np.exp(1j * t), rtol=1e-5)
    assert w.dtype == np.result_type(r, np.complex64)


def test_lists_and_scalars(client) -> None:
    w = client.op("cx_square").forward({"z": [1 + 2j, 3, complex("nan")]}).outputs["w"]
    assert w.dtype == np.complex64
    np.testing.assert_array_equal(w[:2], [-3 + 4j, 9])
    assert client.op("cx_square").forward({"z": 2j}).outputs["w"] == -4
    jacobian = client.op("cx_square").jacobian({"z": np.array([1 + 2j])}).jacobian["w"]["z"]
    np.testing.assert_array_equal(jacobian, [[2 + 4j]])


def test_complex_numbers_for_a_real_input_are_refused(client) -> None:
    for value in (np.array([1j]), np.ones(5000, np.complex64)):
        with pytest.raises(pullback.PullbackError, match=r"not cast|not accept"):
            client.op("square").forward({"x": value})
    with pytest.raises(pullback.PullbackError, match=r"in NumPy: x.astype\('complex64'\)"):
        client.op("cx_square").forward({"z": np.ones((3, 2), np.float32)})
    with pytest.raises(pullback.PullbackError, match=r"\[N\] of complex numbers, in JSON pairs"):
        client.op("cx_sum").forward({"z": [1.0, 2.0]})


def test_checks_of_other_servers_refuse_complex_arrays_by_name(url) -> None:
    target = server_target(f"tesseract+{url}/tesseract/cx_square")
    assert target is not None
    with ExitStack() as opened, pytest.raises(pullback.PullbackError, match=r"z: expected .* got 'complex64'; wrap it"):
        target.connect(opened, 60, {})
