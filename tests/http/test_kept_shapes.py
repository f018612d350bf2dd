"""Requests whose plan and shapes are known get the answers of a service that knows nothing of them."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from app.autodiff.evaluation import Evaluation, compute
from app.errors import PullbackError
from app.execution.assembly import build
from app.execution.engine import Engine
from app.requests.answering import Reply
from app.requests.operations import OPERATIONS
from app.requests.plans import KEPT, SHAPES, Plan, Plans
from app.routes.native.derivatives import FORMATS
from app.settings import Settings
from app.telemetry.counters import NOT_RECORDED
from app.tensors import fast_json
from app.tensors.casting import Document
from ops import Op

JSON, SAFETENSORS = FORMATS
LOGITS = {"logits": [[0.5, 1.5], [2.5, 0.25]], "labels": [0, 1]}
SYMMETRIC = {"a": [[2.0, 0.5], [0.5, 3.0]]}
NESTED = [[1.5] * 3] * 2
BODIES: Sequence[tuple[str, str, dict[str, Any]]] = [
    ("safe_norm", "vjp", {"inputs": {"x": [3.0, 4.0]}}),
    ("safe_norm", "vjp", {"inputs": {"x": NESTED}, "cotangents": {"y": [1.0, 2.0]}, "outputs": True}),
    ("safe_norm", "vjp", {"inputs": {"x": NESTED}, "cotangents": {"y": [[1.0, 2.0]] * 2}, "batched": True}),
    ("log1pexp", "forward", {"inputs": {"x": [0.5, -1.5]}, "dtype": "float32", "encoding": "base64"}),
    ("log1pexp", "gradients", {"inputs": {"x": [0.5]}, "order": 3}),
    ("square", "jvp", {"tangents": {"x": [1.0, 2.0]}, "inputs": {"x": [0.5, 1.5]}}),
    ("square", "hvp", {"inputs": {"x": [0.5, 1.5]}, "vectors": {"x": [1.0, 2.0]}, "cotangents": {"y": [3.0, 4.0]}}),
    ("square", "hessian", {"inputs": {"x": [0.5, 1.5]}, "diagonal": True}),
    ("square", "vjp", {"inputs": {"x": [1, 2]}, "dtype": "int32"}),
    ("square", "forward", {"inputs": {"x": 0.5}}),
    ("square", "forward", {"inputs": {"x": {"dtype": "float64", "shape": [2], "data": [0.5, 1.5]}}}),
    ("softmax_cross_entropy", "vjp", {"inputs": LOGITS}),
    ("self_adjoint_eig", "vjp", {"inputs": SYMMETRIC}),
    ("scale_gradient", "vjp", {"inputs": {"x": [0.5]}, "attrs": {"scale": 3.0}}),
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return build(Settings())[0]


def read(plans: Plans, op: Op, operation: str, body: bytes) -> tuple[Plan, Document]:
    """Return the plan of a body, and its fields."""
    fields = FORMATS[JSON].read(body, fast_json.parse)
    return plans.plan(OPERATIONS[operation], op, fields), fields


def answer(plans: Plans, engine: Engine, name: str, operation: str, body: bytes, *, accept: str = JSON) -> bytes:
    """Return the response to a body, or the document of its error."""
    try:
        plan, fields = read(plans, engine.op(name), operation, body)

        def write(result: Any) -> Reply:
            return FORMATS[accept].write(plan.operation.tree(plan, result), plan.request.encoding, {})

        call = plan.call(fields, write, NOT_RECORDED, fields.sources, form=accept)
        assert isinstance(call.work, Evaluation)
        return b"".join(call.write(compute([call.work])[0]).pieces)
    except PullbackError as error:
        return json.dumps(error.document("")).encode()


def like(value: Any, rng: np.random.Generator) -> Any:
    """Return a value of the same form with other floats."""
    if isinstance(value, dict):
        return {key: like(each, rng) if key != "attrs" else each for key, each in value.items()}
    if isinstance(value, list):
        return [like(each, rng) for each in value]
    return round(value + rng.uniform(-0.1, 0.1), 4) if isinstance(value, float) else value


@pytest.mark.parametrize(("name", "operation", "document"), BODIES, ids=lambda x: x if isinstance(x, str) else "")
def test_answers_do_not_depend_on_what_is_known(engine: Engine, name: str, operation: str, document: dict[str, Any]):
    known, rng = Plans(engine), np.random.default_rng(5)
    for accept in (JSON, SAFETENSORS, JSON):
        for _ in range(3):
            body = json.dumps(like(document, rng)).encode()
            fresh = answer(Plans(engine), engine, name, operation, body, accept=accept)
            assert answer(known, engine, name, operation, body, accept=accept) == fresh


def test_known_requests_are_bound_once(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    bound, bind = list[Any](), Plan.work
    monkeypatch.setattr(Plan, "work", lambda plan, fields, *more: bound.append(fields) or bind(plan, fields, *more))
    plans = Plans(engine)
    for x in ([3.0, 4.0], [5.0, 6.0], [7.0, 8.0]):
        answer(plans, engine, "safe_norm", "vjp", json.dumps({"inputs": {"x": x}}).encode())
    assert len(bound) == 1


# Bodies like valid ones, or nearly so.
@pytest.mark.parametrize(
    "text",
    [
        *(
            '{"inputs":{"x":' + x + "}}"
            for x in ("[1,]", "[1 2]", "[01]", "[true]", "[[1],[2,3]]", "[null]", "[{}]", "[]", "[[]]", "[1]]", "0.5")
        ),
        *(
            '{"inputs":{"x":' + x + "}}"
            for x in ("[1e999]", '["NaN"]', "[1}{,2]", "[\0]", "[" * 1100 + "1" + "]" * 1100)
        ),
        '{"inputs":{}}',
        '{"inputs":{"x":[1.0]},"cotangents":{}}',
        '{"inputs":{"x":[1.0]},"cotangents":null}',
        '{"inputs":{"x":[1.0]},"cotangents":{"y":[1.0,2.0]}}',
        '{"inputs":{"x":[1.0]},"cotangents":{"z":[1.0]}}',
        '{"inputs":{"x":[1.0]},"mode":"[1.0]"}',
        '{"inputs":{"x":[1.0]},"wrt":[1.0]}',
        '{"inputs":{"x":[1.0],"x":[2.0]}}',
    ],
)
def test_faults_in_known_bodies_are_reported_as_in_unknown_ones(engine: Engine, text: str):
    known = Plans(engine)
    valid = [b'{"inputs":{"x":[2.0]}}', b'{"inputs":{"x":[1.0]},"cotangents":{"y":[1.0]}}'] * 2
    for body in [*valid, text.encode(), *valid, text.encode()]:
        fresh = answer(Plans(engine), engine, "safe_norm", "vjp", body)
        assert answer(known, engine, "safe_norm", "vjp", body) == fresh


def test_values_of_known_shapes_are_checked(engine: Engine):
    plans, bad = Plans(engine), LOGITS | {"labels": [0, 7]}
    for inputs in (LOGITS, bad, LOGITS, bad):
        found = answer(plans, engine, "softmax_cross_entropy", "forward", json.dumps({"inputs": inputs}).encode())
        assert (b"expected" in found) == (inputs is bad)


def test_what_is_kept_is_bounded_and_holds_no_tensors(engine: Engine):
    plans = Plans(engine)
    for size in range(1, 3 * SHAPES):
        answer(plans, engine, "safe_norm", "vjp", json.dumps({"inputs": {"x": [0.5] * size}}).encode())
    (plan,) = vars(plans)["_kept"].values()
    shaped = plan._by_shapes.values()
    assert 0 < len(shaped) <= SHAPES
    assert all(leaf.strides == (0,) * leaf.ndim for each in shaped for leaf in each.evaluation.leaves)
    for number in range(KEPT + 10):
        read(plans, engine.op("scale_gradient"), "vjp", b'{"inputs":{"x":[1.0]},"attrs":{"scale":%d}}' % number)
    assert len(plans) == KEPT


def test_the_shapes_that_were_used_last_are_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    bound, bind = list[Any](), Plan.work
    monkeypatch.setattr(Plan, "work", lambda plan, fields, *more: bound.append(fields) or bind(plan, fields, *more))
    plans = Plans(engine)
    for size in [*range(1, 3 * SHAPES), *range(2 * SHAPES, 3 * SHAPES), 3 * SHAPES, 2 * SHAPES + 1]:
        answer(plans, engine, "safe_norm", "vjp", json.dumps({"inputs": {"x": [0.5] * size}}).encode())
    assert len(bound) == 3 * SHAPES


def test_requests_share_a_call_only_where_a_shared_input_is_equal(engine: Engine):
    op, plans = engine.op("roi_pool"), Plans(engine)
    inputs = {name: np.array(x, float) for name, x in op.examples[0].inputs.items()}
    (shared,) = op.shared

    def key(change: float) -> Any:
        document = {"inputs": {name: (x + change if name == shared else x).tolist() for name, x in inputs.items()}}
        plan, fields = read(plans, op, "forward", json.dumps(document).encode())
        call = plan.call(fields, lambda result: result, NOT_RECORDED, fields.sources)
        assert isinstance(call.work, Evaluation)
        return call.work.batch_key

    first, equal, *others = (key(change) for change in (0.0, 0.0, 0.5, 1.0))
    assert first == equal is not None
    assert len({first, *others}) == 3
