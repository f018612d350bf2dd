"""Rows that share calls: their bits depend on nothing else, and what is not independent shares none."""

import gc
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import Field

from app.autodiff import derivatives, padded_rows, row_trial
from app.autodiff.binding import bind
from app.autodiff.derived import derived
from app.autodiff.draws import draw, draw_from_domains
from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.matrices import hessian, hessian_of_rows, jacobian, jacobian_of_rows
from app.autodiff.packing import Whole
from app.autodiff.padded_rows import COST, NUMBERS, ROWS, SHORT, SMALL_ROWS, PaddedRows, packings_of
from app.autodiff.point import Point
from app.autodiff.row_trial import BESIDE
from app.errors import Unprocessable
from app.execution.assembly import build
from app.requests.operations import OPERATIONS
from app.requests.plans import Plans
from app.runtime import modes
from app.settings import Settings
from app.telemetry.counters import NOT_RECORDED
from ops import Array, Attrs, Input, Op, Output, Tensor, discover
from ops._pages import load_page
from tests.autodiff.test_padding import bits, together
from tests.gradcheck.wrong.making import BOTH, rows

CPU = "/device:CPU:0"
REGISTRY = discover().ops
CORPUS = Path(__file__).parents[1] / "rows"
INDEPENDENT, SEEMING = (sorted((CORPUS / folder).glob("*.py")) for folder in ("independent", "seeming"))
KINDS = ("forward", "vjp", "gradients", "hvp")
# The scaling of a matrix exponential in TensorFlow is that of the largest matrix.
JOINED_BY_TENSORFLOW = ("row_expm",)
# It is joined in eager mode alone.
RIGHT_IN_CALLS = ("in_eager",)


