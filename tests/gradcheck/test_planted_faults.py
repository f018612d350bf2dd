"""Wrong ops, each with one common mistake: every one is caught by the check for that mistake."""

import numpy as np
import pytest
import tensorflow as tf

from ops import FLOATS, Claim, Example, Formula, Input, InvalidInput, Op, Output, Surrogate, custom_gradient
from tests.gradcheck.checking import entries, failed, report
from tests.gradcheck.op_makers import BOTH, WIDE, X, claiming, cube_vjp, elementwise, made, rows
from tests.gradcheck.wrong import WRONG


def matvec(x, w):
    return tf.linalg.matvec(x * x, w)


def matvec_vjp(x, w, dy):
    return 2 * x * dy[:, None] * w, tf.linalg.matvec(x * x, dy, transpose_a=True)


def too_large(x, dy):
    return 1.09 * cube_vjp(x, dy)


def slightly_too_large(x, dy):
    return (1 + 1e-9) * cube_vjp(x, dy)


def clipped(x, dy):
    return tf.clip_by_value(cube_vjp(x, dy), -1.0, 1.0)


def frozen(x, dy):
    return cube_vjp(tf.stop_gradient(x), dy)


def other_dtype(x, dy):
    return tf.cast(cube_vjp(x, dy), tf.float32)


def none(x, dy):
    return None


def too_many(x, dy):
    return cube_vjp(x, dy), dy


@tf.custom_gradient
def dy_inside(x):
    """The inner function closes over dy, which therefore gets no gradient of its own."""

    def pull_back(dy):
        @tf.custom_gradient
        def inner(x):
            return 3 * x * x * dy, lambda ddx: 6 * x * ddx

        return inner(x)

    return x * x * x, pull_back


def second_only_at_one(x, dy, ddx):
    """Correct where dy is 1."""
    return 6 * x * ddx, 3 * x * x * ddx


def second_half(x, dy, ddx):
    return 3 * x * dy * ddx, 3 * x * x * ddx


def scaled_sums(x, t):
    return tf.reduce_sum(tf.sin(x * t), axis=-1)


SCALAR_EXAMPLE = (Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]], "t": 1.5}),)


SQUARE = {"inputs": (Input("x", WIDE, ("N", "N")), Input("w", WIDE, ("N",)))}


def divided_by_rows(x, w, dy):
    """Divide by the number of rows in place of the columns: right where the matrix is square."""
    of_each = dy[:, None] / tf.cast(tf.shape(x)[0], x.dtype)
    return of_each * w, tf.reduce_sum(of_each * x, axis=0)


def wrong_at_one(x, dy):
    return tf.where(tf.equal(x, 1), 2 * dy, cube_vjp(x, dy))


def saturated(x, dy):
    return tf.where(x > 30, tf.zeros_like(x), tf.sigmoid(x)) * dy


def transposed(x, w, dy):
    dx, dw = matvec_vjp(x, w, dy)
    return tf.transpose(dx), dw


def swapped(x, w, dy):
    return 2 * x * w[:, None] * dy, matvec_vjp(x, w, dy)[1]


def shifted(x, w, dy):
    """A scatter that is off by one."""
    dx, dw = matvec_vjp(x, w, dy)
    return tf.roll(dx, 1, axis=1), dw


def one_row_lost(x, w, dy):
    return matvec_vjp(x, w, dy)[0], (x * x)[0] * dy[0]


def asymmetric(x, w, dy, ddx, ddw):
    """The mixed term reaches w only."""
    of_x = 2 * dy[:, None] * w * ddx
    return of_x, tf.linalg.matvec(2 * x * ddx, dy, transpose_a=True), tf.linalg.matvec(2 * x * ddx, w)


def root_square(x):
    return tf.sqrt(x * x * x * x)


def overflowing(x):
    """softplus, whose gradient is eˣ/(1 + eˣ)."""
    return tf.math.softplus(x)


def overflowing_vjp(x, dy):
    return dy * tf.exp(x) / (1 + tf.exp(x))


@tf.RegisterGradient("PlantedIgnored")
def _ignored(operation, dy):
    return -dy * tf.cos(operation.inputs[0])


def ignored_override(x):
    with tf.compat.v1.get_default_graph().gradient_override_map({"Sin": "PlantedIgnored"}):
        return tf.sin(x)


def misspelt_override(x):
    with tf.compat.v1.get_default_graph().gradient_override_map({"round": "PlantedIgnored"}):
        return tf.round(x)


def line(primals, at):
    return (primals[0],)


def by_mode(x, dy):
    return cube_vjp(x, dy) * (1.0 if tf.executing_eagerly() else 1.001)


def by_dtype(x, dy):
    return cube_vjp(x, dy) * (1.001 if x.dtype == tf.float32 else 1.0)


