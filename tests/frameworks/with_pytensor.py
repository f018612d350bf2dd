"""What ``test_all.py`` needs of PyTensor."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode

# All rewrites, and no compilation, which takes seconds.
WAYS = {"python": Mode(linker="py", optimizer="fast_run")}
# What a program raises in place of our errors.
WRAPPED = ()
# A function of PyTensor is for one thread at a time.
IS_THREADED = False
softplus = pt.softplus


def value_and_gradient(f: Callable[..., Any], way: Any) -> Callable[[np.ndarray], tuple[Any, Any]]:
    x = pt.dvector("x")
    y = f(x).sum()
    return pytensor.function([x], [y, pytensor.grad(y, x)], mode=way)


def hessian(f: Callable[..., Any], way: Any) -> Callable[[np.ndarray], Any]:
    x = pt.dvector("x")
    return pytensor.function([x], pytensor.gradient.hessian(f(x).sum(), x), mode=way)
