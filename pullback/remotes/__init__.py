"""Ops of a service as differentiable functions: what the frameworks share.

``Remote`` is an op of a service, ``Derivative`` is the op after a path of vjps and jvps, and ``evaluate`` computes one
from NumPy arrays with as few requests as possible. ``Function`` is the base class of the functions. No module here
imports a framework.
"""

from pullback.remotes.derivatives import Derivative
from pullback.remotes.evaluation import evaluate
from pullback.remotes.function import Function, batch
from pullback.remotes.jacobians import Jacobians
from pullback.remotes.remote import Remote
from pullback.remotes.shapes import TensorType, refuse_complex

__all__ = ["Derivative", "Function", "Jacobians", "Remote", "TensorType", "batch", "evaluate", "refuse_complex"]