def of_its_batch(x):
    return x / (1e-3 * tf.reduce_max(tf.abs(x)) + 1)


def centred_rows(x):
    return x - tf.reduce_mean(x, axis=0, keepdims=True)


def few_rows(inputs, attrs):
    if len(inputs["x"]) > 8:
        raise InvalidInput("x", "x has too many rows", expected="at most 8", got=str(len(inputs["x"])))


def noisy(x, dy):
    return cube_vjp(x, dy) + 1e-13 * tf.random.normal(tf.shape(x), dtype=x.dtype)


def undeclared(x, w):
    return matvec(x, w)


def doubled_formula(primals, cotangents):
    return (2 * 3 * primals[0] ** 2 * cotangents[0],)


PLANTED = {
    "9% too large": (made(too_large), "derivative", "all are 1.09 times"),
    "a billionth too large": (made(slightly_too_large), "derivative", "all are 1.000000001 times"),
    "sign flipped": (made(lambda x, dy: -cube_vjp(x, dy)), "derivative", "the sign is flipped"),
    "dy forgotten": (made(lambda x, dy: 3 * x * x * tf.ones_like(dy)), "derivative", ""),
    "dy squared": (made(lambda x, dy: cube_vjp(x, dy * dy)), "linearity", "2 vjp(a) + 3 vjp(b)"),
    "affine in dy": (made(lambda x, dy: cube_vjp(x, dy) + 1e-6), "linearity", ""),
    "a clip that is not declared": (made(clipped), "linearity", ""),
    "a clip's adjoint": (made(clipped), "adjoint", ""),
    "a gradient of 0": (made(lambda x, dy: tf.zeros_like(x)), "derivative", "all are 0"),
    "x stopped in the gradient": (made(frozen), "second", "all are 0"),
    "dy inside the inner function": (elementwise(dy_inside), "second", ""),
    "second order right at dy = 1 only": (made(second=second_only_at_one), "second", "d⟨vjp, v⟩/dx"),
    "second order halved": (made(second=second_half), "second", "all are 0.5 times"),
    "dy slot missing": (made(second=lambda x, dy, ddx: (6 * x * dy * ddx, None)), "second", "d⟨vjp, v⟩/ddy"),
    "dy slot doubled": (made(second=lambda x, dy, ddx: (6 * x * dy * ddx, 6 * x * x * ddx)), "adjoint", ""),
    "transposed": (rows(custom_gradient(matvec, transposed)), "contract", "expected shape [2, 4], got [4, 2]"),
    "rows counted in place of columns": (
        rows(custom_gradient(lambda x, w: tf.reduce_mean(x * w, axis=-1), divided_by_rows)),
        "derivative",
        "all are 2 times",
    ),
    "wrong at 1 alone": (made(wrong_at_one), "derivative", "at x = 1 "),
    "0 where it saturates": (made(saturated, value=tf.nn.softplus), "derivative", "at x = 40, "),
    "weights along the wrong axis": (rows(custom_gradient(matvec, swapped)), "contract", "Incompatible shapes"),
    "a square matrix transposed": (rows(custom_gradient(matvec, transposed), **SQUARE), "derivative", "dx["),
    "weights along the wrong axis of a square": (rows(custom_gradient(matvec, swapped), **SQUARE), "derivative", "dx["),
    "a scatter off by one": (rows(custom_gradient(matvec, shifted)), "derivative", "dx["),
    "rows lost in a sum": (rows(custom_gradient(matvec, one_row_lost)), "derivative", "dw["),
    "asymmetric Hessian": (rows(custom_gradient(matvec, matvec_vjp, asymmetric)), "symmetry", "its transpose"),
    "another dtype": (made(other_dtype), "contract", "expected a tensor of float64"),
    "another shape": (made(lambda x, dy: tf.reduce_sum(cube_vjp(x, dy))), "contract", "expected shape"),
    "None for a differentiable input": (made(none), "contract", "got None (value 1 of 1) (none in gradcheck/"),
    "one gradient too many": (made(too_many), "contract", "expected one value for each of x, got 2"),
    "a gradient that is declared not to be": (
        rows(undeclared, inputs=(Input("x", WIDE, ("N", "M")), Input("w", WIDE, ("M",), differentiable=False))),
        "contract",
        "declared not differentiable",
    ),
    "NaN at 0": (
        rows(
            lambda x: tf.sqrt(tf.reduce_sum(x * x, axis=-1)),
            inputs=(Input("x", WIDE, ("N", "M")),),
            examples=(Example("one", {"x": [[3.0, 4.0], [5.0, 12.0]]}),),
        ),
        "finite",
        "declare the pole",
    ),
    "NaN at 0, a number after the other": (elementwise(root_square), "finite", "dx is nan at x = 0"),
    "inf/inf at large x": (made(overflowing_vjp, value=overflowing), "finite", "dx is nan"),
    "a bare override map": (
        elementwise(ignored_override, claim=lambda attrs: Claim(Surrogate(lambda primals, at: (-np.sin(primals[0]),)))),
        "modes",
        "mode eager",
    ),
    "an override with a misspelt name": (
        elementwise(misspelt_override, claim=lambda attrs: Claim(Surrogate(line))),
        "contract",
        "no path at all",
    ),
    "another gradient in graphs": (made(by_mode), "modes", "mode eager"),
    "wrong in float32 alone": (made(by_dtype, dtypes=BOTH), "dtypes", "dx (float32)"),
    "not elementwise": (elementwise(of_its_batch), "batching", "a part run alone"),
    "rows that share a mean": (
        elementwise(
            centred_rows,
            inputs=(Input("x", WIDE, ("N", "M")),),
            outputs=(Output("y", WIDE, ("N", "M")),),
            batching="leading_axis",
            examples=(Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]]}),),
        ),
        "batching",
        "a part run alone",
    ),
    # So few that they cannot be compared in the company of 32 others.
    "few rows that share a mean": (
        elementwise(
            centred_rows,
            inputs=(Input("x", WIDE, ("N", "M")),),
            outputs=(Output("y", WIDE, ("N", "M")),),
            batching="leading_axis",
            validate=few_rows,
            examples=(Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]]}),),
        ),
        "batching",
        "a part run alone",
    ),
    "an axis lost in a batch of one": (
        elementwise(
            lambda x: tf.squeeze(x * x),
            inputs=(Input("x", WIDE, ("N", "M")),),
            outputs=(Output("y", WIDE, ("N", "M")),),
            batching="leading_axis",
            examples=(Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]]}),),
        ),
        "batching",
        "expected shape [1, 2], got [2]",
    ),
    "random noise": (made(noisy), "determinism", "the second evaluation"),
    "not that surrogate": (claiming(Claim(Surrogate(line))), "derivative", "its surrogate"),
    "not that formula": (claiming(Claim(Formula(doubled_formula))), "derivative", "all are 0.5 times"),
    "not that second formula": (
        claiming(Claim(second=Formula(lambda primals, cotangents, ddx: (primals[0] * cotangents[0] * ddx[0],)))),
        "second",
        "the declared second formula",
    ),
}


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("op", "check", "words"),
    [
        pytest.param(*planted, id=name, marks=() if i % 8 == 0 else pytest.mark.slow)
        for i, (name, planted) in enumerate(PLANTED.items())
    ],
)
def test_a_wrong_op_is_caught_by_the_check_for_its_mistake(op: Op, check: str, words: str) -> None:
    document = report(op, checks=[check])
    assert document["verdict"] == "fail"
    assert failed(document) == [check], document["sentence"]
    assert any(words in entry["sentence"] for entry in entries(document, check)), entries(document, check)


