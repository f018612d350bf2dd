"""Bools over HTTP: mask inputs and sign outputs, in every operation, mode and format."""

import base64
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

import pullback
from tests.http.native_client import MODES, OPERATIONS, array, ask, data, fault, post, problem
from tests.http.test_binary import binary, decode, encode
from tests.patience import PATIENCE_S

X, MASK = [1.5, -2.0, 3.0], [True, False, True]
POINT = {"inputs": {"x": X, "mask": MASK}}
ABSENT = {"mask": "not_differentiable"}


def tensor(value: Any, dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(np.shape(value)), "data": value}


def in_base64(raw: bytes, *shape: int) -> dict[str, Any]:
    return {"dtype": "bool", "shape": list(shape or (len(raw),)), "base64": base64.b64encode(raw).decode()}


@pytest.fixture(scope="module")
def ours(plugged_service) -> Iterator[pullback.Client]:
    with pullback.Client(plugged_service.url, timeout=PATIENCE_S) as one:
        yield one


# fmt: off
EXACTLY = [
    ("masked", "forward", POINT, {"outputs": {"y": tensor([1.5, 0, 3])}}),
    ("masked", "forward", {"inputs": {"x": 2, "mask": True}}, {"outputs": {"y": tensor(2)}}),
    ("masked", "forward", {"inputs": {"x": [[1], [2]], "mask": [[False], [True]]}, "dtype": "float64"},
     {"outputs": {"y": tensor([[0], [2]], "float64")}}),
    ("masked", "forward", {"inputs": {"x": ["NaN", "Infinity"], "mask": [False, True]}},
     {"outputs": {"y": tensor([0, "Infinity"])}}),
    ("masked", "gradients", POINT,
     {"outputs": {"y": tensor([1.5, 0, 3])}, "gradients": [{"x": tensor([1, 0, 1]), "mask": None}],
      "absent": [ABSENT]}),
    ("masked", "vjp", POINT | {"cotangents": {"y": [2, 3, 4]}},
     {"gradients": {"x": tensor([2, 0, 4]), "mask": None}, "absent": ABSENT}),
    ("masked", "vjp", POINT | {"cotangents": {"y": [[2, 3, 4], [5, 6, 7]]}, "batched": True, "wrt": ["x"]},
     {"gradients": {"x": tensor([[2, 0, 4], [5, 0, 7]])}}),
    ("masked", "vjp", POINT | {"wrt": ["mask"]}, {"gradients": {"mask": None}, "absent": ABSENT}),
    ("masked", "jvp", POINT | {"tangents": {"x": [5, 6, 7]}}, {"tangents": {"y": tensor([5, 0, 7])}}),
    ("masked", "jacobian", POINT,
     {"jacobian": {"y": {"x": tensor([[1, 0, 0], [0, 0, 0], [0, 0, 1]]), "mask": None}}, "absent": {"y": ABSENT}}),
    ("parted", "forward", {"inputs": {"x": X}},
     {"outputs": {"y": tensor([1.5, 2, 3]), "negative": tensor([False, True, False], "bool")}}),
    ("parted", "forward", {"inputs": {"x": -1}},
     {"outputs": {"y": tensor(1), "negative": tensor(True, "bool")}}),
    ("parted", "vjp", {"inputs": {"x": X}, "cotangents": {"y": [1, 2, 3]}}, {"gradients": {"x": tensor([1, -2, 3])}}),
    ("parted", "jvp", {"inputs": {"x": X}, "tangents": {"x": [1, 2, 3]}},
     {"tangents": {"y": tensor([1, -2, 3]), "negative": None}, "absent": {"negative": "not_differentiable"}}),
]
# fmt: on


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("case", EXACTLY, ids=lambda case: f"{case[0]}-{case[1]}")
def test_responses_are_exact(plugged: httpx.Client, case: tuple, mode: str | None):
    op, operation, body, answer = case
    assert ask(plugged, op, operation, **body, **({"mode": mode} if mode else {})) == answer


