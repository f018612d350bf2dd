"""What a server's model computes at the points of its checks, to compare with what it computes later."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.recorded import digest_of, recorded
from pullback.server_checks.sample import NOISES, Sample


def arrays(sample: Sample, units: Mapping[str, Array]) -> Iterator[dict[str, Any]]:
    """Yield the values at a point, and the gradients of each output; ``units`` are those of the sample's outputs."""
    cotangents = {name: dy / units[name] for name, dy in sample.cotangents.items()}
    point = digest_of(sample.point.others, [*sample.point.inputs.items(), *cotangents.items()])
    dtypes = {slot.name: slot.dtype for slot in (*sample.inputs, *sample.outputs)}
    for slot in sample.outputs:
        y, unit = sample.values[slot.name], units[slot.name]
        bar = NOISES * sample.noise[slot.name] + sample.unit * np.abs(y).max(initial=0.0)
        yield {**_place(point, slot.dtype, 0), "slot": slot.name, **_spelled(y * unit, bar * unit)}
    for pair, dx in sample.gradients.items():
        place = {**_place(point, dtypes[pair[1]], 1), "attrs": {"of": pair[0]}}
        yield {**place, "slot": pair[1], **_spelled(dx, sample.bars[pair])}


def spelled(value: Any) -> Any:
    """Return a number that is not finite as the text that reports have in its place."""
    if not isinstance(value, float) or np.isfinite(value):
        return value
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _place(point: str, dtype: str, order: int) -> dict[str, Any]:
    return {"attrs": {}, "point": point, "dtype": dtype, "order": order}


def _spelled(value: Array, bars: Array) -> dict[str, Any]:
    numbers = recorded(value, bars)
    return numbers | {name: [*map(spelled, numbers[name])] for name in ("values", "error_bars")}
