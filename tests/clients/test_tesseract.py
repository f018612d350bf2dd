"""``tesseract_core.Tesseract`` and ``tesseract_jax.apply_tesseract``: every endpoint, and JAX through them."""

from functools import partial
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import requests
from pydantic import ValidationError
from tesseract_core import Tesseract
from tesseract_jax import apply_tesseract

ENDPOINTS = {"apply", "abstract_eval", "health", "jacobian", "jacobian_vector_product", "vector_jacobian_product"}
X = np.array([-1.5, 0.25, 3.0], np.float32)
A = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 7.0]], np.float32)
EPS = float(np.finfo(np.float32).eps)
# Before version 0.5, which needs Python 3.12, tesseract-jax gives some arrays of a mapped call no room for its points.
OLD = version("tesseract-jax").startswith("0.4.")
METHODS = ("sequential", "auto_experimental", "expand_dims", "broadcast_all")  # the last two send one call


@pytest.fixture(autouse=True)
def _narrow():
    """Run JAX with its default of 32 bits; tests enable 64 bits themselves."""
    with jax.enable_x64(False):
        yield


@pytest.fixture(scope="session")
def tesseract(url):
    """Return the Tesseract of an op, always the same object."""
    known: dict[str, Tesseract] = {}

    def get(op: str) -> Tesseract:
        if op not in known:
            known[op] = Tesseract.from_url(f"{url}/tesseract/{op}")
        return known[op]

    return get


