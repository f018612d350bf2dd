"""Scientific functions of NumPy as their users write them, each with its gradient and one with a common mistake.

The gradient of ``f`` is ``f_vjp`` or ``f_grad``; ``f_mistaken`` is the wrong one, and its docstring says why.
"""

import numpy as np
from scipy import optimize

DRAW = np.random.default_rng(7)


rosenbrock, rosenbrock_grad, rosenbrock_hvp = optimize.rosen, optimize.rosen_der, optimize.rosen_hess_prod


def rosenbrock_inputs():
    return np.array([-1.2, 1.0, 0.7, 1.3, 0.4])


def rosenbrock_mistaken(x):
    """The gradient in the last number is forgotten."""
    found = rosenbrock_grad(x)
    found[-1] = 0
    return found


# Pair potential: the energy of a cluster of atoms.
def lennard_jones(x):
    i, j = np.triu_indices(len(x), 1)
    s6 = np.sum((x[i] - x[j]) ** 2, axis=1) ** -3.0
    return float(np.sum(4 * (s6**2 - s6)))


def lennard_jones_grad(x):
    i, j = np.triu_indices(len(x), 1)
    d = x[i] - x[j]
    r2 = np.sum(d**2, axis=1)
    s6 = r2**-3.0
    force = (4 * (-12 * s6**2 + 6 * s6) / r2)[:, None] * d
    dx = np.zeros_like(x)
    np.add.at(dx, i, force)
    np.add.at(dx, j, -force)
    return dx


def lennard_jones_mistaken(x):
    """The factor of the repulsion is that of the attraction, twice 6 less 1."""
    i, j = np.triu_indices(len(x), 1)
    d = x[i] - x[j]
    r2 = np.sum(d**2, axis=1)
    s6 = r2**-3.0
    force = (4 * (-11 * s6**2 + 6 * s6) / r2)[:, None] * d
    dx = np.zeros_like(x)
    np.add.at(dx, i, force)
    np.add.at(dx, j, -force)
    return dx


def lennard_jones_inputs():
    grid = np.stack(np.meshgrid(*[np.arange(2.0)] * 3), -1).reshape(-1, 3)[:6]
    return 1.2 * grid + 0.1 * DRAW.normal(size=grid.shape)


# Natural cubic spline through (KNOTS, y), at t.
KNOTS = np.array([0.0, 0.7, 1.1, 2.0, 2.6, 3.5])


def _system():
    h = np.diff(KNOTS)
    a = np.eye(len(KNOTS))
    b = np.zeros_like(a)
    for k in range(1, len(KNOTS) - 1):
        a[k, k - 1 : k + 2] = h[k - 1], 2 * (h[k - 1] + h[k]), h[k]
        b[k, k - 1 : k + 2] = 6 / h[k - 1], -6 / h[k - 1] - 6 / h[k], 6 / h[k]
    return a, b


def _places(t):
    k = np.clip(np.searchsorted(KNOTS, t) - 1, 0, len(KNOTS) - 2)
    h = KNOTS[k + 1] - KNOTS[k]
    return k, h, (KNOTS[k + 1] - t) / h, (t - KNOTS[k]) / h


def spline(t, y):
    a, b = _system()
    m = np.linalg.solve(a, b @ y)
    k, h, u, v = _places(t)
    return u * y[k] + v * y[k + 1] + ((u**3 - u) * m[k] + (v**3 - v) * m[k + 1]) * h**2 / 6


def _spline_pulled(t, y, dy, through):
    a, b = _system()
    m = np.linalg.solve(a, b @ y)
    k, h, u, v = _places(t)
    slope = (y[k + 1] - y[k]) / h + ((1 - 3 * u**2) * m[k] + (3 * v**2 - 1) * m[k + 1]) * h / 6
    dys, dm = np.zeros_like(y), np.zeros_like(y)
    np.add.at(dys, k, dy * u)
    np.add.at(dys, k + 1, dy * v)
    np.add.at(dm, k, dy * (u**3 - u) * h**2 / 6)
    np.add.at(dm, k + 1, dy * (v**3 - v) * h**2 / 6)
    return dy * slope, dys + b.T @ np.linalg.solve(through(a), dm)


def spline_vjp(t, y, dy):
    return _spline_pulled(t, y, dy, np.transpose)


def spline_mistaken(t, y, dy):
    """The matrix of the backward solve is not transposed."""
    return _spline_pulled(t, y, dy, lambda a: a)


