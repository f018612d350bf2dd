"""pullback.openmdao: OpenMDAO's own checks of derivatives, and an optimisation; requests counted."""

from operator import itemgetter
from typing import Any

import numpy as np
import openmdao.api as om
import pytest
from openmdao.utils.assert_utils import assert_check_partials, assert_check_totals

import pullback
from pullback.openmdao import RemoteComponent

SYMMETRIC = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 5.0]])
LOGITS, LABELS = np.array([[1.0, -0.5, 2.0], [0.25, 0.0, -3.0]]), np.array([2, 0], np.int32)
X = np.array([-0.5, 0.25, 2.0])


def problem_of(component: RemoteComponent, **values: Any) -> om.Problem:
    """Return a problem with one component, at values of its inputs."""
    problem = om.Problem(reports=False)
    problem.model.add_subsystem("op", component, promotes=["*"])
    problem.setup(force_alloc_complex=True)
    for name, value in values.items():
        problem.set_val(name, value)
    return problem


@pytest.mark.parametrize("matrix_free", [False, True], ids=["partials", "matrix-free"])
@pytest.mark.parametrize(
    "case",
    [
        ("log1pexp", None, {"x": X}),
        ("scale_gradient", {"scale": 1.0}, {"x": X}),
        ("safe_norm", None, {"x": np.stack([X, X + 1])}),
        ("safe_norm", None, {"x": X}),
        ("matvec", None, {"a": SYMMETRIC[:2], "x": X}),
        ("self_adjoint_eig", None, {"a": SYMMETRIC}),
        ("softmax_cross_entropy", None, {"logits": LOGITS, "labels": LABELS}),
        ("zero_out_indexed", None, {"x": X}),
    ],
    ids=itemgetter(0),
)
def test_check_partials(url, case, matrix_free: bool) -> None:
    name, attrs, inputs = case
    component = RemoteComponent(name, url, {key: x.shape for key, x in inputs.items()}, attrs, matrix_free=matrix_free)
    problem = problem_of(component, **inputs)
    problem.run_model()
    found = problem.check_partials(out_stream=None)
    assert found["op"]
    assert_check_partials(found, atol=1e-5, rtol=1e-5)


def test_independent_rows_have_sparse_partials(url) -> None:
    component = RemoteComponent("softmax_cross_entropy", url, {"logits": LOGITS.shape, "labels": LABELS.shape})
    problem = problem_of(component, logits=LOGITS, labels=LABELS)
    problem.run_model()
    weights = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    np.testing.assert_allclose(problem.get_val("loss"), -np.log(weights[[0, 1], LABELS]))
    problem.model.run_linearize()
    found = component._get_jacobian()["loss", "logits"]
    assert np.size(getattr(found, "data", found)) == LOGITS.size
    want = np.zeros((2, 6))
    want[[0, 0, 0, 1, 1, 1], range(6)] = (weights - np.eye(3)[LABELS]).ravel()
    np.testing.assert_allclose(problem.compute_totals("loss", "logits")["loss", "logits"], want, atol=1e-12)


@pytest.mark.parametrize("matrix_free", [False, True], ids=["partials", "matrix-free"])
def test_slsqp_solves_two_coupled_disciplines(url, count, matrix_free: bool) -> None:
    """As Sellar's problem: each discipline needs the other's output. y1 = |(x, y2)|, y2 = |(x, 1)|; minimise both."""
    problem = om.Problem(reports=False)
    model = problem.model
    for name in ("one", "two"):
        model.add_subsystem(name, RemoteComponent("safe_norm", url, {"x": 2}, matrix_free=matrix_free))
    model.add_subsystem("pack_one", om.MuxComp(vec_size=2), promotes_inputs=[("x_0", "x")])
    model.add_subsystem("pack_two", om.MuxComp(vec_size=2), promotes_inputs=[("x_0", "x")])
    for name in ("pack_one", "pack_two"):
        getattr(model, name).add_var("x", shape=(1,))
    model.add_subsystem("half", om.ExecComp("h = 0.5 * y"))
    model.connect("pack_one.x", "one.x", src_indices=om.slicer[:, 0])
    model.connect("pack_two.x", "two.x", src_indices=om.slicer[:, 0])
    model.connect("two.y", "half.y")
    model.connect("half.h", "pack_one.x_1")
    model.connect("one.y", "pack_two.x_1")
    model.add_subsystem("cost", om.ExecComp("f = (a - 2) ** 2 + b"), promotes_outputs=["f"])
    model.connect("one.y", "cost.a")
    model.connect("two.y", "cost.b")
    model.nonlinear_solver = om.NonlinearBlockGS(iprint=-1, maxiter=100, rtol=1e-12, atol=1e-12)
    model.linear_solver = om.ScipyKrylov(rtol=1e-12)
    model.add_design_var("x", lower=0.1)
    model.add_objective("f")
    problem.driver = om.ScipyOptimizeDriver(optimizer="SLSQP", tol=1e-10, disp=False)
    problem.setup()
    problem.set_val("x", 1.0)
    problem.run_model()
    assert_check_totals(problem.check_totals(out_stream=None), atol=1e-5, rtol=1e-5)
    problem.run_driver()
    # a² = x² + b²/4, b² = x² + a²: so a = x √(5/3), b = x √(8/3), and (a - 2)² + b is least at a = 2 - b'/(2 a').
    wanted = 2 - np.sqrt(8 / 5) / 2
    np.testing.assert_allclose(problem.get_val("one.y"), wanted, rtol=1e-6)


