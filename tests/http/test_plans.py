"""What the service keeps of a request for later ones is small, whatever the request contains."""

import json

import pytest

from tests.http.native_client import JSON
from tests.runtime.test_traces import resident_mb

# Forty names of 8 MiB would take 320 MiB. The allocator keeps some of the memory of a single request.
REQUESTS, LETTERS, LEAK_MB = 40, 8 << 20, 120


@pytest.mark.thorough
@pytest.mark.parametrize("field", ["inputs", "cotangents"])
def test_long_names_are_not_kept(service, client, field: str):
    def status(i: int) -> int:
        body = {"inputs": {"x": [1.0]}, **{field: {f"{i}{'x' * LETTERS}": [1.0]}}}
        return client.post("/v1/ops/square/vjp", content=json.dumps(body), headers=JSON).status_code

    assert [status(i) for i in range(3)] == [422] * 3
    before = resident_mb(service)
    assert {status(i) for i in range(REQUESTS)} == {422}
    assert resident_mb(service) - before < LEAK_MB
