"""What ``test_all.py`` needs of PyTorch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

WAYS = {"eager": lambda f: f, "compiled": partial(torch.compile, backend="aot_eager", fullgraph=True)}
# What a program raises in place of our errors.
WRAPPED = ()
IS_THREADED = True
softplus = torch.nn.functional.softplus


def value_and_gradient(f: Callable[..., Any], way: Any) -> Callable[[np.ndarray], tuple[Any, Any]]:
    # PyTorch compiles the code of a function at most eight times.
    torch._dynamo.reset()
    run = way(lambda x: f(x).sum())

    def call(given: np.ndarray) -> tuple[Any, Any]:
        x = torch.tensor(given, requires_grad=True)
        y = run(x)
        y.backward()
        return y.detach(), x.grad

    return call


def hessian(f: Callable[..., Any], way: Any) -> Callable[[np.ndarray], Any]:
    del way  # PyTorch compiles no second order
    run = torch.func.hessian(lambda x: f(x).sum())
    return lambda x: run(torch.tensor(x))
