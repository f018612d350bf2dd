"""Makers of small ops: x³ and others, with the gradients and claims that a test gives them."""

from ops import Claim, Example, Input, Op, Output, custom_gradient

WIDE = ("float64",)
BOTH = ("float32", "float64")
X = [-1.5, -0.25, 0.5, 2.0]


def elementwise(function, **changes) -> Op:
    """Return an elementwise op, in float64 by default."""
    dtypes = changes.pop("dtypes", WIDE)
    slot = changes.pop("slot", {})
    fields = {
        "name": "planted",
        "summary": "wrong",
        "doc": __doc__,
        "function": function,
        "reference": None,
        "inputs": (Input("x", dtypes, **slot),),
        "outputs": (Output("y", dtypes),),
        "mechanism": "custom_gradient",
        "source": "a test",
        "batching": "elementwise",
        "examples": (Example("four", {"x": X}),),
    }
    return Op(**(fields | changes))


def rows(function, **changes) -> Op:
    """Return an op of x (N, M) and w (M,), in float64."""
    fields = {
        "inputs": (Input("x", WIDE, ("N", "M")), Input("w", WIDE, ("M",))),
        "outputs": (Output("y", WIDE, ("N",)),),
        "batching": "none",
        "examples": (Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]], "w": [1.5, -0.75]}),),
    }
    return elementwise(function, **(fields | changes))


def cube(x):
    return x * x * x


def cube_vjp(x, dy):
    return 3 * x * x * dy


def cube_vjp_vjp(x, dy, ddx):
    return 6 * x * dy * ddx, 3 * x * x * ddx


def made(first=cube_vjp, second=None, value=cube, **changes) -> Op:
    return elementwise(custom_gradient(value, first, second), **changes)


def claiming(claim: Claim, first=cube_vjp, second=None) -> Op:
    return made(first, second, claim=lambda attrs: claim)
