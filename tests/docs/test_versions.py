"""docs/versions.md: the versions that requirements/ pins; ``python -m tests.docs.test_versions`` writes it."""

import json
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "versions.md"
PIN = re.compile(r"^([\w.-]+)==([^\s;\\]+)(?: ; python_(?:full_)?version >= ['\"]([\d.]+)['\"])?", re.MULTILINE)
MAKEFILE = (ROOT / "Makefile").read_text()
LISTS: list[tuple[str, str]] = re.findall(r"^(CLIENTS|FRAMEWORKS) := (.*)$", MAKEFILE, re.MULTILINE)
OFTEN = {"cpu"} | {f"{kind.lower()}-{name}" for kind, names in LISTS for name in names.split()}

SERVICE = ("tensorflow-cpu", "keras", "numpy", "fastapi", "pydantic", "uvicorn", "ml-dtypes")
OF_CLIENTS = {
    "umbridge": "umbridge",
    "tesseract": "tesseract-core tesseract-jax",
    "triton": "tritonclient",
    "kserve": "kserve",
    "openinference": "open-inference-openapi",
    "mcp": "mcp",
    "openapi": "openapi-python-client",
    "typescript": "openapi-fetch openapi-typescript",
    "mlserver": "mlserver",
    "pymc": "pymc",
    "tinyda": "tinyda",
}
SOLVERS = ("openmdao", "casadi", "philote")
OF_FRAMEWORKS = {
    "jax": "jax",
    "torch": "torch",
    "pytensor": "pytensor",
    "pymc": "pymc",
    "openmdao": "openmdao",
    "casadi": "casadi",
    "ase": "ase",
    "philote": "philote-mdo",
}
HEAD = """\
# Tested versions

The tests run with these versions, which `requirements/` pins; [install](install.md) allows others. "Each change" is
what `make test-all` runs, "release" what `make release-check` runs before one. The tests write this page. A nightly
version is one that no release has: the scripts of `findings/` show what is new there, and run by hand.

| package | version | used as | tested at |
| --- | --- | --- | --- |
"""


def pins(environment: str) -> dict[str, str]:
    """Return the versions of packages by name: several where newer versions of Python have others."""
    if (folder := ROOT / "requirements" / environment / "package.json").exists():
        dependencies: dict[str, str] = json.loads(folder.read_text()).get("dependencies", {})
        return dependencies
    found: dict[str, str] = {}
    for name, version, python in PIN.findall((ROOT / f"requirements/{environment}.txt").read_text()):
        key = name.lower().replace("_", "-")
        shown = f"{version} (Python {python[:4]} and later)" if python else version
        found[key] = f"{found[key]}, {shown}" if key in found else shown
    return found


def rows() -> list[str]:
    every = [(name, "cpu", "the service") for name in SERVICE]
    every += [(name, f"frameworks-{key}", _used_as(key)) for key, name in OF_FRAMEWORKS.items()]
    every += [("tesseract-torch", "frameworks-torch", "[client](clients.md)")]
    every += [
        (name, f"clients-{key}", "[client](clients.md)") for key, names in OF_CLIENTS.items() for name in names.split()
    ]
    return [
        f"| {name} | {pins(of)[name]} | {what} | {'each change' if of in OFTEN else 'release'} |"
        for name, of, what in every
    ]


def nightly_rows() -> list[str]:
    """Return a row for each nightly version that a script of ``findings/`` pins."""
    scripts = "\n".join(path.read_text() for path in sorted((ROOT / "findings").glob("*.sh")))
    found = sorted(set(re.findall(r"(?<=\s)(\S*nightly\S*)==(\S+)", scripts)))
    return [f"| {name} | {version} | `findings/` | by hand |" for name, version in found]


def _used_as(framework: str) -> str:
    if framework in SOLVERS:
        return "[solver](solvers.md)"
    return "[calculator of forces](forces.md)" if framework == "ase" else "[framework](frameworks.md)"


def text() -> str:
    return HEAD + "\n".join(rows() + nightly_rows()) + "\n"


def test_the_page_has_the_versions_that_are_tested() -> None:
    assert PAGE.read_text() == text(), "run python -m tests.docs.test_versions"


@pytest.mark.parametrize("kind", ["clients", "frameworks"])
def test_no_environment_is_left_out(kind: str) -> None:
    named = {path.stem.removeprefix(f"{kind}-") for path in Path(ROOT / "requirements").glob(f"{kind}-*.txt")}
    assert named - {"browser"} == set(OF_CLIENTS if kind == "clients" else OF_FRAMEWORKS)


def test_the_page_of_clients_names_the_same_versions() -> None:
    """Of a version there, the first numbers are enough."""
    page = (ROOT / "docs" / "clients.md").read_text()
    shown = re.findall(r"^\| `([\w-]+)[^|(]*(?:\(Python\) )?\| ([\d.]+)[ ,]", page, re.MULTILINE)
    pinned = {name: pins(f"clients-{key}")[name] for key, names in OF_CLIENTS.items() for name in names.split()}
    found = [(name, version) for name, version in shown if name in pinned]
    assert len(found) >= 7, found
    assert [each for each in found if not re.search(rf"(^|, ){re.escape(each[1])}\b", pinned[each[0]])] == []


if __name__ == "__main__":
    PAGE.write_text(text())