def test_a_point_is_one_request_and_a_product_one_more(url, count) -> None:
    def step(component: RemoteComponent) -> list[int]:
        problem, found = problem_of(component), list[int]()
        for scale in (1.0, 2.0, 3.0):
            problem.set_val("a", scale * SYMMETRIC)
            problem.run_model()
            problem.compute_totals(["w"], ["a"])
            found.append(count())
        return found

    shapes = {"a": SYMMETRIC.shape}
    count()
    # Nothing says before the first derivative that there will be any.
    assert step(RemoteComponent("self_adjoint_eig", url, shapes)) == [2, 1, 1]
    # A product for each of three numbers.
    assert max(step(RemoteComponent("self_adjoint_eig", url, shapes, matrix_free=True))) <= 4


def test_attributes_are_options(url) -> None:
    component = RemoteComponent("scale_gradient", url, {"x": 3}, units={"x": "m", "y": "m"})
    assert component.options["scale"] == 1
    problem = problem_of(component, x=X)
    for scale in (1.0, 0.5):
        component.options["scale"] = scale
        problem.run_model()
        np.testing.assert_array_equal(np.diag(problem.compute_totals("y", "x")["y", "x"]), [scale] * 3)
    np.testing.assert_allclose(problem.get_val("y", units="cm"), 100 * X)
    given = RemoteComponent("roi_pool", url, {"features": (1, 4, 4, 2), "rois": (2, 5)}, {"pooled_height": 2})
    assert given.options["pooled_height"] == 2
    problem = problem_of(given)
    given.options["pooled_width"] = 3
    with pytest.raises(pullback.BadArgument, match="these options change shapes or sparsity: call setup again"):
        problem.run_model()
    problem.setup()
    assert problem.get_val("pooled").shape == (2, 2, 3, 2)


def test_complex_step_is_refused_with_the_reason(url) -> None:
    problem = problem_of(RemoteComponent("square", url, {"x": 3}), x=X)
    problem.run_model()
    with pytest.raises(pullback.BadArgument, match=r"square: the service computes with real numbers.*complex step"):
        problem.check_partials(out_stream=None, method="cs")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": {"x": 3, "z": 2}}, r"shapes: expected inputs of square \(x\), got z"),
        ({}, r"shapes: square: x: expected a sequence of sizes for \[\.\.\.\], got None"),
        ({"shapes": {"x": (2.5,)}}, r"x: expected a sequence of sizes for \[\.\.\.\], got \(2\.5,\)"),
        ({"shapes": {"x": 3}, "units": {"z": "m"}}, r"units: expected inputs and outputs \(x, y\), got z"),
    ],
)
def test_arguments_that_do_not_match_the_contract(url, options, message: str) -> None:
    with pytest.raises(pullback.BadArgument, match=message):
        problem_of(RemoteComponent("square", url, **options))


def test_the_key_the_deadline_and_errors_are_the_clients(proxy, url) -> None:
    component = RemoteComponent("square", proxy.url, {"x": 3}, api_key="mine", deadline=1)
    problem = problem_of(component, x=X)
    problem.run_model()
    assert set(proxy.new("Authorization")) == {"Bearer mine"}
    proxy.is_open.clear()
    problem.set_val("x", X + 1)
    with pytest.raises((pullback.TimedOut, pullback.DeadlinePassed), match="deadline"):
        problem.run_model()
    labels = np.array([7, 0], np.int32)
    wrong = RemoteComponent("softmax_cross_entropy", url, {"logits": LOGITS.shape, "labels": 2})
    with pytest.raises(pullback.Unprocessable, match="expected 0 <= label < 3"):
        problem_of(wrong, logits=LOGITS, labels=labels).run_model()
