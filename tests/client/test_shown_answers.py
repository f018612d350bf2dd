"""What Python and notebooks show of ops, answers and reports."""

from dataclasses import replace

import numpy as np

import pullback
from ops import square
from pullback import reports
from pullback.catalogue import Contract, InputSlot, Slot
from pullback.results import Forward, Gradients, Jacobian, Orders, numeric
from tests.client.documents import FAILING, PASSING
from tests.client.test_html_reports import Page, text

X = InputSlot("x", ["float64"], ["..."], True, "where <x>", (-3.0, 3.0), [], [])
CONTRACT = Contract(
    *("square", "x²", "custom_gradient", None, True),
    inputs=(X,),
    outputs=(Slot("y", ["float64"], ["..."], True, ""),),
    dtypes=("float64",),
    modes=("graph",),
    attrs={"properties": {"scale": {"description": "a factor"}}},
)


def test_an_answer_is_a_line_for_each_array() -> None:
    gradients, y = {"x": np.array([[1.0, 2.0]]), "z": None}, np.zeros(1000, np.float32)
    found = Gradients(gradients, {"z": "disconnected"}, {"y": y})
    assert repr(found).splitlines() == [
        "Gradients",
        "  gradients.x  float64[1, 2]       [[1., 2.]]",
        "  gradients.z  none, disconnected",
        "  outputs.y    float32[1000]       [0., 0., 0., ..., 0., 0., 0.]",
    ]


def test_nested_answers_and_orders_have_the_names_that_reach_them() -> None:
    one = np.ones(1)
    assert "jacobian.y.x  float64[1]" in repr(Jacobian({"y": {"x": one, "z": None}}, {"y": {"z": "disconnected"}}))
    assert "jacobian.y.z  none, disconnected" in repr(
        Jacobian({"y": {"x": one, "z": None}}, {"y": {"z": "disconnected"}})
    )
    assert "gradients[1].x  float64[1]" in repr(Orders({"y": one}, [{"x": one}, {"x": one}], [{}, {}]))


def test_numeric_derivatives_have_their_error_bars_and_statuses() -> None:
    found = numeric({"derivatives": {"x": {"derivative": [4.0], "error_bar": [1e-12], "status": ["ok"]}, "n": None}})
    assert repr(found).splitlines() == [
        "Numeric",
        "  derivatives.x  float64[1]                [4.]",
        "  derivatives.n  none, not_differentiable",
        "  error_bars.x   float64[1]                [1.e-12]",
        "  error_bars.n   none, not_differentiable",
        "  statuses.x     str[1]                    ['ok']",
        "  statuses.n     none, not_differentiable",
    ]
    assert "error_bars.x float64[1] [1.e-12]" in text(Page(found._repr_html_()))


def test_an_answer_is_a_table_in_a_notebook() -> None:
    shown = text(Page(Forward({"y": np.array([True, False])})._repr_html_()))
    assert "outputs.y bool[2] [ True, False]" in shown


def test_a_contract_is_a_signature() -> None:
    assert repr(CONTRACT) == "Contract(square(x[...], scale=) -> y[...]: x²)"
    shown = text(Page(CONTRACT._repr_html_()))
    for part in ("input x [...] yes where <x>", "output y [...] yes", "attribute scale a factor"):
        assert part in shown


def test_a_report_tells_its_findings() -> None:
    assert repr(reports.report(PASSING)) == "Report(pass: square: a sentence)"
    lines = repr(reports.report(FAILING)).splitlines()
    assert lines[0] == "Report(fail: skewed: a sentence)"
    assert lines[1] == '  Check(derivative, dy/dx, order 1, float64, graph, cpu: fail: dy/dx: fail, <angle> & "quotes")'
    assert "skewed" in text(Page(reports.report(FAILING)._repr_html_()))


def test_an_op_of_a_page_shows_its_inputs_and_outputs() -> None:
    op = replace(square.OP, name="square", summary="x <squared>")
    assert repr(op) == "Op(square: x[...] -> y[...]; x <squared>)"
    shown = text(Page(op._repr_html_()))
    assert "square : x <squared>" in shown
    assert "input x [...] " in shown


def test_an_op_shows_its_contract_when_it_knows_it(service) -> None:
    with pullback.Client(service.url) as client:
        op = client.op("square")
        assert repr(op) == f"pullback.Client({service.url!r}).op('square')"
        assert op._repr_html_() is None
        op.forward([1.0])
        shown = op._repr_html_()
        assert shown is not None
        assert "square(x[...]) -> y[...]" in text(Page(shown))
        assert repr(op.forward([1.0, 2.0])).splitlines()[1].startswith("  outputs.y  float32[2]  [1., 4.]")
        assert "y²" not in repr(op.verify([1.0], [2.0]))
