"""Bodies in safetensors: from a size on, the client sends and accepts them; numbers are the same in both formats."""

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback
from app.tensors import safetensors as service_safetensors
from pullback import bodies, results, safetensors
from pullback.dtypes import DTYPES
from tests.client.counting import sent_by
from tests.conftest import Service
from tests.patience import PATIENCE_S


def vjp(inputs: dict) -> bodies.Body:
    call = sent_by(lambda op: op.vjp(inputs))
    assert call.body is not None
    # JSON is what is left for numbers that safetensors does not have.
    assert call.accept.split(",")[0] == call.body.media_type
    return call.body


def test_small_arrays_travel_in_json_and_large_ones_do_not() -> None:
    small, large = np.zeros(bodies.BINARY_BYTES - 1, np.uint8), np.zeros(bodies.BINARY_BYTES, np.uint8)
    assert vjp({"x": small}).media_type == bodies.JSON
    assert vjp({"x": large}).media_type == safetensors.MEDIA_TYPE
    # Lists have no dtype, so they are JSON, whatever their size.
    assert vjp({"x": [0.5] * 100_000}).media_type == bodies.JSON
    assert vjp({"x": large, "w": [0.5] * 1_000_000}).media_type == bodies.JSON


def test_large_arrays_are_not_copied() -> None:
    x = np.zeros(10_000)
    piece = vjp({"x": x, "w": [0.5]}).pieces[1]
    assert np.shares_memory(np.frombuffer(piece), x)


