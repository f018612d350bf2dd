"""Graphs over HTTP: posted, evaluated, differentiated, checked, and gone."""

import pytest

LOSS = {
    "inputs": ["a", "x"],
    "nodes": [
        {"name": "ax", "op": "matmul", "inputs": {"a": "a", "b": "x"}},
        {"name": "norm", "op": "safe_norm", "inputs": {"x": "ax"}},
        {"name": "loss", "op": "log1pexp", "inputs": {"x": "norm"}},
    ],
    "outputs": {"y": "loss"},
}
POINT = {"a": [[1.0, 2.0], [0.5, -1.0]], "x": [[0.25, 1.0, 2.0], [1.0, -0.5, 0.75]]}


@pytest.fixture(scope="module")
def name(client) -> str:
    response = client.post("/v1/graphs", json=LOSS)
    assert response.status_code in (200, 201), response.text
    return response.json()["name"]


def test_a_graph_has_all_operations(client, name) -> None:
    for operation, more in {
        "forward": {},
        "gradients": {"order": 3},
        "vjp": {},
        "jvp": {"tangents": {"x": POINT["x"]}},
        "hvp": {"vectors": {"x": POINT["x"]}},
        "jacobian": {},
        "hessian": {},
    }.items():
        response = client.post(f"/v1/ops/{name}/{operation}", json={"inputs": POINT, **more})
        assert response.status_code == 200, (operation, response.text)


def test_debug(client, name):
    print(client.get(f"/v1/graphs/{name}").text)
    print(client.put(f"/v1/graphs/{name}", json=LOSS).status_code)
    print(client.get(f"/v1/ops/{name}").text[:300])
    print(client.post(f"/v1/ops/{name}.vjp/forward", json={"inputs": POINT|{"dy":[1.,2.]}}).text)
    r=client.post(f"/v1/ops/{name}/vjp", json={"inputs": POINT, "cotangents": {"y":[1.,2.]}})
    print(r.text)
    print(client.delete(f"/v1/graphs/{name}").headers)
    print(client.put(f"/v1/graphs/graph.{'0'*32}", json=LOSS).text)
    print(client.get(f"/v1/graphs/graph.{'0'*32}").text)
    print(client.post(f"/v1/ops/graph.{'0'*32}/vjp", json={"inputs": POINT}).text)
    print(client.post(f"/v1/ops/{name}/check", json={}, timeout=120).text[:3000])
