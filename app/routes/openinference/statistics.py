"""The statistics of models, in Triton's format.

They cover the requests that this process has answered, in any protocol: an operation on an op has one set of counters.
"""

import time
from collections.abc import Sequence
from typing import Any

from app.errors import NotFound
from app.execution.engine import Engine
from app.routes.openinference.models import VERSION, Model
from app.telemetry.counters import NOT_RECORDED, Counters
from app.telemetry.stage_times import Stage

# The stage of a request for each of Triton's names.
_STAGES: dict[str, Stage] = {"queue": "queue", "compute_input": "parse", "compute_output": "serialise"}


def statistics(engine: Engine, models: Sequence[Model]) -> dict[str, Any]:
    """Return the statistics of models; raises ``NotFound`` if the service records no metrics."""
    counters = [(model, engine.counters(model.op.owner, model.operation)) for model in models]
    if any(counts is NOT_RECORDED for _, counts in counters):
        raise NotFound("statistics are disabled: PULLBACK_METRICS is 0")
    return {"model_stats": [_model_stats(model, counts) for model, counts in counters]}


def _model_stats(model: Model, counters: Counters) -> dict[str, Any]:
    answers = counters.well.count + counters.failed.count
    stages = {name: _duration(answers, counters.seconds[stage]) for name, stage in _STAGES.items()}
    stages["compute_infer"] = _duration(counters.executions, counters.seconds["compute"])
    outcomes = {
        "success": _duration(counters.well.count, counters.well.seconds),
        "fail": _duration(counters.failed.count, counters.failed.seconds),
    }
    # In milliseconds since 1970, of a time of ``perf_counter``.
    last_ms = round((time.time() - time.perf_counter() + counters.latest) * 1000) if counters.latest else 0
    return {
        "name": model.name,
        "version": VERSION,
        "last_inference": last_ms,
        "inference_count": counters.well.count,
        "execution_count": counters.executions,
        "inference_stats": outcomes | stages,
        "batch_stats": [],
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}
