"""The manifests fit Kubernetes' schemas, and what they say fits the settings of the service."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import Settings
from tests.conftest import ROOT
from tests.deploy.manifests import FLEETS, KUBERNETES, Fleet, built, complaints, kustomize

HASH = re.compile(r"-[a-z0-9]{10}$")
MEMORY = {"Mi": 1, "Gi": 1024}
PARTS = {"limits", "requests"}


@pytest.fixture(scope="module", params=[*FLEETS])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return built(request.param, tmp_path_factory.mktemp(request.param))


def mebibytes(quantity: str) -> int:
    return int(quantity[:-2]) * MEMORY[quantity[-2:]]


def raw_resources() -> list[dict[str, Any]]:
    """Return the resources of all files but those that kustomize or Helm read."""
    files = [*(KUBERNETES / "base").glob("*.yaml"), *(KUBERNETES / "monitoring").glob("*.yaml")]
    resources = [resource for file in files for resource in yaml.safe_load_all(file.read_text())]
    return [
        resource
        for resource in resources
        if resource.get("kind", "Kustomization") not in ("Kustomization", "Component")
    ]


def test_the_files_fit_the_schemas(tmp_path):
    resources = raw_resources()
    assert {"Deployment", "Service", "HorizontalPodAutoscaler", "NetworkPolicy"} <= {r["kind"] for r in resources}
    assert complaints(resources, tmp_path) == []


def test_the_fleets_fit_the_schemas(fleet, tmp_path):
    assert complaints(fleet.resources, tmp_path) == []


def planted(change: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    resources = raw_resources()
    (deployment,) = [copy.deepcopy(r) for r in resources if r["kind"] == "Deployment"]
    change(deployment["spec"]["template"]["spec"])
    return [deployment]


def wrong_type(pod: dict[str, Any]) -> None:
    pod["containers"][0]["ports"][0]["containerPort"] = "http"


def wrong_name(pod: dict[str, Any]) -> None:
    pod["terminationGraceSeconds"] = 45


def missing_field(pod: dict[str, Any]) -> None:
    del pod["containers"][0]["name"]


@pytest.mark.parametrize("change", [wrong_type, wrong_name, missing_field])
def test_a_planted_mistake_is_found(change, tmp_path):
    assert complaints(planted(change), tmp_path) != []


@pytest.mark.parametrize("field", ["interval", "authorization", "path"])
def test_a_planted_mistake_in_what_an_operator_reads_is_found(field, tmp_path):
    (monitor,) = [copy.deepcopy(r) for r in raw_resources() if r["kind"] == "ServiceMonitor"]
    monitor["spec"]["endpoints"][0][field] = 5
    assert complaints([monitor], tmp_path) != []


def test_the_settings_exist_and_are_valid(fleet, monkeypatch):
    names = {f"PULLBACK_{name.upper()}" for name in Settings.model_fields}
    assert fleet.settings.keys() <= names
    for name, value in fleet.settings.items():
        monkeypatch.setenv(name, value)
    Settings()


def test_a_change_of_settings_or_ops_restarts_the_pods(fleet):
    (source,) = fleet.container["envFrom"]
    assert HASH.search(source["configMapRef"]["name"])
    assert source["configMapRef"]["name"] == fleet.one("ConfigMap", "pullback-settings")["metadata"]["name"]
    volume = next(v for v in fleet.pod["volumes"] if v["name"] == "ops")
    if any(r["metadata"]["name"].startswith("pullback-ops-") for r in fleet.resources):
        assert volume["configMap"]["name"] == fleet.one("ConfigMap", "pullback-ops")["metadata"]["name"]
        assert HASH.search(volume["configMap"]["name"])


def settings_of(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, value in fleet.settings.items():
        monkeypatch.setenv(name, value)
    return Settings()


def test_a_stopping_pod_has_time_to_drain(fleet, monkeypatch):
    settings, probe = settings_of(fleet, monkeypatch), fleet.container["readinessProbe"]
    assert settings.drain_s + settings.grace_s < fleet.pod["terminationGracePeriodSeconds"]
    # Probes notice that the pod drains before it closes its listener.
    assert probe["failureThreshold"] * (probe["periodSeconds"] + probe["timeoutSeconds"]) < settings.drain_s


def test_the_defaults_fit_the_grace_period():
    pod = yaml.safe_load((KUBERNETES / "base" / "deployment.yaml").read_text())["spec"]["template"]["spec"]
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    assert defaults["drain_s"] + defaults["grace_s"] < pod["terminationGracePeriodSeconds"]


def test_memory_and_cores_fit(fleet, monkeypatch):
    settings, resources = settings_of(fleet, monkeypatch), fleet.container["resources"]
    memory = mebibytes(resources["limits"]["memory"])
    # Half a GiB for TensorFlow, the bodies in flight, a process of checks, and the temporary files.
    (tmp,) = [v["emptyDir"] for v in fleet.pod["volumes"] if v.get("emptyDir", {}).get("medium") == "Memory"]
    processes = min(settings.checks, settings.check_processes) * settings.process_memory_mb
    assert 512 + settings.max_inflight_mb + processes + mebibytes(tmp["sizeLimit"]) <= memory
    assert resources.keys() == PARTS
    assert all(resources["limits"][name] == value for name, value in resources["requests"].items())


def test_service_links_do_not_set_the_port(fleet):
    """A Service named pullback would set PULLBACK_PORT=tcp://..., which is no port."""
    assert f"{fleet.one('Service')['metadata']['name'].upper()}_PORT" == "PULLBACK_PORT"
    assert fleet.pod["enableServiceLinks"] is False


