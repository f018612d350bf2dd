"""Requests with points: each point has the answer of a request by itself, bit for bit."""

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.http.native_client import BINARY, JSON, array, ask, fault, post, problem
from tests.http.test_binary import decode, encode
from tests.patience import PATIENCE_S
from tests.rows.corpus import write_pages

pytestmark = pytest.mark.slow

COUNT = 3


def tensors(tree: Any, *path: str) -> dict[tuple[str, ...], np.ndarray | None]:
    """Return the arrays of an answer by path, ``None`` for missing ones."""
    if isinstance(tree, dict) and "dtype" not in tree:
        return {key: x for name, value in tree.items() for key, x in tensors(value, *path, name).items()}
    if isinstance(tree, list):
        return {key: x for i, value in enumerate(tree) for key, x in tensors(value, *path, str(i)).items()}
    return {path: array(tree) if isinstance(tree, dict) else tree}


def same(many: Mapping[str, Any], ones: list[dict[str, Any]]) -> None:
    """Compare the answer at many points with those at one, bit for bit."""
    found, expected = tensors(many), [tensors(one) for one in ones]
    assert found.keys() == expected[0].keys()
    for path, whole in found.items():
        if isinstance(whole, np.ndarray):
            rows = np.stack([one[path] for one in expected])
            assert (whole.dtype, whole.shape, whole.tobytes()) == (rows.dtype, rows.shape, rows.tobytes()), path
        else:
            assert all(one[path] == whole for one in expected)


def requests_of(contract: Mapping[str, Any], operation: str) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """Return a request at a few points near an example, and those at one; ``None`` if the op has no such operation."""
    example, slots = contract["examples"][0], {slot["name"]: slot for slot in contract["inputs"]}
    rng = np.random.default_rng(0)

    def near(name: str) -> list[np.ndarray]:
        x = np.asarray(example["inputs"][name])
        if not any("float" in dtype for dtype in slots[name]["dtypes"]) or not x.size:
            return [x] * COUNT
        # A multiple keeps what ops demand: signs, symmetry, order.
        return [np.asarray(x * scale, np.float64) for scale in (1, *rng.uniform(0.5, 1, COUNT - 1))]

    given = {"inputs": {name: near(name) for name in example["inputs"]}}
    live = [n for n, slot in slots.items() if slot["differentiable"] and n in example["inputs"]]
    if operation in ("jvp", "hvp"):
        given["tangents" if operation == "jvp" else "vectors"] = {name: given["inputs"][name] for name in live}
    others = {"attrs": example["attrs"], "encoding": "base64", **({"order": 2} if operation == "gradients" else {})}
    many = {field: {name: np.stack(xs).tolist() for name, xs in named.items()} for field, named in given.items()}
    ones = [
        {field: {name: xs[i].tolist() for name, xs in named.items()} for field, named in given.items()} | others
        for i in range(COUNT)
    ]
    return many | others | {"points": True}, ones


# The others have the same steps, and the derivatives of these.
@pytest.mark.parametrize(
    "operation",
    [
        *("vjp", "hvp"),
        *(
            pytest.param(operation, marks=pytest.mark.thorough)
            for operation in ("forward", "jacobian", "gradients", "jvp", "hessian")
        ),
    ],
)
def test_points_of_every_op_have_the_bits_of_single_requests(client: httpx.Client, operation: str) -> None:
    ops = [op["name"] for op in client.get("/v1/ops").json()["ops"] if op["available"]]
    compared = 0
    for op in [*ops, "square.vjp", "softmax_cross_entropy.vjp", "self_adjoint_eig.jvp"]:
        many, ones = requests_of(client.get(f"/v1/ops/{op}").json(), operation)
        singles = [post(client, op, operation, **one) for one in ones]
        if all(single.status_code == 200 for single in singles):
            same(ask(client, op, operation, **many), [single.json() for single in singles])
            compared += 1
        else:
            assert post(client, op, operation, **many).status_code == singles[0].status_code
    assert compared > len(ops) / 2