def same(actual, expected) -> None:
    """Check that two trees of arrays are the same, bit for bit."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        x, y = np.asarray(one), np.asarray(other)
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        assert x.tobytes() == y.tobytes(), (x, y)


def test_every_endpoint_matches_the_native_api(tesseract, native):
    one = tesseract("self_adjoint_eig")
    assert set(one.available_endpoints) == ENDPOINTS
    assert one.health() == {"status": "ok"}
    inputs, fields = {"a": A}, {"inputs": {"a": A.tolist()}}
    outputs = one.apply(inputs)
    same(outputs, native("self_adjoint_eig", "forward", **fields)["outputs"])
    abstract = one.abstract_eval({"a": {"shape": A.shape, "dtype": "float32"}})
    assert abstract == {name: {"shape": list(y.shape), "dtype": y.dtype.name} for name, y in outputs.items()}
    dy = {"w": np.arange(3, dtype=np.float32), "v": A}
    same(
        one.vector_jacobian_product(inputs, ["a"], ["w", "v"], dy),
        native("self_adjoint_eig", "vjp", **fields, cotangents={n: y.tolist() for n, y in dy.items()})["gradients"],
    )
    same(
        one.jacobian_vector_product(inputs, ["a"], ["v", "w"], {"a": A}),
        native("self_adjoint_eig", "jvp", **fields, tangents=fields["inputs"])["tangents"],
    )
    same(one.jacobian(inputs, ["a"], ["w"]), native("self_adjoint_eig", "jacobian", **fields, of=["w"])["jacobian"])


def test_jax_differentiates_a_derived_op(tesseract):
    """The gradient of a gradient: JAX needs no more than first order of each Tesseract."""
    one, dy = tesseract("log1pexp.vjp"), np.array([1.0, -2.0, 0.5], np.float32)

    def total(x):
        return apply_tesseract(one, {"x": x, "dy": dy})["dx"].sum()

    s = 1 / (1 + np.exp(-X.astype(np.float64)))
    np.testing.assert_allclose(jax.grad(total)(X), s * (1 - s) * dy, rtol=8 * EPS)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_encoding_gives_the_same_bits(tesseract, dtype):
    one, x = tesseract("square"), np.array([[0.1, np.nan, np.inf], [-np.inf, -0.0, 7]], dtype)
    with np.errstate(invalid="ignore"):
        expected = {"y": x * x}
    for found in (
        one.apply({"x": x}),
        *(one.with_encoding(output_format=f).apply({"x": x}) for f in ("json", "json+base64")),
    ):
        np.testing.assert_array_equal(found["y"], expected["y"])
        assert found["y"].dtype == dtype
    for format_ in ("json", "json+base64"):
        same(one.with_encoding(output_format=format_).apply({"x": X}), {"y": X * X})
        same(one.with_encoding(output_format=format_).apply({"x": X[:0].reshape(0, 4)}), {"y": X[:0].reshape(0, 4)})
        same(one.with_encoding(output_format=format_).apply({"x": np.float32(3)}), {"y": np.float32(9)})
    with pytest.raises(ValueError, match=r"json\+binref"):
        one.with_encoding(output_format="json+binref").apply({"x": x})


def test_bfloat16_is_returned_where_numpy_has_it(tesseract):
    """JAX registers the dtype. The client cannot send it as an array, but as lists with the dtype."""
    data = {"buffer": [1.5, -2.0], "encoding": "json"}
    one, x = tesseract("square"), {"shape": [2], "dtype": "bfloat16", "data": data}
    for found in (one.apply({"x": x}), one.with_encoding(output_format="json").apply({"x": x})):
        same(found, {"y": jnp.array([2.25, 4], jnp.bfloat16)})


def test_numbers_lists_and_attributes(tesseract):
    same(tesseract("square").apply({"x": [1, 2.5]}), {"y": np.array([1, 6.25], np.float32)})
    same(tesseract("square").apply({"x": 3}), {"y": np.float32(9)})
    one = tesseract("scale_gradient")
    for scale in (0.25, np.float32(0.25), np.array(0.25)):
        found = one.vector_jacobian_product({"x": X, "scale": scale}, ["x"], ["y"], {"y": X})
        same(found, {"x": X / 4})


@pytest.mark.parametrize(
    ("inputs", "names", "words"),
    [
        ({"x": ["a"]}, None, r"body\.inputs\.x\.0"),
        ({"x": X, "{got}": 1}, None, "unknown field"),
        ({"x": X, "{0}{x!r}%s{{}}": 1}, None, r"\{0\}\{x!r\}%s\{\{\}\}"),
        ({"x": X.astype(complex)}, None, "complex128"),
        ({}, None, "missing field"),
        ({"x": X}, ["z"], r"vjp_inputs\.0"),
        ({"x": X}, [], "nothing selected"),
    ],
)
def test_invalid_requests_are_validation_errors(tesseract, inputs, names, words):
    one = tesseract("relu")
    with pytest.raises(ValidationError, match=words) as raised:
        one.apply(inputs) if names is None else one.vector_jacobian_product(inputs, names, ["y"], {"y": X})
    assert raised.value.errors()[0]["loc"][0] == "body"


def test_invalid_json_is_a_validation_error(tesseract, monkeypatch):
    one, send = tesseract("square"), requests.Session.request

    def truncate(self, **request):
        return send(self, **{**request, "data": request["data"][:-1]})

    one.apply({"x": X})
    monkeypatch.setattr(requests.Session, "request", truncate)
    with pytest.raises(ValidationError, match="truncated"):
        one.apply({"x": X})


def test_other_errors_have_the_message_of_the_service(url, tesseract, monkeypatch):
    for op, words in (("sqare", "404.*did you mean square"), ("", "404")):
        with pytest.raises(RuntimeError, match=words):
            Tesseract.from_url(f"{url}/tesseract/{op}").apply({"x": X})
    with pytest.raises(NotImplementedError):
        tesseract("clip_gradient").jacobian_vector_product({"x": X}, ["x"], ["y"], {"x": X})
    with pytest.raises(ValidationError, match="x must be positive"):
        tesseract("positive").apply({"x": X})
    send = requests.Session.request

    def send_with_deadline(self, **request):
        return send(self, **request | {"headers": {"pullback-deadline-ms": "50"}})

    monkeypatch.setattr(requests.Session, "request", send_with_deadline)
    with pytest.raises(RuntimeError, match=r"504.*deadline"):
        tesseract("sleepy").apply({"x": 0.5})


def square(tesseract, **how):
    return lambda x: apply_tesseract(tesseract("square"), {"x": x}, **how)["y"]


def test_jax_differentiates_in_every_way(tesseract):
    """y = x²: every product is exact, however it is computed."""
    f, x = square(tesseract), jnp.asarray(X)

    def total(x):
        return f(x).sum()

    same(f(x), x * x)
    same(jax.jit(f)(x), x * x)
    same(jax.grad(total)(x), 2 * x)
    same(jax.jit(jax.grad(total))(x), 2 * x)
    same(jax.jvp(f, (x,), (x,)), (x * x, 2 * x * x))
    y, pull_back = jax.vjp(f, x)
    same((y, *pull_back(x)), (x * x, 2 * x * x))
    expected = np.diag(2 * X)
    for jacobian in (jax.jacfwd, jax.jacrev):
        same(jacobian(f)(x), expected)
        same(jax.jit(jacobian(f))(x), expected)
    same(jax.linearize(f, x)[1](x), 2 * x * x)


@pytest.mark.parametrize("method", METHODS)
def test_jax_maps_over_points(tesseract, method):
    f, many = square(tesseract, vmap_method=method), jnp.stack([X, -2 * X])
    same(jax.vmap(f)(many), many * many)
    mapped = jax.vmap(jax.grad(lambda x: f(x).sum()))
    if OLD and method == "expand_dims":
        with pytest.raises(ValidationError, match=r"shape mismatch; expected \[2, 3\], got \[1, 3\]"):
            mapped(many)
    else:
        same(mapped(many), 2 * many)


LOGITS = jnp.asarray(np.random.default_rng(1).normal(size=(2, 2, 3)), jnp.float32)
LABELS = jnp.array([[0, 2], [1, 1]], jnp.int32)


@pytest.fixture(scope="session")
def loss(tesseract):
    """Return the loss of logits of shape [2, 3] and labels of shape [2]: an op of fixed rank."""

    def get(logits, labels, method=None):
        inputs = {"logits": logits, "labels": labels}
        return apply_tesseract(tesseract("softmax_cross_entropy"), inputs, vmap_method=method)["loss"]

    return get


def loss_of_jax(logits, labels):
    return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]


def push(f, logits, labels):
    return jax.jvp(lambda logits: f(logits, labels), (logits,), (2 * logits,))


def pull(f, logits, labels):
    return jax.grad(lambda logits: f(logits, labels).sum())(logits)


def row_of(f, labels, logits):
    return f(logits, labels)


# Functions of a function f of logits and labels, mapped over some of its arguments.
MAPPED = {
    "both": (jax.vmap, LOGITS, LABELS),
    "shared labels": (lambda f: jax.vmap(f, (0, None)), LOGITS, LABELS[0]),
    "constant labels": (lambda f: jax.vmap(partial(row_of, f, LABELS[0])), LOGITS),
    "shared logits": (lambda f: jax.vmap(f, (None, 0)), LOGITS[0], LABELS),
    "another axis": (lambda f: jax.vmap(f, (1, None), 1), LOGITS, LABELS[0]),
    "twice": (lambda f: jax.vmap(jax.vmap(f, (0, None)), (None, 0)), LOGITS, LABELS),
    "one point": (jax.vmap, LOGITS[:1], LABELS[:1]),
    "jvp": (lambda f: jax.vmap(partial(push, f)), LOGITS, LABELS),
    "jvp, shared logits": (lambda f: jax.vmap(partial(push, f), (None, 0)), LOGITS[0], LABELS),
    "grad": (lambda f: jax.vmap(partial(pull, f)), LOGITS, LABELS),
    "grad, shared labels": (lambda f: jax.vmap(partial(pull, f), (0, None)), LOGITS, LABELS[0]),
}


@pytest.mark.parametrize("case", MAPPED)
def test_jax_maps_an_op_of_fixed_rank(loss, case):
    """One call for all points, or one for each, returns the same bits, with jit too; JAX's own differ by a few eps."""
    mapped, *arguments = MAPPED[case]
    found = mapped(partial(loss, method="sequential"))(*arguments)
    for method in METHODS[2:]:
        ours = mapped(partial(loss, method=method))
        same(found, ours(*arguments))
        same(found, jax.jit(ours)(*arguments))
    expected = mapped(loss_of_jax)(*arguments)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=32 * EPS), found, expected)


