"""The cases of ``benchmarks.ops``: each op at the shapes of its first example, and at 1,000 numbers.

A case is data, and needs NumPy alone: the server of the peer has no TensorFlow. ``tests/benchmarks`` compares the
shapes and attributes with those of the ops' pages.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np

from benchmarks import glue_gradients, op_gradients
from benchmarks.op_gradients import Array, Shape

Numbers: TypeAlias = Sequence[float] | Array

EXAMPLE, THOUSAND = "first example", "about 1,000 numbers"
SIZES = (EXAMPLE, THOUSAND)


@dataclass(frozen=True)
class Case:
    """An op at one size: the shapes of its inputs and cotangents, its attributes, and its gradient in NumPy.

    ``constants`` names the inputs without a gradient.
    """

    op: str
    size: str
    gradient: Callable[..., Any] = field(repr=False)
    inputs: Mapping[str, Shape]
    cotangents: Mapping[str, Shape]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    constants: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The name of its model in UM-Bridge, and of its bare call."""
        return f"{self.op}-{SIZES.index(self.size)}"

    @property
    def numbers(self) -> int:
        """How many numbers its inputs have."""
        return sum(map(math.prod, self.inputs.values()))

    @property
    def variables(self) -> list[str]:
        """The inputs with a gradient."""
        return [name for name in self.inputs if name not in self.constants]

    def flat_gradient(self, parameters: Sequence[Numbers], sens: Numbers) -> Array:
        """Return the gradient as UM-Bridge has it, for a model whose shapes are known.

        UM-Bridge differentiates one output with respect to one input. So the first input is all variables, one after
        the other, each other input a constant, and the output all differentiable outputs, one after the other.
        """
        first, *rest = parameters
        flat = {name: np.asarray(given) for name, given in zip(self.constants, rest, strict=True)}
        flat |= dict(zip(self.variables, pieces(first, [self.inputs[name] for name in self.variables]), strict=True))
        inputs = [flat[name].reshape(shape) for name, shape in self.inputs.items()]
        found = self.gradient(*inputs, *pieces(sens, self.cotangents.values()), **self.attrs)
        return np.concatenate([np.ravel(dx) for dx in several(found)])


def several(found: Any) -> tuple[Any, ...]:
    """Return the results of a function, which returns a single one bare."""
    return cast(tuple[Any, ...], found) if isinstance(found, tuple) else (found,)


def pieces(flat: Numbers, shapes: Iterable[Shape]) -> list[Array]:
    """Return numbers, one after the other, as float32 arrays of these shapes."""
    array, found = np.asarray(flat, np.float32), list[Array]()
    for shape in shapes:
        size = math.prod(shape)
        found.append(array[:size].reshape(shape))
        array = array[size:]
    return found


def of_two(op: str, gradient: Callable[..., Any]) -> list[Case]:
    """Return the cases of an op with inputs a and b and an output y of one shape."""
    shapes: dict[str, Shape] = {EXAMPLE: (2,), THOUSAND: (500,)}
    return [Case(op, size, gradient, {"a": one, "b": one}, {"y": one}) for size, one in shapes.items()]


def of_one(op: str, gradient: Callable[..., Any], *shapes: tuple[Shape, Shape], **attrs: Sequence[int]) -> list[Case]:
    """Return the cases of an op with an input x and an output y, with the shapes and attributes at each size."""
    return [
        Case(op, size, gradient, {"x": x}, {"y": y}, {name: values[i] for name, values in attrs.items()})
        for i, (size, (x, y)) in enumerate(zip(SIZES, shapes, strict=True))
    ]


def alike(op: str, gradient: Callable[..., Any], shape: Shape, **attrs: Any) -> list[Case]:
    """Return the cases of an op with one input x and one output y of the same shape."""
    shapes = {EXAMPLE: shape, THOUSAND: (1000,)}
    return [Case(op, size, gradient, {"x": one}, {"y": one}, attrs) for size, one in shapes.items()]