@pytest.fixture(autouse=True)
def _any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine makes no row one that takes long."""
    monkeypatch.setattr(row_trial, "LONGEST_S", 60.0)


def point(op: Op, inputs: Mapping[str, Array], dtype: str = "", mode: str = "graph", attrs: Any = None) -> Point:
    def given(value: Any, kind: str, loc: Any) -> Array:
        return np.asarray(value, kind)

    run = {"device": CPU, "max_elements": 1 << 22}
    return bind(op, inputs, attrs or {}, dtype or op.dtypes[0], given, mode=mode, **run)


def evaluation(kind: str, at: Point, seed: int = 0) -> Evaluation[Any]:
    """Return an evaluation with directions that differ from number to number."""
    rng, side = np.random.default_rng(seed), at.spec.inputs
    wrt = tuple(name for name in side.differentiable if name not in at.op.shared)
    shapes = {name: at.output_shapes[name] or () for name in at.spec.outputs.differentiable}
    dys = {name: rng.uniform(0.5, 2, shape).astype(at.spec.outputs.dtypes[name]) for name, shape in shapes.items()}
    vectors = {name: rng.uniform(0.5, 2, at.inputs[name].shape).astype(side.dtypes[name]) for name in wrt}
    match kind:
        case "forward":
            return derivatives.forward(at)
        case "vjp":
            return derivatives.vjp(at, wrt, dys, batched=False, outputs=True)
        case "gradients":
            return derivatives.gradients(at, wrt, None, 2)
        case _:
            return derivatives.hvp(at, wrt, dys, vectors, batched=False)


def of_rows(one: Evaluation[Any]) -> PaddedRows:
    packing, _ = one.packed
    assert isinstance(packing, PaddedRows)
    return packing


def verdicts(op: Op, kinds: Sequence[str]) -> list[str]:
    """Return why rows of the examples share no call, for each dtype; "" where they do."""
    found: list[str] = []
    for example in op.examples:
        for dtype in op.dtypes[:2]:
            for kind in kinds:
                one = evaluation(kind, point(op, example.inputs, dtype, attrs=example.attrs))
                compute([one])
                # Rows of a shape that was refused before are not packed.
                found.append("refused" if isinstance(one.packed[0], Whole) else of_rows(one).why_not or "")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", INDEPENDENT, ids=lambda path: path.stem)
def test_independent_rows_share_calls(path: Path) -> None:
    found = set(verdicts(load_page(path), KINDS))
    assert found <= {BESIDE, "refused"} if path.stem in JOINED_BY_TENSORFLOW else found == {""}


@pytest.mark.slow
@pytest.mark.parametrize("path", SEEMING, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:(invalid value|overflow):RuntimeWarning")
def test_rows_that_only_seem_independent_share_no_call(path: Path) -> None:
    assert any(verdicts(load_page(path), KINDS)) == (path.stem not in RIGHT_IN_CALLS)


CASES: Mapping[str, tuple[int, ...]] = {"safe_norm": (10,), "softmax_cross_entropy": (3,), "self_adjoint_eig": (4, 4)}


def some_rows(op: Op, shape: tuple[int, ...], count: int, rng: np.random.Generator) -> dict[str, Array]:
    x = rng.uniform(-3, 3, (count, *shape))
    labels = {"labels": rng.integers(0, shape[-1], count)} if op.name == "softmax_cross_entropy" else {}
    return {op.inputs[0].name: x, **labels}


@pytest.mark.parametrize("kind", ["vjp", pytest.param("hvp", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_bits_do_not_depend_on_company(name: str, kind: str) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(7)
    for dtype in ("float32", "float64"):
        counts = (1, 3, 1, 2, 5, 1, 3)
        members = [some_rows(op, CASES[name], count, rng) for count in counts]
        calls = [evaluation(kind, point(op, inputs, dtype), seed) for seed, inputs in enumerate(members)]
        assert len({one.batch_key for one in calls}) == 1
        shared = [one.finish(results) for one, results in zip(calls, compute(calls), strict=True)]
        for one, result in zip(calls, shared, strict=True):
            assert bits(one.finish(compute([one])[0])) == bits(result)
            # Rows as they are, without padding, differ by rounding only.
            for padded, alone in zip(flat(result), flat(one.run()), strict=True):
                np.testing.assert_allclose(padded, alone, rtol=1e-4, atol=1e-5)


def flat(found: Any) -> list[Array]:
    if isinstance(found, np.ndarray):
        return [found]
    values = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else ()
    return [one for value in values for one in flat(value)]


def test_vectors_and_batches_of_any_rank_share_a_call() -> None:
    op, rng = REGISTRY["safe_norm"], np.random.default_rng(8)
    calls = [
        evaluation("vjp", point(op, {"x": rng.uniform(-3, 3, shape)}))
        for shape in ((6,), (1, 6), (2, 3, 6), (6,), (1, 1, 1, 6))
    ]
    assert len({one.batch_key for one in calls}) == 1
    shared = [*zip(calls, compute(calls), strict=True), *zip(calls[::-1], compute(calls[::-1]), strict=True)]
    for one, results in shared:
        ys, dxs = one.finish(results)
        x = one.point.inputs["x"]
        np.testing.assert_allclose(ys["y"], np.sqrt((x**2).sum(-1)), rtol=1e-5)
        assert dxs["x"].shape == x.shape


@pytest.mark.parametrize("name", ["after_nan", "after_huge", "alternating", "first_row", "after_twins", "many_rows"])
def test_some_rows_that_only_seem_independent(name: str) -> None:
    """One for each kind of batch that shows it."""
    assert all(verdicts(load_page(CORPUS / "seeming" / f"{name}.py"), ["forward"]))


def positive(x: Tensor) -> Tensor:
    with tf.control_dependencies([tf.debugging.assert_positive(x)]):
        return tf.math.log(tf.identity(x))


def test_what_is_left_of_a_call_is_filled_with_valid_rows() -> None:
    op = rows(positive, None, slot={"domain": (0.5, 2.0)})
    one = evaluation("forward", point(op, {"x": np.array([[1.5, 0.75], [3.0, 2.0]])}))
    ys = one.finish(compute([one])[0])
    np.testing.assert_allclose(ys["y"], np.log(one.point.inputs["x"]))
    assert of_rows(one).why_not == ""


def test_a_row_is_computed_once_however_long_it_takes() -> None:
    """What fills a call are other rows: some kernels take as long as the number that they get is large."""
    op = REGISTRY["safe_norm"]
    one = evaluation("forward", point(op, {"x": np.full((2, 12), 1e8)}))
    compute([one])
    packing, seen = of_rows(one), list[Array]()
    with pytest.MonkeyPatch.context() as patch:
        run = modes.run

        def noted(program: Any, mode: Any, leaves: Sequence[Array], device: str) -> Any:
            seen.extend(leaves)
            return run(program, mode, leaves, device)

        patch.setattr(modes, "run", noted)
        compute([one])
    assert (seen[0] == 1e8).all(axis=1).sum() == 2
    assert len(seen[0]) == packing.length


def test_packings_keep_no_tensors_of_requests() -> None:
    given = [np.full((1, 2), 0.5), np.arange(4096.0)]
    before = [sys.getrefcount(x) for x in given]
    one = evaluation("forward", point(SCALED, dict(zip(("x", "table"), given, strict=True)), "float64"))
    packing = of_rows(one)
    compute([one])
    assert packing.why_not == ""
    assert [len(filler) for filler in packing.filler] == [2, 0]
    del one
    gc.collect()
    assert [sys.getrefcount(x) for x in given] == before


def limited(x: Tensor, *, limit: Tensor) -> Tensor:
    total = tf.reduce_sum(x, axis=-1)
    with tf.control_dependencies([tf.debugging.assert_less(total, limit, message="a row is over the limit")]):
        return tf.math.log(limit - tf.identity(total))


class LimitAttrs(Attrs):
    limit: float = Field(default=10.0, gt=0)


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_op_may_refuse_what_fills_a_call(is_shared: bool) -> None:
    """With other attributes, or beside another input that all rows use, than those of the first request."""
    inputs = [Input("x", BOTH, ("N", "M"), domain=(0.1, 1.0)), Input("limit", BOTH, (), domain=(9.0, 10.0))]
    op = (
        rows(
            lambda x, limit: limited(x, limit=limit),
            None,
            name="shared_limit",
            inputs=inputs,
            out=("N",),
            dtypes=BOTH,
            shared=("limit",),
        )
        if is_shared
        else rows(limited, None, inputs=inputs[:1], out=("N",), dtypes=BOTH, attrs=LimitAttrs)
    )

    def at(x: list[float], limit: float) -> Evaluation[Any]:
        given: dict[str, Any] = {"x": np.array([x])}
        return evaluation(
            "forward",
            point(
                op,
                given | {"limit": np.array(limit)} if is_shared else given,
                attrs={} if is_shared else {"limit": limit},
            ),
        )

    first, low = at([0.5, 1, 0.75], 10), at([0.05, 0.05, 0.05], 0.3)
    compute([first])
    assert of_rows(first).why_not == ""
    (ys,) = (low.finish(each) for each in compute([low]))
    np.testing.assert_allclose(ys["y"], np.log([0.15]), rtol=1e-5)
    with pytest.raises(Unprocessable, match="over the limit"):
        compute([at([0.2, 0.2, 0.2], 0.3)])


def test_an_output_may_have_the_name_of_a_shared_input() -> None:
    inputs = [Input("x", BOTH, ("N", "M")), Input("w", BOTH, ("M",))]
    op = rows(
        lambda x, w: tf.reduce_sum(x * x * w, axis=-1),
        None,
        name="named",
        inputs=inputs,
        outputs=(Output("w", BOTH, ("N",)),),
        dtypes=BOTH,
        shared=("w",),
    )
    at = point(op, {"x": np.array([[1.0, 2, 3], [4, 5, 6]]), "w": np.array([2.0, 3, 4])})
    cotangents = {"w": np.array([1.0, 0.5], np.float32)}
    small = hessian_of_rows(at, ("x",), cotangents)
    assert small is not None
    for found, expected in zip(
        flat(small.finish(compute([small])[0])), flat(hessian(at, ("x",), cotangents, run_alone)), strict=True
    ):
        np.testing.assert_allclose(found, expected)


def test_a_tangent_of_an_input_of_all_rows_is_shared_too() -> None:
    at = point(SCALED, {"x": np.array([[0.5, 1.5]]), "table": np.ones(3)})
    one = derivatives.jvp(at, {"table": np.array([1.0, 2, 3], np.float32)}, batched=False)
    found = one.finish(compute([one])[0])
    assert of_rows(one).why_not == ""
    np.testing.assert_allclose(found["y"], [[3, 9]])


def test_rows_that_take_long_share_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their trial would hold up other requests."""
    monkeypatch.setattr(row_trial, "LONGEST_S", 0)
    one = evaluation("forward", point(REGISTRY["safe_norm"], {"x": np.ones((1, 13))}))
    compute([one])
    assert "takes so long" in (of_rows(one).why_not or "")