@pytest.mark.parametrize("method", METHODS[2:])
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)], ids=str)
def test_jax_differentiates_a_mapped_op(loss, method, axes):
    """The gradient of a sum over points: one with respect to an input that they share is a sum, too."""
    logits, labels = (x if axis == 0 else x[0] for x, axis in zip((LOGITS, LABELS), axes, strict=True))

    def total(f, logits):
        return (jax.vmap(f, axes)(logits, labels) ** 2).sum()

    ours = partial(total, partial(loss, method=method))
    expected = jax.grad(partial(total, loss_of_jax))(logits)
    for found in (jax.grad(ours)(logits), jax.jit(jax.grad(ours))(logits)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=128 * EPS)


@pytest.mark.parametrize("method", METHODS)
def test_a_gradient_for_each_point_of_an_input_that_they_share(loss, method):
    mapped = jax.vmap(partial(pull, partial(loss, method=method)), (None, 0))
    if OLD and method == "expand_dims":
        with pytest.raises(ValidationError, match=r"no axis for the points.*vmap_method='broadcast_all'"):
            mapped(LOGITS[0], LABELS)
        return
    expected = jax.vmap(partial(pull, loss_of_jax), (None, 0))(LOGITS[0], LABELS)
    np.testing.assert_allclose(mapped(LOGITS[0], LABELS), expected, rtol=0, atol=32 * EPS)


