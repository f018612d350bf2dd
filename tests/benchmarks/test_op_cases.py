"""The benchmark of every op: its cases are those of the ops' pages, and both servers compute the same gradients."""

import numpy as np
import orjson
import pytest

from benchmarks.op_cases import CASES, EXAMPLE, OPS, SIZES
from benchmarks.op_requests import FORMATS, OURS, PEER, Point, points
from tests.ops.cases import REGISTRY

POINTS = 3


def umbridge_gradients(point: Point):
    """Return what the server of UM-Bridge computes for the request to it."""
    request = orjson.loads(FORMATS[PEER].request(point).body)
    output = point.case.flat_gradient(request["input"], request["sens"])
    return FORMATS[PEER].gradients(point.case, orjson.dumps({"output": output.tolist()}))


def pullback_gradients(client, point: Point):
    """Return the service's answer to the request to it."""
    request = FORMATS[OURS].request(point)
    answer = client.post(request.path, content=request.body, headers=dict(request.headers)).raise_for_status()
    return FORMATS[OURS].gradients(point.case, answer.content)


def test_every_op_has_a_case_at_both_sizes():
    assert {(case.op, case.size) for case in CASES} == {(op, size) for op in REGISTRY.ops for size in SIZES}


@pytest.mark.parametrize("op", OPS)
def test_the_small_case_is_the_first_example(op):
    page = REGISTRY.ops[op]
    [case] = [case for case in CASES if (case.op, case.size) == (op, EXAMPLE)]
    example = page.examples[0]
    assert dict(case.inputs) == {name: np.shape(value) for name, value in example.inputs.items()}
    assert page.attrs(**case.attrs) == page.attrs(**example.attrs)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_servers_compute_the_gradients(case, client):
    for point in points(case, POINTS):
        found = pullback_gradients(client, point)
        assert point.is_gradient(found)
        assert point.is_gradient(umbridge_gradients(point))
        assert not point.is_gradient(found + 2e-3 * np.abs(found).max())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_two_requests_are_alike(case):
    for form in FORMATS.values():
        bodies = [form.request(point).body for point in points(case, 30)]
        assert len(set(bodies)) == len(bodies)
