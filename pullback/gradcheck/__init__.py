"""The gradient checker of any function, in NumPy alone.

``Function`` is what it checks: a server's model, a calculator of energies, or a function of NumPy, PyTorch, JAX or
TensorFlow in this process; ``of`` has a module for each. Numeric derivatives with error bars, comparisons and verdicts
serve the checks of the service's ops too.
"""