@pytest.mark.parametrize("method", METHODS)
def test_mapped_jacobians(loss, method):
    mapped = jax.vmap(jax.jacrev(partial(loss, method=method)))
    if OLD:  # the client forgets its method there
        with pytest.raises(NotImplementedError, match="vmap_method=None"):
            mapped(LOGITS, LABELS)
        return
    expected = jax.vmap(jax.jacrev(loss_of_jax))(LOGITS, LABELS)
    np.testing.assert_allclose(mapped(LOGITS, LABELS), expected, rtol=0, atol=32 * EPS)


def test_mapped_gradients_of_two_inputs(tesseract):
    """Feature maps and filters, both differentiable, against one call for each point."""
    rng = np.random.default_rng(2)
    x, f = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((3, 1, 3, 3, 2), (3, 2, 2, 2, 2)))

    def grads(method):
        def total(x, f):
            found = apply_tesseract(tesseract("conv_eig"), {"x": x, "f": f}, vmap_method=method)
            return (found["w"] ** 2).sum()

        return jax.vmap(jax.grad(total, (0, 1)))(x, f)

    same(grads("broadcast_all"), grads("sequential"))


def test_an_attribute_has_one_value_in_a_call(tesseract):
    def scaled(x, scale, method):
        return apply_tesseract(tesseract("scale_gradient"), {"x": x, "scale": scale}, vmap_method=method)["y"]

    scales = jnp.array([0.5, 0.25])
    with pytest.raises(Exception, match="an attribute has one value in a call"):
        jax.vmap(partial(scaled, method="broadcast_all"), (None, 0))(jnp.asarray(X), scales)
    found = jax.vmap(partial(scaled, method="sequential"), (None, 0))(jnp.asarray(X), scales)
    same(found, jnp.stack([X, X]))


@pytest.mark.parametrize("wide", [False, True])
def test_eigenvalues_have_the_gradient_of_jax(tesseract, wide):
    """∂λᵢ/∂A is vᵢvᵢᵀ: two backward stable solvers differ by a few eps‖A‖/gap, and the gaps here are over 1."""
    with jax.enable_x64(wide):
        a = jnp.asarray(A, jnp.float64 if wide else jnp.float32)
        weights = jnp.array([1.0, -2.0, 0.5], a.dtype)
        bound = 64 * np.finfo(a.dtype).eps * np.linalg.norm(A, 2)

        def ours(a):
            return apply_tesseract(tesseract("self_adjoint_eig"), {"a": a})

        w, v = np.linalg.eigh(np.asarray(a))
        found = ours(a)
        assert found["w"].dtype == a.dtype
        np.testing.assert_allclose(found["w"], w, rtol=0, atol=bound)
        np.testing.assert_allclose(np.abs(found["v"]), np.abs(v), rtol=0, atol=bound)
        expected = (v * np.asarray(weights)) @ v.T
        found = jax.jit(jax.grad(lambda a: ours(a)["w"] @ weights))(a)
        assert found.dtype == a.dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=bound)
        rows = jax.jacrev(lambda a: ours(a)["w"])(a)
        np.testing.assert_allclose(rows, np.einsum("ai,bi->iab", v, v), rtol=0, atol=bound)
        tangent = jax.jvp(lambda a: ours(a)["w"], (a,), (jnp.eye(3, dtype=a.dtype),))[1]
        np.testing.assert_allclose(tangent, np.ones(3), rtol=0, atol=bound)


