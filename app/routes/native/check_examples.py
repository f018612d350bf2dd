"""Examples of the answers of checks, for the OpenAPI document. None has a null, which FastAPI would leave out."""

from typing import Any

_PLACE: dict[str, Any] = {
    "attrs": {},
    "mode": "graph",
    "dtype": "float64",
    "device": "cpu",
    "order": 1,
    "output": "y",
    "input": "x",
}
_COUNTS = {"points": 259, "compared": 259, "evaluations": 31598, "seconds": 0.2}
_DIFFERS = "dx[2] at x = 1, dy = 1 is 2, but the numeric derivative of forward is 3 ± 5.1e-14; 259 of 259 points wrong"
_AT_WORST: dict[str, Any] = {
    **{"index": [2], "x": 1.0, "analytic": 2.0, "numeric": 3.0, "error_bar": 5.1e-14},
    **{"absolute": 1.0, "relative": 0.333, "ulps": 2.3e15},
}
_FAILED: dict[str, Any] = {
    **{"check": "derivative", "verdict": "fail", "sentence": _DIFFERS, **_PLACE, **_COUNTS, "inconclusive": {}},
    "digits": {},
    **{"worst": _AT_WORST, "reproduce": "pullback call cube vjp x=1 dy=1 --dtype float64 --mode graph"},
    **{
        "note": False,
        "shows": "gradients.x",
        "point": {"inputs": {"x": 1.0}, "cotangents": {"y": 1.0}},
        "places": [_PLACE],
    },
}
_COVERED: dict[str, Any] = {"check": "derivative", "order": 1, "dtype": "float64", "points": 259, "compared": 259}
_COVERED["digits"] = {}
_ORIGIN = {"version": "0.4.0", "tensorflow": "2.21.0", "page": "9f86d081884c7d65"}
_REPORT: dict[str, Any] = {
    **{"origin": _ORIGIN, "modes": ["graph"], "devices": ["cpu"]},
    **{"op": "cube", "verdict": "fail", "sentence": "cube: 1 of 1 check failed: derivative", "seed": 0, "points": 259},
    **{"evaluations": 31598, "seconds": 0.2, "unfinished": 0, "coverage": [_COVERED], "checks": [_FAILED]},
}
REPORTS: dict[str, Any] = {"examples": [_REPORT]}

_WRONG_2 = "your dx[2] at x = 3 is 6.54, but op square in float64 is 6 ± 1.1e-05; 1 of 3 points wrong"
_WORST: dict[str, Any] = {"index": [2], "x": 3.0, "yours": 6.54, "expected": 6.0, "error_bar": 1.1e-5}
_VERIFIED: dict[str, Any] = {
    **{"verdict": "fail", "sentence": _WRONG_2, "elements": 3, "wrong": 1},
    "worst": {**_WORST, "absolute": 0.54, "relative": 0.09, "ulps": 1132462.0},
    "blocks": [{"start": 2, "stop": 3, "verdict": "fail", "wrong": 1, "ulps": 1132462.0}],
}
VERIFICATIONS: dict[str, Any] = {
    "examples": [
        {"op": "square", "verdict": "fail", "sentence": f"{_WRONG_2}.", "dtype": "float32"}
        | {"against": "float64", "gradients": {"x": _VERIFIED}}
    ]
}