@pytest.mark.parametrize("mode", MODES)
def test_the_second_order_is_zero_or_absent(plugged: httpx.Client, mode: str):
    body = POINT | {"mode": mode}
    products = ask(plugged, "masked", "hvp", vectors={"x": X}, **body)
    blocks = ask(plugged, "masked", "hessian", **body)
    diagonal = ask(plugged, "masked", "hessian", **body, diagonal=True)
    for found in (products["products"], blocks["hessian"]["x"], diagonal["diagonal"]):
        assert found["mask"] is None
        assert found["x"] is None or not array(found["x"]).any()
    assert blocks["hessian"]["mask"] == {"x": None, "mask": None}
    assert blocks["absent"]["mask"] == {"x": "not_differentiable", "mask": "not_differentiable"}
    assert products["absent"]["mask"] == diagonal["absent"]["mask"] == "not_differentiable"


def test_a_bool_is_written_as_a_word(plugged: httpx.Client):
    for x, text in ((X, "[false,true,false]"), (-1, "true")):
        assert f'"data":{text}' in post(plugged, "parted", "forward", inputs={"x": x}).text


FORMS = [
    MASK,
    {"dtype": "bool", "shape": [3], "data": MASK},
    in_base64(b"\1\0\1"),
]


@pytest.mark.parametrize("mask", FORMS)
def test_every_encoding_is_equivalent(plugged: httpx.Client, mask: Any):
    assert data(ask(plugged, "masked", "forward", inputs={"x": X, "mask": mask})) == {"outputs": {"y": [1.5, 0, 3]}}


@pytest.mark.parametrize("encoding", ["nested", "flat", "base64"])
def test_a_response_can_be_sent_as_a_request(plugged: httpx.Client, encoding: str):
    x = [[1, -2], [-3, 4]]
    parted = ask(plugged, "parted", "forward", inputs={"x": x}, encoding=encoding)["outputs"]
    assert array(parted["negative"]).tolist() == [[False, True], [True, False]]
    again = ask(plugged, "masked", "forward", inputs={"x": parted["y"], "mask": parted["negative"]})
    assert data(again) == {"outputs": {"y": [[0, 2], [3, 0]]}}


@pytest.mark.parametrize("shape", [[0], [2, 0, 3]])
def test_empty_masks_are_accepted(plugged: httpx.Client, shape: list[int]):
    inputs = {"x": {"dtype": "float32", "shape": shape, "data": []}, "mask": {**in_base64(b""), "shape": shape}}
    for mode in MODES:
        assert ask(plugged, "masked", "vjp", inputs=inputs, mode=mode)["gradients"]["x"]["shape"] == shape


NO_BOOL, BYTE = "true or false", "0 or 1"
WRONG = [
    (1, [], NO_BOOL, "1"),
    ([1, 0, 1], [0], NO_BOOL, "1"),
    ([True, False, 1.0], [2], NO_BOOL, "1.0"),
    ([True, "true", False], [1], NO_BOOL, 'the string "true"'),
    ([True, None, False], [1], NO_BOOL, "null"),
    ([True, [False]], [1], "true or false, like the first", "a list of 1"),
    ({"dtype": "bool", "shape": [3], "data": [True, False, 0]}, ["data", 2], NO_BOOL, "0"),
    ({"dtype": "uint8", "shape": [3], "data": [1, 0, 1]}, ["dtype"], '"bool"', '"uint8"'),
    (in_base64(b"\1\0\2"), ["base64", 2], BYTE, "2"),
    (in_base64(b"\1\0\1\xff", 2, 2), ["base64", 1, 1], BYTE, "255"),
]


@pytest.mark.parametrize(("mask", "where", "expected", "got"), WRONG)
def test_an_invalid_bool_is_refused_at_its_index(
    plugged: httpx.Client, mask: Any, where: list, expected: str, got: str
):
    entry = fault(post(plugged, "masked", "forward", inputs={"x": X, "mask": mask}))
    assert entry["loc"] == ["inputs", "mask", *where]
    assert (expected in entry["expected"], got in entry["got"]) == (True, True), entry


