"""All values and derivatives of an op in one program: what an op that takes seconds to trace is asked for in a mode.

The programs of single operations are the truth: ``graph`` traces each of them. How an operation is chosen is the same
in all modes, and the ops that are quick to trace show it in each.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from app.autodiff.derivatives import second_order_values
from app.autodiff.point import Point
from app.runtime import modes
from tests.ops.cases import Answer, Case, Named, Truth, directions, truth, used


def takes_long(case: Case) -> bool:
    """Return whether an op takes seconds to trace, as one that decomposes matrices does."""
    return case.op.cost is not None


def together(point: Point, along: Mapping[str, Named]) -> Answer:
    """Return outputs, gradients, products and slots: the jvp along the vectors, where the gradient is linear."""
    found = second_order_values(point, along["cotangents"], along["vectors"]).run()
    return {f"{what}/{name}": value for (what, name), value in found.items()}


def together_along_many(point: Point, along: Mapping[str, Named]) -> Answer:
    """Return the products and slots along each of many vectors, at one cotangent."""
    call = replace(second_order_values(point, along["cotangents"], along["vectors"]), batched=True)
    found = modes.run(call.program, point.spec.mode, call.leaves, point.spec.device)
    values = call.finish(found).items()
    return {f"{what}/{name}": value for (what, name), value in values if what in ("products", "slots")}


def truth_of_together(point: Point, along: Mapping[str, Named]) -> Truth:
    """Return the truth of ``together``, of which each part is asked for alone."""
    parts = [truth(point, kind, used(along, kind)) for kind in ("vjp", "hvp")]
    parts.append(_renamed(truth(point, "jvp", {"tangents": along["vectors"]})))
    live = {f"{what}/{name}" for what in ("gradients", "products") for name in along["vectors"]}
    live |= {f"outputs/{slot.name}" for slot in point.op.outputs} | {f"slots/{name}" for name in along["cotangents"]}
    return Truth(
        {name: value for part in parts for name, value in part.found.items() if name in live},
        {name: value for part in parts for name, value in part.units.items() if name in live},
    )


def _renamed(pushed: Truth) -> Truth:
    """Return tangents as slots."""
    return Truth(
        *({name.replace("tangents/", "slots/"): x for name, x in of.items()} for of in (pushed.found, pushed.units))
    )


@cache
def truth_at_example(case: Case) -> Truth:
    """Return the truth at an example, and at its directions; all modes share it."""
    point = case.point()
    return truth_of_together(point, directions(point, case.rng))