def spline_inputs():
    return np.array([0.3, 0.9, 1.6, 2.2, 3.1]), DRAW.normal(size=6)


# Predator and prey by the classical Runge-Kutta method, and its discrete adjoint.
STEPS, H = 20, 0.1


def _rate(z, p):
    return np.array([p[0] * z[0] - p[1] * z[0] * z[1], p[1] * z[0] * z[1] - p[2] * z[1]])


def _rate_vjp(z, p, dy):
    dz = np.array(
        [(p[0] - p[1] * z[1]) * dy[0] + p[1] * z[1] * dy[1], -p[1] * z[0] * dy[0] + (p[1] * z[0] - p[2]) * dy[1]]
    )
    return dz, np.array([z[0] * dy[0], z[0] * z[1] * (dy[1] - dy[0]), -z[1] * dy[1]])


def _stages(z, p):
    at = [z]
    for c in (0.5, 0.5, 1.0):
        at.append(z + c * H * _rate(at[-1], p))
    return at


def runge_kutta(z0, p):
    z = z0
    for _ in range(STEPS):
        k = [_rate(each, p) for each in _stages(z, p)]
        z = z + H / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3])
    return z


def _adjoint(z0, p, dy, last):
    path = [z0]
    for _ in range(STEPS):
        k = [_rate(each, p) for each in _stages(path[-1], p)]
        path.append(path[-1] + H / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3]))
    dz, dp = np.array(dy), np.zeros_like(p)
    for z in path[-2::-1]:
        at, before, back = _stages(z, p), dz, np.zeros_like(dz)
        for stage, weight, c in zip(at[::-1], (1, 2, 2, 1), (0.0, last, 0.5, 0.5), strict=True):
            dk = H / 6 * weight * before + c * H * back
            back, of_p = _rate_vjp(stage, p, dk)
            dz, dp = dz + back, dp + of_p
    return dz, dp


def runge_kutta_vjp(z0, p, dy):
    return _adjoint(z0, p, dy, 1.0)


def runge_kutta_mistaken(z0, p, dy):
    """The last stage is taken for one at half the step."""
    return _adjoint(z0, p, dy, 0.5)


def runge_kutta_inputs():
    return np.array([1.5, 0.8]), np.array([0.9, 0.6, 0.7])


# The log marginal likelihood of a Gaussian process with a squared-exponential kernel.
TIMES = np.linspace(0, 3, 12)
SEEN = np.sin(2 * TIMES) + 0.1 * DRAW.normal(size=12)


def _covariance(theta):
    scale, length, noise = np.exp(theta)
    d2 = (TIMES[:, None] - TIMES) ** 2
    kernel = scale**2 * np.exp(-d2 / (2 * length**2))
    return kernel + noise**2 * np.eye(len(TIMES)), (
        2 * kernel,
        kernel * d2 / length**2,
        2 * noise**2 * np.eye(len(TIMES)),
    )


def gaussian_process(theta):
    k, _ = _covariance(theta)
    factor = np.linalg.cholesky(k)
    white = np.linalg.solve(factor, SEEN)
    return -0.5 * white @ white - np.log(np.diag(factor)).sum() - len(SEEN) / 2 * np.log(2 * np.pi)


def gaussian_process_grad(theta):
    k, parts = _covariance(theta)
    a = np.linalg.solve(k, SEEN)
    return np.array([0.5 * a @ part @ a - 0.5 * np.trace(np.linalg.solve(k, part)) for part in parts])


def gaussian_process_mistaken(theta):
    """The determinant's term lacks its factor of one half."""
    k, parts = _covariance(theta)
    a = np.linalg.solve(k, SEEN)
    return np.array([0.5 * a @ part @ a - np.trace(np.linalg.solve(k, part)) for part in parts])


def gaussian_process_inputs():
    return np.log([1.0, 0.6, 0.2])


# Regressions.
X = DRAW.normal(size=(20, 3))
LABELS = (X @ [1.0, -2.0, 0.5] + 0.3 * DRAW.normal(size=20) > 0).astype(float)
CLASSES = DRAW.integers(0, 4, 20)


def logistic_regression(w, b):
    z = X @ w + b
    return np.mean(np.logaddexp(0, z) - LABELS * z) + 0.05 * w @ w


def logistic_regression_grad(w, b):
    apart = 1 / (1 + np.exp(-(X @ w + b))) - LABELS
    return X.T @ apart / len(X) + 0.1 * w, apart.mean()


