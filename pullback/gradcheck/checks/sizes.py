"""Other sizes: gradients beside numeric derivatives where arguments are larger, large, or of size 1."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pullback.errors import BadAnswer
from pullback.gradcheck.checks.derivative import Derivatives, moves
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.plan import OF_SIZES
from pullback.gradcheck.sample import Pair, Sample, take, values_at
from pullback.gradcheck.verdict import Finding, Subject


def sizes(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare at each of the other sizes that the function takes; one that it refuses is no finding."""
    judged, failed = list[str](), set[Pair]()
    for where, function in meter.function.sizes.items():
        comparisons = {
            pair: Comparison(replace(subject, output=pair[0], input=pair[1]), tolerances)
            for pair in samples[0].gradients
        }
        with meter.of(function) as other:
            try:
                _compare(other, comparisons, np.random.default_rng(len(samples)))
            except BadAnswer:
                continue
        for pair, comparison in comparisons.items():
            finding = comparison.finding(f"d{pair[1]} with {where}", "the numeric derivative of the values")
            if finding.verdict == "fail" and pair not in failed:
                failed.add(pair)
                yield finding
            elif finding.verdict == "pass":
                judged.append(where)
    if judged and not failed:
        at = "; ".join(dict.fromkeys(judged))
        yield Finding(subject, "pass", f"gradients agree with the numeric derivative with {at}", len(judged))


def _compare(meter: Meter, comparisons: dict[Pair, Comparison], rng: np.random.Generator) -> None:
    function = meter.function
    # The first point has the same numbers over and over: the next one has others.
    point = function.points((), 2, rng)[-1]
    slots = (function.inputs, function.outputs)
    sample = take(meter, point, values_at(meter, point), slots, rng, measures_noise=OF_SIZES.measures_noise)
    derivatives = Derivatives(meter, OF_SIZES, comparisons)
    for move in moves(sample, OF_SIZES, rng):
        derivatives.compare(sample, move)
