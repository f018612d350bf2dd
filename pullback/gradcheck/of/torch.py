"""Functions and modules of PyTorch: ``torch+MODULE:FUNCTION``."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from pullback.dtypes import Array
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.of.calling import Arguments, ordered
from pullback.gradcheck.of.source import Source, call, part
from pullback.gradcheck.of.source import array as written
from pullback.gradcheck.of.trees import Tree, flatten, rebuild

Tensors = dict[str, torch.Tensor]


class TorchFunction:
    """A function of tensors, or a module, whose parameters are inputs too.

    If some arguments require a gradient, the others are not inputs. Outputs without a gradient are none, beside others.
    """

    mode, remark, has_layouts = "eager", "", True

    def __init__(self, function: Callable[..., Any]) -> None:
        """Keep the function; ``leaves`` sets its arguments."""
        self._function, self._arguments = function, dict[str, Tree]()
        self._constants: Collection[str] | None = None
        self._module = function if isinstance(function, torch.nn.Module) else None
        self._parameters = dict(self._module.named_parameters()) if self._module is not None else {}

    def leaves(self, arguments: Mapping[str, Tree]) -> dict[str, Array]:
        """Keep the arguments, and return the floats of them and of the parameters."""
        self._arguments = rebuild(arguments, "", lambda _, x: torch.from_numpy(x) if isinstance(x, np.ndarray) else x)
        given = {name: x for name, x in flatten(self._arguments, "") if is_float(x)}
        inputs = {name: x for name, x in given.items() if x.requires_grad} or given
        return {name: array(x) for name, x in (inputs | self._parameters).items() if is_float(x)}

    def values(self, leaves: Arrays) -> dict[str, Array]:
        """Return the outputs."""
        # Some functions look whether their inputs require a gradient.
        found = self._results(self._tensors(leaves, list(leaves)))
        if self._constants is None:
            constants = [name for name, y in found.items() if not y.requires_grad]
            self._constants = constants if len(constants) < len(found) else ()
            if self._constants:
                self.remark = f"{', '.join(constants)} has no gradient in PyTorch, and was left out."
        return {name: array(y) for name, y in found.items() if name not in self._constants}

    def vjp(self, leaves: Arrays, output: str, cotangent: Array, inputs: Sequence[str]) -> dict[str, Array]:
        """Return Jᵀ dy by input, as ``backward`` computes it."""
        tensors = self._tensors(leaves, inputs)
        found = self._gradients(tensors, output, cotangent, inputs)
        return {name: array(dx) for name, dx in found.items()}

    def jvp(self, leaves: Arrays, name: str, tangent: Array, outputs: Sequence[str]) -> dict[str, Array]:
        """Return J tx by output, in forward mode."""
        tensors = self._tensors(leaves)
        with forward_ad.dual_level():
            tensors[name] = forward_ad.make_dual(tensors[name], torch.from_numpy(tangent))
            try:
                found = self._results(tensors)
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
        product = (slope * torch.from_numpy(v)).sum()
        [found] = torch.autograd.grad(product, [tensors[a]], allow_unused=True)
        return np.zeros_like(leaves[a]) if found is None else array(found)

    def source(self, name: str, leaves: Arrays, output: str, cotangent: Array, wrt: str) -> tuple[str, str]:
        """Return a call of ``torch.autograd.grad``."""
        sources = {key: _written(x) for key, x in leaves.items()} | {wrt: Source("x")}
        arguments = ordered(self._function, rebuild(self._arguments, "", lambda key, x: sources.get(key) or _kept(x)))
        if self._module is None:
            y = call(name, arguments)
        else:
            state = {key: sources[key] for key in self._parameters}
            dtype = f"torch.{cotangent.dtype.name}"
            values = Arguments([Source(f"{name}.to({dtype})"), state, tuple(arguments.positional)], {})
            y = call("torch.func.functional_call", values)
        x = written("torch.tensor", leaves[wrt], "torch", "requires_grad=True")
        dy = _written(cotangent)
        found = f"torch.autograd.grad({y}{part(output)}, x, {dy}, materialize_grads=True)[0]"
        return f"import torch; x = {x}", found

    def other(self) -> None:
        """Return no other mode: to compile takes a minute."""

    def _gradients(
        self, tensors: Tensors, output: str, cotangent: Array, inputs: Sequence[str], *, create_graph: bool = False
    ) -> Tensors:
        y = self._results(tensors)[output]
        if not y.requires_grad:
            if self._depends_on_others(tensors, output):
                return {name: torch.zeros_like(tensors[name]) for name in inputs}
            raise TypeError(
                f"{output} has no gradient: expected no torch.no_grad(), detach(), item() or NumPy between it and the "
                "inputs"
            )
        xs = [tensors[name] for name in inputs]
        found = torch.autograd.grad(y, xs, torch.from_numpy(cotangent), allow_unused=True, create_graph=create_graph)
        return {name: torch.zeros_like(x) if dx is None else dx for name, x, dx in zip(inputs, xs, found, strict=True)}

    def _depends_on_others(self, tensors: Tensors, output: str) -> bool:
        """Return whether an output has a gradient in another input than those that require one."""
        every = {name: x.detach().requires_grad_() for name, x in tensors.items()}
        return self._results(every)[output].requires_grad

    def _tensors(self, leaves: Arrays, wrt: Sequence[str] = ()) -> Tensors:
        # A module's parameters are contiguous: kernels such as that of batch_norm's gradient read no others.
        arrays = {name: np.asarray(x, order="C") if name in self._parameters else x for name, x in leaves.items()}
        return {name: torch.from_numpy(x).requires_grad_(name in wrt) for name, x in arrays.items()}

    def _results(self, tensors: Tensors) -> Tensors:
        dtype = next(iter(tensors.values())).dtype
        arguments = rebuild(self._arguments, "", lambda name, x: tensors.get(name, _cast(x, dtype)))
        if self._module is None:
            found = self._function(**arguments)
        else:
            state = {name: _cast(x, dtype) for name, x in self._module.named_buffers()}
            state |= {name: tensors[name] for name in self._parameters}
            found = torch.func.functional_call(self._module, state, (), arguments)
        return {
            name or "y": y
            for name, y in flatten(found, "" if isinstance(found, dict | list | tuple) else "y")
            if is_float(y) and name not in (self._constants or ())
        }


LIBRARY = TorchFunction


def is_float(x: object) -> bool:
    """Return whether a value is a tensor of real floats."""
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def array(x: torch.Tensor) -> Array:
    """Return the numbers of a tensor, in its dtype."""
    found: Array = x.numpy(force=True)
    return found


def _cast(x: Any, dtype: torch.dtype) -> Any:
    """Cast a tensor of floats that is not an input to the dtype of the inputs; return other values as they are."""
    return x.detach().to(dtype) if is_float(x) else x


def _written(x: Array) -> Source:
    return written("torch.tensor", x, "torch")


def _kept(x: object) -> object:
    """Return a tensor that is not an input as Python source, and other values as they are."""
    return Source(f"torch.tensor({x.tolist()!r}, dtype={x.dtype})") if isinstance(x, torch.Tensor) else x
