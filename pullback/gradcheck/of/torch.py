"""Functions and modules of PyTorch: ``torch+MODULE:FUNCTION``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from pullback.dtypes import Array
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.of.trees import Tree, flatten, rebuild

Tensors = dict[str, torch.Tensor]


class TorchFunction:
    """A function of tensors, or a module, whose parameters are inputs too."""

    mode = "eager"

    def __init__(self, function: Callable[..., Any]) -> None:
        """Keep the function; ``leaves`` sets its arguments."""
        self._function, self._arguments = function, dict[str, Tree]()
        self._module = function if isinstance(function, torch.nn.Module) else None
        self._parameters = dict(self._module.named_parameters()) if self._module is not None else {}

    def leaves(self, arguments: Mapping[str, Tree]) -> dict[str, Array]:
        """Keep the arguments, and return the floats of them and of the parameters."""
        self._arguments = rebuild(arguments, "", lambda _, x: torch.from_numpy(x) if isinstance(x, np.ndarray) else x)
        found = [*flatten(self._arguments, ""), *self._parameters.items()]
        return {name: array(x) for name, x in found if is_float(x)}

    def values(self, leaves: Arrays) -> dict[str, Array]:
        """Return the outputs."""
        return {name: array(y) for name, y in self._outputs(self._tensors(leaves)).items()}

    def vjp(self, leaves: Arrays, output: str, cotangent: Array, inputs: Sequence[str]) -> dict[str, Array]:
        """Return Jᵀ dy by input, as ``backward`` computes it."""
        tensors = self._tensors(leaves, inputs)
        found = self._gradients(tensors, output, cotangent, inputs)
        return {name: array(dx) for name, dx in found.items()}

    def jvp(self, leaves: Arrays, name: str, tangent: Array, outputs: Sequence[str]) -> dict[str, Array]:
        """Return J tx by output, in forward mode."""
        tensors = self._tensors(leaves)
        with forward_ad.dual_level():
            tensors[name] = forward_ad.make_dual(tensors[name], torch.from_numpy(tangent.copy()))
            try:
                found = self._outputs(tensors)
            except RuntimeError as error:
                raise NotImplementedError(str(error)) from error
            duals = {key: forward_ad.unpack_dual(y) for key, y in found.items() if key in outputs}
            zeros = {key: torch.zeros_like(dual.primal) for key, dual in duals.items()}
            return {key: array(zeros[key] if dual.tangent is None else dual.tangent) for key, dual in duals.items()}

    def hessian(self, leaves: Arrays, output: str, inputs: tuple[str, str], dy: Array, v: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v as double backward computes it: the gradient in a of ⟨J_bᵀ dy, v⟩."""
        a, b = inputs
        tensors = self._tensors(leaves, inputs)
        slope = self._gradients(tensors, output, dy, [b], create_graph=True)[b]
        if not slope.requires_grad:  # it is linear, or its backward cannot be differentiated
            return np.zeros_like(leaves[a])
        product = (slope * torch.from_numpy(v.copy())).sum()
        [found] = torch.autograd.grad(product, [tensors[a]], allow_unused=True)
        return np.zeros_like(leaves[a]) if found is None else array(found)

    def other(self) -> None:
        """Return no other mode: to compile takes a minute."""

    def _gradients(
        self, tensors: Tensors, output: str, cotangent: Array, inputs: Sequence[str], *, create_graph: bool = False
    ) -> Tensors:
        y = self._outputs(tensors)[output]
        if not y.requires_grad:
            raise TypeError(
                f"{output} has no gradient: expected no torch.no_grad(), detach(), item() or NumPy between it and the "
                "inputs"
            )
        xs = [tensors[name] for name in inputs]
        found = torch.autograd.grad(
            y, xs, torch.from_numpy(cotangent.copy()), allow_unused=True, create_graph=create_graph
        )
        return {name: torch.zeros_like(x) if dx is None else dx for name, x, dx in zip(inputs, xs, found, strict=True)}

    def _tensors(self, leaves: Arrays, wrt: Sequence[str] = ()) -> Tensors:
        return {name: torch.from_numpy(x).requires_grad_(name in wrt) for name, x in leaves.items()}

    def _outputs(self, tensors: Tensors) -> Tensors:
        arguments = rebuild(self._arguments, "", tensors.get)
        if self._module is None:
            found = self._function(**arguments)
        else:
            dtype = next(iter(tensors.values())).dtype
            state = {name: x.to(dtype) if is_float(x) else x for name, x in self._module.named_buffers()}
            state |= {name: tensors[name] for name in self._parameters}
            found = torch.func.functional_call(self._module, state, (), arguments)
        return {
            name or "y": y
            for name, y in flatten(found, "" if isinstance(found, dict | list | tuple) else "y")
            if is_float(y)
        }


LIBRARY = TorchFunction


def is_float(x: object) -> bool:
    """Return whether a value is a tensor of real floats."""
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def array(x: torch.Tensor) -> Array:
    """Return the numbers of a tensor, in its dtype."""
    found: Array = x.numpy(force=True)
    return found