@pytest.mark.parametrize("x", [True, [1.5, True, 3], {"dtype": "float32", "shape": [3], "data": [1, 2, False]}])
def test_a_bool_is_refused_as_a_number(plugged: httpx.Client, x: Any):
    entry = fault(post(plugged, "masked", "forward", inputs={"x": x, "mask": MASK}))
    assert entry["message"] == "expected a number"
    assert entry["got"] in ("true", "false")


@pytest.mark.parametrize(("operation", "field"), [("jvp", "tangents"), ("hvp", "vectors")])
@pytest.mark.parametrize("direction", [[1, 2, 3], MASK])
def test_a_mask_has_no_directions(plugged: httpx.Client, operation: str, field: str, direction: list):
    entry = fault(post(plugged, "masked", operation, **POINT, **{field: {"mask": direction}}))
    assert (entry["loc"], entry["message"]) == ([field, "mask"], "not differentiable")


def test_bool_is_refused_as_the_dtype(plugged: httpx.Client):
    entry = fault(post(plugged, "masked", "forward", **POINT, dtype="bool"))
    assert entry["loc"] == ["dtype"]
    assert plugged.get("/v1/ops/masked").json()["dtypes"] == ["float32", "float64", "float16", "bfloat16"]


def test_the_catalogue_names_the_dtype(plugged: httpx.Client):
    contract = plugged.get("/v1/ops/masked").json()
    _, mask = contract["inputs"]
    assert (mask["name"], mask["dtypes"], mask["differentiable"]) == ("mask", ["bool"], False)
    assert contract["examples"][0]["inputs"]["mask"] == MASK
    assert contract["default_mode"]["vjp"]["float32"] == "xla"


LONG = 30_000


@pytest.mark.parametrize("bad", [None, 0, "false"])
def test_long_lists_of_bools_and_numbers_are_read_together(plugged: httpx.Client, bad: Any):
    rng = np.random.default_rng(5)
    x, mask = rng.integers(-9, 9, LONG).tolist(), (rng.random(LONG) < 0.5).tolist()
    answer = ask(plugged, "masked", "vjp", inputs={"x": x, "mask": mask}, cotangents={"y": x}, outputs=True)
    for found in (answer["outputs"]["y"], answer["gradients"]["x"]):
        np.testing.assert_array_equal(array(found), np.where(mask, x, 0))
    if bad is not None:
        mask[LONG - 2] = bad
        assert fault(post(plugged, "masked", "forward", inputs={"x": x, "mask": mask}))["loc"][-1] == LONG - 2
        assert fault(post(plugged, "masked", "forward", inputs={"x": x, "mask": x}))["loc"] == ["inputs", "mask", 0]
        assert fault(post(plugged, "masked", "forward", inputs={"x": mask, "mask": mask}))["loc"] == ["inputs", "x", 0]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_binary_matches_json_bit_for_bit(plugged: httpx.Client, operation: str):
    tensors = {"inputs/x": np.float32(X), "inputs/mask": np.array(MASK)}
    directions = {"jvp": "tangents", "hvp": "vectors"}
    body = dict(POINT)
    if field := directions.get(operation):
        tensors[f"{field}/x"], body[field] = np.float32([1, 2, 3]), {"x": [1, 2, 3]}
    found = binary(plugged, f"masked/{operation}", encode(tensors), accept="application/json")
    assert found.json() == ask(plugged, "masked", operation, **body)


def test_safetensors_carry_bools_both_ways(plugged: httpx.Client):
    x = np.random.default_rng(6).standard_normal((50, 40), np.float32)
    found, _ = decode(binary(plugged, "parted/forward", encode({"inputs/x": x})).content)
    assert found["outputs/negative"].dtype == np.bool_
    np.testing.assert_array_equal(found["outputs/negative"], x < 0)
    body = encode({"inputs/mask": found["outputs/negative"], "inputs/x": x})
    again, _ = decode(binary(plugged, "masked/forward", body).content)
    np.testing.assert_array_equal(again["outputs/y"], np.where(x < 0, x, 0))


