"""Functions and modules of PyTorch: ``torch+MODULE:FUNCTION``."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from pullback.dtypes import FLOATS, Array
from pullback.gradcheck import floats
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.of.calling import Arguments, Tree, flatten, ordered, rebuild
from pullback.gradcheck.of.source import Source, argument, call, part
from pullback.gradcheck.of.source import array as written

Tensors = dict[str, torch.Tensor]


class _Casts(TorchDispatchMode):
    """The dtypes that floats are cast to, as autocast does; if it ``widens``, float64 takes their place.

    It sees random numbers, too.
    """

    def __init__(self, *, widens: bool = False) -> None:
        super().__init__()
        self.dtypes, self.draws, self._widens = set[str](), False, widens

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.draws |= torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        named = dict(kwargs or {})
        dtype, x = named.get("dtype"), next(iter(args), None)
        if isinstance(dtype, torch.dtype) and isinstance(x, torch.Tensor) and x.is_floating_point():
            before, name = (str(each).removeprefix("torch.") for each in (x.dtype, dtype))
            if {before, name} <= {*FLOATS} and floats.eps(name) > floats.eps(before):
                self.dtypes.add(name)
                named["dtype"] = torch.float64 if self._widens else dtype
        return func(*args, **named)


class _WideNumbers(TorchFunctionMode):
    """Tensors that are made of numbers have a wide dtype, in this thread.

    ``torch.where(x > 0, 0.9, 0.1)`` is a tensor of float32, and as exact as it need be in a function of float32. A
    function may never return, so the default dtype of the process is another one for a call of PyTorch alone.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before = torch.get_default_dtype()
        torch.set_default_dtype(self._dtype)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            torch.set_default_dtype(before)


