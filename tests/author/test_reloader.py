"""A service that serves saved pages: without going away, and the last good version of a page that breaks."""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.author.conftest import RIGHT
from tests.conftest import Service, Start
from tests.ops.doubled import save_doubled
from tests.patience import PATIENCE_S, PAUSE_S

pytestmark = pytest.mark.slow


def wait_for(expected: Any, look: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while (found := look()) != expected:
        assert time.monotonic() < until, found
        time.sleep(PAUSE_S)


def slope(service: Service) -> float:
    """Return the gradient of the page at 1, asked for on a new connection."""
    with service.client() as client:
        answer = client.post("/v1/ops/cube/vjp", json={"inputs": {"x": 1.0}})
        return answer.json()["gradients"]["x"]["data"]


def entry(service: Service, name: str = "cube") -> dict[str, Any]:
    """Return an op's entry in the list of ops, or an empty one while the list does not have it yet."""
    with service.client() as client:
        return next((op for op in client.get("/v1/ops").json()["ops"] if op["name"] == name), {})


def test_saved_pages_are_served_and_the_others_stay(launch: Start, folder, tmp_path) -> None:
    right = (folder / "my_ops" / "cube.py").read_text()
    (ops := tmp_path / "my ops").mkdir()
    page = ops / "cube.py"
    page.write_text(right)
    service = launch(OPS_PATH=str(ops), RELOAD="1").wait_until_ready()
    assert slope(service) == 3
    failures, stop = [0, 0], threading.Event()

    def ask() -> None:
        while not stop.wait(PAUSE_S):
            with service.client() as client:
                answer = client.post("/v1/ops/square/forward", json={"inputs": {"x": 3.0}})
                failures[answer.status_code == 200] += 1

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        page.write_text(right.replace(RIGHT, "4 * x * x * dy"))
        wait_for(4.0, lambda: slope(service))
        # A page with an error: its last good version stays.
        page.write_text(right.replace("import Array", "import Arrray"))
        # While a version takes the place of another, both answer.
        wait_for((True, True, True), lambda: fault(entry(service)))
        assert slope(service) == 4
        # Another page is served meanwhile, and one that was never good is unavailable.
        (ops / "other.py").write_text(right.replace('"cube"', '"other"'))
        (ops / "never.py").write_text("from pullback.ops import costum_gradient\n")
        wait_for(True, lambda: any(name == "other" for name in names(service)))
        wait_for(False, lambda: entry(service, "never").get("available"))
        assert slope(service) == 4
        page.write_text(right)
        wait_for(3.0, lambda: slope(service))
        wait_for((True, False, False), lambda: fault(entry(service)))
        page.unlink()
        wait_for(False, lambda: "cube" in names(service))
    finally:
        stop.set()
        asking.join()
    assert failures[0] == 0
    assert failures[1] > 0
    assert service.log_with("plug-in ops: cube (my ops/cube.py)")
    service.process.terminate()
    assert service.wait() == 0


@pytest.mark.thorough
def test_an_exported_model_is_served(launch: Start, tmp_path: Path) -> None:
    save_doubled(tmp_path / "models")
    shutil.copytree(tmp_path / "models" / "with_gradients", tmp_path / "ops" / "with_gradients")
    service = launch(OPS_PATH=str(tmp_path / "ops"), RELOAD="1").wait_until_ready()

    def slope() -> float:
        with service.client() as client:
            answer = client.post("/v1/ops/with_gradients/vjp", json={"inputs": {"x": [[0.0, 0.0, 0.0]]}})
            return answer.json()["gradients"]["x"]["data"][0][0]

    assert slope() == 9
    other = tmp_path / "models" / "without" / "saved_model.pb"
    shutil.copy(other, tmp_path / "ops" / "with_gradients" / "saved_model.pb")
    wait_for(4.5, slope)


def fault(found: dict[str, Any]) -> tuple[bool | None, bool, bool]:
    """Return whether an op is available, whether it is stale, and whether the reason has its line."""
    return found.get("available"), found.get("stale", False), "cube.py:3 and start again" in found.get("reason", "")


def names(service: Service) -> list[str]:
    with service.client() as client:
        return [op["name"] for op in client.get("/v1/ops").json()["ops"]]
