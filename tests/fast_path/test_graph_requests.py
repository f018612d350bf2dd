"""Posted graphs on the fast path: it takes requests for them, and not for one that is gone."""

import time
from pathlib import Path

from app.kept.memory import NOTED_S
from tests.conftest import Serve
from tests.fast_path.both import PATIENCE
from tests.patience import PATIENCE_S, PAUSE_S

CURVE = {
    "inputs": ["x"],
    "nodes": [
        {"name": "s", "op": "square", "inputs": ["x"]},
        {"name": "y", "op": "log1pexp", "inputs": ["s"]},
    ],
    "outputs": {"y": "y"},
}
TAKEN = "pullback_express_requests_total "


def test_the_fast_path_takes_requests_for_a_graph_until_it_is_gone(serve: Serve, tmp_path: Path) -> None:
    with serve(DATA=str(tmp_path)).client() as client:
        name = client.post("/v1/graphs", json=CURVE).json()["name"]

        def slope(x: float) -> int:
            return client.post(f"/v1/ops/{name}/vjp", json={"inputs": {"x": [x, -x]}}).status_code

        def taken() -> float:
            lines = client.get("/metrics").text.splitlines()
            return next(float(line.removeprefix(TAKEN)) for line in lines if line.startswith(TAKEN))

        before = taken()
        for number in range(PATIENCE):
            assert slope(0.1 + number / 7) == 200
            if taken() > before:
                break
        assert taken() > before
        [file] = (tmp_path / "graphs").iterdir()
        file.unlink()
        until = time.monotonic() + NOTED_S + PATIENCE_S
        while slope(0.3) == 200:
            assert time.monotonic() < until
            time.sleep(PAUSE_S)
        assert slope(0.7) == 404
