"""Reports and events, as the service sends them."""

from typing import Any

WORST = {
    "index": [3],
    "x": 0.5,
    "analytic": 1.09,
    "numeric": 1.0,
    "error_bar": 1e-13,
    "absolute": 0.09,
    "relative": 0.09,
    "ulps": 4.05e14,
}
# The verdict on many is the first of these that any has.
VERDICTS = ("fail", "error", "inconclusive", "pass")
UNBOUNDED = WORST | {"x": None, "index": None, "analytic": "NaN", "ulps": "Infinity", "relative": "Infinity"}


def check(verdict: str = "pass", **fields: Any) -> dict[str, Any]:
    return {
        "check": "derivative",
        "verdict": verdict,
        "sentence": f'dy/dx: {verdict}, <angle> & "quotes"',
        "order": 1,
        "output": "y",
        "input": "x",
        "attrs": {},
        "mode": "graph",
        "dtype": "float64",
        "device": "cpu",
        "points": 68,
        "evaluations": 4148,
        "seconds": 0.004,
        "inconclusive": {"kink": 2} if verdict == "inconclusive" else {},
        "worst": WORST if verdict == "fail" else None,
    } | fields


def places(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    names = ("attrs", "mode", "dtype", "device", "order", "output", "input")
    return [{name: check()[name] for name in names} | change for change in changes]


COVERED = {
    **{"check": "derivative", "order": 1, "dtype": "float64", "points": 68, "compared": 66},
    "digits": {"2": 1, "5": 2, "12": 3, "13": 60},
}


JUDGED = "; derivatives: 63 agree to 10 digits, 2 to 5, 1 to fewer than 5, 2 not comparable; 0.52 s)"


def report(op: str, *checks: dict[str, Any]) -> dict[str, Any]:
    verdicts = [entry["verdict"] for entry in checks]
    verdict = next((v for v in VERDICTS if v in verdicts), "inconclusive")
    return {
        "op": op,
        "verdict": verdict,
        "sentence": f"{op}: a sentence",
        "seed": 0,
        "points": 68,
        "evaluations": 4148,
        "seconds": 0.52,
        "coverage": [COVERED],
        "unfinished": sum("out of time" in entry["sentence"] for entry in checks),
        "checks": list(checks),
    }


SETTING: dict[str, Any] = {
    "origin": {"version": "0.4.0", "tensorflow": "2.21.0", "page": "9f86d081884c7d65" * 4},
    **{"modes": ["graph", "eager"], "devices": ["cpu", "gpu:0"], "seed": 7},
}
"""What a report says of how the op was checked."""
SHOWN_SETTING = "Pullback 0.4.0, TensorFlow 2.21.0, modes graph, eager, cpu, gpu:0, seed 7"


def stream(*reports: dict[str, Any], unavailable: dict[str, str] | None = None) -> list[dict[str, Any]]:
    ops, verdicts = [report["op"] for report in reports], [report["verdict"] for report in reports]
    missing = [{"op": op, "reason": reason} for op, reason in (unavailable or {}).items()]
    events: list[dict[str, Any]] = [{"event": "start", "ops": ops, "unavailable": missing, "steps": len(ops)}]
    for done, report in enumerate(reports):
        progress = {"event": "progress", "op": report["op"], "check": "derivative", "done": done, "steps": len(ops)}
        events += [progress, {"event": "report", "report": report}]
    counts = {verdict: verdicts.count(verdict) for verdict in ("pass", "fail", "error", "inconclusive")}
    counts["unfinished"] = sum(report["unfinished"] > 0 for report in reports)
    verdict = next((v for v in VERDICTS if v in verdicts), "inconclusive")
    return [*events, {"event": "summary", "verdict": verdict, **counts, "seconds": 31.2}]


PROBLEM: dict[str, Any] = {
    "type": "urn:pullback:problem:deadline-passed",
    "title": "Deadline passed",
    "status": 504,
    "detail": "it took too long",
    "instance": "/v1/checks",
    "errors": [],
}
PASSING = report("square", check(), check("skipped", check="symmetry"))
FAILING = report("skewed", check(), check("fail"), check("fail", check="second", order=2, worst=UNBOUNDED))
INCONCLUSIVE = report("kinky", check("inconclusive"))
BROKEN = report("cursed", check(), check("error", sentence="the check broke off with ValueError"))
LATE = report(
    "heavy",
    check(),
    *(check("skipped", check=name, sentence="not run: out of time; raise it") for name in ("second", "modes", "modes")),
)
