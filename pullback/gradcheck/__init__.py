"""The gradient checker of any function, in NumPy alone: ``check`` is what tests call.

``Function`` is what it checks: a server's model, a calculator of energies, or a function of NumPy, PyTorch, JAX or
TensorFlow in this process; ``of`` has a module for each. Numeric derivatives with error bars, comparisons and verdicts
serve the checks of the service's ops too.
"""

from pullback.gradcheck.assertion import GradientReport, WrongGradient, check

__all__ = ["GradientReport", "WrongGradient", "check"]
