"""Records: an op's values and derivatives at the points of its checks, to compare with those of another version."""

import hashlib
import logging
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from app.errors import DeadlinePassed, OpFailed, PullbackError, Unprocessable
from app.gradcheck.report import RECORD, Recorded, Report, Step
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.runtime.cancellation import Checkpoint
from app.runtime.modes import Key
from pullback.gradcheck.recorded import digest_of, recorded

log = logging.getLogger("pullback")

ORDERS: Mapping[str | int, int] = {"outputs": 0, "gradients": 1, "products": 2}


class RecordStep(Step):
    """The step that records an op with one choice of attributes, in mode graph and in every dtype."""

    def run(self, checkpoint: Checkpoint) -> None:
        """Record the op in an entry, without arrays if the op is broken."""
        self.has_begun, self.target.checkpoint = True, checkpoint
        arrays = list[dict[str, Any]]()
        with np.errstate(all="ignore"):
            try:
                if id(self.target) not in self.report.broken:
                    arrays = list(_arrays(self.target))
            except DeadlinePassed:
                raise
            except PullbackError:
                log.warning("op %s: nothing is recorded", self.report.op.name, exc_info=True)
        self.entries.append(Recorded(arrays))
        self.publish(self.entries[-1])
        self.has_ended = True


def add_steps(report: Report) -> None:
    """Add the steps that record an op, after those of its checks: one for each choice of attributes in its examples."""
    targets = dict.fromkeys(step.target for step in report.steps)
    report.steps += [RecordStep(RECORD, target, report) for target in targets if target.has_example]


def with_origin(document: dict[str, Any], origin: Mapping[str, str]) -> dict[str, Any]:
    """Return a report with what computed the op; its record, if it has one, has the page's digest and the versions.

    An op without a page, such as a graph, has the digest of no bytes.
    """
    if (found := document.get(RECORD)) is not None:
        versions = {"pullback": origin["version"], "tensorflow": origin["tensorflow"]}
        versions |= {"numpy": np.__version__, "python": platform.python_version()}
        found |= {"digest": origin.get("page", hashlib.sha256().hexdigest()), "versions": versions}
    return {**document, "origin": {**origin}}


def _arrays(target: Target) -> Iterator[dict[str, Any]]:
    for sample in target.samples:
        for dtype in target.dtypes:
            # An op may reject a point in a narrower dtype, or fail there.
            with suppress(OpFailed, Unprocessable):
                if (narrow := target.in_dtype(sample, dtype)) is not None:
                    point = _digest(target.attrs, narrow)
                    for key in narrow.values:
                        if key[0] in ORDERS:
                            yield {
                                **{"attrs": dict(target.attrs), "point": point, "dtype": dtype},
                                **_array(sample, narrow, key),
                            }


def _array(wide: Sample, narrow: Sample, key: Key) -> dict[str, Any]:
    """Return the numbers of one value with their error bars."""
    value, dtype = narrow.values[key], narrow.point.spec.dtype
    bars = np.zeros(()) if value.dtype.kind in "iub" else wide.error_bound(key, dtype)
    return {"order": ORDERS[key[0]], "slot": key[1], **recorded(value, bars)}


def _digest(attrs: Mapping[str, Any], sample: Sample) -> str:
    """Return a digest of where the op is evaluated."""
    fields = {"x": sample.point.inputs, "dy": sample.cotangents, "v": sample.vectors}
    named = ((f"{field} {name}", x) for field, arrays in fields.items() for name, x in arrays.items())
    return digest_of(attrs, named)
