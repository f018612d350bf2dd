"""How the tests of the checker ask: an op in, findings out."""

from collections.abc import Mapping
from typing import Any

from app.gradcheck.report import steps
from app.gradcheck.target import Options
from app.tensors.json import decode
from ops import Op

CPU = {"cpu": "/device:CPU:0"}


def report(op: Op, /, *, inputs: Any = None, attrs: Any = None, checks: Any = None, **options: Any) -> dict[str, Any]:
    """Return the report on an op, with all checks unless told."""
    made, todo = steps(op, Options(CPU, **options), decode, checks=checks, inputs=inputs, attrs=attrs)
    for step in todo:
        step.run(go_on)
    return made.document()


def failed(document: Mapping[str, Any]) -> list[str]:
    """Return the names of the checks that fail, each once, in order."""
    return list(dict.fromkeys(entry["check"] for entry in document["checks"] if entry["verdict"] == "fail"))


def entries(document: Mapping[str, Any], check: str, verdict: str = "fail") -> list[dict[str, Any]]:
    """Return what a check found with this verdict."""
    return [one for one in document["checks"] if one["check"] == check and one["verdict"] == verdict]


def go_on() -> None:
    """Let the work go on."""
