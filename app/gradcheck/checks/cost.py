"""Cost: how long the vjp takes, relative to forward.

Reverse mode takes a few times as long as forward ("cheap gradient principle": Griewank and Walther, "Evaluating
Derivatives", 4.2). A vjp that takes much longer may form a Jacobian, or loop in Python. The check reports
this, and never fails.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import gradient, values_of
from app.autodiff.point import Point
from app.errors import OpFailed, Unprocessable
from app.gradcheck import sizes
from app.gradcheck.sample import sample_at
from app.gradcheck.target import Target
from pullback.gradcheck.verdict import Finding, Subject

NAME = "cost"
# A call of a small op takes as long as the call itself; elementwise ops are measured with so many numbers.
NUMBERS, MANY = 1 << 16, 10.0
# A difference of less time may be that of the calls.
OVERHEAD_MS = 1.0
# A busy machine slows down some runs. So there are RUNS of them, or as many as MOST_S allows, and FEWEST_RUNS at least.
FEWEST_RUNS, RUNS, MOST_S = 3, 30, 0.05


def check(target: Target) -> Iterator[Finding]:
    """Measure both at one large point, in the widest dtype and mode graph; each time is the least of several."""
    subject = Subject(NAME, 1, dtype=target.widest)
    for point in _points(target):
        with suppress(OpFailed, Unprocessable):
            sample = sample_at(point, target.rng(NAME), last="gradients")
            vjp = _least_ms(gradient(point, sample.cotangents).run)
            forward = _least_ms(values_of(point).run)
            # A time proves nothing about a gradient, so the check never passes.
            yield Finding(subject, "skipped", _sentence(point, vjp, forward))
            return


def _points(target: Target) -> Iterator[Point]:
    """Yield a point with many numbers of an elementwise op, else the points of many sizes, the largest first."""
    own = max((sample.point for sample in target.subsamples), key=lambda point: point.size)
    if target.inputs is None and target.batching == "elementwise" and own.size:
        yield moved(own, {name: np.resize(x, NUMBERS) for name, x in own.inputs.items()})
        return
    others = [sized.point for sized in sizes.points(target)] if target.inputs is None else []
    yield from sorted([own, *others], key=lambda point: -point.size)


def _sentence(point: Point, vjp: float, forward: float) -> str:
    shapes = ", ".join(f"{name} of shape {list(x.shape)}" for name, x in point.inputs.items())
    sentence = f"the vjp takes {vjp / forward:.1f} times as long as forward ({vjp:.2g} and {forward:.2g} ms, {shapes})"
    if vjp > MANY * forward + OVERHEAD_MS:
        sentence += f"; more than {MANY:g} times is much: it may form a Jacobian, loop, or call slow kernels"
    return sentence


def _least_ms(run: Callable[[], object]) -> float:
    """Return the least time of several runs, in ms: others count what else the machine does."""
    times = list[float]()
    while len(times) < FEWEST_RUNS or (len(times) < RUNS and sum(times) < MOST_S):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return 1e3 * min(times)
