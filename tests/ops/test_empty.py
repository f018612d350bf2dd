"""Empty and scalar inputs: every op with a dimension that may be 0 returns the shapes that its symbols specify."""

import numpy as np
import pytest

from app.autodiff.absent import Absent
from app.errors import Unprocessable
from app.gradcheck.reference import reference_at
from ops import FLOATS
from tests.ops.cases import REGISTRY, Case, answer, directions, used

# The value of the symbols of a shape that are not 0.
SOME = 3


def shapes(case: Case):
    """Yield the shapes of all inputs, with one symbol 0 and the others not; also () and (2, 0) for any shape."""
    symbols = sorted({s for slot in case.op.inputs for s in slot.shape if isinstance(s, str)})
    for symbol in symbols:
        for middle in [(0,), (2, 0), ()] if symbol == "..." else [(2,)]:
            sizes = {s: (0 if s == symbol else SOME,) for s in symbols} | {"...": middle}
            shape_by_input = {
                slot.name: tuple(n for s in slot.shape for n in (sizes[s] if isinstance(s, str) else (s,)))
                for slot in case.op.inputs
            }
            if symbol == "..." or "..." not in symbols:
                yield shape_by_input


def inputs(case: Case, shapes):
    """Return numbers of those shapes: halves for a float, 0 for an integer."""
    dtypes = {slot.name: case.op.dtype_of(slot, "float32") for slot in case.op.inputs}
    return {name: np.full(shape, 0.5 if dtypes[name] in FLOATS else 0) for name, shape in shapes.items()}


def empty_cases():
    for op in REGISTRY.ops.values():
        case = Case(op, op.examples[0])
        for shape_by_input in shapes(case):
            try:
                case.point(inputs=inputs(case, shape_by_input))
            except Unprocessable:
                continue
            # v1 traces what graph does.
            for mode in (mode for mode in op.modes if mode != "v1"):
                name = "-".join(map(str, shape_by_input.values())).replace(" ", "")
                yield pytest.param(case, shape_by_input, mode, id=f"{op.name}-{name}-{mode}")


EMPTY = list(empty_cases())


@pytest.mark.share(3)
@pytest.mark.slow
@pytest.mark.parametrize(("case", "shape_by_input", "mode"), EMPTY)
def test_empty_inputs_have_empty_results(case: Case, shape_by_input, mode) -> None:
    point = case.point("float32", mode, inputs(case, shape_by_input))
    expected = reference_at(point, point.inputs)
    answers = answer(point, "vjp", used(directions(point, case.rng), "vjp"))
    for slot, y in zip(case.op.outputs, expected, strict=True):
        shape = answers[f"outputs/{slot.name}"].shape
        assert shape == np.shape(y)
        assert shape == point.output_shapes[slot.name]
    for name, x in point.inputs.items():
        dx = answers[f"gradients/{name}"]
        assert dx == Absent.NOT_DIFFERENTIABLE if isinstance(dx, Absent) else dx.shape == x.shape


def test_every_elementwise_op_accepts_scalar_and_empty_inputs() -> None:
    accepted = [(case.values[0].op.name, shape) for case in EMPTY for shape in case.values[1].values()]
    elementwise = {op.name for op in REGISTRY.ops.values() if op.batching_for(op.attrs()) == "elementwise"}
    for shape in [(), (0,), (2, 0)]:
        assert elementwise <= {name for name, other in accepted if other == shape}
