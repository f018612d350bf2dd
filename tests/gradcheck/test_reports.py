"""Reports: faults of the checker, time that runs out, findings with one cause, and the calls that reproduce numbers."""

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from traceback import walk_stack
from types import CodeType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import tensorflow as tf

from app.errors import DeadlinePassed
from app.gradcheck import report as reports
from app.gradcheck.checks import CHECKS, linearity
from app.gradcheck.options import Options
from app.gradcheck.report import OUT_OF_TIME, Report
from app.runtime.cancellation import Checkpoint
from ops import Attrs, Claim, Example, Formula, Input, Op, Output, Surrogate
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.verdict import Subject
from tests.gradcheck.checking import CPU, entries, failed, planned, report
from tests.gradcheck.op_makers import WIDE, claiming, cube_vjp, elementwise, made, rows

pytestmark = pytest.mark.slow


def test_a_fault_of_the_checker_is_no_fail_of_the_op() -> None:
    with patch.object(linearity, "gradient", side_effect=ValueError("operands in /secret/place/x.py")):
        document = report(made(), seed=3, checks=["linearity", "adjoint"])
    assert failed(document) == []
    assert document["verdict"] == "error"
    (entry,) = entries(document, "linearity", "error")
    for part in (
        "the check broke off with ValueError: operands in … (app/gradcheck/checks/linearity.py:",
        "a fault of the checker, not of the op",
        "op planted, check linearity, seed 3, Pullback 0.",
    ):
        assert part in entry["sentence"]
    assert entries(document, "adjoint", "pass")
    assert document["sentence"].endswith(", 1 broke off")


def test_a_fail_counts_more_than_a_fault_of_the_checker() -> None:
    with patch.object(linearity, "gradient", side_effect=ValueError):
        document = report(made(lambda x, dy: -cube_vjp(x, dy)), checks=["derivative", "linearity"])
    assert document["verdict"] == "fail"
    assert entries(document, "linearity", "error")


def test_a_broken_check_of_batching_does_not_vouch_for_it() -> None:
    """The gradients of a softmax look wrong if points share a call: without the check, they must not."""
    op = elementwise(lambda x: x / np.float64(2), examples=(Example("one", {"x": [1.0, 2.0]}),))
    with patch("app.gradcheck.checks.batching._compare", side_effect=ValueError):
        _, todo = planned(op, Options(CPU), checks=["batching"])
        for step in todo:
            step.run(lambda: None)
    assert todo[0].target.op.batching == "none"


class Times(Attrs):
    """A number attribute."""

    k: float = 1.0