class TorchFunction:
    """A function of tensors, or a module, whose parameters are inputs too.

    If some arguments require a gradient, the others are not inputs. Outputs without a gradient are none, beside others.
    """

    mode, remark, has_layouts, checks_indices, has_solver, casts_to, draws = "eager", "", True, True, False, "", False
    dtypes: Sequence[str] = FLOATS

    def __init__(self, function: Callable[..., Any]) -> None:
        """Keep the function, in eager mode if it is compiled; ``leaves`` sets its arguments."""
        self._function, self._arguments = _in_eager_mode(function), dict[str, Tree]()
        self._is_wide, self._cast_from, self._own = False, "", "float64"
        self._is_compiled = self._function is not function
        self._compiled: Callable[[Tensors], Any] | None = None
        self._constants: Collection[str] | None = None
        self._complex: Collection[str] = ()
        self._module = self._function if isinstance(self._function, torch.nn.Module) else None
        self._parameters = dict(self._module.named_parameters()) if self._module is not None else {}

    def leaves(self, arguments: Mapping[str, Tree]) -> dict[str, Array]:
        """Keep the arguments, and return the floats of them and of the parameters."""
        self._arguments = rebuild(arguments, "", lambda _, x: tensor(x) if isinstance(x, np.ndarray) else x)
        self._constants = None
        given = {name: x for name, x in flatten(self._arguments, "") if is_number(x)}
        inputs = {name: x for name, x in given.items() if x.requires_grad} or given
        # Numbers of the command line have no dtype: a function of them runs in PyTorch's.
        own = [x for _, x in flatten(arguments, "") if is_number(x)] + [*self._parameters.values()]
        dtypes = [floats.name_of(array(x.real)) for x in own] or [str(torch.get_default_dtype()).removeprefix("torch.")]
        self._own = floats.narrowest(dtypes)
        return {name: array(x) for name, x in _real((inputs | self._parameters).items())}

    def values(self, leaves: Arrays) -> dict[str, Array]:
        """Return the outputs."""
        # Some functions look whether their inputs require a gradient.
        tensors, dtype = self._tensors(leaves, list(leaves)), floats.narrowest(map(floats.name_of, leaves.values()))
        with self._running_in(dtype, sees_casts=dtype != self._cast_from) as casts:
            found = self._results(tensors)
        if casts and not self._is_wide:
            self.draws |= casts.draws
            # Autocast has none in float64.
            self._cast_from, self.casts_to = dtype, floats.narrowest(casts.dtypes) if casts.dtypes else ""
        if self._constants is None:
            constants = [name for name, y in found.items() if not y.requires_grad]
            self._constants = constants if len(constants) < len(found) else ()
            if self._constants:
                self.remark = f"{', '.join(constants)} has no gradient in PyTorch, and was left out."
        return {name: array(y) for name, y in found.items() if name not in self._constants}

    def vjp(self, leaves: Arrays, output: str, cotangent: Array, inputs: Sequence[str]) -> dict[str, Array]:
        """Return Jᵀ dy by input, as ``backward`` computes it."""
        tensors = self._tensors(leaves, inputs)
        with self._running_at(leaves):
            found = self._gradients(tensors, output, cotangent, inputs)
        return {name: array(dx) for name, dx in found.items()}

    def jvp(self, leaves: Arrays, name: str, tangent: Array, outputs: Sequence[str]) -> dict[str, Array]:
        """Return J tx by output, in forward mode."""
        tensors = self._tensors(leaves)
        with forward_ad.dual_level(), self._running_at(leaves):
            tensors[name] = forward_ad.make_dual(tensors[name], tensor(tangent))
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
        with self._running_at(leaves):
            slope = self._gradients(tensors, output, dy, [b], create_graph=True)[b]
            if not slope.requires_grad:  # it is linear, or its backward cannot be differentiated
                return np.zeros_like(leaves[a])
            product = (slope * tensor(v)).sum()
            [found] = torch.autograd.grad(product, [tensors[a]], allow_unused=True)
        return np.zeros_like(leaves[a]) if found is None else array(found)

    def source(self, name: str, leaves: Arrays, output: str, cotangent: Array, wrt: str) -> tuple[str, str]:
        """Return a call of ``torch.autograd.grad``."""
        sources = {key: _written(x) for key, x in leaves.items()} | {wrt: Source("x")}

        def written_in(key: str, x: Any) -> Any:
            return argument(sources, key, "torch.complex") or _kept(x)

        arguments = ordered(self._function, rebuild(self._arguments, "", written_in))
        if self._module is None:
            y = call(name, arguments)
        else:
            state = {key: argument(sources, key, "torch.complex") for key in self._parameters}
            dtype = f"torch.{floats.name_of(cotangent)}"
            values = Arguments([Source(f"{name}.to({dtype})"), state, tuple(arguments.positional)], {})
            y = call("torch.func.functional_call", values)
        x = written("torch.tensor", leaves[wrt], "torch", "requires_grad=True")
        dy = _written(cotangent)
        found = f"torch.autograd.grad({y}{part(output, self._complex)}, x, {dy}, materialize_grads=True)[0]"
        return f"import torch; x = {x}", found

    def other(self, *, compiles: bool) -> "TorchFunction | None":
        """Return the function compiled, if it was, or if it ``compiles``."""
        if not compiles and not self._is_compiled:
            return None
        found = copy(self)
        found.mode, found._compiled = "compile", torch.compile(self._results_of, dynamic=False)
        return found

    def widened(self) -> "TorchFunction":
        """Return the function with float64 in place of each narrower dtype that it casts to."""
        found = copy(self)
        found._is_wide, found._constants, found.casts_to, found._cast_from = True, None, "", ""
        return found

    @contextmanager
    def _running_in(self, dtype: str, *, sees_casts: bool) -> Iterator[_Casts | None]:
        """Run in a dtype. Where it is wider than that of the arguments, so are the tensors that numbers become."""
        with ExitStack() as stack:
            if floats.eps(dtype) < floats.eps(self._own) and torch.get_default_dtype() == torch.float32:
                stack.enter_context(_WideNumbers(getattr(torch, dtype)))
            yield stack.enter_context(_Casts(widens=self._is_wide)) if sees_casts else None

    def _running_at(self, leaves: Arrays) -> AbstractContextManager[_Casts | None]:
        return self._running_in(floats.narrowest(map(floats.name_of, leaves.values())), sees_casts=self._is_wide)

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
        found = torch.autograd.grad(y, xs, tensor(cotangent), allow_unused=True, create_graph=create_graph)
        return {name: torch.zeros_like(x) if dx is None else dx for name, x, dx in zip(inputs, xs, found, strict=True)}

    def _depends_on_others(self, tensors: Tensors, output: str) -> bool:
        """Return whether an output has a gradient in another input than those that require one."""
        every = {name: x.detach().requires_grad_() for name, x in tensors.items()}
        return self._results(every)[output].requires_grad

    def _tensors(self, leaves: Arrays, wrt: Sequence[str] = ()) -> Tensors:
        # A module's parameters are contiguous: kernels such as that of batch_norm's gradient read no others.
        arrays = {name: np.asarray(x, order="C") if name in self._parameters else x for name, x in leaves.items()}
        return {name: tensor(x).requires_grad_(name in wrt) for name, x in arrays.items()}

    def _results(self, tensors: Tensors) -> Tensors:
        found = (self._compiled or self._results_of)(tensors)
        named = dict(flatten(found, "" if isinstance(found, dict | list | tuple) else "y"))
        self._complex = [name for name, y in named.items() if is_number(y) and y.is_complex()]
        return {name: y for name, y in _real(named.items()) if name not in (self._constants or ())}

    def _results_of(self, tensors: Tensors) -> Any:
        """Return what the function returns."""
        dtype = next(iter(tensors.values())).dtype
        arguments = rebuild(self._arguments, "", lambda name, x: _whole(tensors, name, x, dtype))
        if self._module is None:
            return self._function(**arguments)
        state = {name: _cast(x, dtype) for name, x in self._module.named_buffers()}
        state |= {name: _whole(tensors, name, x, dtype) for name, x in self._parameters.items()}
        return torch.func.functional_call(self._module, state, (), arguments)


