"""What has been counted of a model, as Triton tells it.

It is what this process has answered, in any protocol: the same operation on the same op is counted in one place.
"""

import time
from collections.abc import Sequence
from typing import Any

from app.errors import NotFound
from app.execution.engine import Engine
from app.routes.openinference.models import VERSION, Model
from app.telemetry.counters import RecordedCounters, Stage

# Triton's names for what the stages are there.
_STAGES: dict[str, Stage] = {"queue": "queue", "compute_input": "parse", "compute_output": "serialise"}


def statistics(engine: Engine, models: Sequence[Model]) -> dict[str, Any]:
    """Return the statistics of models; raises ``NotFound`` where the service counts nothing."""
    counters = [(model, engine.counters(model.op.name, model.operation)) for model in models]
    found = [_of(model, counters) for model, counters in counters if isinstance(counters, RecordedCounters)]
    if len(found) < len(models):
        raise NotFound("statistics are disabled: PULLBACK_METRICS is 0")
    return {"model_stats": found}


def _of(model: Model, counters: RecordedCounters) -> dict[str, Any]:
    answers = counters.well.count + counters.failed.count
    stages = {name: _duration(answers, counters.seconds[stage]) for name, stage in _STAGES.items()}
    stages["compute_infer"] = _duration(counters.executions, counters.seconds["compute"])
    outcomes = {
        name: _duration(one.count, one.seconds) for name, one in (("success", counters.well), ("fail", counters.failed))
    }
    return {
        "name": model.name,
        "version": VERSION,
        "last_inference": _milliseconds(counters.latest),
        "inference_count": counters.well.count,
        "execution_count": counters.executions,
        "inference_stats": outcomes | stages,
        "batch_stats": [],
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}


def _milliseconds(moment: float) -> int:
    """Return a time of ``time.perf_counter`` as milliseconds since 1970, and 0 as 0."""
    return round((time.time() - time.perf_counter() + moment) * 1000) if moment else 0
