"""The client, with a real service."""

import asyncio
import base64
import json
import pickle
import re
import sys
from array import array
from contextlib import aclosing, closing
from functools import partial

import ml_dtypes
import numpy as np
import pytest

import pullback
from pullback import reports
from pullback.arrays import decode, encode
from pullback.dtypes import DTYPES
from tests.conftest import Service
from tests.patience import PATIENCE_S

FLOATS = ("float16", "bfloat16", "float32", "float64")


def test_the_catalogue_matches_the_service(api, client) -> None:
    listed = client.get("/v1/ops").json()["ops"]
    assert [(op.name, op.summary) for op in api.ops()] == [(op["name"], op["summary"]) for op in listed]
    contract = api.op("roi_pool").contract()
    assert [slot.name for slot in contract.inputs] == ["features", "rois"]
    assert [slot.differentiable for slot in contract.outputs] == [True, False]
    assert set(contract.attr_schemas) == {"pooled_height", "pooled_width", "spatial_scale"}
    assert contract.claim == pullback.catalogue.Claim("derivative", "derivative", True)


def test_vjp(api) -> None:
    x, dy = np.array([1.0, 2.0]), np.array([1.0, 10.0])
    answer = api.op("square").vjp({"x": x}, cotangents={"y": dy}, outputs=True)
    np.testing.assert_array_equal(answer.gradients["x"], [2.0, 40.0])
    np.testing.assert_array_equal(answer.outputs["y"], [1.0, 4.0])
    assert answer.gradients["x"].dtype == np.float64
    assert answer.absent == {}


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_dtype_is_that_of_typed_arrays(api, dtype: str) -> None:
    x = np.array([[1.5, np.nan], [np.inf, -0.0]]).astype(getattr(ml_dtypes, dtype, dtype))
    y = api.op("gradient_reversal").forward({"x": x}).outputs["y"]
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.astype(float), x.astype(float))
    assert np.signbit(y[1, 1].astype(float))


def test_lists_take_the_dtype_of_the_arrays_beside_them(api) -> None:
    answer = api.op("square").vjp({"x": [1, 2]}, cotangents={"y": np.array([1.0, 1.0])})
    assert answer.gradients["x"].dtype == np.float64
    assert api.op("square").forward({"x": 3}).outputs["y"].dtype == np.float32
    assert api.op("square").forward({"x": 3}, dtype="float64").outputs["y"].shape == ()


@pytest.mark.parametrize(
    "x",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6.0)[::-2],
        np.arange(4, dtype=">f8"),
        np.zeros((0, 3)),
        np.float64(2.5),
        np.array(3.0),
        range(3),
        array("d", [1, 2]),
    ],
    ids=["transposed", "strided", "big-endian", "empty", "scalar", "0-d", "range", "buffer"],
)
def test_every_layout_arrives(api, x) -> None:
    y = api.op("square").forward({"x": x}).outputs["y"]
    np.testing.assert_array_equal(y, np.square(x))
    assert y.shape == np.shape(x)
    assert y.flags.writeable


def test_lists_may_hold_any_kind_of_number(api) -> None:
    y = api.op("gradient_reversal").forward({"x": [[1, float("nan")], (np.float32(np.inf), -np.inf)]}).outputs["y"]
    np.testing.assert_array_equal(y, [[1, np.nan], [np.inf, -np.inf]])


def test_a_missing_gradient_is_none_with_a_reason(api) -> None:
    op = api.op("softmax_cross_entropy")
    answer = op.vjp({"logits": np.zeros((1, 2)), "labels": [1]})
    assert answer.gradients["labels"] is None
    assert answer.absent == {"labels": "not_differentiable"}
    orders = api.op("square").gradients({"x": [1, 3]}, order=3)
    assert [list(order) for order in orders.gradients] == [["x"]] * 3
    assert orders.gradients[2]["x"] is None
    assert orders.absent[2] == {"x": "disconnected"}