def test_there_is_a_planted_fault_for_every_check() -> None:
    assert len(PLANTED) >= 25
    assert {check for _, check, _ in PLANTED.values()} == {
        "contract",
        "derivative",
        "second",
        "linearity",
        "adjoint",
        "symmetry",
        "modes",
        "dtypes",
        "finite",
        "batching",
        "determinism",
    }


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "op",
    [
        pytest.param(made(dtypes=FLOATS), marks=pytest.mark.thorough),
        rows(custom_gradient(matvec, matvec_vjp)),
        rows(scaled_sums, inputs=(Input("x", WIDE, ("N", "M")), Input("t", WIDE, ())), examples=SCALAR_EXAMPLE),
    ],
)
@pytest.mark.slow
def test_the_correct_ops_pass(op: Op) -> None:
    document = report(op, modes=("graph",))
    assert failed(document) == []
    assert document["verdict"] == "pass"


def test_the_worst_element_is_the_wrong_one() -> None:
    """One number of four is wrong: the report has its index, its x, its value and the expected value."""

    def third(x, dy):
        return cube_vjp(x, dy) + tf.where(x == 0.5, 0.25 * dy, 0)

    (entry,) = entries(report(made(third), inputs={"x": X}, checks=["derivative"]), "derivative")
    worst = entry["worst"]
    assert worst["index"] == [2]
    assert worst["x"] == X[2]
    assert worst["relative"] == pytest.approx(1 / 3, rel=1e-9)
    assert worst["analytic"] / worst["numeric"] == pytest.approx(4 / 3, rel=1e-9)
    assert entry["sentence"].startswith("dx[2] at x = 0.5, dy = 1.10264 is 1.10264, ")
    assert "1 of 4 points wrong" in entry["sentence"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_one_wrong_number_of_many_is_found_along_random_directions(seed: int) -> None:
    """Of 400 coordinates, 32 are moved one by one; an error at another shows in sums over all of them."""

    def one_wrong(x, w, dy):
        dx, dw = matvec_vjp(x, w, dy)
        return dx * factors, dw

    factors = np.ones((40, 10))
    factors[17, 3] = 1.25
    op, x = rows(custom_gradient(matvec, one_wrong)), np.random.default_rng(7).uniform(0.5, 2, (40, 10))
    inputs = {"x": x.tolist(), "w": [1.0] * 10}
    (entry,) = entries(report(op, inputs=inputs, checks=["derivative"], seed=seed), "derivative")
    assert entry["input"] == "x"


def test_a_composite_sees_both_orders_at_once() -> None:
    document = report(made(too_large), checks=["second"])
    assert [entry["sentence"] for entry in entries(document, "second") if "Σ c y²/2" in entry["sentence"]]


def test_a_kink_at_one_number_excuses_no_other() -> None:
    """|x|, 9% too large on both sides of a kink: the composite is wrong at every number except the kink."""
    op = made(lambda x, dy: 1.09 * dy * tf.sign(x), value=tf.abs)
    document = report(op, inputs={"x": [0.0, 1.5, -2.0]}, checks=["second"])
    (entry,) = [entry for entry in entries(document, "second") if "Σ c y²/2" in entry["sentence"]]
    assert "2 of 3 points wrong" in entry["sentence"]


@pytest.mark.slow
@pytest.mark.parametrize("batching", ["elementwise", "leading_axis"])
def test_a_wrong_batching_claim_is_not_relied_on(batching: str) -> None:
    """The gradients of a softmax are correct; they look wrong only if points share a call."""
    document = report(
        elementwise(
            lambda x: tf.exp(x) / tf.reduce_sum(tf.exp(x), axis=0),
            inputs=(Input("x", WIDE, ("N", "M") if batching == "leading_axis" else ("...",)),),
            outputs=(Output("y", WIDE, ("N", "M") if batching == "leading_axis" else ("...",)),),
            batching=batching,
            examples=(Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]]}),),
        ),
        checks=["derivative", "second", "adjoint", "batching"],
    )
    assert failed(document) == ["batching"]


