"""Watch a fleet under load with Prometheus, for the dashboard's picture: ``python -m benchmarks.scaling.observe FILE``.

Three processes behind HAProxy get more and more requests; one of them restarts. Prometheus is Debian's package of that
name.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.processes import free_port
from tests.conftest import ROOT
from tests.fleet.balancer import UP
from tests.fleet.cases import requests
from tests.fleet.load import Load, recorded
from tests.fleet.members import Fleet, plugin_ops, running

DASHBOARD = ROOT / "deploy" / "kubernetes" / "monitoring" / "dashboard.json"
HOST = "127.0.0.1"
# Seconds; Grafana itself would take an interval from the width of a panel.
SCRAPE_S, RATE, STEP_S = 2, "20s", 2
PHASES = ((4, 30.0), (16, 40.0), (64, 40.0), (8, 25.0))
RESTARTED_IN = 1


def configuration(fleet: Fleet) -> dict[str, Any]:
    """Return the configuration of Prometheus: labels as the operator gives them."""
    targets = [
        {"targets": [member.address], "labels": {"namespace": "gradients", "pod": f"pullback-{name}"}}
        for name, member in fleet.members.items()
    ]
    jobs = [{"job_name": "pullback", "static_configs": targets}]
    return {"global": {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s"}, "scrape_configs": jobs}


@contextmanager
def prometheus(fleet: Fleet, folder: Path) -> Iterator[str]:
    """Run Prometheus inside this block; yield its URL."""
    if not (program := shutil.which("prometheus")):
        raise SystemExit("Expected prometheus. On Debian and Ubuntu: apt install prometheus")
    address = f"{HOST}:{free_port()}"
    # JSON is YAML.
    (folder / "prometheus.yml").write_text(json.dumps(configuration(fleet)))
    options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    process = subprocess.Popen([program, *options, f"--web.listen-address={address}", "--log.level=error"])
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(60)


def use(fleet: Fleet) -> None:
    """Send requests, in phases; restart one process in the middle of one of them."""
    member = fleet.members["b"]
    cases = recorded(member.port, requests(), member.host)
    for number, (connections, seconds) in enumerate(PHASES):
        with Load(fleet.port, cases, connections):
            end = time.monotonic() + seconds
            if number == RESTARTED_IN:
                time.sleep(seconds / 4)
                member.service.process.terminate()
                member.service.wait()
                member.start()
                fleet.balancer.wait_for(UP, "b")
            time.sleep(max(0.0, end - time.monotonic()))


def panels(url: str, begin: float, end: float) -> list[dict[str, Any]]:
    """Return the panels of the dashboard with the series that Prometheus returns for their queries."""
    found = list[dict[str, Any]]()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        series = list[dict[str, Any]]()
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", RATE).replace("$namespace", ".*")
            given = {"query": query, "start": begin, "end": end, "step": STEP_S}
            answer = httpx.get(f"{url}/api/v1/query_range", params=given).raise_for_status().json()
            series += [{"legend": target["legendFormat"], **one} for one in answer["data"]["result"]]
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "")
        found.append({"title": panel["title"], "type": panel["type"], "unit": unit, "series": series})
    return found


def main(file: str) -> None:
    """Observe, and write the panels."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(plugin_ops(folder), folder) as fleet, prometheus(fleet, folder) as url:
            time.sleep(5 * SCRAPE_S)
            begin = time.time()
            use(fleet)
            time.sleep(2 * SCRAPE_S)
            found = panels(url, begin, time.time())
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
