"""The table of tests: every op of the registry at every example. A new op needs no code here."""

import numpy as np
import pytest

from app.autodiff.absent import Absent
from app.autodiff.derivatives import hessian_diagonal
from app.autodiff.point import Point
from app.errors import Unprocessable
from app.tensors.dtypes import DTYPES
from ops import INTEGERS, MODES, Mode, Op
from tests.ops.cases import (
    REGISTRY,
    Case,
    Truth,
    answer,
    bounds,
    cases,
    close,
    differentiable_inputs,
    directions,
    eps,
    kinds,
    tiny,
    truth,
    truth_of,
    used,
)
from tests.ops.together import takes_long, together, together_along_many, truth_at_example, truth_of_together

OPS = list(REGISTRY.ops.values())
CASES = cases()
# The modes that trace anew what graph has traced; XLA compiles it too.
COMPILED = ("xla", "v1")
OF_MANY_SHAPES = ("log1pexp", "safe_norm")
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_op = pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
FIRST_CASES = list({case.op.name: case for case in reversed(CASES)}.values())
every_dtype = pytest.mark.parametrize(
    ("case", "dtype"), [pytest.param(c, d, id=f"{c}-{d}") for c in CASES for d in c.dtypes]
)


@pytest.mark.share(3)
@every_dtype
def test_forward_matches_the_reference(case: Case, dtype: str) -> None:
    point = case.point(dtype)
    inputs = {name: x.astype(np.float64) if x.dtype.kind not in "iub" else x for name, x in point.inputs.items()}
    attrs = point.spec.attrs.model_dump()

    def reference(leaves):
        found = case.op.reference(*(leaves.get(name, x) for name, x in inputs.items()), **attrs)
        ys = found if isinstance(found, tuple) else [found]
        return dict(zip([slot.name for slot in case.op.outputs], ys, strict=True))

    leaves = {name: inputs[name] for name in differentiable_inputs(point)}
    within = bounds(reference, leaves, eps(dtype), elementwise=case.elementwise)
    along = used(directions(point, case.rng), "gradients")
    expected, found = reference(leaves), answer(point, "gradients", along, case.order)
    for slot, (name, y) in zip(case.op.outputs, expected.items(), strict=True):
        assert found[f"outputs/{name}"].dtype == DTYPES[case.op.dtype_of(slot, dtype)].numpy
        close(found[f"outputs/{name}"], y, within[name] + tiny(dtype), f"{case} {name} in {dtype}")


# The extreme examples of narrow dtypes find overflows, which other examples and float64 do not.
@pytest.mark.parametrize(
    ("case", "dtype"), [pytest.param(c, d, id=f"{c}-{d}") for c in CASES for d in c.dtypes if d != c.exact]
)
def test_every_dtype_matches_the_widest(case: Case, dtype: str) -> None:
    point = case.point(dtype)
    rounded = case.point(inputs=point.inputs)
    along = used(directions(point, case.rng), "gradients")
    wide = {field: {name: dy.astype(np.float64) for name, dy in named.items()} for field, named in along.items()}
    expected = truth(rounded, "gradients", wide, case.order)
    agree(expected, answer(point, "gradients", along, case.order), dtype, f"{case} in {dtype}")


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("case", "mode"), [pytest.param(case, mode, id=f"{case}-{mode}") for case in FIRST_CASES for mode in case.op.modes]
)
def test_forward_alone_matches_forward_with_derivatives(case: Case, mode: Mode) -> None:
    expected = truth_of(case, "vjp")
    for name, y in answer(case.point(mode=mode), "forward", {}).items():
        close(y, expected.found[name], expected.bound(name, case.exact), f"{case} {name} in mode {mode}")


def mode_cases() -> list:
    """Return every case in every mode; the modes that trace anew get one case for each set of attributes.

    v1 also gets all cases of a few ops, which show that its trace serves other shapes; XLA compiles for each shape.
    """
    choices = {(case.op.name, repr(case.point().spec.attrs.static())): case for case in reversed(CASES)}
    compiled = [case for case in choices.values() if case.op.cost is None or case in FIRST_CASES]
    in_mode = {"xla": compiled, "v1": [case for case in CASES if case in compiled or case.op.name in OF_MANY_SHAPES]}
    chosen = [(case, mode) for case in CASES for mode in case.op.modes if case in in_mode.get(mode, CASES)]
    return [
        pytest.param(case, mode, id=f"{case}-{mode}", marks=() if case in FIRST_CASES else pytest.mark.thorough)
        for case, mode in chosen
    ]