PICKED = {"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "i": [[0, 1], [1, 7], [1, 0]]}


def test_a_point_that_fails_is_named(plugged: httpx.Client) -> None:
    entry = fault(post(plugged, "picked", "forward", inputs=PICKED, points=True))
    assert entry["loc"] == ["inputs", "i", 1]
    document = problem(post(plugged, "positive", "vjp", inputs={"x": [[1, 2], [3, 4], [-1, 1]]}, points=True), 422)
    assert document["detail"].startswith("point 2: ")
    assert "x must be positive" in document["detail"]


def test_the_other_points_are_answered_on_request(plugged: httpx.Client) -> None:
    found = ask(plugged, "picked", "forward", inputs=PICKED, points=True, partial=True)
    assert found["outputs"]["y"]["data"] == [[1.0, 2.0], ["NaN", "NaN"], [6.0, 5.0]]
    least = int(np.iinfo(np.int64).min)
    assert found["outputs"]["next"]["data"] == [[1, 2], [least, least], [2, 1]]
    [failed] = found["failed"]
    assert failed["point"] == 1
    assert (failed["error"]["status"], failed["error"]["errors"][0]["loc"]) == (422, ["inputs", "i", 1])
    x = [[1.0, 2.0], [-3.0, 4.0], [5.0, 6.0], [7.0, -8.0]]
    found = ask(plugged, "positive", "vjp", inputs={"x": x}, points=True, partial=True, outputs=True)
    assert [each["point"] for each in found["failed"]] == [1, 3]
    assert found["gradients"]["x"]["data"] == [[1.0, 1.0], ["NaN", "NaN"], [1.0, 1.0], ["NaN", "NaN"]]
    assert ask(plugged, "positive", "forward", inputs={"x": x[:1]}, points=True, partial=True)["failed"] == []
    # Without any answer, the answer is the error of the first point.
    document = problem(post(plugged, "positive", "forward", inputs={"x": [[-1.0]] * 3}, points=True, partial=True), 422)
    assert document["detail"].startswith("point 0: ")


def test_points_whose_rows_share_no_call_after_all(start: Any, tmp_path: Path) -> None:
    folder = write_pages(tmp_path, ["batch_norm"])
    x = [[[float(i + j)] * 3 for j in range(2)] for i in range(5)]
    with start(OPS_PATH=str(folder)).wait_until_ready().client() as client:
        many = ask(client, "batch_norm", "forward", inputs={"x": x}, points=True)  # the first request tries the rows
        same(many, [ask(client, "batch_norm", "forward", inputs={"x": one}) for one in x])


def test_in_binary_flags_and_failures_are_in_the_metadata(plugged: httpx.Client) -> None:
    many = {f"inputs/{name}": np.array(x, np.float32 if name == "x" else np.int64) for name, x in PICKED.items()}
    long = {name: np.concatenate([x] * 3000) for name, x in many.items()}
    for count, tensors_ in ((1, many), (3000, long)):
        body = encode(tensors_, points=True, partial=True)
        headers = {"content-type": BINARY, "accept": BINARY}
        response = plugged.post("/v1/ops/picked/forward", content=body, headers=headers)
        found, metadata = decode(response.content)
        assert np.isnan(found["outputs/y"][1]).all()
        assert (found["outputs/y"][2::3] == [6, 5]).all()
        assert [each["point"] for each in metadata["failed"]] == list(range(1, 3 * count, 3))


def test_no_points_have_answers_of_length_0(client: httpx.Client) -> None:
    found = ask(client, "square", "vjp", inputs={"x": {"dtype": "float32", "shape": [0, 2], "data": []}}, points=True)
    assert found["gradients"]["x"]["shape"] == [0, 2]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"inputs": {"x": 1.0}, "points": True}, "a leading axis of points"),
        ({"inputs": {"x": [1.0, 2.0]}, "cotangents": {"y": [1.0]}, "points": True}, "as many points"),
        ({"inputs": {"x": [1.0]}, "partial": True}, '"points": true with it'),
        ({"inputs": {"x": [[1.0], [2.0]]}, "cotangents": {"y": [[1.0, 2.0]] * 2}, "points": True}, "[1]"),
        ({"inputs": {"z": [1.0]}, "points": True}, "one of x"),
        ({"inputs": {}, "points": True}, "all of x"),
        ({"inputs": {"x": [1.0]}, "points": 1}, "boolean"),
    ],
)
def test_what_is_no_request_at_points(client: httpx.Client, body: dict[str, Any], expected: str) -> None:
    assert expected in fault(post(client, "square", "vjp", **body))["expected"]


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ("numeric", "noise at one point"),
        ("verify", "noise at one point"),
        ("check", "points that it draws"),
        ("linearize", "linearize at each point, or send points to vjp"),
        ("sparsity", "used again at every other"),
    ],
)
def test_operations_at_one_point_say_why(client: httpx.Client, operation: str, why: str) -> None:
    response = post(client, "square", operation, inputs={"x": [[1.0], [2.0]]}, points=True)
    assert why in fault(response)["message"]


def test_directions_at_each_point(client: httpx.Client) -> None:
    x, dy = [[1.0, 2.0], [3.0, 4.0]], [[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]] * 2
    for op in ("square", "safe_norm"):
        dys = dy if op == "square" else [[1.0, 2.0, 3.0]] * 2
        more = {"batched": True, "encoding": "base64"}
        many = ask(client, op, "vjp", inputs={"x": x}, cotangents={"y": dys}, points=True, **more)
        ones = [
            ask(client, op, "vjp", inputs={"x": a}, cotangents={"y": b}, **more) for a, b in zip(x, dys, strict=True)
        ]
        same(many, ones)


def test_many_points_hold_up_neither_others_nor_the_service_when_their_client_leaves(plugged_service: Any) -> None:
    with plugged_service.client() as one, ThreadPoolExecutor(2) as pool:
        body = json.dumps({"inputs": {"x": [0.02] * 10_000}, "points": True})
        path, headers = "/v1/ops/sleepy/forward", {**JSON, "pullback-deadline-ms": "1500"}
        # Its trace, which is made in a queue of its own, and known from now on.
        ask(one, "sleepy", "forward", inputs={"x": [0.001] * 20}, points=True)
        late = pool.submit(one.post, path, content=body, headers=headers)
        # Work of the same queue has its turns meanwhile.
        for _ in range(3):
            ask(one, "square", "jacobian", inputs={"x": [1.0, 2.0]}, mode="eager")
        assert not late.done()
        problem(late.result(), 504)
        # The work ends with its request: the next one begins at once.
        began = time.monotonic()
        ask(one, "sleepy", "forward", inputs={"x": [0.001] * 20}, points=True)
        assert time.monotonic() - began < PATIENCE_S


def test_the_results_at_all_points_are_bounded(client: httpx.Client) -> None:
    entry = fault(
        post(
            client,
            "softmax_cross_entropy",
            "jacobian",
            inputs={"logits": [[[0.0] * 500] * 40] * 100, "labels": [[0] * 40] * 100},
            points=True,
        )
    )
    assert "results at all points" in entry["message"]