def test_integer_labels_have_no_gradient(tesseract):
    """Loss lse(l) - l[label], gradient softmax - onehot: sums of three numbers below 1, each a few eps off."""
    logits, labels = jnp.array([[1.0, 2.0, 3.0], [0.0, 0.5, -1.0]]), jnp.array([0, 2], jnp.int32)

    def loss(logits, labels):
        return apply_tesseract(tesseract("softmax_cross_entropy"), {"logits": logits, "labels": labels})["loss"]

    expected = jax.nn.logsumexp(logits, 1) - logits[jnp.arange(2), labels]
    np.testing.assert_allclose(loss(logits, labels), expected, rtol=16 * EPS, atol=0)
    expected = jax.nn.softmax(logits) - jax.nn.one_hot(labels, 3)
    for grad in (jax.grad, lambda f: jax.jit(jax.grad(f))):
        found = grad(lambda logits: loss(logits, labels).sum())(logits)
        np.testing.assert_allclose(found, expected, rtol=0, atol=16 * EPS)
    with pytest.raises(ValidationError, match="expected one of int32, got float32"):
        loss(logits, jnp.array([0.0, 2.0]))


def test_several_inputs_and_outputs_with_attributes(tesseract, native):
    features = jnp.arange(32.0).reshape(1, 4, 4, 2) % 7
    rois = jnp.array([[0.0, 0, 0, 3, 3], [0, 1, 1, 2, 3]])
    attrs = {"pooled_height": 2, "pooled_width": 1, "spatial_scale": 1.0}

    def pooled(features):
        return apply_tesseract(tesseract("roi_pool"), {"features": features, "rois": rois, **attrs})

    fields = {"inputs": {"features": features.tolist(), "rois": rois.tolist()}, "attrs": attrs}
    same(pooled(features), native("roi_pool", "forward", **fields)["outputs"])
    found = jax.grad(lambda f: pooled(f)["pooled"].sum())(features)
    same(found, native("roi_pool", "vjp", **fields)["gradients"]["features"])
    assert found.sum() == 2 * 2 * 2  # a one for each output
    same(
        jax.jacrev(lambda f: pooled(f)["pooled"])(features),
        native("roi_pool", "jacobian", **fields)["jacobian"]["pooled"]["features"],
    )


def test_number_attributes_are_traced_and_strings_are_static(tesseract):
    """A scaled gradient, and a clipped one, which is not linear: Jacobians go row by row, and there is no jvp."""
    x = jnp.asarray(X)

    def scaled(x, scale):
        return jax.grad(lambda x: apply_tesseract(tesseract("scale_gradient"), {"x": x, "scale": scale})["y"].sum())(x)

    same(scaled(x, 0.5), jnp.full(3, 0.5))
    same(jax.jit(scaled)(x, 0.5), jnp.full(3, 0.5))

    def clipped(x):
        how = {"by": "norm", "limit": 0.5}
        return apply_tesseract(tesseract("clip_gradient"), {"x": x, **how}, vmap_method="sequential")["y"]

    same(jax.jacrev(clipped)(x), 0.5 * np.eye(3, dtype=np.float32))
    same(jax.vjp(clipped, x)[1](jnp.array([3.0, 0, 0])), (jnp.array([0.5, 0, 0]),))
    with pytest.raises(NotImplementedError, match="jacobian_vector_product"):
        jax.jvp(clipped, (x,), (x,))


def test_a_disconnected_gradient_is_zero(tesseract):
    def largest(x, hint):
        return apply_tesseract(tesseract("largest"), {"x": x, "hint": hint})["y"]

    found = jax.grad(largest, argnums=(0, 1))(jnp.asarray(X), jnp.float32(1))
    same(found, (jnp.array([0.0, 0, 2]), jnp.float32(0)))


def test_gradient_descent(tesseract):
    """On Σ(x - 1)² each step halves the distance."""

    def f(x):
        return square(tesseract)(x - 1).sum()

    x, step = jnp.asarray(X), jax.jit(lambda x: x - 0.25 * jax.grad(f)(x))
    for _ in range(20):
        x = step(x)
    np.testing.assert_allclose(x, 1, rtol=0, atol=np.abs(X - 1).max() / 2**20 + 2 * EPS)