@pytest.mark.parametrize("size", [3, 300_000])
def test_an_invalid_bool_byte_is_400(plugged: httpx.Client, size: int):
    raw = np.zeros(size, np.uint8)
    raw[size - 1] = 2
    body = encode({"inputs/x": np.zeros(size, np.float32), "inputs/mask": raw.view(np.bool_)})
    detail = problem(binary(plugged, "masked/forward", body), 400)["detail"]
    assert detail == f"tensor inputs/mask: expected 0 or 1 for each bool, got the byte 2 at [{size - 1}]"


def test_batching_changes_no_bit(plugged: httpx.Client):
    rng = np.random.default_rng(7)
    bodies = []
    for _ in range(48):
        x = rng.standard_normal(int(rng.integers(1, 200))).tolist()
        inputs = {"x": x, "mask": (rng.random(len(x)) < 0.5).tolist()}
        bodies.append({"inputs": inputs, "cotangents": {"y": x}, "outputs": True, "encoding": "base64"})
    alone = [ask(plugged, "masked", "vjp", **body) for body in bodies]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda body: ask(plugged, "masked", "vjp", **body), bodies))
    assert together == alone
    for body, answer in zip(bodies, alone, strict=True):
        wanted = np.where(body["inputs"]["mask"], np.float32(body["inputs"]["x"]), np.float32(0))
        np.testing.assert_array_equal(array(answer["outputs"]["y"]), wanted)


@pytest.mark.parametrize("op", ["masked", "parted"])
def test_the_gradient_checks_pass(plugged: httpx.Client, op: str):
    report = plugged.post(f"/v1/ops/{op}/check", json={}).json()
    assert report["verdict"] == "pass", report["sentence"]


def test_a_point_with_a_mask_can_be_checked_and_verified(plugged: httpx.Client):
    assert plugged.post("/v1/ops/masked/check", json=POINT).json()["verdict"] == "pass"
    for gradient, verdict in (([1, 0, 1], "pass"), ([1, 1, 1], "fail")):
        body = {**POINT, "gradients": {"x": gradient}}
        assert plugged.post("/v1/ops/masked/verify", json=body).json()["verdict"] == verdict


@pytest.mark.parametrize("mask", [np.array(MASK), MASK, tuple(map(np.bool_, MASK)), np.repeat(MASK, 2)[::2]])
def test_the_client_accepts_bools(ours: pullback.Client, mask: Any):
    answer = ours.op("masked").vjp({"x": np.float64(X), "mask": mask}, outputs=True)
    np.testing.assert_array_equal(answer.outputs["y"], np.where(mask, X, 0))
    assert answer.gradients["mask"] is None


def test_the_client_returns_bools(ours: pullback.Client):
    negative = ours.op("parted").forward({"x": X}).outputs["negative"]
    assert negative.dtype == np.bool_
    assert negative.flags.writeable
    assert negative.tolist() == [False, True, False]
    single = ours.op("masked").forward({"x": np.float32(2), "mask": np.bool_(True)}).outputs["y"]
    assert single == np.float32(2)


def command(*args: str, url: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pullback", "call", *args, "--url", url], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.slow
def test_the_command_line_reads_and_prints_bools(plugged_service):
    url = plugged_service.url
    assert command("masked", "forward", "x=1,2", "mask=true,false", url=url) == "outputs.y  float32 [2]\n[1. 0.]\n"
    assert command("masked", "forward", "x=[[1,2]]", "mask=[[true,false]]", url=url).endswith("[[1. 0.]]\n")
    assert '"dtype": "bool", "shape": [], "data": true' in command("parted", "forward", "x=-1", "--json", url=url)
    assert command("parted", "forward", "x=-1,1", url=url).endswith("outputs.negative  bool [2]\n[ True False]\n")
