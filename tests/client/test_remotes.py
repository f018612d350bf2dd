"""The core of remote functions, with a real service: the algebra, types, errors, and how many requests it takes."""

import pickle
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest

import pullback
from pullback.remotes import Derivative, Jacobians, Remote, TensorType, evaluate

X, ONES = np.array([-0.5, 0.25, 2.0]), np.ones(3)
LOGITS, LABELS = np.array([[1.0, -0.5, 2.0], [0.25, 0.0, -3.0]]), np.array([2, 0], np.int32)
SYMMETRIC = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 5.0]])


def types(*arrays: np.ndarray) -> list[TensorType]:
    return [TensorType.of(array) for array in arrays]


@pytest.mark.parametrize(
    ("name", "inputs", "entries"),
    [
        ("log1pexp", [X], [3]),
        ("safe_norm", [np.stack([X, X + 1])], [6]),
        ("softmax_cross_entropy", [LOGITS, LABELS], [6]),
        ("matvec", [SYMMETRIC[:2], X], [12, 6]),
        ("matvec", [np.ones((6, 1)), X[:1]], [36, 6]),
        ("clip_gradient", [X], [3]),
    ],
)
def test_jacobians_have_the_entries_that_can_differ_from_0(remote, api, name: str, inputs: Any, entries: Any) -> None:
    of = Jacobians(remote(name), types(*inputs))
    assert [pattern.rows.size for pattern in of.patterns.values()] == entries
    seeds = [np.linspace(-1, 1, t.size).reshape(t.shape) for t in of.outputs]
    for each, arrays in ((of, inputs), (of.vjp, [*inputs, *seeds])):
        op = api.op(".".join((name, *each.p.path)))
        slots = op.contract()
        named = {slot.name: array for slot, array in zip(slots.inputs, arrays, strict=True)}
        wanted = op.jacobian(named).jacobian
        for (o, i), found in each.entries(arrays).items():
            pattern = each.patterns[o, i]
            dense = np.zeros(pattern.shape)
            dense[pattern.rows, pattern.columns] = found
            block = wanted[slots.outputs[o].name][slots.inputs[i].name]
            np.testing.assert_allclose(dense, 0 if block is None else block.reshape(dense.shape), atol=1e-12)
        for value, y in zip(each.values(arrays), op.forward(named).outputs.values(), strict=True):
            np.testing.assert_allclose(value, y, atol=1e-12)


@pytest.mark.share(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "attrs", "inputs"),
    [
        ("log1pexp", {}, [X]),
        ("log1pexp2", {}, [X]),
        ("scale_gradient", {"scale": 0.5}, [X]),
        ("safe_norm", {}, [X]),
        ("softmax_cross_entropy", {}, [LOGITS, LABELS]),
        pytest.param("self_adjoint_eig", {}, [SYMMETRIC], marks=pytest.mark.thorough),
        ("zero_out_indexed", {}, [X.astype(np.float32)]),
        ("roi_pool", {"pooled_height": 1}, [np.arange(32.0).reshape(1, 4, 4, 2), np.array([[0.0, 0, 0, 3, 3]] * 3)]),
    ],
)
def test_every_path_is_the_derived_op(remote, api, name: str, attrs: dict[str, Any], inputs: list[Any]) -> None:
    """Results, their types and their number are those of ``f.vjp.jvp/forward`` and the like."""
    rng = np.random.default_rng(0)

    def walk(p: Derivative, arrays: list[np.ndarray]) -> None:
        op = api.op(".".join((name, *p.path)))
        contract = op.contract()
        assert p.arity == len(contract.inputs)
        named = {slot.name: array for slot, array in zip(contract.inputs, arrays, strict=True)}
        answer = op.forward(named, attrs=attrs).outputs
        want = [
            np.zeros(t.shape, t.dtype) if x is None else x
            for x, t in zip(answer.values(), p.types(types(*arrays)), strict=True)
        ]
        results = evaluate(p, arrays)
        assert p.types(types(*arrays)) == types(*results) == types(*want)
        for result, wanted in zip(results, want, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-12)
            result[...] = 0  # the caller owns it
        if len(p.path) < 2:
            ones = [rng.normal(size=np.shape(want[i])).astype(want[i].dtype) for i in p.differentiable_outputs]
            walk(p.vjp, [*arrays, *ones])
            tangents = [rng.normal(size=arrays[i].shape).astype(arrays[i].dtype) for i in p.differentiable_inputs]
            walk(p.jvp, [*arrays, *tangents])

    walk(remote(name, **attrs), inputs)


