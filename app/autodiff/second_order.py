"""The second order taken apart, as checks look at it: x and dy as leaves of their own, or dy as a function of x."""

from collections.abc import Mapping

import numpy as np

from app.autodiff.evaluation import Evaluation, as_found
from app.autodiff.point import Point
from app.runtime.modes import Key
from ops import Array


def second(point: Point, cotangents: Mapping[str, Array], vectors: Mapping[str, Array]) -> dict[Key, Array]:
    """Return what there is at one point, x and dy taken as leaves of their own, zeros where there is no path.

    Keys: ``("outputs", y)``; ``("gradients", x)``, dx at ``cotangents``; and of Σ ⟨dx, v⟩, v the ``vectors``, the
    derivatives ``("products", x)`` in x and ``("slots", y)`` in dy. Cotangents are of all differentiable outputs and
    vectors of all differentiable inputs.
    """
    results = Evaluation(point, "second", as_found, cotangents=cotangents, along=vectors, outputs=True).run()
    zeros: dict[Key, Array] = {("slots", name): dy for name, dy in cotangents.items()}
    zeros |= {(what, name): vector for what in ("gradients", "products") for name, vector in vectors.items()}
    return _without_shapes(results, zeros)


def composite(point: Point, weights: Mapping[str, Array], vectors: Mapping[str, Array]) -> dict[Key, Array]:
    """Return the gradient of Σ c y²/2, c the ``weights``, and its own derivative along the ``vectors``.

    Keys: ``("gradients", x)`` and ``("products", x)``, zeros where there is no path.
    """
    results = Evaluation(point, "composite", as_found, cotangents=weights, along=vectors).run()
    zeros: dict[Key, Array] = {
        (what, name): vector for what in ("gradients", "products") for name, vector in vectors.items()
    }
    return _without_shapes(results, zeros)


def _without_shapes(results: Mapping[Key, Array | None], zeros: Mapping[Key, Array]) -> dict[Key, Array]:
    return {
        key: np.zeros_like(zeros[key]) if value is None else value
        for key, value in results.items()
        if not str(key[0]).endswith("shape")
    }
