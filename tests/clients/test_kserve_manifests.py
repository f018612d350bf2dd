"""deploy/kserve fits the schemas of KServe and of Kubernetes, from which the types of their clients are generated.

The generated classes ignore fields that they do not know, so their tables of fields are compared here.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import kserve
import kubernetes.client
import pytest
import yaml

MANIFEST = Path(__file__).parents[2] / "deploy" / "kserve" / "pullback.yaml"
KINDS = {"ServingRuntime": "V1alpha1ServingRuntime", "InferenceService": "V1beta1InferenceService"}
SCALARS = {"str": str, "int": int, "bool": bool, "float": (int, float)}
# The fields of a Container, a PodSpec and a probe that may be numbers or strings.
ANY = ("object", "IntOrString")
CONTAINER = re.compile(r"(list|dict)[\[(](?:str, ?)?(\w+)[\])]", re.IGNORECASE)


def resources() -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFEST.read_text())}


def breaches(value: Any, kind: str, path: str) -> Iterator[str]:
    """Yield where a value is not of a type of the generated clients."""
    if kind in ANY:
        return
    if kind in SCALARS:
        if not isinstance(value, SCALARS[kind]) or (isinstance(value, bool) and kind != "bool"):
            yield f"{path}: expected {kind}, got {value!r}"
    elif found := CONTAINER.fullmatch(kind):
        if not isinstance(value, list if found[1].lower() == "list" else dict):
            yield f"{path}: expected {kind}, got {value!r}"
            return
        items = enumerate(value) if isinstance(value, list) else value.items()
        for key, item in items:
            yield from breaches(item, found[2], f"{path}.{key}")
    else:
        yield from breaches_of_fields(value, kind, path)


def breaches_of_fields(value: Any, kind: str, path: str) -> Iterator[str]:
    cls = getattr(kserve, kind, None) or getattr(kubernetes.client, kind)
    names = {name: attribute for attribute, name in cls.attribute_map.items()}
    if not isinstance(value, dict):
        yield f"{path}: expected {kind}, got {value!r}"
        return
    for name, item in value.items():
        if name not in names:
            yield f"{path}: {kind} has no field {name}"
        else:
            yield from breaches(item, cls.openapi_types[names[name]], f"{path}.{name}")
    # The constructors refuse missing fields.
    try:
        cls(**{names[name]: item for name, item in value.items() if name in names})
    except (TypeError, ValueError) as error:
        yield f"{path}: {error}"


def all_breaches(found: dict[str, dict[str, Any]]) -> list[str]:
    return [breach for kind, one in found.items() for breach in breaches(one, KINDS[kind], kind)]


def test_the_manifest_fits_the_schemas():
    found = resources()
    assert found.keys() == KINDS.keys()
    assert all_breaches(found) == []


@pytest.mark.parametrize(
    ("written", "planted"),
    [
        ("supportedModelFormats", "supportedModelFormat"),
        ("minReplicas: 3", "minReplicas: '3'"),
        ("containerPort: 8000", "containerPort: http"),
        ("- name: kserve-container", "- workingDir: /"),
        ("terminationGracePeriodSeconds: 45", "terminationGraceSeconds: 45"),
    ],
)
def test_a_planted_mistake_is_found(written, planted):
    text = MANIFEST.read_text()
    assert written in text
    wrong = {one["kind"]: one for one in yaml.safe_load_all(text.replace(written, planted))}
    assert all_breaches(wrong) != []


def test_the_service_runs_in_the_runtime():
    found = resources()
    runtime, predictor = found["ServingRuntime"], found["InferenceService"]["spec"]["predictor"]
    assert predictor["model"]["runtime"] == runtime["metadata"]["name"]
    formats = {one["name"] for one in runtime["spec"]["supportedModelFormats"]}
    assert predictor["model"]["modelFormat"]["name"] in formats
    assert predictor["model"]["protocolVersion"] in runtime["spec"]["protocolVersions"]
    (container,) = runtime["spec"]["containers"]
    # The name by which KServe finds the container of the model.
    assert container["name"] == "kserve-container"
    settings = {item["name"]: float(item["value"]) for item in container["env"] if item["name"].endswith("_S")}
    assert sum(settings.values()) < predictor["terminationGracePeriodSeconds"]


def test_the_probes_are_answered(url):
    (container,) = resources()["ServingRuntime"]["spec"]["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert httpx.get(url + path).status_code == 200
