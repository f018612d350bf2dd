"""Numbers: whatever a list has in place of a number, both services answer the same."""

import json
from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fast_path.both import Both
from tests.fast_path.wire import post, with_head

pytestmark = pytest.mark.slow

TAGS = count()
LONG = 1200
EDGES = (
    *("0", "-0", "0.0", "-0.0", "-0e0", "5e-324", "-1e-46", "1.4e-45", "1e-400", "1E5", "1e+5", "12e-1", "1.0e00"),
    *("3.4028234663852886e38", "3.4028235677973366e38", "3.4028235677973365e38", "-3.4028235677973367e38", "1e39"),
    *("1.7976931348623157e308", "1.7976931348623159e308", "1e309", "-1e999", "1" * 310, "1" * 400, "-" + "9" * 39),
    *("16777217", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809"),
    *("18446744073709551615", "18446744073709551616", "123456789012345678901234567890", "0.1000000000000000055511"),
    *("7.038531e-26", "-7.038531e-26", "1.00000005960464477539062500001", "0.30000000000000004", "1e22", "1e23"),
    *(
        " 1.5 ",
        "\t1.5",
        "1.5\n",
        "\r1.5",
        "\x0b1.5",
        "\x001.5",
        "\u00a01.5",
        '"NaN"',
        '"Infinity"',
        '"-Infinity"',
        '"1"',
    ),
    *("NaN", "Infinity", "-Infinity", "nan", "true", "false", "null", "[]", "[1.5]", "{}", "", ",", "1.5,", ",1.5"),
    *("01", "-01", "1.", ".5", "+1", "1e", "0x10", "1_0", "--1", "1 2", "1.5]", "[1.5", "1.5],[1.5", '"', "//", "1.5}"),
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.one_of(
    FINITE.map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(EDGES),
    FINITE.map(lambda x: f"{x:.25e}"),
    FINITE.map(lambda x: f"{x:E}"),
    st.integers(-400, 400).map(lambda x: f"1.5e{x}"),
)
SPACE = st.text(" \t\r\n", max_size=2)
ITEM = st.tuples(SPACE, NUMBERS, SPACE).map("".join)
LISTS = st.lists(ITEM, min_size=0, max_size=6).map(",".join)
PROPERTY = settings(max_examples=120, deadline=None, database=None, derandomize=True)
THOROUGH = settings(max_examples=5000, deadline=None, database=None)


def tagged() -> str:
    """Return a header that no other prefix has, so that wrong bodies of one test do not make others rest."""
    return f"x-tag: {next(TAGS)}"


def request(x: str, dtype: str, tag: str, rest: str = "1.5,-2.5") -> bytes:
    body = f'{{"inputs":{{"x":[{x}]}},"cotangents":{{"y":[{rest}]}},"dtype":"{dtype}"}}'
    return post("/v1/ops/log1pexp/vjp", body.encode(), "content-type: application/json", tag)


@pytest.fixture(params=["float32", "float64"])
def dtype(request) -> str:
    return request.param


@pytest.fixture
def tag() -> Iterator[str]:
    return tagged()


@pytest.mark.parametrize("length", [0, LONG])
def test_an_edge_of_numbers(both, dtype, tag, length):
    """Long lists have another reader."""
    more, ones = ",1.25" * length, ",0.5" * length
    both.warm(lambda n: request(f"{n + 0.5}{more}", dtype, tag, f"1.5{ones}"))
    with both.takes(20):
        for edge in EDGES:
            both.same(request(edge + more, dtype, tag, "1.5" + ones), request("0.5" + more, dtype, tag, edge + ones))


@pytest.mark.parametrize("length", [1, 2, 400])
def test_numbers_drawn(both, dtype, tag, length):
    rng = np.random.default_rng(length)

    def numbers(n: int) -> str:
        bits = rng.integers(0, 2 ** (8 * np.dtype(dtype).itemsize), length, np.uint64)
        values = bits.astype(f"u{np.dtype(dtype).itemsize}").view(dtype)
        return json.dumps(np.where(np.isfinite(values), values, n + 0.5).tolist())[1:-1]

    both.warm(lambda n: request(numbers(n), dtype, tag, numbers(n)))
    with both.takes(5):
        both.same(*(request(numbers(n), dtype, tag, numbers(n)) for n in range(30)))


def check_property(both: Both, dtype: str, config: settings) -> None:
    tag = tagged()
    for size in (1, 2, 3):
        both.warm(lambda n, size=size: request(",".join([f"{n}.25"] * size), dtype, tag, ",".join(["0.5"] * size)))

    @settings(config, suppress_health_check=list(HealthCheck))
    @given(LISTS, st.one_of(LISTS, st.sampled_from(["1.5", "1.5,2.5", "1.5,2.5,3.5"])))
    def check(x: str, y: str) -> None:
        both.same(request(x, dtype, tag, y))

    check()


def test_any_list(both, dtype):
    check_property(both, dtype, PROPERTY)


@pytest.mark.thorough
def test_any_list_thoroughly(both, dtype):
    check_property(both, dtype, THOROUGH)


BODIES = (
    '{"inputs":{"x":[NUM,1.5]}}',
    '{ "inputs" : { "x" : [ NUM , 1.5 ] } }',
    '{"dtype":"float32","inputs":{"x":[NUM,1.5]}}',
    '{"inputs":{"x":[NUM,1.5]},"dtype":"float32"}\n',
    '{"inputs":{"x":[[NUM],[1.5]]}}',
    '{"inputs":{"x":[[NUM,1.5]]}}',
    '{"inputs":{"x":[[NUM,1.5],[2.5]]}}',
    '{"inputs":{"x":[[],[NUM,1.5]]}}',
    '{"inputs":{"x":[]}}',
    '{"inputs":{"x":NUM}}',
    '{"inputs":{"x":[NUM,1.5]},"inputs":{"x":[NUM,1.5]}}',
    '{"inputs":{"x":[NUM,1.5],"x":[NUM,2.5]}}',
    '{"inputs":{"x":[NUM,1.5],"z":[NUM,2.5]}}',
    '{"inputs":{"x":{"dtype":"float32","shape":[2],"data":[NUM,1.5]}}}',
    '{"inputs":{"x":{"dtype":"float32","shape": [2.0],"data":[NUM,1.5]}}}',
    '{"inputs":{"x":{"dtype":"float32","shape":[1,2],"data":[NUM,1.5]}}}',
    '{"inputs":{"x":{"dtype":"float32","shape":[3],"data":[NUM,1.5]}}}',
    '{"inputs":{"x":{"dtype":"float32","shape":[2],"data":[NUM,1.5,2.5]}}}',
    '{"inputs":{"x":[NUM,1.5]},"cotangents":{"y":[1,2]}}',
    '{"inputs":{"x":[NUM,1.5]},"cotangents":{"y":[1,2.5]}}',
    '{"inputs":{"x":[NUM,1.5]},"cotangents":{"y":[NUM]}}',
    '{"inputs":{"x":[NUM,1.5]},"wrt":[]}',
    '{"inputs":{"x":[NUM,1.5]},"wrt":["x"]}',
    '{"inputs":{"x":[NUM,1.5]},"wrt":[1.5]}',
    '{"inputs":{"x":[NUM,1.5]},"batched":true,"cotangents":{"y":[[1.5,2.5]]}}',
    '{"inputs":{"x":[NUM,1.5]},"encoding":"base64"}',
    '{"inputs":{"x":[NUM,1.5]},"note":"[\\u0000]"}',
    "[NUM,1.5]",
    '{"inputs":{"x":[NUM,1.5]}} [NUM,1.5]',
    '{"inputs":{"x":[NUM,1.5]',
    '{"inputs":{"x":"[NUM,1.5]"}}',
)


def test_bodies_that_look_alike(both):
    """Each under one prefix, in turn, so that the templates of one meet the others."""
    tag = tagged()
    for turn in range(3):
        for body in BODIES:
            for value in ("0.25", "-1.75", f"{turn}.5", "3"):
                data = body.replace("NUM", value).encode()
                both.same(post("/v1/ops/log1pexp/vjp", data, "content-type: application/json", tag))


@pytest.mark.parametrize("body", BODIES)
def test_a_body_in_a_loop(both, body):
    tag = tagged()

    def of(n: int) -> bytes:
        data = body.replace("NUM", f"{n}.125").encode()
        return post("/v1/ops/log1pexp/vjp", data, "content-type: application/json", tag)

    both.repeat(of)
    for value in ("null", "true", '"1"', "1e39", "-0.0", "1", ""):
        data = body.replace("NUM", value).encode()
        both.same(post("/v1/ops/log1pexp/vjp", data, "content-type: application/json", tag))


@pytest.mark.parametrize("op", ["square", "log1pexp"])
@pytest.mark.parametrize("encoding", ["flat", "nested", "base64"])
def test_results_without_a_plain_number(both, dtype, tag, op, encoding):
    """Results overflow, or are what orjson writes otherwise: the general path writes those."""

    def of(*values: str) -> bytes:
        body = f'{{"inputs":{{"x":[[{"],[".join(values)}]]}},"dtype":"{dtype}","encoding":"{encoding}"}}'
        return post(f"/v1/ops/{op}/forward", body.encode(), "content-type: application/json", tag)

    both.warm(lambda n: of(f"{n}.25", "1.5"))
    edges = ("1e30", "1e200", "7.038531e-26", "-7.038531e-26", "2.653022e-13", "1e-30", "1e38", "-1e38", "0.5")
    with both.takes(1):
        both.same(*(of(first, second) for first in edges for second in edges))


def test_infinities_and_nan_in_bytes(both, dtype):
    """A body in bytes may have any numbers: the answer in bytes has any too, and one in JSON has words."""
    size = np.dtype(dtype).itemsize
    kinds = {4: "F32", 8: "F64"}

    def of(values: np.ndarray, accept: str) -> bytes:
        header = json.dumps(
            {
                "inputs/x": {"dtype": kinds[size], "shape": [2], "data_offsets": [0, 2 * size]},
                "__metadata__": {"dtype": f'"{dtype}"'},
            }
        ).encode()
        header += b" " * (-len(header) % 8)
        lines = ("content-type: application/vnd.safetensors", f"accept: {accept}")
        return with_head("/v1/ops/square/forward", lines, len(header).to_bytes(8, "little") + header + values.tobytes())

    words = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e38, 0.1]
    for accept in ("application/vnd.safetensors", "application/json"):
        both.repeat(lambda n, accept=accept: of(np.array([n + 0.25, 1.5], dtype), accept))
        both.same(*(of(np.array([first, second], dtype), accept) for first in words for second in words))


@pytest.mark.parametrize("text", ["AAAAAAAAAA==", "AAAAAAAAAAAA", "AAAAAAAAAAB=", "AAAA-AAAAAA=", "AAAAAAAA AA="])
def test_base64_of_other_lengths(both, tag, text):
    def of(data: str) -> bytes:
        body = f'{{"inputs":{{"x":{{"dtype":"float32","shape":[2],"base64":"{data}"}}}}}}'
        return post("/v1/ops/square/forward", body.encode(), "content-type: application/json", tag)

    both.warm(lambda n: of(f"AACAPwA{'ABCDEFGH'[n % 8]}AEA="))
    with both.takes(1, 2):
        both.same(of(text), of("AACAPwAAAEA="))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tensors_of_no_dimension_and_of_no_numbers(both, dtype, tag):
    """Their shapes are lists without numbers, beside numbers that are not in lists."""
    for shape, text in (([], "AAAAAAAA8D8="), ([0, 4], ""), ([2, 0], "")):
        encoded = text if dtype == "float64" else text and "AACAPw=="
        tensor = {"dtype": dtype, "shape": shape, "base64": encoded}
        flat = {"dtype": dtype, "shape": shape, "data": [1.5] if text else []}
        for x in (tensor, flat):
            body = json.dumps({"inputs": {"x": x}, "dtype": dtype}).encode()
            both.same(*(post("/v1/ops/square/vjp", body, "content-type: application/json", tag) for _ in range(12)))