ODD_NAMES = ["x", "base64", 'quoted"base64":""', "zero\0byte", "\u00fc", "", 1]
FIELDS = [
    {},
    {"order": 1, "wrt": None},
    {"order": True},
    {"order": 1.0},
    {"order": np.int64(2)},
    {"order": np.array(2)},
    {"wrt": ("x", "w"), "outputs": True, "batched": False},
    {"wrt": ['"base64":""'], "mode": '"base64":""'},
    {"attrs": {"base64": "", "k": np.float64(np.nan)}},
    {"attrs": {"base64": "", "k": [1, 2]}, "mode": "xla"},
    {"attrs": {}},
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_body_is_the_same_whether_or_not_its_template_is_cached(fields: dict, name) -> None:
    for x in (np.arange(3.0), np.zeros((2, 0), ">i4"), np.array(1.5, ml_dtypes.bfloat16), np.ones((2, 3))[:, ::2]):
        for tensors in ({"inputs": {name: x}}, {"inputs": {}, "cotangents": {name: x, "other": -x}}):
            expected = json.loads(bodies.write_json(fields, tensors).pieces[0])
            for _ in range(2):
                body = bodies.write(fields, tensors)
                text = str(body.pieces[0], "utf-8")
                assert json.loads(text) == expected
                # True == 1 == 1.0 in Python, but not in JSON.
                assert repr(json.loads(text).get("order")) == repr(expected.get("order"))


def test_values_that_json_cannot_hold_are_refused_each_time() -> None:
    for fields in ({"order": float("nan")}, {"mode": "\ud800"}, {"attrs": {"k": object()}}):
        for _ in range(2):
            with pytest.raises(pullback.BadArgument, match="cannot write an argument as JSON"):
                bodies.write(fields, {"inputs": {"x": np.ones(2)}})


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


LAYOUTS = {
    "row-major": lambda array: array,
    "column-major": lambda array: array.T,
    "strided": lambda array: array[..., ::2] if array.ndim else array,
    "reversed": lambda array: array[..., ::-1] if array.ndim else array,
}
WRITTEN = [name for name, dtype in DTYPES.items() if dtype.code]
SHAPES = st.lists(st.tuples(st.sampled_from(WRITTEN), st.lists(st.integers(0, 5), max_size=3)), max_size=4)


@settings(deadline=None)
@given(SHAPES, st.sampled_from(list(LAYOUTS)))
def test_both_sides_read_what_the_other_writes(shapes, layout: str) -> None:
    rng = np.random.default_rng(len(shapes))
    tensors = {
        f"inputs/x{i}": LAYOUTS[layout](rng.integers(0, 2, shape).astype(numpy_dtype(name)))
        for i, (name, shape) in enumerate(shapes)
    }
    body = b"".join(safetensors.write(tensors, '{"mode":"graph"}'))
    read = service_safetensors.parse(body)
    assert read.pop("mode") == "graph"
    start = 8 + int.from_bytes(body[:8], "little")
    assert start % safetensors.ALIGNMENT == 0
    for name, entry in json.loads(body[8:start]).items():
        assert name not in tensors or entry["data_offsets"][0] % tensors[name].itemsize == 0
    assert set(read.get("inputs", {})) == {name.removeprefix("inputs/") for name in tensors}
    for name, array in tensors.items():
        there = read["inputs"][name.removeprefix("inputs/")]
        assert there.tobytes() == array.tobytes()
        assert there.shape == array.shape
    back = safetensors.read(b"".join(map(bytes, service_safetensors.lay_out(tensors, {}).pieces())))
    for name, array in tensors.items():
        here = back["inputs"][name.removeprefix("inputs/")]
        assert (here.dtype, here.shape, here.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert here.flags.writeable


def test_a_tensor_of_any_alignment_is_read() -> None:
    header = (
        b'{"y":{"dtype":"F64","shape":[1],"data_offsets":[1,9]},"z":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    )
    body = bytearray(len(header).to_bytes(8, "little") + header + b"\7" + np.array([2.5]).tobytes())
    for shift in range(8):
        y = safetensors.read(memoryview(bytearray(shift) + body)[shift:])["y"]
        assert (y.tolist(), y.flags.aligned, y.flags.writeable) == ([2.5], True, True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0" * 8,
        b"\x02\0\0\0\0\0\0\0[]",
        *(
            len(header).to_bytes(8, "little") + header + b"\0" * 8
            for header in (
                b'{"y":3}',
                b'{"y":{"dtype":"C128","shape":[1],"data_offsets":[0,8]}}',
                b'{"y":{"dtype":"F64","shape":[2],"data_offsets":[0,8]}}',
                b'{"y":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}',
                b'{"y":{"dtype":"F64","shape":[1],"data_offsets":[-8,0]}}',
                b'{"y":{"dtype":"F64","shape":[1]}}',
            )
        ),
    ],
)
def test_a_body_that_is_not_safetensors(body: bytes) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        safetensors.read(body)


OPS = {
    "square": ({"x": np.linspace(-1, 1, 6)}, {"y": np.linspace(1, 2, 6)}),
    "softmax_cross_entropy": ({"logits": np.eye(2, 3), "labels": [0, 2]}, None),
    "zero_out_indexed": ({"x": np.arange(4.0)}, None),
    "log1pexp.vjp": ({"x": np.linspace(-1, 1, 6), "dy": np.ones(6)}, None),
}


@pytest.mark.parametrize("name", OPS)
def test_the_numbers_are_the_same_in_both_formats(api: pullback.Client, name: str, monkeypatch) -> None:
    op, (inputs, cotangents) = api.op(name), OPS[name]
    directions = {key: np.ones_like(x) for key, x in inputs.items() if isinstance(x, np.ndarray)}

    def results() -> list:
        return [
            op.forward(inputs),
            op.gradients(inputs, order=3),
            op.vjp(inputs, cotangents=cotangents, outputs=True),
            op.jvp(inputs, tangents=directions),
            op.jacobian(inputs),
            op.hvp(inputs, vectors=directions),
            op.hessian(inputs),
        ]

    monkeypatch.setattr(bodies, "BINARY_BYTES", 0)
    binary = results()
    monkeypatch.setattr(bodies, "BINARY_BYTES", 1 << 62)
    for one, other in zip(binary, results(), strict=True):
        assert_same(vars(one), vars(other))


def assert_same(one, other) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, list):
        for mine, yours in zip(one, other, strict=True):
            assert_same(mine, yours)
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    else:
        assert one == other


def test_orders_without_any_gradient_are_not_forgotten() -> None:
    document = {"outputs": {}, "gradients": {"1": {"x": np.ones(1)}}, "absent": [{}, {"x": "disconnected"}]}
    orders = results.orders(document)
    assert [list(level.values()) for level in orders.gradients] == [[np.ones(1)], [None]]


def test_ten_million_numbers(api: pullback.Client) -> None:
    x = np.full(10**7, 3, np.float32)
    gradient = api.op("square").vjp({"x": x}).gradients["x"]
    assert (gradient.dtype, gradient.shape) == (np.float32, x.shape)
    assert (gradient.min(), gradient.max()) == (6, 6)


def test_a_body_over_the_limit_says_so(service: Service) -> None:
    with pullback.Client(service.url, timeout=PATIENCE_S) as client, pytest.raises(pullback.TooLarge, match="256"):
        client.op("square").vjp({"x": np.zeros(260 << 20, np.uint8)})


def test_the_client_knows_the_limit_of_the_service() -> None:
    assert safetensors.MAX_HEADER == service_safetensors.MAX_HEADER
    assert safetensors.ALIGNMENT == service_safetensors.ALIGNMENT
