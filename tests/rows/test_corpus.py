"""The corpus is what it says: rows of ``independent`` do not depend on others, and those of ``seeming`` do."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.admission import admit
from app.autodiff.draws import draw
from ops import Array, Op, discover, many
from tests.gradcheck.checking import failed, report
from tests.rows.corpus import CORPUS, INDEPENDENT, SEEMING, write_pages

# Several counts, because some ops join rows only where there are many of them.
COUNTS = (6, 40)
# What a few rows have, so that ops which join rows only after such a number show it.
SPECIAL = (None, np.nan, np.inf, 2.75, 1e7, 0.0)
ZERO = tf.UnconnectedGradients.ZERO
TOLERANCE = {np.dtype("float32"): 1e-4, np.dtype("float64"): 1e-9}


@dataclass(frozen=True)
class At:
    """Inputs of an op, cotangents for its outputs, vectors for its inputs, and attributes."""

    inputs: Mapping[str, Array]
    dys: tuple[Array, ...]
    vectors: Mapping[str, Array]
    attrs: Mapping[str, Any]

    def cut(self, part: slice) -> "At":
        """Return some of the rows."""
        dys = tuple(dy[part] for dy in self.dys)
        return At(_cut(self.inputs, part), dys, _cut(self.vectors, part), self.attrs)


def _cut(named: Mapping[str, Array], part: slice) -> dict[str, Array]:
    return {name: x[part] for name, x in named.items()}


def results(op: Op, at: At) -> list[Array]:
    """Return the outputs, the gradients and the gradients of these along the vectors; zeros for those that are None."""
    xs = {name: tf.constant(x) for name, x in at.inputs.items()}
    live = [x for x in xs.values() if x.dtype.is_floating]
    with tf.GradientTape() as outer:
        outer.watch(live)
        with tf.GradientTape() as inner:
            inner.watch(live)
            ys = many(op.function(*xs.values(), **at.attrs))
        dxs: Any = inner.gradient(ys, live, [tf.constant(dy) for dy in at.dys], ZERO)
    vectors = [tf.constant(v) for v in at.vectors.values()]
    seconds: Any = outer.gradient(dxs, live, vectors, ZERO)
    return [np.asarray(value) for value in (*ys, *dxs, *seconds)]


def probes(op: Op, *, special: bool) -> Iterator[At]:
    """Yield points of all dtypes, attributes and counts; with special numbers and equal rows if ``special``."""
    for example in op.examples:
        for dtype in op.dtypes:
            for count in COUNTS:
                for number in SPECIAL if special else SPECIAL[:1]:
                    yield _probe(op, dtype, count, dict(example.attrs), number)


def _probe(op: Op, dtype: str, count: int, attrs: Mapping[str, Any], number: float | None) -> At:
    rng, wide = np.random.default_rng(count), np.dtype(dtype)
    inputs = _inputs(op, dtype, count, attrs, rng)
    floats = {name: x for name, x in inputs.items() if x.dtype == wide}
    vectors = {name: rng.uniform(0.5, 2, x.shape).astype(wide) for name, x in floats.items()}
    model = op.attrs.model_validate(dict(attrs))
    given = {**model.static(), **{name: tf.constant(value, wide) for name, value in model.numbers().items()}}
    shapes = [tuple(y.shape) for y in many(op.function(*map(tf.constant, inputs.values()), **given))]
    dys = [rng.uniform(0.5, 2, shape).astype(wide) for shape in shapes]
    for x in floats.values() if number is not None else ():
        x[1].flat[0] = number
        x[3] = x[2]
    for dy in dys if number == 0 else ():
        dy[1] = 0
    return At(inputs, tuple(dys), vectors, given)


def _inputs(op: Op, dtype: str, count: int, attrs: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Array]:
    """Draw ``count`` rows; an op that draws its own may need several draws of equal shapes."""
    drawn = draw(op, attrs, dtype, rng, {str(op.inputs[0].shape[0]): (count,)})
    while len(next(iter(drawn.values()))) < count:
        more = draw(op, attrs, dtype, rng)
        if all(x.shape[1:] == drawn[name].shape[1:] for name, x in more.items()):
            drawn = {name: np.concatenate([drawn[name], x]) for name, x in more.items()}
    return {slot.name: drawn[slot.name][:count].astype(op.dtype_of(slot, dtype)) for slot in op.inputs}


def joins_rows(op: Op, at: At) -> bool:
    """Return whether a row alone, or a few, have other results than the same rows together with all."""
    together, count = _if_any(op, at), len(next(iter(at.inputs.values())))
    tolerance = TOLERANCE[next(iter(at.vectors.values())).dtype]
    for part in (slice(0, 1), slice(2, 3), slice(4, 6), slice(count - 1, count)):
        if ((some := _if_any(op, at.cut(part))) is None) != (together is None):
            return True
        for alone, all_rows in zip(some or (), together or (), strict=True):
            if alone.shape != all_rows[part].shape:
                return True
            if not np.allclose(alone, all_rows[part], tolerance, tolerance, equal_nan=True):
                return True
    return False


def _if_any(op: Op, at: At) -> list[Array] | None:
    """Return the results, ``None`` if the op refuses its input."""
    try:
        return results(op, at)
    except tf.errors.InvalidArgumentError:
        return None


def test_all_ops_are_admitted(tmp_path: Path) -> None:
    registry = discover([write_pages(tmp_path)], admit)
    assert registry.unavailable == ()
    assert set(CORPUS) <= set(registry.ops)
    assert len(INDEPENDENT) >= 32
    assert len(SEEMING) >= 16
    assert {op.batching for op in CORPUS.values()} == {"leading_axis", "leading_axes"}


def some(ops: Mapping[str, Op]) -> list[Any]:
    """Return the ops as parameters; three of four are for the thorough tests: an op that stays as it is stays right."""
    marks = itertools.cycle([pytest.mark.slow, *[pytest.mark.thorough] * 3])
    return [pytest.param(op, id=name, marks=mark) for (name, op), mark in zip(ops.items(), marks, strict=False)]


@pytest.mark.parametrize("op", some(INDEPENDENT))
def test_independent_rows_are_independent_and_deterministic(op: Op) -> None:
    for at in probes(op, special=False):
        assert not joins_rows(op, at)
        for first, again in zip(results(op, at), results(op, at), strict=True):
            assert first.tobytes() == again.tobytes()


@pytest.mark.thorough
@pytest.mark.parametrize("op", INDEPENDENT.values(), ids=INDEPENDENT)
def test_independent_ops_pass_all_checks(op: Op) -> None:
    document = report(op)
    assert document["verdict"] == "pass", failed(document)


@pytest.mark.parametrize("op", some(SEEMING))
@pytest.mark.filterwarnings("ignore:(invalid value|overflow):RuntimeWarning")
def test_seeming_rows_depend_on_others(op: Op) -> None:
    assert any(joins_rows(op, at) for at in probes(op, special=True))
