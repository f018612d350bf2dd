"""Functions of NumPy with gradients by hand, right and wrong, as their users write them."""

import time
from types import SimpleNamespace

import numpy as np

TABLE = np.array([[0.3, -0.7], [1.1, 0.9]], np.float32)


def layer(x, w, b):
    return np.tanh(x @ w + b)


def layer_vjp(x, w, b, dy):
    dz = (1 - layer(x, w, b) ** 2) * dy
    return dz @ w.T, x.T @ dz, dz.sum(axis=0)


def layer_inputs():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 3)), rng.normal(size=(3, 2)), rng.normal(size=2)


def rectified(x, w):
    return np.maximum(x @ w, 0)


def rectified_vjp(x, w, dy):
    dz = np.where(x @ w > 0, dy, 0)
    return dz @ w.T, x.T @ dz


def rectified_inputs():
    return layer_inputs()[:2]


def energy(x):
    return float(np.sum(x**4) / 4)


def energy_grad(x):
    return x**3


def energy_hvp(x, v):
    return 3 * x**2 * v


def energy_inputs():
    return [0.5, -1.25, 2.0]


def squares(x):
    return x**2


def squares_jac(x):
    return np.diag(2 * x)


def squares_inputs():
    return np.array([0.5, -1.25, 2.0])


def in_dict(parameters, x):
    return {"y": parameters["w"] * x + parameters["b"], "count": 3}


def in_dict_vjp(parameters, x, dy):
    return dy * x, dy, dy * parameters["w"]


def in_dict_inputs():
    return {"parameters": {"w": np.array([2.0, 3.0]), "b": np.array([0.5, 1.0])}, "x": np.array([0.25, 4.0])}


def logarithm(x):
    return np.log(x)


def logarithm_vjp(x, dy):
    return dy / x


def narrow(x):
    return x.astype(np.float32) ** 2


def narrow_vjp(x, dy):
    return 2 * x * dy


def in_float32(x):
    return np.tanh(x.astype(np.float32) @ TABLE).astype(np.float64)


def in_float32_vjp(x, dy):
    slope = 1 - np.tanh(x.astype(np.float32) @ TABLE) ** 2
    return ((dy.astype(np.float32) * slope) @ TABLE.T).astype(np.float64)


def table_row(w, row):
    return (TABLE[row] * w).sum(axis=0)


def table_row_vjp(w, row, dy):
    return TABLE[row].sum(axis=0) * dy, None


def of_kind(x, kind, *, power=2):
    return x**power if kind == "power" else x


def of_kind_vjp(x, kind, dy):
    return 2 * x * dy


def of_kind_inputs():
    return np.array([0.5, 2.0]), "power"


def logistic(w, x, y):
    return float(np.sum(np.log1p(np.exp(-y * (x @ w)))))


def logistic_grad(w, x, y):
    return -x.T @ (y / (1 + np.exp(y * (x @ w))))


def logistic_inputs():
    return np.array([0.5, -1.0, 0.25]), layer_inputs()[0].repeat(2, 0), np.array([1.0, -1.0, 1.0, 1.0])


def of_data(w, x, y):
    return logistic(w, x, y)


def of_data_grad(w, x, y):
    return logistic_grad(w, x, y), None, None


def of_data_inputs():
    w, x, y = logistic_inputs()
    return w, x, y.astype(int)


# The wrong ones.
in_float32_twice = in_float32


def in_float32_twice_vjp(x, dy):
    return 2 * in_float32_vjp(x, dy)


def thrice(x):
    return x**3


def thrice_vjp(x, dy):
    return 2.99 * x**2 * dy


def kept_sign(x):
    return np.abs(x)


def kept_sign_vjp(x, dy):
    return np.where(x > -10, dy, -dy)


def hvp_twice(x):
    return float(np.sum(x**4) / 4)


def hvp_twice_grad(x):
    return x**3


def hvp_twice_hvp(x, v):
    return 6 * x**2 * v


def halved_in_place(x):
    x *= 0.5
    return x + 0


def halved_in_place_vjp(x, dy):
    return dy * 0.5


def rounded_gradient(x):
    return np.sin(x)


def rounded_gradient_vjp(x, dy):
    return dy * np.cos(x.astype(np.float16)).astype(x.dtype)


def wrong_in_float32(x):
    return np.sin(x)


def wrong_in_float32_vjp(x, dy):
    return np.cos(x) * dy * (1.01 if x.dtype == np.float32 else 1)


def not_linear(x):
    return np.sin(x)


def not_linear_vjp(x, dy):
    return np.cos(x) * dy * (1 + 0.01 * np.abs(dy))


def clipped(x):
    return np.sin(x)


def clipped_vjp(x, dy):
    return np.clip(np.cos(x) * dy, -1e4, 1e4)


def over_dy(x):
    return np.sin(x)


def over_dy_vjp(x, dy):
    with np.errstate(invalid="ignore"):
        return np.cos(x) * dy * (dy / dy)


def wrong_at_one(x):
    return np.sin(x)


def wrong_at_one_vjp(x, dy):
    return np.cos(x) * dy * (1.5 if (dy == 1).all() else 1)


