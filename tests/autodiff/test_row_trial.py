"""The trial of rows: what is not independent shares no call."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import Field

from app.autodiff import row_trial
from app.autodiff.draws import draw, draw_from_domains
from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.packing import Whole
from app.autodiff.padded_rows import PaddedRows
from app.autodiff.row_trial import BESIDE
from app.errors import Unprocessable
from app.runtime import modes
from ops import Array, Attrs, Input, Op, Tensor
from tests.autodiff.evaluations import REGISTRY, evaluation, of_rows, point
from tests.gradcheck.wrong.making import BOTH, rows
from tests.rows.corpus import CORPUS, INDEPENDENT, SEEMING

KINDS = ("forward", "vjp", "gradients", "hvp")


# The scaling of a matrix exponential in TensorFlow is that of the largest matrix.
JOINED_BY_TENSORFLOW = ("row_expm",)


# It is joined in eager mode alone.
RIGHT_IN_CALLS = ("in_eager",)


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


SLOW = ("row_expm", "row_map", "row_spline")


def some(ops: Mapping[str, Op]) -> list[Any]:
    """Return the ops as parameters; three of four, and those that are slow, are for the thorough tests."""
    return [
        pytest.param(op, id=name, marks=pytest.mark.thorough if i % 4 or name in SLOW else ())
        for i, (name, op) in enumerate(sorted(ops.items()))
    ]


@pytest.mark.share(2)
@pytest.mark.slow
@pytest.mark.parametrize("op", some(INDEPENDENT))
def test_independent_rows_share_calls(op: Op) -> None:
    found = set(verdicts(op, KINDS))
    assert found <= {BESIDE, "refused"} if op.name in JOINED_BY_TENSORFLOW else found == {""}


@pytest.mark.slow
@pytest.mark.parametrize("op", some(SEEMING))
@pytest.mark.filterwarnings("ignore:(invalid value|overflow):RuntimeWarning")
def test_rows_that_only_seem_independent_share_no_call(op: Op) -> None:
    assert any(verdicts(op, KINDS)) == (op.name not in RIGHT_IN_CALLS)


@pytest.mark.parametrize("name", ["after_nan", "after_huge", "alternating", "first_row", "after_twins", "many_rows"])
def test_some_rows_that_only_seem_independent(name: str) -> None:
    """One for each kind of batch that shows it."""
    assert all(verdicts(CORPUS[name], ["forward"]))


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


def test_rows_that_take_long_share_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their trial would hold up other requests."""
    monkeypatch.setattr(row_trial, "LONGEST_S", 0)
    one = evaluation("forward", point(REGISTRY["safe_norm"], {"x": np.ones((1, 13))}))
    compute([one])
    assert "takes so long" in (of_rows(one).why_not or "")


class StrengthAttrs(Attrs):
    strength: float = Field(default=0.0, ge=0, le=1)


def coupled(x: Tensor, *, strength: Tensor) -> Tensor:
    return tf.where(strength > 0, x - tf.reduce_mean(x, axis=0), x)


def test_the_trial_tries_other_attributes() -> None:
    op = rows(coupled, None, dtypes=BOTH, attrs=StrengthAttrs)
    one = evaluation("forward", point(op, {"x": np.ones((1, 2))}))
    compute([one])
    assert "bits of a row" in (of_rows(one).why_not or "")


def filled(x: Tensor) -> Tensor:
    """Numbers that are NaN become those of the first row."""
    return tf.where(tf.math.is_nan(x), tf.broadcast_to(x[:1], tf.shape(x)), x)


def test_a_special_row_must_not_depend_on_others() -> None:
    one = evaluation("forward", point(rows(filled, None), {"x": np.ones((1, 2))}))
    compute([one])
    assert of_rows(one).why_not == BESIDE


def test_an_index_out_of_range_must_not_lead_into_other_rows() -> None:
    """In XLA, the gradient of a batched gather adds what belongs to an index beyond its row to the next one."""
    op = CORPUS["row_gather"]
    example = op.examples[0]
    one = evaluation("gradients", point(op, example.inputs, mode="xla"))
    compute([one])
    assert of_rows(one).why_not == BESIDE


def divided(x: Tensor) -> Tensor:
    return x * 1e-30 / tf.cast(tf.shape(x)[0], x.dtype)


def test_small_numbers_are_compared_too() -> None:
    one = evaluation("forward", point(rows(divided, None), {"x": np.ones((1, 2))}))
    compute([one])
    assert "padded rows differ" in (of_rows(one).why_not or "")


def test_drawn_rows_have_the_shape_of_the_request() -> None:
    op = REGISTRY["safe_norm"]
    rng = np.random.default_rng(0)
    assert draw_from_domains(op, "float32", rng, {"...": (5,), "N": (7,)})["x"].shape == (5, 7)
    assert draw(op, {}, "float32", rng)["x"].shape == (3, 3)


def test_the_first_of_two_trials_decides() -> None:
    """On two threads, they may run at the same time, and find different things on a busy machine."""
    one = evaluation("forward", point(REGISTRY["safe_norm"], {"x": np.ones((1, 14))}))
    packing = of_rows(one)

    def slower(rows: PaddedRows) -> str:
        rows.try_rows(lambda _: "")
        return "a row takes so long"

    packing.try_rows(slower)
    assert packing.why_not == ""
