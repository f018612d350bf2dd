"""The alert rules under promtool, and the metrics that rules, dashboard and autoscaler ask for."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import KUBERNETES

MONITORING = KUBERNETES / "monitoring"
CASES = Path(__file__).with_name("alert_cases.yaml")
METRIC = re.compile(r"\b(?:pullback|process)_\w+")
ELSEWHERE = re.compile(r"_(?:bucket|sum|count)$")
LIMIT_S = 60
# Grafana replaces these before Prometheus reads the query.
VARIABLES = {"$__rate_interval": "1m", "$namespace": ".*"}


def rules() -> dict[str, Any]:
    return yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]


def alerts() -> list[dict[str, Any]]:
    return [rule for group in rules()["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    for name, value in VARIABLES.items():
        found = [query.replace(name, value) for query in found]
    return found


def promtool(folder: Path, command: Sequence[str], content: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run promtool with rules in a file; skip the test where promtool is missing."""
    if not (program := shutil.which("promtool")):
        pytest.skip("promtool is not installed: on Debian and Ubuntu, it is in the package prometheus")
    (folder / "rules.yaml").write_text(yaml.safe_dump(content))
    shutil.copy(CASES, folder / "cases.yaml")
    return subprocess.run([program, *command], cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT_S)


def test_the_alerts_pass_their_cases(tmp_path):
    done = promtool(tmp_path, ["test", "rules", "cases.yaml"], rules())
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case():
    cases = yaml.safe_load(CASES.read_text())["tests"]
    raised = {case["alertname"] for test in cases for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert raised == {alert["alert"] for alert in alerts()}


@pytest.mark.parametrize(
    ("found", "planted"),
    [
        ("pullback_requests_total", "pullback_probe_requests_total"),
        ('operation!~"checks?"', 'operation!~"x"'),
        ('status=~"5.."', 'status=~"4.."'),
        ("== 0", "== 1"),
    ],
)
def test_a_planted_mistake_fails_a_case(found, planted, tmp_path):
    wrong = rules()
    for group in wrong["groups"]:
        for rule in group["rules"]:
            rule["expr"] = rule["expr"].replace(found, planted)
    assert wrong != rules()
    assert promtool(tmp_path, ["test", "rules", "cases.yaml"], wrong).returncode != 0


def test_prometheus_reads_the_queries_of_the_dashboard(tmp_path):
    named = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries())]
    done = promtool(tmp_path, ["check", "rules", "rules.yaml"], {"groups": [{"name": "dashboard", "rules": named}]})
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_is_one_of_the_service(client):
    x = {"inputs": {"x": [1.0]}}
    assert client.post("/v1/ops/square/vjp", json=x).status_code == 200
    adapter = yaml.safe_load((MONITORING / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
    asked = [alert["expr"] for alert in alerts()] + queries() + [rule["seriesQuery"] for rule in adapter]
    served = set(re.findall(r"^# TYPE (\S+)", client.get("/metrics").text, re.M))
    named = {name for query in asked for name in METRIC.findall(query)}
    assert len(named) > 15
    assert {ELSEWHERE.sub("", name) for name in named} <= served | {"pullback_key_requests_total"}


def test_the_autoscaler_follows_what_the_adapter_serves():
    adapter = yaml.safe_load((MONITORING / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
    component = (MONITORING / "kustomization.yaml").read_text()
    assert [f"metric: {{name: {rule['name']['as']}}}" in component for rule in adapter] == [True]


def test_panels_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in panels()):
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        taken |= cells