def test_a_call_has_fewer_rows_where_rows_take_long() -> None:
    op, x = REGISTRY["safe_norm"], np.ones((1, 4))
    for cost, count in ((1, SMALL_ROWS), (COST // 4, 4), (COST // 2 - 1, 2), (COST, 1), (100 * COST, 1)):
        costly = replace(op, cost=lambda dims, cost=cost: cost * math.prod(dims["..."]))
        one = evaluation("forward", point(costly, {"x": x}))
        assert one.packed[0].length_for(1) == count, cost


@pytest.mark.parametrize("name", ["safe_norm", "square"])
def test_a_few_directions_of_rows_are_short_work(name: str) -> None:
    engine, _ = build(Settings())
    plans, op = Plans(engine), engine.op(name)
    x = {"dtype": "float32", "shape": [3], "data": [1.0, 2.0, 3.0]}
    for count, is_short in ((4, True), (80, False)):
        tangents = {"x": {"dtype": "float32", "shape": [count, 3], "data": [0.5] * count * 3}}
        fields = {"inputs": {"x": x}, "tangents": tangents, "batched": True}
        call = plans.plan(OPERATIONS["jvp"], op, fields).call(fields, lambda result: result, NOT_RECORDED)
        assert call.is_long != (is_short and name == "safe_norm")


def test_a_call_has_fewer_rows_where_rows_are_large() -> None:
    op = REGISTRY["safe_norm"]

    def rows_for(n: int, count: int = 1) -> int:
        packing, _ = evaluation("forward", point(op, {"x": np.ones((count, n))})).packed
        return packing.length_for(1)

    assert rows_for(1) == rows_for(SHORT // ROWS) == ROWS
    assert rows_for(SHORT // ROWS + 1) == ROWS // 2
    assert rows_for(SHORT // SMALL_ROWS + 1) == rows_for(NUMBERS // SMALL_ROWS) == SMALL_ROWS
    assert rows_for(NUMBERS // SMALL_ROWS + 1) == SMALL_ROWS // 2
    assert rows_for(NUMBERS // 2) == 2
    assert rows_for(NUMBERS) == rows_for(10 * NUMBERS) == 1


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"x": np.ones((ROWS + 1, 3))}, "more rows than a call has"),
        ({"x": np.ones((5, NUMBERS // 4))}, "more rows than a call of such rows has"),
        ({"x": np.ones((0, 3))}, "no rows"),
        ({"x": np.ones((1, 2 * NUMBERS))}, "large rows"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_what_is_not_padded_runs_by_itself(inputs: Mapping[str, Array], reason: str) -> None:
    one = evaluation("vjp", point(REGISTRY["safe_norm"], inputs))
    assert isinstance(one.packed[0], Whole), reason
    assert one.batch_key is None


@pytest.mark.parametrize("mode", ["eager", "v1"])
def test_other_modes_join_no_rows(mode: str) -> None:
    assert evaluation("vjp", point(REGISTRY["safe_norm"], {"x": np.ones((2, 3))}, mode=mode)).batch_key is None


def scaled(x: Tensor, table: Tensor) -> Tensor:
    return x * tf.reduce_sum(table)


SCALED = rows(
    scaled, None, inputs=[Input("x", BOTH, ("N", "M")), Input("table", BOTH, ("K",))], dtypes=BOTH, shared=("table",)
)


def test_inputs_of_all_rows_must_be_equal_bit_for_bit() -> None:
    x, table = np.ones((1, 2)), np.array([1.0, 0.0])
    keys = [
        evaluation("vjp", point(SCALED, {"x": x, "table": given})).batch_key
        for given in (table, table.copy(), -table, np.array([1.0, -0.0]), np.ones(3))
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_the_gradient_of_an_input_of_all_rows_shares_no_call() -> None:
    at = point(SCALED, {"x": np.ones((2, 2)), "table": np.ones(3)})
    one = derivatives.vjp(at, ("x", "table"), None, batched=False, outputs=False)
    assert one.batch_key is None
    assert one.finish(compute([one])[0])[1]["table"].tolist() == [4, 4, 4]


class StrengthAttrs(Attrs):
    strength: float = Field(default=0.0, ge=0, le=1)


def coupled(x: Tensor, *, strength: Tensor) -> Tensor:
    return tf.where(strength > 0, x - tf.reduce_mean(x, axis=0), x)


def test_the_trial_tries_other_attributes() -> None:
    op = rows(coupled, None, dtypes=BOTH, attrs=StrengthAttrs)
    one = evaluation("forward", point(op, {"x": np.ones((1, 2))}))
    compute([one])
    assert "bits of a row" in (of_rows(one).why_not or "")


def divided(x: Tensor) -> Tensor:
    return x * 1e-30 / tf.cast(tf.shape(x)[0], x.dtype)


def test_small_numbers_are_compared_too() -> None:
    one = evaluation("forward", point(rows(divided, None), {"x": np.ones((1, 2))}))
    compute([one])
    assert "padded rows differ" in (of_rows(one).why_not or "")


def centred(x: Tensor) -> Tensor:
    return x - tf.reduce_mean(x, axis=0)


def test_rows_that_depend_on_each_other_get_what_the_author_computes() -> None:
    op, rng = rows(centred, None), np.random.default_rng(9)
    members = [rng.uniform(-3, 3, (count, 2)) for count in (2, 3, 1)]
    for _ in range(2):  # before and after the trial
        found = together([evaluation("forward", point(op, {"x": x})) for x in members])
        for x, ys in zip(members, found, strict=True):
            np.testing.assert_allclose(ys["y"], x - x.mean(axis=0), atol=1e-12)


def picky(x: Tensor) -> Tensor:
    with tf.control_dependencies([tf.debugging.assert_less(x, 100.0, message="x is too large")]):
        return tf.exp(tf.identity(x))


def test_a_row_that_is_refused_fails_only_its_own_call() -> None:
    op = rows(picky, None, dtypes=("float32",))
    for _ in range(2):
        calls = [evaluation("forward", point(op, {"x": np.full((1, 2), x)})) for x in (1.0, 200.0, 2.0)]
        first, bad, last = together(calls)
        assert calls[0].batch_key is not None
        np.testing.assert_allclose(first["y"], np.exp([[1, 1]]), rtol=1e-6)
        np.testing.assert_allclose(last["y"], np.exp([[2, 2]]), rtol=1e-6)
        assert "x is too large" in str(bad)


def test_a_result_of_another_shape_is_the_faults_of_the_op() -> None:
    def shrunk(x: Tensor) -> Tensor:
        return x[:, :1]

    (found,) = together([evaluation("forward", point(rows(shrunk, None), {"x": np.ones((2, 3))}))])
    assert "expected shape [2, 3], got [2, 1]" in str(found)


@pytest.mark.parametrize("name", ["safe_norm.vjp", "softmax_cross_entropy.vjp", "safe_norm.vjp.vjp"])
def test_derived_ops_share_calls(name: str) -> None:
    registered, *sequence = name.split(".")
    op, rng = derived(REGISTRY[registered], name, sequence), np.random.default_rng(3)
    base = some_rows(REGISTRY[registered], CASES[registered], 2, rng)
    shapes = {"dy": (2,), "dloss": (2,), "ddx": (2, 10)}
    given = {slot.name: rng.uniform(0.5, 2, shapes[slot.name]) for slot in op.inputs if slot.name not in base}
    calls = [evaluation("forward", point(op, {**base, **given})) for _ in range(3)]
    found = [one.finish(results) for one, results in zip(calls, compute(calls), strict=True)]
    assert of_rows(calls[0]).why_not == ""
    for padded, alone in zip(flat(found[1]), flat(calls[1].run()), strict=True):
        np.testing.assert_allclose(padded, alone, rtol=1e-4, atol=1e-5)


def test_the_packings_of_an_op_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_rows, "KEPT", 3)
    monkeypatch.setattr(padded_rows, "_packings", {})
    op = REGISTRY["safe_norm"]
    for n in range(1, 7):
        assert evaluation("forward", point(op, {"x": np.ones((1, n))})).batch_key is not None
    assert [packing.units for packing in packings_of(op)] == [((4,),), ((5,),), ((6,),)]


def test_drawn_rows_have_the_shape_of_the_request() -> None:
    op = REGISTRY["safe_norm"]
    rng = np.random.default_rng(0)
    assert draw_from_domains(op, "float32", rng, {"...": (5,), "N": (7,)})["x"].shape == (5, 7)
    assert draw(op, {}, "float32", rng)["x"].shape == (3, 3)


def run_alone(checkpoint: Any = None) -> None:
    """The checkpoint of work that nothing ends."""


@pytest.mark.parametrize("name", ["safe_norm", "softmax_cross_entropy", "self_adjoint_eig"])
@pytest.mark.parametrize("count", [1, 2])
def test_directions_are_rows_of_a_call(name: str, count: int) -> None:
    """Products with several directions, and small matrices, are those of the map over directions."""
    op, rng = REGISTRY[name], np.random.default_rng(count)
    small = {**CASES, "safe_norm": (3,), "self_adjoint_eig": (2, 2)}
    at = point(op, some_rows(op, small[name], count, rng), "float64")
    x, (y, *_) = op.inputs[0].name, op.outputs
    dys = {y.name: rng.uniform(0.5, 2, (3, *(at.output_shapes[y.name] or ())))}
    vectors = {x: rng.uniform(0.5, 2, (2, *at.inputs[x].shape))}
    one = {y.name: dys[y.name][0]}
    for some in (
        derivatives.vjp(at, (x,), dys, batched=True, outputs=True),
        derivatives.jvp(at, vectors, batched=True),
        derivatives.hvp(at, (x,), one, vectors, batched=True),
    ):
        assert some.batch_key is not None
        for found, expected in zip(flat(some.finish(compute([some])[0])), flat(some.run()), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    matrices_of = (
        (jacobian_of_rows(at, [y.name], (x,)), jacobian(at, [y.name], (x,), run_alone)),
        (hessian_of_rows(at, (x,), one), hessian(at, (x,), one, run_alone)),
    )
    for small_matrix, whole_matrix in matrices_of:
        assert small_matrix is not None
        assert of_copies(small_matrix)
        for found, expected in zip(
            flat(small_matrix.finish(compute([small_matrix])[0])), flat(whole_matrix), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def of_copies(one: Evaluation[Any]) -> bool:
    return one.batched and isinstance(one.packed[0], PaddedRows) and len(one.call_leaves[0]) == one.packed[1]


def test_directions_of_rows_that_depend_on_each_other_are_mapped() -> None:
    op, x = rows(centred, None), np.random.default_rng(9).uniform(-3, 3, (2, 2))
    at = point(op, {"x": x})
    for _ in range(2):  # before and after the trial
        small = jacobian_of_rows(at, ["y"], ("x",))
        expected = jacobian(at, ["y"], ("x",), run_alone)["y"]["x"]
        if small is not None:
            found = small.finish(compute([small])[0])["y"]["x"]
            np.testing.assert_allclose(found, expected)
    assert small is None


@pytest.mark.parametrize("of", [["w", "v"], ["w"]])
def test_a_large_matrix_is_computed_in_steps(of: list[str]) -> None:
    a = np.random.default_rng(2).uniform(-1, 1, (4, 4)) + np.diag([4.0, 8, 12, 16])
    at = point(REGISTRY["self_adjoint_eig"], {"a": a}, "float64")
    assert (jacobian_of_rows(at, of, ("a",)) is None) == (len(of) > 1)


def test_an_input_of_all_rows_has_no_directions_of_rows() -> None:
    at = point(SCALED, {"x": np.ones((1, 2)), "table": np.ones(3)})
    assert derivatives.jvp(at, {"x": np.ones((2, 1, 2))}, batched=True).batch_key is not None
    assert derivatives.jvp(at, {"table": np.ones((2, 3), np.float32)}, batched=True).batch_key is None