ROWS_OF_ONE = {"inputs": (Input("x", WIDE, ("N",)),), "batching": "none"}
AUTHORS = {
    "a claim of None": elementwise(
        lambda x, *, k: k * x, attrs=Times, claim=lambda attrs: Claim() if attrs.k == 1 else None
    ),
    "a sample without inputs": made(sample=lambda rng, dtype, attrs: {}),
    "a formula of another shape": claiming(Claim(Formula(lambda primals, cotangents: (np.zeros((7, 5)),)))),
    "a surrogate of another shape": made(
        claim=lambda attrs: Claim(Surrogate(lambda primals, at: (np.zeros((7, 5)),))), **ROWS_OF_ONE
    ),
    "a singular that raises": made(singular=lambda inputs, attrs: inputs["y"], **ROWS_OF_ONE),
    "an undecided singular": made(singular=lambda inputs, attrs: inputs["x"] > 0, **ROWS_OF_ONE),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("op", AUTHORS.values(), ids=AUTHORS)
def test_a_fault_of_the_author_is_a_fail_of_the_op(op: Any) -> None:
    document = report(op)
    assert document["verdict"] == "fail", document["sentence"]
    assert not [entry["sentence"] for entry in document["checks"] if entry["verdict"] == "error"]


@pytest.mark.parametrize("nowhere", [np.nan, np.inf])
def test_a_number_infinitely_far_off_has_a_sentence(nowhere: float) -> None:
    """The ratio of a distance to its bar was NaN here, and the comparison kept no worst element."""
    comparison = Comparison(Subject("derivative", 1, "y", "x", dtype="float64"))
    comparison.add(np.array([nowhere, 2.0]), np.array([1.0, 1.0]), np.array([np.inf, 0.5]))
    finding = comparison.finding("dx", "the numeric derivative")
    assert (finding.verdict, finding.worst and finding.worst.index) == ("fail", (1,))
    comparison = Comparison(Subject("derivative", 1, "y", "x", dtype="float64"))
    comparison.add(np.array([nowhere]), np.array([1.0]), np.array([np.nan]))
    assert f"dx[0] is {nowhere}, but" in comparison.finding("dx", "the numeric derivative").sentence


def test_one_cause_is_one_finding() -> None:
    document = report(made(lambda x, dy: None, dtypes=("float32", "float64")))
    (entry,) = entries(document, "contract")
    names = [(place["mode"], place["dtype"]) for place in entry["places"]]
    assert names == [(mode, dtype) for mode in ("graph", "eager") for dtype in ("float64", "float32")]
    assert (entry["mode"], entry["dtype"]) == names[0]
    assert "1 of " in document["sentence"]
    assert document["seconds"] == pytest.approx(sum(entry["seconds"] for entry in document["checks"]))


def test_findings_with_other_numbers_stay_apart() -> None:
    document = report(made(lambda x, dy: -cube_vjp(x, dy), dtypes=("float32", "float64")))
    sentences = [entry["sentence"] for entry in document["checks"] if entry["verdict"] == "fail"]
    assert len(sentences) == len(set(sentences)) > 1
    assert all(len(entry["places"]) == 1 for entry in document["checks"] if entry["verdict"] == "pass")


def test_what_is_done_before_the_deadline_is_reported() -> None:
    result, todo = planned(made(lambda x, dy: -cube_vjp(x, dy)), Options(CPU))
    done = list(CHECKS).index("derivative") + 1
    for step in todo[:done]:
        step.run(lambda: None)
    document = result.document()
    assert failed(document) == ["derivative"]
    assert document["unfinished"] == len(todo) - done
    late = [entry for entry in document["checks"] if entry["check"] in list(CHECKS)[done:]]
    assert {entry["sentence"].partition(";")[0] for entry in late} == {OUT_OF_TIME}
    assert "PULLBACK_DEADLINE_S" in document["checks"][-1]["sentence"]
    assert "out of time" in document["sentence"]


def test_an_op_does_not_pass_before_all_checks_are_run() -> None:
    result, todo = planned(made(cube_vjp), Options(CPU), checks=["contract", "derivative"])
    for step in todo[:-1]:
        step.run(lambda: None)
    assert {entry["verdict"] for entry in result.document()["checks"]} == {"pass", "skipped"}
    assert result.document()["verdict"] == "inconclusive"
    todo[-1].run(lambda: None)
    assert result.document()["verdict"] == "pass"


def test_a_check_that_runs_out_of_time_keeps_its_findings() -> None:
    calls = 0

    def checkpoint() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise DeadlinePassed("too late")

    result, todo = planned(rows(lambda x, w: x[:, 0] * w[0]), Options(CPU), checks=["finite"], attrs={})
    assert result.document()["verdict"] == "inconclusive"
    with pytest.raises(DeadlinePassed):
        todo[-1].run(checkpoint)
    assert [entry["verdict"] for entry in result.document()["checks"]] == ["skipped"]
    sentence = result.document()["checks"][0]["sentence"]
    assert sentence.startswith(reports.OUT_OF_TIME)
    assert sentence.endswith("this check began and did not end")


FIRST = Claim(Surrogate(lambda primals, at: (primals[0][:, 0] * primals[1][0],)))


def calls_above() -> tuple[tuple[CodeType, int], ...]:
    """Return the lines of all calls above that of the caller, the innermost first."""
    return tuple((frame.f_code, line) for frame, line in walk_stack(sys._getframe(2)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("claim", "count"),
    [pytest.param(Claim(), 7, id="a derivative", marks=pytest.mark.thorough), pytest.param(FIRST, 3, id="a surrogate")],
)
def test_a_deadline_at_any_evaluation_is_no_fail_of_the_op(claim: Claim, count: int) -> None:
    """The work may end at any checkpoint: of a sweep, of a numeric derivative, or between samples.

    Checkpoints of a loop are alike: of those with equal calls above them, the first two and the last are tried.
    """
    op = rows(lambda x, w: x[:, 0] * w[0], claim=lambda attrs: claim)

    def run(checkpoint: Checkpoint) -> Report:
        result, todo = planned(op, Options(CPU, modes=("graph",)), checks=["derivative"])
        with suppress(DeadlinePassed):
            for step in todo:
                step.run(checkpoint)
        return result

    calls: list[Any] = []
    run(lambda: calls.append(calls_above()))
    places = [[i for i, call in enumerate(calls) if call == place] for place in dict.fromkeys(calls)]
    assert len(places) >= count
    for stop in sorted({i for place in places for i in (*place[:2], place[-1])}):
        left = iter(range(stop))

        def checkpoint(left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise DeadlinePassed("too late")

        document = run(checkpoint).document()
        assert document["unfinished"] == 1
        assert not failed(document), document["sentence"]


def test_tolerances_widen_the_comparison_of_integers_but_not_of_bools() -> None:
    tolerances, subject = Tolerances(absolute=1.0, relative=0.1), Subject("modes", 0, "y", dtype="float64")
    for dtype, verdict in (("float64", "pass"), ("int32", "pass"), ("bool", "fail")):
        comparison = Comparison(subject, tolerances)
        comparison.add(np.ones(3, dtype), np.zeros(3), np.zeros(3))
        assert (dtype, comparison.verdict) == (dtype, verdict)


def test_a_relative_tolerance_of_an_infinite_number_is_none() -> None:
    comparison = Comparison(Subject("value", 0, "y", dtype="float64"), Tolerances(relative=2.0))
    comparison.add(np.array([5.0]), np.array([np.inf]), np.zeros(1))
    assert comparison.verdict == "fail"


def unplaced(x, dy):
    return dy[:1]


def too_many(x, dy):
    return dy, dy


def nothing(x):
    return None


def through_numpy(x):
    return tf.constant(np.exp(x)) * x


def second_of_two(x, dy, ddx):
    return dy * ddx


def raising(x, dy):
    raise RuntimeError("lost")


LINE = r":\d+"
FAULTS = {
    "a shape": (made(unplaced), 1, rf"got \[1\] \(unplaced in gradcheck/test_reports\.py{LINE}\)$"),
    "a count": (made(too_many), 1, rf"got 2 \(too_many in gradcheck/test_reports\.py{LINE}\)$"),
    "no output": (elementwise(nothing), 0, rf"got None \(nothing in gradcheck/test_reports\.py{LINE}\)$"),
    "an if on a tensor": (
        elementwise(lambda x: x * x if tf.reduce_sum(x) > 0 else -x),
        0,
        rf"in forward: .*needs tf\.where or tf\.cond.*test_reports\.py{LINE}\)$",
    ),
    "NumPy": (elementwise(through_numpy), 0, r"use functions of TensorFlow, not of NumPy"),
    "the second order": (
        made(second=second_of_two),
        2,
        r"second_of_two returned the wrong .*\(second_of_two in gradcheck/",
    ),
    "an exception": (made(raising), 1, rf"failed in the gradient: lost \(gradcheck/test_reports\.py{LINE}\)$"),
    "no kernel": (
        elementwise(lambda x: tf.math.polygamma(tf.ones_like(x), x), dtypes=("float64", "float16")),
        0,
        r'declare dtypes=\("float32", "float64"\) on the slots, or those it has \(gradcheck/',
    ),
}


@pytest.mark.parametrize(("op", "order", "words"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_its_function_line_and_cure(op: Any, order: int, words: str) -> None:
    document = report(op, checks=["contract"])
    (entry, *others) = entries(document, "contract")
    assert re.search(words, entry["sentence"]), [one["sentence"] for one in (entry, *others)]
    assert entry["order"] == order


def lost(primals, at):
    raise RuntimeError("lost in /secret/place.py")


def test_a_claim_that_raises_is_named_with_its_line() -> None:
    (entry,) = entries(report(claiming(Claim(Surrogate(lost))), checks=["derivative"]), "derivative")
    assert re.search(rf"claim raised RuntimeError: lost in … \(gradcheck/test_reports\.py{LINE}\)$", entry["sentence"])


def test_numbers_are_named_after_their_input() -> None:
    slots = {"inputs": (Input("logits", WIDE),), "examples": (Example("two", {"logits": [1.0, 2.0]}),)}
    document = report(made(lambda x, dy: -cube_vjp(x, dy), lambda x, dy, ddx: (-6 * x * dy * ddx, x * ddx), **slots))
    assert re.match(r"dlogits\[\d+\] at logits = ", entries(document, "derivative")[0]["sentence"])
    slots = {entry["output"]: entry["sentence"] for entry in entries(document, "second") if entry["output"]}
    assert re.match(r"d⟨vjp, v⟩/ddy\[\d+\] at dy = ", slots["y"])


def test_a_bar_without_a_width_is_not_printed() -> None:
    for bar in (0.0, np.nan):
        comparison = Comparison(Subject("determinism", dtype="float64"))
        comparison.add(np.array([np.nan]), np.array([1.0]), np.array([bar]))
        assert "±" not in comparison.finding("the second evaluation", "the first").sentence


def test_a_missing_kernel_of_xla_is_named_with_the_modes_to_declare() -> None:
    (entry,) = entries(report(elementwise(tf.math.special.dawsn), checks=["modes"]), "modes")
    assert entry["sentence"].endswith(
        'XLA has no kernel for Dawsn; declare modes=("graph", "eager", "v1"), or mend the op'
    )


@pytest.mark.parametrize(("one", "other"), [(1.3e308, np.inf), (np.inf, 1.3e308)])
def test_one_of_two_numbers_near_the_largest_may_overflow(one: float, other: float) -> None:
    comparison = Comparison(Subject("symmetry", dtype="float64"))
    comparison.add(np.array([one]), np.array([other]), np.zeros(1))
    assert comparison.verdict == "inconclusive"


def test_a_finding_names_the_rounding_inside_that_explains_it() -> None:
    op = Op(
        name="gray",
        summary="",
        doc=None,
        function=tf.image.rgb_to_grayscale,
        inputs=(Input("x", ("float64", "float32"), ("N", 3)),),
        outputs=(Output("y", ("float64", "float32"), ("N", 1)),),
        source="",
        examples=(Example("one", {"x": [[0.1, 0.2, 0.7], [0.5, 0.3, 0.9]]}),),
    )
    finding, *_ = entries(report(op, checks=["linearity"]), "linearity")
    assert finding["sentence"].endswith(
        'the op rounds to float32 inside: declare dtypes=("float32",), or compute in float64'
    )
