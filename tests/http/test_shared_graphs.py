"""Posted graphs that workers, services and keys share: all know them, and no key displaces the graphs of another."""

import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.kept.graphs import KEPT
from app.runtime import trace_room, traces
from pullback.keys import line_for
from tests.conftest import Serve, Start
from tests.http.native_client import data
from tests.http.test_keys import bearer
from tests.patience import PATIENCE_S, PAUSE_S

ALICE, BOB = "pullback_Of-Alice-0123", "pullback_Of-Bob-4567"
# So many requests reach both workers, because each opens another connection.
REQUESTS = 20


def document(number: int) -> dict[str, Any]:
    """Return one of many documents: y = x² (number + 1)."""
    nodes = [
        {"name": "s", "op": "square", "inputs": {"x": "x"}},
        {"name": "p", "op": "multiply", "inputs": {"a": "s", "b": {"constant": number + 1}}},
    ]
    return {"inputs": ["x"], "nodes": nodes, "outputs": {"y": "p"}}


@pytest.fixture
def keys(tmp_path: Path) -> str:
    """A file with the keys of Alice and Bob."""
    path = tmp_path / "keys"
    path.write_text(f"{line_for('alice', ALICE)}\n{line_for('bob', BOB)}\n")
    return str(path)


def post(client: httpx.Client, number: int, key: str) -> str:
    """Return the name of a document that is posted with a key."""
    response = client.post("/v1/graphs", json=document(number), headers=bearer(key))
    assert response.status_code in (200, 201), response.text
    return response.json()["name"]


def gradient(client: httpx.Client, name: str, key: str) -> httpx.Response:
    """Return the answer to a request for the gradient at 1, 2."""
    return client.post(f"/v1/ops/{name}/vjp", json={"inputs": {"x": [1.0, 2.0]}, "mode": "graph"}, headers=bearer(key))


def gradient_of(number: int) -> Any:
    return 2.0 * (number + 1) * np.array([1.0, 2.0])


@pytest.mark.slow
def test_workers_and_services_share_a_folder(start: Start, keys: str, tmp_path: Path) -> None:
    settings = {"DATA": str(tmp_path / "data"), "KEYS_FILE": keys}
    two, other = start(WORKERS="2", **settings), start(**settings)
    with two.wait_until_ready().client() as client:
        name = post(client, 2, ALICE)
    # Bob has not posted it, but knows its name.
    for each in (*[two] * REQUESTS, other.wait_until_ready()):
        with each.client() as client:
            answer = gradient(client, name, BOB)
            assert answer.status_code == 200, answer.text
            assert np.array_equal(data(answer.json())["gradients"]["x"], gradient_of(2))


@pytest.mark.slow
def test_a_key_displaces_its_own_graphs(serve: Serve, keys: str) -> None:
    with serve(KEYS_FILE=keys).client() as client:
        bobs = post(client, KEPT, BOB)
        names = [post(client, number, ALICE) for number in range(KEPT)]
        end = time.monotonic() + PATIENCE_S
        while (gone := gradient(client, names[0], ALICE)).status_code == 200:
            assert time.monotonic() < end
            time.sleep(PAUSE_S)
        assert gone.status_code == 404
        assert "post its document again" in gone.json()["detail"]
        for number, name in ((KEPT, bobs), (KEPT - 1, names[-1])):
            assert np.array_equal(data(gradient(client, name, BOB).json())["gradients"]["x"], gradient_of(number))
        assert post(client, 0, ALICE) == names[0]
        assert gradient(client, names[0], ALICE).status_code == 200


def test_a_key_displaces_its_own_traces(serve: Serve, keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_room, "TRACES_KEPT", 4)
    monkeypatch.setattr(traces, "TRACES", traces.Traces())
    with serve(KEYS_FILE=keys).client() as client:
        # Each graph has a trace of its own.
        bobs = post(client, 0, BOB)
        assert gradient(client, bobs, BOB).status_code == 200
        of_one = traces.trace_counts()[0]
        for number in range(1, 5):
            assert gradient(client, post(client, number, ALICE), ALICE).status_code == 200
        made = traces.trace_counts()[0]
        assert made == 5 * of_one
        assert traces.TRACES.room.displaced > 0
        assert gradient(client, bobs, BOB).status_code == 200
        assert traces.trace_counts()[0] == made