LIBRARY = TorchFunction


def is_number(x: object) -> bool:
    """Return whether a value is a tensor of floats, real or complex."""
    return isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())


def array(x: torch.Tensor) -> Array:
    """Return the numbers of a tensor, in its dtype; the bits of bfloat16."""
    if x.dtype == torch.bfloat16:
        x = x.detach().contiguous().view(torch.uint16)
    found: Array = x.numpy(force=True)
    return found


def tensor(x: Array) -> torch.Tensor:
    """Return the tensor of an array, of which uint16 is the bits of bfloat16."""
    found = torch.from_numpy(x)
    return found.view(torch.bfloat16) if x.dtype == np.uint16 else found


def _in_eager_mode(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function or a module as it was before ``torch.compile``."""
    before = getattr(function, "_orig_mod", None) or getattr(function, "_torchdynamo_orig_callable", None)
    return function if before is None else before


def _real(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of floats, and both parts of complex ones."""
    for name, x in named:
        if is_number(x):
            yield from ((f"{name}.real", x.real), (f"{name}.imag", x.imag)) if x.is_complex() else ((name, x),)


def _whole(tensors: Tensors, name: str, x: Any, dtype: torch.dtype) -> Any:
    """Return an argument: one of the tensors, a complex one of its two parts, or cast to the dtype of these."""
    if f"{name}.real" in tensors:
        return torch.complex(tensors[f"{name}.real"], tensors[f"{name}.imag"])
    return tensors.get(name, _cast(x, dtype))


def _cast(x: Any, dtype: torch.dtype) -> Any:
    """Cast a tensor of floats that is not an input to the dtype of the inputs; return other values as they are."""
    if not is_number(x):
        return x
    return x.detach().to(dtype.to_complex() if x.is_complex() else dtype)


def _written(x: Array) -> Source:
    return written("torch.tensor", x, "torch")


def _kept(x: object) -> object:
    """Return a tensor that is not an input as Python source, and other values as they are."""
    return Source(f"torch.tensor({x.tolist()!r}, dtype={x.dtype})") if isinstance(x, torch.Tensor) else x
