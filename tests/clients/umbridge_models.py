"""Models on UM-Bridge's own server, with right and wrong gradients: ``python umbridge_models.py PORT``."""

import sys

import numpy as np
import umbridge


class Products(umbridge.Model):
    """y = (x0 x1 z0, x2³ + e^z1), with all derivatives; ``spoil`` changes the gradient."""

    def __init__(self, name, spoil=lambda dx: dx):
        super().__init__(name)
        self.spoil = spoil

    def get_input_sizes(self, config):
        return [3, 2]

    def get_output_sizes(self, config):
        return [2]

    def __call__(self, parameters, config):
        x, z = parameters
        return [[float(x[0] * x[1] * z[0]), float(x[2] ** 3 + np.exp(z[1]))]]

    def jacobian(self, parameters, wrt):
        x, z = parameters
        by_x = [[x[1] * z[0], x[0] * z[0], 0], [0, 0, 3 * x[2] ** 2]]
        return np.array([by_x, [[x[0] * x[1], 0], [0, np.exp(z[1])]]][wrt], float)

    def gradient(self, out_wrt, in_wrt, parameters, sens, config):
        return self.spoil(self.jacobian(parameters, in_wrt).T @ sens).tolist()

    def apply_jacobian(self, out_wrt, in_wrt, parameters, vec, config):
        return (self.jacobian(parameters, in_wrt) @ vec).tolist()

    def apply_hessian(self, out_wrt, in_wrt1, in_wrt2, *arguments):
        (x, z), sens, vec, _ = arguments
        cross = sens[0] * np.array([[x[1], 0], [x[0], 0], [0, 0]])
        of_x = np.zeros((3, 3))
        of_x[0, 1] = of_x[1, 0] = sens[0] * z[0]
        of_x[2, 2] = 6 * sens[1] * x[2]
        of_z = np.diag([0, sens[1] * np.exp(z[1])])
        return ([[of_x, cross], [cross.T, of_z]][in_wrt1][in_wrt2] @ vec).tolist()

    def supports_evaluate(self):
        return True

    supports_gradient = supports_apply_jacobian = supports_apply_hessian = supports_evaluate


class Chain(umbridge.Model):
    """(2 + x) u[i] - u[i-1] - u[i+1] = 1, solved to a tolerance of 1e-6, and so is its adjoint."""

    def __init__(self, name, factor=1.0):
        super().__init__(name)
        self.factor = factor

    def get_input_sizes(self, config):
        return [8]

    get_output_sizes = get_input_sizes

    def solve(self, x, b):
        u = np.zeros(8)
        while True:
            new = (b + np.r_[0, u[:-1]] + np.r_[u[1:], 0]) / (2 + np.array(x))
            if np.abs(new - u).max() < 1e-6 * np.abs(new).max():
                return new
            u = new

    def __call__(self, parameters, config):
        return [self.solve(parameters[0], np.ones(8)).tolist()]

    def gradient(self, out_wrt, in_wrt, parameters, sens, config):
        x = parameters[0]
        return (-self.factor * self.solve(x, np.array(sens)) * self.solve(x, np.ones(8))).tolist()

    def supports_evaluate(self):
        return True

    supports_gradient = supports_evaluate


if __name__ == "__main__":
    models = [
        Products("right"),
        Products("large", lambda dx: 1.09 * dx),
        Products("one", lambda dx: dx * np.r_[1.09, np.ones(len(dx) - 1)]),
        Chain("solver"),
        Chain("wrong_solver", 1.05),
    ]
    umbridge.serve_models(models, int(sys.argv[1]))