CASES = (
    *of_two("add", glue_gradients.added),
    *alike("cast_float64", op_gradients.passed, (3,)),
    *alike("clip_gradient", op_gradients.clipped, (2, 3)),
    Case("conv_eig", EXAMPLE, op_gradients.conv_eig, {"x": (1, 3, 4, 1), "f": (2, 2, 1, 2)}, {"w": (1, 2)}),
    Case("conv_eig", THOUSAND, op_gradients.conv_eig, {"x": (1, 14, 14, 4), "f": (3, 3, 4, 6)}, {"w": (1, 6)}),
    Case("concat", EXAMPLE, glue_gradients.joined, {"a": (2, 2), "b": (2, 1)}, {"y": (2, 3)}),
    Case("concat", THOUSAND, glue_gradients.joined, {"a": (10, 50), "b": (10, 50)}, {"y": (10, 100)}),
    *of_two("divide", glue_gradients.divided),
    *of_one("flatten", glue_gradients.reshaped, ((2, 3), (6,)), ((10, 100), (1000,))),
    *alike("gradient_reversal", op_gradients.reversed_gradient, (2, 3)),
    *alike("log1pexp", op_gradients.log1pexp, (5,)),
    *alike("log1pexp2", op_gradients.log1pexp, (5,)),
    Case("matmul", EXAMPLE, glue_gradients.matrix_product, {"a": (1, 3), "b": (3, 2)}, {"y": (1, 2)}),
    Case("matmul", THOUSAND, glue_gradients.matrix_product, {"a": (20, 25), "b": (25, 20)}, {"y": (20, 20)}),
    Case("matvec", EXAMPLE, glue_gradients.matrix_vector, {"a": (2, 3), "x": (3,)}, {"y": (2,)}),
    Case("matvec", THOUSAND, glue_gradients.matrix_vector, {"a": (30, 32), "x": (32,)}, {"y": (30,)}),
    *of_one("mean", glue_gradients.averaged, ((2, 3), (2,)), ((10, 100), (10,))),
    *of_two("multiply", glue_gradients.multiplied),
    *alike("relu", op_gradients.rectified, (4,)),
    *of_one("reshape", glue_gradients.reshaped, ((1,), (1, 1)), ((1000,), (20, 50)), rows=(1, 20), columns=(1, 50)),
    *(
        Case(
            "roi_pool",
            size,
            op_gradients.roi_pool,
            {"features": (1, side, side, channels), "rois": (regions, 5)},
            {"pooled": (regions, 2, 2, channels)},
            {"pooled_height": 2, "pooled_width": 2},
            constants=("rois",),
        )
        for size, side, channels, regions in ((EXAMPLE, 3, 1, 2), (THOUSAND, 10, 10, 10))
    ),
    *alike("round_ste", op_gradients.passed, (6,)),
    Case("safe_norm", EXAMPLE, op_gradients.safe_norm, {"x": (3, 2)}, {"y": (3,)}),
    Case("safe_norm", THOUSAND, op_gradients.safe_norm, {"x": (100, 10)}, {"y": (100,)}),
    *alike("scale_gradient", op_gradients.scaled, (2, 3), scale=0.5),
    Case("self_adjoint_eig", EXAMPLE, op_gradients.self_adjoint_eig, {"a": (3, 3)}, {"w": (3,), "v": (3, 3)}),
    Case(
        "self_adjoint_eig",
        THOUSAND,
        op_gradients.self_adjoint_eig,
        {"a": (10, 10, 10)},
        {"w": (10, 10), "v": (10, 10, 10)},
    ),
    *alike("sign", op_gradients.passed_between, (7,)),
    *of_one("slice", glue_gradients.cut, ((2, 3), (2, 2)), ((10, 100), (10, 50)), begin=(1, 25), size=(2, 50)),
    *(
        Case(
            "softmax_cross_entropy",
            size,
            op_gradients.softmax_cross_entropy,
            {"logits": (rows, classes), "labels": (rows,)},
            {"loss": (rows,)},
            constants=("labels",),
        )
        for size, rows, classes in ((EXAMPLE, 2, 3), (THOUSAND, 100, 10))
    ),
    *alike("square", op_gradients.square, (2, 3)),
    *of_two("subtract", glue_gradients.subtracted),
    *of_one("sum", glue_gradients.summed, ((2, 3), (2,)), ((10, 100), (10,))),
    *alike("surrogate", op_gradients.passed_between, (6,)),
    *of_one("transpose", glue_gradients.transposed, ((2, 3), (3, 2)), ((20, 50), (50, 20))),
    *alike("zero_out", op_gradients.first_only, (5,)),
    *alike("zero_out_indexed", op_gradients.first_only, (3,)),
)
OPS = tuple(dict.fromkeys(case.op for case in CASES))
