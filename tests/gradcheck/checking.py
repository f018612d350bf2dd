"""Helpers for the tests of the checker: run the checks of an op and read its report."""

from collections.abc import Mapping
from typing import Any

from app.gradcheck.options import Options
from app.gradcheck.report import Report, Step
from app.tensors.json import decode
from ops import Op

CPU = {"cpu": "/device:CPU:0"}


def planned(op: Op, options: Options, **parameters: Any) -> tuple[Report, list[Step]]:
    """Return an empty report on an op and its steps."""
    result = Report(op, options)
    result.plan(decode, **parameters)
    return result, result.steps


def report(op: Op, /, *, inputs: Any = None, attrs: Any = None, checks: Any = None, **options: Any) -> dict[str, Any]:
    """Return the report on an op, from all checks by default."""
    result, todo = planned(op, Options(CPU, **options), checks=checks, inputs=inputs, attrs=attrs)
    for step in todo:
        step.run(lambda: None)
    return result.document()


def failed(document: Mapping[str, Any]) -> list[str]:
    """Return the names of the checks that fail, each once, in order."""
    return list(dict.fromkeys(entry["check"] for entry in document["checks"] if entry["verdict"] == "fail"))


def entries(document: Mapping[str, Any], check: str, verdict: str = "fail") -> list[dict[str, Any]]:
    """Return the entries of a check with this verdict."""
    return [entry for entry in document["checks"] if entry["check"] == check and entry["verdict"] == verdict]