@pytest.mark.share(3)
@pytest.mark.parametrize(("case", "mode"), mode_cases())
def test_all_modes_have_the_same_derivatives(case: Case, mode: Mode) -> None:
    point = case.point(mode=mode)
    if mode in COMPILED and takes_long(case):
        found = together(point, directions(point, case.rng))
        agree(truth_at_example(case), found, case.exact, f"{case} in mode {mode}")
        return
    # The first gradient is the vjp, which need not be traced twice.
    for kind in [kind for kind in kinds(case) if mode in ("graph", "eager") or kind != "vjp"]:
        along = used(directions(point, case.rng), kind)
        agree(truth_of(case, kind), answer(point, kind, along, case.order), case.exact, f"{case} {kind} in mode {mode}")


# Decompositions take seconds to trace; graph and v1 vectorise in the same way, so one of them is enough. XLA compiles
# what graph traces, once more for each number of directions; conv_eig contains self_adjoint_eig, so that one is enough,
# and it takes 11 s.
BATCHED_CASES = [
    pytest.param(
        case,
        mode,
        id=f"{case}-{mode}",
        marks=pytest.mark.thorough if mode == "xla" else (),
    )
    for case in FIRST_CASES
    for mode in case.op.modes
    if case.op.cost is None or mode not in COMPILED or (mode == "xla" and case.op.name != "conv_eig")
]


@pytest.mark.share(3)
@pytest.mark.parametrize(("case", "mode"), BATCHED_CASES)
def test_a_batch_of_directions_matches_single_directions(case: Case, mode: Mode) -> None:
    rng, point = case.rng, case.point(mode=mode)
    if mode in COMPILED and takes_long(case):
        check_many_vectors(point, rng, case)
    for kind, field in (("vjp", "cotangents"), ("jvp", "tangents"), ("hvp", "vectors")):
        if kind not in kinds(case) or (kind != "vjp" and mode in COMPILED and takes_long(case)):
            continue
        singles = [used(directions(point, rng), kind) for _ in range(3)]
        stacked = {name: np.stack([one[field][name] for one in singles]) for name in singles[0][field]}
        together = answer(point, kind, singles[0] | {field: stacked}, batched=True)
        for i, one in enumerate(singles):
            expected = truth(case.point(), kind, singles[0] | {field: one[field]})
            found = {name: x if isinstance(x, Absent) else x[i] for name, x in together.items()}
            wanted = {name: x for name, x in expected.found.items() if name in found}
            agree(Truth(wanted, expected.units), found, case.exact, f"{case} batched {kind} in mode {mode}")


@pytest.mark.parametrize(
    ("case", "mode"),
    [
        pytest.param(case, mode, id=f"{case}-{mode}")
        for case in FIRST_CASES
        for mode in case.op.modes
        if mode == "graph" or case.op.name in OF_MANY_SHAPES
    ],
)
def test_no_directions_give_results_without_rows(case: Case, mode: Mode) -> None:
    point, along = case.point(mode=mode), directions(case.point(), case.rng)
    for kind, field in (("vjp", "cotangents"), ("jvp", "tangents"), ("hvp", "vectors")):
        if kind not in kinds(case):
            continue
        none = {name: np.zeros((0, *direction.shape), direction.dtype) for name, direction in along[field].items()}
        single = truth(case.point(), kind, used(along, kind)).found
        for name, x in answer(point, kind, used(along, kind) | {field: none}, batched=True).items():
            assert isinstance(x, Absent) or x.shape == (0, *np.shape(single[name])), f"{case} {kind} in mode {mode}"


