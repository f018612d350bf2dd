"""How to reproduce the number of a finding."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.function import Request
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.sample import Pair, Sample

Index: TypeAlias = tuple[int, ...]

POINT_FILE = "@point.json"
"""How a command names the file that has its ``point``, where that is too long for a command line."""
MAX_TEXT, MAX_WEIGHTS = 2000, 16


class Reproduction(NamedTuple):
    """A command line, or why there is none, what in its answer is the number, and the tensors of its call as JSON.

    ``directions`` has the cotangent and the vectors of the number by name, such as ``dy``, where each is one number.
    """

    command: str
    shows: str | None
    point: Mapping[str, Mapping[str, Any]] | None = None
    directions: Mapping[str, float] = {}


class Reproducible(Protocol):
    """A call whose answer has a number."""

    def reproduction(self, index: Index | None, number: float) -> Reproduction:
        """Return how to reproduce the number, which has this ``index`` in the comparison."""
        ...


@dataclass(frozen=True)
class GradientCall:
    """A request for a gradient, and the number in its answer: an element, or the sum of all times some weights."""

    meter: Meter
    sample: Sample
    pair: Pair
    cotangent: Array
    times: Array | None = None

    def reproduction(self, index: Index | None, number: float) -> Reproduction:
        """Return the command, and where its answer has the number."""
        del number
        output, name = self.pair
        request = self.meter.request(self.sample.point, output, name, self.cotangent)
        shows = request.shows + (f"[{', '.join(map(str, index))}]" if index else "")
        if self.times is not None:
            weights = np.ravel(self.times)
            known = f"* {json.dumps(weights.tolist())}" if weights.size <= MAX_WEIGHTS else "times random numbers"
            shows = f"the sum of {request.shows} {known}"
        at = {f"d{output}": float(self.cotangent.item())} if self.cotangent.size == 1 else {}
        if len(request.text) > MAX_TEXT:
            return Reproduction(request.command_with(POINT_FILE), shows, request.body, at)
        return Reproduction(request.command, shows, directions=at)


@dataclass(frozen=True)
class Requests:
    """Requests, one after the other; ``shows`` is what in their answers is the number."""

    requests: Sequence[Request]
    shows: str

    def reproduction(self, index: Index | None, number: float) -> Reproduction:
        """Return their commands."""
        del index, number
        if sum(len(each.text) for each in self.requests) > MAX_TEXT:
            where = f"{self.requests[0].where} at the checked points, which are too long for a command line"
            return Reproduction(where, self.shows)
        return Reproduction("; ".join(each.command for each in self.requests), self.shows)
