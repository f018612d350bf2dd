"""Linearizations: products at a point whose forward pass is kept."""

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from tests.http.native_client import BINARY, JSON, array, ask, data, post, problem
from tests.http.test_binary import decode

X = [0.5, -1.0, 2.0]
OF = {"x": X}
KIND = {"inputs": OF, "attrs": {"c": 0.25}}
FIELD = {"vjp": "gradients", "jvp": "tangents", "hvp": "products"}
DIRECTIONS: dict[str, dict[str, Any]] = {
    "vjp": {"cotangents": {"y": [1.0, 2.0, -1.0]}},
    "jvp": {"tangents": {"x": [1.0, 2.0, -1.0]}},
    "hvp": {"cotangents": {"y": [1.0, 2.0, 3.0]}, "vectors": {"x": [1.0, 0.5, -1.0]}},
}
KEYS = {"one": "key-of-one", "two": "key-of-two"}
RECOMPUTED = "pullback-recomputed"


@pytest.fixture
def kept(plugged: httpx.Client) -> str:
    """The id of a linearization of ``patient``."""
    return linearized(plugged)


def linearized(client: httpx.Client, **more: Any) -> str:
    answer = ask(client, "patient", "linearize", **KIND, **more)
    assert "reason" not in answer
    return answer["linearization"]["id"]


def there(client: httpx.Client, name: str, product: str, **body: Any) -> httpx.Response:
    return client.post(f"/v1/linearizations/{name}/{product}", content=json.dumps(body), headers=JSON)


def result(response: httpx.Response, product: str) -> Any:
    """Return the only tensor of a product."""
    [tensor] = response.json()[FIELD[product]].values()
    return array(tensor)


def test_the_forward_pass_is_computed_once(plugged: httpx.Client):
    answer = ask(plugged, "patient", "linearize", **KIND)
    assert answer["outputs"] == ask(plugged, "patient", "forward", **KIND)["outputs"]
    about = answer["linearization"]
    assert 0 < about["bytes"] < 1 << 16
    assert about["expires_s"] in (599, 600)
    for product, directions in DIRECTIONS.items():
        alone = ask(plugged, "patient", product, **KIND, mode="graph", **directions)
        found = [there(plugged, about["id"], product, **directions) for _ in range(2)]
        assert [each.json() for each in found] == [alone, alone]
        # That of the vjp is computed by ``linearize``, that of others with their first product.
        assert [each.headers.get(RECOMPUTED) for each in found] == [None if product == "vjp" else "forward", None]
    ones = there(plugged, about["id"], "vjp")
    assert ones.json() == ask(plugged, "patient", "vjp", **KIND, mode="graph")
    assert RECOMPUTED not in ones.headers


def test_the_documented_examples_work(plugged: httpx.Client, kept: str):
    paths = plugged.get("/openapi.json").json()["paths"]
    for product in FIELD:
        post = paths[f"/v1/linearizations/{{id}}/{product}"]["post"]
        for example in post["requestBody"]["content"]["application/json"]["examples"].values():
            assert there(plugged, kept, product, **example["value"]).status_code == 200


def test_many_directions_are_one_request(plugged: httpx.Client, kept: str):
    rows = np.random.default_rng(3).normal(size=(19, 3))
    for product, directions in DIRECTIONS.items():
        last = list(directions)[-1]
        slot = next(iter(directions[last]))
        many = {**directions, last: {slot: rows.tolist()}}
        # The first of these compares the directions of one call with each alone, and the others have that call.
        found = [result(there(plugged, kept, product, **many, batched=True), product) for _ in range(2)]
        for i, row in enumerate(rows):
            alone = result(there(plugged, kept, product, **{**directions, last: {slot: row.tolist()}}), product)
            assert np.array_equal(found[0][i], alone)
            assert np.array_equal(found[1][i], alone)


def test_a_linearization_is_renewed_and_freed(plugged: httpx.Client, kept: str):
    path = f"/v1/linearizations/{kept}"
    answer = plugged.get(path).json()
    assert answer["linearization"]["id"] == kept
    assert data(answer["outputs"]) == data(ask(plugged, "patient", "forward", **KIND)["outputs"])
    assert plugged.head(path).status_code == 200
    renewed = plugged.patch(path, content=b'{"expires_s": 3000}', headers=JSON).json()
    assert renewed["linearization"]["expires_s"] in (2999, 3000)
    assert plugged.delete(path).status_code == 204
    for response in (plugged.get(path), plugged.delete(path), there(plugged, kept, "vjp")):
        assert "linearize again" in problem(response, 410)["detail"]


def test_it_ends(plugged: httpx.Client, kept: str):
    path = f"/v1/linearizations/{kept}"
    assert plugged.patch(path, content=b'{"expires_s": 0.001}', headers=JSON).status_code == 200
    time.sleep(0.01)
    problem(plugged.get(path), 410)


def test_a_cheap_forward_pass_is_not_kept(plugged: httpx.Client):
    # A machine that does much else may take its time for some of them.
    answers = (ask(plugged, "square", "linearize", inputs={"x": [1.0, 2.0]}) for _ in range(100))
    answer = next(answer for answer in answers if answer["linearization"] is None)
    assert "ms" in answer["reason"]
    assert data(answer["outputs"]) == {"y": [1.0, 4.0]}


def test_other_modes_keep_nothing(plugged: httpx.Client):
    answer = ask(plugged, "patient", "linearize", **KIND, mode="eager")
    assert answer["linearization"] is None
    assert "mode eager" in answer["reason"]