def check_many_vectors(point: Point, rng: np.random.Generator, case: Case) -> None:
    """Check the products and the tangents along many vectors, in one program."""
    singles = [directions(point, rng) for _ in range(3)]
    cotangents = singles[0]["cotangents"]
    stacked = {name: np.stack([one["vectors"][name] for one in singles]) for name in singles[0]["vectors"]}
    many = together_along_many(point, {"cotangents": cotangents, "vectors": stacked})
    for i, one in enumerate(singles):
        expected = truth_of_together(case.point(), {**one, "cotangents": cotangents})
        found = {name: x if isinstance(x, Absent) else x[i] for name, x in many.items()}
        wanted = {name: x for name, x in expected.found.items() if name.startswith(("products/", "slots/"))}
        agree(Truth(wanted, expected.units), found, case.exact, f"{case} along many vectors in mode {point.spec.mode}")


def agree(expected: Truth, found, dtype: str, what: str) -> None:
    assert set(found) == set(expected.found), what
    for name, value in expected.found.items():
        bound = expected.bound(name, dtype) if name in expected.units else 0.0
        close(found[name], value, bound, f"{what}: {name}")


@pytest.mark.parametrize("case", [case for case in CASES if not case.linear], ids=str)
def test_a_gradient_that_is_not_linear_has_no_jvp(case: Case) -> None:
    with pytest.raises(Unprocessable, match="not linear in the cotangent"):
        answer(case.point(), "jvp", used(directions(case.point(), case.rng), "jvp"))


@every_case
def test_the_diagonal_matches_the_hessian(case: Case) -> None:
    point, along = case.point(), used(directions(case.point(), case.rng), "hessian")
    wrt = tuple(point.inputs)
    if not case.elementwise:
        with pytest.raises(Unprocessable, match="not elementwise"):
            hessian_diagonal(point, wrt, along["cotangents"]).run()
        return
    whole = answer(point, "hessian", along)
    for name, diagonal in hessian_diagonal(point, wrt, along["cotangents"]).run().items():
        block = whole[f"hessian/{name}/{name}"]
        if isinstance(diagonal, Absent):
            close(diagonal, block, 0.0, f"{case} {name}")
        else:
            size = diagonal.size
            np.testing.assert_array_equal(block.reshape(size, size), np.diag(diagonal.ravel()))


INTEGER_CASES = [
    pytest.param(case, dtype, mode, id=f"{case}-{dtype}-{mode}")
    for case in CASES
    for dtype in case.op.dtypes
    for mode in case.op.modes
    if dtype in INTEGERS
]


@pytest.mark.parametrize(("case", "dtype", "mode"), INTEGER_CASES)
def test_integers_have_values_and_no_gradients(case: Case, dtype: str, mode: Mode) -> None:
    point = case.point(dtype, mode)
    expected = case.op.reference(*point.inputs.values(), **point.spec.attrs.model_dump())
    found = answer(point, "forward", {})
    for slot, y in zip(case.op.outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert found[f"outputs/{slot.name}"].dtype == np.dtype(case.op.dtype_of(slot, dtype))
        np.testing.assert_array_equal(found[f"outputs/{slot.name}"], y)
    gradients = answer(point, "gradients", {})
    assert {value for name, value in gradients.items() if name.startswith("gradients/")} == {Absent.NOT_DIFFERENTIABLE}


@every_op
def test_every_page_is_documented(op: Op) -> None:
    assert op.doc
    assert "\nSource: " in op.doc
    assert "y = " in op.doc or "S = " in op.doc
    assert op.source.startswith("https://")
    assert op.summary
    assert not op.summary.endswith(".")
    assert len({example.name for example in op.examples}) == len(op.examples)


@every_case
def test_samples_are_valid_in_every_dtype(case: Case) -> None:
    if case.op.sample is None:
        return
    for dtype in case.op.dtypes:
        for _ in range(10):
            drawn = case.op.sample(case.rng, dtype, case.point().spec.attrs)
            point = case.point(dtype, inputs=drawn)
            assert all(x.dtype == point.inputs[name].dtype for name, x in drawn.items())


@pytest.mark.parametrize(
    ("case", "mode"), [pytest.param(c, m, id=f"{c}-{m}") for c in FIRST_CASES for m in MODES if m not in c.op.modes]
)
def test_a_mode_without_a_kernel_is_refused(case: Case, mode: Mode) -> None:
    with pytest.raises(Unprocessable, match="has no kernel for this mode"):
        case.point(mode=mode)


def test_every_page_is_available() -> None:
    assert REGISTRY.unavailable == ()