def test_an_elementwise_op_takes_one_request_for_all_derivatives_at_a_point(remote, transport) -> None:
    p = remote("log1pexp")
    sigma = 1 / (1 + np.exp(-X))
    np.testing.assert_allclose(evaluate(p, [X], ahead=True)[0], np.log1p(np.exp(X)))
    np.testing.assert_allclose(evaluate(p.vjp, [X, 2 * ONES])[0], 2 * sigma)
    np.testing.assert_allclose(evaluate(p.vjp.jvp, [X, ONES, 3 * ONES, ONES])[0], 3 * sigma * (1 - sigma) + sigma)
    dx, ddy = evaluate(p.vjp.vjp, [X, ONES, np.eye(3)], batched=True)
    np.testing.assert_allclose(dx, np.diag(sigma * (1 - sigma)))
    np.testing.assert_allclose(ddy, np.diag(sigma))
    evaluate(p, [X])
    assert transport.new() == ["log1pexp/gradients"]


def test_a_value_alone_takes_a_forward(remote, transport) -> None:
    evaluate(remote("log1pexp"), [X])
    assert transport.new() == ["log1pexp/forward"]


def test_a_vjp_brings_a_value_of_one_number_along(remote, transport) -> None:
    p, norm = remote("safe_norm"), np.linalg.norm(X)
    np.testing.assert_allclose(evaluate(p, [X], ahead=True)[0], norm)
    np.testing.assert_allclose(evaluate(p.vjp, [X, np.array(2.0)])[0], 2 * X / norm)
    batch = evaluate(p.vjp, [X, np.array([1.0, -1.0])], batched=True)[0]
    np.testing.assert_allclose(batch, [X / norm, -X / norm])
    assert transport.new() == ["safe_norm/vjp"]


def test_a_declared_second_order_is_the_services(remote, transport) -> None:
    p = remote("log1pexp2")
    np.testing.assert_allclose(evaluate(p.vjp.jvp, [X, ONES, ONES, 0 * X])[0], 1 - np.exp(X))
    assert transport.new() == ["log1pexp2.vjp/jvp"]


def test_with_attributes_of_which_nothing_is_claimed_products_are_the_services(remote, transport) -> None:
    p = remote("scale_gradient", scale=0.5)
    np.testing.assert_array_equal(evaluate(p.vjp, [X, ONES])[0], 0.5 * ONES)
    assert transport.new() == ["scale_gradient/vjp"]
    p = remote("scale_gradient", scale=1.0)
    evaluate(p.vjp, [X, ONES])
    assert transport.new() == ["scale_gradient/gradients"]


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_products_of_coarse_dtypes_are_the_services(remote, transport, dtype: Any) -> None:
    x = X.astype(dtype)
    assert evaluate(remote("log1pexp").vjp, [x, x])[0].dtype == x.dtype
    assert transport.new() == ["log1pexp/vjp"]


def test_a_derivative_that_is_not_finite_is_the_services(remote, transport) -> None:
    x = np.array([1.0, np.nan])
    p = remote("log1pexp")
    evaluate(p.vjp, [x, np.ones(2)])
    assert transport.new() == ["log1pexp/gradients", "log1pexp/vjp"]


def test_a_directions_shape_is_checked_not_broadcast(remote) -> None:
    p = remote("log1pexp")
    evaluate(p, [X], ahead=True)
    with pytest.raises(pullback.Unprocessable, match="shape"):
        evaluate(p.vjp, [X, np.ones((2, 3))])
    with pytest.raises(pullback.Unprocessable, match="float32"):
        evaluate(p.vjp, [X, ONES.astype(np.float32)])