def test_a_broken_contract_skips_the_other_checks() -> None:
    document = report(made(none))
    assert failed(document) == ["contract"]
    skipped = {entry["sentence"] for entry in document["checks"] if entry["verdict"] == "skipped"}
    assert skipped == {"not run, because check contract fails"}


def test_a_claim_that_raises_fails_its_check() -> None:
    """A surrogate that raises, and one of the wrong shape: the report says so, and the other checks still run."""

    def lost(primals, at):
        raise RuntimeError("lost")

    def misshapen(primals, at):
        return (np.zeros((2, 3, 4)),)

    for function, words in ((lost, "claim raised RuntimeError"), (misshapen, "claim raised ValueError")):
        document = report(claiming(Claim(Surrogate(function))), checks=["derivative", "linearity"])
        (entry,) = entries(document, "derivative")
        assert words in entry["sentence"]
        assert entries(document, "linearity", "pass")


def test_an_op_that_rejects_points_from_its_domain_fails() -> None:
    def validate(inputs, attrs):
        if (inputs["x"] < 0).any():
            raise InvalidInput("x", "x is negative", expected="x >= 0", got="a negative number")

    examples = (Example("one", {"x": [1.0, 2.0]}),)
    document = report(made(validate=validate, examples=examples))
    assert document["verdict"] == "fail"
    assert "x is negative" in entries(document, "contract")[0]["sentence"]
    assert report(made(validate=validate, examples=examples, slot={"domain": (0.0, 3.0)}))["verdict"] == "pass"


def test_a_tie_at_a_given_point_excuses_no_wrong_gradient() -> None:
    op = WRONG["each maximum gets all of dy"].op
    document = report(op, checks=["derivative"], inputs={"x": [[1.0, 1.0, 0.5]]})
    assert failed(document) == ["derivative"]


def test_operations_without_a_gradient_are_named() -> None:
    def function(x):
        return tf.linalg.diag_part(tf.linalg.lu(x)[0]) + tf.unique(tf.reshape(x, [-1]))[0][:2]

    slots = {"inputs": (Input("x", WIDE, (2, 2)),), "batching": "none"}
    op = elementwise(
        function, outputs=(Output("y", WIDE, (2,)),), examples=(Example("e", {"x": [[2, 1], [1, 3]]}),), **slots
    )
    (entry,) = entries(report(op), "contract")
    assert entry["sentence"].startswith("op planted: TensorFlow has no gradient of")
    assert {"Lu", "Unique", "custom_gradient"} <= set(entry["sentence"].replace(":", " ").replace(",", " ").split())
