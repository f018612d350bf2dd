"""docker-compose.yml, as Compose reads it: what it builds, mounts and sets; no engine is needed."""

import re

import pytest
import yaml

from app.settings import Settings
from tests.conftest import ROOT
from tests.docker.context import copies_of
from tests.docker.deployment import COMPOSE_FILE, CPU, GPU

TEXT = COMPOSE_FILE.read_text()
SERVICES = yaml.safe_load(TEXT)["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_there_is_a_service_for_each_image_and_one_startsby_default() -> None:
    assert {one["image"]: one["build"]["target"] for one in SERVICES.values()} == {CPU: "cpu", GPU: "gpu"}
    assert {one["build"]["target"] for one in SERVICES.values()} <= {copy.stage for copy in copies_of(DOCKERFILE)}
    assert {name: one.get("profiles") for name, one in SERVICES.items()} == {"pullback": None, "pullback-gpu": ["gpu"]}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_built_here_and_hardened(name) -> None:
    service = SERVICES[name]
    assert service["build"]["context"] == "."
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["pids_limit"]
    assert service["mem_limit"] == service["memswap_limit"]
    assert {volume.split(":")[1] for volume in service["volumes"]} <= set(re.findall(r"mkdir (\S+)", DOCKERFILE))
    assert [port.rpartition(":")[2] for port in service["ports"]] == re.findall(r"PULLBACK_PORT=(\d+)", DOCKERFILE)


@pytest.mark.parametrize("name", SERVICES)
def test_the_service_accepts_the_settings(name, monkeypatch) -> None:
    """Those that are set, and those that a reader may set by removing a ``#``."""
    set_here = {key: by_default(str(value)) for key, value in SERVICES[name]["environment"].items()}
    commented = dict(re.findall(r"^  # (PULLBACK_\w+): ?(\S*)$", TEXT, re.MULTILINE))
    known = {f"PULLBACK_{field.upper()}" for field in Settings.model_fields}
    assert set_here.keys() <= known
    for key, value in (commented | set_here).items():
        monkeypatch.setenv(key, value)
    assert Settings().device == set_here["PULLBACK_DEVICE"]


def test_each_variable_of_the_shell_has_a_default_and_is_explained() -> None:
    used = re.findall(r"\$\{(\w+)(\S?\S?)", TEXT)
    assert {operator for _, operator in used} == {":-"}
    for name, _ in used:
        assert name in (ROOT / "docs" / "deployment.md").read_text()


def by_default(value: str) -> str:
    """Return a value as it is without variables of the shell."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)