def test_errors_are_the_services_own(remote) -> None:
    with pytest.raises(pullback.Unprocessable, match="clip_gradient is not linear in the cotangent, so it has no jvp"):
        evaluate(remote("clip_gradient").jvp, [X, ONES])
    np.testing.assert_array_equal(evaluate(remote("clip_gradient").vjp, [X, 2 * ONES])[0], 0.5 * ONES)
    with pytest.raises(pullback.NotFound, match="log1pex"):
        evaluate(remote("log1pex"), [X])
    with pytest.raises(pullback.BadArgument, match="expected 2 arrays \\(x, dy\\), got 1"):
        evaluate(remote("log1pexp").vjp, [X])


def test_types_need_no_request(remote, transport) -> None:
    with pytest.raises(pullback.BadArgument, match=r"labels: shape mismatch: expected \[N\] with N = 2, got \[3\]"):
        remote("softmax_cross_entropy").types(types(LOGITS, np.zeros(3, np.int32)))
    with pytest.raises(pullback.BadArgument, match=r"expected \[\.\.\., M, M\]"):
        remote("self_adjoint_eig").types(types(X))
    w, v = remote("self_adjoint_eig").types([TensorType((4, 2, 3, 3), np.dtype("float32"))])
    assert (w.shape, v.shape, w.dtype.name) == ((4, 2, 3), (4, 2, 3, 3), "float32")
    assert transport.new() == []


def test_labels_may_have_another_integer_dtype_if_they_fit(remote) -> None:
    p = remote("softmax_cross_entropy")
    np.testing.assert_array_equal(evaluate(p, [LOGITS, LABELS.astype(np.int64)]), evaluate(p, [LOGITS, LABELS]))
    with pytest.raises(pullback.BadArgument, match="expected integers that fit int32, got int64"):
        evaluate(p, [LOGITS, np.array([0, 2**40])])


def test_no_directions_need_no_request(remote, transport) -> None:
    none = evaluate(remote("softmax_cross_entropy").vjp, [LOGITS, LABELS, np.zeros((0, 2))], batched=True)
    assert [x.shape for x in none] == [(0, 2, 3)]
    assert transport.new() == []


def test_a_remote_op_is_equal_to_one_with_equal_arguments_and_can_be_pickled(service) -> None:
    one = Remote("scale_gradient", service.url, {"scale": 2})
    copy = pickle.loads(pickle.dumps(Derivative(one, ("vjp",))))
    assert copy == Derivative(one, ("vjp",))
    assert hash(copy) == hash(Derivative(one, ("vjp",)))
    assert Remote("scale_gradient", service.url, {"scale": 3}) != one
    np.testing.assert_array_equal(evaluate(copy, [X, ONES])[0], 2 * ONES)


def test_no_framework_is_imported_before_it_is_asked_for(python) -> None:
    loaded = python("import sys, pullback, pullback.remotes; print(*sys.modules)").split()
    assert {"jax", "torch", "tensorflow", "pytensor"}.isdisjoint(loaded)
    assert "pullback.remotes" not in python("import sys, pullback; print(*sys.modules)").split()


def test_products_with_infinity_are_those_of_the_service(remote, api) -> None:
    x, dy = np.array([-2.0, 0.5, 2.0]), np.array([np.inf, np.nan, -np.inf])
    for name in ("sign", "log1pexp"):
        (mine,) = evaluate(remote(name).vjp, [x, dy])
        np.testing.assert_array_equal(mine, api.op(name).vjp({"x": x}, cotangents={"y": dy}).gradients["x"])
    assert evaluate(remote("sign").vjp, [x, dy])[0][0] == 0


def test_a_busy_service_is_asked_again(remote, transport, monkeypatch) -> None:
    busy = [httpx.Response(503, headers={"retry-after": "0"})] * 2
    handle = transport.handle_request
    monkeypatch.setattr(transport, "handle_request", lambda request: busy.pop() if busy else handle(request))
    (gradient,) = evaluate(remote("square").vjp, [X, ONES])
    np.testing.assert_array_equal(gradient, 2 * X)
    assert not busy
