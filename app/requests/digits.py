"""The uncertainty of an answer: the work of an operation at a point, and again where its results show the error."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from app.autodiff.absent import Absent
from app.autodiff.point import Point
from app.autodiff.uncertainty import others, uncertainties
from app.autodiff.widest import typed
from app.errors import wrong
from app.execution.calls import Steps, Work, run
from app.requests.points import leaves_of
from app.runtime.cancellation import Checkpoint
from ops import Array

Tree: TypeAlias = Any
"""A response before it is written: objects and lists of arrays and ``Absent``."""
Directions: TypeAlias = Mapping[str, dict[str, Array] | None]
"""The cotangents, tangents or vectors of a request, by its field; ``None`` for an omitted field."""


def with_uncertainty(
    work: Callable[[Point, Directions], Work],
    tree: Callable[[Any], dict[str, Tree]],
    point: Point,
    directions: Directions,
    sides: Mapping[str, Literal["inputs", "outputs"]],
) -> Steps:
    """Return steps whose result is that of the work at the point, and the uncertainties of its tree.

    ``sides`` has the side of the op that each field of the directions belongs to. The steps raise ``Unprocessable`` if
    no number of the answer is rounded, and as the packing of points with ``errors``.
    """

    def at(other: Point) -> Work:
        spec = other.spec
        dtypes = {"inputs": spec.inputs.dtypes, "outputs": spec.outputs.dtypes}
        there = {name: found and typed(found, dtypes[sides[name]]) for name, found in directions.items()}
        return work(other, there)

    def steps(checkpoint: Checkpoint) -> tuple[Any, dict[str, Tree]]:
        result = run(work(point, directions), checkpoint)
        trees = list[dict[str, Tree]]()
        for other in others(point, [found for found in directions.values() if found]):
            checkpoint()
            trees.append(tree(run(at(other), checkpoint)))
        estimates = uncertainties(tree(result), trees)
        kinds = {leaf if isinstance(leaf, Absent) else None for leaf in leaves_of(estimates)}
        if Absent.WHOLE in kinds and None not in kinds:
            message = "integers and bools are not rounded, so they have no digits to estimate"
            raise wrong(("digits",), message, expected="an answer with floats", got="true")
        return result, estimates

    return steps