def test_every_operation(api) -> None:
    op, x = api.op("square"), {"x": np.array([1.0, 3.0])}
    np.testing.assert_array_equal(op.jvp(x, tangents={"x": [1, 10]}).tangents["y"], [2, 60])
    np.testing.assert_array_equal(op.jacobian(x, of=["y"], wrt=["x"]).jacobian["y"]["x"], [[2, 0], [0, 6]])
    np.testing.assert_array_equal(op.hvp(x, vectors={"x": [1, 1]}, cotangents={"y": [1, 10]}).products["x"], [2, 20])
    np.testing.assert_array_equal(op.hessian(x).hessian["x"]["x"], [[2, 0], [0, 2]])
    np.testing.assert_array_equal(op.hessian(x, diagonal=True).diagonal["x"], [2, 2])
    batched = op.vjp(x, cotangents={"y": np.eye(2)}, batched=True)
    np.testing.assert_array_equal(batched.gradients["x"], [[2, 0], [0, 6]])


def test_many_points_in_one_call(api, service) -> None:
    x = np.random.default_rng(0).normal(size=(4, 3, 3))
    x += x.transpose(0, 2, 1)
    op = api.op("self_adjoint_eig")
    for call in (op.vjp, op.gradients, partial(op.hvp, vectors=x[0])):
        many = partial(op.hvp, vectors=x[:1].repeat(4, 0)) if isinstance(call, partial) else call
        found, ones = many(x, points=True), [call(a) for a in x]
        for name in ("gradients", "products"):
            if hasattr(found, name):
                whole, parts = getattr(found, name), [getattr(one, name) for one in ones]
                whole, parts = (whole[0], [part[0] for part in parts]) if isinstance(whole, list) else (whole, parts)
                np.testing.assert_array_equal(whole["a"], [part["a"] for part in parts])
        assert found.failed == {}
    x[2] = np.nan
    with pytest.raises(pullback.Unprocessable, match="point 2: "):
        op.forward(x, points=True)
    found = op.forward(x, points=True, partial=True)
    assert isinstance(found.failed[2], pullback.Unprocessable)
    assert np.isnan(found["w"]).all(1).tolist() == [False, False, True, False]

    async def main() -> pullback.Gradients:
        async with pullback.AsyncClient(str(service.url)) as client:
            return await client.op("self_adjoint_eig").vjp(x, points=True, partial=True)

    assert list(asyncio.run(main()).failed) == [2]


def test_numeric_derivatives_have_error_bars(api) -> None:
    op = api.op("softmax_cross_entropy")
    x = {"logits": np.array([[1.0, 2.0]]), "labels": [1]}
    found = op.numeric(x)
    assert isinstance(found, pullback.Numeric)
    analytic = op.vjp(x).gradients["logits"]
    assert (np.abs(found.derivatives["logits"] - analytic) <= found.error_bars["logits"]).all()
    assert found.statuses["logits"].tolist() == [["ok", "ok"]]
    assert found.derivatives["labels"] is found.error_bars["labels"] is None
    assert found.absent == {"labels": "not_differentiable"}
    along = op.numeric(x, order=2, tangents={"logits": [[1, -1]]})
    assert set(along.derivatives) == {"along"}
    product = op.hvp(x, vectors={"logits": [[1, -1]]}).products["logits"]
    assert abs(along.derivatives["along"] - (product @ [1, -1]).item()) <= along.error_bars["along"]
    kink = api.op("relu").numeric([0.0])
    assert kink.statuses["x"].tolist() == ["kink"]
    assert np.isnan(kink.derivatives["x"]).all()