def test_answers_are_safetensors_on_request(plugged: httpx.Client, kept: str):
    accept = {**JSON, "accept": BINARY}
    body = json.dumps(DIRECTIONS["vjp"])
    response = plugged.post(f"/v1/linearizations/{kept}/vjp", content=body, headers=accept)
    tensors, _ = decode(response.content)
    alone = ask(plugged, "patient", "vjp", **KIND, mode="graph", **DIRECTIONS["vjp"])
    assert np.array_equal(tensors["gradients/x"], array(alone["gradients"]["x"]))
    response = plugged.post("/v1/ops/patient/linearize", content=json.dumps(KIND), headers=accept)
    tensors, fields = decode(response.content)
    assert fields["linearization"]["id"]
    assert list(tensors) == ["outputs/y"]


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"cotangents": {"y": [1.0]}}, "cotangents"),
        ({"cotangents": {"z": [1.0]}}, "cotangents"),
        ({"cotangents": {"y": [1.0, 2.0, 3.0]}, "batched": True}, "cotangents"),
        ({"batched": True}, "cotangents"),
        ({"cotangents": {"y": []}, "batched": True}, "cotangents"),
        ({"inputs": OF}, "inputs"),
    ],
)
def test_wrong_directions_are_refused(plugged: httpx.Client, kept: str, body: dict[str, Any], loc: str):
    document = problem(there(plugged, kept, "vjp", **body), 422)
    assert document["errors"][0]["loc"][0] == loc
    assert there(plugged, kept, "vjp").status_code == 200


def test_unknown_ids_and_times_are_refused(plugged: httpx.Client, kept: str):
    problem(plugged.get("/v1/linearizations/none"), 404)
    problem(plugged.get(f"/v1/linearizations/{kept[:-1]}"), 404)
    problem(plugged.get(f"/v1/linearizations/00000000-{32 * '0'}"), 410)
    for seconds in (0, -1, 1e9, "NaN", None):
        body = json.dumps({"expires_s": seconds})
        problem(plugged.patch(f"/v1/linearizations/{kept}", content=body, headers=JSON), 422)
    problem(post(plugged, "patient", "linearize", inputs={"x": ["a"]}), 422)
    problem(post(plugged, "patient", "linearize", inputs=OF, wrt=["y"]), 422)


def test_overlapping_products_do_not_mix(plugged: httpx.Client):
    points = [[float(i), 1.0, 2.0] for i in range(8)]
    names = [ask(plugged, "patient", "linearize", inputs={"x": x})["linearization"]["id"] for x in points]

    def product(i: int) -> Any:
        kind, body = ("vjp", {}) if i % 3 else ("hvp", {"vectors": {"x": [1.0, 1.0, 1.0]}})
        return result(there(plugged, names[i % 8], kind, **body), kind)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(product, range(48)))
    for i, got in enumerate(found):
        x = np.array(points[i % 8])
        expected = 3 * x**2 + 0.5 if i % 3 else 6 * x
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_keys_own_what_they_make_and_room_is_bounded(start: Any, plugin_folders: str, tmp_path: Any):
    keys = tmp_path / "keys"
    lines = [f"{name}:{hashlib.sha256(key.encode()).hexdigest()}\n" for name, key in KEYS.items()]
    keys.write_text("".join(lines))
    service = start(OPS_PATH=plugin_folders, KEYS_FILE=str(keys), LINEARIZATIONS_MB="1").wait_until_ready()
    with service.client() as client:
        one, two = ({"authorization": f"Bearer {key}"} for key in KEYS.values())

        def make(headers: dict[str, str], size: int) -> Any:
            body = json.dumps({"inputs": {"x": [0.5] * size}})
            response = client.post("/v1/ops/patient/linearize", content=body, headers={**JSON, **headers})
            assert response.status_code == 200, response.text
            return response.json()["linearization"]

        def is_kept(headers: dict[str, str], name: str) -> bool:
            return client.get(f"/v1/linearizations/{name}", headers=headers).status_code == 200

        small = make(two, 3)["id"]
        problem(client.get(f"/v1/linearizations/{small}", headers=one), 404)
        problem(client.delete(f"/v1/linearizations/{small}", headers=one), 404)
        assert make(one, 100_000) is None
        names = [make(one, 5_000)["id"] for _ in range(8)]
        kept = [is_kept(one, name) for name in names]
        assert kept == sorted(kept)  # the oldest have gone
        assert 0 < sum(kept) < len(names)
        assert is_kept(two, small)
        # Who has more than half of the room keeps it no longer than by default.
        for headers, name, status in ((one, names[-1], 422), (two, small, 200)):
            path = f"/v1/linearizations/{name}"
            renewed = client.patch(path, content=b'{"expires_s": 3000}', headers={**JSON, **headers})
            assert renewed.status_code == status
        sparse = {"inputs": {"x": [1.0, 2.0, 3.0]}, "sparse": "coo"}
        made = client.post("/v1/ops/square/jacobian", json=sparse, headers=one).json()["sparsity"]
        for headers, status in ((one, 200), (two, 404), (two, 404)):
            used = client.post("/v1/ops/square/jacobian", json={**sparse, "sparsity": made}, headers=headers)
            assert used.status_code == status, used.text
        metrics = client.get("/metrics", headers=one).text
        assert f"pullback_linearizations_kept {sum(kept) + 1:.1f}" in metrics