def twice_of_data(w, x, y):
    return logistic(w, x, y)


def twice_of_data_grad(w, x, y):
    return 2 * logistic_grad(w, x, y)


twice_of_data_inputs = of_data_inputs


CALLS = SimpleNamespace(count=0)


def drifting(x):
    CALLS.count += 1
    return np.sin(x) * (1 + 1e-3 * CALLS.count)


def drifting_vjp(x, dy):
    return np.cos(x) * dy


def transposed(x, w):
    return x @ w


def transposed_vjp(x, w, dy):
    return dy @ w, x.T @ dy


def transposed_inputs():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 3)), rng.normal(size=(3, 3))


def from_memory(x):
    return np.sin(x)


def from_memory_vjp(x, dy):
    # As a kernel that takes a pointer and no strides.
    return np.cos(x) * np.lib.stride_tricks.as_strided(dy, dy.shape, np.empty_like(dy, order="C").strides)


def block(x):
    return np.sin(x)


def block_vjp(x, dy):
    # As a kernel whose grid has one block.
    dx = np.cos(x) * dy
    dx.ravel()[64:] = 0
    return dx


def one_row(x):
    return x - x.mean(axis=0) ** 2


def one_row_vjp(x, dy):
    # The squeeze is for the mean of several rows.
    dx = dy - 2 * x.mean(axis=0) * dy.sum(axis=0) / len(x)
    return dx if len(x) > 1 else dy


def of_base(x):
    return np.sin(x)


def of_base_vjp(x, dy):
    # As a kernel that takes a stride of 0 for that of a scalar.
    return np.cos(x) * dy * (0 if 0 in dy.strides else 1)


def at_knots(x, knots, values):
    return np.interp(x, knots, values)


def at_knots_vjp(x, knots, values, dy):
    # Beyond the knots, the value is that of the last one.
    at = np.clip(np.searchsorted(knots, x) - 1, 0, len(knots) - 2)
    width, rise = np.diff(knots)[at], np.diff(values)[at]
    t = np.clip((x - knots[at]) / width, 0, 1)
    rise = np.where((x < knots[0]) | (x > knots[-1]), 0, rise)
    dvalues, dknots = np.zeros_like(values), np.zeros_like(knots)
    np.add.at(dvalues, at, (1 - t) * dy)
    np.add.at(dvalues, at + 1, t * dy)
    np.add.at(dknots, at, -(1 - t) * rise / width * dy)
    np.add.at(dknots, at + 1, -t * rise / width * dy)
    return rise / width * dy, dknots, dvalues


def at_knots_inputs():
    return np.array([0.3, 1.2, 2.6]), np.array([0.0, 1.0, 2.0, 4.0]), np.array([0.5, -1.0, 2.0, 0.0])


def only_contiguous(x):
    if not x.flags.c_contiguous:
        raise ValueError("a contiguous array is needed")
    return np.sin(x)


def only_contiguous_vjp(x, dy):
    return np.cos(x) * dy


# What cannot be checked.
def no_gradient(x):
    return x


def nothing(x):
    del x


def nothing_vjp(x, dy):
    return x * dy


def whole(x):
    return np.round(x).astype(int)


whole_vjp = nothing_vjp


def raising(x):
    raise ValueError("a matrix is needed")


raising_vjp = nothing_vjp


def two_gradients(x, w, b):
    return x * w + b


def two_gradients_vjp(x, w, b, dy):
    return dy * w, dy * x


def elementwise(x):
    return x**3


def elementwise_grad(x):
    return 3 * x**2


def sleeping(x):
    if not x.all():
        time.sleep(5)
    return x


sleeping_vjp = nothing_vjp


def endless(x):
    while CALLS.count >= 0:
        time.sleep(0.01)
    return x


endless_vjp = nothing_vjp


def in_list(x):
    return [x**2, 3 * x]


def in_list_vjp(x, dy):
    return 2 * x * dy[0] + 3 * dy[1]


def of_float(x):
    return float(np.sum(x**2))


def of_float_vjp(x, dy):
    return 2 * x * dy


def itself(x):
    return x


def itself_vjp(x, dy):
    return dy


def other_shapes(x):
    CALLS.count += 1
    return x[: 1 + CALLS.count % 2]


other_shapes_vjp = nothing_vjp


def not_a_number(x):
    return x * np.nan


not_a_number_vjp = nothing_vjp


def of_complex(x):
    return x * 1j


of_complex_vjp = nothing_vjp


def exiting(x):
    raise SystemExit(3)


exiting_vjp = nothing_vjp


def printing(x):
    print("a line of the user")
    return x**2


printing_vjp = of_float_vjp


def without_gradient(x):
    return x**2


def without_gradient_vjp(x, dy):
    return None


def only_float32(x):
    if x.dtype != np.float32:
        raise TypeError("the kernel takes float32")
    return np.sin(x)


def only_float32_vjp(x, dy):
    return np.cos(x) * dy


def only_float32_inputs():
    return np.array([0.5, -1.25, 2.0], np.float32)