def test_attributes_modes_and_devices_are_sent(api) -> None:
    op, x = api.op("scale_gradient"), {"x": [1.0]}
    answer = op.vjp(x, attrs={"scale": np.float64(3)}, mode="eager", device="cpu", dtype="float64")
    assert answer.gradients["x"] == [3.0]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda c: c.op("sqare").contract(), pullback.NotFound, r"did you mean square"),
        (lambda c: c.op("a/../b?c#d").forward({}), pullback.NotFound, "unknown path|unknown op"),
        (lambda c: c.op("square").forward({"x": "a"}), pullback.Unprocessable, "inputs.x: expected a number"),
        (lambda c: c.op("square").forward({"x": np.array([1])}), pullback.Unprocessable, "not cast.*int64"),
        (lambda c: c.op("square").forward({"x": np.array([True])}), pullback.Unprocessable, "not cast.*bool"),
        (
            lambda c: c.op("square").forward({"x": True}),
            pullback.Unprocessable,
            "expected a number, .*got true",
        ),
        (lambda c: c.op("square").forward({"x": np.array([1j])}), pullback.Unprocessable, "not accept.*got complex128"),
        (lambda c: c.op("square").forward({"x": [object()]}), pullback.BadArgument, "got object"),
        (lambda c: c.op("square").forward({"x": object()}), pullback.BadArgument, "got object"),
        (lambda c: c.op("square").forward({"x": recursive_list()}), pullback.BadArgument, "at most 8 dimensions"),
        (lambda c: c.op("square").vjp({"x": [1]}, wrt="x"), pullback.BadArgument, r"\['x'\]"),
        (lambda c: list(c.checks(["square", "nothing"])), pullback.NotFound, "nothing"),
    ],
)
def test_errors_are_one_line(api, call, kind, message: str) -> None:
    with pytest.raises(kind, match=message) as error:
        call(api)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, pullback.PullbackError)


def recursive_list() -> list:
    outer: list = []
    outer.append(outer)
    return outer


def test_a_problem_has_its_document(api) -> None:
    with pytest.raises(pullback.Unprocessable) as caught:
        api.op("square").forward({"x": [1, [2]]})
    error = caught.value
    assert (error.status, error.title) == (422, "Unprocessable request")
    assert error.errors[0].loc[:2] == ("inputs", "x")
    assert error.document["instance"] == "/v1/ops/square/forward"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.errors) == (type(error), str(error), error.errors)


def test_check_returns_a_report(api) -> None:
    report = api.op("square").check({"x": np.array([0.5, 2.0])}, checks=["derivative"], orders=(1,), seed=3)
    assert (report.op, report.verdict, report.seed) == ("square", "pass", 3)
    assert {check.check for check in report.checks} == {"derivative"}
    assert report.count("pass") == len(report.checks) > 0
    judged = [check for check in report.checks if check.order == 1 and check.digits]
    assert judged
    assert all(0 < sum(check.digits.values()) <= check.compared for check in judged)


def test_a_stream_of_checks_ends_with_a_summary(api) -> None:
    events = list(api.checks(["square", "round_ste"], checks=["contract"], dtypes=["float64"]))
    assert isinstance(events[0], reports.Start)
    assert events[0].ops == ["square", "round_ste"]
    assert sorted(event.op for event in events if isinstance(event, reports.Report)) == ["round_ste", "square"]
    assert isinstance(events[-1], reports.Summary)
    assert (events[-1].verdict, events[-1].passed) == ("pass", 2)


def test_a_stream_may_be_closed_early(api) -> None:
    with closing(api.checks(["square"])) as events:
        assert isinstance(next(events), reports.Start)
    assert api.op("square").forward({"x": 2}).outputs["y"] == 4


def test_verify(api) -> None:
    x = np.linspace(1, 2, 100)
    mine = 2 * x
    mine[17] += 0.5
    verification = api.op("square").verify({"x": x}, {"x": mine}, cotangents={"y": np.ones(100)})
    assert (verification.verdict, verification.dtype) == ("fail", "float64")
    verdict = verification.gradients["x"]
    assert (verdict.elements, verdict.wrong) == (100, 1)
    assert verdict.worst.index == (17,)
    assert verdict.worst.analytic == mine[17]
    assert [block.start <= 17 < block.stop for block in verdict.blocks if block.verdict == "fail"] == [True]
    wide = {"absolute": 1.0, "relative": 0.0}
    assert api.op("square").verify({"x": x}, {"x": mine}, tolerances=wide).verdict == "pass"


def test_the_url_defaults_to_the_environment(service: Service, monkeypatch) -> None:
    monkeypatch.setenv("PULLBACK_URL", f"{service.url}/")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pullback.Client(timeout=PATIENCE_S) as client:
        assert client.url == service.url
        assert client.ops()


