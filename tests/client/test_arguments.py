"""Arguments: arrays without names, and those that the client refuses."""

import asyncio

import numpy as np
import pytest

import pullback
from tests.conftest import Service
from tests.patience import PATIENCE_S


def test_an_array_needs_no_name_where_there_is_only_one(api: pullback.Client) -> None:
    op, x, ones = api.op("square"), np.array([1.0, 3.0]), np.ones(2)
    np.testing.assert_array_equal(op.forward(x).outputs["y"], [1, 9])
    np.testing.assert_array_equal(op.vjp(x, cotangents=ones).gradients["x"], [2, 6])
    np.testing.assert_array_equal(op.jvp(x, tangents=[1, 10]).tangents["y"], [2, 60])
    np.testing.assert_array_equal(op.hvp(x, vectors=ones).products["x"], [2, 2])
    np.testing.assert_array_equal(op.hessian(3.0).hessian["x"]["x"], 2)
    assert op.verify(x, 2 * x).verdict == "pass"
    assert op.check(x, checks=["derivative"]).verdict == "pass"
    # The gradient of the labels does not exist, so a tangent can only be that of the logits.
    pair = api.op("softmax_cross_entropy").jvp({"logits": np.zeros((1, 2)), "labels": [1]}, tangents=np.ones((1, 2)))
    np.testing.assert_array_equal(pair.tangents["loss"], [0])


def test_an_array_without_a_name_where_there_are_several(api: pullback.Client) -> None:
    with pytest.raises(
        pullback.BadArgument, match=r"inputs: softmax_cross_entropy has 2, .*'logits'.*'labels'.*ndarray"
    ):
        api.op("softmax_cross_entropy").forward(np.zeros((1, 2)))


def test_the_contract_is_requested_once(service: Service) -> None:
    before = service.log().count("GET /v1/ops/square ")
    with pullback.Client(service.url, timeout=PATIENCE_S) as client:
        op = client.op("square")
        op.forward({"x": 1})
        assert service.log().count("GET /v1/ops/square ") == before
        op.forward(1)
        op.forward(2)
        op.forward({"x": 1})
    assert service.log().count("GET /v1/ops/square ") <= before + 1


def test_the_async_client_names_arrays_too(service: Service) -> None:
    async def run() -> None:
        async with pullback.AsyncClient(service.url, timeout=PATIENCE_S) as client:
            assert (await client.op("square").vjp(3.0)).gradients["x"] == 6
            with pytest.raises(pullback.BadArgument, match="has 2"):
                await client.op("softmax_cross_entropy").forward(3.0)

    asyncio.run(run())


@pytest.mark.parametrize("dtype", ["int64", "int8", "bool"])
def test_integers_for_an_op_of_floats(api: pullback.Client, dtype: str) -> None:
    with pytest.raises(pullback.Unprocessable, match=r"convert it, as by x\.astype\(\"float32\"\)$"):
        api.op("log1pexp").vjp({"x": np.ones(2, dtype)})
    with pytest.raises(pullback.Unprocessable, match=r"as by labels\.astype|expected") as caught:
        api.op("softmax_cross_entropy").forward({"logits": np.zeros((1, 2)), "labels": np.ones(1)})
    assert "as by labels" not in str(caught.value)


def test_integers_of_another_width_say_how_to_convert_them(api: pullback.Client) -> None:
    words = r'expected "int32", got "int64": convert it, as by labels\.astype\("int32"\)$'
    with pytest.raises(pullback.Unprocessable, match=words):
        api.op("softmax_cross_entropy").forward({"logits": np.zeros((1, 2), "float32"), "labels": np.zeros(1, "int64")})


@pytest.mark.parametrize("dtype", [np.float64, float, np.dtype("float64"), np.float64(1).dtype])
def test_a_dtype_of_numpy_is_its_name(api: pullback.Client, dtype: object) -> None:
    assert api.op("square").vjp([3.0], dtype=dtype).gradients["x"].dtype == np.float64
    assert api.op("square").check([3.0], dtypes=[dtype], checks=["derivative"]).verdict == "pass"


def test_a_name_of_an_answer_says_in_which_field_it_is(api: pullback.Client) -> None:
    op = api.op("square")
    with pytest.raises(
        TypeError, match=r"expected one of \.gradients, \.outputs before a name: write \.gradients\['x'\]"
    ):
        op.vjp([3.0])["x"]
    with pytest.raises(TypeError, match=r"write \.products\['x'\]"):
        op.hvp([3.0], vectors=[1.0])["x"]
    with pytest.raises(TypeError, match=r"expected one of \.outputs, \.gradients before a name$"):
        op.gradients([3.0])["x"]


def test_a_masked_array_is_refused(api: pullback.Client) -> None:
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    with pytest.raises(pullback.BadArgument, match=r"inputs\.x: expected an array without a mask.*filled"):
        api.op("square").forward({"x": masked})


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_a_timeout_that_cannot_be_kept(timeout: float) -> None:
    with pytest.raises(pullback.BadArgument, match="timeout: expected seconds above 0, or None"):
        pullback.Client(timeout=timeout)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (
            lambda op: op.vjp([1.0], [1.0]),
            r"expected vjp\(inputs, cotangents=..., wrt=...\), got 2 without a name: pass several inputs as one "
            r"dictionary, vjp\({'a': ..., 'b': ...}\), and others by name",
        ),
        (lambda op: op.hvp({"x": 1.0}, {"x": 1.0}), r"expected hvp\(inputs, vectors=.*and others by name"),
        (lambda op: op.jvp([1.0]), "jvp: missing a required argument: 'tangents'"),
        (lambda op: op.forward(x=[1.0]), r"got the argument x; .*, an input is forward\({'x': ...}\)"),
        (lambda op: op.gradients([1.0], scale=2), "got the argument scale; an attribute is attrs={'scale': ...}"),
        (lambda op: op.check(check=["value"]), "expected .*, checks, .*, got the argument check;"),
    ],
)
def test_arguments_that_no_method_takes(work, message: str) -> None:
    with pullback.Client("http://127.0.0.1:9") as client, pytest.raises(pullback.BadArgument, match=message):
        work(client.op("square"))
    with pytest.raises(pullback.BadArgument, match=message):
        asyncio.run(work(pullback.AsyncClient("http://127.0.0.1:9").op("square")))
