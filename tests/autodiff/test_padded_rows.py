"""Rows that share calls: their bits depend on nothing else."""

import gc
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff import derivatives, padded_rows
from app.autodiff.derived import derived
from app.autodiff.evaluation import compute
from app.autodiff.packing import Whole
from app.autodiff.padded_rows import COST, NUMBERS, ROWS, SHORT, SMALL_ROWS, packings_of
from app.runtime.owned_cache import OwnedCache
from ops import Array, Tensor
from tests.autodiff.elementwise_calls import bits, together
from tests.autodiff.evaluations import CASES, REGISTRY, SCALED, centred, evaluation, flat, of_rows, point, some_rows
from tests.gradcheck.wrong.making import rows


@pytest.mark.share(2)
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


def test_a_tangent_of_an_input_of_all_rows_is_shared_too() -> None:
    at = point(SCALED, {"x": np.array([[0.5, 1.5]]), "table": np.ones(3)})
    one = derivatives.jvp(at, {"table": np.array([1.0, 2, 3], np.float32)}, batched=False)
    found = one.finish(compute([one])[0])
    assert of_rows(one).why_not == ""
    np.testing.assert_allclose(found["y"], [[3, 9]])


def test_a_call_has_fewer_rows_where_rows_take_long() -> None:
    op, x = REGISTRY["safe_norm"], np.ones((1, 4))
    for cost, count in ((1, SMALL_ROWS), (COST // 4, 4), (COST // 2 - 1, 2), (COST, 1), (100 * COST, 1)):
        costly = replace(op, cost=lambda dims, cost=cost: cost * math.prod(dims["..."]))
        one = evaluation("forward", point(costly, {"x": x}))
        assert one.packed[0].length_for(1) == count, cost


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
    monkeypatch.setattr(padded_rows, "_packings", OwnedCache[Any, Any](3))
    op = REGISTRY["safe_norm"]
    for n in range(1, 7):
        assert evaluation("forward", point(op, {"x": np.ones((1, n))})).batch_key is not None
    assert [packing.units for packing in packings_of(op)] == [((4,),), ((5,),), ((6,),)]
