"""What a number of evaluations is spent on: fewer points, directions and steps as it falls, down to five.

An evaluation is a request for values, or for a derivative.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pullback.gradcheck import noise
from pullback.gradcheck.function import Function

LEAST = 5
"""One evaluation at the point, three beside it and a gradient."""
TAYLOR_STEPS = 3
NOISE_POINTS = 2 * noise.DRAWS + 2 * (len(noise.NODES) - 1)
NOISE_VJPS = 2
PROPERTIES = (
    *("determinism", "subset", "linearity", "adjoint", "symmetry", "second", "freshness"),
    *("dtypes", "modes", "layouts", "sizes", "mutation"),
)
STEPS_OF_GRADIENTS = 8
"""The steps to each side at which gradients are compared with the action of a Hessian."""
TRANSPOSED = 2 * 2 * STEPS_OF_GRADIENTS
"""The gradients on two lines, to both sides, that compare a Jacobian with its transpose."""
MOST_ALONE = 2
FEWEST_ALONE, TOGETHER_ALONE = 2, 16
"""How many numbers of an input move alone to be compared at least, and of all inputs together if that is more."""
OF_VARIANTS = 6
"""How often values and gradients are computed to compare a variant at a point."""
LOOK = 24
"""The evaluations that are left to look for a cache where an answer is the same as nearby."""
MOVED = 2
"""The evaluations that show how far the numbers of outputs move."""
OF_SUM, OF_SUMS = 2, 6
"""How many gradients compare one sum of cotangents; and two, a large scale and 0."""
HESSIANS = 4
"""How many Hessian actions compare two vectors: each, and three times each."""


@dataclass(frozen=True)
class Plan:
    """What to do at each of ``points``.

    Each input moves along ``directions``, by ``steps`` to each side, or with 0 by three to one side; so do some
    ``coordinates``, alone, of which many inputs have fewer each. If ``is_whole`` is false, one output and one input are
    chosen at random. If it ``looks_nearby``, answers are compared with those at points nearby.
    """

    points: int
    directions: int
    steps: int
    coordinates: int = 0
    measures_noise: bool = False
    has_properties: bool = False
    looks_nearby: bool = False
    is_whole: bool = True

    def checks(self, function: Function, wanted: tuple[str, ...] | None) -> list[str]:
        """Return the checks of the plan for which the function has what they need."""
        # Where evaluations do not repeat themselves, the other checks say what follows from that.
        first, *others = PROPERTIES
        own = [first, "derivative", *others] if self.has_properties else ["derivative"]
        lacks = {
            "subset": not function.takes_subsets or len(function.inputs) == 1,
            "adjoint": not function.has_jvp,
            "symmetry": not (function.has_hessian or function.is_energy),
            "second": not function.has_hessian,
            # A function of this process keeps no answers.
            "freshness": not self.looks_nearby or function.changed is not None,
            "dtypes": not function.variants.get("dtypes"),
            "modes": not function.variants.get("modes"),
            "layouts": not function.variants.get("layouts"),
            "sizes": not function.sizes,
            "mutation": function.changed is None,
        }
        return [check for check in own if (wanted is None or check in wanted) and not lacks.get(check)]

    def cost(self, function: Function, checks: list[str], points: int) -> int:
        """Return how many evaluations it takes at so many points."""
        inputs, outputs = (len(function.inputs), len(function.outputs)) if self.is_whole else (1, 1)
        gradients = outputs * (inputs if function.one_by_one else 1)
        tangents = inputs * (outputs if function.one_by_one else 1)
        of_check = {
            "derivative": self._moves(function, inputs),
            "determinism": 1 + gradients,
            "subset": outputs * inputs,
            "linearity": (OF_SUM if function.changed is None else OF_SUMS) * gradients,
            "adjoint": tangents,
            "second": outputs * inputs**2 + 2 * STEPS_OF_GRADIENTS * gradients,
            "freshness": _freshness(function),
            "mutation": 0,
            "sizes": 0,
            "symmetry": TRANSPOSED if function.is_energy else HESSIANS * outputs * inputs * (inputs + 1) // 2,
        }
        noise = NOISE_POINTS * (1 + gradients) + NOISE_VJPS * gradients
        noisy = noise if self.measures_noise else 0
        for kind, others in function.variants.items():
            of_check[kind] = len(others) * (OF_VARIANTS * (1 + gradients) + (noise if kind == "dtypes" else 0))
        moved = MOVED if self.steps else 0
        once = LOOK if "freshness" in checks else 0
        if "sizes" in checks:
            once += sum(OF_SIZES.cost(each, ["derivative"], 1) for each in function.sizes.values())
        return once + points * (1 + moved + gradients + noisy + sum(of_check[check] for check in checks))

    def coordinates_of(self, inputs: int) -> int:
        """Return how many numbers of each of so many inputs move alone."""
        return min(self.coordinates, max(FEWEST_ALONE, TOGETHER_ALONE // inputs))

    def _moves(self, function: Function, inputs: int) -> int:
        sides = 2 * self.steps or TAYLOR_STEPS
        alone = sum(min(self.coordinates_of(inputs), math.prod(slot.shape)) for slot in function.inputs[:inputs])
        return sides * (inputs * self.directions + alone)


OF_SIZES = Plan(1, 1, 16, coordinates=2, measures_noise=True)
"""What is done with the function in other sizes."""


def alone(inputs: int, size: int) -> int:
    """Return how many numbers of each of so many inputs move alone to show a key that lacks them, of ``size``."""
    return min(1 if inputs > 1 else MOST_ALONE if size > 1 else 0, size)


def _freshness(function: Function) -> int:
    """Return the evaluations at a point, one beside it, and two for each number that moves alone, for one output."""
    inputs = len(function.inputs)
    once = 1 + (inputs if function.one_by_one else 1) + inputs * (function.has_jvp + function.has_hessian)
    return 2 * once * (1 + sum(alone(inputs, math.prod(slot.shape)) for slot in function.inputs))


RUNGS = (
    Plan(6, 3, 20, coordinates=8, measures_noise=True, has_properties=True, looks_nearby=True),
    Plan(3, 3, 20, coordinates=8, measures_noise=True, has_properties=True, looks_nearby=True),
    Plan(2, 2, 16, coordinates=4, measures_noise=True, has_properties=True, looks_nearby=True),
    Plan(2, 2, 16, measures_noise=True, has_properties=True, looks_nearby=True),
    Plan(1, 2, 12, measures_noise=True, has_properties=True, looks_nearby=True),
    Plan(1, 1, 10, measures_noise=True, has_properties=True, looks_nearby=True),
    Plan(1, 1, 10, measures_noise=True, has_properties=True),
    Plan(1, 1, 6, has_properties=True, looks_nearby=True),
    Plan(1, 1, 10, has_properties=True),
    Plan(1, 1, 6, has_properties=True),
    Plan(1, 1, 6),
    Plan(1, 1, 0),
    Plan(1, 1, 0, is_whole=False),
)
"""From rich to poor: the first that a budget allows is taken."""


def plans(function: Function, budget: int, wanted: tuple[str, ...] | None, given: int) -> Iterator[tuple[Plan, int]]:
    """Yield the plans that a budget allows, from rich to poor, with the number of points.

    These are the ``given`` points, or as many of them as the budget allows.
    """
    for plan in RUNGS:
        checks = plan.checks(function, wanted)
        for points in range(given, 0, -1) if given else [plan.points]:
            if plan.cost(function, checks, points) <= budget:
                yield plan, points
                break