def logistic_regression_mistaken(w, b):
    """The penalty's factor of two is forgotten."""
    apart = 1 / (1 + np.exp(-(X @ w + b))) - LABELS
    return X.T @ apart / len(X) + 0.05 * w, apart.mean()


def logistic_regression_inputs():
    return np.array([0.3, -0.8, 0.1]), 0.2


def softmax_regression(x, w, b):
    z = x @ w + b
    z = z - z.max(axis=1, keepdims=True)
    return np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), CLASSES])


def _softmax_pulled(x, w, b, dy, axis):
    z = np.exp(x @ w + b)
    dz = z / z.sum(axis=axis, keepdims=True)
    dz[np.arange(len(z)), CLASSES] -= 1
    dz *= dy / len(z)
    return dz @ w.T, x.T @ dz, dz.sum(axis=0)


def softmax_regression_vjp(x, w, b, dy):
    return _softmax_pulled(x, w, b, dy, 1)


def softmax_regression_mistaken(x, w, b, dy):
    """The probabilities sum to one over the wrong axis."""
    return _softmax_pulled(x, w, b, dy, 0)


def softmax_regression_inputs():
    return X.astype(np.float32), DRAW.normal(size=(3, 4)).astype(np.float32), DRAW.normal(size=4).astype(np.float32)


def least_squares(a, b):
    return np.linalg.lstsq(a, b, rcond=None)[0]


def least_squares_vjp(a, b, dy):
    x = least_squares(a, b)
    g = np.linalg.solve(a.T @ a, dy)
    return np.outer(b - a @ x, g) - np.outer(a @ g, x), a @ g


def least_squares_mistaken(a, b, dy):
    """The term of the residual is forgotten, as if the system were square."""
    x = least_squares(a, b)
    g = np.linalg.solve(a.T @ a, dy)
    return -np.outer(a @ g, x), a @ g


def least_squares_inputs():
    return DRAW.normal(size=(6, 3)), DRAW.normal(size=6)


# The log-likelihood of a local level by a Kalman filter, and its derivative along with it.
WALK = np.cumsum(DRAW.normal(size=15)) + DRAW.normal(size=15)


def _filtered(theta, of_gain):
    q, r = np.exp(theta)
    dq, dr = np.array([q, 0.0]), np.array([0.0, r])
    m, p, dm, dp, found, slope = 0.0, 1.0, np.zeros(2), np.zeros(2), 0.0, np.zeros(2)
    for seen in WALK:
        p, dp = p + q, dp + dq
        s, ds, e, de = p + r, dp + dr, seen - m, -dm
        found -= 0.5 * (np.log(2 * np.pi * s) + e * e / s)
        slope = slope - 0.5 * (ds / s + 2 * e * de / s - e * e * ds / s**2)
        gain, dgain = p / s, of_gain * (dp / s - p * ds / s**2)
        m, dm = m + gain * e, dm + dgain * e + gain * de
        p, dp = (1 - gain) * p, (1 - gain) * dp - dgain * p
    return found, slope


def kalman_filter(theta):
    return _filtered(theta, 1.0)[0]


def kalman_filter_grad(theta):
    return _filtered(theta, 1.0)[1]


def kalman_filter_mistaken(theta):
    """The gain is taken for a constant."""
    return _filtered(theta, 0.0)[1]


def kalman_filter_inputs():
    return np.array([0.2, -0.3])


# A network by hand, in float32.
def network(x, w, b, last):
    return np.maximum(x @ w + b, 0) @ last


def _backpropagated(x, w, last, dy, z):
    dz = np.where(z > 0, dy @ last.T, 0)
    return dz @ w.T, x.T @ dz, dz.sum(axis=0)


def network_vjp(x, w, b, last, dy):
    return *_backpropagated(x, w, last, dy, x @ w + b), np.maximum(x @ w + b, 0).T @ dy


def network_mistaken(x, w, b, last, dy):
    """The mask is that of the numbers before the bias."""
    return *_backpropagated(x, w, last, dy, x @ w), np.maximum(x @ w + b, 0).T @ dy


def network_inputs():
    return tuple(DRAW.normal(size=shape).astype(np.float32) for shape in ((2, 4), (4, 8), (8,), (8, 3)))


MODELS = (
    *("rosenbrock", "lennard_jones", "spline", "runge_kutta", "gaussian_process", "logistic_regression"),
    *("softmax_regression", "least_squares", "kalman_filter", "network"),
)