def test_the_async_client(service: Service) -> None:
    async def run() -> None:
        async with pullback.AsyncClient(service.url, timeout=PATIENCE_S) as client:
            op = client.op("square")
            answers = await asyncio.gather(*(op.vjp({"x": [float(i)]}) for i in range(8)))
            assert [answer.gradients["x"].item() for answer in answers] == [2.0 * i for i in range(8)]
            assert len(await client.ops()) > 0
            events = [event async for event in client.checks(["square"], checks=["contract"])]
            assert isinstance(events[-1], reports.Summary)
            async with aclosing(client.checks(["square"])) as events:
                assert isinstance(await anext(events), reports.Start)
            with pytest.raises(pullback.NotFound):
                await client.op("nothing").contract()

    asyncio.run(run())


def test_importing_the_client_imports_only_certifi_httptools_and_numpy(python) -> None:
    before = "import json, sys, certifi, httptools, numpy; old = set(sys.modules)"
    new = json.loads(python(f"{before}; import pullback; print(json.dumps(list(set(sys.modules) - old)))"))
    assert {name for name in map(package, new) if name not in sys.stdlib_module_names} <= {"pullback", "numpy"}
    assert not [name for name in new if f"{name}.".startswith("pullback.cli.")]


def test_the_client_works_without_httpx(python, service) -> None:
    program = f"""
import asyncio, sys
sys.modules |= dict.fromkeys(["httpx", "httpcore"])
import pullback, pullback.cli, pullback.remotes, pullback.gradcheck.events
options = dict(ops=["square"], checks=["value"], dtypes=["float64"], modes=["graph"])
with pullback.Client({service.url!r}) as client:
    print(client.op("square").forward([3.0]).outputs["y"].tolist(), type(list(client.checks(**options))[-1]).__name__)
async def main():
    async with pullback.AsyncClient({service.url!r}) as client:
        print(len(await client.ops()) > 0, [type(event).__name__ async for event in client.checks(**options)][-1])
asyncio.run(main())
"""
    assert python(program).split() == ["[9.0]", "Summary", "True", "Summary"]


@pytest.mark.parametrize(("scheme", "package"), [("https", "pullback[httpx]"), ("socks5h", "httpx[socks]")])
def test_a_proxy_that_needs_httpx_says_so(monkeypatch, scheme: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.setenv("ALL_PROXY", f"{scheme}://proxy.example:3128")
    with pullback.Client("http://elsewhere.example") as client:
        for send in (client.ops, lambda: list(client.checks())):
            with pytest.raises(pullback.BadArgument, match=re.escape(f"pip install {package!r}")):
                send()


def package(module: str) -> str:
    return module.partition(".")[0]


def test_without_ml_dtypes_bfloat16_is_widened(python) -> None:
    tensor = {"dtype": "bfloat16", "shape": [2], "base64": "gD8AwA=="}
    hidden = "import sys; sys.modules['ml_dtypes'] = None; from pullback.arrays import decode; "
    assert python(f"{hidden} a = decode({tensor}); print(a.dtype, a.tolist())").split(" ", 1) == [
        "float32",
        "[1.0, -2.0]\n",
    ]


@pytest.mark.parametrize(("raw", "values"), [(b"", []), (b"\0\1", [False, True])])
def test_bools_are_bytes_of_0_and_1(raw: bytes, values: list[bool]) -> None:
    tensor = {"dtype": "bool", "shape": [len(raw)], "base64": base64.b64encode(raw).decode()}
    array = decode(tensor)
    assert (array.dtype, array.tolist()) == (np.bool_, values)
    assert encode(array) == tensor
    with pytest.raises(ValueError, match="bytes of 0 or 1 in a tensor of bools, got 2"):
        decode({**tensor, "shape": [len(raw) + 1], "base64": base64.b64encode(raw + b"\2").decode()})


def test_the_dtypes_are_those_of_the_service() -> None:
    of_service = pytest.importorskip("app.tensors.dtypes", reason="the service is not installed", exc_type=ImportError)
    assert set(DTYPES) == {*of_service.DTYPES, *of_service.COMPLEX}