def test_selectors_find_the_pods(fleet):
    labels = fleet.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        fleet.one("Deployment")["spec"]["selector"]["matchLabels"],
        fleet.one("Service")["spec"]["selector"],
        fleet.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        *(r["spec"]["podSelector"]["matchLabels"] for r in fleet.resources if r["kind"] == "NetworkPolicy"),
        *(c["labelSelector"]["matchLabels"] for c in fleet.pod["topologySpreadConstraints"]),
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    (policy,) = [r for r in fleet.resources if r["kind"] == "NetworkPolicy" and r["metadata"]["name"] == "pullback"]
    # Clients are not pods of the service.
    assert policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"] == {"pullback-client": "true"}


def test_mounted_paths_are_those_of_the_settings(fleet, monkeypatch):
    mounts = {mount["mountPath"] for mount in fleet.container["volumeMounts"]}
    settings = settings_of(fleet, monkeypatch)
    keys = settings.keys_file
    image = (ROOT / "Dockerfile").read_text()
    assert {"/ops-extra", "/data"} <= mounts
    assert "PULLBACK_OPS_PATH=/ops-extra" in image
    assert "PULLBACK_DATA=/data\n" in image
    assert settings.data is None
    # Pods share nothing else: jobs and what crashed a process must be on a local disk.
    assert {mount for mount in mounts if mount.startswith("/data/")} <= {"/data/graphs"}
    assert keys is None or str(keys.parent) in mounts
    assert f"uid {fleet.pod['securityContext']['runAsUser']} " in image
    assert f"PULLBACK_PORT={fleet.container['ports'][0]['containerPort']} " in image


def test_the_example_is_a_fleet(tmp_path):
    example = kustomize(KUBERNETES / "example")
    assert {r["metadata"]["namespace"] for r in example.resources} == {"gradients"}
    assert complaints(example.resources, tmp_path) == []
    assert len(example.one("HorizontalPodAutoscaler")["spec"]["metrics"]) == 2
    monitor = next(r for r in example.resources if r["kind"] == "ServiceMonitor")
    assert "authorization" in monitor["spec"]["endpoints"][0]


def test_the_page_of_deployment_fits_the_schemas(tmp_path: Path):
    """The manifests on docs/deployment.md are valid too, if there are any."""
    text = (ROOT / "docs" / "deployment.md").read_text()
    found = [
        r
        for block in re.findall(r"^```yaml\n(apiVersion.*?)^```", text, re.M | re.S)
        for r in yaml.safe_load_all(block)
    ]
    assert found == [] or complaints(found, tmp_path) == []


def admits(policies: list[dict[str, Any]], namespace: dict[str, str], pod: dict[str, str], *, is_own: bool) -> bool:
    """Return whether one of the policies lets in a pod with these labels, of a namespace with those; of its own?"""

    def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
        assert selector.keys() <= {"matchLabels"}
        return selector.get("matchLabels", {}).items() <= labels.items()

    def is_peer(peer: dict[str, Any]) -> bool:
        assert peer
        assert peer.keys() <= {"namespaceSelector", "podSelector"}
        is_there = matches(peer["namespaceSelector"], namespace) if "namespaceSelector" in peer else is_own
        return is_there and matches(peer.get("podSelector", {}), pod)

    rules = [rule for policy in policies for rule in policy["spec"].get("ingress", ())]
    return any("from" not in rule or any(map(is_peer, rule["from"])) for rule in rules)


NAME = "kubernetes.io/metadata.name"
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}
# The labels of a namespace and of a pod in it, whether the namespace is that of the service, and who lets the pod in.
PEERS: list[tuple[dict[str, str], dict[str, str], bool, set[str]]] = [
    ({NAME: "monitoring"}, PROMETHEUS, False, {"monitoring"}),
    ({NAME: "monitoring"}, {}, False, set()),
    # A pod of another namespace may call itself prometheus, or a client, and so may one of the service's own.
    ({NAME: "stranger"}, PROMETHEUS, False, set()),
    ({NAME: "stranger"}, {"pullback-client": "true"}, False, set()),
    ({NAME: "gradients"}, PROMETHEUS, True, set()),
    ({NAME: "gradients"}, {"app.kubernetes.io/name": "pullback"}, True, set()),
    ({NAME: "gradients"}, {"pullback-client": "true"}, True, {"base", "monitoring"}),
    ({NAME: "ingress", "pullback-clients": "true"}, {}, False, {"base", "monitoring"}),
]


@pytest.mark.parametrize(("namespace", "pod", "is_own", "by"), PEERS)
def test_the_network_policies_let_in_these_pods(fleet, namespace, pod, is_own, by):
    policies = [resource for resource in fleet.resources if resource["kind"] == "NetworkPolicy"]
    has_monitoring = any(policy["metadata"]["name"] == "pullback-monitoring" for policy in policies)
    assert admits(policies, namespace, pod, is_own=is_own) == (("monitoring" if has_monitoring else "base") in by)
